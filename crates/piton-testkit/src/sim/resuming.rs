//! Worlds in which the runtime starts agents again, as a server does: on request, for a prompt,
//! when a client opens a session, when a boot begins.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use piton_core::decide::Command;
use piton_core::event::{Event, Outcome};
use piton_core::id::{RunId, SessionId};
use piton_core::resume::{
    self, Abilities, AgentRestart, ContinueRun, Policy, StartContext, StartTrigger,
};
use piton_core::spool::SessionCapabilities;
use piton_core::state::AgentStatus;
use piton_core::{Code, Reason, Record, State};
use piton_exec::protocol::Start;
use piton_runtime::{
    Error, Executions, Handle, LaunchConfig, LaunchConfigs, StartError, Supervisors,
};
use piton_store::BoxFuture;

use super::agentctl::PROMPT;
use super::client::settled;
use super::ledger::Property;
use super::parts::step;
use super::stuck::Stuck;
use super::world::{Boot, World};

/// The first line of the history that an agent receives.
const HISTORY: &str = "RESUME CONTEXT FOR CONTINUING TASK";

/// How a world's agents are brought back, and what they do with a conversation that they had.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    pub policy: Policy,
    pub abilities: Abilities,
    /// What they advertise, which may be something else than what is known of them.
    pub capabilities: SessionCapabilities,
    /// They save the history that they receive only when their turn ends.
    saves_late: bool,
    /// Chances in a hundred, per start.
    pub forgets: u32,
    start_error: u32,
    /// They never get a conversation back that they had.
    pub stuck: Option<Stuck>,
}

impl Habits {
    pub(super) fn draw(rng: &mut fastrand::Rng, seed: u64) -> Self {
        let restarts = [AgentRestart::OnBoot, AgentRestart::OnOpen, AgentRestart::OnPrompt];
        let agent_restart = match rng.usize(0..8) {
            7 => AgentRestart::Manual,
            other => restarts[other % restarts.len()],
        };
        let turns = [ContinueRun::Ask, ContinueRun::Auto, ContinueRun::Never];
        let continue_run = turns[rng.usize(0..turns.len())];
        let policy = Policy { agent_restart, continue_run, note: rng.u32(0..4) > 0 };
        let (native, history) = (rng.bool(), rng.bool());
        let abilities = Abilities { native, command_line: false, history };
        let capabilities = SessionCapabilities {
            load: rng.bool(),
            resume: rng.bool(),
            ..SessionCapabilities::default()
        };
        let (forgets, start_error) = (rng.u32(0..20), rng.u32(0..10));
        let saves_late = rng.bool();
        let stuck = super::stuck::in_world(seed);
        let drawn =
            Self { policy, abilities, capabilities, saves_late, forgets, start_error, stuck };
        match stuck {
            None => drawn,
            // They have what they said, would load it, and cannot.
            Some(_) => Self {
                abilities: Abilities { native: true, ..abilities },
                capabilities: SessionCapabilities { load: true, ..capabilities },
                forgets: 0,
                ..drawn
            },
        }
    }
}

/// What agents remember, by their own names for their conversations, as long as the world stands.
#[derive(Debug, Default)]
pub(super) struct Memories {
    talks: BTreeMap<String, Talk>,
}

#[derive(Debug, Default)]
struct Talk {
    knows: BTreeSet<RunId>,
    /// Runs of the received history that it has not saved.
    unsaved: BTreeSet<RunId>,
    /// It has received the history.
    is_prompted: bool,
}

impl Talk {
    fn lacks<'a>(&self, runs: &'a [RunId]) -> Option<&'a RunId> {
        runs.iter().find(|run| !self.knows.contains(*run) && !self.unsaved.contains(*run))
    }
}

impl World {
    /// A conversation that an agent begins.
    pub(super) fn new_conversation(&self) -> String {
        let mut inner = self.inner();
        let name = format!("talk_{}", inner.memories.talks.len());
        inner.memories.talks.insert(name.clone(), Talk::default());
        name
    }

    /// An agent opens a conversation that it has, or refuses a prompt: what was not kept is gone.
    pub(super) fn drop_conversation(&self, conversation: &str) {
        if let Some(talk) = self.inner().memories.talks.get_mut(conversation) {
            talk.unsaved.clear();
        }
    }

    /// Its turn ended well.
    pub(super) fn keep_conversation(&self, conversation: &str) {
        if let Some(talk) = self.inner().memories.talks.get_mut(conversation) {
            talk.knows.append(&mut talk.unsaved);
        }
    }

    /// An agent is given a prompt in its conversation.
    pub(super) fn receive_prompt(
        &self,
        conversation: &str,
        run: &RunId,
        text: &str,
        before: &[RunId],
    ) {
        let saves_late = self.habits.is_some_and(|habits| habits.saves_late);
        let mut inner = self.inner();
        let talk = inner.memories.talks.entry(conversation.to_owned()).or_default();
        if text.starts_with(HISTORY) {
            talk.is_prompted = true;
            let kept = if saves_late { &mut talk.unsaved } else { &mut talk.knows };
            kept.extend(before.iter().cloned());
        }
        // A request to continue does not contain the run's own prompt.
        if is_own_prompt(text) {
            talk.knows.insert(run.clone());
        }
    }

    /// What a session says of its agent's memory has to be so.
    pub(super) fn check_memory(
        &self,
        session: &SessionId,
        state: &State,
        conversation: &str,
        given: &[RunId],
    ) {
        let Some(agent) = state.facts.agent.as_ref() else { return };
        if agent.session_id.as_deref() != Some(conversation) {
            let detail = format!("{session}: it is called {conversation}, not {agent:?}");
            return self.violated(Property::ContextIsTrue, detail);
        }
        let inner = self.inner();
        let Some(talk) = inner.memories.talks.get(conversation) else { return };
        let (lacks, is_prompted) = (talk.lacks(given).cloned(), talk.is_prompted);
        // What was interrupted before an agent was given it may have been said to one all the same.
        let runs: Vec<_> = state.recent_runs.iter().cloned().collect();
        let knows_all = talk.lacks(&runs).is_none() && runs.iter().all(|run| given.contains(run));
        drop(inner);
        let detail = match (lacks, agent.restored) {
            (Some(run), Some(true) | None) => {
                format!("{session}: {conversation} does not know {run}: {:?}", agent.restored)
            }
            (None, Some(false)) if knows_all && !is_prompted => {
                format!("{session}: {conversation} knows all, and is said not to")
            }
            _ => return,
        };
        self.violated(Property::ContextIsTrue, detail);
    }
}

/// Whether the text contains a client's prompt, whatever it is wrapped in.
pub(super) fn is_own_prompt(text: &str) -> bool {
    text.lines().any(|line| line.starts_with(PROMPT))
}

struct SimulatedAgents {
    world: Arc<World>,
    boot: Arc<Boot>,
    habits: Habits,
}

impl fmt::Debug for SimulatedAgents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kitchen({})", self.boot.id)
    }
}

impl LaunchConfigs for SimulatedAgents {
    fn abilities(&self, _state: &State) -> Abilities {
        self.habits.abilities
    }

    fn launch_config(
        &self,
        _session: &SessionId,
        _state: &State,
    ) -> BoxFuture<Result<LaunchConfig, StartError>> {
        let (world, boot, habits) = (Arc::clone(&self.world), Arc::clone(&self.boot), self.habits);
        Box::pin(async move {
            step(&world, &boot).await;
            if !world.fleet().calm && world.chance(habits.start_error) {
                let (reason, code) = (Reason::WorkspaceMissing, Code::WorkspaceUnusable);
                return Err(StartError { reason, code, message: "The model hides it".to_owned() });
            }
            let (start, abilities) = (Start::default(), habits.abilities);
            Ok(LaunchConfig { start, abilities, workspace: PathBuf::from("/workspace") })
        })
    }
}

/// Tells the runtime how agents are started, in worlds where it starts them.
pub(super) fn supervisors(
    world: &Arc<World>,
    boot: &Arc<Boot>,
    handle: &Handle,
) -> Option<Supervisors> {
    let habits = world.habits?;
    let kitchen = SimulatedAgents { world: Arc::clone(world), boot: Arc::clone(boot), habits };
    handle.supervisors().set_agents(Arc::new(kitchen), habits.policy);
    Some(handle.supervisors().clone())
}

/// What people do where agents are brought back: they say things, look, ask for it, stop it.
pub(super) async fn operate(
    world: &Arc<World>,
    handle: &Handle,
    executions: &Executions,
    supervisors: &Supervisors,
    session: &SessionId,
) -> Result<bool, Error> {
    if world.habits.is_some_and(|habits| habits.stuck.is_some()) && world.chance(10) {
        // The user chooses one of the ways out.
        let ways = [StartContext::Injected, StartContext::None, StartContext::Native];
        let context = world.pick(&ways).unwrap_or_default();
        supervisors.start_with(session, context).await?;
        return Ok(true);
    }
    let ack = match world.range(0, 19) {
        0..=3 => {
            supervisors.ensure_running(session, StartTrigger::Open).await?;
            return Ok(true);
        }
        4..=6 => {
            let before = handle.state(session).await?;
            supervisors.ensure_running(session, StartTrigger::Manual).await?;
            let turn = supervisors.policy().continue_run;
            let goes_on = resume::run_to_continue(&before.facts, turn, StartTrigger::Manual);
            let Some(run_id) = goes_on else { return Ok(true) };
            handle.execute(session, Command::Resume { run_id }).await?
        }
        7..=9 => {
            let manual = supervisors.policy().agent_restart == AgentRestart::Manual;
            let state = handle.state(session).await?;
            if manual && !resume::is_running(&state.facts) {
                return Ok(true);
            }
            handle.prompt(session, &format!("{PROMPT}it {}", world.range(0, 99))).await?;
            return Ok(true);
        }
        10 => {
            executions.stop(session).await?;
            return Ok(true);
        }
        11 => {
            let run = handle.state(session).await?.facts.run.map(|run| run.run_id);
            let Some(run_id) = run else { return Ok(true) };
            handle.execute(session, Command::Cancel { run_id, reason: Reason::UserRequest }).await?
        }
        12 if world.chance(5) => {
            handle.execute(session, Command::Close { outcome: Outcome::Completed }).await?
        }
        // The other requests are the same as in worlds that do not start agents again.
        _ => return Ok(false),
    };
    settled(world, session, &ack);
    Ok(true)
}

/// The open run whose prompt no agent was ever given, by the records alone: the world's own reading
/// of them. Not one of a session that is closed, or whose executor is said not to respond.
pub(super) fn awaiting_agent<'a>(
    records: impl Iterator<Item = &'a Record>,
    given: &BTreeSet<RunId>,
) -> Option<RunId> {
    let (mut open, mut prompted, mut is_silent) = (None, BTreeSet::new(), false);
    for event in records.filter_map(|record| record.event().ok()) {
        match event {
            Event::MessageUser(e) => prompted.extend(e.run_id),
            Event::RunStarted(e) => open = Some(e.run_id),
            Event::RunResumed(e) => open = Some(e.run_id),
            Event::RunPaused(_)
            | Event::RunCompleted(_)
            | Event::RunFailed(_)
            | Event::RunCancelled(_)
            | Event::RunInterrupted(_) => open = None,
            Event::SessionClosed(_) => return None,
            Event::ExecutorUnreachable(_) => is_silent = true,
            Event::ExecutorStarting(_)
            | Event::ExecutorReady(_)
            | Event::ExecutorStopped(_)
            | Event::ExecutorAbandoned(_) => is_silent = false,
            _ => {}
        }
    }
    open.filter(|run| prompted.contains(run) && !given.contains(run) && !is_silent)
}

/// After a while without faults: the session says why no agent runs.
pub(super) fn calm(world: &World, session: &SessionId, state: &State) {
    let Some(habits) = world.habits else { return };
    let found = resume::evaluate(state, habits.abilities, false);
    let ready = state.facts.agent.as_ref().is_some_and(|a| a.status == AgentStatus::Ready);
    if found.is_agent_running != (ready && resume::is_running(&state.facts)) {
        let detail = format!("{session}: {found:?} of {:?}", state.facts.agent);
        world.violated(Property::StatusExplained, detail);
    }
    if !found.is_agent_running && found.reason.is_none() {
        let detail = format!("{session}: nothing runs, and nothing says why: {found:?}");
        world.violated(Property::StatusExplained, detail);
    }
}
