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

/// Wants to show: a setting that is hidden, or not shown one by one, is not said to be unchanged.
#[test]
fn what_is_hidden_is_compared_too() {
    let file = |url: &str, token: &str, variable: &str, method: &str, arg: &str, kept: u32| {
        format!(
            "[notify]\nurl = 'https://ntfy.example/{url}'\ntopic = 'topic'\ntoken = '{token}'\n\
             [agents.mine]\ncommand = ['/bin/true']\nenv = {{ MODEL = '{variable}' }}\n\
             auth_method = '{method}'\n[agents.mine.mcp.g]\ncommand = 'g'\nargs = ['{arg}']\n\
             [checkpoint]\nmax_checkpoints_per_session = {kept}\n"
        )
    };
    let world = configured(&file("a", "tk_a", "small", "key", "x", 7));
    let required = |written: String| {
        write(&world, &written);
        let output = world.command(&["reload"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        for secret in ["tk_a", "tk_b", "ntfy.example", "large"] {
            assert!(!text.contains(secret), "{text}");
        }
        world.json(&["reload"])["restart_required"].clone()
    };
    assert_eq!(required(file("a", "tk_a", "small", "key", "x", 7)), json!([]));
    assert_eq!(required(file("b", "tk_a", "small", "key", "x", 7)), json!(["notify.url"]));
    assert_eq!(required(file("a", "tk_b", "small", "key", "x", 7)), json!(["notify.token"]));
    for agent in [
        file("a", "tk_a", "large", "key", "x", 7),
        file("a", "tk_a", "small", "login", "x", 7),
        file("a", "tk_a", "small", "key", "y", 7),
    ] {
        assert_eq!(required(agent), json!(["agents.mine"]));
    }
    let checkpoint = json!(["checkpoint.max_checkpoints_per_session"]);
    assert_eq!(required(file("a", "tk_a", "small", "key", "x", 8)), checkpoint);
}

/// Wants to show: the limit of the queue is the setting's, also for what is said with an answer.
#[test]
fn a_message_with_an_answer_counts_against_the_queue() {
    let mut world = configured("[queue]\nprompts = 1\n");
    let session = world.session();
    world.prompt(&session, "ask-run true");
    let waiting = world.when(&session, |status| status["status"] == "waiting");
    let queue = format!("/api/v1/sessions/{session}/queue");
    world.post(&queue, &json!({"content": "say later"})).good();
    let wait = waiting["waits"][0]["wait_id"].as_str().unwrap();
    let answer = json!({"answer": {"option_id": "reject_once"}, "message": "say why"});
    let answered = world.post(&format!("/api/v1/waits/{wait}/answer"), &answer);
    assert_eq!((answered.status, answered.code()), (409, "limit_reached"));
    write(&world, "[queue]\nprompts = 2\n");
    assert_eq!(world.json(&["reload"])["changed"], json!(["queue.prompts"]));
    world.post(&format!("/api/v1/waits/{wait}/answer"), &answer).good();
    world.when(&session, |status| {
        status["last_outcome"] == "completed" && status["queue"]["length"] == 0
    });
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
