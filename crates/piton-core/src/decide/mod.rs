//! Decisions: state and command in, records out, or a named refusal. The caller makes the records
//! durable and only then carries out the effects that follow from them (they are in the state's
//! `pending` after the records are applied).

mod execution;
mod import;
mod queue;
mod recovery;
mod redact;
mod run;
mod session;
mod stream;
mod token;
mod wait;
mod workspace;

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agent_view::Configure;
use crate::content::PromptContent;
use crate::event::{Event, Fork, Outcome, Seq, ToolStatus, WaitKind};
use crate::id::{
    AccessTokenId, BootId, CallId, ExecutionId, MessageId, RunId, SessionId, TaskId, WaitId,
};
use crate::limits::{EFFECTS_PENDING_MAX, Limits};
use crate::mcp::McpServer;
use crate::reason::Reason;
use crate::record::{Content, NewRecord};
use crate::request::Request;
use crate::spool::Pos;
use crate::state::{Run, State};
use crate::time::Timestamp;
use crate::token::{Entry, NewToken, ResumeToken};
use crate::worktree::WorktreePlan;
use crate::{AnyCode, Code, status};

pub use import::{Import, asks};
pub use wait::fits;

/// What every decision is told about the world.
#[derive(Clone, Debug)]
pub struct Context {
    pub now: Timestamp,
    /// The boot that asks, and that would run what is started.
    pub boot: BootId,
    pub limits: Limits,
}

/// What somebody wants.
#[derive(Clone, Debug)]
pub enum Command {
    Create(Create),
    /// The same, to work in a worktree that is still to be made: both or neither is in the log.
    CreateInWorktree(Create, Box<WorktreePlan>),
    Close {
        outcome: Outcome,
    },
    /// Gives the session another title, also a closed one; `None` removes the title.
    Rename {
        title: Option<String>,
    },
    /// Gives the session an agent, if it has none or never ran one.
    AssignAgent {
        agent_profile_id: String,
    },
    /// What was asked for needs no record; under a key it is written down that it was asked for.
    Nothing,
    /// Begins a run, with a message or without. While the last run waits, or is paused or
    /// interrupted, the new one takes its place.
    Start {
        run_id: RunId,
        message: Option<Message>,
    },
    /// Begins a run with a message, or queues it while a run is in the way.
    Prompt(Prompt),
    /// Starts the run of the queued prompt that is due. `seq` is the record that `content` was read
    /// from: if the prompt was edited, moved or removed meanwhile, nothing happens.
    Deliver {
        seq: Seq,
        content: PromptContent,
    },
    /// Changes what a queued prompt says. `version`: refused if another edit came first.
    EditQueued {
        message_id: MessageId,
        version: Option<Seq>,
        content: PromptContent,
    },
    /// Gives a queued prompt another place; the first is 1.
    MoveQueued {
        message_id: MessageId,
        position: u32,
    },
    RemoveQueued {
        message_id: MessageId,
        version: Option<Seq>,
    },
    /// Lets the prompts be delivered that an interruption, a failure or a cancellation held.
    ReleaseQueue,
    /// Opens a wait. Asking again under the same id changes nothing.
    Wait(Wait),
    /// The run is stuck on an open wait again, after something else was answered.
    Block {
        run_id: RunId,
        wait_id: WaitId,
    },
    /// Answers a wait, or resumes an interruption, with a token.
    AnswerByToken(AnswerByToken),
    /// Answers a wait by its id; `fresh` is minted and consumed for the record.
    AnswerByWait {
        wait_id: WaitId,
        fresh: NewToken,
        answer: Value,
    },
    /// The same, and queues a prompt before all others: what the user wants to say with the answer.
    AnswerWithMessage {
        wait_id: WaitId,
        fresh: NewToken,
        answer: Value,
        prompt: Prompt,
    },
    /// Makes a new token for a wait and revokes the old one.
    RotateToken {
        wait_id: WaitId,
        fresh: NewToken,
    },
    /// Makes a token with which the interrupted run can be resumed.
    MintInterruption {
        fresh: NewToken,
        expires_at: Option<Timestamp>,
    },
    /// Goes on with a paused or interrupted run.
    Resume {
        run_id: RunId,
    },
    Pause {
        run_id: RunId,
    },
    Complete {
        run_id: RunId,
    },
    Fail {
        run_id: RunId,
        code: Option<AnyCode>,
        error: String,
    },
    Cancel {
        run_id: RunId,
        reason: Reason,
    },
    Dismiss {
        run_id: RunId,
    },
    Interrupt {
        run_id: RunId,
        reason: Reason,
    },
    /// The next piece of a streamed message. With an offset: refused unless it fits.
    Say {
        message_id: MessageId,
        offset: Option<u64>,
        text: String,
    },
    /// The end of a streamed message; `hash` is the BLAKE3 hash of its whole text, in hex.
    Said {
        message_id: MessageId,
        hash: String,
    },
    Intend {
        run_id: RunId,
        call_id: CallId,
        name: String,
        arguments: Value,
    },
    Conclude {
        run_id: RunId,
        call_id: CallId,
        status: ToolStatus,
        result: Value,
    },
    /// An executor or agent was seen to change: one of the `executor.*` and `agent.*` events.
    Observe {
        event: Event,
        message: Option<String>,
    },
    /// The order to start an agent was not answered, or refused. It is a failure unless the spool
    /// says meanwhile that the agent was started.
    FailStart {
        execution_id: ExecutionId,
        code: AnyCode,
        message: String,
    },
    /// What an execution's spool says.
    Import(Import),
    /// What an agent is given for a record that demands a prompt, when that is more than was said.
    Prepare(Prepare),
    /// The user gives an unreachable executor up.
    Abandon {
        execution_id: ExecutionId,
    },
    /// The session's agent has had nothing to do for this long: it is to be ended.
    EndIdleAgent {
        execution_id: ExecutionId,
        idle_for: Duration,
    },
    /// Boots have died, or an executor changed: what became of it decides what becomes of its run.
    /// Complete when it is made: by the session's supervisor, which asks the executor first, or by
    /// [`crate::supervise::orphaned_run`] where no executor is left to ask.
    Recover {
        dead: BTreeSet<BootId>,
        /// `None`: no executor may live.
        probe: Option<Probe>,
        /// The execution belonged to another boot: a surviving one is recorded as ready again, so
        /// that clients learn that it was found.
        takes_over: bool,
    },
    /// Deadlines that have passed. `live`: the agent is there and can be told. One whose executor
    /// may live is told later.
    Sweep {
        live: bool,
    },
    /// The effect that follows from a record was carried out.
    Done {
        of_seq: Seq,
    },
    /// A worktree is to be made, or made again after it was removed.
    PlanWorkspace(WorktreePlan),
    /// The worktree is there, as it was planned.
    WorkspacePrepared(WorktreePlan),
    /// The worktree is not there any more.
    WorkspaceRemoved {
        kept_branch: bool,
    },
    /// A user chooses how the agent works.
    Configure(Configure),
    /// Takes contents out, also of a closed session.
    Redact(Redact),
    /// Somebody asks for a command, once: a repetition under the same key is told what the first
    /// one came to.
    Requested {
        request: Request,
        command: Box<Command>,
    },
}

#[derive(Clone, Debug)]
pub struct Create {
    pub session_id: SessionId,
    pub title: Option<String>,
    pub task_id: Option<TaskId>,
    pub working_dir: Option<String>,
    pub provider: Option<Value>,
    pub agent_profile_id: Option<String>,
    pub setup: Setup,
}

/// What a new session's agent is given, from its first start on.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    pub choice: Configure,
    pub mcp_servers: Vec<McpServer>,
    pub fork: Option<Fork>,
}

#[derive(Clone, Debug)]
pub struct Message {
    pub message_id: MessageId,
    pub content: PromptContent,
}

#[derive(Clone, Debug)]
pub struct Prompt {
    /// The run that it starts, now or when it is delivered.
    pub run_id: RunId,
    pub message: Message,
    pub if_busy: IfBusy,
    /// Where it stands if it is queued.
    pub place: Place,
    /// Most prompts that may be queued.
    pub queue_max: usize,
}

/// What becomes of a prompt while a run is in its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IfBusy {
    /// It is queued while a turn is active, and takes the run's place while the run only waits or is
    /// paused.
    #[default]
    Default,
    /// It is queued.
    Queue,
    /// It is refused.
    Reject,
    /// The run is cancelled and it takes the run's place.
    Supersede,
}

/// Where a queued prompt stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    #[default]
    Last,
    /// Before all others, as what belongs to the current turn.
    First,
}

#[derive(Clone, Debug)]
pub struct Wait {
    pub run_id: RunId,
    pub wait_id: WaitId,
    pub kind: WaitKind,
    pub deadline_at: Timestamp,
    pub fresh: NewToken,
    pub question: Value,
}

#[derive(Clone, Debug)]
pub struct Prepare {
    pub of_seq: Seq,
    pub execution_id: ExecutionId,
    /// It tells the history; it says what an interruption cost.
    pub history: bool,
    pub note: bool,
    pub prompt: String,
}

#[derive(Clone, Debug)]
pub struct AnswerByToken {
    pub token: ResumeToken,
    /// What the token index of *this session* says about it.
    pub entry: Option<Entry>,
    pub answer: Value,
}

#[derive(Clone, Debug)]
pub struct Redact {
    pub targets: Vec<RedactTarget>,
    pub reason: Option<String>,
}

/// A record whose content is to be taken out.
#[derive(Clone, Debug)]
pub struct RedactTarget {
    pub seq: Seq,
    /// What the log has of it; `Omitted` is enough to know that there is some.
    pub content: Content,
}

/// What asking an executor came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    Alive,
    Gone,
    Unreachable,
}

/// The records that make it so, in order; none if it already is so.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub records: Vec<NewRecord>,
    pub outcome: Verdict,
}

/// What the asker is told once the records are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is so now.
    Done,
    /// The wait is open and its token minted.
    Asked,
    /// It was so already.
    Already,
    /// This token was used for this very answer; the record with its result.
    Replayed { result_seq: Seq },
    /// The answer was taken; the record with its result.
    Resumed { result_seq: Seq },
    /// This very request was fulfilled before; the record that says so has what was answered.
    Repeated { seq: Seq },
    /// The prompt waits for the run to end; the first in the queue has position 1.
    Queued { position: u32 },
}

/// Why something cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("The session does not exist")]
    SessionNotFound,
    #[error("Session {session} exists already")]
    SessionExists { session: SessionId },
    #[error("The session is closed")]
    SessionClosed,
    #[error("The session is not closed")]
    SessionNotClosed,
    #[error("A newer version of Piton wrote a {kind} record to the session")]
    SessionReadOnly { kind: String },
    #[error("Run {run} is not the session's current run")]
    RunNotFound { run: RunId },
    #[error("Run {run} is still at work")]
    RunInProgress { run: RunId },
    #[error("Run {run} is not open")]
    RunNotOpen { run: RunId },
    #[error("The session has another agent, which was started")]
    AgentAssigned,
    #[error("Run {run} is neither interrupted nor paused")]
    RunNotInterrupted { run: RunId },
    #[error("Run {run} is not interrupted")]
    NoInterruption { run: RunId },
    #[error("The session has no run that could be interrupted")]
    NeverRun,
    #[error("There is no open wait {wait}")]
    WaitNotFound { wait: WaitId },
    #[error("The deadline of wait {wait} has passed")]
    WaitExpired { wait: WaitId },
    #[error("The answer to wait {wait} is none of those that were offered")]
    AnswerInvalid { wait: WaitId },
    #[error("There is no queued prompt {message}")]
    QueuedPromptNotFound { message: MessageId },
    #[error("Queued prompt {message} has version {actual}, not {expected}")]
    QueuedPromptConflict { message: MessageId, expected: Seq, actual: Seq },
    #[error("There is no open call {call}")]
    CallNotOpen { call: CallId },
    #[error("There is no streaming message {message}")]
    MessageNotOpen { message: MessageId },
    #[error("Message {message} goes on at {expected}, not at {offset}")]
    OffsetMismatch { message: MessageId, expected: u64, offset: u64 },
    #[error("The session has no such executor")]
    ExecutorNotFound,
    #[error("Execution {execution} may still be alive")]
    ExecutorAlive { execution: ExecutionId },
    #[error("No more than {max} {what} can be open")]
    LimitReached { what: &'static str, max: usize },
    #[error("The idempotency key was used for something else")]
    IdempotencyKeyReused,
    #[error("The session has no such worktree")]
    WorktreeNotFound,
    #[error("The session has a worktree already: {path}")]
    WorktreeExists { path: String },
    #[error("There is no task {task}")]
    TaskNotFound { task: TaskId },
    #[error("{0}")]
    ChoiceInvalid(String),
    #[error("The agent does not offer the {what} {id:?}{}", offered(.available))]
    ChoiceNotOffered { what: &'static str, id: String, available: Vec<String> },
    #[error("The agent does not offer {what}")]
    AgentNotOffered { what: &'static str },
    #[error("Session {session} has the agent's conversation {id:?}")]
    AgentSessionInUse { id: String, session: SessionId },
    #[error("Task {task} is closed")]
    TaskClosed { task: TaskId },
    #[error("Task {task} has sessions that are not closed: {sessions}")]
    TaskInUse { task: TaskId, sessions: String },
    #[error("There is no access {access}")]
    AccessTokenNotFound { access: AccessTokenId },
    #[error("Entry {pos} does not follow entry {last} of the spool")]
    SpoolGap { last: Pos, pos: Pos },
    #[error("The session has no record {seq}")]
    RecordNotFound { seq: Seq },
    #[error("Record {seq} has no content that could be taken out")]
    RecordEmpty { seq: Seq },
    #[error("There is no such token")]
    ResumeTokenNotFound,
    #[error("The token does not belong to what it was presented for")]
    ResumeTokenMismatch,
    #[error("The token was used already, with another answer")]
    ResumeTokenConsumed,
    #[error("The token was revoked")]
    ResumeTokenRevoked { reason: Reason },
    #[error("The token has expired")]
    ResumeTokenExpired,
}

impl Refusal {
    pub fn code(&self) -> Code {
        match self {
            Self::SessionNotFound => Code::SessionNotFound,
            Self::SessionExists { .. } => Code::SessionExists,
            Self::SessionClosed => Code::SessionClosed,
            Self::SessionNotClosed => Code::SessionNotClosed,
            Self::SessionReadOnly { .. } => Code::SessionReadOnly,
            Self::RunNotFound { .. } => Code::RunNotFound,
            Self::RunInProgress { .. } => Code::RunInProgress,
            Self::AgentAssigned => Code::AgentProfileConflict,
            Self::RunNotOpen { .. } => Code::RunNotOpen,
            Self::RunNotInterrupted { .. } | Self::NoInterruption { .. } | Self::NeverRun => {
                Code::RunNotInterrupted
            }
            Self::WaitNotFound { .. } => Code::WaitNotFound,
            Self::WaitExpired { .. } => Code::WaitExpired,
            Self::AnswerInvalid { .. } => Code::AnswerInvalid,
            Self::QueuedPromptNotFound { .. } => Code::QueuedPromptNotFound,
            Self::QueuedPromptConflict { .. } => Code::QueuedPromptConflict,
            Self::CallNotOpen { .. } => Code::CallNotOpen,
            Self::MessageNotOpen { .. } => Code::MessageNotOpen,
            Self::OffsetMismatch { .. } => Code::OffsetMismatch,
            Self::ExecutorNotFound => Code::ExecutorNotFound,
            Self::ExecutorAlive { .. } => Code::ExecutorAlive,
            Self::LimitReached { .. } => Code::LimitReached,
            Self::IdempotencyKeyReused => Code::IdempotencyKeyReused,
            Self::WorktreeNotFound => Code::WorktreeNotFound,
            Self::WorktreeExists { .. } => Code::WorktreeExists,
            Self::TaskNotFound { .. } => Code::TaskNotFound,
            Self::ChoiceInvalid(_) => Code::RequestInvalid,
            Self::AgentNotOffered { .. } => Code::AgentNotOffered,
            Self::AgentSessionInUse { .. } => Code::AgentSessionInUse,
            Self::ChoiceNotOffered { .. } => Code::ChoiceNotOffered,
            Self::TaskClosed { .. } => Code::TaskClosed,
            Self::TaskInUse { .. } => Code::TaskInUse,
            Self::AccessTokenNotFound { .. } => Code::AccessTokenNotFound,
            Self::SpoolGap { .. } => Code::SpoolGap,
            Self::RecordNotFound { .. } => Code::RecordNotFound,
            Self::RecordEmpty { .. } => Code::RecordEmpty,
            Self::ResumeTokenNotFound => Code::ResumeTokenNotFound,
            Self::ResumeTokenMismatch => Code::ResumeTokenMismatch,
            Self::ResumeTokenConsumed => Code::ResumeTokenConsumed,
            Self::ResumeTokenRevoked { .. } => Code::ResumeTokenRevoked,
            Self::ResumeTokenExpired => Code::ResumeTokenExpired,
        }
    }
}

/// What could be chosen instead, for people.
fn offered(available: &[String]) -> String {
    if available.is_empty() {
        return "; it offers none".to_owned();
    }
    format!("; it offers: {}", available.join(", "))
}

/// Decides. Pure: the same arguments give the same answer.
#[expect(clippy::too_many_lines, reason = "one arm for each command")]
pub fn decide(state: &State, cx: &Context, command: Command) -> Result<Decision, Refusal> {
    if let Command::Requested { request, command } = command {
        return requested(state, cx, request, *command);
    }
    if let Command::Create(create) = command {
        return session::create(state, cx, create);
    }
    if let Command::CreateInWorktree(create, plan) = command {
        let mut decision = session::create(state, cx, create)?;
        decision.records.push(workspace::planned(cx, *plan));
        return Ok(decision);
    }
    if state.info.is_none() {
        return Err(Refusal::SessionNotFound);
    }
    // A replay is a read: it is answered whatever became of the session.
    if let Command::AnswerByToken(answer) = &command
        && let Some(replayed) = token::replay(answer)?
    {
        return Ok(replayed);
    }
    if let Some(kind) = &state.facts.unknown_critical {
        return Err(Refusal::SessionReadOnly { kind: kind.clone() });
    }
    if let Command::Close { outcome } = command {
        return session::close(state, cx, outcome);
    }
    // What the world did, and that an effect was carried out, is recorded even after the end.
    match command {
        Command::Done { of_seq } => return Ok(stream::done(state, cx, of_seq)),
        Command::Observe { event, message } => {
            return execution::observe(state, cx, event, message);
        }
        Command::FailStart { execution_id, code, message } => {
            return Ok(execution::fail_start(state, cx, execution_id, code, message));
        }
        Command::Abandon { execution_id } => {
            return execution::abandon(state, cx, &execution_id);
        }
        // What a closed session's agent is still owed must reach it.
        Command::Recover { dead, probe, takes_over } => {
            return Ok(recovery::recover(state, cx, &dead, probe, takes_over));
        }
        Command::Redact(redact) => return redact::redact(state, cx, redact),
        Command::Rename { title } => return Ok(session::rename(state, cx, title)),
        Command::AssignAgent { agent_profile_id } if state.facts.closed.is_none() => {
            return session::assign_agent(state, cx, agent_profile_id);
        }
        Command::Import(import) => return import::import(state, cx, import),
        Command::WorkspacePrepared(plan) => return workspace::prepared(state, cx, plan),
        // A closed session's worktree is cleaned up, too.
        Command::WorkspaceRemoved { kept_branch } => {
            return workspace::removed(state, cx, kept_branch);
        }
        _ if state.facts.closed.is_some() => return Err(Refusal::SessionClosed),
        _ => {}
    }
    match command {
        Command::Nothing => Ok(Decision::already()),
        Command::Start { run_id, message } => run::start(state, cx, run_id, message),
        Command::Prompt(prompt) => queue::prompt(state, cx, prompt),
        Command::Deliver { seq, content } => queue::deliver(state, cx, seq, content),
        Command::EditQueued { message_id, version, content } => {
            queue::edit(state, cx, message_id, version, &content)
        }
        Command::MoveQueued { message_id, position } => {
            queue::reorder(state, cx, message_id, position)
        }
        Command::RemoveQueued { message_id, version } => {
            queue::remove(state, cx, message_id, version)
        }
        Command::ReleaseQueue => Ok(queue::release(state, cx)),
        Command::Wait(wait) => wait::wait(state, cx, wait),
        Command::Block { run_id, wait_id } => wait::block(state, cx, run_id, wait_id),
        Command::AnswerByToken(answer) => token::answer(state, cx, answer),
        Command::AnswerByWait { wait_id, fresh, answer } => {
            wait::answer(state, cx, wait_id, fresh, answer)
        }
        Command::AnswerWithMessage { wait_id, fresh, answer, prompt } => {
            let answered = wait::answer(state, cx, wait_id, fresh, answer)?;
            queue::behind(state, cx, answered, prompt)
        }
        Command::RotateToken { wait_id, fresh } => wait::rotate(state, cx, &wait_id, fresh),
        Command::MintInterruption { fresh, expires_at } => {
            token::mint_interruption(state, cx, fresh, expires_at)
        }
        Command::Resume { run_id } => run::resume(state, cx, run_id),
        Command::Pause { run_id } => run::pause(state, cx, run_id),
        Command::Complete { run_id } => run::complete(state, cx, &run_id),
        Command::Fail { run_id, code, error } => run::fail(state, cx, &run_id, code, error),
        Command::Cancel { run_id, reason } => run::cancel(state, cx, run_id, reason),
        Command::Dismiss { run_id } => run::dismiss(state, cx, run_id),
        Command::Interrupt { run_id, reason } => recovery::interrupt(state, cx, &run_id, reason),
        Command::Say { message_id, offset, text } => {
            stream::say(state, cx, message_id, offset, text)
        }
        Command::Said { message_id, hash } => stream::said(state, cx, message_id, hash),
        Command::Intend { run_id, call_id, name, arguments } => {
            stream::intend(state, cx, run_id, call_id, name, arguments)
        }
        Command::Conclude { run_id, call_id, status, result } => {
            stream::conclude(state, cx, run_id, call_id, status, result)
        }
        Command::Sweep { live } => Ok(recovery::sweep(state, cx, live)),
        Command::Prepare(prepare) => execution::prepare(state, cx, prepare),
        Command::EndIdleAgent { execution_id, idle_for } => {
            Ok(execution::end_idle(state, cx, execution_id, idle_for))
        }
        Command::PlanWorkspace(plan) => workspace::plan(state, cx, plan),
        Command::Configure(choice) => session::configure(cx, choice),
        Command::Create(_)
        | Command::CreateInWorktree(..)
        | Command::WorkspacePrepared(_)
        | Command::WorkspaceRemoved { .. }
        | Command::Close { .. }
        | Command::Done { .. }
        | Command::Observe { .. }
        | Command::FailStart { .. }
        | Command::Abandon { .. }
        | Command::Redact(_)
        | Command::Rename { .. }
        | Command::AssignAgent { .. }
        | Command::Import(_)
        | Command::Requested { .. }
        | Command::Recover { .. } => Err(Refusal::SessionClosed),
    }
}

fn requested(
    state: &State,
    cx: &Context,
    request: Request,
    command: Command,
) -> Result<Decision, Refusal> {
    if let Some(seq) = state.requests.find(&request, cx.now, cx.limits.request_kept_for)? {
        return Ok(Decision { records: Vec::new(), outcome: Verdict::Repeated { seq } });
    }
    let mut decision = decide(state, cx, command)?;
    // Under a key also what had nothing to change: asked again, later, it must still change nothing.
    // In a closed session nothing ever will.
    let is_kept = request.key.is_some() && state.facts.closed.is_none();
    if !decision.records.is_empty() || is_kept {
        let mut request = request;
        // Whether it is queued is known only now, and a repetition is told the same.
        if let (Verdict::Queued { position }, Some(Value::Object(response))) =
            (decision.outcome, &mut request.response)
        {
            response.insert("queued".to_owned(), true.into());
            response.insert("position".to_owned(), position.into());
        }
        decision.records.push(request.record(cx.now));
    }
    Ok(decision)
}

/// How a session's log leaves the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    Delete,
    /// Whatever is still at work in it.
    DeleteForced,
    /// Into a bundle; for closed sessions.
    Archive,
}

/// Whether a session's log may leave the store.
pub fn may_remove(state: &State, removal: Removal) -> Result<(), Refusal> {
    session::may_remove(state, removal)
}

/// What a holder who presents a token that was used before is told; `None` if it was not. A pure
/// read: it needs neither the session's state nor its lease.
pub fn replay_token(answer: &AnswerByToken) -> Result<Option<Decision>, Refusal> {
    token::replay(answer)
}

impl Decision {
    fn done(records: Vec<NewRecord>) -> Self {
        Self { records, outcome: Verdict::Done }
    }

    fn already() -> Self {
        Self { records: Vec::new(), outcome: Verdict::Already }
    }
}

/// The session's current run, which must be the one that is meant.
fn run_named<'a>(state: &'a State, run_id: &RunId) -> Result<&'a Run, Refusal> {
    let unknown = || Refusal::RunNotFound { run: run_id.clone() };
    state.facts.run.as_ref().filter(|run| run.run_id == *run_id).ok_or_else(unknown)
}

fn open_run<'a>(state: &'a State, run_id: &RunId) -> Result<&'a Run, Refusal> {
    let run = run_named(state, run_id)?;
    if run.is_open() { Ok(run) } else { Err(Refusal::RunNotOpen { run: run_id.clone() }) }
}

/// What is begun now will cause effects; those that nobody carries out must not pile up.
fn room_for_effects(state: &State) -> Result<(), Refusal> {
    if state.pending.len() >= EFFECTS_PENDING_MAX {
        return Err(Refusal::LimitReached { what: "effects", max: EFFECTS_PENDING_MAX });
    }
    Ok(())
}

/// Revokes every token of the session that is still good. The list is short: tokens belong to the
/// current run.
fn revoke_all(state: &State, cx: &Context, reason: Reason, records: &mut Vec<NewRecord>) {
    for token_id in state.tokens.keys() {
        let event = crate::event::TokenRevoked { token_id: token_id.clone(), reason };
        records.push(NewRecord::new(cx.now, event));
    }
}

/// Appends what the status is after the records, for readers who did not ask for the change.
fn with_status(state: &State, cx: &Context, mut records: Vec<NewRecord>) -> Vec<NewRecord> {
    let mut after = facts_only(state);
    for record in &records {
        after.apply(after.last_seq + 1, record.ts, &record.event);
    }
    let status = status::derive(&after.facts, &BTreeSet::new(), cx.now);
    let event = crate::event::StatusDerived {
        status: status.name.as_str().to_owned(),
        reason: Some(status.reason),
    };
    records.push(NewRecord::new(cx.now, event));
    records
}

/// As much of a state as the status depends on, to try records on.
fn facts_only(state: &State) -> State {
    State {
        facts: state.facts.clone(),
        tokens: state.tokens.clone(),
        queue: state.queue.clone(),
        ..State::default()
    }
}
