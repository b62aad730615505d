//! The transcript view: every call is paired, nothing is dropped, nothing is guessed.

#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::collections::{BTreeMap, BTreeSet};

use piton_core::event::{self, Event, ToolStatus};
use piton_core::id::{CallId, RunId};
use piton_core::record::{Content, NewRecord, Record};
use piton_core::time::Timestamp;
use piton_core::transcript::{Item, Outcome, Text, build};
use proptest::prelude::*;
use serde_json::{Value, json};

const NOW: i64 = 1_000;

fn record(seq: u64, event: impl Into<Event>, content: Option<(&str, Value)>) -> Record {
    let ts = Timestamp::from_millis(NOW);
    match content {
        Some((field, value)) => NewRecord::with_content(ts, event, field, value).at(seq),
        None => NewRecord::new(ts, event).at(seq),
    }
}

fn call(id: &str) -> CallId {
    id.parse().unwrap()
}

fn run(id: &str) -> RunId {
    id.parse().unwrap()
}

fn intent(seq: u64, run_id: &str, call_id: &str) -> Record {
    let event = event::ToolIntent {
        call_id: call(call_id),
        run_id: run(run_id),
        name: format!("name_{seq}"),
    };
    record(seq, event, Some(("arguments", json!({ "seq": seq }))))
}

fn outcome(seq: u64, run_id: &str, call_id: &str, status: ToolStatus) -> Record {
    let event = event::ToolOutcome { call_id: call(call_id), run_id: run(run_id), status };
    record(seq, event, Some(("result", json!(seq))))
}

fn said(seq: u64, message: &str, offset: u64, text: &str) -> Record {
    let event = event::MessageDelta {
        message_id: message.parse().unwrap(),
        run_id: Some(run("run_1")),
        offset,
        length: text.len() as u64,
        channel: piton_core::spool::Channel::Answer,
        sent: None,
    };
    record(seq, event, Some(("text", text.into())))
}

fn completed(seq: u64, message: &str, length: u64) -> Record {
    let event = event::MessageCompleted {
        message_id: message.parse().unwrap(),
        length,
        hash: String::new(),
    };
    record(seq, event, None)
}

/// The item that the intent at `seq` makes.
fn tool(seq: u64, call_id: &str, outcome: Outcome) -> Item {
    Item::Tool {
        seq,
        call_id: call(call_id),
        name: Some(format!("name_{seq}")),
        arguments: Some(json!({ "seq": seq })),
        outcome,
    }
}

fn known(status: ToolStatus, result: u64) -> Outcome {
    Outcome::Known { status, result: Some(json!(result)) }
}

/// An intent without outcome is unknown once no one works on its run, and pending while someone
/// does; another run's being live does not help it.
#[test]
fn dangling_intents_are_unknown_and_live_ones_pending() {
    let log = [intent(1, "run_1", "call_1"), intent(2, "run_2", "call_2")];
    assert_eq!(
        build(&log, None).unwrap(),
        [tool(1, "call_1", Outcome::Unknown), tool(2, "call_2", Outcome::Unknown)]
    );
    assert_eq!(
        build(&log, Some(&run("run_2"))).unwrap(),
        [tool(1, "call_1", Outcome::Unknown), tool(2, "call_2", Outcome::Pending)]
    );
}

/// As qwen does: it announces a call with nothing, and says with what when it asks for permission.
#[test]
fn a_call_has_the_arguments_that_its_permission_request_says() {
    let event = event::RunWaiting {
        run_id: run("run_1"),
        wait_id: None,
        wait_kind: event::WaitKind::Permission,
        resume_token_id: None,
        deadline_at: None,
        reject_options: Vec::new(),
    };
    let question = json!({"call_id": "call_1", "toolCall": {"rawInput": {"command": "ls"}}});
    let log = [intent(1, "run_1", "call_1"), record(2, event, Some(("question", question)))];
    let items = build(&log, None).unwrap();
    let [Item::Tool { arguments, .. }] = items.as_slice() else { panic!("{items:?}") };
    assert_eq!(*arguments, Some(json!({"seq": 1, "command": "ls"})));
}

/// A late outcome replaces `unknown`, written or derived; the first known one stays.
#[test]
fn late_outcomes_replace_unknown_and_the_first_known_one_counts() {
    let log = [
        intent(1, "run_1", "call_1"),
        outcome(2, "run_1", "call_1", ToolStatus::Unknown),
        outcome(3, "run_1", "call_1", ToolStatus::Failed),
        outcome(4, "run_1", "call_1", ToolStatus::Succeeded),
    ];
    let expected = [
        Outcome::Unknown,
        known(ToolStatus::Unknown, 2),
        known(ToolStatus::Failed, 3),
        known(ToolStatus::Failed, 3),
    ];
    for (length, expected) in (1..).zip(expected) {
        let view = build(&log[..length], None).unwrap();
        assert_eq!(view, [tool(1, "call_1", expected)], "the first {length}");
    }
}

/// What happened is shown though its intent is missing, and an intent that is written after its
/// outcome does not make a second, dangling call.
#[test]
fn an_outcome_without_intent_is_shown_and_finds_its_late_intent() {
    let log = [outcome(1, "run_1", "call_1", ToolStatus::Succeeded), intent(2, "run_1", "call_1")];
    let orphan = Item::Tool {
        seq: 1,
        call_id: call("call_1"),
        name: None,
        arguments: None,
        outcome: known(ToolStatus::Succeeded, 1),
    };
    assert_eq!(build(&log[..1], None).unwrap(), [orphan]);
    let paired = Item::Tool {
        seq: 1,
        call_id: call("call_1"),
        name: Some("name_2".into()),
        arguments: Some(json!({ "seq": 2 })),
        outcome: known(ToolStatus::Succeeded, 1),
    };
    assert_eq!(build(&log, None).unwrap(), [paired]);
}

/// Some agents number their calls from 1 again in each run. A late outcome of the first run must not be
/// taken for the second run's.
#[test]
fn a_call_id_used_again_in_another_run_is_another_call() {
    let log = [
        intent(1, "run_1", "call_1"),
        intent(2, "run_2", "call_1"),
        outcome(3, "run_1", "call_1", ToolStatus::Succeeded),
    ];
    assert_eq!(
        build(&log, Some(&run("run_2"))).unwrap(),
        [tool(1, "call_1", known(ToolStatus::Succeeded, 3)), tool(2, "call_1", Outcome::Pending)]
    );
}

/// A call that is made again under its own id may have happened again: its old outcome says
/// nothing about that.
#[test]
fn a_call_made_again_is_unknown_again() {
    let log = [
        intent(1, "run_1", "call_1"),
        outcome(2, "run_1", "call_1", ToolStatus::Failed),
        intent(3, "run_1", "call_1"),
        outcome(4, "run_1", "call_1", ToolStatus::Succeeded),
    ];
    let again = |outcome| Item::Tool {
        seq: 1,
        call_id: call("call_1"),
        name: Some("name_3".into()),
        arguments: Some(json!({ "seq": 3 })),
        outcome,
    };
    assert_eq!(build(&log[..3], None).unwrap(), [again(Outcome::Unknown)]);
    assert_eq!(build(&log[..3], Some(&run("run_1"))).unwrap(), [again(Outcome::Pending)]);
    assert_eq!(build(&log, None).unwrap(), [again(known(ToolStatus::Succeeded, 4))]);
}

/// Pieces are put together where the message began, whatever lies between them.
#[test]
fn text_is_put_together_and_says_whether_it_is_complete() {
    let user = event::MessageUser { message_id: "msg_u".parse().unwrap(), run_id: None };
    let log = [
        record(1, user, Some(("content", "run tests".into()))),
        said(2, "msg_a", 0, "für "),
        said(3, "msg_b", 0, "other"),
        intent(4, "run_1", "call_1"),
        said(5, "msg_a", 5, "dich"),
        completed(6, "msg_a", 9),
        completed(7, "msg_nobody", 0),
    ];
    let agent = |seq, message: &str, text: &str, complete| Item::Agent {
        seq,
        message_id: message.parse().unwrap(),
        text: Text::Whole(text.into()),
        complete,
        truncated: false,
    };
    assert_eq!(
        build(&log, None).unwrap(),
        [
            Item::User {
                seq: 1,
                message_id: "msg_u".parse().unwrap(),
                text: Text::Whole("run tests".into())
            },
            agent(2, "msg_a", "für dich", true),
            agent(3, "msg_b", "other", false),
            tool(4, "call_1", Outcome::Unknown),
        ]
    );
}

/// A message of which a piece was taken out says so, and does not pass off the rest as the whole.
/// A redacted call stays paired.
#[test]
fn redacted_text_is_named() {
    let redact = |mut record: Record| {
        record.content = Content::Redacted;
        record
    };
    let user = event::MessageUser { message_id: "msg_u".parse().unwrap(), run_id: None };
    let log = [
        redact(record(1, user, Some(("content", "secret".into())))),
        said(2, "msg_a", 0, "a"),
        redact(said(3, "msg_a", 1, "secret")),
        said(4, "msg_a", 7, "z"),
        redact(intent(5, "run_1", "call_1")),
        redact(outcome(6, "run_1", "call_1", ToolStatus::Succeeded)),
    ];
    assert_eq!(
        build(&log, None).unwrap(),
        [
            Item::User { seq: 1, message_id: "msg_u".parse().unwrap(), text: Text::Redacted },
            Item::Agent {
                seq: 2,
                message_id: "msg_a".parse().unwrap(),
                text: Text::Redacted,
                complete: false,
                truncated: false,
            },
            Item::Tool {
                seq: 5,
                call_id: call("call_1"),
                name: Some("name_5".into()),
                arguments: None,
                outcome: Outcome::Known { status: ToolStatus::Succeeded, result: None },
            },
        ]
    );
}

#[derive(Clone, Debug)]
enum Step {
    Intent(u8, u8),
    Outcome(u8, u8, ToolStatus),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let status = prop::sample::select(vec![
        ToolStatus::Succeeded,
        ToolStatus::Failed,
        ToolStatus::Cancelled,
        ToolStatus::Unknown,
    ]);
    let step = prop_oneof![
        (0..3_u8, 0..4_u8).prop_map(|(run, call)| Step::Intent(run, call)),
        (0..3_u8, 0..4_u8, status).prop_map(|(run, call, s)| Step::Outcome(run, call, s)),
    ];
    prop::collection::vec(step, 0..40)
}

proptest! {
    /// However intents and outcomes fall, each call of each run is in the view exactly once; only
    /// the live run has pending calls; and a call without any outcome never claims one.
    #[test]
    fn every_call_appears_exactly_once(steps in steps()) {
        let mut log = Vec::new();
        let mut expected: BTreeMap<(String, String), bool> = BTreeMap::new();
        for (seq, step) in (1..).zip(&steps) {
            let (run_id, call_id, has_outcome) = match step {
                Step::Intent(run, call) => (run, call, false),
                Step::Outcome(run, call, _) => (run, call, true),
            };
            // The call's id says which run it belongs to, for the comparison below.
            let (run_id, call_id) = (format!("run_{run_id}"), format!("call_{run_id}_{call_id}"));
            *expected.entry((run_id.clone(), call_id.clone())).or_default() |= has_outcome;
            log.push(match step {
                Step::Intent(..) => intent(seq, &run_id, &call_id),
                Step::Outcome(_, _, status) => outcome(seq, &run_id, &call_id, *status),
            });
        }
        let live = run("run_0");
        let mut seen = BTreeSet::new();
        for item in build(&log, Some(&live)).unwrap() {
            let Item::Tool { call_id, outcome, .. } = item else { panic!("{item:?}") };
            let run_id = format!("run_{}", &call_id.as_str()["call_".len()..][..1]);
            prop_assert!(outcome != Outcome::Pending || run_id == "run_0", "{call_id}");
            prop_assert!(outcome != Outcome::Unknown || run_id != "run_0", "{call_id}");
            let key = (run_id, call_id.to_string());
            let claims = matches!(outcome, Outcome::Known { .. });
            prop_assert!(!claims || expected[&key], "{call_id} claims an outcome");
            prop_assert!(seen.insert(key), "{call_id} appears twice");
        }
        prop_assert_eq!(
            seen,
            expected.into_keys().collect::<BTreeSet<_>>()
        );
    }
}

/// After an interruption a message may be sent again: it is shown once.
#[test]
fn a_message_that_is_sent_again_from_its_beginning_starts_fresh() {
    let records = [said(1, "m", 0, "one "), said(2, "m", 4, "tw"), said(3, "m", 0, "one two")];
    let items = build(&records, None).unwrap();
    let [Item::Agent { seq: 1, text, .. }] = items.as_slice() else { panic!("{items:?}") };
    assert_eq!(*text, Text::Whole("one two".into()));
}
