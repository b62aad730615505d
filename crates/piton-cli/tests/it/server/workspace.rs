//! Files, git and shells of a workspace, with and without an agent, and what must not be reached.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::server::socket::{Silence, Socket};
use crate::server::world::{Answer, TEST_TIMEOUT, World};

fn put(world: &World, session: &str, path: &str, content: &[u8]) -> Answer {
    let bearer = format!("Bearer {}", world.token);
    let headers =
        [("authorization", bearer.as_str()), ("content-type", "application/octet-stream")];
    let path = format!("/api/v1/sessions/{session}/files/content?path={path}");
    world.raw("PUT", &path, Some(content), &headers)
}

#[test]
fn a_workspace_does_not_wait_for_an_agent() {
    let mut world = World::new();
    let workspace = world.workspace();
    std::fs::write(workspace.join("here.txt"), "here").unwrap();
    let session = world.quiet_session(Some(&workspace));
    let base = format!("/api/v1/sessions/{session}");
    let listed = world.get(&format!("{base}/files")).good();
    assert_eq!(
        listed,
        json!({"files": [{"name": "here.txt", "kind": "file", "bytes": 4}], "truncated": false})
    );
    // There is an agentctl, and no agent.
    let status = world.status(&session);
    assert_eq!(
        (&status["executor_status"], &status["is_agent_running"]),
        (&json!("ready"), &json!(false))
    );
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(put(&world, &session, "a%20folder/deep/b.bin", &bytes).status, 204);
    assert_eq!(std::fs::read(workspace.join("a folder/deep/b.bin")).unwrap(), bytes);
    let read = world.get(&format!("{base}/files/content?path=here.txt"));
    assert_eq!((read.status, read.text.as_str()), (200, "here"));
    assert!(read.headers.contains("application/octet-stream"), "{}", read.headers);
    let listed = world.get(&format!("{base}/files?path=a%20folder")).good();
    assert_eq!(listed["files"][0], json!({"name": "deep", "kind": "folder", "bytes": 0}));
    // The agent comes later, to the same workspace.
    world.post(&format!("{base}/start"), &json!({})).good();
    world.prompt(&session, "write note.txt hello");
    world.when(&session, |status| status["last_outcome"] == "completed");
    assert_eq!(world.get(&format!("{base}/files/content?path=note.txt")).text, "hello");
    // And the workspace outlives the server.
    world.kill();
    world.start();
    assert_eq!(world.get(&format!("{base}/files/content?path=note.txt")).text, "hello");
    world.post(&format!("{base}/close"), &json!({})).good();
    // What was done can be reviewed; nothing is changed any more.
    assert_eq!(world.get(&format!("{base}/files/content?path=note.txt")).text, "hello");
    let answer = put(&world, &session, "note.txt", b"other");
    assert_eq!((answer.status, answer.code()), (409, "session_closed"));
}

/// The first request launches it; all the others find it.
#[test]
fn a_workspace_is_opened_once() {
    let mut world = World::new();
    let session = world.quiet_session(None);
    let base = format!("/api/v1/sessions/{session}");
    let (files, start) = (format!("{base}/files"), format!("{base}/start"));
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..8).map(|_| scope.spawn(|| world.get(&files))).collect();
        let started = scope.spawn(|| world.post(&start, &json!({})));
        for asked in asked {
            assert_eq!(asked.join().unwrap().good()["files"], json!([]));
        }
        started.join().unwrap().good();
    });
    let records = world.records(&session);
    let launched = records.iter().filter(|record| record["kind"] == "executor.starting");
    assert_eq!(launched.count(), 1);
}

#[test]
fn git_is_asked_about_the_workspace() {
    let mut world = World::new();
    let workspace = world.workspace();
    let git = |args: &[&str]| {
        let identity = ["-c", "user.name=A", "-c", "user.email=a@b"];
        let mut command = Command::new("git");
        command.args(identity).args(args).current_dir(&workspace).env("GIT_CONFIG_GLOBAL", "");
        assert!(command.output().unwrap().status.success(), "{args:?}");
    };
    let session = world.quiet_session(Some(&workspace));
    let base = format!("/api/v1/sessions/{session}/git");
    let none = world.get(&format!("{base}/status")).good();
    assert_eq!(none["repository"], false);
    git(&["init", "-b", "main"]);
    std::fs::write(workspace.join("a.txt"), "one\n").unwrap();
    git(&["add", "a.txt"]);
    git(&["commit", "-m", "first"]);
    std::fs::write(workspace.join("a.txt"), "two\n").unwrap();
    std::fs::write(workspace.join("b.txt"), "new\n").unwrap();
    git(&["add", "b.txt"]);
    let status = world.get(&format!("{base}/status")).good();
    assert_eq!((&status["repository"], &status["branch"]), (&json!(true), &json!("main")));
    let changed: Vec<&str> =
        status["changed"].as_array().unwrap().iter().map(|c| c["path"].as_str().unwrap()).collect();
    assert_eq!(changed, ["a.txt", "b.txt"]);
    let diff = |query: &str| {
        let diff = world.get(&format!("{base}/diff{query}")).good();
        diff["diff"].as_str().unwrap().to_owned()
    };
    assert!(diff("").contains("+two") && !diff("").contains("+new"));
    assert!(diff("?staged=true").contains("+new") && !diff("?staged=true").contains("+two"));
    assert_eq!(diff("?path=b.txt"), "");
    let log = world.get(&format!("{base}/log?limit=1")).good();
    assert_eq!(log["commits"][0]["subject"], "first");
    for (query, code) in [("log?limit=0", "request_invalid"), ("diff?path=../x", "path_outside")] {
        assert_eq!(world.get(&format!("{base}/{query}")).code(), code, "{query}");
    }
}

#[test]
fn nothing_outside_the_workspace_is_reached() {
    let mut world = World::new();
    let workspace = world.workspace();
    let secret = world.folder.path().join("secret.txt");
    std::fs::write(&secret, "secret").unwrap();
    symlink(&secret, workspace.join("link.txt")).unwrap();
    symlink(world.folder.path(), workspace.join("up")).unwrap();
    symlink("link.txt", workspace.join("chain")).unwrap();
    std::fs::create_dir(workspace.join("in")).unwrap();
    let session = world.quiet_session(Some(&workspace));
    let base = format!("/api/v1/sessions/{session}/files");
    let absolute = secret.display().to_string();
    let outside = [
        "../secret.txt",
        "..%2fsecret.txt",
        "in/../../secret.txt",
        "in/..",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        absolute.as_str(),
        "link.txt",
        "chain",
        "up/secret.txt",
        "up/work/../secret.txt",
    ];
    for path in outside {
        let read = world.get(&format!("{base}/content?path={path}"));
        assert_eq!((read.status, read.code()), (400, "path_outside"), "{path}: {read:?}");
        assert!(!read.text.contains("root:"), "{path}");
        let listed = world.get(&format!("{base}?path={path}"));
        assert_eq!((listed.status, listed.code()), (400, "path_outside"), "{path}: {listed:?}");
    }
    // A link in place of the file is replaced, not followed; whatever else is refused.
    for path in outside.iter().filter(|path| !["link.txt", "chain"].contains(path)) {
        let written = put(&world, &session, path, b"evil");
        assert_eq!((written.status, written.code()), (400, "path_outside"), "{path}: {written:?}");
    }
    for path in ["link.txt", "chain"] {
        put(&world, &session, path, b"evil");
    }
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret");
    let in_folder: Vec<_> = std::fs::read_dir(world.folder.path()).unwrap().flatten().collect();
    assert!(in_folder.iter().all(|entry| entry.file_name() != "evil"), "{in_folder:?}");
    for (path, status, code) in [
        ("none.txt", 404, "not_found"),
        ("a%00b", 400, "path_invalid"),
        ("in", 409, "path_is_folder"),
    ] {
        let read = world.get(&format!("{base}/content?path={path}"));
        assert_eq!((read.status, read.code()), (status, code), "{path}: {read:?}");
    }
    assert_eq!(world.get(&format!("{base}/content")).code(), "request_invalid");
    assert_eq!(world.get(&format!("{base}?more=1")).code(), "request_invalid");
    let unknown = "/api/v1/sessions/sess_none/files";
    assert_eq!(world.get(unknown).code(), "session_not_found");
    // As large as it may be, and a byte more.
    let large = vec![b'x'; 8 * 1024 * 1024];
    assert_eq!(put(&world, &session, "large", &large).status, 204);
    assert_eq!(std::fs::metadata(workspace.join("large")).unwrap().len(), 8 * 1024 * 1024);
    let path = format!("{base}/content?path=larger");
    let bearer = format!("Bearer {}", world.token);
    let length = (large.len() + 1).to_string();
    let headers = [("authorization", bearer.as_str()), ("content-length", &length)];
    let mut stream = world.send("PUT", &path, None, &headers);
    // It may stop reading before the end.
    let _ = stream.write_all(&large).and_then(|()| stream.write_all(b"x"));
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.contains("request_too_large"), "{answer}");
    assert!(!workspace.join("larger").exists());
}

#[test]
fn a_workspace_needs_its_scopes() {
    let mut world = World::new();
    let session = world.quiet_session(None);
    let (read, control) = (world.bearer(&["read"]), world.bearer(&["control"]));
    let base = format!("/api/v1/sessions/{session}");
    let open = world.post(&format!("{base}/shells"), &json!({})).good();
    let shell = open["shell_id"].as_str().unwrap();
    for (method, path, refused) in [
        ("GET", format!("{base}/files"), &control),
        ("GET", format!("{base}/files/content?path=x"), &control),
        ("GET", format!("{base}/git/status"), &control),
        ("GET", format!("{base}/git/diff"), &control),
        ("GET", format!("{base}/git/log"), &control),
        ("PUT", format!("{base}/files/content?path=x"), &read),
        ("POST", format!("{base}/shells"), &read),
        ("DELETE", format!("{base}/shells/{shell}"), &read),
    ] {
        let body = ["PUT", "POST"].contains(&method).then_some(&b"{}"[..]);
        let answer = world.raw(method, &path, body, &[("authorization", refused)]);
        assert_eq!((answer.status, answer.code()), (403, "insufficient_scope"), "{method} {path}");
        assert_eq!(world.raw(method, &path, body, &[]).status, 401, "{method} {path}");
    }
    let socket = format!("{base}/shells/{shell}/socket");
    let refused = Socket::open(&world, &socket, &[("authorization", &read)]).err().unwrap();
    assert_eq!(refused["code"], "insufficient_scope");
    let refused = Socket::open(&world, &socket, &[]).err().unwrap();
    assert_eq!(refused["code"], "unauthenticated");
    let origin = [("authorization", control.as_str()), ("origin", "http://evil.example")];
    let refused = Socket::open(&world, &socket, &origin).err().unwrap();
    assert_eq!(refused["code"], "origin_refused");
    assert!(Socket::open(&world, &socket, &[("authorization", &control)]).is_ok());
}

struct Screen {
    socket: Socket,
    shown: String,
}

impl Screen {
    fn attach(world: &World, session: &str, shell: &str) -> Self {
        let bearer = format!("Bearer {}", world.token);
        let path = format!("/api/v1/sessions/{session}/shells/{shell}/socket");
        let socket = Socket::open(world, &path, &[("authorization", &bearer)]).unwrap();
        Self { socket, shown: String::new() }
    }

    fn type_in(&mut self, text: &str) {
        self.socket.inner.send(Message::binary(text.as_bytes().to_vec())).unwrap();
    }

    fn shows(&mut self, wanted: &str) {
        while !self.shown.contains(wanted) {
            match self.socket.read(TEST_TIMEOUT) {
                Ok(Message::Binary(bytes)) => self.shown += &String::from_utf8_lossy(&bytes),
                other => panic!("{other:?} instead of {wanted:?} after {:?}", self.shown),
            }
        }
    }

    /// How the shell ended, and with which code the socket was closed.
    fn ends(&mut self) -> (Value, Option<u16>) {
        let mut ended = Value::Null;
        loop {
            match self.socket.read(TEST_TIMEOUT) {
                Ok(Message::Binary(bytes)) => self.shown += &String::from_utf8_lossy(&bytes),
                Ok(Message::Text(text)) => ended = serde_json::from_str(&text).unwrap(),
                Ok(other) => panic!("{other:?}"),
                Err(Silence::Closed(code)) => return (ended, code),
                Err(Silence::Nothing) => panic!("not closed: {:?}", self.shown),
            }
        }
    }
}

/// Input typed after the token was revoked does not reach the shell.
#[test]
fn a_shell_is_closed_when_its_token_is_revoked() {
    let mut world = World::new();
    let session = world.session();
    let shells = format!("/api/v1/sessions/{session}/shells");
    let shell = world.post(&shells, &json!({})).good()["shell_id"].as_str().unwrap().to_owned();
    let granted = json!({"name": "x", "scopes": ["control"]});
    let granted = world.post("/api/v1/access-tokens", &granted).good();
    let bearer = format!("Bearer {}", granted["token"].as_str().unwrap());
    let path = format!("{shells}/{shell}/socket");
    let socket = Socket::open(&world, &path, &[("authorization", &bearer)]).unwrap();
    let mut screen = Screen { socket, shown: String::new() };
    screen.type_in("echo so $((40 + 1)) far\n");
    screen.shows("so 41 far");
    let access = format!("/api/v1/access-tokens/{}", granted["access_token_id"].as_str().unwrap());
    assert_eq!(world.ask("DELETE", &access, None, &[]).status, 204);
    let sent = screen.socket.inner.send(Message::binary(b"echo and $((40 + 2)) more\n".to_vec()));
    let (_, code) = screen.ends();
    assert!(code == Some(1008) || sent.is_err(), "{code:?}");
    let mut own = Screen::attach(&world, &session, &shell);
    own.type_in("echo then $((40 + 3))\n");
    own.shows("then 43");
    assert!(!own.shown.contains("and 42 more"), "{}", own.shown);
}

#[test]
fn a_shell_is_typed_into_resized_and_ended() {
    let mut world = World::new();
    let session = world.quiet_session(None);
    let shells = format!("/api/v1/sessions/{session}/shells");
    let open = || {
        let made = world.post(&shells, &json!({"cols": 100, "rows": 30})).good();
        made["shell_id"].as_str().unwrap().to_owned()
    };
    let shell = open();
    let listed = world.get(&shells).good();
    assert_eq!(listed["shells"][0]["shell_id"], *shell, "{listed:#}");
    let mut screen = Screen::attach(&world, &session, &shell);
    // What is typed is shown, too: the answer is none of it.
    screen.type_in("echo size=$(stty size | tr ' ' x)\n");
    screen.shows("size=30x100");
    screen.socket.say(r#"{"resize":{"cols":120,"rows":40}}"#);
    screen.type_in("echo size=$(stty size | tr ' ' x)\n");
    screen.shows("size=40x120");
    // Who comes later sees what was there, and both see what comes.
    let mut second = Screen::attach(&world, &session, &shell);
    second.shows("size=40x120");
    second.type_in("echo both-$((40+2))\n");
    screen.shows("both-42");
    second.shows("both-42");
    screen.type_in("exit 3\n");
    for screen in [&mut screen, &mut second] {
        let (ended, code) = screen.ends();
        assert_eq!((ended, code), (json!({"exit_code": 3, "signal": null}), Some(1000)));
    }
    // One that is ended from outside.
    let shell = open();
    let mut screen = Screen::attach(&world, &session, &shell);
    screen.type_in("echo here-$((1+1))\n");
    screen.shows("here-2");
    assert_eq!(world.ask("DELETE", &format!("{shells}/{shell}"), None, &[]).status, 204);
    let (ended, code) = screen.ends();
    assert!(ended["signal"].is_number() || ended["exit_code"].is_number(), "{ended}");
    assert_eq!(code, Some(1000));
    let gone = world.ask("DELETE", &format!("{shells}/{shell}"), None, &[]);
    assert_eq!((gone.status, gone.code()), (404, "shell_not_found"));
    // What makes no sense ends the panel, and not the shell.
    let shell = open();
    for (message, code) in [
        (Message::text("{"), 1003),
        (Message::text(r#"{"resize":{"cols":0,"rows":9}}"#), 1003),
        (Message::binary(vec![b'x'; 300 * 1024]), 1009),
    ] {
        let mut screen = Screen::attach(&world, &session, &shell);
        // It may be closed before all of it is taken.
        let _ = screen.socket.inner.send(message);
        let closed = screen.ends().1;
        assert!(closed == Some(code) || (code == 1009 && closed.is_none()), "{closed:?}");
    }
    let mut screen = Screen::attach(&world, &session, &shell);
    screen.type_in("echo still-$((2+2))\n");
    screen.shows("still-4");
    // The server's end is the panel's, not the shell's.
    world.end();
    assert_eq!(screen.ends().1, Some(1001));
    world.start();
    let mut screen = Screen::attach(&world, &session, &shell);
    screen.shows("still-4");
}

#[test]
fn shells_are_bounded_and_known() {
    let mut world = World::new();
    let session = world.quiet_session(None);
    let shells = format!("/api/v1/sessions/{session}/shells");
    for body in
        [json!({"cols": 0}), json!({"rows": 5000}), json!({"cols": "x"}), json!({"more": 1})]
    {
        assert_eq!(world.post(&shells, &body).code(), "request_invalid", "{body}");
    }
    // Nothing is launched to find out that there is no shell.
    let bearer = format!("Bearer {}", world.token);
    let attach = |path: &str| {
        Socket::open(&world, path, &[("authorization", &bearer)]).err().unwrap()["code"].clone()
    };
    assert_eq!(attach(&format!("{shells}/1/socket")), "executor_not_found");
    let opened: Vec<Answer> = (0..17).map(|_| world.post(&shells, &json!({}))).collect();
    let codes: Vec<u16> = opened.iter().map(|answer| answer.status).collect();
    assert_eq!(codes, [[201; 16].as_slice(), &[409]].concat());
    assert_eq!(opened[16].code(), "limit_reached");
    for shell in ["99", "x", "..", "%2e%2e%2ffiles"] {
        assert_eq!(attach(&format!("{shells}/{shell}/socket")), "shell_not_found", "{shell}");
    }
    let plain = world.get(&format!("{shells}/1/socket"));
    assert_eq!((plain.status, plain.code()), (400, "request_invalid"));
}

/// The server cuts off a client that does not read, and other clients do not wait for it.
#[test]
fn a_panel_that_is_not_looked_at_holds_nothing_up() {
    let mut world = World::new();
    let session = world.quiet_session(None);
    let made = world.post(&format!("/api/v1/sessions/{session}/shells"), &json!({})).good();
    let shell = made["shell_id"].as_str().unwrap().to_owned();
    let asleep = Screen::attach(&world, &session, &shell);
    let mut awake = Screen::attach(&world, &session, &shell);
    awake.type_in("head -c 20000000 /dev/zero | tr '\\0' x | fold -w 1000; echo done-$((3+3))\n");
    loop {
        match awake.socket.read(TEST_TIMEOUT) {
            Ok(Message::Binary(bytes)) => {
                awake.shown += &String::from_utf8_lossy(&bytes);
                if awake.shown.contains("done-6") {
                    break;
                }
                let keep = awake.shown.len().saturating_sub(64);
                awake.shown.drain(..keep);
            }
            // Too slow itself, on a busy machine: it looks again, and is shown what is kept.
            Err(Silence::Closed(Some(1013))) => {
                std::thread::sleep(Duration::from_millis(50));
                awake = Screen::attach(&world, &session, &shell);
            }
            other => panic!("{other:?}"),
        }
    }
    drop(asleep);
}
