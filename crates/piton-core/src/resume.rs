//! How a session's agent comes back: what can be promised, who may start it, and what it is given.
//! Values only; the code that starts processes asks here first.

use serde::{Deserialize, Serialize};

use crate::code::{AnyCode, Code};
use crate::id::RunId;
use crate::limits::FAILED_STARTS_MAX;
use crate::planted::{self, Bug};
use crate::reason::Reason;
use crate::spool::SessionCapabilities;
use crate::state::{Agent, AgentStatus, Executor, ExecutorStatus, Facts, Phase, State};

/// What an agent's profile says it can do with a conversation that it had. What the agent itself
/// advertises counts for more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Abilities {
    /// It resumes or loads over its protocol.
    pub native: bool,
    /// It is continued by arguments of its command line.
    pub command_line: bool,
    /// It may be told the history with its first prompt.
    pub history: bool,
}

/// How an agent gets its conversation back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// `session/resume` or `session/load`, whichever it offers.
    Native,
    /// Its command is given the conversation's id.
    CommandLine,
    /// It starts without its conversation, and its first prompt carries the history.
    History,
    /// It starts without its conversation and knows nothing.
    #[serde(other)]
    None,
}

/// When an agent that does not run is started.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum AgentRestart {
    OnBoot,
    #[default]
    OnOpen,
    OnPrompt,
    Manual,
}

/// Whether an interrupted run continues by itself.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ContinueRun {
    #[default]
    Ask,
    Auto,
    Never,
}

/// The settings of all sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    pub agent_restart: AgentRestart,
    pub continue_run: ContinueRun,
    /// Whether an agent is given a summary of what it lost.
    pub note: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            agent_restart: AgentRestart::default(),
            continue_run: ContinueRun::default(),
            note: true,
        }
    }
}

/// Why an agent is wanted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartTrigger {
    /// The session was made.
    Created,
    /// The server has started.
    Boot,
    /// A client opened the session.
    Open,
    /// A prompt for it was accepted.
    Prompt,
    /// Its agent ended before it was given a prompt.
    Retry,
    /// A user asked for it.
    #[serde(other)]
    Manual,
}

/// What became of an agent that could not be started, by its error's code.
pub(crate) fn agent_error(code: Option<&AnyCode>) -> Reason {
    match code.and_then(AnyCode::known) {
        Some(Code::AgentMissing | Code::AgentNotExecutable) => Reason::AgentMissing,
        Some(Code::WorkspaceMissing) => Reason::WorkspaceMissing,
        Some(code) if code.is_login() => Reason::LoginNeeded,
        _ => Reason::AgentError,
    }
}

/// The agent runs, or is about to, as far as the log knows.
pub fn is_running(facts: &Facts) -> bool {
    let agent = facts.agent.as_ref().filter(|agent| !agent.is_ending()).map(|agent| agent.status);
    facts.executor.as_ref().is_some_and(Executor::may_live)
        && matches!(agent, Some(AgentStatus::Starting | AgentStatus::Ready))
}

/// The agent is to be ended and is not gone yet, as far as the log knows.
pub fn is_ending(facts: &Facts) -> bool {
    facts.executor.as_ref().is_some_and(Executor::may_live)
        && facts.agent.as_ref().is_some_and(Agent::is_ending)
}

/// A start is under way, and the log does not say yet what becomes of it.
pub fn is_starting(facts: &Facts) -> bool {
    let executor = facts.executor.as_ref().filter(|executor| executor.may_live());
    let agent = facts.agent.as_ref().map(|agent| agent.status);
    executor.is_some_and(|executor| executor.expects_agent || agent == Some(AgentStatus::Starting))
}

/// How the session's agent would get its conversation back if it were started now.
pub fn strategy(facts: &Facts, abilities: Abilities) -> Strategy {
    let agent = facts.agent.as_ref();
    let knows = agent.is_some_and(|agent| agent.session_id.is_some());
    if knows && is_native(agent.and_then(|agent| agent.capabilities), abilities) {
        Strategy::Native
    } else if knows && abilities.command_line {
        Strategy::CommandLine
    } else if abilities.history {
        Strategy::History
    } else {
        Strategy::None
    }
}

/// Whether the agent gets a conversation back that it has an id of: by what it advertised, else by its
/// profile.
pub fn can_restore(facts: &Facts, abilities: Abilities) -> bool {
    let advertised = facts.agent.as_ref().and_then(|agent| agent.capabilities);
    abilities.command_line || is_native(advertised, abilities)
}

/// What the agent advertised, else what its profile says.
fn is_native(capabilities: Option<SessionCapabilities>, abilities: Abilities) -> bool {
    // One that is spoken to by its command line advertises nothing.
    match capabilities.filter(|_| !abilities.command_line) {
        Some(capabilities) => capabilities.resume || capabilities.load,
        None => abilities.native,
    }
}

/// What a started agent knows of what was said before it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Context {
    /// Its own conversation.
    Native,
    /// The history that Piton gave it with a prompt, or gives it with the next one.
    Injected,
    /// Nothing was said before.
    None,
    /// Nothing, though something was said.
    Lost,
}

/// What the running agent knows; `None` if it is not known yet.
fn context(state: &State) -> Option<Context> {
    let agent = state.facts.agent.as_ref()?;
    match agent.restored {
        Some(true) if agent.is_injected => Some(Context::Injected),
        Some(true) => Some(Context::Native),
        Some(false) if state.pending_context.history => Some(Context::Injected),
        Some(false) => Some(Context::Lost),
        None => (agent.status == AgentStatus::Ready).then_some(Context::None),
    }
}

/// What an agent that is about to be started will know of what was said before, and why that is not
/// its own conversation, if its start goes as planned.
pub fn expected_context(
    state: &State,
    strategy: Strategy,
    history: bool,
) -> (Context, Option<Reason>) {
    if !state.has_history() {
        return (Context::None, None);
    }
    let agent = state.facts.agent.as_ref();
    let without = if history { Context::Injected } else { Context::Lost };
    let known = agent.and_then(|agent| agent.context_reason);
    match strategy {
        Strategy::Native | Strategy::CommandLine => {
            // Its conversation may have begun without what was said before.
            let lacks_history = agent.is_some_and(|agent| agent.lacks_history);
            if lacks_history { (without, known) } else { (Context::Native, None) }
        }
        Strategy::History | Strategy::None => {
            let has_session = agent.is_some_and(|agent| agent.session_id.is_some());
            let capabilities = agent.and_then(|agent| agent.capabilities);
            let can_resume = capabilities.is_some_and(|can| can.resume || can.load);
            let reason = match (has_session, can_resume) {
                (true, true) => Reason::UserRequest,
                (true, false) => Reason::NotResumable,
                (false, _) => known.unwrap_or(Reason::MissingResumeToken),
            };
            (without, Some(reason))
        }
    }
}

/// Where a session stands as to its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Evaluation {
    pub is_agent_running: bool,
    pub is_resumable: bool,
    pub needs_resume: bool,
    pub reason: Option<Reason>,
    pub strategy: Strategy,
    /// What the running agent knows; `None`: it does not run, or it is not known yet.
    pub context: Option<Context>,
    /// Whether the running agent knows what was said before; `None`: it does not run, or there was
    /// nothing.
    pub context_restored: Option<bool>,
    /// Why the context would be, or is, lost.
    pub context_reason: Option<Reason>,
}

/// Whether a session can and has to be resumed, and how. `is_asked`: its executor is being asked whether it lives.
pub fn evaluate(state: &State, abilities: Abilities, is_asked: bool) -> Evaluation {
    let facts = &state.facts;
    let strategy = strategy(facts, abilities);
    let closed = facts.closed.is_some();
    let executor = facts.executor.as_ref();
    let responds = executor.is_none_or(|e| e.status != ExecutorStatus::Unreachable)
        || planted::is(Bug::UnreachableIsRunning);
    let running = is_running(facts) && responds;
    let probing = is_asked && executor.is_some_and(Executor::may_live);
    let knows = facts.agent.as_ref().is_some_and(|agent| agent.session_id.is_some());
    let restorable = strategy == Strategy::Native
        || strategy == Strategy::CommandLine && !planted::is(Bug::CommandLineIsFresh);
    let (needs_resume, reason) = if closed {
        (false, Some(Reason::NotResumable))
    } else if !responds {
        // It may be at work: nothing is resumed until it responds or is proven dead.
        (false, Some(Reason::ExecutorUnreachable))
    } else if let Some(reason) = to_continue(facts) {
        (true, Some(reason))
    } else if probing {
        (false, Some(Reason::ExecutorProbing))
    } else if running {
        (false, None)
    } else if executor.is_none() {
        // Nothing has been started: there is nothing to resume.
        (false, Some(Reason::NeverRun))
    } else if restorable {
        (true, Some(Reason::AgentNotRunning))
    } else {
        (true, Some(Reason::AgentNotRunningFreshStart))
    };
    let lost = state.has_history() && !restorable;
    let context_reason = match lost.then_some(knows) {
        None => None,
        Some(true) => Some(Reason::NotResumable),
        Some(false) => Some(Reason::MissingResumeToken),
    };
    Evaluation {
        is_agent_running: running,
        is_resumable: !closed,
        needs_resume,
        reason,
        strategy,
        context: context(state).filter(|_| running),
        context_restored: facts.agent.as_ref().filter(|_| running).and_then(|a| a.restored),
        context_reason: match context(state).filter(|_| running) {
            Some(Context::Injected | Context::Lost) => {
                facts.agent.as_ref().and_then(|agent| agent.context_reason)
            }
            _ => context_reason.filter(|_| !running),
        },
    }
}

/// What a user can do about a session whose agent lost its context, or would lose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextChoice {
    /// Start the agent again with the conversation that it had.
    Retry,
    /// Start it without; its next prompt carries the history.
    ContinueWithHistory,
    /// Start it without, and tell it nothing.
    ContinueWithoutContext,
    /// Leave this session as it is.
    NewSession,
}

impl ContextChoice {
    pub const ALL: [Self; 4] =
        [Self::Retry, Self::ContinueWithHistory, Self::ContinueWithoutContext, Self::NewSession];

    /// For people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Retry => "Retry",
            Self::ContinueWithHistory => "Continue with history",
            Self::ContinueWithoutContext => "Continue without context",
            Self::NewSession => "New session",
        }
    }

    /// The context that the agent is to be started with; `None`: it is another session.
    pub fn context(self) -> Option<Context> {
        match self {
            Self::Retry => Some(Context::Native),
            Self::ContinueWithHistory => Some(Context::Injected),
            Self::ContinueWithoutContext => Some(Context::None),
            Self::NewSession => None,
        }
    }
}

/// Whether the user has to choose how the session continues: its agent knows nothing of what was
/// said, would know nothing if it were started, or could not be started with it.
pub fn needs_choice(state: &State, evaluation: &Evaluation) -> bool {
    let facts = &state.facts;
    let is_interrupted_for_good = facts.run.as_ref().is_some_and(|run| {
        let Phase::Interrupted { reason, .. } = run.phase else { return false };
        matches!(reason, Reason::AgentGaveUp | Reason::AgentStartFailed)
    });
    let knows_id = facts.agent.as_ref().is_some_and(|agent| agent.session_id.is_some());
    let has_failed = facts.agent.as_ref().is_some_and(|agent| {
        agent.status == AgentStatus::Error && agent.error == Some(Reason::AgentError) && knows_id
    });
    let would_lose = !evaluation.is_agent_running
        && evaluation.needs_resume
        && evaluation.context_reason.is_some();
    let would_lose = would_lose && evaluation.strategy == Strategy::None;
    let has_lost = evaluation.context == Some(Context::Lost);
    facts.closed.is_none()
        && state.has_history()
        && (has_lost || would_lose || has_failed || is_interrupted_for_good)
}

/// One sentence for people: what the agent knows of what was said before, and why; `None` where
/// there is nothing to say.
pub fn context_sentence(context: Option<Context>, reason: Option<Reason>) -> Option<String> {
    let why = match reason {
        Some(Reason::UserRequest) => "a user started it without",
        Some(Reason::SessionRefused) => "the agent does not know its session id any more",
        Some(Reason::NotResumable) => "this agent cannot resume earlier sessions",
        Some(Reason::MissingResumeToken) => "the agent left no session id to resume from",
        Some(Reason::WorkspaceRecreated) => "the workspace is gone",
        _ => "",
    };
    let because = if why.is_empty() { String::new() } else { format!(": {why}") };
    match context? {
        Context::Native => Some("The agent has its own conversation.".to_owned()),
        Context::None => None,
        Context::Injected => Some(format!(
            "The agent started without its conversation{because}. Its prompt carries the history of \
             this session."
        )),
        Context::Lost => Some(format!(
            "The agent started without its conversation{because}. It does not know what was said \
             before."
        )),
    }
}

/// Why the run does not go on though it could.
fn to_continue(facts: &Facts) -> Option<Reason> {
    match facts.run.as_ref()?.phase {
        Phase::Interrupted { reason, .. } => Some(reason),
        Phase::Paused => Some(Reason::Paused),
        Phase::Open | Phase::Dismissed | Phase::Ended(_) => None,
    }
}

/// What to do about a session's agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    Skip(SkipReason),
    Start(StartPlan),
}

/// Why an agent is not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// It runs, or is about to.
    Running,
    /// It is being ended: another one is started when it is gone.
    Ending,
    /// A rewind takes the conversation back that it would be started with.
    Restoring,
    /// One may live that cannot be reached: a second would lose it its turn.
    Unproven,
    Closed,
    /// The settings exclude this trigger.
    NotNow,
    /// It was started again and again, and came to nothing.
    RetriesExhausted,
}

/// How an agent is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartPlan {
    /// There is no agentctl for it yet.
    pub launch: bool,
    pub strategy: Strategy,
    /// The conversation to continue.
    pub agent_session_id: Option<String>,
    /// If it starts without its conversation all the same, its first prompt tells the history.
    pub history: bool,
    pub note: bool,
    /// An interrupted or paused run that continues.
    pub run_to_continue: Option<RunId>,
}

/// What a user wants a started agent to know of what was said before.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum StartContext {
    /// Its own conversation, or what comes closest to it.
    #[default]
    Native,
    /// The history, given with its first prompt. It begins another conversation.
    Injected,
    /// Nothing. It begins another conversation.
    None,
    /// The history where the profile allows it, else nothing. It begins another conversation.
    Fresh,
}

impl StartPlan {
    /// Changes what the agent is to know. The log keeps the id of a conversation that is left.
    #[must_use]
    pub fn with_context(self, context: StartContext) -> Self {
        let history = match context {
            StartContext::Native => return self,
            StartContext::Injected => true,
            StartContext::None => false,
            StartContext::Fresh => self.history,
        };
        let strategy = if history { Strategy::History } else { Strategy::None };
        Self { strategy, history, agent_session_id: None, ..self }
    }
}

/// What follows from a start that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// The cause may pass: the agent is started again for the prompt that waits.
    Retry,
    /// The retries are exhausted, or the cause does not pass by itself: the run is interrupted, and the
    /// user chooses.
    Interrupt(RunId),
    /// No prompt waits, or nothing may be decided.
    DoNothing,
}

/// Decides what becomes of a prompt whose agent could not be started.
pub fn after_failed_start(state: &State) -> AfterFailure {
    let facts = &state.facts;
    let executor = facts.executor.as_ref().map(|executor| executor.status);
    let run = facts.run.as_ref().filter(|run| run.is_open());
    let Some(run) = run.filter(|run| state.prompts(&run.run_id).next().is_some()) else {
        return AfterFailure::DoNothing;
    };
    if facts.closed.is_some()
        || executor == Some(ExecutorStatus::Unreachable)
        || is_starting(facts)
        || facts.can_receive()
    {
        return AfterFailure::DoNothing;
    }
    let agent = facts.agent.as_ref();
    // A missing program, login or folder does not come back by itself.
    let may_pass = executor != Some(ExecutorStatus::Error)
        && agent.is_none_or(|agent| matches!(agent.error, None | Some(Reason::AgentError)));
    let failed_starts = agent.map_or(0, |agent| agent.failed_starts);
    if may_pass && failed_starts < FAILED_STARTS_MAX {
        AfterFailure::Retry
    } else {
        AfterFailure::Interrupt(run.run_id.clone())
    }
}

/// Decides whether and how an agent is started now.
pub fn plan(state: &State, abilities: Abilities, policy: Policy, trigger: StartTrigger) -> Plan {
    let facts = &state.facts;
    if facts.closed.is_some() {
        return Plan::Skip(SkipReason::Closed);
    }
    if !is_start_allowed(policy.agent_restart, trigger) {
        return Plan::Skip(SkipReason::NotNow);
    }
    let executor = facts.executor.as_ref();
    // Before what is known of the agent: it is not known whether it still runs.
    if executor.is_some_and(|executor| executor.status == ExecutorStatus::Unreachable) {
        return Plan::Skip(SkipReason::Unproven);
    }
    if is_running(facts) {
        return Plan::Skip(SkipReason::Running);
    }
    if is_ending(facts) {
        return Plan::Skip(SkipReason::Ending);
    }
    if facts.restore.as_ref().is_some_and(|restore| restore.conversation.is_some()) {
        return Plan::Skip(SkipReason::Restoring);
    }
    let failed_starts = facts.agent.as_ref().map_or(0, |agent| agent.failed_starts);
    if trigger == StartTrigger::Retry && failed_starts >= FAILED_STARTS_MAX {
        return Plan::Skip(SkipReason::RetriesExhausted);
    }
    let strategy = strategy(facts, abilities);
    let id = facts.agent.as_ref().and_then(|agent| agent.session_id.clone());
    let continues = matches!(strategy, Strategy::Native | Strategy::CommandLine);
    Plan::Start(StartPlan {
        launch: !executor.is_some_and(Executor::may_live),
        strategy,
        agent_session_id: id.filter(|_| continues),
        history: abilities.history,
        note: policy.note,
        run_to_continue: run_to_continue(facts, policy.continue_run, trigger),
    })
}

fn is_start_allowed(restart: AgentRestart, trigger: StartTrigger) -> bool {
    match trigger {
        StartTrigger::Created | StartTrigger::Manual => true,
        StartTrigger::Boot => restart == AgentRestart::OnBoot,
        StartTrigger::Open => matches!(restart, AgentRestart::OnBoot | AgentRestart::OnOpen),
        StartTrigger::Prompt | StartTrigger::Retry => restart != AgentRestart::Manual,
    }
}

/// The run that a start continues by itself. A paused one only when a user resumes the session: a user
/// stopped it. An interrupted one only if the setting says so; a request can ask for it
/// ([`continuable`]).
pub fn run_to_continue(facts: &Facts, turn: ContinueRun, trigger: StartTrigger) -> Option<RunId> {
    let run = facts.run.as_ref()?;
    let asked = trigger == StartTrigger::Manual;
    let continues = match run.phase {
        Phase::Paused => asked,
        Phase::Interrupted { .. } => match turn {
            ContinueRun::Auto => {
                asked || matches!(trigger, StartTrigger::Boot | StartTrigger::Open)
            }
            ContinueRun::Ask | ContinueRun::Never => false,
        },
        Phase::Open | Phase::Dismissed | Phase::Ended(_) => false,
    };
    continues.then(|| run.run_id.clone())
}

/// The paused or interrupted run that a request can continue.
pub fn continuable(facts: &Facts) -> Option<RunId> {
    let run = facts.run.as_ref()?;
    matches!(run.phase, Phase::Paused | Phase::Interrupted { .. }).then(|| run.run_id.clone())
}

/// Whether a prompt may be taken now: its agent runs, or is started because of the prompt.
pub fn can_prompt(facts: &Facts, restart: AgentRestart) -> bool {
    is_running(facts) || is_start_allowed(restart, StartTrigger::Prompt)
}

/// Whether an agent must be started because there is an undelivered prompt: of an open run
/// that no agent works on.
pub fn is_stranded(state: &State) -> bool {
    let run = state.facts.run.as_ref().filter(|run| run.is_open());
    let awaited = run.is_some_and(|run| state.prompts(&run.run_id).next().is_some());
    let executor = state.facts.executor.as_ref();
    let unproven = executor.is_some_and(|e| e.status == ExecutorStatus::Unreachable);
    let awaited = awaited && !planted::is(Bug::StrandedUnnoticed);
    awaited && state.facts.closed.is_none() && !unproven && !is_running(&state.facts)
}
