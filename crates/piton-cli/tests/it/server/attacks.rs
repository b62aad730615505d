//! What must not work.

use std::io::Write as _;

use serde_json::json;

use crate::server::world::{World, piton};

#[test]
fn no_one_gets_in_without_a_good_token() {
    let world = World::new();
    let path = "/api/v1/sessions";
    let with = |value: &str| world.raw("GET", path, None, &[("authorization", value)]);
    let none = world.raw("GET", path, None, &[]);
    assert_eq!((none.status, none.code()), (401, "unauthenticated"));
    assert!(none.headers.contains("www-authenticate: bearer"));
    let flipped = if world.token.ends_with('0') { "1" } else { "0" };
    let wrong = format!("{}{flipped}", &world.token[..world.token.len() - 1]);
    for value in [
        "Bearer x".to_owned(),
        "Bearer ".to_owned(),
        format!("Basic {}", world.token),
        format!("Bearer {wrong}"),
        world.token.clone(),
    ] {
        let answer = with(&value);
        assert_eq!((answer.status, answer.code()), (401, "unauthenticated"), "{value}");
    }
    assert_eq!(with(&format!("bearer {}", world.token)).status, 200);
    // Only what needs none is open.
    for path in ["/health", "/ready", "/", "/api/v1/openapi.json"] {
        assert_eq!(world.raw("GET", path, None, &[]).status, 200, "{path}");
    }
    assert_eq!(world.raw("GET", "/metrics", None, &[]).status, 401);
}

#[test]
fn a_token_is_good_for_its_scopes_and_its_time() {
    let world = World::new();
    let grant = |scopes: &[&str], expires_in_s: Option<u64>| {
        let body = json!({"name": "x", "scopes": scopes, "expires_in_s": expires_in_s});
        let granted = world.post("/api/v1/access-tokens", &body).good();
        format!("Bearer {}", granted["token"].as_str().unwrap())
    };
    let (read, control, admin) =
        (grant(&["read"], None), grant(&["control"], None), grant(&["admin"], None));
    let ask = |method: &str, path: &str, bearer: &str| {
        let body = (method == "POST").then_some(&b"{\"title\":\"t\"}"[..]);
        world.raw(method, path, body, &[("authorization", bearer)])
    };
    for (method, path, good) in [
        ("GET", "/api/v1/sessions", &read),
        ("GET", "/api/v1/waits", &read),
        ("POST", "/api/v1/tasks", &control),
        ("GET", "/api/v1/access-tokens", &admin),
    ] {
        for bearer in [&read, &control, &admin] {
            let answer = ask(method, path, bearer);
            if bearer == good {
                assert!(answer.status < 300, "{method} {path}: {answer:?}");
            } else {
                assert_eq!(
                    (answer.status, answer.code()),
                    (403, "insufficient_scope"),
                    "{method} {path}"
                );
            }
        }
    }
    let expires = grant(&["read"], Some(1));
    let until = std::time::Instant::now() + crate::server::world::TEST_TIMEOUT;
    let answer = loop {
        let answer = ask("GET", "/api/v1/sessions", &expires);
        // A fast machine reaches the limit of requests before the token expires.
        if answer.status != 200 && answer.code() != "rate_limited" {
            break answer;
        }
        assert!(std::time::Instant::now() < until, "it does not run out");
    };
    assert_eq!((answer.status, answer.code()), (401, "access_token_expired"));
    // One that may only read cannot make itself more.
    let more = world.raw("POST", "/api/v1/access-tokens", Some(b"{}"), &[("authorization", &read)]);
    assert_eq!(more.code(), "insufficient_scope");
    // A link opens nothing itself, and signs in once.
    let link = world.post("/api/v1/links", &json!({"name": "b", "scopes": ["read"]})).good();
    let link = link["token"].as_str().unwrap();
    assert_eq!(ask("GET", "/api/v1/sessions", &format!("Bearer {link}")).status, 401);
    let sign_in = || {
        let body = json!({"link": link}).to_string();
        world.raw("POST", "/api/v1/sign-in", Some(body.as_bytes()), &[])
    };
    assert_eq!(sign_in().status, 201);
    assert_eq!(sign_in().code(), "unauthenticated");
}

#[test]
pub(crate) fn other_hosts_and_other_pages_are_refused() {
    let world = World::new();
    for host in [
        "evil.example",
        "127.0.0.1.evil.example",
        "",
        "127.0.0.1:80@evil",
        "[localhost",
        "[127.0.0.1]evil.com",
    ] {
        let answer = world.ask("GET", "/api/v1/sessions", None, &[("host", host)]);
        assert_eq!((answer.status, answer.code()), (403, "host_refused"), "{host:?}");
    }
    let own = world.address.as_str();
    let (port, other) = (own.rsplit(':').next().unwrap(), own.replace("http://", "http://x"));
    for origin in ["null", "http://evil.example", &other, &format!("http://localhost:{port}")] {
        let answer = world.ask("GET", "/api/v1/sessions", None, &[("origin", origin)]);
        assert_eq!((answer.status, answer.code()), (403, "origin_refused"), "{origin}");
    }
    assert_eq!(world.ask("GET", "/api/v1/sessions", None, &[("origin", own)]).status, 200);
}

#[test]
fn what_makes_no_sense_is_named_and_changes_nothing() {
    let mut world = World::new();
    let session = world.session();
    let before = world.records(&session).len();
    let messages = format!("/api/v1/sessions/{session}/messages");
    let bearer = format!("Bearer {}", world.token);
    let raw = |method: &str, path: &str, body: &[u8]| {
        world.raw(method, path, Some(body), &[("authorization", &bearer)])
    };
    for body in [
        &b"{"[..],
        b"",
        b"[]",
        b"null",
        b"{\"content\":7}",
        b"{\"content\":\"\"}",
        b"{}",
        b"{\"content\":\"x\",\"more\":1}",
        b"\xff\xfe",
        b"{\"content\":\"\xff\"}",
    ] {
        let answer = raw("POST", &messages, body);
        assert_eq!((answer.status, answer.code()), (400, "request_invalid"), "{body:?}");
    }
    // Prompts have attachments, and may be larger than all else.
    for (path, mebibytes) in [("/api/v1/sessions", 5), (messages.as_str(), 33)] {
        let length = (mebibytes * 1024 * 1024).to_string();
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("content-length", length.as_str()),
        ];
        let mut stream = world.send("POST", path, None, &headers);
        // The rest is not waited for.
        stream.write_all(b"{").unwrap();
        let mut answer = String::new();
        let _ = std::io::Read::read_to_string(&mut stream, &mut answer);
        assert!(answer.contains("request_too_large"), "{path}: {answer}");
    }

    for (path, code) in [
        ("/api/v1/nothing", "not_found"),
        ("/api/v1/sessions/%00", "id_invalid"),
        ("/api/v1/sessions/..%2f..%2fetc", "id_invalid"),
        ("/api/v1/sessions/%ff", "request_invalid"),
        ("/api/v1/sessions/%ff/files", "request_invalid"),
        ("/api/v1/sessions/%ff/shells/%ff/socket", "request_invalid"),
        ("/api/v1/sessions/_piton", "id_invalid"),
        ("/api/v1/sessions/_piton/events", "id_invalid"),
        ("/api/v1/sessions/sess_none", "session_not_found"),
        ("/api/v1/sessions?limit=0", "request_invalid"),
        ("/api/v1/sessions?limit=x", "request_invalid"),
        ("/api/v1/sessions?nothing=1", "request_invalid"),
        ("/api/v1/sessions?status=tired", "request_invalid"),
        ("/api/v1/sessions?after=zzz", "cursor_invalid"),
        ("/api/v1/tasks?after=task_none", "cursor_invalid"),
        ("/api/v1/tasks/task_none", "task_not_found"),
    ] {
        assert_eq!(world.get(path).code(), code, "{path}");
    }
    for what in ["events", "records", "messages"] {
        let path = format!("/api/v1/sessions/{session}/{what}?after=99999");
        assert_eq!(world.get(&path).code(), "cursor_invalid", "{what}");
    }
    let not_text = format!("/api/v1/sessions/{session}/files/content?path=%ff%fe");
    assert_eq!(raw("PUT", &not_text, b"x").code(), "request_invalid");
    let zero = json!({"name": "x", "scopes": ["read"], "expires_in_s": 0});
    assert_eq!(world.post("/api/v1/access-tokens", &zero).code(), "request_invalid");
    assert_eq!(world.ask("PUT", "/api/v1/tasks", None, &[]).code(), "method_not_allowed");
    for (body, code) in [
        (json!({"working_dir": "relative"}), "request_invalid"),
        (json!({"working_dir": "/does/not/exist"}), "request_invalid"),
        (json!({"agent_profile_id": "nobody"}), "agent_not_found"),
        (json!({"task_id": "task_none"}), "task_not_found"),
        (json!({"task_id": "../x"}), "id_invalid"),
    ] {
        assert_eq!(world.post("/api/v1/sessions", &body).code(), code, "{body}");
    }
    let long = "x".repeat(300);
    let answer = world.ask(
        "POST",
        "/api/v1/tasks",
        Some(&json!({"title": "t"})),
        &[("idempotency-key", &long)],
    );
    assert_eq!(answer.code(), "request_invalid");
    assert_eq!(world.records(&session).len(), before);
    // The server closes a connection that sends garbage, and keeps serving.
    let mut stream = world.send("GET", "/health", None, &[]);
    stream.write_all(b"\x00\x01garbage\r\n\r\n").unwrap();
    assert_eq!(world.get("/health").status, 200);
}

/// A client cannot hold a connection with half a request.
#[test]
fn a_body_that_does_not_come_is_not_waited_for() {
    let world = World::new();
    let answer = |length: &str| {
        let headers = [("content-type", "application/json"), ("content-length", length)];
        let mut stream = world.send("POST", "/api/v1/sign-in", None, &headers);
        stream.write_all(b"{").unwrap();
        let mut answer = String::new();
        let _ = std::io::Read::read_to_string(&mut stream, &mut answer);
        answer
    };
    let too_large = answer("99999999999");
    assert!(too_large.contains("request_too_large"), "{too_large}");
    let late = answer("1000");
    assert!(late.contains("408") && late.contains("request_timeout"), "{late}");
}

/// Pages of an origin that was named may ask, and their browsers let them have the answers.
#[test]
fn a_named_origin_gets_the_headers_it_needs() {
    let mut world = World::not_started();
    world.start_with(|server| {
        server.env("PITON_SERVER_ORIGINS", "https://app.example");
    });
    let origin = ("origin", "https://app.example");
    let before = world.raw(
        "OPTIONS",
        "/api/v1/sessions",
        None,
        &[origin, ("access-control-request-method", "POST")],
    );
    assert_eq!(before.status, 204, "{before:?}");
    let allowed = "access-control-allow-origin: https://app.example";
    assert!(before.headers.contains(allowed), "{}", before.headers);
    assert!(before.headers.contains("access-control-allow-headers: authorization,"));
    let asked = world.ask("GET", "/api/v1/sessions", None, &[origin]);
    assert!(asked.status == 200 && asked.headers.contains(allowed), "{asked:?}");
    let own = world.get("/api/v1/sessions");
    assert!(!own.headers.contains("access-control"), "{}", own.headers);
    let other = [("origin", "https://other.example"), ("access-control-request-method", "POST")];
    assert_eq!(world.raw("OPTIONS", "/api/v1/sessions", None, &other).code(), "origin_refused");
}

#[test]
fn a_data_folder_has_one_server_and_an_address_one_listener() {
    let world = World::new();
    let second = |data: &std::path::Path, listen: &str| {
        let mut command = piton();
        command.arg("--data").arg(data).args(["--json", "serve", "--listen", listen]);
        let output = command.output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let said = second(&world.data(), "127.0.0.1:0");
    assert!(said.contains("server_running") && said.contains(&world.address), "{said}");
    let taken = world.address.trim_start_matches("http://");
    let said = second(&world.folder.path().join("other"), taken);
    assert!(said.contains("address_in_use"), "{said}");
    let said = second(&world.folder.path().join("third"), "0.0.0.0:0");
    assert!(said.contains("tls_required"), "{said}");
}

/// Clients without a token that never finish their requests hold all the connections that such
/// clients can have, and do not keep clients with a token out.
#[test]
pub(crate) fn half_sent_requests_do_not_shut_the_owner_out() {
    let mut world = World::new();
    let session = world.quiet_session(None);
    let bearer = world.bearer(&["read"]);
    let half_sent = |path: &str| {
        let headers = [("content-type", "application/json"), ("content-length", "1000")];
        world.send("POST", path, None, &headers)
    };
    let mut held: Vec<_> = (0..600).map(|_| half_sent("/api/v1/sign-in")).collect();
    let works = |world: &World| {
        assert_eq!(world.json(&["status"])["address"], world.address.as_str());
        assert!(world.command(&["sessions", "show", &session]).output().unwrap().status.success());
        let answer = world.raw("GET", "/api/v1/sessions", None, &[("authorization", &bearer)]);
        assert_eq!(answer.status, 200);
    };
    works(&world);
    // Headers that do not end are the same.
    for _ in 0..600 {
        let mut stream =
            std::net::TcpStream::connect(world.address.trim_start_matches("http://")).unwrap();
        stream.write_all(b"POST /api/v1/sign-in HTTP/1.1\r\n").unwrap();
        held.push(stream);
    }
    works(&world);
    // A client that signs in gets in as well.
    let link = world.post("/api/v1/links", &json!({"name": "b", "scopes": ["read"]})).good();
    let body = json!({"link": link["token"]}).to_string();
    assert_eq!(world.raw("POST", "/api/v1/sign-in", Some(body.as_bytes()), &[]).status, 201);
    drop(held);
}
