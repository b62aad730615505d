//! Starts of an agent as clients see them: one state each, what is retried, what is announced.

use crate::common::{World, id, start};
use crate::resuming::{LOADS, NATIVE, launch, ready, resuming, says, stopped};
use piton_core::decide::{Command, Probe};
use piton_core::event::{AgentWaiting, Event, ExecutorReady, ExecutorStarting};
use piton_core::reason::Reason;
use piton_core::resume::{self, Abilities, AfterFailure, Context, Strategy};
use piton_core::spool::{Fact, OpenedAs, SessionCapabilities};
use piton_core::state::State;
use piton_core::status::{Name, WireState};
use piton_core::status_cursor::StatusCursor;

/// The states that a client sees, one for each change.
fn wire_states(world: &World) -> Vec<WireState> {
    let mut trail = StatusCursor::new(State::default());
    let mut states = Vec::new();
    for record in &world.log {
        let state = trail.pass(record).after.name.wire();
        if states.last() != Some(&state) {
            states.push(state);
        }
    }
    states
}

#[test]
fn a_start_is_one_state_from_the_launch_to_the_ready_agent() {
    let mut world = World::new();
    let (execution_id, runtime) = (id("exec_1"), "standalone".to_owned());
    world.observe(ExecutorStarting { execution_id, runtime });
    resuming(&mut world, "exec_1", Strategy::None, false);
    world.observe(ExecutorReady { execution_id: id("exec_1") });
    assert!(resume::is_starting(&world.state.facts), "the agent is about to be started");
    says(&mut world, "exec_1", 1, ready(OpenedAs::New, None, LOADS));
    assert!(!resume::is_starting(&world.state.facts));
    let (waits, starts) = (WireState::WaitingForInput, WireState::Starting);
    assert_eq!(wire_states(&world), [waits, starts, waits]);

    // Another agent beside the same agentctl.
    let exited = Fact::AgentExited {
        exit_code: Some(0),
        signal: None,
        requested: true,
        stderr: String::new(),
    };
    says(&mut world, "exec_1", 3, vec![exited]);
    resuming(&mut world, "exec_1", Strategy::None, false);
    says(&mut world, "exec_1", 4, ready(OpenedAs::New, None, LOADS));
    assert_eq!(wire_states(&world), [waits, starts, waits, starts, waits]);
}

/// The order to start an agent may be carried out though its answer is lost: what the spool says of
/// the agent counts for more.
#[test]
fn a_start_without_an_answer_fails_unless_the_agent_was_started() {
    let fail = |execution: &str| Command::FailStart {
        execution_id: id(execution),
        code: piton_core::Code::AgentctlUnreachable.into(),
        message: "The request was lost".to_owned(),
    };
    let mut world = World::new();
    launch(&mut world, "exec_1");
    resuming(&mut world, "exec_1", Strategy::None, false);
    assert_eq!(world.done(fail("exec_0")), [""; 0], "another execution's start");
    assert_eq!(world.done(fail("exec_1")), ["agent.error"]);
    assert_eq!(world.status().name, Name::Error);
    // It was started after all.
    says(&mut world, "exec_1", 1, ready(OpenedAs::New, None, LOADS));
    assert_eq!(world.done(fail("exec_1")), [""; 0]);
    assert!(world.state.facts.can_receive(), "{:?}", world.state.facts.agent);
}

#[test]
fn a_workspace_without_an_agent_waits_for_input() {
    let mut world = World::new();
    launch(&mut world, "exec_1");
    assert_eq!(world.status().name.wire(), WireState::WaitingForInput);
    assert!(!resume::is_starting(&world.state.facts));
}

#[test]
fn a_new_start_is_not_the_error_of_the_one_before() {
    let mut world = World::new();
    launch(&mut world, "exec_1");
    let failed = |message: &str| Fact::AgentError {
        code: piton_core::Code::AgentExited.into(),
        message: message.to_owned(),
        auth_methods: Vec::new(),
    };
    says(&mut world, "exec_1", 1, vec![Fact::AgentStarting {}, failed("once")]);
    assert_eq!(world.status().name, Name::Error);
    let first = world.state.facts.error_seq();
    resuming(&mut world, "exec_1", Strategy::None, false);
    assert_eq!(world.status().name, Name::Starting);
    assert_eq!(world.state.facts.error_seq(), None);
    says(&mut world, "exec_1", 3, vec![Fact::AgentStarting {}, failed("twice")]);
    assert_eq!(world.status().name, Name::Error);
    assert!(world.state.facts.error_seq() > first, "the error is the new start's");
}

/// A boot that dies between the record and the start has started nothing.
#[test]
fn a_start_that_a_dead_boot_meant_to_make_is_under_way_no_more() {
    let mut world = World::new();
    launch(&mut world, "exec_1");
    resuming(&mut world, "exec_1", Strategy::None, false);
    assert_eq!(world.status().name, Name::Starting);
    let leased = piton_core::event::SessionLeased { boot_id: id("boot_2"), epoch: 2 };
    let event = piton_core::Event::from(leased);
    let change = world.state.apply(world.state.last_seq + 1, world.now, &event);
    assert_eq!(change, piton_core::fold::Change::Summary, "the index must show it");
    assert_eq!(world.status().name, Name::Idle);
}

/// The error of a load that says nothing about the id.
fn load_fails(world: &mut World, execution: &str, from: u64) {
    resuming(world, execution, Strategy::Native, false);
    let failed = Fact::AgentError {
        code: piton_core::Code::AgentError.into(),
        message: "Internal error".to_owned(),
        auth_methods: Vec::new(),
    };
    says(world, execution, from, vec![Fact::AgentStarting {}, failed]);
}

#[test]
fn a_prompt_whose_agent_cannot_be_started_is_interrupted_after_the_retries() {
    let mut world = stopped(Some("theirs"), LOADS);
    world.done(start("run_2"));
    launch(&mut world, "exec_2");
    for from in [1, 3] {
        load_fails(&mut world, "exec_2", from);
        assert_eq!(resume::after_failed_start(&world.state), AfterFailure::Retry);
    }
    load_fails(&mut world, "exec_2", 5);
    let interrupt = AfterFailure::Interrupt(id("run_2"));
    assert_eq!(resume::after_failed_start(&world.state), interrupt);
    world.done(Command::Interrupt { run_id: id("run_2"), reason: Reason::AgentStartFailed });
    assert_eq!(resume::after_failed_start(&world.state), AfterFailure::DoNothing);
    let agent = world.state.facts.agent.as_ref().unwrap();
    assert_eq!(agent.session_id.as_deref(), Some("theirs"), "the id is kept");
    // Another prompt is taken, and tries once.
    world.done(start("run_3"));
    load_fails(&mut world, "exec_2", 7);
    let interrupt = AfterFailure::Interrupt(id("run_3"));
    assert_eq!(resume::after_failed_start(&world.state), interrupt);
    // Without a prompt nothing is retried.
    world.done(Command::Interrupt { run_id: id("run_3"), reason: Reason::AgentStartFailed });
    load_fails(&mut world, "exec_2", 9);
    assert_eq!(resume::after_failed_start(&world.state), AfterFailure::DoNothing);
}

/// Wants to show: each start of an agent is announced, also one that promises what was promised
/// before, and says what the agent will know.
#[test]
fn every_start_is_recorded_with_the_context_that_it_promises() {
    let mut world = stopped(Some("theirs"), SessionCapabilities::default());
    launch(&mut world, "exec_2");
    resuming(&mut world, "exec_2", Strategy::None, false);
    resuming(&mut world, "exec_2", Strategy::None, false);
    let announced: Vec<_> = world
        .log
        .iter()
        .filter_map(|record| match record.event() {
            Ok(Event::AgentResuming(e)) if e.execution_id == id("exec_2") => {
                Some((e.context, e.context_reason))
            }
            _ => None,
        })
        .collect();
    let lost = (Some(Context::Lost), Some(Reason::NotResumable));
    assert_eq!(announced, [lost, lost]);
}

/// Wants to show: an agent that began a conversation without what was said before, and then continues
/// with that conversation, still does not know it; log and status say the same, and why.
#[test]
fn a_fresh_conversation_that_is_resumed_is_no_restored_context() {
    let resumes = SessionCapabilities { resume: true, ..SessionCapabilities::default() };
    let mut world = stopped(Some("first"), resumes);
    launch(&mut world, "exec_2");
    resuming(&mut world, "exec_2", Strategy::None, false);
    says(&mut world, "exec_2", 1, ready(OpenedAs::New, Some("second"), resumes));
    world.recover(Some(Probe::Gone));
    world.observe(piton_core::event::ExecutorStopped { execution_id: id("exec_2") });
    launch(&mut world, "exec_3");
    resuming(&mut world, "exec_3", Strategy::Native, false);
    says(&mut world, "exec_3", 1, ready(OpenedAs::Resumed, Some("second"), resumes));
    let evaluation = resume::evaluate(&world.state, Abilities::default(), false);
    assert_eq!(evaluation.context, Some(Context::Lost));
    assert_eq!(evaluation.context_reason, Some(Reason::UserRequest));
    assert!(resume::needs_choice(&world.state, &evaluation));
    let logged = world.log.iter().rev().find_map(|record| match record.event() {
        Ok(Event::AgentInitialized(e)) => Some(e.context_restored),
        _ => None,
    });
    assert_eq!(logged, Some(evaluation.context_restored), "the log says what the status says");
}

/// Wants to show: a wait for the moment at which a conversation can be loaded is a status with a
/// reason, and ends with that moment or with the start.
#[test]
fn an_agent_that_waits_to_load_says_so() {
    let mut world = stopped(Some("theirs"), SessionCapabilities::default());
    let until = world.now.after(std::time::Duration::from_secs(20));
    world.observe(AgentWaiting { until, reason: Reason::AgentWaitingToLoad });
    assert_eq!(world.named(), (Name::Starting, Reason::AgentWaitingToLoad));
    let mut later = world.clone();
    later.pass(std::time::Duration::from_secs(20));
    assert_ne!(later.status().reason, Reason::AgentWaitingToLoad);
    launch(&mut world, "exec_2");
    resuming(&mut world, "exec_2", Strategy::Native, false);
    assert!(world.state.facts.agent_waits.is_none());
}

/// Wants to show: a run whose agent could not be started leaves the user a choice; one that was only
/// interrupted is continued as it is.
#[test]
fn a_run_whose_agent_could_not_be_started_leaves_a_choice() {
    let table = [
        (Reason::AgentStartFailed, true),
        (Reason::AgentGaveUp, true),
        (Reason::ProcessExit, false),
    ];
    for (reason, chooses) in table {
        let mut world = stopped(Some("theirs"), LOADS);
        world.done(start("run_2"));
        world.done(Command::Interrupt { run_id: id("run_2"), reason });
        let evaluation = resume::evaluate(&world.state, NATIVE, false);
        assert_eq!(resume::needs_choice(&world.state, &evaluation), chooses, "{reason}");
    }
}
