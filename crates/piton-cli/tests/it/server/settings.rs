//! Settings of a server that runs: reloaded by command and by signal; and what the ones about idle
//! agents do.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::server::world::{TEST_TIMEOUT, World};

fn kinds(world: &World, session: &str) -> Vec<String> {
    let kind = |record: &Value| record["kind"].as_str().unwrap().to_owned();
    world.records(session).iter().map(kind).collect()
}

/// Waits until the log has a record of this kind.
fn until(world: &World, session: &str, kind: &str) {
    let until = Instant::now() + TEST_TIMEOUT;
    while !kinds(world, session).iter().any(|known| known == kind) {
        assert!(Instant::now() < until, "never {kind}: {:?}", kinds(world, session));
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn assert_speaks(world: &World, session: &str, said: &str) {
    let run = world.prompt(session, &format!("say {said}"));
    world.when(session, |status| status["status"] == "idle");
    assert!(world.said(session, &run).contains(said));
}

/// A server with a config file of its own.
fn configured(file: &str) -> World {
    let mut world = World::not_started();
    write(&world, file);
    let path = world.folder.path().join("config.toml");
    world.start_with(|command| {
        command.env("PITON_CONFIG", path);
    });
    world
}

fn write(world: &World, file: &str) {
    std::fs::write(world.folder.path().join("config.toml"), file).unwrap();
}

/// Wants to show: an agent with nothing to do is ended by a recorded decision, nothing is interrupted,
/// and the next prompt brings it back with its conversation.
#[test]
fn an_idle_agent_ends_and_the_next_prompt_starts_it_again() {
    let mut world = configured("[agents]\nidle_timeout = '1s'\n");
    let session = world.session();
    assert_speaks(&world, &session, "first");
    until(&world, &session, "agent.exited");
    let before = kinds(&world, &session);
    let at = |kind: &str| before.iter().position(|known| known == kind).unwrap();
    assert!(at("agent.ending") < at("agent.exited"), "{before:?}");
    assert!(!before.iter().any(|kind| kind == "run.interrupted"), "{before:?}");
    let status = world.status(&session);
    assert_eq!((&status["status"], &status["is_resumable"]), (&json!("idle"), &json!(true)));
    assert!(world.agents(&session).is_empty(), "its process is gone");
    assert_speaks(&world, &session, "second");
    let ready = kinds(&world, &session).iter().filter(|kind| *kind == "agent.ready").count();
    assert!(ready >= 2, "it was started again");
}

/// Wants to show: new settings count without a restart, by command and by SIGHUP; those that need a
/// restart are named; a wrong file changes nothing and is an error with a code.
#[test]
fn settings_are_reloaded() {
    let mut world = configured("[agents]\nidle_timeout = 'never'\n");
    let session = world.session();
    assert_speaks(&world, &session, "first");
    assert_eq!(world.json(&["reload"]), json!({"changed": [], "restart_required": []}));

    write(&world, "[agents]\nidle_timeout = 'soon'\n");
    assert_eq!(world.refused(&["reload"]), "config_invalid");
    assert!(!kinds(&world, &session).iter().any(|kind| kind == "agent.ending"));

    write(&world, "[agents]\nidle_timeout = '1s'\n[server]\nhosts = ['a.example']\n");
    let reloaded = world.json(&["reload"]);
    let expected =
        json!({"changed": ["agents.idle_timeout"], "restart_required": ["server.hosts"]});
    assert_eq!(reloaded, expected);
    until(&world, &session, "agent.exited");

    write(&world, "[agents]\nidle_timeout = 'never'\n[log]\nlevel = 'debug'\n");
    let pid = Pid::from_raw(i32::try_from(world.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
    // What the signal has done is no change any more.
    let until = Instant::now() + TEST_TIMEOUT;
    while world.json(&["reload"])["changed"] != json!([]) {
        assert!(Instant::now() < until);
    }
    let reader = world.bearer(&["read"]);
    let refused = world.raw("POST", "/api/v1/reload", Some(b"{}"), &[("authorization", &reader)]);
    assert_eq!((refused.status, refused.code()), (403, "insufficient_scope"));
}

/// Wants to show: a session whose agent cannot be started is there, and the command that made it fails with
/// the cause, which `sessions show` repeats beside what to do.
#[test]
fn a_new_session_whose_agent_does_not_start_is_an_error() {
    let world = configured("[agents.broken]\ncommand = ['/bin/false']\n");
    assert_eq!(world.refused(&["sessions", "new", "--agent", "broken"]), "agent_exited");
    let made = world.command(&["sessions", "new", "--agent", "broken"]).output().unwrap();
    assert_eq!(made.status.code(), Some(1), "{made:?}");
    let session = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let shown = world.command(&["sessions", "show", &session]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    for text in ["The agent ended before it was ready (exit status: 1)", "Retry"] {
        assert!(shown.contains(text), "{shown}");
    }
    assert!(!shown.contains("Continue with history"), "there is none: {shown}");
}
