//! The supervisor's table, row by row: what the log says, what is known of the execution, what comes
//! next. `docs/internals/supervisor.md` has the same rows.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::{World, close, id, start};
use piton_core::decide::{Command, Probe, Refusal};
use piton_core::event::{AgentExited, AgentReady, ExecutorReady, ExecutorStarting, Outcome};
use piton_core::resume::{self, Abilities, Plan, Policy, SkipReason, StartTrigger};
use piton_core::supervise::{self, ExecutionContact, LeaseHolder, LiveFacts, Step};

const ALIVE: ExecutionContact = ExecutionContact::Alive { rests: false };
const RESTS: ExecutionContact = ExecutionContact::Alive { rests: true };
const SILENT: ExecutionContact = ExecutionContact::Silent { for_long: false };
const SILENT_LONG: ExecutionContact = ExecutionContact::Silent { for_long: true };
const LINKS: [ExecutionContact; 8] = [
    ExecutionContact::Unknown,
    ExecutionContact::Launching,
    ALIVE,
    RESTS,
    ExecutionContact::Gone,
    SILENT,
    SILENT_LONG,
    ExecutionContact::Connected,
];

/// What the log says of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Log {
    /// No execution.
    None,
    /// An execution that is being started.
    Starting,
    Ready,
    /// The same, with a run of a boot that has died.
    ReadyOrphaned,
    Unreachable,
    Stopped,
    /// No execution, and a run of a boot that has died.
    Orphaned,
    /// A closed session whose execution is ready.
    Closed,
}

fn world(log: Log) -> World {
    let mut world = World::new();
    let execution_id = || id("exec_1");
    let observed = |event| Command::Observe { event, message: None };
    if !matches!(log, Log::None | Log::Orphaned) {
        let starting = ExecutorStarting { execution_id: execution_id(), runtime: "sim".into() };
        world.done(observed(starting.into()));
    }
    if !matches!(log, Log::None | Log::Orphaned | Log::Starting) {
        world.done(observed(ExecutorReady { execution_id: execution_id() }.into()));
    }
    match log {
        Log::None | Log::Starting | Log::Ready => {}
        Log::ReadyOrphaned | Log::Orphaned => {
            world.done(start("run_1"));
            world.restart("boot_2");
        }
        Log::Unreachable => drop(world.recover(Some(Probe::Unreachable))),
        Log::Stopped => drop(world.recover(Some(Probe::Gone))),
        Log::Closed => drop(world.done(close(Outcome::Completed))),
    }
    world
}

fn known(world: &World, owner: LeaseHolder, link: ExecutionContact) -> LiveFacts {
    let dead = world.dead.clone();
    let (is_awaited, is_given_up, is_idle, is_stopping) = (false, false, false, false);
    LiveFacts { owner, dead, link, is_awaited, is_given_up, start: None, is_idle, is_stopping }
}

fn next(log: Log, owner: LeaseHolder, link: ExecutionContact) -> Step {
    let world = world(log);
    supervise::next(&world.state.facts, &known(&world, owner, link))
}

/// Without a caller that waits, and without a start that is wanted.
#[test]
fn the_table() {
    use LeaseHolder::{NoLiveBoot, Other, Ours};
    use Log::{Closed, None as NoExecution, Orphaned, Ready, ReadyOrphaned, Starting, Stopped};
    let unreachable = Step::Settle(Some(Probe::Unreachable));
    let alive = Step::Settle(Some(Probe::Alive));
    let gone = Step::Settle(Some(Probe::Gone));
    let rows = [
        // No execution may live: there is nothing to ask, and at most a run to interrupt.
        (NoExecution, Ours, ExecutionContact::Unknown, Step::End),
        (NoExecution, NoLiveBoot, ExecutionContact::Unknown, Step::End),
        (Stopped, Ours, ExecutionContact::Unknown, Step::End),
        (Orphaned, NoLiveBoot, ExecutionContact::Unknown, Step::Settle(None)),
        (Orphaned, Ours, ExecutionContact::Unknown, Step::Settle(None)),
        // What is being launched here is not asked.
        (Starting, Ours, ExecutionContact::Launching, Step::Wait),
        // What is not known is asked.
        (Starting, Ours, ExecutionContact::Unknown, Step::Probe),
        (Ready, Ours, ExecutionContact::Unknown, Step::Probe),
        (Ready, NoLiveBoot, ExecutionContact::Unknown, Step::Probe),
        (Log::Unreachable, Ours, ExecutionContact::Unknown, Step::Probe),
        (Closed, Ours, ExecutionContact::Unknown, Step::Probe),
        // Gone.
        (Ready, Ours, ExecutionContact::Gone, gone.clone()),
        (Ready, NoLiveBoot, ExecutionContact::Gone, gone.clone()),
        (Closed, Ours, ExecutionContact::Gone, gone.clone()),
        (Log::Unreachable, Ours, ExecutionContact::Gone, gone),
        // Silent: another boot's is called unreachable at once, ours when it lasts.
        (Ready, Ours, SILENT, Step::Wait),
        (Ready, Ours, SILENT_LONG, unreachable.clone()),
        (Ready, NoLiveBoot, SILENT, unreachable),
        (Log::Unreachable, Ours, SILENT_LONG, Step::Wait),
        (Log::Unreachable, NoLiveBoot, SILENT_LONG, Step::Wait),
        (Closed, Ours, SILENT, Step::Wait),
        // Alive: another boot's is taken over first, ours is connected.
        (Ready, NoLiveBoot, ALIVE, alive.clone()),
        (Ready, NoLiveBoot, RESTS, alive.clone()),
        (Closed, NoLiveBoot, ALIVE, alive.clone()),
        (Ready, NoLiveBoot, ExecutionContact::Connected, alive.clone()),
        (Ready, Ours, ALIVE, Step::Connect),
        (Log::Unreachable, Ours, ALIVE, Step::Connect),
        (Ready, Ours, RESTS, Step::Wait),
        (Closed, Ours, ALIVE, Step::StopExecution),
        (Closed, Ours, RESTS, Step::Wait),
        // Connected: the log says so, then it is followed.
        (Starting, Ours, ExecutionContact::Connected, alive.clone()),
        (Log::Unreachable, Ours, ExecutionContact::Connected, alive.clone()),
        (ReadyOrphaned, Ours, ExecutionContact::Connected, alive),
        (Ready, Ours, ExecutionContact::Connected, Step::Follow),
        (Closed, Ours, ExecutionContact::Connected, Step::StopExecution),
        // Another boot's.
        (Ready, Other, ExecutionContact::Unknown, Step::End),
        (Ready, Other, ExecutionContact::Connected, Step::End),
        (Orphaned, Other, ExecutionContact::Unknown, Step::End),
    ];
    for (log, owner, link, step) in rows {
        assert_eq!(next(log, owner, link), step, "{log:?}, {owner:?}, {link:?}");
    }
}

/// A caller that waits is answered at once: silence is written down before it has lasted.
#[test]
fn who_waits_is_not_kept_waiting_by_silence() {
    let world = world(Log::Ready);
    let known = LiveFacts { is_awaited: true, ..known(&world, LeaseHolder::Ours, SILENT) };
    assert_eq!(supervise::next(&world.state.facts, &known), Step::Settle(Some(Probe::Unreachable)));
}

/// What a dead boot left is settled before an agent is started; what is only silent or rests is not
/// waited for, since the plan says that no agent is started beside it.
#[test]
fn a_start_comes_after_what_is_to_be_settled() {
    let trigger = StartTrigger::Open;
    for (log, owner, link, starts) in [
        (Log::None, LeaseHolder::Ours, ExecutionContact::Unknown, true),
        (Log::Stopped, LeaseHolder::Ours, ExecutionContact::Unknown, true),
        (Log::Orphaned, LeaseHolder::NoLiveBoot, ExecutionContact::Unknown, false),
        (Log::Ready, LeaseHolder::NoLiveBoot, ExecutionContact::Unknown, false),
        (Log::Ready, LeaseHolder::NoLiveBoot, ALIVE, false),
        (Log::Ready, LeaseHolder::Ours, ALIVE, false),
        (Log::Ready, LeaseHolder::Ours, RESTS, true),
        (Log::Ready, LeaseHolder::Ours, ExecutionContact::Connected, true),
        (Log::Ready, LeaseHolder::Ours, ExecutionContact::Gone, false),
        (Log::Unreachable, LeaseHolder::Ours, SILENT, true),
        (Log::Starting, LeaseHolder::Ours, ExecutionContact::Launching, false),
        (Log::Ready, LeaseHolder::Other, ExecutionContact::Unknown, true),
    ] {
        let world = world(log);
        let known = LiveFacts { start: Some(trigger), ..known(&world, owner, link) };
        let step = supervise::next(&world.state.facts, &known);
        assert_eq!(step == Step::Start(trigger), starts, "{log:?}, {owner:?}, {link:?}: {step:?}");
    }
}

/// Whatever is known, settling it leads on: no step asks for itself again once its records are there.
#[test]
fn settling_comes_to_an_end() {
    for log in [Log::Starting, Log::Ready, Log::ReadyOrphaned, Log::Unreachable, Log::Closed] {
        for link in LINKS {
            let mut world = world(log);
            let mut owner = LeaseHolder::NoLiveBoot;
            for _ in 0..4 {
                let known = known(&world, owner, link);
                let step = supervise::next(&world.state.facts, &known);
                let Step::Settle(probe) = step else { break };
                let (dead, takes_over) = (world.dead.clone(), owner != LeaseHolder::Ours);
                let recorded = world.done(Command::Recover { dead, probe, takes_over });
                assert!(!recorded.is_empty(), "{log:?}, {link:?}: nothing is written");
                // Anyone who writes takes the lease with it.
                owner = LeaseHolder::Ours;
            }
            let known = known(&world, owner, link);
            let step = supervise::next(&world.state.facts, &known);
            assert!(!matches!(step, Step::Settle(_)), "{log:?}, {link:?}: {step:?}");
        }
    }
}

/// A run that no executor can be asked about is the writer's own to interrupt; any other is not.
#[test]
fn an_orphaned_run_needs_no_executor() {
    for log in [Log::None, Log::Ready, Log::ReadyOrphaned, Log::Closed, Log::Stopped] {
        let world = world(log);
        assert!(supervise::orphaned_run(&world.state.facts, &world.dead).is_none(), "{log:?}");
    }
    let world = world(Log::Orphaned);
    assert!(supervise::orphaned_run(&world.state.facts, &BTreeSet::new()).is_none());
    assert!(supervise::orphaned_run(&world.state.facts, &world.dead).is_some());
}

/// A surviving execution that is taken over is recorded as ready again: clients that wait for it learn
/// that it was found. One of our own is not.
#[test]
fn a_surviving_execution_is_recorded_when_it_is_taken_over() {
    let recover = |world: &mut World, takes_over| {
        let (dead, probe) = (world.dead.clone(), Some(Probe::Alive));
        world.done(Command::Recover { dead, probe, takes_over })
    };
    let mut idle = world(Log::Ready);
    assert_eq!(recover(&mut idle, false), [""; 0]);
    assert_eq!(recover(&mut idle, true), ["executor.ready", "status.derived"]);
    let mut running = world(Log::ReadyOrphaned);
    let recorded = recover(&mut running, true);
    assert_eq!(recorded, ["executor.ready", "run.reattached", "status.derived"]);
}

#[test]
fn delays_double_from_half_a_second_to_half_a_minute() {
    let longest = |failures| supervise::reconnect_delay(failures, u32::MAX);
    let shortest = |failures| supervise::reconnect_delay(failures, 0);
    let seconds = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0];
    for (failures, seconds) in (0..).zip(seconds) {
        assert_eq!(longest(failures), Duration::from_secs_f64(seconds), "{failures}");
        assert_eq!(shortest(failures), Duration::from_secs_f64(seconds / 2.0), "{failures}");
    }
    assert_eq!(longest(u32::MAX), Duration::from_secs(30));
}

/// A session whose agent is ready and has nothing to do.
fn with_agent() -> World {
    let mut world = world(Log::Ready);
    let event = AgentReady { execution_id: id("exec_1"), agent_session_id: None };
    world.done(Command::Observe { event: event.into(), message: None });
    world
}

fn end_idle(idle_for: Duration) -> Command {
    Command::EndIdleAgent { execution_id: id("exec_1"), idle_for }
}

/// An agent that nothing needs is ended: first that is decided, then it is done. A caller that wants an agent
/// comes before the decision, and after it.
#[test]
fn an_idle_agent_is_ended() {
    let mut world = with_agent();
    let idle = LiveFacts {
        is_idle: true,
        ..known(&world, LeaseHolder::Ours, ExecutionContact::Connected)
    };
    let next = |world: &World, known: &LiveFacts| supervise::next(&world.state.facts, known);
    assert_eq!(next(&world, &idle), Step::EndIdleAgent);
    let wanted = LiveFacts { start: Some(StartTrigger::Prompt), ..idle.clone() };
    assert_eq!(next(&world, &wanted), Step::Start(StartTrigger::Prompt));
    assert_eq!(world.done(end_idle(Duration::ZERO)), ["agent.ending"]);
    assert!(!world.state.facts.can_receive(), "it is given nothing any more");
    assert_eq!(next(&world, &idle), Step::StopAgent);
    assert_eq!(next(&world, &wanted), Step::StopAgent);
    // While it is being ended, a start that is wanted waits for its end.
    let stopping = LiveFacts { is_stopping: true, ..idle.clone() };
    assert_eq!(next(&world, &stopping), Step::Follow);
    let stopping = LiveFacts { is_stopping: true, ..wanted.clone() };
    assert_eq!(next(&world, &stopping), Step::Start(StartTrigger::Prompt));
    let plan = |world: &World| {
        let (abilities, policy) = (Abilities::default(), Policy::default());
        resume::plan(&world.state, abilities, policy, StartTrigger::Prompt)
    };
    assert_eq!(plan(&world), Plan::Skip(SkipReason::Ending));
    let event = AgentExited { execution_id: id("exec_1"), exit_code: None, signal: None };
    world.done(Command::Observe { event: event.into(), message: None });
    assert_eq!(next(&world, &wanted), Step::Start(StartTrigger::Prompt));
    assert_eq!(supervise::idle_since(&world.state), None);
}

/// What needs the agent keeps it: an open run, a prompt that came meanwhile, time that has not passed.
#[test]
fn an_agent_that_something_needs_is_not_ended() {
    let mut world = with_agent();
    let before = world.state.last_seq;
    assert!(world.done(end_idle(Duration::from_hours(1))).is_empty());
    assert!(supervise::idle_since(&world.state).is_some());
    world.done(start("run_1"));
    assert_eq!(supervise::idle_since(&world.state), None);
    assert!(world.done(end_idle(Duration::ZERO)).is_empty());
    assert!(world.state.facts.can_receive() && world.state.last_seq > before);
}

/// A user's stop is refused while a run is open, and is in the log before anything is ended.
#[test]
fn an_agent_that_a_user_stops_is_given_nothing_any_more() {
    let mut world = with_agent();
    let stop = || Command::EndAgent { execution_id: id("exec_1") };
    world.done(start("run_1"));
    assert!(matches!(world.refused(stop()), Refusal::RunInProgress { .. }));
    world.done(Command::Complete { run_id: id("run_1") });
    assert_eq!(world.done(stop()), ["agent.ending"]);
    assert!(!world.state.facts.can_receive(), "it is given nothing any more");
    assert!(world.done(stop()).is_empty(), "once");
}
