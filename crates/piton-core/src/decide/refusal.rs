//! Why a command is refused, and the code of each reason.

use crate::Code;
use crate::event::Seq;
use crate::id::{AccessTokenId, CallId, ExecutionId, MessageId, RunId, SessionId, TaskId, WaitId};
use crate::reason::Reason;
use crate::spool::Pos;

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
    #[error("A rewind of the session has not ended")]
    RestoreInProgress,
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
    #[error("Message {message} continues at {expected}, not at {offset}")]
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
            Self::RestoreInProgress => Code::RestoreInProgress,
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
