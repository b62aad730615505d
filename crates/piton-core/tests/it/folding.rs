//! What single records make of a state: leases, agents, what a list of sessions shows, and when
//! someone has to look.

use std::time::Duration;

use crate::common::{WAIT, World, cancel, close, complete, id, start};
use piton_core::decide::Command;
use piton_core::event::{self, Event, Outcome, WaitKind};
use piton_core::fold::Change;
use piton_core::limits::wait_default;
use piton_core::reason::Reason;
use piton_core::state::{Agent, AgentStatus, Info, Lease, Phase, State};
use piton_core::time::Timestamp;

fn applied(world: &mut World, event: impl Into<Event>) -> Change {
    world.state.apply(world.state.last_seq + 1, world.now, &event.into())
}

/// The last lease counts; only its own release ends it.
#[test]
fn a_lease_is_ended_by_its_own_release_only() {
    let mut world = World::new();
    let lease = |owner: Option<&str>, epoch| Lease { owner: owner.map(id), epoch };
    assert_eq!(world.state.lease, lease(None, 0));
    applied(&mut world, event::SessionLeased { boot_id: id("boot_1"), epoch: 1 });
    applied(&mut world, event::SessionLeased { boot_id: id("boot_2"), epoch: 2 });
    assert_eq!(world.state.lease, lease(Some("boot_2"), 2));
    applied(&mut world, event::SessionReleased { boot_id: id("boot_1"), epoch: 1 });
    assert_eq!(world.state.lease, lease(Some("boot_2"), 2));
    applied(&mut world, event::SessionReleased { boot_id: id("boot_2"), epoch: 2 });
    assert_eq!(world.state.lease, lease(None, 2));
}

/// Law 9: an agent's session id outlives its executions, a start without one, and errors; it goes
/// only when the agent disowns it.
#[test]
fn an_agents_session_id_is_kept_until_the_agent_disowns_it() {
    let mut world = World::executed();
    let ready = |execution: &str, session: Option<&str>| event::AgentReady {
        execution_id: id(execution),
        agent_session_id: session.map(ToOwned::to_owned),
    };
    let agent = |status, session: Option<&str>| {
        let error = (status == AgentStatus::Error).then_some(Reason::AgentError);
        let (session_id, error_seq) = (session.map(ToOwned::to_owned), error.map(|_| 7));
        Some(Agent { session_id, error, error_seq, ..Agent::new(status) })
    };
    world.observe(ready("exec_1", Some("theirs")));
    world.observe(event::AgentError {
        execution_id: id("exec_1"),
        code: None,
        auth_methods: Vec::new(),
    });
    assert_eq!(world.state.facts.agent, agent(AgentStatus::Error, Some("theirs")));
    world.observe(event::ExecutorStopped { execution_id: id("exec_1") });
    let runtime = "docker".to_owned();
    world.observe(event::ExecutorStarting { execution_id: id("exec_2"), runtime });
    assert_eq!(world.state.facts.agent, agent(AgentStatus::Exited, Some("theirs")));
    world.observe(ready("exec_2", None));
    assert_eq!(world.state.facts.agent, agent(AgentStatus::Ready, Some("theirs")));
    world.observe(event::AgentSessionCleared {
        execution_id: id("exec_2"),
        agent_session_id: None,
        reason: None,
    });
    assert_eq!(world.state.facts.agent, agent(AgentStatus::Ready, None));
}

/// A list of sessions moves with what happens to the session, not with every piece of text.
#[test]
fn activity_is_what_a_list_shows() {
    let mut world = World::new();
    let created = world.now;
    let info = |active_at: Timestamp| {
        Some(Info {
            session_id: id("sess_1"),
            title: Some("Fix flaky test".into()),
            task_id: None,
            working_dir: None,
            provider: None,
            agent_profile_id: None,
            is_adopted: false,
            created_at: created,
            active_at,
        })
    };
    assert_eq!(world.state.info, info(created));
    world.pass(Duration::from_secs(1));
    let run_id = id("run_1");
    let started = event::RunStarted { run_id, boot_id: id("boot_1"), message_id: None };
    assert_eq!(applied(&mut world, started), Change::Summary);
    let active = world.now;
    assert_eq!(world.state.info, info(active));
    world.pass(Duration::from_secs(1));
    let delta = event::MessageDelta {
        message_id: id("msg_1"),
        run_id: None,
        offset: 0,
        length: 1,
        channel: piton_core::spool::Channel::Answer,
        sent: None,
    };
    assert_eq!(applied(&mut world, delta), Change::Inner);
    assert_eq!(applied(&mut world, event::EffectDone { of_seq: 2 }), Change::Inner);
    assert_eq!((&world.state.info, world.state.updated_at), (&info(active), Some(world.now)));
    let summary = world.state.summary().expect("it was made");
    assert_eq!((Some(summary.info), summary.facts), (info(active), world.state.facts));
    assert_eq!(State::default().summary(), None);
}

/// Recovery looks at sessions in which something may belong to a dead boot, and at no others.
#[test]
fn recovery_looks_where_something_may_live() {
    let after = |mut world: World, command| {
        world.done(command);
        world
    };
    let stopped = || {
        let event = event::ExecutorStopped { execution_id: id("exec_1") }.into();
        Command::Observe { event, message: None }
    };
    for (needs, world) in [
        (false, Box::new(World::new())),
        (true, Box::new(World::running())),
        (true, Box::new(World::waiting())),
        (false, Box::new(World::interrupted())),
        (false, Box::new(after(World::running(), Command::Pause { run_id: id("run_1") }))),
        (false, Box::new(after(World::running(), complete("run_1")))),
        (true, Box::new(after(World::executed(), complete("run_1")))),
        (false, Box::new(after(after(World::executed(), complete("run_1")), stopped()))),
        (true, Box::new(after(World::executed(), close(Outcome::Completed)))),
        (false, Box::new(after(World::running(), close(Outcome::Completed)))),
    ] {
        assert_eq!(world.state.facts.needs_recovery(), needs, "{:?}", world.state.facts);
    }
}

/// The next sweep is due at the first deadline of an open run.
#[test]
fn the_first_deadline_is_the_next() {
    let mut world = World::waiting();
    let first = world.now.after(WAIT);
    world.pass(Duration::from_mins(1));
    world.ask("wait_2", "rt_2");
    assert_eq!(world.state.facts.deadline_at(), Some(first));
    let answer = world.answer("rt_1", true);
    world.done(answer);
    assert_eq!(world.state.facts.deadline_at(), Some(first.after(Duration::from_mins(1))));
    world.done(cancel("run_1"));
    assert_eq!(world.state.facts.deadline_at(), None);
}

/// Nothing continues in a closed session, and a run that had ended keeps its end.
#[test]
fn closing_ends_the_run_that_has_not_ended() {
    let phase = |world: World| world.state.facts.run.map(|run| run.phase);
    let mut fresh = World::new();
    assert_eq!(fresh.done(close(Outcome::Failed)), ["session.closed"]);
    let mut running = World::running();
    assert_eq!(running.done(close(Outcome::Failed)), ["run.cancelled", "session.closed"]);
    assert_eq!(phase(running), Some(Phase::Ended(Outcome::Cancelled)));
    let mut interrupted = World::interrupted();
    assert_eq!(interrupted.done(close(Outcome::Failed)), ["run.cancelled", "session.closed"]);
    let mut completed = World::running();
    completed.done(complete("run_1"));
    assert_eq!(completed.done(close(Outcome::Failed)), ["session.closed"]);
    assert_eq!(phase(completed), Some(Phase::Ended(Outcome::Completed)));
    let mut dismissed = World::interrupted();
    dismissed.done(Command::Dismiss { run_id: id("run_1") });
    assert_eq!(dismissed.done(close(Outcome::Failed)), ["session.closed"]);
}

/// The title is what the last record says, also of a closed session; the same title again is no
/// change.
#[test]
fn a_session_has_the_title_of_its_last_rename() {
    let mut world = World::new();
    let title = |world: &World| world.state.info.as_ref().and_then(|info| info.title.clone());
    let rename = |title: Option<&str>| Command::Rename { title: title.map(ToOwned::to_owned) };
    assert_eq!(world.done(rename(Some("One"))), ["session.renamed"]);
    assert_eq!(world.done(rename(Some("One"))), [""; 0]);
    assert_eq!(title(&world).as_deref(), Some("One"));
    world.done(close(Outcome::Completed));
    assert_eq!(world.done(rename(None)), ["session.renamed"]);
    assert_eq!(title(&world), None);
}

/// A run may be started without a message, and names none.
#[test]
fn a_run_without_a_message_has_no_message_record() {
    let mut world = World::new();
    let command = Command::Start { run_id: id("run_1"), message: None };
    assert_eq!(world.done(command), ["run.started"]);
    assert_eq!(world.done(start("run_1")), [""; 0], "it is the same run");
}

/// The blueprint's numbers.
#[test]
fn waits_have_the_blueprints_time() {
    let week = Duration::from_hours(7 * 24);
    for (kind, expected) in [
        (WaitKind::ToolResult, Duration::from_mins(10)),
        (WaitKind::Permission, week),
        (WaitKind::Input, week),
        (WaitKind::Human, week),
    ] {
        assert_eq!(wait_default(kind), expected, "{kind:?}");
    }
}
