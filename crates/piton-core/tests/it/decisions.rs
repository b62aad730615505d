//! Every command: what it refuses and by which code, what it does when it is given twice, and
//! where it stops.

use std::collections::BTreeMap;

use crate::common::{World, at, cancel, close, complete, create, fresh, id, resume, start};
use piton_core::decide::{
    Command, IfBusy, Import, Message, Probe, Prompt, QueuePosition, Redact, RedactTarget, Refusal,
    Removal, Verdict, may_remove,
};
use piton_core::event::{self, Event, Outcome, ToolStatus};
use piton_core::limits::{CALLS_OPEN_MAX, EFFECTS_PENDING_MAX, MESSAGES_OPEN_MAX, WAITS_OPEN_MAX};
use piton_core::reason::Reason;
use piton_core::request::{Key, Request};
use piton_core::spool::{ENTRY_VERSION, Entry, Fact};
use piton_core::state::State;
use piton_core::{Code, Content};
use serde_json::json;

fn pause(run: &str) -> Command {
    Command::Pause { run_id: id(run) }
}

fn dismiss(run: &str) -> Command {
    Command::Dismiss { run_id: id(run) }
}

fn fail(run: &str) -> Command {
    Command::Fail { run_id: id(run), code: Some("oom".into()), error: "out of memory".into() }
}

fn say(message: &str, offset: Option<u64>, text: &str) -> Command {
    Command::Say { message_id: id(message), offset, text: text.into() }
}

fn said(message: &str) -> Command {
    Command::EndMessage { message_id: id(message), hash: "00".into() }
}

fn intend(call: &str) -> Command {
    let name = "shell".to_owned();
    Command::Intend { run_id: id("run_1"), call_id: id(call), name, arguments: json!({}) }
}

fn conclude(run: &str, call: &str) -> Command {
    let status = ToolStatus::Succeeded;
    Command::Conclude { run_id: id(run), call_id: id(call), status, result: json!(0) }
}

fn seen(event: impl Into<Event>) -> Command {
    Command::Observe { event: event.into(), message: None }
}

fn answer_by_wait(wait: &str) -> Command {
    Command::AnswerByWait { wait_id: id(wait), fresh: fresh("rt_9"), answer: json!(true) }
}

fn rotate(wait: &str) -> Command {
    Command::RotateToken { wait_id: id(wait), fresh: fresh("rt_9") }
}

fn mint() -> Command {
    Command::MintInterruption { fresh: fresh("rt_9"), expires_at: None }
}

fn edit_queued(message: &str, version: Option<u64>) -> Command {
    Command::EditQueued { message_id: id(message), version, content: "but?".into() }
}

fn after(mut world: World, command: Command) -> World {
    world.done(command);
    world
}

fn redact(seq: u64, content: Content) -> Command {
    Command::Redact(Redact { targets: vec![RedactTarget { seq, content }], reason: None })
}

fn plan(branch: &str) -> Command {
    Command::PlanWorkspace(piton_core::worktree::WorktreePlan {
        path: "/data/worktrees/sess_1".into(),
        repository: "/repo".into(),
        branch: branch.into(),
        base: "main".into(),
        base_commit: "0123456789abcdef0123456789abcdef01234567".into(),
    })
}

fn overdue() -> World {
    let mut world = World::waiting();
    world.pass(crate::common::WAIT);
    world
}

fn read_only() -> World {
    let mut world = World::new();
    let unknown = event::Unknown { kind: "graph.node".into(), critical: true };
    world.state.apply(2, world.now, &Event::Unknown(unknown));
    world
}

/// Each refusal, provoked, with its code. One that is added makes the match below incomplete.
#[test]
#[expect(clippy::too_many_lines, reason = "a row for each of them")]
fn every_refusal_is_reachable_and_has_its_code() {
    let run = || id("run_1");
    let asked = after(World::running(), asking(&json!(1)));
    let (used, rotated) = {
        let mut used = World::waiting();
        let answer = used.answer("rt_1", "yes");
        used.done(answer);
        (used, after(World::waiting(), rotate("wait_1")))
    };
    let by_token = |world: World, name: &str| {
        let command = world.answer(name, "no");
        (world, command)
    };
    let mut forged = World::waiting().answer("rt_1", "no");
    if let Command::AnswerByToken(answer) = &mut forged {
        answer.token = crate::common::token("rt_2");
    }
    let full = (1..=WAITS_OPEN_MAX).fold(World::running(), |mut world, n| {
        world.ask(&format!("wait_{n}"), &format!("rt_{n}"));
        world
    });
    let assign = |agent: &str| Command::AssignAgent { agent_profile_id: agent.to_owned() };
    let mut assigned = after(World::executed(), assign("echo"));
    let ready =
        piton_core::event::AgentReady { execution_id: id("exec_1"), agent_session_id: None };
    assigned.observe(ready);
    let one_more = full.wait("wait_more", "rt_more");
    let queued = after(
        World::running(),
        Command::Prompt(Prompt {
            run_id: id("run_2"),
            message: Message { message_id: id("msg_2"), content: "and?".into() },
            if_busy: IfBusy::Queue,
            position: QueuePosition::Last,
            queue_max: 1,
        }),
    );
    let cases = vec![
        ((World::empty(), start("run_1")), Refusal::SessionNotFound),
        ((World::new(), create("sess_1")), Refusal::SessionExists { session: id("sess_1") }),
        ((after(World::new(), close(Outcome::Failed)), start("run_1")), Refusal::SessionClosed),
        ((read_only(), start("run_1")), Refusal::SessionReadOnly { kind: "graph.node".into() }),
        ((World::running(), complete("run_0")), Refusal::RunNotFound { run: id("run_0") }),
        ((World::running(), start("run_2")), Refusal::RunInProgress { run: run() }),
        ((World::interrupted(), intend("call_1")), Refusal::RunNotOpen { run: run() }),
        ((World::running(), dismiss("run_1")), Refusal::RunNotInterrupted { run: run() }),
        ((World::new(), mint()), Refusal::NeverRun),
        ((assigned, assign("other")), Refusal::AgentAssigned),
        ((World::running(), rotate("wait_1")), Refusal::WaitNotFound { wait: id("wait_1") }),
        ((overdue(), answer_by_wait("wait_1")), Refusal::WaitExpired { wait: id("wait_1") }),
        (
            (World::running(), conclude("run_1", "call_1")),
            Refusal::CallNotOpen { call: id("call_1") },
        ),
        (
            (World::running(), edit_queued("msg_1", None)),
            Refusal::QueuedPromptNotFound { message: id("msg_1") },
        ),
        (
            (queued, edit_queued("msg_2", Some(1))),
            Refusal::QueuedPromptConflict { message: id("msg_2"), expected: 1, actual: 4 },
        ),
        ((World::running(), said("msg_1")), Refusal::MessageNotOpen { message: id("msg_1") }),
        (
            (after(World::running(), say("msg_1", None, "ü")), say("msg_1", Some(1), "x")),
            Refusal::OffsetMismatch { message: id("msg_1"), expected: 2, offset: 1 },
        ),
        (
            (World::running(), Command::Abandon { execution_id: id("exec_1") }),
            Refusal::ExecutorNotFound,
        ),
        ((World::executed(), seen(starting())), Refusal::ExecutorAlive { execution: id("exec_1") }),
        ((full, one_more), Refusal::LimitReached { what: "waits", max: WAITS_OPEN_MAX }),
        ((World::executed(), from_entry(2)), Refusal::SpoolGap { last: 0, pos: 2 }),
        ((World::new(), redact(9, Content::Omitted)), Refusal::RecordNotFound { seq: 9 }),
        ((World::new(), redact(1, Content::None)), Refusal::RecordEmpty { seq: 1 }),
        (
            (World::new(), Command::WorkspaceRemoved { kept_branch: true }),
            Refusal::WorktreeNotFound,
        ),
        (
            (after(World::new(), plan("piton/1")), plan("piton/2")),
            Refusal::WorktreeExists { path: "/data/worktrees/sess_1".into() },
        ),
        ((asked, asking(&json!(2))), Refusal::IdempotencyKeyReused),
        (by_token(World::waiting(), "rt_0"), Refusal::ResumeTokenNotFound),
        ((World::waiting(), forged), Refusal::ResumeTokenMismatch),
        (by_token(used, "rt_1"), Refusal::ResumeTokenConsumed),
        (by_token(rotated, "rt_1"), Refusal::ResumeTokenRevoked { reason: Reason::Rotated }),
        (by_token(overdue(), "rt_1"), Refusal::ResumeTokenExpired),
    ];
    for ((mut world, command), expected) in cases {
        let code = match &expected {
            Refusal::SessionNotFound => Code::SessionNotFound,
            Refusal::SessionExists { .. } => Code::SessionExists,
            Refusal::SessionClosed => Code::SessionClosed,
            Refusal::SessionReadOnly { .. } => Code::SessionReadOnly,
            Refusal::RunNotFound { .. } => Code::RunNotFound,
            Refusal::RunInProgress { .. } => Code::RunInProgress,
            Refusal::RestoreInProgress => Code::RestoreInProgress,
            Refusal::RunNotOpen { .. } => Code::RunNotOpen,
            Refusal::AgentAssigned => Code::AgentProfileConflict,
            Refusal::RunNotInterrupted { .. }
            | Refusal::NoInterruption { .. }
            | Refusal::NeverRun => Code::RunNotInterrupted,
            Refusal::WaitNotFound { .. } => Code::WaitNotFound,
            Refusal::WaitExpired { .. } => Code::WaitExpired,
            Refusal::CallNotOpen { .. } => Code::CallNotOpen,
            Refusal::MessageNotOpen { .. } => Code::MessageNotOpen,
            Refusal::OffsetMismatch { .. } => Code::OffsetMismatch,
            Refusal::ExecutorNotFound => Code::ExecutorNotFound,
            Refusal::ExecutorAlive { .. } => Code::ExecutorAlive,
            Refusal::LimitReached { .. } => Code::LimitReached,
            Refusal::SpoolGap { .. } => Code::SpoolGap,
            Refusal::IdempotencyKeyReused => Code::IdempotencyKeyReused,
            // Asked of a question that is read from the log.
            Refusal::AnswerInvalid { .. } => Code::AnswerInvalid,
            Refusal::WorktreeNotFound => Code::WorktreeNotFound,
            Refusal::WorktreeExists { .. } => Code::WorktreeExists,
            // Asked of the registry.
            Refusal::TaskNotFound { .. } => Code::TaskNotFound,
            Refusal::ChoiceInvalid(_) => Code::RequestInvalid,
            Refusal::AgentNotOffered { .. } => Code::AgentNotOffered,
            Refusal::AgentSessionInUse { .. } => Code::AgentSessionInUse,
            Refusal::ChoiceNotOffered { .. } => Code::ChoiceNotOffered,
            Refusal::TaskClosed { .. } => Code::TaskClosed,
            Refusal::TaskInUse { .. } => Code::TaskInUse,
            Refusal::AccessTokenNotFound { .. } => Code::AccessTokenNotFound,
            Refusal::QueuedPromptNotFound { .. } => Code::QueuedPromptNotFound,
            Refusal::QueuedPromptConflict { .. } => Code::QueuedPromptConflict,
            Refusal::RecordNotFound { .. } => Code::RecordNotFound,
            Refusal::RecordEmpty { .. } => Code::RecordEmpty,
            // Asked by who removes a session, not by a command.
            Refusal::SessionNotClosed => Code::SessionNotClosed,
            Refusal::ResumeTokenNotFound => Code::ResumeTokenNotFound,
            Refusal::ResumeTokenMismatch => Code::ResumeTokenMismatch,
            Refusal::ResumeTokenConsumed => Code::ResumeTokenConsumed,
            Refusal::ResumeTokenRevoked { .. } => Code::ResumeTokenRevoked,
            Refusal::ResumeTokenExpired => Code::ResumeTokenExpired,
        };
        assert_eq!(world.refused(command), expected);
        assert_eq!(expected.code(), code);
    }
}

fn asking(body: &serde_json::Value) -> Command {
    let key = Some(Key::new("key_1", "/sessions/sess_1/pause", "k", body));
    let (principal, action) = ("key_1".into(), "sessions.pause".into());
    let request = Request { principal, action, key, response: Some(json!({"paused": true})) };
    Command::Requested { request, command: Box::new(pause("run_1")) }
}

/// Wants to show: a request is fulfilled once, a repetition is told where its answer lies, and the
/// log says who asked.
#[test]
fn a_request_that_is_repeated_is_fulfilled_once() {
    let mut world = World::running();
    let kinds = world.done(asking(&json!(1)));
    assert_eq!(kinds, ["run.paused", "request.accepted"]);
    let seq = world.state.last_seq;
    world.done(resume("run_1"));
    let again = world.decide(asking(&json!(1))).map(|decision| decision.outcome);
    assert_eq!(again, Ok(Verdict::Repeated { seq }));
    assert_eq!(world.state.last_seq, seq + 1, "nothing but the resumption");
    world.pass(piton_core::limits::REQUEST_KEPT_FOR);
    world.done(asking(&json!(1)));
}

fn from_entry(pos: u64) -> Command {
    let fact = Fact::TurnStarted {};
    let at = at(1_000_000);
    let entry = Entry { v: ENTRY_VERSION, pos, at, run_id: None, fact, raw: None };
    let (execution_id, spool_id) = (id("exec_1"), "spool_1".to_owned());
    let (masked, fresh) = (BTreeMap::new(), Vec::new());
    let entries = vec![entry];
    Command::Import(Import {
        execution_id,
        spool_id,
        entries,
        lost: None,
        damage: None,
        masked,
        fresh,
        rules: std::sync::Arc::default(),
    })
}

/// Wants to show: nothing that still works, or whose agent may live, is removed unasked.
#[test]
fn only_what_is_at_rest_is_removed_unless_forced() {
    let closed = || after(World::running(), close(Outcome::Completed));
    let closed_but_executed = || after(World::executed(), close(Outcome::Completed));
    let in_progress = Refusal::RunInProgress { run: id("run_1") };
    let alive = Refusal::ExecutorAlive { execution: id("exec_1") };
    for (world, removal, expected) in vec![
        (World::empty(), Removal::DeleteForced, Err(Refusal::SessionNotFound)),
        (World::new(), Removal::Delete, Ok(())),
        (World::new(), Removal::Archive, Err(Refusal::SessionNotClosed)),
        (World::running(), Removal::Delete, Err(in_progress.clone())),
        (World::waiting(), Removal::Delete, Err(in_progress)),
        (World::running(), Removal::DeleteForced, Ok(())),
        (World::interrupted(), Removal::Delete, Ok(())),
        (closed(), Removal::Archive, Ok(())),
        (closed(), Removal::Delete, Ok(())),
        (closed_but_executed(), Removal::Archive, Err(alive.clone())),
        (closed_but_executed(), Removal::Delete, Err(alive)),
        (closed_but_executed(), Removal::DeleteForced, Ok(())),
    ] {
        assert_eq!(may_remove(&world.state, removal), expected, "{removal:?}");
    }
}

fn starting() -> event::ExecutorStarting {
    event::ExecutorStarting { execution_id: id("exec_2"), runtime: "docker".into() }
}

/// Given twice, a command is answered `Already` and writes nothing: the caller did not get the
/// first answer.
#[test]
fn commands_given_twice_change_nothing_the_second_time() {
    let paused = || after(World::running(), pause("run_1"));
    for (mut world, command) in vec![
        (World::new(), start("run_1")),
        (World::new(), close(Outcome::Completed)),
        (World::running(), close(Outcome::Completed)),
        (World::running(), World::running().wait("wait_1", "rt_1")),
        (World::waiting(), rotate("wait_1")),
        (World::interrupted(), mint()),
        (World::interrupted(), resume("run_1")),
        (paused(), resume("run_1")),
        (World::running(), pause("run_1")),
        (World::running(), complete("run_1")),
        (World::running(), fail("run_1")),
        (World::running(), cancel("run_1")),
        (paused(), cancel("run_1")),
        (World::interrupted(), cancel("run_1")),
        (World::interrupted(), dismiss("run_1")),
        (World::running(), Command::Interrupt { run_id: id("run_1"), reason: Reason::ProcessExit }),
        (World::running(), intend("call_1")),
        (World::new(), seen(starting())),
        (World::executed(), seen(event::AgentStarting { execution_id: id("exec_1") })),
        (World::executed(), seen(event::ExecutorStopped { execution_id: id("exec_1") })),
        (World::executed(), Command::Abandon { execution_id: id("exec_1") }),
        (overdue(), Command::Sweep { live: true }),
        (overdue(), Command::Sweep { live: false }),
        (World::running(), Command::Done { of_seq: 3 }),
    ] {
        let first = world.decide(command.clone()).map(|decision| decision.outcome);
        let fresh = matches!(first, Ok(Verdict::Done | Verdict::Asked));
        assert!(fresh, "{command:?}: {first:?}");
        let (state, log) = (world.state.clone(), world.log.len());
        let second = world.decide(command.clone()).map(|decision| decision.outcome);
        assert_eq!(second, Ok(Verdict::Already), "{command:?}");
        assert_eq!((world.state, world.log.len()), (state, log), "{command:?}");
    }
}

/// A question that is repeated after it was answered, or after no one answered it, is not asked a second
/// time: there is nothing to be answered twice.
#[test]
fn a_settled_wait_that_is_asked_again_stays_settled() {
    let mut answered = World::waiting();
    let answer = answered.answer("rt_1", "yes");
    answered.done(answer);
    let mut expired = overdue();
    expired.done(Command::Sweep { live: true });
    for mut world in [answered, expired] {
        let (log, again) = (world.log.len(), world.wait("wait_1", "rt_2"));
        let verdict = world.decide(again).map(|decision| decision.outcome);
        assert_eq!((verdict, world.log.len()), (Ok(Verdict::Already), log));
        let refusal = Refusal::WaitNotFound { wait: id("wait_1") };
        assert_eq!(world.refused(answer_by_wait("wait_1")), refusal);
    }
}

/// What cannot be `Already` because nothing is left to tell it by is refused, and writes nothing.
#[test]
fn what_is_over_is_refused_the_second_time() {
    let streaming = || after(World::running(), say("msg_1", Some(0), "text"));
    let calling = || after(World::running(), intend("call_1"));
    for (mut world, command, expected) in [
        (World::empty(), create("sess_1"), Refusal::SessionExists { session: id("sess_1") }),
        (World::waiting(), answer_by_wait("wait_1"), Refusal::WaitNotFound { wait: id("wait_1") }),
        (streaming(), said("msg_1"), Refusal::MessageNotOpen { message: id("msg_1") }),
        (
            World::running(),
            say("msg_1", Some(0), "text"),
            Refusal::OffsetMismatch { message: id("msg_1"), expected: 4, offset: 0 },
        ),
        (calling(), conclude("run_1", "call_1"), Refusal::CallNotOpen { call: id("call_1") }),
    ] {
        world.done(command.clone());
        assert_eq!(world.refused(command), expected);
    }
}

/// An end is an end: no other command makes another one of it.
#[test]
fn ended_runs_take_no_other_end() {
    let not_open = || Refusal::RunNotOpen { run: id("run_1") };
    for end in [complete("run_1"), fail("run_1"), cancel("run_1")] {
        let mut world = after(World::running(), end.clone());
        for other in [complete("run_1"), fail("run_1"), cancel("run_1"), pause("run_1")] {
            if std::mem::discriminant(&other) != std::mem::discriminant(&end) {
                assert_eq!(world.refused(other), not_open(), "after {end:?}");
            }
        }
        let waiting = world.wait("wait_1", "rt_1");
        for other in [waiting, intend("call_1")] {
            assert_eq!(world.refused(other), not_open(), "after {end:?}");
        }
        let not_interrupted = || Refusal::RunNotInterrupted { run: id("run_1") };
        for other in [resume("run_1"), dismiss("run_1")] {
            assert_eq!(world.refused(other), not_interrupted(), "after {end:?}");
        }
        let run = id("run_1");
        assert_eq!(world.refused(mint()), Refusal::NoInterruption { run }, "after {end:?}");
    }
    let mut closed = after(World::running(), close(Outcome::Failed));
    assert_eq!(closed.refused(close(Outcome::Completed)), Refusal::SessionClosed);
}

/// A closed session takes what the world did, and nothing that would go on.
#[test]
fn a_closed_session_records_only_what_happened() {
    let mut world = after(World::executed(), close(Outcome::Completed));
    let stop = *world.state.pending.keys().last().expect("the run is to be stopped");
    for refused in
        [start("run_2"), resume("run_1"), Command::Sweep { live: true }, say("msg_1", None, "x")]
    {
        assert_eq!(world.refused(refused), Refusal::SessionClosed);
    }
    assert_eq!(world.done(Command::Done { of_seq: stop }), ["effect.done"]);
    let stopped = event::ExecutorStopped { execution_id: id("exec_1") };
    assert_eq!(world.observe(stopped), ["executor.stopped"]);
}

/// Only executor and agent events of the session's executor are observations.
#[test]
fn observations_are_of_the_sessions_executor() {
    let mut world = World::executed();
    for event in [
        Event::from(event::ExecutorReady { execution_id: id("exec_2") }),
        event::AgentExited { execution_id: id("exec_2"), exit_code: None, signal: None }.into(),
        event::ExecutorAbandoned { execution_id: id("exec_1") }.into(),
        event::RunPaused { run_id: id("run_1") }.into(),
    ] {
        assert_eq!(world.refused(seen(event)), Refusal::ExecutorNotFound);
    }
    let message = Some("no such image".to_owned());
    let event =
        event::ExecutorError { execution_id: id("exec_1"), reason: None, code: None }.into();
    world.done(Command::Observe { event, message });
    let record = world.log.last().expect("a record");
    assert_eq!(record.content_field("message"), Some(json!("no such image")));
}

/// Why an executor cannot be reached is in the log and in the facts: once, until it is known better
/// or the executor can be reached again.
#[test]
fn why_an_executor_is_unreachable_is_reported_once() {
    let mut world = World::executed();
    let unreachable = |code: Option<&str>| {
        let (execution_id, code) = (id("exec_1"), code.map(Into::into));
        event::ExecutorUnreachable { execution_id, code }
    };
    let known = |world: &World| world.state.facts.executor.clone().expect("an executor").code;
    assert_eq!(world.observe(unreachable(None)), ["executor.unreachable"]);
    assert_eq!(known(&world), None);
    let message = Some("It speaks protocol 9".to_owned());
    let event = unreachable(Some("protocol_unsupported")).into();
    world.done(Command::Observe { event, message });
    let record = world.log.last().expect("a record");
    assert_eq!(record.content_field("message"), Some(json!("It speaks protocol 9")));
    assert_eq!(known(&world), Some("protocol_unsupported".into()));
    let again = seen(unreachable(Some("protocol_unsupported")));
    assert_eq!(world.decide(again).map(|d| d.outcome), Ok(Verdict::Already));
    // Who only does not get an answer knows nothing better.
    assert_eq!(world.recover(Some(Probe::Unreachable)), Vec::<String>::new());
    assert_eq!(known(&world), Some("protocol_unsupported".into()));
    world.observe(event::ExecutorReady { execution_id: id("exec_1") });
    assert_eq!(known(&world), None);
}

/// A late outcome of an interrupted run is taken, once, and reopens nothing.
#[test]
fn an_outcome_may_come_after_the_interruption() {
    let mut world = after(World::running(), intend("call_1"));
    world.done(Command::Interrupt { run_id: id("run_1"), reason: Reason::ProcessExit });
    let facts = world.state.facts.clone();
    assert_eq!(world.done(conclude("run_1", "call_1")), ["tool.outcome"]);
    assert_eq!((&world.state.facts, world.state.calls.len()), (&facts, 0));
}

/// Law 10. At each limit there is a named refusal; below it, and after something ended, there
/// is room.
#[test]
fn limits_are_refusals_and_give_way_when_something_ends() {
    let mut world = World::running();
    for n in 0..CALLS_OPEN_MAX {
        world.done(intend(&format!("call_{n}")));
    }
    let refusal = Refusal::LimitReached { what: "tool calls", max: CALLS_OPEN_MAX };
    assert_eq!(world.refused(intend("call_more")), refusal);
    assert_eq!(world.done(intend("call_0")), [""; 0], "a known call is no new one");
    world.done(conclude("run_1", "call_0"));
    world.done(intend("call_more"));

    for n in 0..MESSAGES_OPEN_MAX {
        world.done(say(&format!("msg_{n}"), None, "x"));
    }
    let refusal = Refusal::LimitReached { what: "messages", max: MESSAGES_OPEN_MAX };
    assert_eq!(world.refused(say("msg_more", None, "x")), refusal);
    world.done(say("msg_0", Some(1), "x"));
    world.done(said("msg_0"));
    world.done(say("msg_more", None, "x"));

    world.done(complete("run_1"));
    assert_eq!(world.state.messages.len(), 0, "nothing streams between runs");
    world.done(start("run_2"));
    assert_eq!(world.state.calls.len(), 0, "calls belong to their run");
}

/// Effects that no one carries out (the executor is unreachable, and the user tries again and
/// again) do not pile up without end.
#[test]
fn effects_that_no_one_carries_out_are_limited() {
    let refusal = Refusal::LimitReached { what: "effects", max: EFFECTS_PENDING_MAX };
    let mut runs = World::new();
    for n in 0..EFFECTS_PENDING_MAX {
        runs.done(start(&format!("run_{n}")));
        runs.done(cancel(&format!("run_{n}")));
    }
    assert_eq!(runs.refused(start("run_more")), refusal);
    let first = *runs.state.pending.keys().next().expect("effects are pending");
    runs.done(Command::Done { of_seq: first });
    runs.done(start("run_more"));

    // No caller was answered: a continued run has only to begin.
    let mut unheard = World::running();
    for _ in 0..EFFECTS_PENDING_MAX {
        unheard.done(pause("run_1"));
        unheard.done(resume("run_1"));
        assert_eq!(unheard.state.pending.len(), 1);
    }

    let mut pauses = World::executed();
    pauses.observe(event::AgentReady { execution_id: id("exec_1"), agent_session_id: None });
    while pauses.state.pending.len() < EFFECTS_PENDING_MAX {
        pauses.done(pause("run_1"));
        if pauses.state.pending.len() < EFFECTS_PENDING_MAX {
            pauses.done(resume("run_1"));
        }
    }
    assert_eq!(pauses.refused(resume("run_1")), refusal);
    pauses.done(cancel("run_1"));
    assert_eq!(pauses.state.pending.len(), 1, "an end replaces what was to be done");

    let mut waits = World::running();
    for n in 1..EFFECTS_PENDING_MAX {
        waits.ask(&format!("wait_{n}"), &format!("rt_{n}"));
        let answer = waits.answer(&format!("rt_{n}"), true);
        waits.done(answer);
    }
    let one_more = waits.wait("wait_more", "rt_more");
    assert_eq!(waits.refused(one_more), refusal);
}

/// A provider that is `null` is none, before and after the log was read again.
#[test]
fn a_null_provider_is_no_provider() {
    let mut world = World::empty();
    let mut command = create("sess_1");
    if let Command::Create(create) = &mut command {
        create.provider = Some(json!(null));
    }
    world.done(command);
    assert_eq!(world.state.info.as_ref().and_then(|info| info.provider.clone()), None);
    world.restart("boot_2");
}

/// Deciding reads: the same arguments give the same records, and the state stays as it was.
#[test]
fn deciding_is_pure() {
    let world = World::waiting();
    let before: State = world.state.clone();
    let decide = |command| piton_core::decide::decide(&world.state, &world.context(), command);
    assert_eq!(decide(start("run_2")), decide(start("run_2")));
    assert_eq!(decide(world.answer("rt_1", 1)), decide(world.answer("rt_1", 1)));
    assert_eq!(world.state, before);
}
