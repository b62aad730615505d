//! Permission requests in the drawn client: what is typed over them, who answers them, and what else is
//! on the screen meanwhile.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::server::drawn::{chat, drawn, let_keys_count};
use crate::server::pty::{Home, Terminal};
use crate::server::world::World;

/// A chat with a config file of its own, at a request that runs a command.
fn asked(home: &Home, command: &str) -> (Terminal, PathBuf) {
    let file = home.folder.path().join("config.toml");
    std::fs::write(&file, "[chat]\nagent = \"echo\"\n").unwrap();
    let mut process = drawn(home.piton(&["chat"]));
    process.env("PITON_CONFIG", &file);
    let mut chat = Terminal::run_sized(process, 30, 80);
    chat.sees("a prompt", |screen| {
        screen.contains("Ask for something") && !screen.contains("starting")
    });
    chat.type_in(&format!("ask-run {command}\r"));
    chat.sees_text("│ Run this command?");
    let_keys_count();
    (chat, file)
}

/// Prose has the letters that answer, and writes no rule, chooses no option and rejects nothing.
#[test]
fn prose_over_a_request_answers_nothing() {
    let home = Home::new();
    let (mut chat, file) = asked(&home, "rm -rf build");
    let before = std::fs::read_to_string(&file).unwrap();
    chat.type_in("an error");
    chat.sees_text("> an error");
    // As someone types who looks for each key.
    for key in [" ", "1", "m", "r", "r"] {
        let_keys_count();
        chat.type_in(key);
    }
    chat.sees_text("> an error 1mrr");
    chat.type_in("\r1 more\rmake it blue\r");
    chat.sees("all of it in the queue", |screen| {
        ["an error 1mrr", "1 more", "make it blue"]
            .iter()
            .all(|line| screen.contains(&format!("queued {line}")))
    });
    assert!(chat.screen().contains("│ Run this command?"), "{}", chat.screen());
    // A rule that is shown is written by Ctrl-S alone.
    chat.type_in("\t");
    let_keys_count();
    chat.type_in("r");
    chat.sees_text("ctrl-s adds the rule");
    chat.type_in("x");
    chat.sees_text("> x");
    chat.type_in("\x13");
    let_keys_count();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
    // The request has the keys again, and the draft stays.
    chat.type_in("\t");
    let_keys_count();
    chat.type_in("1");
    chat.sees("the answer", |screen| screen.contains("→ ") && !screen.contains("│ Run this"));
    chat.sees_text("> x");
    // The queue continues behind the turn; the second Ctrl-C leaves whatever runs.
    chat.sees("the queue's end", |screen| {
        !screen.contains("queued ") && screen.contains("enter send")
    });
    chat.type_in("\x03\x03");
    assert!(chat.ends().0);
}

/// Both press their key: one answer counts, and both go on.
#[test]
fn two_terminals_answer_one_request() {
    let home = Home::new();
    let mut one = chat(&home, 24, 80);
    let mut two = Terminal::run_sized(drawn(home.piton(&["attach"])), 24, 80);
    two.sees_text("Ask for something");
    one.type_in("ask-run echo once\r");
    one.sees_text("│ Run this command?");
    two.sees_text("│ Run this command?");
    let_keys_count();
    one.type_in("1");
    two.type_in("1");
    for terminal in [&mut one, &mut two] {
        terminal.sees("the end of the turn", |screen| {
            screen.contains("Ask for something") && !screen.contains("│ Run this")
        });
        assert_eq!(terminal.scrollback().matches("→ ").count(), 1, "{}", terminal.screen());
    }
    // A reason that is being typed when another terminal answers is not lost.
    one.type_in("ask-run echo twice\r");
    one.sees_text("│ Run this command?");
    two.sees_text("│ Run this command?");
    let_keys_count();
    one.type_in("m");
    one.sees_text("say why you reject it");
    one.type_in("because of the build");
    one.sees_text("why? because of the build");
    two.type_in("1");
    one.sees("the reason in the prompt", |screen| {
        screen.contains("answered elsewhere") && screen.contains("> because of the build")
    });
    one.type_in("\x04\x03\x03");
    two.type_in("\x04");
    assert!(one.ends().0 && two.ends().0);
}

/// The transcript opens beside a request, and says when one arrives; its keys answer nothing.
#[test]
fn a_request_and_the_transcript_are_on_the_screen_in_turn() {
    let home = Home::new();
    let (mut chat, _) = asked(&home, "echo one");
    chat.type_in("\x14");
    chat.sees("the transcript", |screen| {
        screen.starts_with("Transcript  A request waits: q goes to it")
    });
    chat.type_in("1mrq1");
    chat.sees("the request, and what was typed at once", |screen| {
        screen.contains("│ Run this command?") && screen.contains("> 1")
    });
    chat.type_in("\x7f\t");
    let_keys_count();
    chat.type_in("1");
    chat.sees("the answer", |screen| screen.contains("Ask for something"));
    chat.type_in("ask-run echo two\r\x14");
    chat.sees("a request that arrives", |screen| {
        screen.starts_with("Transcript  A request waits: q goes to it")
    });
    chat.type_in("q");
    chat.sees_text("│ Run this command?");
    let_keys_count();
    chat.type_in("1");
    chat.sees("the answer", |screen| screen.contains("Ask for something"));
    chat.type_in("\x04");
    assert!(chat.ends().0);
}

/// Ctrl-C clears, then leaves, and says so; what it took away comes back.
#[test]
fn nothing_that_was_typed_is_lost() {
    let home = Home::new();
    let mut chat = chat(&home, 24, 80);
    let line = format!("say {}\r", "x".repeat(95));
    chat.type_in(&format!("\x1b[200~{}\x1b[201~", line.repeat(1_000)));
    chat.sees_text("[Pasted 1000 lines");
    chat.type_in("\x03");
    chat.sees_text("Cleared; ↑ brings it back");
    chat.type_in("\x1b[A");
    chat.sees("the paste", |screen| screen.contains("xxxxx"));
    chat.type_in("\x03");
    // A queued prompt that is being edited when it is delivered.
    chat.type_in("wait 2500\r");
    chat.sees_text("esc interrupts");
    chat.type_in("say queued\r");
    chat.sees_text("queued say queued");
    chat.type_in("\x1b[1;3A");
    chat.sees_text("queued> say queued");
    chat.type_in(" and edited");
    chat.sees("its answer", |screen| screen.contains("\n  queued\n"));
    chat.type_in("\r");
    chat.sees("the edit in the prompt", |screen| {
        screen.contains("There is no queued prompt")
            && screen.contains("\n> say queued and edited")
            && screen.contains("enter send")
    });
    chat.type_in("\x03");
    chat.sees_text("Cleared");
    // At an empty prompt the first Ctrl-C says what the second does.
    chat.type_in("y\x7f\x03");
    chat.sees_text("Ctrl-C again leaves.");
    chat.type_in("\x03");
    assert!(chat.ends().0);
}

/// An image is named by its path, as a terminal pastes a file that is dragged in.
#[test]
fn a_dragged_image_goes_with_the_prompt() {
    let home = Home::new();
    let file = home.folder.path().join("my shot.png");
    std::fs::write(&file, b"\x89PNG\r\n\x1a\nrest").unwrap();
    let mut chat = chat(&home, 24, 120);
    chat.type_in(&format!("say look \x1b[200~'{}'\x1b[201~\r", file.display()));
    chat.sees_text("[image image/png");
    chat.type_in("\x04");
    assert!(chat.ends().0);
}

/// Wants to show: a queued prompt is edited whole, however long it is, and its image goes with it.
#[test]
fn a_queued_prompt_is_edited_with_all_that_belongs_to_it() {
    let mut world = World::new();
    let session = world.session();
    let busy = world.prompt(&session, "wait 60000");
    let image = json!({"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"});
    // Longer than what a list has: it is read before it is edited.
    let long = format!("say {}", "long ".repeat(4_000));
    let content = json!([{"type": "text", "text": long}, image]);
    let queue = format!("/api/v1/sessions/{session}/queue");
    let queued = world.post(&queue, &json!({"content": content})).good();
    let one = format!("{queue}/{}", queued["message_id"].as_str().unwrap());
    let mut chat = Terminal::run_sized(drawn(world.command(&["attach", &session])), 24, 100);
    chat.sees_text("queued say long");
    chat.type_in("\x1b[1;3A");
    chat.sees_text("the attachments stay");
    chat.type_in("end\r");
    chat.sees_text("The queued prompt is changed.");
    let edited = json!([{"type": "text", "text": format!("{}end", long)}, image]);
    assert_eq!(world.get(&one).good()["content"], edited);
    chat.type_in("\x1b[1;3A");
    chat.sees_text("the attachments stay");
    chat.type_in("\x15\r");
    chat.sees("no text in the line", |screen| !screen.contains("the attachments stay"));
    world.when(&session, |_| world.get(&one).good()["content"] == json!([image]));
    world.post(&format!("/api/v1/sessions/{session}/cancel"), &json!({})).good();
    world.post(&format!("{queue}/release"), &json!({})).good();
    let run = queued["run_id"].as_str().unwrap();
    world.when(&session, |status| status["run_id"] == run && status["last_outcome"] == "completed");
    assert_ne!(run, busy);
    let answer = world.said(&session, run);
    assert!(answer.contains("[image image/png") && !answer.contains("Attached"), "{answer}");
    chat.kill();
}

/// Wants to show: an agent that has lost its question reads of it what every client showed, also where the
/// question itself is a bare path.
#[test]
fn a_lost_request_is_described_as_it_was_shown() {
    let mut world = World::new();
    let session = world.session();
    let status = world.when(&session, |status| status["executor"]["agent_session_id"].is_string());
    let of_agent = &status["executor"]["agent_session_id"];
    let begins = json!({"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "edit",
        "kind": "edit", "status": "pending", "rawInput": {}});
    let update = json!({"jsonrpc": "2.0", "method": "session/update",
        "params": {"sessionId": of_agent, "update": begins}});
    let options = json!([{"optionId": "y", "name": "Allow", "kind": "allow_once"}]);
    let call =
        json!({"toolCallId": "c1", "title": "/w/a.txt", "locations": [{"path": "/w/a.txt"}]});
    let asked = json!({"jsonrpc": "2.0", "id": "ask-1", "method": "session/request_permission",
        "params": {"sessionId": of_agent, "options": options, "toolCall": call}});
    world.prompt(&session, &format!("raw {update}\nraw {asked}\nwait 60000"));
    let status = world.when(&session, |status| status["waits"][0]["permission"].is_object());
    assert_eq!(status["waits"][0]["permission"]["title"], "edit /w/a.txt");
    for agent in world.agents(&session) {
        // It may have children.
        let _ = rustix::process::kill_process(agent, rustix::process::Signal::KILL);
    }
    world.when(&session, |status| status["is_agent_running"] == false);
    world.prompt(&session, "say on");
    world.when(&session, |status| status["last_outcome"] == "completed");
    let records = world.records(&session);
    let prepared = records.iter().rfind(|record| record["kind"] == "prompt.prepared").unwrap();
    let expected = "- Permission for edit /w/a.txt (options: Allow)";
    assert!(prepared["prompt"].as_str().unwrap().contains(expected), "{prepared:#}");
}

/// Wants to show: what an agent says of its call after it asked is a part of the request for every client:
/// the API, `sessions waits` and `answer`, and both terminals, which show it again before a key counts.
#[test]
fn what_is_said_after_the_question_is_shown_before_it_can_be_allowed() {
    let mut world = World::new();
    let session = world.session();
    let status = world.when(&session, |status| status["executor"]["agent_session_id"].is_string());
    let of_agent = &status["executor"]["agent_session_id"];
    let raw = |message: Value| format!("raw {message}\n");
    let update = |update: Value| {
        let params = json!({"sessionId": of_agent, "update": update});
        raw(json!({"jsonrpc": "2.0", "method": "session/update", "params": params}))
    };
    let changed = |text: &str| {
        let diff =
            json!({"type": "diff", "path": "/w/a.txt", "oldText": "old line", "newText": text});
        update(json!({"sessionUpdate": "tool_call_update", "toolCallId": "c1", "content": [diff]}))
    };
    let options = json!([{"optionId": "y", "name": "Allow", "kind": "allow_once"}]);
    let question = json!({"sessionId": of_agent, "options": options, "toolCall": {
        "toolCallId": "c1", "title": "/w/a.txt", "locations": [{"path": "/w/a.txt"}]}});
    let asked = json!({"jsonrpc": "2.0", "id": "ask-1", "method": "session/request_permission",
        "params": question});
    let begins = json!({"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "edit",
        "kind": "edit", "status": "pending", "rawInput": {}});
    let prompt = [
        update(begins),
        raw(asked),
        changed("first change"),
        "wait 4000\n".to_owned(),
        changed("second change"),
        "wait 60000".to_owned(),
    ];
    world.prompt(&session, &prompt.concat());
    let has_diff = |status: &Value| status["waits"][0]["permission"]["diffs"][0].is_object();
    let status = world.when(&session, has_diff);
    let mut plain = Terminal::run(world.command(&["attach", "--plain", &session]));
    let mut drawn = Terminal::run_sized(drawn(world.command(&["attach", &session])), 30, 100);
    let wait = status["waits"][0]["wait_id"].as_str().unwrap();
    assert_eq!(status["waits"][0]["permission"]["title"], "edit /w/a.txt");
    plain.shows("+ second change");
    drawn.sees_text("+ second change");
    let path = format!("/api/v1/waits/{wait}");
    let whole = world.get(&path).good()["permission"].clone();
    assert_eq!(whole["diffs"][0]["new_text"], "second change", "{whole}");
    assert_eq!(world.json(&["sessions", "waits", &session])["permission"], whole);
    for arguments in [&["sessions", "waits", "--full"] as &[&str], &["sessions", "answer", wait]] {
        let shown = world.command(arguments).output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        for line in ["? edit /w/a.txt", "- old line", "+ second change"] {
            assert!(shown.contains(line), "{arguments:?}: {line} is not in {shown}");
        }
    }
    let_keys_count();
    plain.type_in("1");
    plain.shows("  -> Allow");
    drawn.sees("the answer", |screen| screen.contains("→ "));
    plain.type_in("/quit\n");
    assert!(plain.ends().0);
    drawn.type_in("/quit\r");
    assert!(drawn.ends().0);
}
