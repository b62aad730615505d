//! The feed of all sessions: how things stand, then what changes.

use std::io::{BufRead as _, BufReader, Lines};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::server::world::World;

struct Feed(Lines<BufReader<TcpStream>>);

impl Feed {
    fn open(world: &World) -> Self {
        let bearer = format!("Bearer {}", world.token);
        let stream = world.send("GET", "/api/v1/events", None, &[("authorization", &bearer)]);
        Self(BufReader::new(stream).lines())
    }

    fn next(&mut self) -> (String, Value) {
        let mut name = String::new();
        loop {
            let line = self.0.next().expect("the stream goes on").unwrap();
            if let Some(event) = line.strip_prefix("event: ") {
                event.clone_into(&mut name);
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return (name, serde_json::from_str(data).unwrap());
            }
        }
    }

    fn listing(&mut self) -> Vec<Value> {
        let (name, head) = self.next();
        assert_eq!((name.as_str(), &head["truncated"]), ("listing", &json!(false)));
        let mut listed = Vec::new();
        for _ in 0..head["sessions"].as_u64().unwrap() {
            let (name, event) = self.next();
            assert_eq!(name, "index");
            listed.push(event);
        }
        listed
    }

    /// What comes up to what is wanted.
    fn until(&mut self, wanted: impl Fn(&str, &Value) -> bool) -> Value {
        loop {
            let (name, event) = self.next();
            if wanted(&name, &event) {
                return event;
            }
        }
    }
}

#[test]
fn the_index_is_sent_as_it_is_and_as_it_changes() {
    let mut world = World::new();
    let first = world.session();
    let mut feeds = [Feed::open(&world), Feed::open(&world)];
    for feed in &mut feeds {
        let listed = feed.listing();
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!(listed[0]["session_id"], first.as_str());
        for name in ["task_id", "last_seq", "status", "state", "reason", "active_at"] {
            assert!(listed[0].get(name).is_some(), "{name} is missing: {}", listed[0]);
        }
    }
    // A new session, its turn, and its end: every reader receives them.
    let second = world.session();
    world.prompt(&second, "wait 60000");
    let of = |event: &Value| event["session_id"] == second.as_str();
    for feed in &mut feeds {
        let running =
            feed.until(|name, event| name == "index" && of(event) && event["status"] == "running");
        assert_eq!(running["state"], "RUNNING");
    }
    world.post(&format!("/api/v1/sessions/{second}/cancel"), &json!({})).good();
    let done = world.when(&second, |status| status["last_outcome"] == "cancelled");
    let last_seq = done["last_seq"].as_u64().unwrap();
    for feed in &mut feeds {
        feed.until(|_, event| {
            of(event) && event["status"] == "idle" && event["last_seq"].as_u64() >= Some(last_seq)
        });
    }
    // A reader that connects again receives the current state.
    let listed = Feed::open(&world).listing();
    let again: Vec<_> = listed.iter().filter(|event| of(event)).collect();
    assert_eq!((again.len(), &again[0]["status"]), (1, &json!("idle")));
    // What is deleted is gone.
    let path = format!("/api/v1/sessions/{second}?force=true");
    assert_eq!(world.ask("DELETE", &path, None, &[]).status, 204);
    for feed in &mut feeds {
        feed.until(|name, event| name == "gone" && of(event));
    }
    assert_eq!(Feed::open(&world).listing().len(), 1);
    // The server's end is the stream's.
    world.end();
    for feed in &mut feeds {
        for line in feed.0.by_ref() {
            line.unwrap();
        }
    }
    world.start();
    assert_eq!(Feed::open(&world).listing().len(), 1);
}

#[test]
fn the_index_is_for_those_who_may_read() {
    let world = World::new();
    let control = world.bearer(&["control"]);
    let answer = world.raw("GET", "/api/v1/events", None, &[("authorization", &control)]);
    assert_eq!((answer.status, answer.code()), (403, "insufficient_scope"));
    assert_eq!(world.raw("GET", "/api/v1/events", None, &[]).status, 401);
}
