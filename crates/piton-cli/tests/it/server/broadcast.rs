//! Readers of one log: whichever way they read, they get the same, and they end with it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::socket::Socket;
use crate::server::world::{TEST_TIMEOUT, World};

/// An event as it is on the wire.
#[derive(Debug, Default)]
struct Event {
    id: Option<u64>,
    name: String,
    data: Value,
}

fn open(world: &World, session: &str, bearer: &str) -> BufReader<TcpStream> {
    let path = format!("/api/v1/sessions/{session}/events");
    BufReader::new(world.send("GET", &path, None, &[("authorization", bearer)]))
}

/// Reads up to a record.
fn events(stream: &mut BufReader<TcpStream>, last: u64) -> Vec<Event> {
    let (mut events, mut event): (Vec<Event>, Event) = (Vec::new(), Event::default());
    while events.last().is_none_or(|event| event.id != Some(last)) {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "ended: {events:?}");
        if let Some(id) = line.strip_prefix("id: ") {
            event.id = Some(id.trim_end().parse().unwrap());
        } else if let Some(name) = line.strip_prefix("event: ") {
            name.trim_end().clone_into(&mut event.name);
        } else if let Some(data) = line.strip_prefix("data: ") {
            event.data = serde_json::from_str(data).unwrap();
            events.push(std::mem::take(&mut event));
        }
    }
    events
}

/// Wants to show: a reader of server-sent events receives each change of the derived status, in the
/// same form as a WebSocket client, right before the record that causes it.
#[test]
fn both_kinds_of_readers_hear_of_each_change_of_the_status() {
    let mut world = World::new();
    let session = world.session();
    world.prompt(&session, "say hello");
    world.when(&session, |status| status["last_outcome"] == "completed");
    let last = world.records(&session).len() as u64;
    let read = events(&mut open(&world, &session, &format!("Bearer {}", world.token)), last);
    let changed = |event: &&Event| event.name == "session.state_changed";
    let over_sse: Vec<&Value> = read.iter().filter(changed).map(|event| &event.data).collect();
    let names: Vec<_> = over_sse.iter().map(|data| data["status"].as_str().unwrap()).collect();
    assert!(names.contains(&"starting") && names.contains(&"running"), "{names:?}");
    assert_eq!(names.last(), Some(&"idle"));
    for pair in read.windows(2) {
        if pair[0].name == "session.state_changed" {
            assert_eq!(pair[0].id, None, "a reader that is cut here gets its record again");
            assert_eq!(pair[1].id, pair[0].data["seq"].as_u64(), "its record follows it");
        }
    }
    let mut socket = Socket::connect(&world);
    socket.good("session.subscribe", &json!({"session_id": session, "after": 0}));
    let mut over_socket = Vec::new();
    loop {
        let event = socket.event(TEST_TIMEOUT).unwrap();
        let payload = event["payload"].clone();
        let is_last = payload["seq"] == last && payload.get("more").is_none();
        if event["event"] == "session.state_changed" {
            over_socket.push(payload);
        }
        if is_last {
            break;
        }
    }
    // `more` says that the record follows: over server-sent events it always does.
    for payload in &mut over_socket {
        payload.as_object_mut().unwrap().remove("more");
    }
    assert_eq!(over_sse, over_socket.iter().collect::<Vec<_>>());
}

/// Wants to show: readers end with the log that they read, at once and not by a time-out.
#[test]
fn a_deleted_session_ends_its_readers() {
    let mut world = World::new();
    let session = world.quiet_session(None);
    let mut stream = open(&world, &session, &format!("Bearer {}", world.token));
    let last = world.records(&session).len() as u64;
    events(&mut stream, last);
    let mut socket = Socket::connect(&world);
    socket.good("session.subscribe", &json!({"session_id": session, "after": last}));
    let began = Instant::now();
    let deleted = world.ask("DELETE", &format!("/api/v1/sessions/{session}"), None, &[]);
    assert!(deleted.status < 300, "{deleted:?}");
    let ended = socket.event(TEST_TIMEOUT).unwrap();
    assert_eq!(ended["event"], "session.unsubscribed");
    assert_eq!(ended["payload"]["error"]["code"], "session_not_found");
    stream.read_to_end(&mut Vec::new()).unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// How many readers the server counts.
fn readers(world: &World) -> u64 {
    let metrics = world.get("/metrics").text;
    let line = metrics.lines().find(|line| line.starts_with("piton_subscribers"));
    line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

/// Wants to show: the end of an access token ends its streams, also one whose reader takes nothing,
/// so that the server never gets round to telling it.
#[test]
pub(crate) fn a_stalled_reader_ends_with_its_access_token() {
    let mut world = World::new();
    let session = world.session();
    let body = json!({"name": "x", "scopes": ["read"]});
    let token = world.post("/api/v1/access-tokens", &body).good();
    let bearer = format!("Bearer {}", token["token"].as_str().unwrap());
    let stalled = open(&world, &session, &bearer);
    // More than the sockets' buffers hold.
    world.prompt(&session, "flood 6000000");
    world.when(&session, |status| status["last_outcome"] == "completed");
    assert_eq!(readers(&world), 1);
    let id = token["access_token_id"].as_str().unwrap();
    let revoked = world.ask("DELETE", &format!("/api/v1/access-tokens/{id}"), None, &[]);
    assert_eq!(revoked.status, 204);
    let until = Instant::now() + Duration::from_secs(15);
    while readers(&world) > 0 {
        assert!(Instant::now() < until, "the stream of a revoked token is open");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(stalled);
}
