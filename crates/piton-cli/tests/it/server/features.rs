//! An agent's own features and tasks from the command line: the real binary and the built-in agent.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::server::world::{TEST_TIMEOUT, World};
use crate::tools;

/// Wants to show: what was chosen is given to the agent, shown, and still so after the agent came back.
#[test]
fn a_mode_and_a_model_are_chosen_and_kept() {
    let mut world = World::new();
    let session = &world.session();
    let view = |world: &World| world.json(&["sessions", "show", session])["agent_view"].clone();
    world.when(session, |status| status["is_agent_running"] == true);
    world.json(&["sessions", "prompt", session, "commands\nusage 10\nplan"]);
    world.when(session, |status| status["last_outcome"] == "completed");
    let shown = view(&world);
    assert_eq!(shown["modes"]["current"], "normal", "{shown}");
    assert_eq!(shown["models"]["current"], "small");
    assert_eq!(shown["usage"]["context_window_tokens"], 1_000);
    assert_eq!(shown["commands"][0]["name"], "recall");
    assert_eq!(shown["plan"].as_array().map(Vec::len), Some(2));
    let choice = ["--mode", "quiet", "--model", "large", "--option", "loud=true"];
    world.json(&[&["sessions", "set", session], choice.as_slice()].concat());
    let is_chosen = |shown: &Value| {
        shown["modes"]["current"] == "quiet"
            && shown["models"]["current"] == "large"
            && shown["config_options"][0]["current"] == true
    };
    let refused = world.refused(&["sessions", "set", session, "--mode", "loud"]);
    assert_eq!(refused, "choice_not_offered");
    world.json(&["sessions", "prompt", session, "crash"]);
    world.when(session, |status| status["status"] == "interrupted_startup");
    world.json(&["sessions", "prompt", session, "say hello"]);
    world.when(session, |status| status["last_outcome"] == "completed");
    let shown = view(&world);
    assert!(is_chosen(&shown), "{shown}");
    let text = world.command(&["sessions", "show", session]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("quiet (or normal)") && text.contains("10 of 1000 tokens"), "{text}");
}

/// Wants to show: a task is named by the beginning or the end of its id, by a command that asks the server
/// and by one that reads the store.
#[test]
fn a_task_is_named_by_a_part_of_its_id() {
    let world = World::new();
    let task = world.json(&["tasks", "new", "One"])["task_id"].as_str().unwrap().to_owned();
    let (beginning, end) = (&task[..task.len() - 2], &task[task.len() - 8..]);
    for part in [beginning, end] {
        assert_eq!(world.json(&["tasks", "show", part])["task_id"], task, "{part}");
        assert_eq!(world.json(&["tasks", "edit", part, "Two"])["task_id"], task, "{part}");
        let listed = world.command(&["sessions", "list", "--task", part]).output().unwrap();
        assert!(listed.status.success(), "{part}: {}", String::from_utf8_lossy(&listed.stderr));
        let made = world.json(&["sessions", "new", "--agent", "echo", "--task", part]);
        let session = made["session_id"].as_str().unwrap();
        assert_eq!(world.json(&["sessions", "show", session])["task_id"], task, "{part}");
    }
    assert_eq!(world.refused(&["tasks", "show", "task_nothing"]), "task_not_found");
}

/// Wants to show: without an id, `attach` returns to this folder's latest session, though one of another
/// folder was active after it; in a folder without sessions, to the latest of all.
#[test]
fn attach_prefers_the_sessions_of_this_folder() {
    let mut world = World::new();
    let folder = |name: &str| {
        let folder = world.workspace().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder.canonicalize().unwrap()
    };
    let (here, there, elsewhere) = (folder("here"), folder("there"), folder("elsewhere"));
    for (folder, text) in [(&here, "say alpha"), (&there, "say beta")] {
        let session = world.session_in(folder);
        world.prompt(&session, text);
        world.when(&session, |status| status["last_outcome"] == "completed");
    }
    let attached = |folder: &std::path::Path| {
        let mut attach = world.command(&["attach", "--plain"]);
        attach.current_dir(folder).stdin(std::process::Stdio::null());
        String::from_utf8(attach.output().unwrap().stdout).unwrap()
    };
    for (folder, shown, other) in
        [(&here, "alpha", "beta"), (&there, "beta", "alpha"), (&elsewhere, "beta", "alpha")]
    {
        let text = attached(folder);
        assert!(text.contains(shown) && !text.contains(other), "{}: {text}", folder.display());
    }
}

#[test]
fn a_task_is_changed_from_the_command_line() {
    let world = World::new();
    let task = world.json(&["tasks", "new", "One"])["task_id"].as_str().unwrap().to_owned();
    let shown = |world: &World| world.json(&["tasks", "show", &task]);
    assert_eq!(shown(&world)["state"], "TODO");
    world.json(&["tasks", "edit", &task, "Two"]);
    assert_eq!(shown(&world)["title"], "Two");
    world.json(&["tasks", "close", &task, "--outcome", "cancelled"]);
    assert_eq!(shown(&world)["state"], "CANCELLED");
    world.json(&["tasks", "reopen", &task]);
    assert_eq!(shown(&world)["state"], "TODO");
    assert_eq!(world.json(&["tasks", "delete", &task]), json!({"task_id": task}));
    assert_eq!(world.refused(&["tasks", "show", &task]), "task_not_found");
}

/// Wants to show: a session is forked from the command line, with a title of its own; while its agent
/// works it is not.
#[test]
fn a_session_is_forked_from_the_command_line() {
    let mut world = World::new();
    let session = world.session();
    world.prompt(&session, "remember colour blue");
    world.when(&session, |status| status["last_outcome"] == "completed");
    let forked = world.json(&["sessions", "fork", &session, "--title", "Copy"]);
    let fork = forked["session_id"].as_str().unwrap().to_owned();
    world.adopt(&fork);
    assert_ne!(fork, session);
    assert_eq!(world.json(&["sessions", "show", &fork])["title"], "Copy");
    let forked = world.records(&fork).into_iter().find(|record| record["kind"] == "session.forked");
    assert_eq!(forked.unwrap()["from_session_id"], session.as_str());
    world.prompt(&session, "hang");
    assert_eq!(world.refused(&["sessions", "fork", &session]), "run_in_progress");
}

/// Wants to show: an executor that responds is not abandoned; one that does not is, its run is
/// interrupted, and the session can be used again.
#[test]
fn an_executor_is_abandoned_from_the_command_line() {
    let mut world = World::new();
    let session = world.session();
    world.prompt(&session, "hang");
    assert_eq!(world.refused(&["sessions", "abandon", &session]), "executor_in_use");
    let execution = world.status(&session)["agent_execution_id"].as_str().unwrap().to_owned();
    let other = world.refused(&["sessions", "abandon", &session, "--execution", "exec_other"]);
    assert_eq!(other, "executor_not_found");
    let lock = world.data().join("run").join(&execution).join("lock");
    let pid = std::fs::read_to_string(lock).unwrap().trim().parse().unwrap();
    let agentctl = Pid::from_raw(pid).unwrap();
    kill_process(agentctl, Signal::STOP).unwrap();
    let abandoned = world.json(&["sessions", "abandon", &session, "--execution", &execution]);
    assert_eq!(abandoned["changed"], true, "{abandoned}");
    let status = world.status(&session);
    assert_eq!(status["status"], "interrupted_startup", "{status:#}");
    kill_process(agentctl, Signal::CONT).unwrap();
    world.prompt(&session, "say again");
    world.when(&session, |status| status["last_outcome"] == "completed");
}

/// Wants to show: `prune` says what is due and changes nothing; with `--yes` it does it.
#[test]
fn closed_sessions_are_pruned_from_the_command_line() {
    let mut world = World::new();
    let (closed, open) = (world.quiet_session(None), world.quiet_session(None));
    world.post(&format!("/api/v1/sessions/{closed}/close"), &json!({})).good();
    let prune = |arguments: &[&str]| {
        let mut command = world.command(&["sessions", "prune"]);
        let output = command.args(arguments).env("PITON_RETENTION_DELETE_AFTER", "1s").output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let until = Instant::now() + TEST_TIMEOUT;
    let mut due = prune(&[]);
    while !due.contains(&closed) {
        assert!(Instant::now() < until, "nothing is due: {due}");
        std::thread::sleep(Duration::from_millis(200));
        due = prune(&[]);
    }
    assert!(!due.contains(&open), "{due}");
    assert_eq!(world.json(&["sessions", "show", &closed])["status"], "completed");
    prune(&["--yes"]);
    assert_eq!(world.refused(&["sessions", "show", &closed]), "session_not_found");
    world.json(&["sessions", "show", &open]);
}

/// Wants to show: an agent is logged in from the command line, by the one way that it offers or by a named
/// one; another way is refused.
#[test]
fn an_agent_is_logged_in_from_the_command_line() {
    let world = World::not_started();
    let config = world.folder.path().join("config.toml");
    let program = tools::piton();
    let command = format!("['{program}', 'agent', 'echo', '--', '--auth', 'key']");
    std::fs::write(&config, format!("[agents.locked]\ncommand = {command}\n")).unwrap();
    let login = |arguments: &[&str]| {
        let mut command = world.command(&["agents", "login", "locked", "--json"]);
        command.args(arguments).env("PITON_CONFIG", &config).output().unwrap()
    };
    for arguments in [&[] as &[&str], &["--method", "key"]] {
        let output = login(arguments);
        assert!(output.status.success(), "{output:?}");
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(said, json!({"agent_profile_id": "locked", "auth_methods": ["key"]}));
    }
    let output = login(&["--method", "browser"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(error["error"]["code"], "agent_unusable", "{error}");
    assert!(error["error"]["message"].as_str().unwrap().contains("\"browser\""), "{error}");
}
