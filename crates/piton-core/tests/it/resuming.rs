//! How an agent comes back: the tables row by row, and what its next prompt carries.

use crate::common::{World, cancel, complete, id, resume, start};
use piton_core::decide::{Command, Import, Prepare, Probe};
use piton_core::event::{
    AgentExited, AgentResuming, ExecutorError, ExecutorReady, ExecutorStarting,
    ExecutorUnreachable, Outcome,
};
use piton_core::reason::Reason;
use piton_core::resume::{
    self, Abilities, AfterFailure, AgentRestart, ContinueRun, Plan, Policy, SkipReason,
    StartContext, StartPlan, StartTrigger, Strategy,
};
use piton_core::spool::{Entry, Fact, OpenedAs, SessionCapabilities};
use piton_core::state::{Effect, State};
use piton_core::status::{Name, WireState};

pub(crate) const NATIVE: Abilities =
    Abilities { native: true, command_line: false, history: false };
const COMMAND_LINE: Abilities = Abilities { native: false, command_line: true, history: false };
const HISTORY: Abilities = Abilities { native: false, command_line: false, history: true };
const NEITHER: Abilities = Abilities { native: false, command_line: false, history: false };

pub(crate) const LOADS: SessionCapabilities = SessionCapabilities {
    load: true,
    resume: false,
    list: false,
    close: false,
    delete: false,
    fork: false,
    prompt: piton_core::content::PromptCapabilities {
        image: false,
        audio: false,
        embedded_context: false,
    },
};

pub(crate) fn launch(world: &mut World, execution: &str) {
    let (execution_id, runtime) = (id(execution), "standalone".to_owned());
    world.observe(ExecutorStarting { execution_id, runtime });
    world.observe(ExecutorReady { execution_id: id(execution) });
}

pub(crate) fn resuming(world: &mut World, execution: &str, strategy: Strategy, history: bool) {
    let (execution_id, trigger) = (id(execution), StartTrigger::Manual);
    world.observe(AgentResuming {
        execution_id,
        trigger,
        strategy,
        history,
        interruption_summary: true,
        context: None,
        context_reason: None,
    });
}

/// Facts of an execution's spool, from a position on.
pub(crate) fn says(world: &mut World, execution: &str, from: u64, facts: Vec<Fact>) -> Vec<String> {
    let now = world.now;
    let entries = facts.into_iter().zip(from..).map(|(fact, pos)| {
        let run_id = match fact {
            Fact::AgentStarting {} | Fact::AgentReady { .. } | Fact::CommandAccepted { .. } => None,
            _ => world.state.facts.run.as_ref().map(|run| run.run_id.clone()),
        };
        Entry { v: 1, pos, at: now, run_id, fact, raw: None }
    });
    let import = Import {
        execution_id: id(execution),
        spool_id: format!("spool of {execution}"),
        entries: entries.collect(),
        lost: None,
        damage: None,
        masked: std::collections::BTreeMap::new(),
        fresh: Vec::new(),
        rules: std::sync::Arc::default(),
    };
    world.done(Command::Import(import))
}

pub(crate) fn ready(
    opened_as: OpenedAs,
    session: Option<&str>,
    capabilities: SessionCapabilities,
) -> Vec<Fact> {
    let ready = Fact::AgentReady {
        opened_as,
        agent_session_id: session.map(str::to_owned),
        requested_session_id: None,
        agent: None,
        capabilities,
    };
    vec![Fact::AgentStarting {}, ready]
}

fn given(seq: u64) -> Fact {
    Fact::CommandAccepted { command_id: format!("sess_1/{seq}"), command: "prompt".into() }
}

fn turn(seq: u64, answer: &str) -> Vec<Fact> {
    let text = Fact::Text {
        message_id: id(&format!("msg_{seq}")),
        channel: piton_core::spool::Channel::Answer,
        offset: 0,
        text: answer.to_owned(),
    };
    vec![given(seq), Fact::TurnStarted {}, text]
}

/// A session whose agent was given `run_1` and finished it, and runs no more.
pub(crate) fn stopped(session: Option<&str>, capabilities: SessionCapabilities) -> World {
    let mut world = World::new();
    launch(&mut world, "exec_1");
    says(&mut world, "exec_1", 1, ready(OpenedAs::New, session, capabilities));
    world.done(start("run_1"));
    let seq = world.state.last_seq;
    says(&mut world, "exec_1", 3, turn(seq, "done"));
    says(&mut world, "exec_1", 6, vec![Fact::TurnEnded { stop_reason: "end_turn".into() }]);
    world.recover(Some(Probe::Gone));
    world
}

/// The same, killed in the middle of the turn.
fn killed(session: Option<&str>, capabilities: SessionCapabilities) -> World {
    let mut world = World::new();
    launch(&mut world, "exec_1");
    says(&mut world, "exec_1", 1, ready(OpenedAs::New, session, capabilities));
    world.done(start("run_1"));
    let seq = world.state.last_seq;
    says(&mut world, "exec_1", 3, turn(seq, "half an ans"));
    world.recover(Some(Probe::Gone));
    world
}

/// The same, with another agent that began without its conversation and is told of it, in the middle of `run_2`.
fn with_history_injected() -> World {
    let mut world = stopped(Some("theirs"), LOADS);
    launch(&mut world, "exec_2");
    resuming(&mut world, "exec_2", Strategy::History, true);
    says(&mut world, "exec_2", 1, ready(OpenedAs::New, Some("new"), LOADS));
    world.done(start("run_2"));
    let of_seq = world.state.last_seq;
    let (execution_id, prompt) = (id("exec_2"), "All of it".to_owned());
    let prepare = Prepare { of_seq, execution_id, history: true, note: false, prompt };
    world.done(Command::Prepare(prepare));
    says(&mut world, "exec_2", 3, turn(of_seq, "half an ans"));
    world
}

fn policy(agent_restart: AgentRestart, continue_run: ContinueRun) -> Policy {
    Policy { agent_restart, continue_run, note: true }
}

fn plan(world: &World, abilities: Abilities, trigger: StartTrigger) -> Plan {
    resume::plan(&world.state, abilities, Policy::default(), trigger)
}

fn opening(world: &World, abilities: Abilities, trigger: StartTrigger) -> StartPlan {
    match plan(world, abilities, trigger) {
        Plan::Start(opening) => opening,
        Plan::Skip(leave) => panic!("{leave:?}"),
    }
}

#[test]
fn status_case_1_an_agent_that_runs_needs_no_resume() {
    let mut world = World::new();
    launch(&mut world, "exec_1");
    says(&mut world, "exec_1", 1, ready(OpenedAs::New, Some("theirs"), LOADS));
    let found = resume::evaluate(&world.state, NATIVE, false);
    assert!(found.is_agent_running && !found.needs_resume && found.is_resumable);
    assert_eq!(found.reason, None);
    assert_eq!(found.context_restored, None, "there was nothing before it");
}

#[test]
fn status_case_2_one_that_may_still_be_there_is_not_resumed() {
    let mut world = stopped(Some("theirs"), LOADS);
    launch(&mut world, "exec_2");
    let found = resume::evaluate(&world.state, NATIVE, true);
    assert!(!found.needs_resume, "it is being asked");
    assert_eq!(found.reason, Some(Reason::ExecutorProbing));
    world.observe(ExecutorUnreachable { execution_id: id("exec_2"), code: None });
    let found = resume::evaluate(&world.state, NATIVE, false);
    assert!(!found.needs_resume, "nobody has proven it dead");
    for trigger in
        [StartTrigger::Open, StartTrigger::Prompt, StartTrigger::Retry, StartTrigger::Manual]
    {
        assert_eq!(plan(&world, NATIVE, trigger), Plan::Skip(SkipReason::Unproven));
    }
}

/// Wants to show: of an executor that does not respond nothing is promised, whatever it was seen to do
/// before; the reason says so, also when its run was interrupted.
#[test]
fn an_executor_that_does_not_respond_has_no_running_agent() {
    let unreachable = |mut world: World, execution: &str| {
        let (execution_id, code) = (id(execution), None);
        world.observe(ExecutorUnreachable { execution_id, code });
        resume::evaluate(&world.state, NATIVE, false)
    };
    let mut world = World::new();
    launch(&mut world, "exec_1");
    says(&mut world, "exec_1", 1, ready(OpenedAs::New, Some("theirs"), LOADS));
    world.done(start("run_1"));
    let mut killed = killed(Some("theirs"), LOADS);
    launch(&mut killed, "exec_2");
    for (world, execution) in [(world, "exec_1"), (killed, "exec_2")] {
        let found = unreachable(world, execution);
        assert!(!found.is_agent_running, "{execution}");
        assert!(!found.needs_resume, "{execution}: it is not proven dead");
        assert_eq!(found.reason, Some(Reason::ExecutorUnreachable), "{execution}");
    }
}

#[test]
fn status_case_3_with_a_session_id_it_is_resumed() {
    let world = stopped(Some("theirs"), LOADS);
    let found = resume::evaluate(&world.state, NATIVE, false);
    assert!(found.needs_resume && found.is_resumable && !found.is_agent_running);
    assert_eq!(found.reason, Some(Reason::AgentNotRunning));
    assert_eq!((found.strategy, found.context_reason), (Strategy::Native, None));
}

/// One that is continued by its command line continues as one that loads over its protocol does.
#[test]
fn an_agent_of_the_command_line_is_resumed() {
    let world = stopped(Some("theirs"), SessionCapabilities::default());
    let found = resume::evaluate(&world.state, COMMAND_LINE, false);
    assert!(found.needs_resume && found.is_resumable && !found.is_agent_running);
    assert_eq!(found.reason, Some(Reason::AgentNotRunning));
    assert_eq!((found.strategy, found.context_reason), (Strategy::CommandLine, None));
}

#[test]
fn status_case_4_without_one_it_starts_fresh() {
    let world = stopped(None, SessionCapabilities::default());
    let found = resume::evaluate(&world.state, NATIVE, false);
    assert!(found.needs_resume && found.is_resumable);
    assert_eq!(found.reason, Some(Reason::AgentNotRunningFreshStart));
    assert_eq!(found.context_reason, Some(Reason::MissingResumeToken));
    let world = stopped(Some("theirs"), SessionCapabilities::default());
    let found = resume::evaluate(&world.state, NEITHER, false);
    assert_eq!(found.reason, Some(Reason::AgentNotRunningFreshStart));
    assert_eq!(found.context_reason, Some(Reason::NotResumable), "it cannot use its id");
}

#[test]
fn terminal_states_block_every_resume() {
    for outcome in [Outcome::Completed, Outcome::Failed, Outcome::Cancelled] {
        let mut world = stopped(Some("theirs"), LOADS);
        world.done(Command::Close { outcome });
        let found = resume::evaluate(&world.state, NATIVE, false);
        assert!(!found.needs_resume && !found.is_resumable);
        assert_eq!(found.reason, Some(Reason::NotResumable));
        for trigger in
            [StartTrigger::Boot, StartTrigger::Open, StartTrigger::Prompt, StartTrigger::Manual]
        {
            assert_eq!(plan(&world, NATIVE, trigger), Plan::Skip(SkipReason::Closed));
        }
    }
}

#[test]
fn an_error_is_not_terminal() {
    let mut world = stopped(Some("theirs"), LOADS);
    let runtime = "standalone".to_owned();
    world.observe(ExecutorStarting { execution_id: id("exec_2"), runtime });
    let reason = Some(Reason::WorkspaceMissing);
    world.observe(ExecutorError { execution_id: id("exec_2"), reason, code: None });
    assert_eq!(world.named(), (Name::Error, Reason::WorkspaceMissing));
    let found = resume::evaluate(&world.state, NATIVE, false);
    assert!(found.needs_resume && found.is_resumable);
    assert!(opening(&world, NATIVE, StartTrigger::Manual).launch);
}

#[test]
fn strategies_follow_what_is_known_and_what_is_advertised() {
    let known = |capabilities, abilities| {
        resume::strategy(&stopped(Some("theirs"), capabilities).state.facts, abilities)
    };
    let none = SessionCapabilities::default();
    assert_eq!(known(LOADS, NEITHER), Strategy::Native, "what it advertises beats the table");
    assert_eq!(known(none, NATIVE), Strategy::None, "also when it advertises less");
    assert_eq!(known(SessionCapabilities { resume: true, ..none }, NEITHER), Strategy::Native);
    assert_eq!(known(none, COMMAND_LINE), Strategy::CommandLine);
    assert_eq!(known(none, HISTORY), Strategy::History);
    assert_eq!(known(none, NEITHER), Strategy::None);
    let unknown = |abilities| resume::strategy(&stopped(None, LOADS).state.facts, abilities);
    assert_eq!(unknown(NATIVE), Strategy::None, "without an id there is nothing to load");
    assert_eq!(unknown(COMMAND_LINE), Strategy::None);
    assert_eq!(unknown(HISTORY), Strategy::History);
}

/// What an agent that has become ready is to be given: whether a prompt waits for it, and whether the
/// history and the interruption summary go with the next one.
fn to_be_given(state: &State) -> (bool, bool, bool) {
    let run = state.facts.run.as_ref().filter(|run| run.is_open());
    let waits = run.is_some_and(|run| state.prompts(&run.run_id).next().is_some());
    (waits, state.pending_context.history, state.pending_context.note.is_some())
}

#[test]
fn prompt_decision_a_native_resume_prompts_nothing() {
    let mut world = stopped(Some("theirs"), LOADS);
    let opening = opening(&world, NATIVE, StartTrigger::Open);
    assert_eq!(opening.agent_session_id.as_deref(), Some("theirs"));
    launch(&mut world, "exec_2");
    resuming(&mut world, "exec_2", opening.strategy, opening.history);
    says(&mut world, "exec_2", 1, ready(OpenedAs::Loaded, Some("theirs"), LOADS));
    assert_eq!(to_be_given(&world.state), (false, false, false));
    assert!(world.state.pending.is_empty());
    let found = resume::evaluate(&world.state, NATIVE, false);
    assert_eq!(found.context_restored, Some(true));
}

#[test]
fn prompt_decision_b_a_fresh_start_of_a_waiting_session_boots_idle() {
    let mut world = stopped(None, SessionCapabilities::default());
    let opening = opening(&world, NEITHER, StartTrigger::Open);
    assert_eq!(opening.agent_session_id, None);
    launch(&mut world, "exec_2");
    resuming(&mut world, "exec_2", opening.strategy, opening.history);
    says(
        &mut world,
        "exec_2",
        1,
        ready(OpenedAs::New, Some("new"), SessionCapabilities::default()),
    );
    assert_eq!(to_be_given(&world.state), (false, false, false));
    let found = resume::evaluate(&world.state, NEITHER, false);
    assert_eq!(found.context_restored, Some(false), "and it is said");
}

#[test]
fn prompt_decision_c_what_was_said_first_is_sent() {
    let mut world = World::new();
    world.done(start("run_1"));
    let opening = opening(&world, NATIVE, StartTrigger::Created);
    assert_eq!((opening.agent_session_id, opening.launch), (None, true));
    launch(&mut world, "exec_1");
    says(&mut world, "exec_1", 1, ready(OpenedAs::New, Some("theirs"), LOADS));
    assert_eq!(to_be_given(&world.state), (true, false, false));
}

#[test]
fn initial_prompt_switch() {
    // A prompt waits: it is sent, with the history.
    let mut world = stopped(None, SessionCapabilities::default());
    world.done(start("run_2"));
    launch(&mut world, "exec_2");
    resuming(&mut world, "exec_2", Strategy::History, true);
    says(&mut world, "exec_2", 1, ready(OpenedAs::New, None, SessionCapabilities::default()));
    assert_eq!(to_be_given(&world.state), (true, true, false));
    // None waits: the next one tells it.
    let mut world = stopped(None, SessionCapabilities::default());
    launch(&mut world, "exec_2");
    resuming(&mut world, "exec_2", Strategy::History, true);
    says(&mut world, "exec_2", 1, ready(OpenedAs::New, None, SessionCapabilities::default()));
    assert_eq!(to_be_given(&world.state), (false, true, false));
    // Neither.
    let mut world = stopped(None, SessionCapabilities::default());
    launch(&mut world, "exec_2");
    resuming(&mut world, "exec_2", Strategy::None, false);
    says(&mut world, "exec_2", 1, ready(OpenedAs::New, None, SessionCapabilities::default()));
    assert_eq!(to_be_given(&world.state), (false, false, false));
}

#[test]
fn the_previous_state_is_restored_after_a_resume() {
    let mut world = stopped(Some("theirs"), LOADS);
    let before = world.named();
    assert_eq!(before.0.wire(), WireState::WaitingForInput);
    let runtime = "standalone".to_owned();
    world.observe(ExecutorStarting { execution_id: id("exec_2"), runtime });
    assert_eq!(world.named().0.wire(), WireState::Starting);
    world.observe(ExecutorReady { execution_id: id("exec_2") });
    says(&mut world, "exec_2", 1, vec![Fact::AgentStarting {}]);
    assert_eq!(world.named().0.wire(), WireState::Starting);
    let facts = ready(OpenedAs::Loaded, Some("theirs"), LOADS).split_off(1);
    says(&mut world, "exec_2", 2, facts);
    assert_eq!(world.named(), before);
}

#[test]
fn a_refused_id_is_cleared_and_fails_nothing() {
    let mut world = stopped(Some("theirs"), LOADS);
    let before = world.named();
    launch(&mut world, "exec_2");
    resuming(&mut world, "exec_2", Strategy::Native, false);
    let refused = Fact::AgentSessionRefused {
        code: -32002,
        message: "Resource not found".into(),
        agent_session_id: Some("theirs".into()),
    };
    let mut facts = ready(OpenedAs::New, Some("new"), LOADS);
    facts.insert(1, refused);
    says(&mut world, "exec_2", 1, facts);
    assert_eq!(world.named(), before, "not failed");
    let agent = world.state.facts.agent.clone().unwrap();
    assert_eq!(agent.session_id.as_deref(), Some("new"));
    assert_eq!(agent.earlier_session_ids, [""; 0]);
    assert_eq!(agent.restored, Some(false));
}

#[test]
fn agent_restart_says_which_triggers_count() {
    use AgentRestart::{Manual, OnBoot, OnOpen, OnPrompt};
    use StartTrigger::{Boot, Created, Manual as ByHand, Open, Prompt, Retry};
    let world = stopped(Some("theirs"), LOADS);
    let starts = |restart, trigger| {
        let policy = policy(restart, ContinueRun::Ask);
        match resume::plan(&world.state, NATIVE, policy, trigger) {
            Plan::Start(_) => true,
            Plan::Skip(leave) => {
                assert_eq!(leave, SkipReason::NotNow);
                false
            }
        }
    };
    let table = [
        (OnBoot, [true, true, true, true, true, true]),
        (OnOpen, [true, false, true, true, true, true]),
        (OnPrompt, [true, false, false, true, true, true]),
        (Manual, [true, false, false, false, false, true]),
    ];
    for (restart, expected) in table {
        let found = [Created, Boot, Open, Prompt, Retry, ByHand].map(|o| starts(restart, o));
        assert_eq!(found, expected, "{restart:?}");
    }
    assert_eq!(Policy::default(), policy(OnOpen, ContinueRun::Ask));
}

#[test]
fn continue_turn_says_whether_an_interrupted_turn_continues() {
    use ContinueRun::{Ask, Auto, Never};
    use StartTrigger::{Boot, Manual as ByHand, Open, Prompt};
    let world = killed(Some("theirs"), LOADS);
    assert!(world.named().0.is_interrupted());
    let goes_on = |turn, trigger| {
        resume::run_to_continue(&world.state.facts, turn, trigger) == Some(id("run_1"))
    };
    let table = [
        (Ask, [false, false, false, false]),
        (Auto, [true, true, false, true]),
        (Never, [false, false, false, false]),
    ];
    for (turn, expected) in table {
        let found = [Boot, Open, Prompt, ByHand].map(|trigger| goes_on(turn, trigger));
        assert_eq!(found, expected, "{turn:?}");
    }
    let mut paused = World::executed();
    paused.done(Command::Pause { run_id: id("run_1") });
    let facts = &paused.state.facts;
    assert_eq!(resume::run_to_continue(facts, Auto, Open), None, "somebody stopped it");
    assert_eq!(resume::run_to_continue(facts, Ask, ByHand), Some(id("run_1")));
    // A request can ask for either, whatever the setting is.
    assert_eq!(resume::continuable(facts), Some(id("run_1")));
    assert_eq!(resume::continuable(&world.state.facts), Some(id("run_1")));
    assert_eq!(resume::continuable(&stopped(None, LOADS).state.facts), None, "it has ended");
}

#[test]
fn an_interruption_needs_a_summary_until_the_agent_was_given_one() {
    let mut world = killed(Some("theirs"), LOADS);
    let lost = world.state.pending_context.note.clone().unwrap();
    assert_eq!((lost.run_id, lost.reason), (id("run_1"), Reason::ProcessExit));
    assert!(lost.message.is_some(), "half an answer");
    launch(&mut world, "exec_2");
    says(&mut world, "exec_2", 1, ready(OpenedAs::Loaded, Some("theirs"), LOADS));
    world.done(resume("run_1"));
    let of_seq = world.state.last_seq;
    assert_eq!(to_be_given(&world.state), (true, false, true));
    let prepare = |execution: &str| {
        let (execution_id, prompt) = (id(execution), "You lost this. Go on.".to_owned());
        Command::Prepare(Prepare { of_seq, execution_id, history: false, note: true, prompt })
    };
    assert_eq!(world.done(prepare("exec_2")), ["prompt.prepared"]);
    assert_eq!(world.done(prepare("exec_2")), [""; 0], "once");
    assert!(world.state.pending_context.note.is_some(), "it was not given yet");

    // Its agent ends before it was given: another is told again.
    world.recover(Some(Probe::Gone));
    launch(&mut world, "exec_3");
    assert_eq!(world.done(prepare("exec_3")), ["prompt.prepared"]);
    says(&mut world, "exec_3", 1, vec![given(of_seq)]);
    assert!(world.state.pending_context.is_empty() && world.state.prepared.is_none());
    assert_eq!(world.done(prepare("exec_3")), [""; 0], "it was given");
}

#[test]
fn a_history_is_injected_once_into_each_fresh_agent() {
    let mut world = stopped(None, SessionCapabilities::default());
    for (execution, run) in [("exec_2", "run_2"), ("exec_3", "run_3")] {
        launch(&mut world, execution);
        resuming(&mut world, execution, Strategy::History, true);
        says(&mut world, execution, 1, ready(OpenedAs::New, None, SessionCapabilities::default()));
        assert!(world.state.pending_context.history, "{execution}");
        world.done(start(run));
        let of_seq = world.state.last_seq;
        let (execution_id, prompt) = (id(execution), "All of it".to_owned());
        let prepare = Prepare { of_seq, execution_id, history: true, note: false, prompt };
        world.done(Command::Prepare(prepare));
        says(&mut world, execution, 3, vec![given(of_seq)]);
        assert!(!world.state.pending_context.history);
        let found = resume::evaluate(&world.state, HISTORY, false);
        assert_eq!(found.context_restored, Some(true));
        says(&mut world, execution, 4, vec![Fact::TurnEnded { stop_reason: "end_turn".into() }]);
        world.recover(Some(Probe::Gone));
    }
}

/// Found by the simulator: an agent forgets, begins another conversation, ends, and continues with that.
#[test]
fn what_a_conversation_never_knew_it_does_not_know_when_it_continues() {
    for (may_tell, history) in [(false, false), (true, true)] {
        let mut world = stopped(Some("theirs"), LOADS);
        launch(&mut world, "exec_2");
        resuming(&mut world, "exec_2", Strategy::Native, may_tell);
        says(&mut world, "exec_2", 1, ready(OpenedAs::New, Some("new"), LOADS));
        world.recover(Some(Probe::Gone));
        launch(&mut world, "exec_3");
        resuming(&mut world, "exec_3", Strategy::Native, may_tell);
        says(&mut world, "exec_3", 1, ready(OpenedAs::Loaded, Some("new"), LOADS));
        assert_eq!(world.state.facts.agent.as_ref().unwrap().restored, Some(false));
        assert_eq!(world.state.pending_context.history, history, "it is still to be told");
    }
}

/// What an agent was told with a turn that it did not live to end it may not have kept.
#[test]
fn a_history_counts_as_known_when_a_turn_has_ended_well() {
    let after_turn = |ends: &str| {
        let mut world = with_history_injected();
        let found = resume::evaluate(&world.state, NATIVE, false);
        assert_eq!(found.context_restored, Some(true), "the one that runs was told");
        let end = match ends {
            "" => None,
            "failed" => Some(Fact::TurnFailed { code: "x".into(), message: "no luck".into() }),
            ends => Some(Fact::TurnEnded { stop_reason: ends.into() }),
        };
        says(&mut world, "exec_2", 6, end.into_iter().collect());
        world.recover(Some(Probe::Gone));
        launch(&mut world, "exec_3");
        resuming(&mut world, "exec_3", Strategy::Native, true);
        says(&mut world, "exec_3", 1, ready(OpenedAs::Loaded, Some("new"), LOADS));
        let restored = resume::evaluate(&world.state, NATIVE, false).context_restored;
        (restored, world.state.pending_context.history)
    };
    assert_eq!(after_turn("end_turn"), (Some(true), false));
    assert_eq!(after_turn(""), (Some(false), true), "it was killed in that turn: it is told again");
    assert_eq!(after_turn("cancelled"), (Some(false), true), "nothing says that it was kept");
    assert_eq!(after_turn("refusal"), (Some(false), true), "what is refused is dropped");
    assert_eq!(after_turn("failed"), (Some(false), true), "perhaps before it was heard");
}

/// Also when someone stopped that turn before it ended.
#[test]
fn what_is_refused_in_a_stopped_turn_is_injected_again() {
    let mut world = with_history_injected();
    world.done(cancel("run_2"));
    assert!(!world.state.pending_context.history, "it was told, and lives");
    let refused = vec![Fact::TurnEnded { stop_reason: "refusal".into() }];
    assert_eq!(says(&mut world, "exec_2", 6, refused), ["agent.updated", "spool.imported"]);
    assert!(world.state.pending_context.history);
    let found = resume::evaluate(&world.state, NATIVE, false);
    assert_eq!(found.context_restored, Some(false));
}

/// An agent whose turns are processes says after a turn what the next one begins with.
#[test]
fn one_that_forgets_between_its_turns_is_injected_each_time() {
    let mut world = World::new();
    launch(&mut world, "exec_1");
    resuming(&mut world, "exec_1", Strategy::History, true);
    says(&mut world, "exec_1", 1, ready(OpenedAs::New, None, SessionCapabilities::default()));
    assert!(!world.state.pending_context.history, "there is nothing to tell");
    let mut pos = 3;
    for run in ["run_1", "run_2"] {
        world.done(start(run));
        let of_seq = world.state.last_seq;
        says(&mut world, "exec_1", pos, turn(of_seq, "done"));
        let mut ends = ready(OpenedAs::New, None, SessionCapabilities::default()).split_off(1);
        ends.push(Fact::TurnEnded { stop_reason: "end_turn".into() });
        says(&mut world, "exec_1", pos + 3, ends);
        assert!(world.state.pending_context.history, "{run}");
        pos += 5;
    }
}

/// The prompt was made, and on its way, before anybody here knew that the agent has forgotten.
#[test]
fn a_prompt_that_carried_nothing_leaves_the_context_pending() {
    let mut world = World::new();
    launch(&mut world, "exec_1");
    resuming(&mut world, "exec_1", Strategy::History, true);
    says(&mut world, "exec_1", 1, ready(OpenedAs::New, None, SessionCapabilities::default()));
    world.done(start("run_1"));
    let of_seq = world.state.last_seq;
    says(&mut world, "exec_1", 3, turn(of_seq, "half an ans"));
    world.done(cancel("run_1"));
    world.done(start("run_2"));
    let of_seq = world.state.last_seq;
    let mut ends = ready(OpenedAs::New, None, SessionCapabilities::default()).split_off(1);
    ends.push(Fact::TurnEnded { stop_reason: "cancelled".into() });
    ends.push(given(of_seq));
    says(&mut world, "exec_1", 6, ends);
    assert!(world.state.pending.values().all(|effect| !effect.is_prompt()), "it was given");
    assert!(world.state.pending_context.history, "the next one tells it");
}

#[test]
fn a_name_of_another_conversation_is_not_gone_on_with() {
    let mut world = stopped(Some("theirs"), SessionCapabilities::default());
    launch(&mut world, "exec_2");
    resuming(&mut world, "exec_2", Strategy::None, false);
    // By its command line; it names itself when it has spoken, and ends before that.
    says(&mut world, "exec_2", 1, ready(OpenedAs::New, None, SessionCapabilities::default()));
    world.recover(Some(Probe::Gone));
    let agent = world.state.facts.agent.clone().unwrap();
    assert_eq!((agent.session_id, agent.earlier_session_ids), (None, vec!["theirs".to_owned()]));
    assert_eq!(opening(&world, COMMAND_LINE, StartTrigger::Open).agent_session_id, None);
}

#[test]
fn what_is_to_continue_was_said_and_what_is_to_begin_was_not() {
    let mut world = World::new();
    assert!(!world.state.has_history());
    world.done(start("run_1"));
    assert!(!world.state.has_history(), "nobody was given it");
    let mut world = killed(None, SessionCapabilities::default());
    world.done(resume("run_1"));
    assert!(world.state.has_history(), "an agent was given how it begins");
    launch(&mut world, "exec_2");
    resuming(&mut world, "exec_2", Strategy::History, true);
    says(&mut world, "exec_2", 1, ready(OpenedAs::New, None, SessionCapabilities::default()));
    assert_eq!(to_be_given(&world.state), (true, true, true));
}

#[test]
fn an_agent_can_be_started_without_the_conversation_that_it_had() {
    let world = stopped(Some("theirs"), LOADS);
    let table = [
        (HISTORY, StartContext::Fresh, Strategy::History),
        (NATIVE, StartContext::Fresh, Strategy::None),
        (NATIVE, StartContext::Injected, Strategy::History),
        (HISTORY, StartContext::None, Strategy::None),
    ];
    for (abilities, context, strategy) in table {
        let opening = opening(&world, abilities, StartTrigger::Manual).with_context(context);
        assert_eq!((opening.strategy, opening.agent_session_id), (strategy, None), "{context:?}");
        assert_eq!(opening.history, strategy == Strategy::History, "{context:?}");
    }
    let native = opening(&world, NATIVE, StartTrigger::Manual).with_context(StartContext::Native);
    assert_eq!(native.agent_session_id.as_deref(), Some("theirs"));
}

#[test]
fn what_no_agent_was_given_is_given_when_the_run_continues() {
    let mut world = stopped(Some("theirs"), LOADS);
    world.done(start("run_2"));
    let said = world.state.last_said.clone().unwrap();
    world.restart("boot_2");
    world.recover(None);
    assert!(world.named().0.is_interrupted());
    let undelivered: Vec<_> =
        world.state.pending_context.undelivered.iter().map(|p| &p.said).collect();
    assert_eq!(undelivered, [&said]);
    assert_eq!(world.state.pending_context.note, None, "nothing was lost but time");
    world.done(resume("run_2"));
    let pending: Vec<_> = world.state.pending.values().collect();
    assert_eq!(pending, [&Effect::Continue { run_id: id("run_2") }], "never begun a second time");
    assert!(
        !world.state.pending_context.undelivered.is_empty(),
        "who goes on with it is told what was said"
    );
}

#[test]
fn what_no_one_wants_any_more_is_not_pending() {
    let mut world = stopped(Some("theirs"), LOADS);
    world.done(start("run_2"));
    world.restart("boot_2");
    world.recover(None);
    world.done(cancel("run_2"));
    assert_eq!(world.state.pending_context.undelivered, []);
}

#[test]
fn a_prompt_that_an_agent_may_have_been_given_is_not_given_again() {
    let mut world = killed(Some("theirs"), LOADS);
    assert_eq!(world.state.pending_context.undelivered, []);
    world.done(resume("run_1"));
    let pending: Vec<_> = world.state.pending.values().collect();
    assert_eq!(pending, [&Effect::Continue { run_id: id("run_1") }]);
}

#[test]
fn a_run_that_no_agent_works_on_is_stranded() {
    let mut world = stopped(Some("theirs"), LOADS);
    assert!(!resume::is_stranded(&world.state), "nothing is asked");
    world.done(start("run_2"));
    assert!(resume::is_stranded(&world.state));
    launch(&mut world, "exec_2");
    says(&mut world, "exec_2", 1, vec![Fact::AgentStarting {}]);
    assert!(!resume::is_stranded(&world.state), "one is on its way");
    let error = Fact::AgentError {
        code: "agent_missing".into(),
        message: "no such program".into(),
        auth_methods: Vec::new(),
    };
    says(&mut world, "exec_2", 2, vec![error]);
    // What becomes of it is decided when the start has failed.
    assert_eq!(resume::after_failed_start(&world.state), AfterFailure::Interrupt(id("run_2")));
    assert_eq!(world.named(), (Name::Error, Reason::AgentMissing));
}

#[test]
fn an_agent_that_ends_again_and_again_is_given_up() {
    let mut world = stopped(Some("theirs"), LOADS);
    world.done(start("run_2"));
    for n in 2..5 {
        assert!(matches!(plan(&world, NATIVE, StartTrigger::Retry), Plan::Start(_)), "{n}");
        let execution = format!("exec_{n}");
        launch(&mut world, &execution);
        says(&mut world, &execution, 1, vec![Fact::AgentStarting {}]);
        let execution_id = id(&execution);
        world.observe(AgentExited { execution_id, exit_code: Some(1), signal: None });
        world.recover(Some(Probe::Gone));
    }
    assert_eq!(plan(&world, NATIVE, StartTrigger::Retry), Plan::Skip(SkipReason::RetriesExhausted));
    assert!(matches!(plan(&world, NATIVE, StartTrigger::Manual), Plan::Start(_)), "who asks may");
    world.done(complete("run_2"));
    world.done(start("run_3"));
    assert!(matches!(plan(&world, NATIVE, StartTrigger::Retry), Plan::Start(_)), "counted anew");
}

#[test]
fn ten_resumes_are_one() {
    let mut world = killed(Some("theirs"), LOADS);
    let resumed: Vec<_> = (0..10).map(|_| world.done(resume("run_1")).len()).collect();
    assert_eq!(resumed.iter().filter(|records| **records > 0).count(), 1);
    launch(&mut world, "exec_2");
    says(&mut world, "exec_2", 1, vec![Fact::AgentStarting {}]);
    assert_eq!(plan(&world, NATIVE, StartTrigger::Manual), Plan::Skip(SkipReason::Running));
}
