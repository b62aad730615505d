//! Notifications by webhook: repeated until they are taken, also by the next server, under one id.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::server::world::{TEST_TIMEOUT, World};

/// What a POST had: its headers in lower case, and its body.
struct Posted {
    head: String,
    body: Value,
}

/// A server that answers with the statuses that the test wants, and 200 when there are none left.
fn receiver(statuses: &Arc<Mutex<Vec<u16>>>) -> (String, Receiver<Posted>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/hook", listener.local_addr().unwrap());
    let (sender, posted) = channel();
    let statuses = Arc::clone(statuses);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut head = String::new();
            while reader.read_line(&mut head).unwrap_or(0) > 2 {}
            let head = head.to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let Some(length) = length.and_then(|text| text.trim().parse().ok()) else { continue };
            let mut body = vec![0; length];
            if reader.read_exact(&mut body).is_err() {
                continue;
            }
            let status = {
                let mut statuses = statuses.lock().unwrap();
                if statuses.is_empty() { 200 } else { statuses.remove(0) }
            };
            let answer =
                format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes());
            let body = serde_json::from_slice(&body).unwrap();
            if sender.send(Posted { head, body }).is_err() {
                return;
            }
        }
    });
    (address, posted)
}

/// Wants to show: a notification that is not taken is repeated, by the next server too, under the same
/// id, and not any more once it is taken.
#[test]
fn a_notification_is_repeated_until_it_is_taken_also_after_a_restart() {
    let statuses = Arc::new(Mutex::new(vec![503, 500]));
    let (address, posted) = receiver(&statuses);
    let start = |world: &mut World| {
        world.start_with(|command| {
            command.env("PITON_NOTIFY_URL", &address).env("PITON_NOTIFY_TOKEN", "tk_very_secret");
            command.env("PITON_NOTIFY_TOPIC", "a-topic-of-mine");
        });
    };
    let next = || posted.recv_timeout(TEST_TIMEOUT).unwrap();
    let mut world = World::not_started();
    start(&mut world);
    let session = world.session();
    world.prompt(&session, "say hello");
    // Twice refused, then taken.
    let tries: Vec<Posted> = (0..3).map(|_| next()).collect();
    for one in &tries {
        assert_eq!(one.body, tries[0].body);
        assert!(one.head.contains("authorization: bearer tk_very_secret"), "{}", one.head);
        let id = one.body["id"].as_str().unwrap();
        assert!(one.head.contains(&format!("idempotency-key: {id}")), "{}", one.head);
    }
    let body = &tries[0].body;
    assert_eq!((&body["event"], &body["what"]), (&"ended".into(), &"completed".into()));
    assert_eq!(
        (&body["session_id"], &body["topic"]),
        (&session.as_str().into(), &"a-topic-of-mine".into())
    );
    assert!(!body.to_string().contains("hello"), "no text of the conversation: {body}");

    // Refused for as long as this server lives.
    *statuses.lock().unwrap() = vec![503; 100];
    world.prompt(&session, "say again");
    let refused = next();
    assert_ne!(refused.body["id"], tries[0].body["id"]);
    world.kill();
    statuses.lock().unwrap().clear();
    // What came between the kill and the change.
    while posted.recv_timeout(Duration::from_millis(200)).is_ok() {}
    start(&mut world);
    assert_eq!(next().body, refused.body);

    // Taken: when the one after it arrives, the log says so, and a third server does not repeat it.
    world.prompt(&session, "say third");
    let third = next();
    assert_ne!(third.body["id"], refused.body["id"]);
    world.kill();
    start(&mut world);
    world.prompt(&session, "say fourth");
    let fourth = next();
    assert_ne!(fourth.body["id"], refused.body["id"]);
    assert_eq!(fourth.body["event"], "ended");
}

/// Wants to show: a permission request is told of, and an address that cannot be used is said at once.
#[test]
fn a_wait_is_announced_and_a_wrong_address_is_refused() {
    let (address, posted) = receiver(&Arc::default());
    let mut world = World::not_started();
    world.start_with(|command| {
        command.env("PITON_NOTIFY_URL", &address).env("PITON_NOTIFY_EVENTS", "waiting");
    });
    let session = world.session();
    world.prompt(&session, "ask x");
    let body = posted.recv_timeout(TEST_TIMEOUT).unwrap().body;
    assert_eq!((&body["event"], &body["what"]), (&"waiting".into(), &"permission".into()));
    world.end();
    let refused = |name: &str, value: &str| {
        let mut command = world.command(&["serve", "--listen", "127.0.0.1:0"]);
        let said = command.env("PITON_NOTIFY_URL", &address).env(name, value).output().unwrap();
        assert!(!said.status.success());
        String::from_utf8(said.stderr).unwrap()
    };
    let said = refused("PITON_NOTIFY_URL", "ftp://a-secret-topic");
    assert!(said.contains("notify.url") && !said.contains("a-secret-topic"), "{said}");
    assert!(refused("PITON_NOTIFY_EVENTS", "sometimes").contains("notify.events"));
}
