//! Methods and events over the WebSocket: the same as over HTTP, the names of events, and what must not work.

use std::io::Read as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::server::socket::Socket;
use crate::server::world::{TEST_TIMEOUT, World};

fn status(socket: &mut Socket, session: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        let status = socket.good("task.session.status", &json!({"session_id": session}));
        if wanted(&status) {
            return status;
        }
        assert!(Instant::now() < until, "never as wanted: {status:#}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn every_method_does_what_its_operation_does() {
    let mut world = World::new();
    let mut socket = Socket::connect(&world);
    let socket = &mut socket;
    let create = json!({"title": "t", "start": false, "idempotency_key": "k1"});
    let made = socket.good("task.session.create", &create);
    let session = made["session_id"].as_str().unwrap().to_owned();
    world.adopt(&session);
    let of = json!({"session_id": session});
    // The same key is the same request, both ways.
    let again = socket.call("task.session.create", &create);
    assert_eq!((&again["result"], &again["replayed"]), (&made, &json!(true)));
    let body = json!({"title": "t", "start": false});
    let key = [("idempotency-key", "k1")];
    assert_eq!(world.ask("POST", "/api/v1/sessions", Some(&body), &key).good(), made);

    let listed = socket.good("task.session.list", &json!({"limit": 10}));
    assert_eq!(listed["sessions"][0]["session_id"], session.as_str());
    let opened = socket.good("task.session.open", &of);
    assert_eq!(opened["session_id"], session.as_str());
    assert_eq!(opened["is_agent_running"], true);
    socket.good("task.session.start", &of);
    let over_http = world.status(&session);
    let mut over_socket = socket.good("task.session.status", &of);
    over_socket["live"] = over_http["live"].clone();
    assert_eq!(over_socket, over_http);

    let prompt = json!({"session_id": session, "content": "ask May I?\nsay thanks", "idempotency_key": "k2"});
    let prompted = socket.good("task.session.prompt", &prompt);
    let path = format!("/api/v1/sessions/{session}/messages");
    let body = json!({"content": "ask May I?\nsay thanks"});
    let again = world.ask("POST", &path, Some(&body), &[("idempotency-key", "k2")]);
    assert_eq!(again.good(), prompted);
    let waiting = status(socket, &session, |status| status["status"] == "waiting");
    let wait = &waiting["waits"][0]["wait_id"];
    let unfit = json!({"wait_id": wait, "answer": {"option_id": "perhaps"}});
    assert_eq!(socket.refused("task.session.answer", &unfit), "answer_invalid");
    let records = world.records(&session);
    let asked = records.iter().find(|record| record["kind"] == "run.waiting").unwrap();
    let option = &asked["question"]["options"][0]["option_id"];
    socket.good("task.session.answer", &json!({"wait_id": wait, "answer": {"option_id": option}}));
    status(socket, &session, |status| status["last_outcome"] == "completed");
    // It is in the log who asked, as it is for HTTP.
    let records = world.records(&session);
    let taken = records.iter().filter(|record| record["kind"] == "request.accepted");
    let taken: Vec<&str> = taken.map(|record| record["action"].as_str().unwrap()).collect();
    assert_eq!(taken, ["sessions.create", "sessions.prompt", "waits.answer"]);

    socket.good("task.session.prompt", &json!({"session_id": session, "content": "wait 60000"}));
    socket.good("task.session.pause", &of);
    status(socket, &session, |status| status["status"] == "paused");
    socket.good("task.session.resume", &of);
    socket.good("task.session.cancel", &of);
    status(socket, &session, |status| status["last_outcome"] == "cancelled");
    socket.good("task.session.prompt", &json!({"session_id": session, "content": "crash"}));
    status(socket, &session, |status| status["status"] == "interrupted_startup");
    socket.good("task.session.dismiss", &of);
    status(socket, &session, |status| status["reason"] == "run_dismissed");
    socket.good("task.session.close", &json!({"session_id": session, "outcome": "failed"}));
    assert_eq!(socket.good("task.session.status", &of)["state"], "FAILED");
    assert_eq!(socket.refused("task.session.start", &of), "session_closed");
}

/// The events, name by name, in the life of one session.
#[test]
fn a_session_is_described_over_the_socket() {
    let mut world = World::new();
    let task = world.post("/api/v1/tasks", &json!({"title": "t"})).good();
    let body = json!({"start": false, "task_id": task["task_id"]});
    let made = world.post("/api/v1/sessions", &body).good();
    let session = made["session_id"].as_str().unwrap().to_owned();
    world.adopt(&session);
    let mut socket = Socket::connect(&world);
    let subscribed = socket.good("session.subscribe", &json!({"session_id": session}));
    assert_eq!(subscribed["session_id"], session.as_str());
    socket.good("task.session.start", &json!({"session_id": session}));
    let is = |name: &'static str| move |event: &Value| event["event"] == name;
    let mut seen = socket.until(is("session.agentctl_ready"));
    let starting: Vec<&Value> =
        seen.iter().filter(|event| event["event"] == "session.state_changed").collect();
    assert_eq!(starting[0]["payload"]["old_state"], "WAITING_FOR_INPUT");
    assert_eq!(starting[0]["payload"]["new_state"], "STARTING");
    assert!(seen.iter().any(is("session.agentctl_starting")));
    let status = world.when(&session, |status| status["status"] == "idle");
    let ready = &seen[seen.len() - 1]["payload"];
    assert_eq!(ready["agent_execution_id"], status["agent_execution_id"]);

    let script = "pieces one |two |three\nwait 300\nsay four";
    let prompt = json!({"session_id": session, "content": script});
    let prompted = socket.good("task.session.prompt", &prompt);
    seen.extend(socket.until(|event| event["payload"]["kind"] == "run.completed"));
    let messages: Vec<&Value> = seen
        .iter()
        .filter(|event| event["event"].as_str().unwrap().starts_with("session.message."))
        .collect();
    assert_eq!(messages[0]["event"], "session.message.added");
    let user = &messages[0]["payload"];
    assert_eq!((&user["role"], &user["text"]), (&json!("user"), &json!(script)));
    assert_eq!(user["message_id"], prompted["message_id"]);
    let mut text = String::new();
    for event in &messages[1..] {
        let payload = &event["payload"];
        let offset = payload["offset"].as_u64().unwrap();
        if offset == 0 {
            text.clear();
            assert_eq!(event["event"], "session.message.added");
        } else {
            assert_eq!(event["event"], "session.message.updated");
        }
        assert_eq!(offset, text.len() as u64);
        text += payload["text"].as_str().unwrap();
        if payload["complete"] == true {
            assert_eq!(payload["length"], text.len() as u64);
        }
    }
    assert!(
        messages.iter().any(|event| event["payload"]["complete"] == true
            && event["event"] == "session.message.updated")
    );
    let running = seen.iter().filter(|event| event["event"] == "session.state_changed");
    let moves: Vec<(&Value, &Value)> =
        running.map(|e| (&e["payload"]["old_state"], &e["payload"]["new_state"])).collect();
    // From the start to the ready agent it is one state.
    let mut reached: Vec<&str> = moves.iter().filter_map(|(_, new)| new.as_str()).collect();
    reached.dedup();
    assert_eq!(reached, ["STARTING", "WAITING_FOR_INPUT", "RUNNING", "WAITING_FOR_INPUT"]);
    assert!(moves.contains(&(&json!("WAITING_FOR_INPUT"), &json!("RUNNING"))), "{moves:?}");
    assert!(moves.contains(&(&json!("RUNNING"), &json!("WAITING_FOR_INPUT"))), "{moves:?}");
    let mut last = 0;
    for event in &seen {
        let payload = &event["payload"];
        assert_eq!(payload["session_id"], session.as_str());
        assert_eq!(payload["task_id"], task["task_id"]);
        let seq = payload["seq"].as_u64().unwrap();
        assert!(seq == last + 1 || seq == last, "a gap before {event}");
        last = seq;
    }

    // An agentctl that does not answer any more: the server that finds it says so.
    let execution = status["agent_execution_id"].as_str().unwrap();
    let lock = world.data().join("run").join(execution).join("lock");
    let pid = std::fs::read_to_string(lock).unwrap().trim().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    world.kill();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    world.start();
    let mut socket = Socket::connect(&world);
    let after = json!({"session_id": session, "after": last});
    socket.good("session.subscribe", &after);
    let seen = socket.until(is("session.agentctl_error"));
    let error = &seen[seen.len() - 1]["payload"];
    assert_eq!(error["reason"], "executor_unreachable");
    assert!(seen.iter().all(|event| event["payload"]["seq"].as_u64().unwrap() > last));
    let changed = seen.iter().find(|event| event["payload"]["new_state"] == "ERROR");
    assert_eq!(changed.unwrap()["event"], "session.state_changed");
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    socket.until(is("session.agentctl_ready"));
}

/// An agentctl outlives its server, and a waiting client learns from the next server that it is
/// ready.
#[test]
fn an_executor_that_is_found_again_is_announced_as_ready() {
    let mut world = World::new();
    let session = world.session();
    let last = world.status(&session)["last_seq"].as_u64().unwrap();
    world.kill();
    world.start();
    let mut socket = Socket::connect(&world);
    socket.good("session.subscribe", &json!({"session_id": session, "after": last}));
    let seen = socket.until(|event: &Value| event["event"] == "session.agentctl_ready");
    let failed = seen.iter().any(|event| event["event"] == "session.agentctl_error");
    assert!(!failed, "{seen:#?}");
    let status = world.status(&session);
    assert_eq!(
        (&status["executor_status"], &status["is_agent_running"]),
        (&json!("ready"), &json!(true))
    );
}

#[test]
fn who_unsubscribes_hears_no_more_and_a_deleted_log_is_reported() {
    let mut world = World::new();
    let session = world.session();
    let mut socket = Socket::connect(&world);
    let of = json!({"session_id": session});
    socket.good("session.subscribe", &of);
    assert_eq!(socket.refused("session.subscribe", &of), "request_invalid");
    world.prompt(&session, "stream 2000 5");
    socket.until(|event| event["event"] == "session.message.added");
    assert_eq!(socket.good("session.unsubscribe", &of)["was_subscribed"], true);
    assert_eq!(socket.good("session.unsubscribe", &of)["was_subscribed"], false);
    let last_seq = world.status(&session)["last_seq"].as_u64().unwrap();
    world.when(&session, |status| status["last_seq"].as_u64().unwrap() > last_seq + 3);
    // Those that came before the answer were kept; behind it there are none.
    while let Ok(event) = socket.event(Duration::from_millis(1)) {
        assert!(event["payload"]["seq"].as_u64().unwrap() <= last_seq, "{event}");
    }
    let future = json!({"session_id": session, "after": 1_000_000});
    assert_eq!(socket.refused("session.subscribe", &future), "cursor_invalid");
    let unknown = json!({"session_id": "sess_none"});
    assert_eq!(socket.refused("session.subscribe", &unknown), "session_not_found");
    let metadata = json!({"session_id": "_piton"});
    assert_eq!(socket.refused("session.subscribe", &metadata), "id_invalid");
    let other = world.quiet_session(None);
    socket.good("session.subscribe", &json!({"session_id": other}));
    let path = format!("/api/v1/sessions/{other}?force=true");
    assert_eq!(world.ask("DELETE", &path, None, &[]).status, 204);
    let seen = socket.until(|event| event["event"] == "session.unsubscribed");
    let ended = &seen[seen.len() - 1]["payload"];
    assert_eq!(ended["session_id"], other.as_str());
    assert_eq!(ended["error"]["code"], "session_not_found");
}

/// Far more than is kept for everybody, while a subscriber does not look: it is all there.
#[test]
fn who_falls_behind_is_served_from_the_log() {
    let mut world = World::new();
    let session = world.session();
    let (mut slow, mut quick) = (Socket::connect(&world), Socket::connect(&world));
    let of = json!({"session_id": session});
    slow.good("session.subscribe", &of);
    quick.good("session.subscribe", &of);
    world.prompt(&session, "flood 8000000");
    let is_last = |event: &Value| event["payload"]["kind"] == "run.completed";
    let heard = quick.until(is_last);
    assert!(heard.len() > 1_100, "{}", heard.len());
    assert_eq!(slow.until(is_last), heard);
}

#[test]
fn a_socket_has_its_limits() {
    let mut world = World::new();
    let mut socket = Socket::connect(&world);
    let sessions: Vec<String> = (0..65).map(|_| world.quiet_session(None)).collect();
    for session in &sessions[..64] {
        socket.good("session.subscribe", &json!({"session_id": session}));
    }
    let more = json!({"session_id": sessions[64]});
    assert_eq!(socket.refused("session.subscribe", &more), "limit_reached");
    socket.good("session.unsubscribe", &json!({"session_id": sessions[0]}));
    socket.good("session.subscribe", &more);
    // An agentctl takes longer to be launched than a hundred messages to be read.
    let mut socket = Socket::connect(&world);
    for _ in 0..100 {
        socket.ask("task.session.start", &json!({"session_id": sessions[1]}));
    }
    let answers: Vec<Value> = (0..100).map(|_| socket.answer()).collect();
    let refused = answers.iter().filter(|answer| answer["error"]["code"] == "limit_reached");
    let refused = refused.count();
    assert!((1..=68).contains(&refused), "{refused} were refused");
    let good = answers.iter().filter(|answer| answer.get("result").is_some()).count();
    assert_eq!(good + refused, 100, "{answers:#?}");
    let mut ids: Vec<u64> =
        answers.iter().map(|answer| answer["id"].as_str().unwrap().parse().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=100).collect::<Vec<_>>());
}

#[test]
fn what_makes_no_sense_is_answered_or_ends_the_socket() {
    let world = World::new();
    let mut socket = Socket::connect(&world);
    for (text, id) in [
        ("{", Value::Null),
        ("[]", Value::Null),
        ("{}", Value::Null),
        (r#"{"id":"a"}"#, json!("a")),
        (r#"{"id":7,"method":"task.session.list","more":1}"#, json!(7)),
        (r#"{"id":[],"method":"task.session.list"}"#, Value::Null),
        (r#"{"id":"b","method":"task.session.list","params":[]}"#, json!("b")),
        (r#"{"id":"c","method":"task.session.list","params":{"limit":"x"}}"#, json!("c")),
        (r#"{"id":"d","method":"task.session.list","params":{"nothing":1}}"#, json!("d")),
        (r#"{"id":"e","method":"task.session.status"}"#, json!("e")),
        (
            r#"{"id":"f","method":"session.subscribe","params":{"session_id":"s","after":-1}}"#,
            json!("f"),
        ),
        (
            r#"{"id":"g","method":"task.session.create","params":{"idempotency_key":""}}"#,
            json!("g"),
        ),
    ] {
        socket.say(text);
        let answer = socket.answer();
        assert_eq!(answer["id"], id, "{text}: {answer}");
        assert_eq!(answer["error"]["code"], "request_invalid", "{text}: {answer}");
        assert_eq!(answer["error"]["status"], 400);
    }
    for method in ["", "task.session.", "task.session.explode", "session.created", "tasks.list"] {
        assert_eq!(socket.refused(method, &json!({})), "not_found", "{method}");
    }
    let unknown = json!({"session_id": "sess_none", "content": "x"});
    assert_eq!(socket.refused("task.session.prompt", &unknown), "session_not_found");
    // The socket still works after all of these.
    socket.good("task.session.list", &json!({}));
    socket.inner.send(Message::binary(vec![1, 2, 3])).unwrap();
    assert_eq!(socket.closed(), Some(1003));
    let mut socket = Socket::connect(&world);
    let huge = json!({"id": "1", "method": "x".repeat(2 * 1024 * 1024)}).to_string();
    // It may be closed before all of it is taken; then the code may be lost with it.
    let _ = socket.inner.send(Message::text(huge));
    let code = socket.closed();
    assert!(code == Some(1009) || code.is_none(), "{code:?}");
    assert_eq!(world.get("/health").status, 200);
}

#[test]
fn a_socket_is_for_holders_of_a_good_token() {
    let mut world = World::new();
    let session = world.quiet_session(None);
    let path = "/api/v1/ws";
    let refused = |headers: &[(&str, &str)]| {
        let refused = Socket::open(&world, path, headers).err().expect("a refusal");
        refused["code"].as_str().unwrap().to_owned()
    };
    let (token, good) = (world.token.clone(), format!("Bearer {}", world.token));
    assert_eq!(refused(&[]), "unauthenticated");
    assert_eq!(refused(&[("authorization", "Bearer x")]), "unauthenticated");
    let offer = |text: &str| [("sec-websocket-protocol".to_owned(), text.to_owned())];
    for (text, code) in [
        ("piton.v1".to_owned(), "unauthenticated"),
        ("piton.v1, bearer.key_1.00".to_owned(), "unauthenticated"),
        ("piton.v2".to_owned(), "request_invalid"),
        (format!("bearer.{token}"), "request_invalid"),
    ] {
        let [(name, value)] = offer(&text);
        assert_eq!(refused(&[(&name, &value)]), code, "{text}");
    }
    for origin in ["null", "http://evil.example"] {
        assert_eq!(refused(&[("authorization", &good), ("origin", origin)]), "origin_refused");
    }
    let host = [("authorization", good.as_str()), ("host", "evil.example")];
    assert_eq!(refused(&host), "host_refused");
    let in_address = format!("{path}?token={token}");
    let answer = Socket::open(&world, &in_address, &[]).err().unwrap();
    assert_eq!(answer["code"], "unauthenticated");
    let version = [("authorization", good.as_str()), ("sec-websocket-version", "12")];
    assert_eq!(refused(&version), "request_invalid");
    let plain = world.get(path);
    assert_eq!((plain.status, plain.code()), (400, "request_invalid"));
    // A browser's way in.
    let offered = format!("piton.v1, bearer.{token}");
    let own = world.address.clone();
    let headers = [("sec-websocket-protocol", offered.as_str()), ("origin", own.as_str())];
    let mut socket = Socket::open(&world, path, &headers).unwrap();
    assert_eq!(socket.protocol.as_deref(), Some("piton.v1"));
    socket.good("task.session.list", &json!({}));

    // Each method asks for its scope.
    let (read, control) = (world.bearer(&["read"]), world.bearer(&["control"]));
    let mut reader = Socket::open(&world, path, &[("authorization", &read)]).unwrap();
    let mut controller = Socket::open(&world, path, &[("authorization", &control)]).unwrap();
    let of = json!({"session_id": session});
    for method in ["task.session.list", "task.session.status", "session.subscribe"] {
        let params = if method == "task.session.list" { json!({}) } else { of.clone() };
        reader.good(method, &params);
        assert_eq!(controller.refused(method, &params), "insufficient_scope", "{method}");
    }
    for name in ["start", "resume", "prompt", "cancel", "pause", "dismiss", "close"] {
        let method = format!("task.session.{name}");
        assert_eq!(reader.refused(&method, &of), "insufficient_scope", "{method}");
    }
    assert_eq!(reader.refused("task.session.create", &json!({})), "insufficient_scope");
    let answer = json!({"wait_id": "wait_1", "answer": {}});
    assert_eq!(reader.refused("task.session.answer", &answer), "insufficient_scope");
    assert_eq!(controller.refused("task.session.answer", &answer), "wait_not_found");
    // A token that is taken back opens nothing, on sockets that it opened either.
    let listed = world.get("/api/v1/access-tokens").good();
    for access in listed["access"].as_array().unwrap() {
        let path = format!("/api/v1/access-tokens/{}", access["access_token_id"].as_str().unwrap());
        assert_eq!(world.ask("DELETE", &path, None, &[]).status, 204);
    }
    assert_eq!((reader.closed(), controller.closed()), (Some(1008), Some(1008)));
}

#[test]
fn a_server_that_ends_says_so() {
    let mut world = World::new();
    let session = world.session();
    let mut sockets: Vec<Socket> = (0..5).map(|_| Socket::connect(&world)).collect();
    for socket in &mut sockets {
        socket.good("session.subscribe", &json!({"session_id": session}));
    }
    world.end();
    for socket in &mut sockets {
        assert_eq!(socket.closed(), Some(1001));
    }
    world.start();
    let mut socket = Socket::connect(&world);
    let last = world.status(&session)["last_seq"].clone();
    socket.good("session.subscribe", &json!({"session_id": session, "after": last}));
}

/// The client does not answer pings, so the server must assume that the connection is half open.
#[test]
#[ignore = "long: make soak"]
fn a_socket_that_no_one_is_at_is_closed() {
    let world = World::new();
    let mut socket = Socket::connect(&world);
    socket.good("task.session.list", &json!({}));
    // As it comes, by one who answers no ping: two of them, then a close frame with its code.
    let mut bytes = Vec::new();
    socket.inner.get_ref().set_read_timeout(Some(2 * TEST_TIMEOUT)).unwrap();
    socket.inner.get_mut().read_to_end(&mut bytes).unwrap();
    let close = [&[0x88, 8][..], &4008_u16.to_be_bytes(), b"silent"].concat();
    assert_eq!(bytes, [&[0x89, 0, 0x89, 0][..], &close].concat());
}
