//! Records that come late, twice, or about something that is over: they are kept in the log and
//! reopen nothing.

use crate::common::{World, cancel, complete, fresh, id, start};
use piton_core::decide::{Command, Probe, Verdict};
use piton_core::event::{self, Event, Outcome, WaitKind};
use piton_core::reason::Reason;
use piton_core::record::Record;
use piton_core::state::{Agent, AgentStatus, Effect, Executor, ExecutorStatus, State};
use piton_core::status::Name;
use serde_json::json;

/// The facts after an event that comes now, and the effects that are pending.
fn after(world: &World, event: impl Into<Event>) -> State {
    let mut state = world.state.clone();
    state.apply(state.last_seq + 1, world.now, &event.into());
    state
}

/// The agent was starting when its process died. It is interrupted, not starting for ever.
#[test]
fn an_agent_ends_with_its_executor() {
    for last in ["starting", "ready"] {
        let mut world = World::executed();
        world.observe(event::AgentStarting { execution_id: id("exec_1") });
        if last == "ready" {
            let agent_session_id = Some("theirs".to_owned());
            world.observe(event::AgentReady { execution_id: id("exec_1"), agent_session_id });
        }
        world.restart("boot_2");
        world.recover(Some(Probe::Gone));
        assert_eq!(world.named(), (Name::InterruptedStartup, Reason::ProcessRestart), "{last}");
        let session_id = (last == "ready").then(|| "theirs".to_owned());
        let agent = Agent { session_id, failed_starts: 1, ..Agent::new(AgentStatus::Exited) };
        assert_eq!(world.state.facts.agent, Some(agent), "the handle is kept");
    }
}

/// That the agent could not be started is still told after its executor was cleared away.
#[test]
fn an_agent_error_outlives_its_executor() {
    let mut world = World::executed();
    world.observe(event::AgentError {
        execution_id: id("exec_1"),
        code: None,
        auth_methods: Vec::new(),
    });
    world.observe(event::ExecutorStopped { execution_id: id("exec_1") });
    assert_eq!(world.named(), (Name::Error, Reason::AgentError));
}

/// An executor that was given up and returns is not taken for alive, and its agent's late
/// beginning is not taken for a beginning; only the agent's session id is worth keeping.
#[test]
fn an_abandoned_executor_that_returns_changes_nothing() {
    let mut world = World::executed();
    world.observe(event::ExecutorUnreachable { execution_id: id("exec_1"), code: None });
    world.done(Command::Abandon { execution_id: id("exec_1") });
    for event in [
        Event::from(event::ExecutorReady { execution_id: id("exec_1") }),
        event::ExecutorUnreachable { execution_id: id("exec_1"), code: None }.into(),
        event::ExecutorError { execution_id: id("exec_1"), reason: None, code: None }.into(),
        event::ExecutorStopped { execution_id: id("exec_1") }.into(),
    ] {
        let seen = Command::Observe { event, message: None };
        assert_eq!(world.decide(seen).map(|d| d.outcome), Ok(Verdict::Already));
    }
    let agent_session_id = Some("theirs".to_owned());
    world.observe(event::AgentReady { execution_id: id("exec_1"), agent_session_id });
    assert_eq!(
        (&world.state.facts.executor, &world.state.facts.agent),
        (
            &Some(Executor {
                execution_id: id("exec_1"),
                runtime: "standalone".into(),
                status: ExecutorStatus::Stopped,
                code: None,
                reason: None,
                error_seq: None,
                promised: None,
                expects_agent: false,
            }),
            &Some(Agent { session_id: Some("theirs".into()), ..Agent::new(AgentStatus::Exited) })
        )
    );
    assert_eq!(world.named(), (Name::InterruptedStartup, Reason::Abandoned));
}

/// What turns up of an old execution says nothing about the new one's agent or its session id.
#[test]
fn an_old_executions_agent_is_not_the_new_ones() {
    let mut world = World::executed();
    let agent_session_id = Some("first".to_owned());
    world.observe(event::AgentReady { execution_id: id("exec_1"), agent_session_id });
    world.observe(event::ExecutorStopped { execution_id: id("exec_1") });
    let runtime = "docker".to_owned();
    world.observe(event::ExecutorStarting { execution_id: id("exec_2"), runtime });
    world.observe(event::ExecutorReady { execution_id: id("exec_2") });
    let agent_session_id = Some("second".to_owned());
    world.observe(event::AgentReady { execution_id: id("exec_2"), agent_session_id });
    let execution_id = || id("exec_1");
    for late in [
        Event::from(event::AgentStarting { execution_id: execution_id() }),
        event::AgentReady {
            execution_id: execution_id(),
            agent_session_id: Some("first".to_owned()),
        }
        .into(),
        event::AgentError { execution_id: execution_id(), code: None, auth_methods: Vec::new() }
            .into(),
        event::AgentExited { execution_id: execution_id(), exit_code: None, signal: None }.into(),
        event::AgentSessionCleared {
            execution_id: execution_id(),
            agent_session_id: None,
            reason: None,
        }
        .into(),
        event::ExecutorStopped { execution_id: execution_id() }.into(),
    ] {
        assert_eq!(after(&world, late.clone()).facts, world.state.facts, "{late:?}");
    }
}

/// A cancellation that comes twice, or for a run that is not the current one, stops nothing again.
#[test]
fn only_the_first_cancellation_of_the_current_run_has_an_effect() {
    let mut world = World::running();
    world.done(cancel("run_1"));
    let stop = (world.state.last_seq, Effect::Stop { run_id: id("run_1") });
    assert_eq!(world.state.pending.clone().into_iter().collect::<Vec<_>>(), [stop]);
    for run in ["run_1", "run_0"] {
        let late = event::RunCancelled { run_id: id(run), reason: None };
        assert_eq!(after(&world, late).pending, world.state.pending, "{run}");
    }
}

/// A question that arrives after its run was interrupted, dismissed or ended is not open when the
/// run, or its session, continues.
#[test]
fn late_questions_and_resumptions_reopen_nothing() {
    let over = |command| {
        let mut world = World::interrupted();
        world.done(command);
        world
    };
    let mut completed = World::running();
    completed.done(complete("run_1"));
    let waiting = event::RunWaiting {
        run_id: id("run_1"),
        wait_id: Some(id("wait_9")),
        wait_kind: WaitKind::Input,
        resume_token_id: None,
        deadline_at: None,
        reject_options: Vec::new(),
    };
    let resumed = event::RunResumed {
        run_id: id("run_1"),
        boot_id: id("boot_1"),
        wait_id: None,
        resume_token_id: None,
        rejected: false,
    };
    let dismissed = over(Command::Dismiss { run_id: id("run_1") });
    let replaced = over(start("run_2"));
    for world in [&World::interrupted(), &dismissed, &replaced, &completed] {
        assert_eq!(after(world, waiting.clone()).facts, world.state.facts);
    }
    for world in [&dismissed, &replaced, &completed] {
        assert_eq!(after(world, resumed.clone()).facts, world.state.facts);
    }
}

/// A waiting run whose token is missing is `interrupted_waiting`; also when its record names
/// nothing at all.
#[test]
fn a_wait_that_names_neither_wait_nor_token_cannot_be_answered() {
    let mut world = World::running();
    let line = json!({
        "seq": 4, "ts": "2026-02-21T10:01:25Z", "kind": "run.waiting",
        "run_id": "run_1", "wait_kind": "tool_result"
    });
    let line = line.as_object().cloned().expect("an object");
    let record = Record::from_flat(line).expect("a record");
    world.state.apply_record(&record).expect("readable");
    assert_eq!(world.named(), (Name::InterruptedWaiting, Reason::TokenMissing));
    // Anyone who may control the session still can, by the wait's id.
    let wait_id = world.status().wait.expect("a wait is shown").wait_id;
    world.done(Command::RotateToken { wait_id, fresh: fresh("rt_1") });
    assert_eq!(world.named(), (Name::Waiting, Reason::ToolResult));
}

/// A late end of the current run still counts as its end: nothing is left to be resumed.
#[test]
fn a_late_completion_ends_an_interrupted_run() {
    let world = World::interrupted();
    let state = after(
        &world,
        event::RunCompleted { run_id: id("run_1"), stop_reason: None, truncated: false },
    );
    let status = piton_core::status::derive(&state.facts, &world.dead, world.now);
    assert_eq!((status.name, status.last_outcome), (Name::Idle, Some(Outcome::Completed)));
}
