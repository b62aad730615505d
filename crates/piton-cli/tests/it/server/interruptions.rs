//! A killed agent is interrupted, whatever it says while it dies; and who looks learns what it was
//! doing, and what the next agent knows.

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::server::world::World;

/// A session whose agent is talking when it gets SIGTERM, which it answers as its prompt says.
fn terminated(world: &mut World, on_term: &str) -> (String, Value) {
    let session = world.session();
    let run = world.prompt(&session, &format!("{on_term}\nstream 100000 5"));
    world.when(&session, |status| status["status"] == "running");
    while !world.said(&session, &run).contains("chunk 1 ") {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    for agent in world.agents(&session) {
        // It may have children.
        let _ = kill_process(agent, Signal::TERM);
    }
    let status = world.when(&session, |status| status["is_agent_running"] == false);
    (session, status)
}

fn count(records: &[Value], kind: &str) -> usize {
    records.iter().filter(|record| record["kind"] == kind).count()
}

#[test]
fn a_killed_agent_is_interrupted_whatever_it_says_while_it_dies() {
    let mut world = World::new();
    // As claude and qwen do, as copilot did, and without a word.
    for on_term in ["on-term cancelled 64", "on-term end_turn 280", "say nothing"] {
        let (session, status) = terminated(&mut world, on_term);
        assert_eq!(status["status"], "interrupted_startup", "{on_term}: {status:#}");
        assert_eq!(status["reason"], "process_exit", "{on_term}");
        assert_eq!(status["interruption"]["phase"], "answering", "{on_term}: {status:#}");
        let sentence = status["sentence"].as_str().unwrap();
        assert!(sentence.ends_with("while the agent was answering."), "{sentence}");
        let records = world.records(&session);
        assert_eq!(count(&records, "run.interrupted"), 1, "{on_term}");
        assert_eq!(count(&records, "run.cancelled"), 0, "{on_term}");
        // The next prompt carries what it was asked and what it had said.
        let run = world.prompt(&session, "say I am back");
        world.when(&session, |status| status["status"] == "idle" && status["run_id"] == *run);
        let said = world.said(&session, &run);
        // It says the lines of its prompt one by one, without their ends.
        let request = format!("The request of that turn:> {on_term}> stream 100000 5The end of");
        assert!(said.contains(&request), "{on_term}: {said}");
        assert!(said.contains("chunk 1 "), "{on_term}: {said}");
    }
}

/// agentctl gets SIGTERM, as when the machine goes down, and ends its agent.
#[test]
fn a_turn_that_ends_because_agentctl_was_asked_to_end_is_interrupted() {
    let mut world = World::new();
    let session = world.session();
    let run = world.prompt(&session, "on-term end_turn 50\nstream 100000 5");
    while world.said(&session, &run).is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let executions = world.get("/api/v1/executors").good();
    let pid = executions["executions"][0]["pid"].as_i64().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let status = world.when(&session, |status| status["is_agent_running"] == false);
    assert_eq!(status["status"], "interrupted_startup", "{status:#}");
    let records = world.records(&session);
    assert_eq!(count(&records, "run.completed"), 0);
    assert_eq!(count(&records, "run.interrupted"), 1);
}

/// Each start is announced with what the agent will know, also the second; an agent that does not
/// know what was said is said to, with the ways to continue.
#[test]
fn an_agent_without_its_context_says_so_everywhere() {
    let mut world = World::new();
    let session = world.session();
    world.prompt(&session, "remember colour blue");
    world.when(&session, |status| status["status"] == "idle");
    let fresh = json!({"fresh": true});
    for _ in 0..2 {
        world.post(&format!("/api/v1/sessions/{session}/start"), &fresh).good();
        let status = world.status(&session);
        assert_eq!(status["context"], "lost", "{status:#}");
        assert_eq!(status["context_reason"], "user_request", "{status:#}");
        let choices: Vec<_> = status["choices"].as_array().unwrap().iter().collect();
        let labels: Vec<_> = choices.iter().map(|c| c["label"].as_str().unwrap()).collect();
        let all = ["Retry", "Continue with history", "Continue without context", "New session"];
        assert_eq!(labels, all);
        assert_eq!(choices[1]["context"], "injected");
    }
    let records = world.records(&session);
    let announced: Vec<_> =
        records.iter().filter(|record| record["kind"] == "agent.resuming").collect();
    assert_eq!(announced.len(), 3, "{announced:#?}");
    assert_eq!(announced[0]["context"], "none");
    assert_eq!(announced[2]["context"], "lost");
    let shown = world.json(&["sessions", "show", &session]);
    assert_eq!(shown["context"], "lost");
    assert_eq!(shown["choices"][0]["label"], "Retry");
    let text = world.command(&["sessions", "show", &session]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("It does not know what was said"), "{text}");
    assert!(text.contains("Continue with history"), "{text}");
}

/// A closed session can be reviewed: its files and git are read where they are.
#[test]
fn a_closed_sessions_files_and_git_can_be_read() {
    let mut world = World::new();
    let folder = world.workspace().join("reviewed");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("a.txt"), "done").unwrap();
    let session = world.quiet_session(Some(&folder));
    world.post(&format!("/api/v1/sessions/{session}/close"), &json!({})).good();
    let files = world.get(&format!("/api/v1/sessions/{session}/files")).good();
    assert_eq!(files["files"][0]["name"], "a.txt", "{files:#}");
    let status = world.get(&format!("/api/v1/sessions/{session}/git/status")).good();
    assert!(status["repository"].is_boolean(), "{status:#}");
    let outside = format!("/api/v1/sessions/{session}/files/content?path=../../secret");
    assert_eq!(world.get(&outside).code(), "path_outside");
    let missing = format!("/api/v1/sessions/{session}/files/content?path=b.txt");
    assert_eq!(world.get(&missing).code(), "not_found");
    let shells = world.post(&format!("/api/v1/sessions/{session}/shells"), &json!({}));
    assert_eq!(shells.code(), "session_closed", "nothing is run in it");
    let executions = world.get("/api/v1/executors").good();
    assert_eq!(executions["executions"], json!([]), "nothing was launched");
    std::fs::remove_dir_all(&folder).unwrap();
    let gone = world.get(&format!("/api/v1/sessions/{session}/files"));
    assert_eq!(gone.code(), "workspace_unusable");
}

/// Wants to show: a client finds every field of the contract, also where its value is null.
#[test]
fn the_status_has_every_field() {
    let mut world = World::new();
    let session = world.session();
    let status = world.status(&session);
    let has = |value: &Value, fields: &[&str]| {
        for field in fields {
            assert!(value.get(field).is_some(), "{field} is missing: {value:#}");
        }
    };
    has(
        &status,
        &[
            "session_id",
            "task_id",
            "title",
            "status",
            "state",
            "reason",
            "sentence",
            "last_outcome",
            "agent_profile_id",
            "provider",
            "working_dir",
            "worktree_id",
            "worktree_path",
            "created_at",
            "active_at",
            "last_seq",
            "run_id",
            "executor_status",
            "executor_id",
            "runtime",
            "agent_execution_id",
            "is_agent_running",
            "is_resumable",
            "needs_resume",
            "resume_reason",
            "resume_strategy",
            "context",
            "context_restored",
            "context_reason",
            "context_sentence",
            "choices",
            "resume_notices",
            "error_message",
            "error_code",
            "executor",
            "run",
            "interruption",
            "wait",
            "waits",
            "live",
        ],
    );
    has(
        &status["executor"],
        &[
            "agent_session_id",
            "resume_token",
            "executor_id",
            "task_id",
            "address",
            "pid",
            "supports_session_resume",
            "supports_workspace_only",
            "workspace",
            "worktree_id",
            "last_seen_at",
            "error_message",
        ],
    );
    assert_eq!(status["executor"]["resume_token"], status["executor"]["agent_session_id"]);
    has(&status["live"], &["at", "is_connected", "last_seen_at"]);
    world.prompt(&session, "say done");
    let status = world.when(&session, |status| status["last_outcome"] == "completed");
    has(
        &status["run"],
        &["run_id", "boot_id", "phase", "started_at", "started_seq", "ended_at", "wait"],
    );
}
