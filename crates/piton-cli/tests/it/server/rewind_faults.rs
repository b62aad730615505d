//! Rewinds that something comes in between of: a client that hangs up, a server that is killed, prompts,
//! and people who edit files beside the agent.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::rewind::{kinds, of_kind, text, turn};
use crate::server::world::{TEST_TIMEOUT, World};

const FILES: u32 = 1_500;
const KILLS: u32 = 8;

/// Fills a folder, from a shell: what an agent does in one turn.
fn fill(word: &str) -> String {
    format!("run mkdir -p many; for n in $(seq {FILES}); do echo {word} $n > many/$n; done")
}

/// The first words of all those files.
fn words(workspace: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(workspace.join("many")).unwrap();
    let texts = entries.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    texts.map(|text| text.split(' ').next().unwrap_or_default().to_owned()).collect()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn has(world: &World, session: &str, kind: &str) -> bool {
    !of_kind(&world.records(session), kind).is_empty()
}

/// Asks for something and hangs up at once.
fn ask_and_leave(world: &World, path: &str, body: &Value) -> std::net::TcpStream {
    let (body, bearer) = (body.to_string(), format!("Bearer {}", world.token));
    world.send("POST", path, Some(body.as_bytes()), &[("authorization", &bearer)])
}

/// Wants to show: a client that hangs up after the rewind has begun changes nothing about it: files and
/// conversation go back, the log says so, and it can be undone. A prompt that comes meanwhile is queued
/// and delivered to an agent that knows nothing of what was taken back.
#[test]
fn a_rewind_does_not_end_with_its_request() {
    let mut world = World::new();
    let workspace = world.workspace();
    let session = world.session_in(&workspace);
    turn(&world, &session, &fill("one"));
    turn(&world, &session, &fill("two"));
    let path = format!("/api/v1/sessions/{session}");
    let asked = ask_and_leave(&world, &format!("{path}/rewind"), &json!({}));
    until("no intent", || has(&world, &session, "workspace.restore_started"));
    drop(asked);
    let prompted = world.post(&format!("{path}/messages"), &json!({"content": "say here"}));
    let prompted = prompted.good();
    until("no end", || has(&world, &session, "lineage.started"));
    assert_eq!(words(&workspace), BTreeSet::from(["one".to_owned()]));
    let records = world.records(&session);
    let at = |kind: &str| records.iter().rposition(|record| record["kind"] == kind).unwrap();
    let order = ["workspace.restore_started", "workspace.restored", "lineage.started"].map(at);
    assert!(order.is_sorted(), "{}", kinds(&records));
    if prompted["queued"] == true {
        assert!(at("prompt.queued") < order[1], "{}", kinds(&records));
    }
    let run = prompted["run_id"].as_str().unwrap().to_owned();
    until("not delivered", || world.said(&session, &run).contains("here"));
    let records = world.records(&session);
    let started = records
        .iter()
        .position(|record| record["kind"] == "run.started" && record["run_id"] == run.as_str());
    assert!(started > Some(order[2]), "a run began while files were restored");
    let prepared = of_kind(&records, "prompt.prepared").last().unwrap().to_string();
    assert!(prepared.contains("echo one") && !prepared.contains("echo two"), "{prepared}");
}

/// Wants to show: a server that is killed anywhere in a rewind of files and conversation leaves nothing
/// half. If the log has the intent, the next server brings both back and undo works; if not, nothing
/// was touched. (The moments of the kills are spread over one undisturbed rewind.)
#[test]
fn a_killed_rewind_is_finished_or_never_began() {
    let mut world = World::new();
    let workspace = world.workspace();
    let session = world.session_in(&workspace);
    turn(&world, &session, &fill("one"));
    turn(&world, &session, &fill("two"));
    let path = format!("/api/v1/sessions/{session}");
    let begin = Instant::now();
    world.post(&format!("{path}/rewind"), &json!({})).good();
    let whole = begin.elapsed();
    world.post(&format!("{path}/undo"), &json!({})).good();
    assert_eq!(words(&workspace), BTreeSet::from(["two".to_owned()]));
    let (mut finished, mut untouched) = (0, 0);
    for kill in 0..KILLS {
        let before = world.records(&session).len();
        let asked = ask_and_leave(&world, &format!("{path}/rewind"), &json!({}));
        std::thread::sleep(whole * (kill + 1) / (KILLS + 1));
        world.kill();
        drop(asked);
        world.start();
        let since = |world: &World| world.records(&session).split_off(before);
        let is_begun = !of_kind(&since(&world), "workspace.restore_started").is_empty();
        if !is_begun {
            assert_eq!(words(&workspace), BTreeSet::from(["two".to_owned()]), "kill {kill}");
            untouched += 1;
            continue;
        }
        until("not finished", || !of_kind(&since(&world), "lineage.started").is_empty());
        let records = since(&world);
        assert_eq!(of_kind(&records, "workspace.restored").len(), 1, "{}", kinds(&records));
        assert_eq!(words(&workspace), BTreeSet::from(["one".to_owned()]), "kill {kill}");
        let undone = world.post(&format!("{path}/undo"), &json!({})).good();
        assert_eq!(undone["files"]["changes_total"], FILES, "kill {kill}");
        assert_eq!(words(&workspace), BTreeSet::from(["two".to_owned()]), "kill {kill}");
        finished += 1;
    }
    println!("{KILLS} kills: {finished} finished, {untouched} untouched");
    assert!(finished > 0, "no kill hit a rewind");
}

/// Wants to show: what a user edits while the run is interrupted is the user's, also after the run was
/// continued; and what the agent did before the interruption is not.
#[test]
fn edits_between_interruption_and_resume_are_not_the_sessions() {
    let mut world = World::new();
    let workspace = world.workspace();
    let session = world.session_in(&workspace);
    world.prompt(&session, "run printf agent > a.txt\nwait 600000");
    until("nothing written", || text(&workspace, "a.txt").as_deref() == Some("agent"));
    let pids = world.agents(&session);
    for pid in pids {
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    world.when(&session, |status| status["run"]["phase"] == "interrupted");
    until("not saved", || {
        let records = world.records(&session);
        of_kind(&records, "checkpoint.created").len() == 2
    });
    fs::write(workspace.join("user.txt"), "a user's").unwrap();
    let path = format!("/api/v1/sessions/{session}");
    world.post(&format!("{path}/resume"), &json!({"continue": true})).good();
    until("not continued to its end", || has(&world, &session, "run.completed"));
    world.when(&session, |status| status["status"] == "idle");
    let refused = world.post(&format!("{path}/rewind"), &json!({"conversation": false}));
    assert_eq!((refused.status, refused.code()), (409, "workspace_conflict"), "{}", refused.text);
    assert!(
        refused.text.contains("user.txt") && !refused.text.contains("a.txt"),
        "{}",
        refused.text
    );
    let only = json!({"conversation": false, "paths": ["a.txt"]});
    world.post(&format!("{path}/rewind"), &only).good();
    assert_eq!(text(&workspace, "a.txt"), None);
    assert_eq!(text(&workspace, "user.txt").as_deref(), Some("a user's"));
}

/// Wants to show: what a user edits while prompts are held is the user's when they are released.
#[test]
fn edits_while_the_queue_is_held_are_not_the_sessions() {
    let mut world = World::new();
    let workspace = world.workspace();
    let session = world.session_in(&workspace);
    turn(&world, &session, "run printf one > a.txt");
    world.prompt(&session, "stream 1000 50");
    let path = format!("/api/v1/sessions/{session}");
    let queued = json!({"content": "run printf two > b.txt"});
    assert_eq!(world.post(&format!("{path}/messages"), &queued).good()["queued"], true);
    world.post(&format!("{path}/cancel"), &json!({})).good();
    until("the end is not saved", || has(&world, &session, "workspace.unchanged"));
    fs::write(workspace.join("a.txt"), "a user's").unwrap();
    world.post(&format!("{path}/queue/release"), &json!({})).good();
    until("not delivered", || text(&workspace, "b.txt").as_deref() == Some("two"));
    world.when(&session, |status| status["status"] == "idle");
    let refused = world.post(&format!("{path}/rewind"), &json!({"turns": 3}));
    assert_eq!((refused.status, refused.code()), (409, "workspace_conflict"), "{}", refused.text);
    assert!(refused.text.contains("a.txt") && !refused.text.contains("b.txt"), "{}", refused.text);
}

/// Wants to show: where the files before a turn are not known, what may be a user's is refused.
#[test]
fn an_unknown_start_of_a_turn_is_possibly_foreign() {
    let mut world = World::new();
    let workspace = world.workspace();
    let session = world.session_in(&workspace);
    turn(&world, &session, "run printf one > a.txt");
    world.kill();
    world.start_with(|command| {
        command.env("PITON_WORKSPACE_SNAPSHOTS", "off");
    });
    fs::write(workspace.join("a.txt"), "a user's").unwrap();
    turn(&world, &session, "say nothing");
    world.kill();
    world.start();
    turn(&world, &session, "run printf two > b.txt");
    let path = format!("/api/v1/sessions/{session}/rewind");
    let refused = world.post(&path, &json!({"turns": 3}));
    assert_eq!((refused.status, refused.code()), (409, "workspace_conflict"), "{}", refused.text);
    assert!(refused.text.contains("a.txt") && !refused.text.contains("b.txt"), "{}", refused.text);
}

/// Wants to show: a server that is killed right after a turn does not forget that the turn's files are
/// the session's own.
#[test]
fn a_turn_before_a_kill_is_the_sessions() {
    let mut world = World::new();
    let workspace = world.workspace();
    let session = world.session_in(&workspace);
    turn(&world, &session, "say before");
    let run = world.prompt(&session, "run printf own > a.txt");
    until("no end", || {
        let records = world.records(&session);
        records.iter().any(|r| r["kind"] == "run.completed" && r["run_id"] == run.as_str())
    });
    world.kill();
    world.start();
    world.post(&format!("/api/v1/sessions/{session}/rewind"), &json!({})).good();
    assert_eq!(text(&workspace, "a.txt"), None);
}

/// Wants to show: undone, the agent has its own conversation again.
#[test]
fn an_undone_rewind_gives_the_agent_its_conversation_back() {
    let mut world = World::new();
    let workspace = world.workspace();
    let session = world.session_in(&workspace);
    turn(&world, &session, "say first");
    turn(&world, &session, "say second");
    let path = format!("/api/v1/sessions/{session}");
    let gone = world.post(&format!("{path}/rewind"), &json!({})).good();
    assert_eq!(gone["conversation"]["context"], "injected", "{gone}");
    let undone = world.post(&format!("{path}/undo"), &json!({})).good();
    assert_eq!(undone["conversation"]["context"], "native", "{undone}");
    turn(&world, &session, "say third");
    let records = world.records(&session);
    let resumed = of_kind(&records, "agent.resuming").last().unwrap().to_string();
    assert!(resumed.contains("\"native\""), "{resumed} {}", kinds(&records));
    let prepared = of_kind(&records, "prompt.prepared").len();
    assert_eq!(prepared, 0, "{}", kinds(&records));
}

/// Wants to show: a redaction without a server removes the snapshots, too: they are not masked.
#[test]
fn a_redaction_without_a_server_removes_the_snapshots() {
    let mut world = World::new();
    let workspace = world.workspace();
    let session = world.session_in(&workspace);
    turn(&world, &session, "run printf correct-horse > a.txt");
    world.end();
    assert!(world.data().join("snapshots").join(&session).exists());
    world.json(&["sessions", "redact", &session, "--pattern", "correct-horse", "--yes"]);
    assert!(!world.data().join("snapshots").join(&session).exists());
}
