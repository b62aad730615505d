//! An agent that cannot load its conversation, as users meet it: every command says so, and each way out
//! leads out.

use serde_json::{Value, json};

use crate::server::world::World;
use crate::tools;

/// A server with an agent that crashes while it loads a conversation, as long as a file is there.
fn with_moody_agent() -> World {
    let mut world = World::not_started();
    let folder = world.folder.path().canonicalize().unwrap();
    let (program, folder) = (tools::piton(), folder.display());
    let echo = format!("exec {program} agent echo -- --memory {folder}/memory.json");
    let script = format!("if [ -e {folder}/broken ]; then {echo} crash_at=load; fi; {echo}");
    let config = world.folder.path().join("config.toml");
    let agent = format!("[agents.moody]\ncommand = ['/bin/sh', '-c', '{script}']\n");
    std::fs::write(&config, agent).unwrap();
    world.start_with(|command| {
        command.env("PITON_CONFIG", config);
    });
    world
}

/// Wants to show: a failed start is no success for any command or request, also for a request that is
/// repeated under its key; `sessions show` and the error name the ways out with commands that can be
/// pasted; and a way out delivers what was asked for meanwhile.
#[test]
fn a_stuck_agent_is_an_error_with_ways_out() {
    let mut world = with_moody_agent();
    let new = json!({"agent_profile_id": "moody"});
    let session = world.post("/api/v1/sessions", &new).good()["session_id"].clone();
    let session = session.as_str().unwrap().to_owned();
    world.adopt(&session);
    world.prompt(&session, "remember colour blue");
    world.when(&session, |status| status["last_outcome"] == "completed");
    std::fs::write(world.folder.path().join("broken"), "").unwrap();
    world.post(&format!("/api/v1/sessions/{session}/stop"), &json!({})).good();
    world.when(&session, |status| status["is_agent_running"] == false);

    let call = format!("piton --data {} ", world.data().display());
    let choices = [
        format!("{call}sessions resume {session}`"),
        format!("{call}sessions resume {session} --with-history`"),
        format!("{call}sessions resume {session} --fresh`"),
        format!("{call}chat`"),
    ];
    for arguments in [
        &["sessions", "prompt", &session, "say lost"] as &[&str],
        &["sessions", "resume", &session],
        &["sessions", "resume", &session, "--continue"],
    ] {
        let failed = world.command(arguments).output().unwrap();
        let said = String::from_utf8(failed.stderr).unwrap();
        assert_eq!(failed.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("The agent `moody` could not be started"), "{arguments:?}: {said}");
        for choice in &choices {
            assert!(said.contains(choice), "{arguments:?}: {choice} is not in {said}");
        }
    }
    let path = format!("/api/v1/sessions/{session}/messages");
    let prompt = json!({"content": "say keyed"});
    for _ in 0..2 {
        let failed = world.ask("POST", &path, Some(&prompt), &[("idempotency-key", "k")]);
        assert_eq!((failed.status, failed.code()), (409, "agent_exited"), "{failed:?}");
    }
    let shown = world.command(&["sessions", "show", &session]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    for choice in &choices {
        let choice = choice.trim_end_matches('`');
        assert!(shown.lines().any(|line| line.ends_with(choice)), "{choice} is not in {shown}");
    }

    // The agent cannot load its conversation still; another one has the history.
    let resumed = world.json(&["sessions", "resume", &session, "--with-history", "--continue"]);
    let run = resumed["run_id"].as_str().unwrap().to_owned();
    world.when(&session, |status| status["status"] == "idle" && status["run_id"] == *run);
    let said = world.said(&session, &run);
    for known in ["[USER]: remember colour blue", "> say lost", "> say keyed"] {
        assert_eq!(said.matches(known).count(), 1, "{known}: {said}");
    }
    let repeated = world.ask("POST", &path, Some(&prompt), &[("idempotency-key", "k")]);
    assert_eq!((repeated.status, &repeated.body["pending"]), (202, &Value::Bool(false)));
    let records = world.records(&session);
    let said = records.iter().filter(|record| record["kind"] == "message.user").count();
    assert_eq!(said, 3, "nothing was said twice");
}
