//! Every limit of the server is reached once, and reaching it does not shut other clients out.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use piton_server::{ConnectionLimits, Rate};
use piton_store::memory::{Hooks, MemoryStore};
use piton_store::{BootLocks, OsEntropy};
use serde_json::{Value, json};

use crate::server::limited::{Limited, UNLIMITED};
use crate::server::socket::Socket;
use crate::server::world::TEST_TIMEOUT;

/// Five requests, and no more in the time that a test takes.
const FIVE: Rate = Rate { per_second: 1e-6, burst: 5.0 };

/// The statuses of the same request, made seven times.
fn seven(server: &Limited, path: &str, bearer: &str) -> Vec<u16> {
    let ask = |_| server.raw("GET", path, None, &[("authorization", bearer)]).status;
    (0..7).map(ask).collect()
}

#[test]
pub(crate) fn wrong_tokens_are_limited_and_limit_no_sign_in() {
    let server = Limited::new(FIVE, ConnectionLimits::default());
    let link = json!({"name": "b", "scopes": ["read"]});
    let link = server.ask("POST", "/api/v1/links", Some(&link)).good();
    let wrong = format!("Bearer key_x.{}", "0".repeat(64));
    let limited = [401, 401, 401, 401, 401, 429, 429];
    assert_eq!(seven(&server, "/api/v1/sessions", &wrong), limited);
    assert_eq!(seven(&server, "/api/v1/sessions", "Bearer nonsense"), [429; 7]);
    let body = json!({"link": link["token"]});
    assert_eq!(server.raw("POST", "/api/v1/sign-in", Some(&body), &[]).status, 201);
    assert_eq!(server.ask("GET", "/api/v1/sessions", None).status, 200);
}

#[test]
fn a_token_without_the_scope_is_counted() {
    let server = Limited::new(FIVE, ConnectionLimits::default());
    let bearer = server.bearer(&["control"]);
    let limited = [403, 403, 403, 403, 403, 429, 429];
    assert_eq!(seven(&server, "/api/v1/sessions", &bearer), limited);
    assert_eq!(server.ask("GET", "/api/v1/sessions", None).status, 200);
}

/// The server counts a sign-in before it reads the body, and does not wait for the body of one that
/// exceeds the limit.
#[test]
pub(crate) fn a_sign_in_is_counted_before_its_body_is_read() {
    let server = Limited::new(FIVE, ConnectionLimits::default());
    let headers = [("content-type", "application/json"), ("content-length", "1000")];
    for path in ["/api/v1/sign-in", "/api/v1/resume-tokens/x"] {
        let mut held: Vec<TcpStream> = Vec::new();
        let limited = (0..6).any(|_| {
            let mut stream = server.send("POST", path, None, &headers);
            stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            let mut begin = [0; 12];
            let is_limited = stream.read_exact(&mut begin).is_ok() && &begin[9..] == b"429";
            held.push(stream);
            is_limited
        });
        assert!(limited, "{path}: {} are waited for", held.len());
    }
}

/// Whether the server closes a connection within a while.
fn is_closed(stream: &mut TcpStream, wait: Duration) -> bool {
    stream.set_read_timeout(Some(wait)).unwrap();
    match stream.read(&mut [0; 1]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
pub(crate) fn connections_without_a_token_give_way_and_those_with_one_stay() {
    let limits = ConnectionLimits { unidentified_max: 4, ..ConnectionLimits::default() };
    let server = Limited::new(UNLIMITED, limits);
    let host = server.address.trim_start_matches("http://").to_owned();
    let mut stays = TcpStream::connect(&host).unwrap();
    let request = format!(
        "GET /api/v1/sessions HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {}\r\n\r\n",
        server.token
    );
    let answers = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = [0; 4096];
        let read = stream.read(&mut answer).unwrap();
        assert!(answer[..read].starts_with(b"HTTP/1.1 200 "), "{:?}", &answer[..read]);
    };
    answers(&mut stays);
    let headers = [("content-type", "application/json"), ("content-length", "1000")];
    let mut held: Vec<_> =
        (0..10).map(|_| server.send("POST", "/api/v1/sign-in", None, &headers)).collect();
    for (at, stream) in held.iter_mut().enumerate().take(6) {
        assert!(is_closed(stream, TEST_TIMEOUT), "{at}");
    }
    assert!(!is_closed(&mut held[9], Duration::from_millis(50)));
    answers(&mut stays);
    assert_eq!(server.ask("GET", "/api/v1/sessions", None).status, 200);
}

#[test]
fn a_token_has_so_many_connections_and_the_owner_has_others() {
    let limits = ConnectionLimits { per_token_max: 2, ..ConnectionLimits::default() };
    let server = Limited::new(UNLIMITED, limits);
    let bearer = server.bearer(&["read"]);
    let follow = || {
        let headers = [("authorization", bearer.as_str())];
        let mut stream = server.send("GET", "/api/v1/events", None, &headers);
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        (String::from_utf8_lossy(&status[9..]).into_owned(), stream)
    };
    let (first, second, third) = (follow(), follow(), follow());
    assert_eq!([&first.0, &second.0, &third.0], ["200", "200", "429"]);
    assert_eq!(server.ask("GET", "/api/v1/sessions", None).status, 200);
    drop((second, third));
    let until = Instant::now() + TEST_TIMEOUT;
    while follow().0 != "200" {
        assert!(Instant::now() < until, "what was closed is still counted");
    }
}

fn socket(server: &Limited, path: &str) -> Result<Socket, Value> {
    let bearer = format!("Bearer {}", server.token);
    Socket::open_at(&server.address, path, &[("authorization", &bearer)])
}

/// A shell's socket takes a place as every other socket does, and gives it back.
#[test]
fn sockets_are_counted_those_of_shells_too() {
    let limits = ConnectionLimits { sockets_max: 2, ..ConnectionLimits::default() };
    let server = Limited::new(UNLIMITED, limits);
    let made = server.ask("POST", "/api/v1/sessions", Some(&json!({"start": false}))).good();
    let base = format!("/api/v1/sessions/{}", made["session_id"].as_str().unwrap());
    let shell = server.ask("POST", &format!("{base}/shells"), Some(&json!({}))).good();
    let shell = format!("{base}/shells/{}/socket", shell["shell_id"].as_str().unwrap());
    let mut first = socket(&server, &shell).unwrap();
    let second = socket(&server, "/api/v1/ws").unwrap();
    for path in [shell.as_str(), "/api/v1/ws"] {
        let refused = socket(&server, path).err().unwrap();
        assert_eq!(refused["code"], "limit_reached", "{path}");
    }
    first.inner.close(None).unwrap();
    first.inner.flush().unwrap();
    let until = Instant::now() + TEST_TIMEOUT;
    while socket(&server, &shell).is_err() {
        assert!(Instant::now() < until, "what was closed is still counted");
    }
    drop(second);
}

/// A client that reconnects says what it has seen last; the address is as old as the first request.
#[test]
fn the_last_event_id_counts_more_than_the_address() {
    let server = Limited::new(UNLIMITED, ConnectionLimits::default());
    let made = server.ask("POST", "/api/v1/sessions", Some(&json!({"start": false}))).good();
    let session = made["session_id"].as_str().unwrap();
    for _ in 0..3 {
        let title = json!({"content": "say x"});
        // Without an agent it stays in the log.
        server.ask("POST", &format!("/api/v1/sessions/{session}/messages"), Some(&title));
    }
    let bearer = format!("Bearer {}", server.token);
    let first = |path: String, headers: &[(&str, &str)]| {
        let mut all = vec![("authorization", bearer.as_str())];
        all.extend_from_slice(headers);
        let mut stream = server.send("GET", &path, None, &all);
        let mut text = String::new();
        while !text.contains("\nid:") || !text.split("\nid:").nth(1).unwrap().contains('\n') {
            let mut bytes = [0; 4096];
            let read = stream.read(&mut bytes).unwrap();
            assert!(read > 0, "{text}");
            text += &String::from_utf8_lossy(&bytes[..read]);
        }
        text.split("\nid:").nth(1).unwrap().lines().next().unwrap().trim().to_owned()
    };
    let events = format!("/api/v1/sessions/{session}/events");
    assert_eq!(first(format!("{events}?after=1"), &[]), "2");
    assert_eq!(first(events.clone(), &[("last-event-id", "2")]), "3");
    assert_eq!(first(format!("{events}?after=1"), &[("last-event-id", "2")]), "3");
    assert_eq!(first(format!("{events}?after=2"), &[("last-event-id", "1")]), "2");
}

/// A disk that is full when the test says so.
#[derive(Debug, Default)]
struct Disk {
    is_full: AtomicBool,
    flush_fails: AtomicBool,
}

impl Hooks for Disk {
    fn disk_full(&self) -> bool {
        self.is_full.load(Ordering::SeqCst)
    }

    fn flush_fails(&self) -> bool {
        self.flush_fails.load(Ordering::SeqCst)
    }
}

/// `/ready` says that work is refused for as long as the store refuses writes; `/health` says only
/// that the server is there.
#[test]
pub(crate) fn a_server_whose_store_refuses_writes_is_not_ready() {
    let disk = Arc::new(Disk::default());
    let server = Limited::over(UNLIMITED, ConnectionLimits::default(), |data| {
        let (liveness, hooks) = (Arc::new(BootLocks::new(data)), Arc::clone(&disk));
        Arc::new(MemoryStore::open(Arc::default(), liveness, Arc::new(OsEntropy), hooks))
    });
    let ready = |status: u16, code: &str| {
        let until = Instant::now() + TEST_TIMEOUT;
        loop {
            let answer = server.raw("GET", "/ready", None, &[]);
            if (answer.status, answer.code()) == (status, code) {
                return;
            }
            assert!(Instant::now() < until, "not {status} {code}: {answer:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    ready(200, "");
    disk.is_full.store(true, Ordering::SeqCst);
    ready(503, "disk_full");
    assert_eq!(server.raw("GET", "/health", None, &[]).status, 200);
    disk.is_full.store(false, Ordering::SeqCst);
    ready(200, "");
    disk.flush_fails.store(true, Ordering::SeqCst);
    let task = json!({"title": "t"});
    assert_eq!(server.ask("POST", "/api/v1/tasks", Some(&task)).code(), "store_poisoned");
    ready(503, "store_poisoned");
}
