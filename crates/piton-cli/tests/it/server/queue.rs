//! Prompts while a run is open, over HTTP and from the command line; and what comes with a prompt.

use serde_json::{Value, json};

use crate::server::world::World;

fn of(session: &str, rest: &str) -> String {
    format!("/api/v1/sessions/{session}{rest}")
}

fn queue(world: &World, session: &str, content: &str) -> Value {
    world.post(&of(session, "/queue"), &json!({"content": content})).good()
}

fn message(accepted: &Value) -> &str {
    accepted["message_id"].as_str().unwrap()
}

/// What the user said, in the log's order.
fn said_by_user(world: &World, session: &str) -> Vec<String> {
    let records = world.records(session);
    let said = records.iter().filter(|record| record["kind"] == "message.user");
    said.map(|record| record["content"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_prompt_during_a_turn_is_queued_and_delivered_when_it_ends() {
    let mut world = World::new();
    let session = world.session();
    let busy = world.prompt(&session, "wait 1500\nsay zero");
    let sent = json!({"content": "say one"});
    let first = world.post(&of(&session, "/messages"), &sent);
    assert_eq!(first.status, 202);
    assert_eq!((&first.body["queued"], &first.body["position"]), (&json!(true), &json!(1)));
    assert_eq!(queue(&world, &session, "say two")["position"], 2);
    let status = world.status(&session);
    assert_eq!(status["queue"], json!({"length": 2, "held": false}));
    assert_eq!(status["run_id"], busy.as_str());
    let run = first.body["run_id"].as_str().unwrap();
    world.when(&session, |status| status["reason"] == "run_completed" && status["run_id"] != run);
    assert_eq!(said_by_user(&world, &session), ["wait 1500\nsay zero", "say one", "say two"]);
    assert_eq!(world.said(&session, run), "one");
    // Each has the id under which it was queued, and started the run that was promised.
    let records = world.records(&session);
    let is = |record: &&Value| record["kind"] == "run.started" && record["run_id"] == run;
    assert_eq!(records.iter().find(is).unwrap()["message_id"], message(&first.body));
}

#[test]
fn if_busy_chooses_what_becomes_of_a_prompt() {
    let mut world = World::new();
    let session = world.session();
    world.prompt(&session, "wait 60000");
    let prompt = |if_busy: &str| {
        let prompt = json!({"content": "say next", "if_busy": if_busy});
        world.post(&of(&session, "/messages"), &prompt)
    };
    let refused = prompt("reject");
    assert_eq!((refused.status, refused.code()), (409, "run_in_progress"));
    let refused = prompt("perhaps");
    assert_eq!((refused.status, refused.code()), (400, "request_invalid"));
    let taken = prompt("supersede").good();
    assert_eq!(taken["queued"], false);
    let run = taken["run_id"].as_str().unwrap().to_owned();
    world.when(&session, |status| {
        status["reason"] == "run_completed" && status["run_id"] == run.as_str()
    });
    assert_eq!(world.said(&session, &run), "next");
}

#[test]
fn every_bad_request_has_its_code_and_changes_nothing() {
    let mut world = World::new();
    let session = world.session();
    world.prompt(&session, "wait 60000");
    let first = queue(&world, &session, "say one");
    let one = of(&session, &format!("/queue/{}", message(&first)));
    let listed = world.get(&of(&session, "/queue")).good();
    let version = listed["prompts"][0]["version"].as_u64().unwrap();
    let refused = |method: &str, path: &str, body: Option<Value>| {
        let answer = world.ask(method, path, body.as_ref(), &[]);
        (answer.status, answer.code().to_owned())
    };
    let code = |status: u16, code: &str| (status, code.to_owned());
    let unknown = of(&session, "/queue/msg_unknown");
    for (method, body) in [("GET", None), ("PATCH", Some(json!({"position": 1}))), ("DELETE", None)]
    {
        assert_eq!(refused(method, &unknown, body), code(404, "queued_prompt_not_found"));
    }
    let other = of("sess_none", "/queue");
    assert_eq!(refused("GET", &other, None), code(404, "session_not_found"));
    let invalid = code(400, "request_invalid");
    for body in [
        json!({}),
        json!({"position": 0}),
        json!({"content": ""}),
        json!({"content": "x", "position": 1}),
        json!({"content": [{"type": "video"}]}),
        json!({"content": [{"type": "image", "data": "?", "mimeType": "image/png"}]}),
    ] {
        assert_eq!(refused("PATCH", &one, Some(body.clone())), invalid, "{body}");
    }
    // Of two edits of the same version the second is refused.
    let edit = |text: &str| json!({"content": text, "version": version});
    world.ask("PATCH", &one, Some(&edit("say 1")), &[]).good();
    assert_eq!(refused("PATCH", &one, Some(edit("say I"))), code(409, "queued_prompt_conflict"));
    let stale = format!("{one}?version={version}");
    assert_eq!(refused("DELETE", &stale, None), code(409, "queued_prompt_conflict"));
    assert_eq!(world.get(&one).good()["content"], "say 1");

    // With the same idempotency key, the second request gets the response of the first.
    let queue_path = of(&session, "/queue");
    let keyed = |content: &str| {
        let body = json!({"content": content});
        world.ask("POST", &queue_path, Some(&body), &[("idempotency-key", "k1")])
    };
    let (second, again) = (keyed("say two").good(), keyed("say two").good());
    assert_eq!(second, again);
    assert_eq!(second["position"], 2);
    assert_eq!(keyed("say three").code(), "idempotency_key_reused");

    // Who may only read may look at the queue.
    let reader = world.bearer(&["read"]);
    let as_reader = |method: &str, path: &str, body: &Value| {
        let headers = [("authorization", reader.as_str()), ("content-type", "application/json")];
        let body = body.to_string();
        let body = (method != "GET").then_some(body.as_bytes());
        world.raw(method, path, body, &headers).status
    };
    assert_eq!(as_reader("GET", &queue_path, &Value::Null), 200);
    assert_eq!(as_reader("POST", &queue_path, &json!({"content": "x"})), 403);
    assert_eq!(as_reader("POST", &of(&session, "/queue/release"), &json!({})), 403);

    for number in 3..=64 {
        queue(&world, &session, &format!("say {number}"));
    }
    let one_more = refused("POST", &queue_path, Some(json!({"content": "say 65"})));
    assert_eq!(one_more, code(409, "limit_reached"));
    assert_eq!(world.status(&session)["queue"]["length"], 64);

    world.post(&of(&session, "/close"), &json!({})).good();
    for (method, path, body) in [
        ("POST", queue_path.clone(), json!({"content": "x"})),
        ("PATCH", one.clone(), json!({"content": "x"})),
        ("POST", of(&session, "/queue/release"), json!({})),
    ] {
        assert_eq!(refused(method, &path, Some(body)), code(409, "session_closed"));
    }
    assert_eq!(refused("DELETE", &one, None), code(409, "session_closed"));
}

#[test]
fn the_queue_is_held_after_an_interruption_until_a_user_releases_it() {
    let mut world = World::new();
    let session = world.session();
    world.prompt(&session, "wait 300\ncrash");
    queue(&world, &session, "say held");
    let held = world.when(&session, |status| status["status"] == "interrupted_startup");
    assert_eq!(held["queue"], json!({"length": 1, "held": true}));
    let run = world.prompt(&session, "say new");
    world.when(&session, |status| {
        status["run_id"] == run.as_str() && status["reason"] == "queue_held"
    });
    let listed = world.json(&["sessions", "queue", "list", &session]);
    assert_eq!((&listed["held"], &listed["text"]), (&json!(true), &json!("say held")));
    world.json(&["sessions", "queue", "release", &session]);
    world.when(&session, |status| status["reason"] == "run_completed");
    assert_eq!(said_by_user(&world, &session).last().unwrap(), "say held");
}

#[test]
fn the_command_line_changes_the_queue() {
    let mut world = World::new();
    let session = world.session();
    world.prompt(&session, "wait 60000");
    let queued = world.json(&["sessions", "prompt", &session, "say one"]);
    assert_eq!((&queued["queued"], &queued["position"]), (&json!(true), &json!(1)));
    world.json(&["sessions", "prompt", &session, "say two", "--if-busy", "queue"]);
    world.json(&["sessions", "queue", "edit", &session, "1", "say 1"]);
    world.json(&["sessions", "queue", "move", &session, message(&queued), "2"]);
    world.json(&["sessions", "queue", "remove", &session, "1"]);
    let left = world.json(&["sessions", "queue", "list", &session]);
    assert_eq!((&left["text"], &left["position"]), (&json!("say 1"), &json!(1)));
    let refused = world.refused(&["sessions", "queue", "remove", &session, "7"]);
    assert_eq!(refused, "queued_prompt_not_found");
}

/// What is typed while the agent works is the session's at once: a terminal that is killed takes
/// nothing with it.
#[test]
fn what_is_typed_during_a_turn_survives_the_terminal() {
    use std::io::Write as _;
    use std::process::Stdio;
    let mut world = World::new();
    let session = world.session();
    world.prompt(&session, "wait 3000\nsay zero");
    let mut terminal = world.command(&["attach", &session]);
    let mut terminal =
        terminal.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let stdin = terminal.stdin.as_mut().unwrap();
    stdin.write_all(b"say one\nsay two\n").unwrap();
    stdin.flush().unwrap();
    world.when(&session, |status| status["queue"]["length"] == 2);
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    let idle =
        |status: &Value| status["reason"] == "run_completed" && status["queue"]["length"] == 0;
    world.when(&session, idle);
    assert_eq!(said_by_user(&world, &session)[1..], ["say one", "say two"]);
}

/// A prompt with a picture: the record has it, the agent is given it, and what an agent does not take
/// is refused by its name.
#[test]
fn attachments_reach_the_agent() {
    let mut world = World::new();
    let session = world.session();
    let file = world.folder.path().join("shot.png");
    std::fs::write(&file, b"\x89PNG\r\n\x1a\n and more").unwrap();
    let notes = world.folder.path().join("notes.md");
    std::fs::write(&notes, "# Notes").unwrap();
    let (file, notes) = (file.to_str().unwrap(), notes.to_str().unwrap());
    let prompt = ["sessions", "prompt", &session, "look", "--attach", file, "--attach", notes];
    let said = world.json(&prompt);
    let run = said["run_id"].as_str().unwrap();
    world.when(&session, |status| status["reason"] == "run_completed");
    let answer = world.said(&session, run);
    assert!(answer.contains("[image image/png file://"), "{answer}");
    assert!(answer.contains("[resource text/markdown file://"), "{answer}");
    let records = world.records(&session);
    let user = records.iter().find(|record| record["kind"] == "message.user").unwrap();
    assert_eq!(user["content"][0], json!({"type": "text", "text": "look"}));
    assert_eq!(user["content"][1]["mimeType"], "image/png");
    assert_eq!(user["content"][2]["resource"]["text"], "# Notes");
    // In a conversation they are named.
    let messages = world.get(&of(&session, "/messages")).good().to_string();
    assert!(messages.contains("[Attached image: file://"), "{messages}");
    // More than 4 MiB, which is what other requests may have.
    let large = "A".repeat(6 * 1024 * 1024);
    let image = json!({"type": "image", "data": large, "mimeType": "image/png"});
    let run = world.post(&of(&session, "/messages"), &json!({"content": [image]})).good();
    let run = run["run_id"].as_str().unwrap();
    world.when(&session, |status| status["run_id"] == run && status["reason"] == "run_completed");
    assert!(world.said(&session, run).contains("[image image/png 6291456 bytes]"));
}

/// Wants to show: an edit of the text, over HTTP and from the command line, keeps what is attached, and a
/// content that is given replaces all of it. The names of attachments never become text.
#[test]
fn an_edit_keeps_what_is_attached() {
    let mut world = World::new();
    let session = world.session();
    world.prompt(&session, "wait 60000");
    let image = json!({"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"});
    let link = json!({"type": "resource_link", "uri": "file:///a", "name": "a"});
    // Longer than what a list shows.
    let long = format!("say {}", "long ".repeat(4_000));
    let content = json!([{"type": "text", "text": long}, image, link]);
    let queued = world.post(&of(&session, "/queue"), &json!({"content": content})).good();
    let one = of(&session, &format!("/queue/{}", message(&queued)));
    let shown = world.get(&one).good();
    assert_eq!(shown["content"], content, "all of it");
    let text = |text: &str| json!({"type": "text", "text": text});
    world.json(&["sessions", "queue", "edit", &session, "1", "say one"]);
    assert_eq!(world.get(&one).good()["content"], json!([text("say one"), image, link]));
    let edit = |body: Value| world.ask("PATCH", &one, Some(&body), &[]);
    edit(json!({"text": "say two"})).good();
    let shown = world.get(&one).good();
    assert_eq!(shown["content"], json!([text("say two"), image, link]));
    let keyed = [("idempotency-key", "k1")];
    let body = json!({"text": "", "version": shown["version"]});
    let first = world.ask("PATCH", &one, Some(&body), &keyed).good();
    assert_eq!(world.ask("PATCH", &one, Some(&body), &keyed).good(), first, "it is the same edit");
    assert_eq!(world.get(&one).good()["content"], json!([image, link]));
    assert_eq!(edit(body).code(), "queued_prompt_conflict");
    for wrong in [json!({"text": "x", "content": "x"}), json!({"text": "x", "position": 1})] {
        assert_eq!(edit(wrong).code(), "request_invalid");
    }
    edit(json!({"content": "say three"})).good();
    assert_eq!(world.get(&one).good()["content"], "say three");
    assert_eq!(edit(json!({"text": ""})).code(), "request_invalid");
}

/// `sessions show` has the queue: how many, whether they are held, and the first lines.
#[test]
fn a_session_is_shown_with_its_queue() {
    let mut world = World::new();
    let session = world.session();
    world.prompt(&session, "wait 60000");
    for number in 1..=4 {
        queue(&world, &session, &format!("say {number}\nand more"));
    }
    let show = || {
        let output = world.command(&["sessions", "show", &session]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let shown = show();
    let expected = "Queue: 4 prompts\n  1. say 1 and more\n  2. say 2 and more\n  \
                    3. say 3 and more\n  and 1 more\n";
    assert!(shown.contains(expected), "{shown}");
    world.post(&of(&session, "/cancel"), &json!({})).good();
    let shown = show();
    assert!(shown.contains("Queue: 4 prompts, held until the queue is released\n"), "{shown}");
    assert!(shown.contains(&format!("sessions queue release {session}")), "{shown}");
}
