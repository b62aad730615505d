//! What an execution's spool says becomes records exactly once, however it is cut into batches,
//! repeated, or late.

use std::collections::BTreeMap;

use crate::common::{World, cancel, fresh, id, resume, start};
use piton_core::decide::{Command, Import, Probe, Refusal, Verdict, asks};
use piton_core::event::{AgentReady, ExecutorStopped, ToolStatus, WaitKind};
use piton_core::id::CallId;
use piton_core::limits::{CALLS_OPEN_MAX, SPOOLS_KEPT};
use piton_core::reason::Reason;
use piton_core::spool::{
    Channel, ENTRY_VERSION, Ended, Entry, Fact, OpenedAs, Pos, SessionCapabilities, Spool,
};
use piton_core::state::Effect;
use piton_core::status::Name;
use piton_core::transcript::{self, Item, Outcome, Text};
use proptest::prelude::*;
use serde_json::json;

fn entries(run: &str, facts: Vec<Fact>) -> Vec<Entry> {
    let entry = |(i, fact): (usize, Fact)| Entry {
        v: ENTRY_VERSION,
        pos: i as Pos + 1,
        at: crate::common::at(1_000_000 + i64::try_from(i).expect("few")),
        run_id: Some(id(run)),
        fact,
        raw: None,
    };
    facts.into_iter().enumerate().map(entry).collect()
}

fn import(entries: Vec<Entry>) -> Command {
    let (first, len) = (entries[0].pos, entries.len());
    let names = (0..asks(&entries)).map(|i| fresh(&format!("rt_{first}_{len}_{i}")));
    Command::Import(Import {
        execution_id: id("exec_1"),
        spool_id: "spool_1".into(),
        fresh: names.collect(),
        rules: std::sync::Arc::default(),
        lost: None,
        damage: None,
        masked: BTreeMap::new(),
        entries,
    })
}

fn text(message: &str, offset: u64, text: &str) -> Fact {
    let (message_id, text) = (id(message), text.to_owned());
    Fact::Text { message_id, channel: Channel::Answer, offset, text }
}

fn call(name: &str) -> Fact {
    Fact::ToolCall { call_id: id(name), name: "shell".into(), arguments: json!({"cmd": "ls"}) }
}

fn result(name: &str) -> Fact {
    Fact::ToolResult { call_id: id(name), status: ToolStatus::Succeeded, result: json!("ok") }
}

fn asked(wait: &str) -> Fact {
    Fact::WaitOpened {
        wait_id: id(wait),
        wait_kind: WaitKind::Permission,
        question: json!("May I?"),
    }
}

fn end() -> Fact {
    Fact::TurnEnded { stop_reason: "end_turn".into() }
}

fn exited() -> Fact {
    Fact::AgentExited { exit_code: None, signal: Some(9), requested: false, stderr: "boom".into() }
}

/// The prompt of `run_1` was handed over: its effect is done.
fn begun() -> World {
    let mut world = World::executed();
    let of_seq = *world.state.pending.keys().next().expect("the prompt is to be given");
    world.done(Command::Done { of_seq });
    world
}

fn commanded(of_seq: u64, command: &str) -> Fact {
    Fact::CommandAccepted { command_id: format!("sess_1/{of_seq}"), command: command.to_owned() }
}

fn prompts(world: &World) -> Vec<&Effect> {
    world.state.pending.values().filter(|effect| effect.is_prompt()).collect()
}

/// A run with an agent that can be told; the seqs of its prompt, its stop, and its going on.
fn paused_and_resumed() -> (World, [u64; 3]) {
    let mut world = World::executed();
    world.observe(AgentReady { execution_id: id("exec_1"), agent_session_id: None });
    let mut seqs = [0; 3];
    seqs[0] = *world.state.pending.keys().next().expect("the prompt is to be given");
    world.done(Command::Pause { run_id: id("run_1") });
    seqs[1] = world.state.last_seq;
    world.done(resume("run_1"));
    seqs[2] = world.state.last_seq;
    (world, seqs)
}

/// Wants to show: of a prompt and what continues with it an agent is given what it was not given.
#[test]
fn a_run_that_was_paused_before_the_log_knew_of_its_prompt() {
    let message_id = Some(id("msg_run_1"));
    let said = paused_and_resumed().0.state.last_said;
    let message_seq = said.map(|said| said.seq);
    let begin = Effect::Begin { run_id: id("run_1"), message_id, message_seq };
    let go_on = Effect::Continue { run_id: id("run_1") };

    // It was given before it was stopped: it continues.
    let (mut world, [first, stopped, again]) = paused_and_resumed();
    let cancelled = Fact::TurnEnded { stop_reason: "cancelled".into() };
    let facts = vec![commanded(first, "prompt"), commanded(stopped, "cancel"), cancelled];
    world.done(import(entries("run_1", facts)));
    assert_eq!(prompts(&world), [&go_on]);
    assert_eq!(world.named(), (Name::Running, Reason::RunOpen));
    let facts = vec![commanded(again, "prompt"), end()];
    let mut rest = entries("run_1", facts);
    for entry in &mut rest {
        entry.pos += 3;
    }
    world.done(import(rest));
    assert_eq!(world.named(), (Name::Idle, Reason::RunCompleted));

    // It was stopped before it was given anything: it begins.
    let (mut world, [first, stopped, _]) = paused_and_resumed();
    world.done(import(entries("run_1", vec![commanded(stopped, "cancel")])));
    assert_eq!(prompts(&world), [&begin]);
    let mut rest = entries("run_1", vec![commanded(first, "prompt"), end()]);
    for entry in &mut rest {
        entry.pos += 1;
    }
    world.done(import(rest));
    assert_eq!(world.named(), (Name::Idle, Reason::RunCompleted));

    // It is gone, and its spool says that it was given nothing: another one begins.
    let (mut world, _) = paused_and_resumed();
    world.observe(ExecutorStopped { execution_id: id("exec_1") });
    assert_eq!(prompts(&world), [&begin]);

    // It is given up, and no one knows: no agent is given it again.
    let (mut world, _) = paused_and_resumed();
    world.done(Command::Abandon { execution_id: id("exec_1") });
    assert_eq!(prompts(&world), [] as [&Effect; 0]);
    assert_eq!(world.named(), (Name::InterruptedStartup, Reason::Abandoned));
    let (mut world, _) = paused_and_resumed();
    world.done(Command::Pause { run_id: id("run_1") });
    world.done(Command::Abandon { execution_id: id("exec_1") });
    assert_eq!(prompts(&world), [] as [&Effect; 0]);
    world.done(resume("run_1"));
    assert_eq!(prompts(&world), [&go_on]);

    // Its spool is damaged, and no one knows either.
    let mut world = World::executed();
    let Command::Import(mut damaged) = import(entries("run_1", vec![text("msg_a", 0, "so")]))
    else {
        unreachable!()
    };
    damaged.damage = Some("the rest is unreadable".into());
    world.done(Command::Import(damaged));
    assert_eq!(prompts(&world), [] as [&Effect; 0]);
    world.recover(Some(Probe::Gone));
    assert_eq!(world.named(), (Name::InterruptedStartup, Reason::ProcessExit));
}

/// Wants to show: an agent that calls and calls, and never says what came of it, fills no memory; what
/// is too many is still told.
#[test]
fn open_calls_are_limited() {
    let mut world = begun();
    let facts = (0..CALLS_OPEN_MAX + 2).map(|n| call(&format!("call_{n}"))).collect();
    world.done(import(entries("run_1", facts)));
    assert_eq!(world.state.calls.len(), CALLS_OPEN_MAX);
    let outcome_of = |kind: &str| world.log.iter().filter(|record| &*record.kind == kind).count();
    assert_eq!((outcome_of("tool.intent"), outcome_of("agent.updated")), (CALLS_OPEN_MAX, 2));
}

/// Wants to show: a whole turn becomes what a reader expects, and its end ends the run.
#[test]
fn a_turn_becomes_records() {
    let mut world = begun();
    let hash = blake3::hash(b"Hello, world").to_hex().to_string();
    let ready = Fact::AgentReady {
        opened_as: OpenedAs::New,
        agent_session_id: Some("theirs".into()),
        requested_session_id: None,
        agent: None,
        capabilities: SessionCapabilities { load: true, ..SessionCapabilities::default() },
    };
    let facts = vec![
        ready,
        text("msg_a", 0, "Hello, "),
        text("msg_a", 7, "world"),
        Fact::TextEnd { message_id: id("msg_a"), length: 12, hash },
        call("call_1"),
        Fact::ToolUpdate { call_id: id("call_1"), update: json!({"status": "in_progress"}) },
        result("call_1"),
        Fact::Update { what: "plan".into(), update: json!([]) },
        end(),
    ];
    let kinds = world.done(import(entries("run_1", facts)));
    let expected = [
        "agent.initialized",
        "agent.ready",
        "message.delta",
        "message.completed",
        "tool.intent",
        "tool.updated",
        "tool.outcome",
        "agent.updated",
        "run.completed",
        "spool.imported",
    ];
    assert_eq!(kinds, expected);
    assert_eq!(world.named(), (Name::Idle, Reason::RunCompleted));
    let agent = world.state.facts.agent.clone().expect("there is one");
    assert_eq!(agent.session_id.as_deref(), Some("theirs"));
    let items = transcript::build(&world.log, None).expect("readable");
    let said = |item: &Item| matches!(item, Item::Agent { text: Text::Whole(text), complete: true, .. } if text == "Hello, world");
    assert!(items.iter().any(said), "{items:?}");
    let spool = Spool { spool_id: "spool_1".into(), pos: 9 };
    assert_eq!(world.state.spools.get(&id("exec_1")), Some(&spool));
}

#[test]
fn what_was_imported_is_not_imported_again_and_a_gap_is_refused() {
    let mut world = begun();
    let all = entries("run_1", vec![text("msg_a", 0, "a"), text("msg_a", 1, "b"), end()]);
    world.done(import(all[..2].to_vec()));
    let again = world.decide(import(all[..2].to_vec())).expect("allowed");
    assert_eq!((again.outcome, again.records.len()), (Verdict::Already, 0));
    let before = world.log.len();
    assert_eq!(world.done(import(all.clone())), ["run.completed", "spool.imported"]);
    assert_eq!(world.log.len(), before + 2);

    let mut world = begun();
    let gap = world.refused(import(all[1..].to_vec()));
    assert_eq!(gap, Refusal::SpoolGap { last: 0, pos: 2 });
    // What is gone for ever is named, and what follows is taken.
    let lost = Command::Import(Import {
        execution_id: id("exec_1"),
        spool_id: "spool_1".into(),
        entries: all[1..].to_vec(),
        lost: Some((1, 1)),
        damage: None,
        masked: BTreeMap::new(),
        fresh: Vec::new(),
        rules: std::sync::Arc::default(),
    });
    world.done(lost);
    let header = &world.log.last().expect("written").header;
    assert!(header.contains(r#""lost":[1,1]"#), "{header}");
}

#[test]
fn a_question_becomes_a_wait_that_can_be_answered_and_taken_back() {
    let mut world = begun();
    let facts = vec![
        asked("wait_1"),
        asked("wait_2"),
        Fact::WaitEnded { wait_id: id("wait_2"), why: Ended::Withdrawn },
    ];
    world.done(import(entries("run_1", facts)));
    assert_eq!(world.count("run.waiting"), 2);
    assert_eq!(world.count("wait.cancelled"), 1);
    let run = world.state.facts.run.as_ref().expect("open");
    assert_eq!(run.waits.keys().map(ToString::to_string).collect::<Vec<_>>(), ["wait_1"]);
    assert!(run.waits[&id("wait_1")].deadline_at > Some(world.now));
    world.done(world.answer("rt_1_3_0", json!({"option_id": "allow"})));
    assert_eq!(world.named().0, Name::Running);
}

#[test]
fn an_agent_that_exits_interrupts_its_run_once_and_its_calls_stay_unknown() {
    let mut world = begun();
    let facts = vec![call("call_1"), asked("wait_1"), exited()];
    let all = entries("run_1", facts);
    world.done(import(all.clone()));
    assert_eq!(world.named(), (Name::InterruptedWaiting, Reason::ProcessExit));
    world.done(import(all));
    world.observe(ExecutorStopped { execution_id: id("exec_1") });
    world.restart("boot_2");
    world.recover(None);
    assert_eq!(world.count("run.interrupted"), 1);
    let items = transcript::build(&world.log, None).expect("readable");
    let unknown = |item: &Item| matches!(item, Item::Tool { outcome: Outcome::Unknown, .. });
    assert_eq!(items.iter().filter(|item| unknown(item)).count(), 1);
}

/// A prompt that was never handed over has lost nothing: it waits for the next agent.
#[test]
fn an_agent_that_exits_before_its_prompt_leaves_the_run_to_be_begun() {
    let mut world = World::executed();
    world.done(import(entries("run_1", vec![exited()])));
    assert_eq!(world.count("run.interrupted"), 0);
    assert_eq!(world.state.pending.len(), 1);
    // agentctl had it after all: then it is not asked for again.
    let mut world = World::executed();
    let seq = *world.state.pending.keys().next().expect("to be begun");
    let commanded =
        Fact::CommandAccepted { command_id: format!("sess_1/{seq}"), command: "prompt".into() };
    world.done(import(entries("run_1", vec![commanded, exited()])));
    assert_eq!(world.state.pending.len(), 0);
    assert_eq!(world.count("run.interrupted"), 1);
}

#[test]
fn what_comes_late_is_kept_and_reopens_nothing() {
    let mut world = begun();
    world.done(import(entries("run_1", vec![text("msg_a", 0, "be"), call("call_1")])));
    world.done(cancel("run_1"));
    world.done(start("run_2"));
    let rest = vec![
        text("msg_a", 0, "be"),
        call("call_1"),
        text("msg_a", 2, "fore"),
        call("call_2"),
        asked("wait_9"),
        result("call_1"),
        end(),
    ];
    let before = (world.state.facts.run.clone(), world.state.calls.clone());
    let kinds = world.done(import(entries("run_1", rest)));
    assert_eq!(
        kinds,
        ["message.delta", "tool.intent", "agent.updated", "tool.outcome", "spool.imported"]
    );
    assert_eq!((world.state.facts.run.clone(), world.state.calls.clone()), before);
    let items = transcript::build(&world.log, None).expect("readable");
    let whole = |item: &Item| matches!(item, Item::Agent { text: Text::Whole(text), .. } if text == "before");
    assert!(items.iter().any(whole), "{items:?}");
    assert!(world.state.messages.is_empty());
}

/// An execution that was given up and returns says what it said; the session is not its any more.
#[test]
fn an_abandoned_execution_changes_nothing_any_more() {
    let mut world = begun();
    world.restart("boot_2");
    world.recover(Some(Probe::Unreachable));
    world.done(Command::Abandon { execution_id: id("exec_1") });
    let facts = world.state.facts.clone();
    world.done(import(entries("run_1", vec![text("msg_a", 0, "late"), end(), exited()])));
    assert_eq!(world.state.facts.run, facts.run);
    assert_eq!(world.state.facts.executor, facts.executor);
    assert_eq!(world.count("run.interrupted"), 1);
    assert_eq!(world.count("message.delta"), 1);
}

#[test]
fn kinds_of_a_newer_agentctl_pass_through() {
    let line = r#"{"v":9,"pos":1,"at":"2026-01-01T00:00:00Z","run_id":"run_1","kind":"of_tomorrow","x":[1],"raw":{"y":2}}"#;
    let entry: Entry = serde_json::from_str(line).expect("tolerated");
    let Fact::Unknown { name, fields } = &entry.fact else { panic!("{entry:?}") };
    assert_eq!((name.as_str(), &fields["x"]), ("of_tomorrow", &json!([1])));
    let mut world = begun();
    assert_eq!(world.done(import(vec![entry])), ["agent.updated", "spool.imported"]);
    // One that is known and malformed is an error, not an unknown kind.
    let line = r#"{"v":1,"pos":1,"at":"2026-01-01T00:00:00Z","kind":"text","text":5}"#;
    assert!(serde_json::from_str::<Entry>(line).is_err());
}

fn any_fact() -> impl Strategy<Value = Fact> {
    prop_oneof![
        6 => (0..2u8, "[a-zü]{1,6}").prop_map(|(m, t)| text(&format!("msg_{m}"), 0, &t)),
        1 => (0..3u8).prop_map(|c| call(&format!("call_{c}"))),
        1 => (0..3u8).prop_map(|c| result(&format!("call_{c}"))),
        1 => (0..9u8).prop_map(|w| asked(&format!("wait_{w}"))),
        1 => Just(Fact::Update { what: "plan".into(), update: json!({}) }),
        1 => Just(end()),
        1 => Just(exited()),
    ]
}

/// What the log says of a spool: whole texts, and all other records in order.
fn outcome_of(world: &World) -> (Vec<(String, String)>, Vec<String>, Vec<CallId>) {
    let mut texts: Vec<(String, String)> = Vec::new();
    let mut others = Vec::new();
    for record in &world.log {
        if &*record.kind != "message.delta" {
            if !matches!(&*record.kind, "spool.imported" | "status.derived" | "token.minted") {
                others.push(record.kind.to_string());
            }
            continue;
        }
        let header: serde_json::Value = serde_json::from_str(&record.header).expect("JSON");
        let message = header["message_id"].as_str().expect("text").to_owned();
        let piece = record.content_field("text").expect("there");
        let piece = piece.as_str().expect("text");
        match texts.iter_mut().find(|(id, _)| *id == message) {
            Some((_, text)) => text.push_str(piece),
            None => texts.push((message, piece.to_owned())),
        }
    }
    (texts, others, world.state.calls.keys().cloned().collect())
}

proptest! {
    /// However entries are cut into batches, and whatever is sent again: the same is told, and the
    /// cursor is where the last batch ended.
    #[test]
    fn cuts_and_repeats_make_no_difference(
        facts in prop::collection::vec(any_fact(), 1..40),
        cuts in prop::collection::vec((0..40usize, 0..40usize), 0..12),
    ) {
        let all = entries("run_1", facts);
        let mut whole = begun();
        whole.done(import(all.clone()));
        let mut cut = begun();
        let mut at = 0;
        for (back, on) in cuts {
            let from = at - back.min(at);
            let to = (at + on).min(all.len());
            if from < to {
                cut.done(import(all[from..to].to_vec()));
            }
            at = to.max(at);
        }
        if at < all.len() {
            cut.done(import(all[at..].to_vec()));
        }
        prop_assert_eq!(outcome_of(&whole), outcome_of(&cut));
        prop_assert_eq!(&whole.state.spools, &cut.state.spools);
        prop_assert_eq!(whole.state.facts.run.map(|run| run.phase), cut.state.facts.run.map(|run| run.phase));
    }
}

/// Wants to show: a run that was paused and at once resumed is not ended by the end of the turn that
/// the pause stopped. The next turn's end is the run's.
#[test]
fn the_end_of_a_stopped_turn_does_not_end_a_run_that_continues() {
    let mut world = begun();
    world.done(Command::Pause { run_id: id("run_1") });
    world.done(Command::Resume { run_id: id("run_1") });
    let goes_on = *world.state.pending.keys().last().expect("it is to be continued");
    let cancelled = Fact::TurnEnded { stop_reason: "cancelled".into() };
    let commanded = Fact::CommandAccepted {
        command_id: format!("{}/{goes_on}", world.state.info.as_ref().expect("made").session_id),
        command: "prompt".into(),
    };
    let all = entries("run_1", vec![cancelled, commanded, end()]);
    assert_eq!(world.done(import(all[..1].to_vec())), ["spool.imported"]);
    assert_eq!(world.done(import(all[1..2].to_vec())), ["effect.done", "spool.imported"]);
    assert_eq!(world.done(import(all[2..].to_vec())), ["run.completed", "spool.imported"]);
}

/// Wants to show: anyone who works on a run that was interrupted without them is told to stop, also
/// when no one wants to continue it.
#[test]
fn an_agent_at_an_interrupted_run_is_asked_to_stop() {
    let mut world = begun();
    let ready = Fact::AgentReady {
        opened_as: OpenedAs::New,
        agent_session_id: None,
        requested_session_id: None,
        agent: None,
        capabilities: SessionCapabilities::default(),
    };
    world.done(import(entries("run_1", vec![ready])));
    world.done(Command::Interrupt { run_id: id("run_1"), reason: Reason::WaitTimeout });
    world.done(Command::Dismiss { run_id: id("run_1") });
    let pending_context: Vec<_> = world.state.pending.values().cloned().collect();
    assert_eq!(pending_context, [Effect::Stop { run_id: id("run_1") }]);
}

/// Wants to show: nothing that an agent can say is too large to be imported; what a record cannot
/// hold is named.
#[test]
fn what_is_too_large_for_a_record_is_named() {
    let mut world = begun();
    let large = "ü".repeat(10 * 1024 * 1024);
    let facts = vec![
        Fact::ToolCall {
            call_id: id("call_1"),
            name: "n".repeat(100_000),
            arguments: json!(large.clone()),
        },
        Fact::ToolResult {
            call_id: id("call_1"),
            status: ToolStatus::Succeeded,
            result: json!({ "output": large.clone() }),
        },
        text("msg_a", 0, &large),
        Fact::Update { what: "w".repeat(100_000), update: json!(null) },
        Fact::TurnEnded { stop_reason: "s".repeat(100_000) },
    ];
    world.done(import(entries("run_1", facts)));
    for record in &world.log {
        assert!(record.header.len() <= piton_core::limits::HEADER_BYTES_MAX, "{}", record.kind);
        if let piton_core::Content::Json(json) = &record.content {
            assert!(json.len() <= piton_core::limits::PAYLOAD_BYTES_MAX / 2, "{}", record.kind);
        }
    }
    let outcome = world.log.iter().find(|record| &*record.kind == "tool.outcome").expect("kept");
    let outcome_of = outcome.content_field("result").expect("told");
    assert_eq!(outcome_of["truncated"], true);
    assert_eq!(outcome_of["bytes"].as_u64(), Some(20 * 1024 * 1024 + 24));
    let items = transcript::build(&world.log, None).expect("readable");
    let whole =
        |item: &Item| matches!(item, Item::Agent { text: Text::Whole(text), .. } if *text == large);
    assert!(items.iter().any(whole), "text is not cut");
    assert_eq!(world.named(), (Name::Idle, Reason::RunCompleted));
}

/// Wants to show: whichever spoke last is remembered, however old its id looks; one of which it is
/// not known any more what was imported is named as lost, and not told twice.
#[test]
fn executions_are_forgotten_by_when_they_spoke() {
    let mut world = begun();
    let all = entries("run_1", vec![text("msg_a", 0, "a"), text("msg_a", 1, "b")]);
    let import = |n: usize, entries: &[Entry]| {
        Command::Import(Import {
            execution_id: id(&format!("exec_0{n:02}")),
            spool_id: "spool".into(),
            entries: entries.to_vec(),
            lost: None,
            damage: None,
            masked: BTreeMap::new(),
            fresh: Vec::new(),
            rules: std::sync::Arc::default(),
        })
    };
    for n in (0..SPOOLS_KEPT).rev() {
        world.done(import(n, &all[..1]));
        assert_eq!(world.done(import(n, &all)), ["message.delta", "spool.imported"]);
        assert_eq!(world.decide(import(n, &all)).map(|d| d.outcome), Ok(Verdict::Already));
    }
    let late = world.log.len();
    assert_eq!(world.done(import(99, &all)), ["spool.imported"]);
    assert_eq!(world.log[late].to_flat().expect("an object")["lost"], json!([1, 2]));
    assert_eq!(world.state.spools.len(), SPOOLS_KEPT);
    let first = id(&format!("exec_0{:02}", SPOOLS_KEPT - 1));
    assert!(!world.state.spools.contains_key(&first), "the one that spoke first is forgotten");
    assert_eq!(world.decide(import(99, &all)).map(|d| d.outcome), Ok(Verdict::Already));
}

/// What was too long to be read is missing from what the agent said: the message and the run's outcome
/// say so. What an agent prints beside its messages is no message.
#[test]
fn what_was_too_long_marks_the_message_and_the_outcome() {
    let dropped = |why: &str| Fact::Dropped { why: why.to_owned(), bytes: 50_000_000 };
    let marks = |facts: Vec<Fact>| {
        let mut world = begun();
        world.done(import(entries("run_1", facts)));
        let items = transcript::build(&world.log, None).expect("readable").into_iter();
        let said: Vec<_> = items
            .filter_map(|item| match item {
                Item::Agent { text: Text::Whole(text), truncated, .. } => Some((text, truncated)),
                _ => None,
            })
            .collect();
        let outcome = world.log.iter().find_map(|record| match record.event() {
            Ok(piton_core::Event::RunCompleted(e)) => Some(e.truncated),
            _ => None,
        });
        assert_eq!(piton_core::fold::replay(&world.log).expect("readable"), world.state);
        (said, outcome)
    };
    for (why, truncated) in [("line_too_long", true), ("not_json", false)] {
        let facts =
            vec![text("msg_a", 0, "before"), dropped(why), text("msg_a", 6, "behind"), end()];
        let said = vec![("beforebehind".to_owned(), truncated)];
        assert_eq!(marks(facts), (said, Some(truncated)), "{why}");
    }
    // Also if nothing of the message is there.
    let all = vec![(String::new(), true)];
    assert_eq!(marks(vec![dropped("line_too_long"), end()]), (all, Some(true)));
}
