//! Checkpoints of turns and the way back to them, with the real binary and the built-in agent.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use crate::server::world::{TEST_TIMEOUT, World};

/// A prompt, and waits until its turn has ended and its files are saved.
pub(super) fn turn(world: &World, session: &str, prompt: &str) {
    let run = world.prompt(session, prompt);
    world.when(session, |status| status["status"] == "idle");
    // What an agent changed is in the log a moment after its turn.
    let until = Instant::now() + TEST_TIMEOUT;
    while prompt.starts_with("run ") || prompt.starts_with("write ") {
        let records = world.records(session);
        let is_saved = records.iter().any(|record| {
            record["kind"] == "checkpoint.created"
                && record["checkpoint_type"] == "turn_complete"
                && record["turn"]["run_id"] == run.as_str()
        });
        if is_saved {
            break;
        }
        assert!(Instant::now() < until, "{prompt}: {}", kinds(&records));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

pub(super) fn kinds(records: &[Value]) -> String {
    records.iter().map(|record| record["kind"].to_string()).collect::<Vec<_>>().join(" ")
}

pub(super) fn text(workspace: &Path, name: &str) -> Option<String> {
    fs::read_to_string(workspace.join(name)).ok()
}

pub(super) fn of_kind<'a>(records: &'a [Value], kind: &str) -> Vec<&'a Value> {
    records.iter().filter(|record| record["kind"] == kind).collect()
}

/// Wants to show: shell edits of two turns go back, files and conversation; the user's repository is
/// byte for byte as it was; undo brings everything back.
#[test]
fn two_turns_go_back_and_come_back() {
    let mut world = World::new();
    let workspace = world.workspace();
    let git = |arguments: &[&str]| {
        let done = Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@b"])
            .args(arguments)
            .current_dir(&workspace)
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    git(&["init", "-q"]);
    fs::write(workspace.join("kept.txt"), "kept").unwrap();
    git(&["add", "."]);
    git(&["commit", "-qm", "first"]);
    let session = world.session_in(&workspace);
    let seen = || (git(&["count-objects", "-v"]), git(&["log", "--all", "--oneline"]));
    let before = seen();
    let index = fs::read(workspace.join(".git/index")).unwrap();

    turn(&world, &session, "run printf one > a.txt");
    turn(&world, &session, "run printf two > a.txt; printf new > b.txt");
    turn(&world, &session, "run rm kept.txt; printf three > a.txt");
    let listed = world.json(&["sessions", "checkpoints", &session]);
    assert_eq!(listed["checkpoints"].as_array().unwrap().len(), 6, "{listed}");

    let arguments = ["sessions", "rewind", &session, "--turns", "2", "--dry-run"];
    let dry = world.json(&arguments);
    let changes = json!([
        {"path": "b.txt", "change": "removed"},
        {"path": "a.txt", "change": "modified"},
        {"path": "kept.txt", "change": "added"},
    ]);
    assert_eq!(dry["files"]["changes"], changes, "{dry}");
    assert_eq!(text(&workspace, "a.txt").as_deref(), Some("three"));

    let done = world.json(&["sessions", "rewind", &session, "--turns", "2"]);
    assert_eq!(done["conversation"]["context"], "injected", "{done}");
    assert_eq!(text(&workspace, "a.txt").as_deref(), Some("one"));
    assert_eq!(text(&workspace, "b.txt"), None);
    assert_eq!(text(&workspace, "kept.txt").as_deref(), Some("kept"));
    let messages = world.get(&format!("/api/v1/sessions/{session}/messages")).good().to_string();
    assert!(messages.contains("printf one") && !messages.contains("printf two"), "{messages}");
    assert!(kinds(&world.records(&session)).contains("lineage.started"));

    let undone = world.json(&["sessions", "undo", &session]);
    assert_eq!(undone["files"]["changes_total"], 3, "{undone}");
    assert_eq!(text(&workspace, "a.txt").as_deref(), Some("three"));
    assert_eq!(text(&workspace, "kept.txt"), None);
    let messages = world.get(&format!("/api/v1/sessions/{session}/messages")).good().to_string();
    assert!(messages.contains("printf three"), "{messages}");
    // Again: the rewind is there again. Then the agent is given what is before it, and nothing else.
    world.json(&["sessions", "undo", &session]);
    assert_eq!(text(&workspace, "a.txt").as_deref(), Some("one"));
    turn(&world, &session, "say here");
    let records = world.records(&session);
    let prepared = of_kind(&records, "prompt.prepared");
    let prepared = prepared.last().expect("nothing was prepared").to_string();
    assert!(prepared.contains("printf one") && !prepared.contains("printf two"), "{prepared}");

    assert_eq!(seen(), before);
    assert_eq!(fs::read(workspace.join(".git/index")).unwrap(), index);
    git(&["fsck", "--strict"]);
}

/// Wants to show: what someone else changed, between turns or since the last one, is refused and named;
/// forced, it is overwritten and comes back with undo.
#[test]
fn changes_of_others_are_refused_unless_forced() {
    let mut world = World::new();
    let workspace = world.workspace();
    let session = world.session_in(&workspace);
    turn(&world, &session, "run printf one > a.txt; printf mine > b.txt");
    fs::write(workspace.join("b.txt"), "a user's").unwrap();
    turn(&world, &session, "run printf two > a.txt");
    let path = format!("/api/v1/sessions/{session}/rewind");
    let refused = world.post(&path, &json!({"turns": 2}));
    assert_eq!((refused.status, refused.code()), (409, "workspace_conflict"), "{}", refused.text);
    assert!(refused.text.contains("b.txt"), "{}", refused.text);
    // The newest turn changed nothing of it.
    world.post(&path, &json!({"turns": 1})).good();
    assert_eq!(text(&workspace, "a.txt").as_deref(), Some("one"));
    assert_eq!(text(&workspace, "b.txt").as_deref(), Some("a user's"));
    fs::write(workspace.join("a.txt"), "edited since").unwrap();
    let refused = world.post(&path, &json!({"turns": 1}));
    assert_eq!((refused.status, refused.code()), (409, "workspace_conflict"), "{}", refused.text);
    let forced = world.post(&path, &json!({"turns": 1, "force": true, "conversation": false}));
    assert_eq!(forced.good()["files"]["changes_total"], 2);
    assert_eq!((text(&workspace, "a.txt"), text(&workspace, "b.txt")), (None, None));
    world.post(&format!("/api/v1/sessions/{session}/undo"), &json!({})).good();
    assert_eq!(text(&workspace, "a.txt").as_deref(), Some("edited since"));
    assert_eq!(text(&workspace, "b.txt").as_deref(), Some("a user's"));
}

/// Wants to show: an open run refuses a rewind, and `cancel` ends it first; paths outside and
/// checkpoints that are not there are refused.
#[test]
fn an_open_run_and_bad_names_are_refused() {
    let mut world = World::new();
    let workspace = world.workspace();
    let session = world.session_in(&workspace);
    turn(&world, &session, "run printf one > a.txt");
    let path = format!("/api/v1/sessions/{session}/rewind");
    let refused = world.post(&path, &json!({"turns": 9}));
    assert_eq!((refused.status, refused.code()), (404, "checkpoint_not_found"));
    let refused = world.post(&path, &json!({"paths": ["../out"]}));
    assert_eq!((refused.status, refused.code()), (400, "path_outside"));
    let refused = world.post(&format!("/api/v1/sessions/{session}/undo"), &json!({}));
    assert_eq!((refused.status, refused.code()), (400, "request_invalid"));
    world.prompt(&session, "run printf two > a.txt\nstream 1000 50");
    let until = Instant::now() + TEST_TIMEOUT;
    while text(&workspace, "a.txt").as_deref() != Some("two") {
        assert!(Instant::now() < until);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let refused = world.post(&path, &json!({}));
    assert_eq!((refused.status, refused.code()), (409, "run_in_progress"));
    world.post(&path, &json!({"cancel": true})).good();
    assert_eq!(text(&workspace, "a.txt").as_deref(), Some("one"));
    // Whether the agent was started again or not: it takes prompts.
    turn(&world, &session, "say alive");
}

/// Wants to show: snapshots can be switched off, and go with the session.
#[test]
fn snapshots_can_be_off_and_go_with_the_session() {
    let mut world = World::not_started();
    world.start_with(|command| {
        command.env("PITON_WORKSPACE_SNAPSHOTS", "off");
    });
    let workspace = world.workspace();
    let session = world.session_in(&workspace);
    world.prompt(&session, "run printf one > a.txt");
    world.when(&session, |status| status["last_outcome"] == "completed");
    let path = format!("/api/v1/sessions/{session}");
    let refused = world.post(&format!("{path}/rewind"), &json!({"conversation": false}));
    assert_eq!((refused.status, refused.code()), (404, "snapshot_not_found"), "{}", refused.text);
    assert!(!world.data().join("snapshots").join(&session).exists());
    world.kill();
    world.start();
    turn(&world, &session, "run printf two > a.txt");
    let folder = world.data().join("snapshots").join(&session);
    assert!(folder.exists());
    let pack = fs::read(folder.join("pack")).unwrap();
    assert!(!pack.windows(3).any(|part| part == b"two"), "not encrypted");
    world.post(&format!("{path}/close"), &json!({})).good();
    world.when(&session, |status| status["executor_status"] != "ready");
    world.json(&["sessions", "delete", &session, "--yes"]);
    assert!(!folder.exists());
}

/// The checkpoints of a session, oldest first: their ids and types.
fn checkpoints(world: &World, session: &str) -> Vec<(String, String)> {
    let records = world.records(session);
    let text = |record: &Value, field: &str| record[field].as_str().unwrap().to_owned();
    let created = of_kind(&records, "checkpoint.created");
    let created = created.iter();
    created.map(|c| (text(c, "checkpoint_id"), text(c, "checkpoint_type"))).collect()
}

/// Wants to show: where a power failure took away the snapshot before a turn, which is flushed after
/// the prompt's delivery, a rewind to it changes nothing and names the checkpoint before it; a rewind
/// to that one takes what may be of others for theirs.
#[test]
fn a_snapshot_that_a_power_failure_took_away_is_refused_and_named() {
    let mut world = World::new();
    let workspace = world.workspace();
    let session = world.session_in(&workspace);
    turn(&world, &session, "run printf one > a.txt");
    let folder = world.data().join("snapshots").join(&session);
    let flushed = fs::metadata(folder.join("pack")).unwrap().len();
    fs::write(workspace.join("b.txt"), "a user's").unwrap();
    turn(&world, &session, "say two");
    let known = checkpoints(&world, &session);
    let types: Vec<&str> = known.iter().map(|(_, kind)| kind.as_str()).collect();
    assert_eq!(types, ["turn_start", "turn_complete", "turn_start"], "{known:?}");
    let ((previous, _), (lost, _)) = (&known[1], &known[2]);

    world.kill();
    world.kill_agentctls();
    let pack = fs::File::options().write(true).open(folder.join("pack")).unwrap();
    assert!(pack.metadata().unwrap().len() > flushed, "the snapshot has something of its own");
    pack.set_len(flushed).unwrap();
    // They are written after the flush that there was none of.
    for cache in ["pack.index", "stats"] {
        fs::remove_file(folder.join(cache)).unwrap();
    }
    fs::write(workspace.join("b.txt"), "edited since").unwrap();
    world.start();

    let path = format!("/api/v1/sessions/{session}/rewind");
    let to = |checkpoint: &str, force: bool| json!({"checkpoint": checkpoint, "conversation": false, "force": force});
    let refused = world.post(&path, &to(lost, true));
    assert_eq!((refused.status, refused.code()), (404, "snapshot_not_found"), "{}", refused.text);
    assert!(refused.text.contains(previous.as_str()), "{}", refused.text);
    assert_eq!(text(&workspace, "b.txt").as_deref(), Some("edited since"));
    let refused = world.post(&path, &to(previous, false));
    assert_eq!((refused.status, refused.code()), (409, "workspace_conflict"), "{}", refused.text);
    assert!(refused.text.contains("b.txt"), "{}", refused.text);
    world.post(&path, &to(previous, true)).good();
    assert_eq!(text(&workspace, "a.txt").as_deref(), Some("one"));
    assert_eq!(text(&workspace, "b.txt"), None);
}
