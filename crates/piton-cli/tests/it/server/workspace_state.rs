//! What the workspace says of itself: after an interruption, before a resume, and after a rewind that a
//! crash cut off.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::rewind::{of_kind, text, turn};
use crate::server::world::{TEST_TIMEOUT, World};

/// So many that a kill can come before the last one is written.
const FILES: u32 = 1_500;

fn git(folder: &Path, args: &[&str]) {
    let mut command = Command::new("git");
    command.current_dir(folder).env("GIT_CONFIG_GLOBAL", "/dev/null");
    command.args(["-c", "user.name=A", "-c", "user.email=a@example.org"]).args(args);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn repository(world: &World) -> std::path::PathBuf {
    let workspace = world.workspace();
    git(&workspace, &["init", "-q", "-b", "main"]);
    fs::write(workspace.join("a.txt"), "one\n").unwrap();
    git(&workspace, &["add", "."]);
    git(&workspace, &["commit", "-qm", "first"]);
    workspace
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn fill(word: &str) -> String {
    format!("run mkdir -p many; for n in $(seq {FILES}); do echo {word} $n > many/$n; done")
}

/// Kills the server while a rewind writes files, edits one of them and starts the server again. Whether
/// the kill came in time.
fn edit_in_a_killed_rewind(world: &mut World, session: &str, body: &Value) -> bool {
    let workspace = world.workspace();
    let journal = world.data().join("snapshots").join(session).join("restore.journal");
    let before = world.records(session).len();
    let (asked, bearer) = (body.to_string(), format!("Bearer {}", world.token));
    let path = format!("/api/v1/sessions/{session}/rewind");
    let asked = world.send("POST", &path, Some(asked.as_bytes()), &[("authorization", &bearer)]);
    until("no rewind", || {
        journal.exists() || !of_kind(&world.records(session), "workspace.restored").is_empty()
    });
    world.kill();
    drop(asked);
    let is_in_time =
        fs::read_to_string(&journal).is_ok_and(|journal| journal.contains("\"applied\":false"));
    if is_in_time {
        fs::write(workspace.join("many/7"), "edited after the crash").unwrap();
        fs::write(workspace.join("notes.txt"), "new after the crash").unwrap();
    }
    world.start();
    until("not finished", || {
        !of_kind(&world.records(session).split_off(before), "workspace.restored").is_empty()
    });
    is_in_time
}

/// Wants to show: what a user edits after a crash in the middle of a rewind is not lost when the rewind
/// is finished. A checkpoint has it, the answers name it, and a rewind to it brings it back.
#[test]
fn edits_after_a_crash_in_a_rewind_can_be_brought_back() {
    for body in [json!({}), json!({"conversation": false})] {
        let mut world = World::new();
        let workspace = world.workspace();
        let session = world.session_in(&workspace);
        turn(&world, &session, &fill("one"));
        let path = format!("/api/v1/sessions/{session}");
        let mut tries = 0;
        loop {
            turn(&world, &session, &fill("two"));
            if edit_in_a_killed_rewind(&mut world, &session, &body) {
                break;
            }
            tries += 1;
            assert!(tries < 10, "no kill came before the rewind's end");
        }
        assert!(text(&workspace, "many/7").unwrap().starts_with("one"), "{body}");
        let listed = world.get(&format!("{path}/turn-checkpoints")).good();
        let kept = listed["kept_checkpoint"].as_str().expect("a checkpoint").to_owned();
        let known = listed["checkpoints"].as_array().unwrap();
        assert!(known.iter().any(|one| one["checkpoint_id"] == kept.as_str()), "{listed:#}");
        let undo = world.post(&format!("{path}/undo"), &json!({"dry_run": true})).good();
        assert_eq!(undo["files"]["kept_checkpoint"], kept.as_str(), "{body}");
        let printed = world.command(&["sessions", "undo", &session, "--dry-run"]).output().unwrap();
        let printed = String::from_utf8_lossy(&printed.stderr).into_owned()
            + &String::from_utf8_lossy(&printed.stdout);
        assert!(printed.contains(&format!("--to {kept} --files")), "{printed}");

        world.post(&format!("{path}/undo"), &json!({})).good();
        assert!(text(&workspace, "many/7").unwrap().starts_with("two"), "{body}");
        let back =
            json!({"checkpoint": kept, "conversation": false, "paths": ["many/7", "notes.txt"]});
        world.post(&format!("{path}/rewind"), &back).good();
        let edited = text(&workspace, "many/7");
        assert_eq!(edited.as_deref(), Some("edited after the crash"), "{body}");
        let new = text(&workspace, "notes.txt");
        assert_eq!(new.as_deref(), Some("new after the crash"), "{body}");
    }
}

/// Wants to show: what a snapshot does not hold is named in the answers of a rewind and of a comparison.
#[test]
fn what_no_snapshot_holds_is_named() {
    let mut world = World::new();
    let workspace = world.workspace();
    let session = world.session_in(&workspace);
    fs::create_dir(workspace.join("vendored")).unwrap();
    git(&workspace.join("vendored"), &["init", "-q"]);
    turn(&world, &session, "run printf one > a.txt");
    let path = format!("/api/v1/sessions/{session}");
    let rewound = world.post(&format!("{path}/rewind"), &json!({"dry_run": true})).good();
    let expected = json!([{"path": "vendored", "reason": "nested_repository"}]);
    assert_eq!(rewound["files"]["skipped"], expected, "{rewound:#}");
    assert_eq!(rewound["files"]["skipped_total"], 1);
    let listed = world.get(&format!("{path}/turn-checkpoints")).good();
    let newest = listed["checkpoints"][0]["checkpoint_id"].as_str().unwrap();
    let diff = world.get(&format!("{path}/diff?from={newest}")).good();
    assert_eq!((&diff["skipped"], &diff["skipped_total"]), (&expected, &json!(1)), "{diff:#}");
    let printed = world.command(&["sessions", "rewind", &session, "--dry-run"]).output().unwrap();
    let printed = String::from_utf8_lossy(&printed.stderr).into_owned()
        + &String::from_utf8_lossy(&printed.stdout);
    assert!(printed.contains("vendored (a repository of its own)"), "{printed}");
}

/// Wants to show: one request says what an agent is told after an interruption.
#[test]
fn the_truth_is_one_answer() {
    let mut world = World::new();
    let workspace = repository(&world);
    let session = world.quiet_session(Some(&workspace));
    fs::write(workspace.join("a.txt"), "two\n").unwrap();
    git(&workspace, &["add", "."]);
    fs::write(workspace.join("a.txt"), "three\n").unwrap();
    for n in 0..57 {
        fs::write(workspace.join(format!("new-{n:02}")), "").unwrap();
    }
    let truth = world.get(&format!("/api/v1/sessions/{session}/workspace/truth")).good();
    assert_eq!((&truth["repository"], &truth["branch"]), (&json!(true), &json!("main")));
    assert_eq!(truth["head"].as_str().unwrap().len(), 40);
    assert_eq!(truth["changed"].as_array().unwrap().len(), 50);
    assert_eq!(truth["changed"][0], json!({"status": "MM", "path": "a.txt"}));
    assert_eq!(truth["more"], 8);
    assert_eq!(truth["stat"], json!({"files": 1, "added": 1, "removed": 1}));
    assert_eq!(truth["truncated"], false);
    world.post(&format!("/api/v1/sessions/{session}/close"), &json!({})).good();
    let closed = world.get(&format!("/api/v1/sessions/{session}/workspace/truth")).good();
    assert_eq!(closed, truth, "of a closed session it is read where it is");
}

/// The text that the agent was given with the prompt after its last interruption.
fn summary(world: &World, session: &str) -> String {
    let records = world.records(session);
    let prepared = of_kind(&records, "prompt.prepared");
    prepared.last().unwrap()["prompt"].as_str().unwrap().to_owned()
}

fn interrupted(world: &World, session: &str, prompt: &str) {
    world.prompt(session, prompt);
    world.when(session, |status| status["status"] == "interrupted_startup");
}

fn resume(world: &World, session: &str) {
    let resumed =
        world.post(&format!("/api/v1/sessions/{session}/resume"), &json!({"continue": true}));
    resumed.good();
    world.when(session, |status| status["status"] == "idle");
}

/// Wants to show: an agent whose run is continued is told what its phase asks for, as the log has it;
/// and why the workspace says nothing, if it does not.
#[test]
fn the_summary_has_the_phase_of_the_run_and_says_what_is_not_known() {
    let mut world = World::new();
    let plain = world.workspace();
    let session = world.session_in(&plain);
    interrupted(&world, &session, "say before\ncrash\nsay after");
    resume(&world, &session);
    let text = summary(&world, &session);
    let unknown = "Workspace state at recovery: unknown (the folder is in no git repository).\n";
    assert!(text.contains(unknown), "{text}");
    assert!(text.contains("\nResume your response.\n"), "{text}");
}

/// Wants to show: before an interrupted run is resumed its user learns that the branch was switched, and
/// can resume it all the same; a missing workspace refuses, and is named, too.
#[test]
fn a_workspace_that_changed_since_the_run_began_is_mentioned_before_a_resume() {
    let mut world = World::new();
    let workspace = repository(&world);
    let session = world.session_in(&workspace);
    interrupted(&world, &session, "say before\ncrash\nsay after");
    let notices = |world: &World| {
        let notices = world.status(&session)["resume_notices"].as_array().unwrap().clone();
        let reasons = notices.iter().map(|notice| notice["reason"].as_str().unwrap().to_owned());
        reasons.collect::<Vec<_>>()
    };
    assert!(notices(&world).is_empty());
    git(&workspace, &["checkout", "-q", "-b", "other"]);
    assert_eq!(notices(&world), ["branch_changed"]);
    let sentence = "The workspace is on another branch than when the run was started.";
    let shown = world.command(&["sessions", "show", &session]).output().unwrap();
    let shown =
        String::from_utf8(shown.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains(sentence), "{shown}");

    fs::rename(workspace.join(".git"), workspace.join("../elsewhere")).unwrap();
    git(&workspace, &["init", "-q", "-b", "main"]);
    assert!(notices(&world).is_empty(), "the same folder has the same repository");
    fs::remove_dir_all(workspace.join(".git")).unwrap();
    assert_eq!(notices(&world), ["repository_changed"]);
    let away = workspace.with_file_name("away");
    fs::rename(&workspace, &away).unwrap();
    assert_eq!(notices(&world), ["workspace_missing"]);
    fs::rename(&away, &workspace).unwrap();
    fs::rename(workspace.join("../elsewhere"), workspace.join(".git")).unwrap();
    assert_eq!(notices(&world), ["branch_changed"]);
    let resumed = world.command(&["sessions", "resume", &session, "--continue"]).output().unwrap();
    let said = String::from_utf8(resumed.stderr).unwrap();
    assert!(resumed.status.success() && said.contains(sentence), "{said}");
    world.when(&session, |status| status["status"] == "idle");
    assert!(notices(&world).is_empty(), "nothing is to be resumed");
}

/// Wants to show: a session without a folder of its user's works in one that Piton made. If that is gone,
/// the agent does not go on as if its files were there: it starts fresh, and the log says why.
#[test]
fn a_workspace_of_pitons_that_is_gone_means_a_fresh_start() {
    let mut world = World::new();
    let session = world.session();
    interrupted(&world, &session, "run printf one > a.txt\ncrash\nsay after");
    let folder = world.data().join("workspaces").join(&session);
    assert_eq!(text(&folder, "a.txt").as_deref(), Some("one"));
    world.kill_agentctls();
    // The server has noticed: a resume right after a kill may find the executor in the middle of its end.
    world.when(&session, |status| status["executor_status"] == "stopped");
    fs::remove_dir_all(&folder).unwrap();
    let notices = &world.status(&session)["resume_notices"];
    assert_eq!(notices[0]["reason"], "workspace_recreated", "{notices:#}");
    assert_eq!(notices[0]["sentence"], "The workspace is gone; starting fresh.");
    resume(&world, &session);
    let records = world.records(&session);
    assert_eq!(of_kind(&records, "workspace.recreated").len(), 1, "it is said once");
    let status = world.status(&session);
    assert_ne!(status["context"], "native", "{status:#}");
    assert_eq!(status["context_reason"], "workspace_recreated", "{status:#}");
    assert!(folder.is_dir() && text(&folder, "a.txt").is_none());
}

/// Wants to show: a snapshot that was not complete when the prompt was delivered is not the state before
/// the turn: a rewind of files to it is refused, and names the checkpoint before it.
#[test]
fn a_late_snapshot_is_refused_and_the_one_before_it_named() {
    let mut world = World::not_started();
    world.start_with(|command| {
        command.env("PITON_WORKSPACE_SNAPSHOT_TIMEOUT", "1s");
    });
    let workspace = world.workspace();
    let session = world.session_in(&workspace);
    let checkpoints = |world: &World| {
        let listed = world.get(&format!("/api/v1/sessions/{session}/turn-checkpoints")).good();
        listed["checkpoints"].as_array().unwrap().clone()
    };
    turn(&world, &session, "run printf one > a.txt");
    let previous = checkpoints(&world)[0]["checkpoint_id"].as_str().unwrap().to_owned();
    // Held, no snapshot can be taken.
    let locks = fs::read_dir(world.data().join("snapshots/locks")).unwrap();
    let [lock] = &locks.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()[..] else {
        panic!("one workspace has one lock");
    };
    let lock = fs::File::options().write(true).open(lock).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    world.prompt(&session, "say two");
    until("not late", || !of_kind(&world.records(&session), "workspace.snapshot_late").is_empty());
    world.when(&session, |status| status["status"] == "idle");
    drop(lock);
    let late = &checkpoints(&world)[0];
    assert_eq!((&late["snapshot_late"], &late["has_files"]), (&json!(true), &json!(false)));
    let late = late["checkpoint_id"].as_str().unwrap();
    let body = json!({"checkpoint": late, "conversation": false});
    let refused = world.post(&format!("/api/v1/sessions/{session}/rewind"), &body);
    assert_eq!((refused.status, refused.code()), (404, "snapshot_not_found"), "{}", refused.text);
    assert!(refused.text.contains(&previous), "{}", refused.text);
    assert_eq!(text(&workspace, "a.txt").as_deref(), Some("one"));
}
