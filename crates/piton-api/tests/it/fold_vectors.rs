//! What records come to, for clients that fold them themselves: `web/client` reads these vectors and must
//! come to the same. Hand-made histories and random ones; `PITON_UPDATE=1` writes the committed file.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use piton_api::agent_view::AgentView;
use piton_api::record::{Lineage, Message};
use piton_api::status::Wait;
use piton_core::agent_view::{AgentView as CoreView, Feature};
use piton_core::id::SessionId;
use piton_core::overview::OpenWait;
use piton_core::state::{Phase, QueuedPrompt, Run};
use piton_core::{PromptContent, Record, State, conversation, fold};
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Map, Value, json};

use crate::common::history::{History, steps};

/// Random histories in the committed file, and in the one that each run of this test writes.
const COMMITTED: usize = 24;
const FRESH: usize = 200;

fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/client/test/vectors/fold.json")
}

/// Read by the tests of `web/client`, if it is there.
fn fresh() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("fold-vectors.json")
}

fn content(records: &[Record], seq: u64, field: &str) -> Option<Value> {
    records.iter().find(|record| record.seq == seq)?.content_field(field)
}

fn run_view(run: &Run) -> (Value, Value) {
    let (phase, outcome, interruption) = match run.phase {
        Phase::Open => ("open", Value::Null, Value::Null),
        Phase::Paused => ("paused", Value::Null, Value::Null),
        Phase::Dismissed => ("dismissed", Value::Null, Value::Null),
        Phase::Ended(outcome) => ("ended", json!(outcome), Value::Null),
        Phase::Interrupted { reason, was_waiting, activity } => {
            let interruption = json!({
                "run_id": run.run_id, "reason": reason.as_str(), "phase": activity,
                "was_waiting": was_waiting, "interrupted_at": run.ended_at,
            });
            ("interrupted", Value::Null, interruption)
        }
    };
    let view = json!({
        "run_id": run.run_id, "boot_id": run.boot_id, "phase": phase, "outcome": outcome,
        "started_at": run.started_at, "started_seq": run.started_seq, "ended_at": run.ended_at,
    });
    (view, interruption)
}

fn waits(session: &SessionId, records: &[Record], state: &State) -> Vec<Value> {
    let spelled = |mut open: OpenWait| {
        open.question = content(records, open.since_seq(), "question");
        let mut wait = serde_json::to_value(Wait::new(session, &open)).unwrap();
        // The server puts it together for people.
        let wait = wait.as_object_mut().unwrap();
        wait.remove("permission");
        wait.remove("session_id");
        Value::Object(wait.clone())
    };
    OpenWait::of(&state.facts).into_iter().map(spelled).collect()
}

fn queue(records: &[Record], state: &State) -> Vec<Value> {
    let spelled = |(at, queued): (usize, &QueuedPrompt)| {
        let record = records.iter().find(|record| record.seq == queued.seq).unwrap();
        let content = PromptContent::of(record, "content");
        json!({
            "message_id": queued.message_id, "run_id": queued.run_id, "position": at + 1,
            "version": queued.seq, "queued_at": queued.queued_at, "held": queued.held,
            "text": content.as_ref().map(PromptContent::text).unwrap_or_default(),
            "content": content,
        })
    };
    state.queue.iter().enumerate().map(spelled).collect()
}

fn agent(records: &[Record], state: &State) -> Value {
    let said: BTreeMap<Feature, Value> = state
        .features
        .latest
        .iter()
        .filter_map(|(feature, seq)| Some((*feature, content(records, *seq, "update")?)))
        .collect();
    let mut view = CoreView::new(&said, state.features.choices.clone());
    view.fork.clone_from(&state.features.fork);
    serde_json::to_value(AgentView::from(view)).unwrap()
}

fn view(records: &[Record]) -> Value {
    let state = fold::replay(records).unwrap();
    let info = state.info.as_ref();
    let session: SessionId = "sess_none".parse().unwrap();
    let session = info.map_or(session, |info| info.session_id.clone());
    let run = state.facts.run.as_ref();
    let live = run.filter(|run| run.is_open() && state.facts.closed.is_none());
    let mut items = conversation::build(records, live.map(|run| &run.run_id)).unwrap();
    let segments = state.turns.live_segments(state.last_seq);
    conversation::mark_abandoned(&mut items, segments.as_deref());
    let items: Vec<Message> = items.into_iter().map(Message::from).collect();
    let (run, interruption) = run.map_or((Value::Null, Value::Null), run_view);
    json!({
        "session_id": info.map(|info| &info.session_id),
        "title": info.and_then(|info| info.title.clone()),
        "task_id": info.and_then(|info| info.task_id.clone()),
        "agent_profile_id": info.and_then(|info| info.agent_profile_id.clone()),
        "graph": state.facts.graph,
        "last_seq": state.last_seq,
        "items": items,
        "run": run,
        "interruption": interruption,
        "waits": waits(&session, records, &state),
        "queue": queue(records, &state),
        "agent": agent(records, &state),
        "closed": state.facts.closed,
        "lineages": state.turns.lineages.starts().iter().map(Lineage::from).collect::<Vec<_>>(),
    })
}

fn vector(name: &str, records: &[Record]) -> Value {
    let flat: Vec<Map<String, Value>> =
        records.iter().map(|record| record.to_flat().unwrap()).collect();
    // As a client reads them.
    let read: Vec<Record> =
        flat.iter().map(|flat| Record::from_flat(flat.clone()).unwrap()).collect();
    json!({"name": name, "records": flat, "view": view(&read)})
}

fn random(count: usize, runner: &mut TestRunner) -> Vec<Value> {
    let one = |at: usize| {
        let steps = steps().new_tree(runner).unwrap().current();
        let mut history = History::new();
        for step in steps {
            history.take(step);
        }
        vector(&format!("random {at}"), &history.world.log)
    };
    (0..count).map(one).collect()
}

fn lines(name: &str, lines: &[Value]) -> Value {
    let record = |(seq, line): (u64, &Value)| {
        let mut flat = line.as_object().unwrap().clone();
        flat.insert("seq".to_owned(), seq.into());
        flat.insert("ts".to_owned(), format!("2026-02-21T10:01:{:02}.000Z", seq % 60).into());
        Record::from_flat(flat).unwrap()
    };
    let records: Vec<Record> = (1..).zip(lines).map(record).collect();
    vector(name, &records)
}

/// The histories that are written by hand, beside this file.
fn hand_made() -> Vec<Value> {
    let read: Vec<Value> = serde_json::from_str(include_str!("fold_histories.json")).unwrap();
    let made = |history: &Value| {
        lines(history["name"].as_str().unwrap(), history["records"].as_array().unwrap())
    };
    read.iter().map(made).collect()
}

/// Wants to show: the committed vectors are what this program makes of their records.
#[test]
fn the_vectors_are_as_they_are_committed() {
    if std::env::var_os("PITON_UPDATE").is_some() {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
        let mut all = hand_made();
        all.extend(random(COMMITTED, &mut TestRunner::new_with_rng(Config::default(), rng)));
        let lines: Vec<String> = all.iter().map(Value::to_string).collect();
        std::fs::write(committed(), format!("[\n{}\n]\n", lines.join(",\n"))).unwrap();
    }
    let read: Vec<Value> =
        serde_json::from_str(&std::fs::read_to_string(committed()).unwrap()).unwrap();
    assert!(read.len() > COMMITTED, "{}", read.len());
    for known in read {
        let records: Vec<Record> = known["records"]
            .as_array()
            .unwrap()
            .iter()
            .map(|flat| Record::from_flat(flat.as_object().unwrap().clone()).unwrap())
            .collect();
        assert_eq!(view(&records), known["view"], "{}", known["name"]);
    }
}

/// Writes other histories each time, for the tests of `web/client` to fold.
#[test]
fn other_histories_are_written_each_time() {
    let config = Config { failure_persistence: None, ..Config::default() };
    let all = random(FRESH, &mut TestRunner::new(config));
    assert!(all.iter().any(|vector| !vector["view"]["items"].as_array().unwrap().is_empty()));
    std::fs::create_dir_all(fresh().parent().unwrap()).unwrap();
    std::fs::write(fresh(), serde_json::to_string(&all).unwrap()).unwrap();
}
