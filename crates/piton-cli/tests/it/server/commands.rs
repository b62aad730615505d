//! `piton sessions …` beside a server that owns the sessions, and without one.

use serde_json::{Value, json};

use crate::server::pty::Home;
use crate::server::world::World;

#[test]
fn a_question_is_answered_from_the_command_line() {
    let mut world = World::new();
    let session = &world.session();
    // The beginning of an id is enough.
    let said = world.json(&["sessions", "prompt", "sess_", "ask May I?\nsay thanks"]);
    assert_eq!(said["session_id"], session.as_str());
    let waiting = world.when(session, |status| status["status"] == "waiting");
    let wait = waiting["waits"][0]["wait_id"].as_str().unwrap();

    let asked = world.json(&["sessions", "answer", session]);
    assert_eq!((&asked["wait_id"], &asked["answer"]), (&json!(wait), &Value::Null));
    let option = asked["options"][0]["option_id"].as_str().unwrap();
    let shown = world.command(&["sessions", "answer", wait]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.starts_with("? May I?\n  1  ") && shown.contains(option), "{shown}");
    let waits = world.command(&["sessions", "waits", session]).output().unwrap();
    let waits = String::from_utf8(waits.stdout).unwrap();
    assert!(waits.lines().any(|line| line.trim().ends_with("May I?")), "{waits}");
    let advice = world.json(&["sessions", "show", session])["advice"].to_string();
    let data = world.data();
    let command = format!("piton --data {} sessions answer {session}", data.display());
    assert!(advice.contains(&command), "it can be pasted: {advice}");

    assert_eq!(world.refused(&["sessions", "answer", wait, "perhaps"]), "answer_invalid");
    assert_eq!(world.refused(&["sessions", "answer", wait, "--option", "none"]), "answer_invalid");
    assert_eq!(world.refused(&["sessions", "answer", "wait_none", "1"]), "wait_not_found");
    assert_eq!(world.refused(&["sessions", "answer", "sess_none", "1"]), "session_not_found");
    assert_eq!(world.status(session)["status"], "waiting");

    let token = world.json(&["sessions", "resume-token", session]);
    assert_eq!((&token["purpose"], &token["wait_id"]), (&json!("wait"), &json!(wait)));
    assert!(token["token"].as_str().unwrap().starts_with("rt_") && token["expires_at"].is_string());

    let answered = world.json(&["sessions", "answer", session, "1"]);
    assert_eq!(answered["answer"], json!({"option_id": option}));
    let done = world.when(session, |status| status["status"] == "idle");
    assert_eq!(done["last_outcome"], "completed");
    let answer = world.said(session, said["run_id"].as_str().unwrap());
    assert_eq!(answer, format!("chosen: {option}thanks"));
    assert_eq!(world.refused(&["sessions", "answer", session, "1"]), "wait_not_found");
}

#[test]
fn a_run_is_steered_from_the_command_line() {
    let mut world = World::new();
    let session = &world.session();
    let shown = world.json(&["sessions", "show", session]);
    let running = (&shown["is_agent_running"], &shown["live"]["is_connected"]);
    assert_eq!(running, (&json!(true), &json!(true)));

    world.json(&["sessions", "prompt", session, "wait 60000"]);
    world.when(session, |status| status["status"] == "running");
    let paused = world.json(&["sessions", "pause", session]);
    assert_eq!((&paused["status"], &paused["changed"]), (&json!("paused"), &json!(true)));
    let resumed = world.json(&["sessions", "resume", session]);
    assert_eq!(resumed["run_id"], paused["run_id"]);
    world.when(session, |status| status["last_outcome"] == "completed");
    world.json(&["sessions", "prompt", session, "wait 60000"]);
    let running = world.when(session, |status| status["status"] == "running");
    assert_eq!(
        world.refused(&["sessions", "cancel", session, "--run", "run_other"]),
        "run_not_found"
    );
    let run = running["run_id"].as_str().unwrap();
    for changed in [true, false] {
        let cancelled = world.json(&["sessions", "cancel", session, "--run", run]);
        assert_eq!((&cancelled["run_id"], &cancelled["changed"]), (&json!(run), &json!(changed)));
    }
    assert_eq!(world.refused(&["sessions", "dismiss", session]), "run_not_interrupted");

    world.json(&["sessions", "prompt", session, "crash"]);
    world.when(session, |status| status["status"] == "interrupted_startup");
    let token = world.json(&["sessions", "resume-token", session, "--valid-for", "1h"]);
    assert_eq!(token["purpose"], "interruption");
    for changed in [true, false] {
        let dismissed = world.json(&["sessions", "dismiss", session]);
        assert_eq!(dismissed["changed"], changed);
    }
    // A prompt starts the agent that crashed.
    let said = world.json(&["sessions", "prompt", session, "say again"]);
    world.when(session, |status| status["last_outcome"] == "completed");
    // It was told that it crashed, and says so.
    let said = world.said(session, said["run_id"].as_str().unwrap());
    assert!(said.contains("your last turn did not end") && said.ends_with("again"), "{said}");

    let plan = world.json(&["sessions", "delete", session]);
    assert_eq!(
        (&plan["deleted"], &plan["refusal"]["code"]),
        (&json!(false), &json!("executor_alive"))
    );
    assert_eq!(world.refused(&["sessions", "delete", session, "--yes"]), "executor_alive");
    let closed = world.json(&["sessions", "close", session, "--outcome", "cancelled"]);
    assert_eq!(closed["status"], "cancelled");
    assert_eq!(world.refused(&["sessions", "prompt", session, "more"]), "session_closed");
    let arguments = ["sessions", "delete", session, "--force", "--reason", "a & b?", "--yes"];
    assert_eq!(world.json(&arguments)["deleted"], true);
    assert_eq!(world.refused(&["sessions", "cancel", session]), "session_not_found");
    let log = world.command(&["sessions", "log", "_piton", "--json"]).output().unwrap();
    let log = String::from_utf8(log.stdout).unwrap();
    assert!(log.contains("a & b? (by local)"), "{log}");
}

/// What needs an agent starts a server; what needs none does not, and no command creates a store
/// that the user did not ask for.
#[test]
fn a_server_is_started_for_what_needs_one() {
    let home = Home::new();
    let json = |arguments: &[&str]| {
        let output = home.piton(arguments).arg("--json").output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    for command in ["resume", "pause", "close", "cancel"] {
        let output = home.piton(&["--json", "sessions", command, "sess_none"]).output().unwrap();
        assert!(
            String::from_utf8(output.stderr).unwrap().contains("session_not_found"),
            "{command}"
        );
    }
    assert!(!home.folder.path().join("data").exists());

    let output = home.piton(&["chat", "--print", "say one"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let session = json(&["sessions", "list"])["session_id"].as_str().unwrap().to_owned();
    json(&["stop"]);
    // The agent keeps running, and cancelling a run that has ended is refused without a server.
    let output = home.piton(&["--json", "sessions", "cancel", &session]).output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("run_not_open"));
    assert_eq!(home.piton(&["status"]).output().unwrap().status.code(), Some(1));
    let said = json(&["sessions", "prompt", &session, "say two"]);
    assert!(said["run_id"].is_string());
    assert!(home.piton(&["status"]).output().unwrap().status.success());
}

/// What HTTP says of a session is what the command line prints, field by field, beside a server and
/// without one.
#[test]
fn the_command_line_spells_a_status_as_the_api_does() {
    let mut world = World::new();
    let session = &world.session();
    world.json(&["sessions", "prompt", session, "ask May I?"]);
    let mut status = world.when(session, |status| status["status"] == "waiting");
    let object = |value: &Value| value.as_object().unwrap().clone();
    let is_part = |part: &Value, whole: &Value| {
        for (name, value) in &object(part) {
            assert_eq!(&whole[name], value, "{name}");
        }
    };
    // What was looked at at another moment differs.
    let moment = |value: &mut Value| {
        value["live"] = Value::Null;
        value["executor"]["last_seen_at"] = Value::Null;
    };
    let mut shown = world.json(&["sessions", "show", session]);
    assert_eq!(shown["live"]["is_connected"], true);
    moment(&mut status);
    moment(&mut shown);
    is_part(&status, &shown);
    let page = world.get("/api/v1/sessions").good();
    let listed = world.json(&["sessions", "list"]);
    is_part(&page["sessions"][0], &listed);
    assert_eq!(object(&listed).len(), object(&page["sessions"][0]).len() + 2, "owner and cursor");
    is_part(&status["waits"][0], &world.json(&["sessions", "waits", session]));

    world.end();
    let shown = world.json(&["sessions", "show", session]);
    let names = |value: &Value| object(value).into_iter().map(|(name, _)| name);
    assert!(names(&status).all(|name| names(&shown).any(|other| other == name)), "{shown}");
    assert_eq!(shown["live"], Value::Null);
    is_part(&status["waits"][0], &shown["waits"][0]);
    assert_eq!(shown["status"], "waiting", "its agent lives");
}

/// What takes something out of the store is done by the server that owns the session.
#[test]
fn redaction_and_archive_go_through_the_server() {
    let mut world = World::new();
    let session = &world.session();
    world.json(&["sessions", "prompt", session, "say hunter2"]);
    world.when(session, |status| status["last_outcome"] == "completed");
    let redact = ["sessions", "redact", session, "--pattern", "hunter[0-9]", "--yes"];
    let redacted = world.json(&redact);
    assert!(redacted["taken_out"].as_u64().unwrap() > 0, "{redacted}");
    let records = world.records(session);
    assert!(!records.iter().any(|record| record.to_string().contains("hunter2")));
    assert_eq!(world.refused(&["sessions", "archive", session]), "session_not_closed");
    world.json(&["sessions", "close", session]);
    // Its agent has ended, too.
    world.when(session, |status| status["executor_status"] == "stopped");
    let archived = world.json(&["sessions", "archive", session]);
    assert!(std::path::Path::new(archived["bundle"].as_str().unwrap()).is_file());
    assert_eq!(world.get(&format!("/api/v1/sessions/{session}")).code(), "session_not_found");
    // Put back beside the server, which then answers for it again.
    let bundle = archived["bundle"].as_str().unwrap();
    assert_eq!(world.json(&["sessions", "import", bundle])["session_id"], session.as_str());
    let mut again = world.command(&["sessions", "archive", session, "--to", "elsewhere"]);
    let output = again.current_dir(world.folder.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(world.folder.path().join(format!("elsewhere/{session}.piton")).is_file());
}

/// How far a spool was read is no news for people; programs and those who ask get it.
#[test]
fn the_log_leaves_out_how_far_a_spool_was_read() {
    let mut world = World::new();
    let session = &world.session();
    world.json(&["sessions", "prompt", session, "say hello"]);
    world.when(session, |status| status["last_outcome"] == "completed");
    let log = |options: &[&str]| {
        let mut command = world.command(&["sessions", "log", session]);
        let output = command.args(options).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let plain = log(&[]);
    assert!(plain.contains("message.delta") && !plain.contains("spool.imported"), "{plain}");
    for options in [&["--all"][..], &["--json"], &["--kind", "spool.*"]] {
        let shown = log(options);
        assert!(shown.contains("spool.imported"), "{options:?}: {shown}");
    }
}
