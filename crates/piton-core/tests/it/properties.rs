//! What holds of every history, however senseless.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::history::{History, json, steps};
use crate::common::{close, id, start};
use piton_core::Reason;
use piton_core::decide::{Command, Verdict, decide};
use piton_core::event::{self, Event, Outcome};
use piton_core::id::{RunId, TokenId};
use piton_core::limits::{EFFECTS_PENDING_MAX, WAITS_OPEN_MAX};
use piton_core::record::{Content, NewRecord, Record};
use piton_core::state::{Phase, Run, State};
use piton_core::status::{self, Name};
use piton_core::token::{self, Entry};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use serde_json::{Map, Value};

fn event_of(record: &Record) -> Event {
    record.event().expect("our own records are readable")
}

/// A snapshot, written and read again.
fn snapshot(state: &State) -> State {
    let text = serde_json::to_string(state).expect("a state can be written");
    serde_json::from_str(&text).expect("a state can be read")
}

/// Tokens: the index and the state agree, and a wait has at most one that is good.
fn check_tokens(state: &State, index: &BTreeMap<TokenId, Entry>) -> Result<(), TestCaseError> {
    let good = index.values().filter(|entry| entry.state == token::State::Active);
    let good: BTreeSet<_> = good.map(|entry| &entry.token_id).collect();
    prop_assert_eq!(&good, &state.tokens.keys().collect::<BTreeSet<_>>());
    let mut scopes = BTreeSet::new();
    for token in state.tokens.values() {
        prop_assert!(scopes.insert((&token.run_id, &token.wait_id)), "two tokens for {token:?}");
        let run = state.facts.run.as_ref().filter(|run| run.run_id == token.run_id);
        let run = run.expect("a good token's run is the current one");
        let fits = match &token.wait_id {
            Some(wait_id) => run.waits.contains_key(wait_id),
            None => matches!(run.phase, Phase::Interrupted { .. }),
        };
        prop_assert!(fits, "{token:?} is good and its purpose is gone");
    }
    Ok(())
}

fn check_bounds(state: &State) -> Result<(), TestCaseError> {
    let waits = state.facts.run.as_ref().map_or(0, |run| run.waits.len());
    prop_assert!(waits <= WAITS_OPEN_MAX);
    prop_assert!(state.tokens.len() <= waits + 1);
    prop_assert!(state.pending.len() <= EFFECTS_PENDING_MAX + WAITS_OPEN_MAX + 2);
    // The generator has two names each for messages and calls: nothing else may be left behind.
    prop_assert!(state.messages.len() <= 2);
    prop_assert!(state.calls.len() <= 2);
    Ok(())
}

/// Every status has a reason of the list and one sentence, and the parts do not contradict.
fn check_status(history: &History) -> Result<(), TestCaseError> {
    let status = history.world.status();
    let sentence = status.sentence();
    prop_assert!(sentence.ends_with('.') && sentence.len() > 10, "{status:?}");
    prop_assert!(Name::ALL.contains(&status.name) && Reason::ALL.contains(&status.reason));
    prop_assert!(status.name != Name::Waiting || status.wait.is_some(), "{status:?}");
    let facts = &history.world.state.facts;
    let unfinished = facts.run.as_ref().is_some_and(Run::is_unfinished);
    prop_assert!(facts.closed.is_none() || !unfinished, "closed with {:?}", facts.run);
    Ok(())
}

/// Nothing happens twice: a token is used once, for the record that it names, and a run is
/// interrupted once per life.
fn check_log(log: &[Record]) -> Result<(), TestCaseError> {
    let mut used = BTreeSet::new();
    let mut interrupted: BTreeSet<RunId> = BTreeSet::new();
    // Queued and neither delivered nor removed.
    let mut queued = BTreeSet::new();
    let mut delivered = BTreeSet::new();
    for (position, record) in log.iter().enumerate() {
        prop_assert_eq!(record.seq, position as u64 + 1);
        match event_of(record) {
            Event::TokenConsumed(e) => {
                prop_assert!(used.insert(e.token_id.clone()), "{record:?} is a second use");
                let result = usize::try_from(e.result_seq).ok().and_then(|seq| log.get(seq - 1));
                match result.map(event_of) {
                    Some(Event::RunResumed(resumed)) => prop_assert_eq!(
                        (resumed.resume_token_id, resumed.run_id),
                        (Some(e.token_id), e.run_id)
                    ),
                    other => prop_assert!(false, "{record:?} names {other:?}"),
                }
            }
            Event::PromptQueued(e) => {
                prop_assert!(queued.insert(e.message_id), "{record:?} is queued twice");
            }
            Event::PromptRemoved(e) => {
                prop_assert!(queued.remove(&e.message_id), "{record:?} was not queued");
            }
            Event::MessageUser(e) if e.message_id.as_str().starts_with("msg_q") => {
                queued.remove(&e.message_id);
                // Under its name it may be said again once the log has forgotten it.
                delivered.insert(e.message_id);
            }
            Event::RunInterrupted(e) => {
                prop_assert!(interrupted.insert(e.run_id), "{record:?} is a second interruption");
            }
            Event::RunStarted(e) => {
                interrupted.remove(&e.run_id);
            }
            Event::RunResumed(e) => {
                interrupted.remove(&e.run_id);
            }
            Event::RunReattached(e) => {
                interrupted.remove(&e.run_id);
            }
            _ => {}
        }
    }
    Ok(())
}

proptest! {
    /// After every step: the state is bounded, tokens are in order, the status explains itself,
    /// and a decision has records exactly if it changes something.
    #[test]
    fn every_history_keeps_its_promises(steps in steps()) {
        let mut history = History::new();
        let mut index: BTreeMap<TokenId, Entry> = BTreeMap::new();
        for step in steps {
            let before = history.world.clone();
            let decided = history.take(step.clone());
            let world = &history.world;
            match decided {
                None | Some(Err(_)) => {
                    prop_assert_eq!(&world.state, &before.state);
                    prop_assert_eq!(world.log.len(), before.log.len());
                }
                Some(Ok(decision)) => {
                    let changes = matches!(
                        decision.outcome,
                        Verdict::Done
                            | Verdict::Asked
                            | Verdict::Resumed { .. }
                            | Verdict::Queued { .. }
                    );
                    prop_assert_eq!(changes, !decision.records.is_empty(), "{:?}", &step);
                    if let Verdict::Resumed { result_seq } | Verdict::Replayed { result_seq } =
                        decision.outcome
                    {
                        let result = world.log.iter().find(|record| record.seq == result_seq);
                        prop_assert_eq!(result.map(|record| &*record.kind), Some("run.resumed"));
                    }
                }
            }
            for record in &world.log[before.log.len()..] {
                let event = event_of(record);
                if let Some(subject) = token::subject(&event) {
                    let entry = token::transition(index.remove(subject), record.seq, &event);
                    index.extend(entry.map(|entry| (subject.clone(), entry)));
                }
                if let Event::StatusDerived(e) = event {
                    let facts = &world.state.facts;
                    let status = status::derive(facts, &BTreeSet::new(), world.now);
                    prop_assert_eq!(e.status, status.name.as_str());
                    prop_assert_eq!(e.reason, Some(status.reason));
                }
            }
            check_tokens(&world.state, &index)?;
            check_bounds(&world.state)?;
            check_status(&history)?;
        }
        check_log(&history.world.log)?;
    }

    /// Law 1: what is known while it happens is what the log's bytes say, and a snapshot at any
    /// point with the rest of the log is as good as the whole.
    #[test]
    fn replay_of_all_is_snapshot_plus_rest(steps in steps()) {
        let mut history = History::new();
        for step in steps {
            history.take(step);
        }
        let (log, live) = (&history.world.log, &history.world.state);
        let mut prefix = State::default();
        for cut in 0..=log.len() {
            let mut state = snapshot(&prefix);
            prop_assert_eq!(&state, &prefix, "a snapshot at {} changes the state", cut);
            for record in &log[cut..] {
                state.apply_record(record).expect("readable");
            }
            prop_assert_eq!(&state, live, "snapshot at {} and the rest", cut);
            if let Some(record) = log.get(cut) {
                prefix.apply_record(record).expect("readable");
            }
        }
    }

    /// Records out of order, twice, missing, and of unknown kinds: the fold makes something of
    /// them, the status explains it, and decisions on it do not panic.
    #[test]
    fn garbled_logs_never_panic(
        steps in steps(),
        picks in prop::collection::vec((any::<prop::sample::Index>(), 0..20_u8), 0..80),
        now in any::<i64>(),
    ) {
        let mut history = History::new();
        for step in steps {
            history.take(step);
        }
        let mut log = history.world.log.clone();
        let now = crate::common::at(now);
        let unknown = |critical: bool| {
            let header = format!("{{\"critical\":{critical},\"x\":[1]}}");
            NewRecord::from_bytes(now, "of.tomorrow", header.as_bytes(), None).expect("parsable").at(1)
        };
        log.push(unknown(false));
        let mut state = State::default();
        let mut critical = false;
        for (pick, odd) in picks {
            let record = if odd == 0 { unknown(true) } else { log[pick.index(log.len())].clone() };
            critical |= odd == 0;
            state.apply_record(&record).expect("our own records are readable");
            let status = status::derive(&state.facts, &history.world.dead, now);
            prop_assert!(status.sentence().ends_with('.'));
            prop_assert_eq!(status.read_only, critical);
            prop_assert_eq!(snapshot(&state), state.clone());
        }
        let cx = history.world.context();
        for command in [
            start("run_9"),
            close(Outcome::Failed),
            Command::Sweep { live: true },
            Command::Sweep { live: false },
            history.world.recovery(None),
            Command::Resume { run_id: id("run_1") },
            history.world.answer("rt_1", true),
        ] {
            let decided = decide(&state, &cx, command);
            prop_assert!(!critical || decided.is_err() || decided.is_ok_and(|d| d.records.is_empty()));
        }
    }

    /// The flat form of a record, as a line of text, gives the record again: also when its
    /// content was taken out, and with fields of a newer program.
    #[test]
    fn known_records_survive_the_flat_form(steps in steps(), extra in json(), redacted: bool) {
        let mut history = History::new();
        for step in steps {
            history.take(step);
        }
        for mut record in history.world.log {
            if redacted && record.content != Content::None {
                record.content = Content::Redacted;
            }
            let flat = record.to_flat().expect("an object");
            let line = Value::Object(flat.clone()).to_string();
            let read: Map<String, Value> = serde_json::from_str(&line).expect("JSON");
            let again = Record::from_flat(read).expect("a record");
            prop_assert_eq!(event_of(&again), event_of(&record));
            prop_assert_eq!(
                (again.seq, again.ts, &again.kind, &again.content),
                (record.seq, record.ts, &record.kind, &record.content)
            );
            let mut newer = flat;
            newer.insert("of_tomorrow".into(), extra.clone());
            let passed = Record::from_flat(newer.clone()).expect("a record");
            prop_assert_eq!(passed.to_flat().expect("an object"), newer);
        }
    }

    /// Records of unknown kinds are carried through unchanged, whatever they hold.
    #[test]
    fn unknown_records_pass_through_unchanged(
        seq in any::<u64>(),
        millis in any::<i64>(),
        fields in prop::collection::btree_map("[a-zü_]{1,9}", json(), 0..5),
    ) {
        let mut flat: Map<String, Value> = fields.into_iter().collect();
        flat.retain(|name, _| name != "critical");
        flat.insert("seq".into(), seq.into());
        flat.insert("ts".into(), crate::common::at(millis).to_string().into());
        flat.insert("kind".into(), "of.tomorrow".into());
        let record = Record::from_flat(flat.clone()).expect("a record");
        prop_assert_eq!(record.to_flat().expect("an object"), flat);
        let unknown = event::Unknown { kind: "of.tomorrow".into(), critical: false };
        prop_assert_eq!(event_of(&record), Event::Unknown(unknown));
    }
}

/// The generator is worth its name: within a few histories it reaches every kind of record that
/// decisions write, so the properties above are about all of them.
#[test]
fn histories_reach_every_kind_that_decisions_write() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut kinds = BTreeSet::new();
    for _ in 0..1_500 {
        let tree = steps().new_tree(&mut runner).expect("a history");
        let mut history = History::new();
        for step in tree.current() {
            history.take(step);
        }
        kinds.extend(history.world.log.into_iter().map(|record| record.kind.to_string()));
    }
    let not_decided = [
        "session.adopted",
        "session.leased",
        "session.released",
        // Only made with a session.
        "agent.mcp_servers_set",
        "session.forked",
        "task.created",
        "task.updated",
        "task.closed",
        "task.reopened",
        "task.deleted",
        "access_token.created",
        "access_token.used",
        "access_token.revoked",
        "audit.recorded",
        "session.deleted",
        "session.archived",
        "session.imported",
        "session.registered",
        "anchors.recreated",
        // The generator redacts nothing.
        "record.redacted",
        // Written by what looks at the files of a workspace; `turns.rs` folds them.
        "workspace.snapshot_taken",
        "workspace.snapshot_late",
        "workspace.snapshot_failed",
        "workspace.unchanged",
        "workspace.recreated",
        "workspace.restore_started",
        "workspace.restore_failed",
        "workspace.restored",
    ];
    // Written by what runs a graph; `graph/tests.rs` folds them.
    let of_graphs = [
        "graph",
        "node",
        "edge",
        "memory",
        "output",
        "artifact",
        "loop",
        "map",
        "checkpoint",
        "lineage",
    ];
    let is_of_graphs = |kind: &str| kind.split('.').next().is_some_and(|g| of_graphs.contains(&g));
    let expected: BTreeSet<String> = event::KINDS
        .iter()
        .map(|(kind, _)| (*kind).to_owned())
        .filter(|kind| !not_decided.contains(&kind.as_str()) && !is_of_graphs(kind))
        .collect();
    assert_eq!(kinds, expected);
}
