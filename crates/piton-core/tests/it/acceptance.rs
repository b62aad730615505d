//! The log's acceptance criteria, derived-status rules and detection rules, each as a named test on
//! the pure core. The life of tokens is in `resume_tokens.rs`.

use std::time::Duration;

use crate::common::{WAIT, World, at, cancel, close, complete, fresh, id, resume, start};
use piton_core::decide::{Command, Message, Probe, Refusal, Verdict};
use piton_core::event::{self, Event, Outcome, WaitKind};
use piton_core::fold;
use piton_core::limits::REATTACH_GRACE;
use piton_core::reason::Reason;
use piton_core::record::Record;
use piton_core::state::{Effect, Run};
use piton_core::status::{Name, Status, WaitView};
use piton_core::token;
use serde_json::{Value, json};

/// What the last `status.derived` record says.
fn last_derived(world: &World) -> (String, Option<Reason>) {
    let records = world.log.iter().rev().map(|record| record.event().expect("readable"));
    let mut derived = records.filter_map(|event| match event {
        Event::StatusDerived(e) => Some((e.status, e.reason)),
        _ => None,
    });
    derived.next().expect("a status was derived")
}

// Acceptance: restart during an active run.

#[test]
fn restart_during_active_run_gives_exactly_one_interruption() {
    let mut world = World::running();
    world.restart("boot_2");
    // The status is right before anything was written, from the log and the dead boots alone.
    assert_eq!(world.named(), (Name::InterruptedStartup, Reason::ProcessRestart));
    assert_eq!(world.recover(None), ["run.interrupted", "status.derived"]);
    assert_eq!(last_derived(&world), ("interrupted_startup".into(), Some(Reason::ProcessRestart)));
    for boot in ["boot_2", "boot_3", "boot_4"] {
        assert_eq!(world.recover(None), [""; 0], "{boot}");
        world.restart(boot);
        assert_eq!(world.named(), (Name::InterruptedStartup, Reason::ProcessRestart));
    }
    assert_eq!(world.count("run.interrupted"), 1);
}

#[test]
fn a_run_of_the_asking_boot_is_not_interrupted_by_recovery() {
    let mut world = World::running();
    assert_eq!(world.recover(None), [""; 0]);
    assert_eq!(world.named(), (Name::Running, Reason::RunOpen));
}

#[test]
fn a_run_with_a_terminal_event_is_not_interrupted_at_startup() {
    for end in [complete("run_1"), cancel("run_1"), close(Outcome::Completed)] {
        let mut world = World::running();
        world.done(end);
        world.restart("boot_2");
        let recovered = world.decide(world.recovery(None));
        assert!(recovered.is_err() || recovered.is_ok_and(|d| d.outcome == Verdict::Already));
        assert_eq!(world.count("run.interrupted"), 0);
    }
}

/// Blueprint: “already interrupted” counts from the run's last start, resume or reattach.
#[test]
fn a_run_resumed_and_crashed_again_is_interrupted_a_second_time_once() {
    let mut world = World::running();
    for (life, boot) in (1..).zip(["boot_2", "boot_3", "boot_4"]) {
        world.restart(boot);
        world.recover(None);
        world.recover(None);
        assert_eq!(world.count("run.interrupted"), life);
        world.done(resume("run_1"));
        assert_eq!(world.named(), (Name::Running, Reason::RunOpen));
    }
}

// Acceptance: a waiting run with an expired or missing token.

#[test]
fn expired_token_is_interrupted_waiting_and_cannot_be_resumed() {
    let mut world = World::waiting();
    world.pass(WAIT);
    assert_eq!(world.named(), (Name::InterruptedWaiting, Reason::WaitTimeout));
    let answer = world.answer("rt_1", true);
    assert_eq!(world.refused(answer.clone()), Refusal::ResumeTokenExpired);
    assert_eq!(
        world.done(Command::Sweep { live: false }),
        ["token.revoked", "run.interrupted", "status.derived"]
    );
    assert_eq!(last_derived(&world), ("interrupted_waiting".into(), Some(Reason::WaitTimeout)));
    let reason = Reason::WaitTimeout;
    assert_eq!(world.token_state("rt_1"), Some(token::State::Revoked { reason }));
    let answer = world.answer("rt_1", true);
    assert_eq!(world.refused(answer), Refusal::ResumeTokenRevoked { reason });
    assert_eq!(world.done(Command::Sweep { live: false }), [""; 0]);
}

#[test]
fn one_moment_before_the_deadline_a_wait_is_answered() {
    let mut world = World::waiting();
    world.pass(WAIT.checked_sub(Duration::from_millis(1)).expect("long enough"));
    assert_eq!(world.named(), (Name::Waiting, Reason::Permission));
    assert_eq!(world.done(Command::Sweep { live: false }), [""; 0]);
    let answer = world.answer("rt_1", true);
    assert_eq!(world.done(answer), ["token.consumed", "run.resumed"]);
}

/// A log with a wait whose token was never minted, then an interruption.
#[test]
fn missing_token_is_interrupted_waiting_and_s4s_example_stays_so() {
    let lines = [
        json!({"seq":1,"ts":"2026-02-21T10:00:00Z","kind":"session.created","session_id":"sess_123"}),
        json!({"seq":2,"ts":"2026-02-21T10:01:03Z","kind":"run.started","run_id":"run_9f5","boot_id":"boot_1"}),
        json!({"seq":3,"ts":"2026-02-21T10:01:25Z","kind":"run.waiting","run_id":"run_9f5","wait_kind":"tool_result","resume_token_id":"rt_5f0"}),
        json!({"seq":4,"ts":"2026-02-21T10:02:02Z","kind":"run.interrupted","run_id":"run_9f5","reason":"process_exit"}),
        json!({"seq":5,"ts":"2026-02-21T10:03:14Z","kind":"status.derived","status":"interrupted_waiting"}),
    ];
    let log: Vec<Record> = lines
        .into_iter()
        .map(|line| {
            let Value::Object(line) = line else { panic!("not an object") };
            Record::from_flat(line).expect("a record")
        })
        .collect();
    let mut world = World::empty();
    world.state = fold::replay(&log[..3]).expect("readable");
    assert_eq!(world.named(), (Name::InterruptedWaiting, Reason::TokenMissing));
    let answer = world.answer("rt_5f0", true);
    assert_eq!(world.refused(answer), Refusal::ResumeTokenNotFound);
    world.state = fold::replay(&log).expect("readable");
    assert_eq!(world.named(), (Name::InterruptedWaiting, Reason::ProcessExit));
}

// Derived status rules and precedence, through decisions.

#[test]
fn each_of_s4s_statuses_is_derived_from_records() {
    let mut world = World::new();
    assert_eq!(world.named(), (Name::Idle, Reason::NeverRun));
    world.done(start("run_1"));
    assert_eq!(world.named(), (Name::Running, Reason::RunOpen));
    world.ask("wait_1", "rt_1");
    let view = WaitView {
        wait_id: id("wait_1"),
        kind: WaitKind::Permission,
        since_seq: 5,
        deadline_at: Some(at(1_600_000)),
    };
    let waiting = Status {
        name: Name::Waiting,
        reason: Reason::Permission,
        activity: None,
        wait: Some(view),
        last_outcome: None,
        read_only: false,
    };
    assert_eq!(world.status(), waiting);
    let mut timed_out = world.clone();
    timed_out.pass(WAIT);
    assert_eq!(timed_out.named(), (Name::InterruptedWaiting, Reason::WaitTimeout));
    world.done(complete("run_1"));
    let idle = Status {
        name: Name::Idle,
        reason: Reason::RunCompleted,
        activity: None,
        wait: None,
        last_outcome: Some(Outcome::Completed),
        read_only: false,
    };
    assert_eq!(world.status(), idle);
    world.done(start("run_2"));
    world.restart("boot_2");
    assert_eq!(world.named(), (Name::InterruptedStartup, Reason::ProcessRestart));
}

/// Blueprint: an open wait decides between the two interruptions, also at start-up.
#[test]
fn a_waiting_run_of_a_dead_boot_is_interrupted_waiting_and_its_token_revoked() {
    let mut world = World::waiting();
    world.restart("boot_2");
    assert_eq!(world.named(), (Name::InterruptedWaiting, Reason::ProcessRestart));
    assert_eq!(world.recover(None), ["token.revoked", "run.interrupted", "status.derived"]);
    assert_eq!(world.named(), (Name::InterruptedWaiting, Reason::ProcessRestart));
    assert_eq!(last_derived(&world), ("interrupted_waiting".into(), Some(Reason::ProcessRestart)));
}

// Start-up: what the executor answers decides.

#[test]
fn reattach_keeps_tokens_and_extends_deadlines() {
    let mut world = World::executed();
    world.ask("wait_1", "rt_1");
    world.pass(Duration::from_mins(1));
    world.ask("wait_2", "rt_2");
    world.restart("boot_2");
    // Down for eight minutes: one minute left for the first, two for the second.
    world.pass(Duration::from_mins(8));
    assert_eq!(world.named(), (Name::Waiting, Reason::ExecutorProbing));
    assert_eq!(world.recover(Some(Probe::Alive)), ["run.reattached", "status.derived"]);
    assert_eq!(world.named(), (Name::Waiting, Reason::Permission));
    assert_eq!(world.recover(Some(Probe::Alive)), [""; 0]);
    // The tokens' own time is over; the wait's new deadline counts.
    world.pass(REATTACH_GRACE.checked_sub(Duration::from_millis(1)).expect("long enough"));
    assert_eq!(world.done(Command::Sweep { live: true }), [""; 0]);
    let answer = world.answer("rt_1", "yes");
    assert_eq!(world.done(answer), ["token.consumed", "run.resumed"]);
    world.pass(Duration::from_millis(1));
    let answer = world.answer("rt_2", "yes");
    assert_eq!(world.refused(answer), Refusal::ResumeTokenExpired);
    assert_eq!(world.count("run.interrupted"), 0);
}

#[test]
fn reattach_never_shortens_a_deadline() {
    let mut world = World::executed();
    world.ask("wait_1", "rt_1");
    let before = world.state.facts.deadline_at();
    world.restart("boot_2");
    world.recover(Some(Probe::Alive));
    assert_eq!(world.state.facts.deadline_at(), before);
}

#[test]
fn unreachable_executor_gives_no_interruption_until_it_is_proven_dead() {
    for probe in [Some(Probe::Unreachable), None] {
        let mut world = World::executed();
        world.ask("wait_1", "rt_1");
        world.restart("boot_2");
        assert_eq!(world.recover(probe), ["executor.unreachable", "status.derived"]);
        assert_eq!(last_derived(&world), ("error".into(), Some(Reason::ExecutorUnreachable)));
        assert_eq!(world.recover(probe), [""; 0]);
        let mut back = world.clone();
        assert_eq!(
            back.recover(Some(Probe::Alive)),
            ["executor.ready", "run.reattached", "status.derived"]
        );
        assert_eq!(back.named(), (Name::Waiting, Reason::Permission));
        assert_eq!(
            world.recover(Some(Probe::Gone)),
            ["executor.stopped", "token.revoked", "run.interrupted", "status.derived"]
        );
        assert_eq!(world.named(), (Name::InterruptedWaiting, Reason::ProcessRestart));
        assert_eq!(world.recover(Some(Probe::Gone)), [""; 0]);
    }
}

/// An answer that came while the executor was unreachable made the run the new boot's; when the
/// executor turns out to be gone the run must not stay “running” for ever.
#[test]
fn a_run_answered_while_unreachable_is_interrupted_when_its_executor_is_gone() {
    let mut world = World::executed();
    world.done(Command::Done { of_seq: world.state.last_seq });
    world.ask("wait_1", "rt_1");
    world.restart("boot_2");
    world.recover(Some(Probe::Unreachable));
    let answer = world.answer("rt_1", true);
    world.done(answer);
    assert_eq!(
        world.recover(Some(Probe::Gone)),
        ["executor.stopped", "run.interrupted", "status.derived"]
    );
    assert_eq!(world.named(), (Name::InterruptedStartup, Reason::ProcessExit));
    assert_eq!(world.recover(Some(Probe::Gone)), [""; 0]);
}

/// A run that was started after the restart has not met the old executor: its end is no loss.
#[test]
fn a_run_still_to_be_begun_is_not_interrupted_by_an_old_executors_end() {
    let mut world = World::executed();
    world.done(complete("run_1"));
    world.restart("boot_2");
    world.done(start("run_2"));
    assert_eq!(world.recover(Some(Probe::Gone)), ["executor.stopped", "status.derived"]);
    assert_eq!(world.named(), (Name::Running, Reason::RunOpen));
    let message_seq = world.state.last_said.as_ref().map(|said| said.seq);
    let message_id = Some(id("msg_run_2"));
    let begin = Effect::Begin { run_id: id("run_2"), message_id, message_seq };
    assert_eq!(world.state.pending.values().collect::<Vec<_>>(), [&begin]);
}

#[test]
fn an_abandoned_executor_interrupts_its_run_once() {
    let mut world = World::executed();
    world.ask("wait_1", "rt_1");
    world.restart("boot_2");
    world.recover(Some(Probe::Unreachable));
    let abandon = || Command::Abandon { execution_id: id("exec_1") };
    assert_eq!(
        world.done(abandon()),
        ["executor.abandoned", "token.revoked", "run.interrupted", "status.derived"]
    );
    assert_eq!(world.done(abandon()), [""; 0]);
    assert_eq!(world.recover(Some(Probe::Gone)), [""; 0]);
    assert_eq!(world.named(), (Name::InterruptedWaiting, Reason::Abandoned));
}

// Interrupted waiting: sweeps and fresh messages.

/// An agent that may live is told as soon as it can be: silence interrupts nothing.
#[test]
fn a_sweep_leaves_a_run_whose_executor_is_only_silent() {
    let mut world = World::executed();
    world.ask("wait_1", "rt_1");
    assert_eq!(world.recover(Some(Probe::Unreachable)), ["executor.unreachable", "status.derived"]);
    world.pass(Duration::from_mins(10));
    assert_eq!(
        world.done(Command::Sweep { live: false }),
        ["token.expired", "wait.cancelled", "status.derived"]
    );
    let expected = Effect::CancelWait { run_id: id("run_1"), wait_id: id("wait_1") };
    assert_eq!(world.state.pending.values().last(), Some(&expected));
    assert!(world.state.facts.run.as_ref().is_some_and(Run::is_open));
    world.restart("boot_2");
    let found = world.recover(Some(Probe::Gone));
    assert_eq!(found.iter().filter(|kind| *kind == "run.interrupted").count(), 1, "{found:?}");
}

#[test]
fn a_live_sweep_cancels_the_wait_and_the_run_continues() {
    let mut world = World::executed();
    world.ask("wait_1", "rt_1");
    world.pass(Duration::from_mins(5));
    world.ask("wait_2", "rt_2");
    world.pass(Duration::from_mins(5));
    assert_eq!(world.named(), (Name::Waiting, Reason::WaitTimeout));
    assert_eq!(
        world.done(Command::Sweep { live: true }),
        ["token.expired", "wait.cancelled", "status.derived"]
    );
    assert_eq!(world.named(), (Name::Running, Reason::RunOpen));
    let expected = Effect::CancelWait { run_id: id("run_1"), wait_id: id("wait_1") };
    assert_eq!(world.state.pending.values().last(), Some(&expected));
    assert_eq!(world.done(Command::Sweep { live: true }), [""; 0]);
    assert_eq!(world.token_state("rt_1"), Some(token::State::Expired));
    assert_eq!(world.token_state("rt_2"), Some(token::State::Active), "the other goes on");
    let answer = world.answer("rt_1", true);
    assert_eq!(world.refused(answer), Refusal::ResumeTokenExpired);
    assert_eq!(world.count("run.interrupted"), 0);
}

#[test]
fn a_fresh_message_while_waiting_supersedes_the_run_and_revokes_its_tokens() {
    let mut world = World::waiting();
    assert_eq!(
        world.done(start("run_2")),
        ["token.revoked", "run.cancelled", "message.user", "run.started"]
    );
    assert_eq!(world.named(), (Name::Running, Reason::RunOpen));
    let reason = Reason::Superseded;
    let answer = world.answer("rt_1", true);
    assert_eq!(world.refused(answer), Refusal::ResumeTokenRevoked { reason });
    let stop = Effect::Stop { run_id: id("run_1") };
    let message_seq = world.state.last_said.as_ref().map(|said| said.seq);
    let message_id = Some(id("msg_run_2"));
    let begin = Effect::Begin { run_id: id("run_2"), message_id, message_seq };
    assert_eq!(world.state.pending.values().collect::<Vec<_>>(), [&stop, &begin]);
}

#[test]
fn a_fresh_message_while_the_agent_works_is_refused() {
    let mut world = World::running();
    let message = Message { message_id: id("msg_2"), content: "and?".into() };
    let command = Command::Start { run_id: id("run_2"), message: Some(message) };
    assert_eq!(world.refused(command), Refusal::RunInProgress { run: id("run_1") });
}

// Several waits.

#[test]
fn one_of_several_waits_is_answered_and_the_run_blocks_again() {
    let mut world = World::waiting();
    world.ask("wait_2", "rt_2");
    let answer = world.answer("rt_1", "yes");
    world.done(answer);
    assert_eq!(world.named(), (Name::Running, Reason::RunOpen));
    assert_eq!(world.block("wait_2"), ["run.waiting"], "nothing new is asked or minted");
    assert_eq!(world.named(), (Name::Waiting, Reason::Permission));
    assert_eq!(world.ask("wait_2", "rt_3"), [""; 0]);
    let answer = world.answer("rt_2", "yes");
    world.done(answer);
    assert_eq!(world.named(), (Name::Running, Reason::RunOpen));
    assert_eq!(world.token_state("rt_3"), None);
}

// The ways out of an interruption.

#[test]
fn an_interruption_lasts_until_resumed_dismissed_or_replaced() {
    let mut resumed = World::interrupted();
    assert_eq!(resumed.named(), (Name::InterruptedStartup, Reason::ProcessExit));
    assert_eq!(resumed.done(resume("run_1")), ["run.resumed"]);
    assert_eq!(resumed.named(), (Name::Running, Reason::RunOpen));
    let mut dismissed = World::interrupted();
    let dismiss = || Command::Dismiss { run_id: id("run_1") };
    assert_eq!(dismissed.done(dismiss()), ["run.dismissed"]);
    assert_eq!(dismissed.named(), (Name::Idle, Reason::RunDismissed));
    assert_eq!(dismissed.done(dismiss()), [""; 0]);
    let refusal = Refusal::RunNotInterrupted { run: id("run_1") };
    assert_eq!(dismissed.refused(resume("run_1")), refusal);
    let mut replaced = World::interrupted();
    assert_eq!(replaced.done(start("run_2")), ["message.user", "run.started"]);
    assert_eq!(replaced.named(), (Name::Running, Reason::RunOpen));
}

#[test]
fn a_paused_run_survives_a_restart_as_paused() {
    let mut world = World::running();
    world.done(Command::Pause { run_id: id("run_1") });
    world.restart("boot_2");
    assert_eq!(world.recover(None), [""; 0]);
    assert_eq!(world.named(), (Name::Paused, Reason::Paused));
    world.done(resume("run_1"));
    assert_eq!(world.named(), (Name::Running, Reason::RunOpen));
    world.restart("boot_3");
    assert_eq!(world.recover(None), ["run.interrupted", "status.derived"]);
}

/// A kind that must be understood makes the session read-only, whatever is asked.
#[test]
fn behind_an_unknown_critical_kind_nothing_is_written() {
    let mut world = World::waiting();
    let unknown = event::Unknown { kind: "graph.node".into(), critical: true };
    world.state.apply(world.state.last_seq + 1, world.now, &Event::Unknown(unknown));
    assert!(world.status().read_only);
    let read_only = Refusal::SessionReadOnly { kind: "graph.node".into() };
    for command in [
        world.answer("rt_1", true),
        Command::Sweep { live: false },
        world.recovery(None),
        close(Outcome::Completed),
        Command::Done { of_seq: 3 },
        Command::RotateToken { wait_id: id("wait_1"), fresh: fresh("rt_2") },
    ] {
        assert_eq!(world.refused(command), read_only);
    }
}
