//! Why a request was not fulfilled.

use std::path::PathBuf;
use std::sync::Arc;

use piton_core::content::BlockKind;
use piton_core::decide::Refusal;
use piton_core::id::{self, CheckpointId, ExecutionId, SessionId, TaskId};
use piton_core::reason::Reason;
use piton_core::{AnyCode, Code};
use piton_exec::client::ClientError;
use piton_exec::executor::Fault;
use piton_workspace::{finish, snapshot, worktree};

use crate::supervisor::StartError;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The rules say no. Nothing was written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store says no, or cannot.
    #[error(transparent)]
    Store(#[from] piton_store::Error),
    /// The session's agentctl says no, or nothing.
    #[error(transparent)]
    Agentctl(#[from] Fault),
    /// The session's agent cannot be started; the log says so, too.
    #[error(transparent)]
    StartError(#[from] StartError),
    /// A start came to nothing; the log says so, too.
    #[error(transparent)]
    StartFailed(#[from] StartFailure),
    #[error("The agent has not started in time")]
    AgentLate,
    /// The session's worktree is not as it should be, or git says no.
    #[error(transparent)]
    Worktree(Arc<worktree::Error>),
    /// The work could not be committed, merged or pushed.
    #[error(transparent)]
    Finish(Arc<finish::Error>),
    /// A rewind began and could not be carried out: files and conversation are as they were.
    #[error("The rewind was not carried out: {message}")]
    RestoreFailed { code: Code, message: String },
    /// A snapshot of the workspace could not be taken or restored.
    #[error(transparent)]
    Snapshot(Arc<snapshot::Error>),
    #[error("The session has no checkpoint {checkpoint:?}")]
    CheckpointNotFound { checkpoint: String },
    #[error("Checkpoint {checkpoint} has no snapshot of the files{}", previous_text(.previous.as_ref()))]
    SnapshotNotFound { checkpoint: CheckpointId, previous: Option<CheckpointId> },
    /// Files changed that the session did not change.
    #[error("Files changed that this session did not change: {}", listed(.paths))]
    WorkspaceConflict { paths: Vec<String> },
    #[error("The session service is shutting down")]
    ShuttingDown,
    /// The arguments make no sense; the text says which.
    #[error("{0}")]
    Invalid(String),
    #[error(transparent)]
    Id(#[from] id::Error),
    /// What a graph or its checkpoints say.
    #[error(transparent)]
    Graph(Arc<piton_graph::Error>),
    #[error("A graph runs in session {session}")]
    GraphRunning { session: SessionId },
    #[error("Session {session} runs a graph")]
    SessionIsGraph { session: SessionId },
    #[error("There is no agent {agent:?}")]
    AgentNotFound { agent: String },
    #[error("The session {session} names no agent")]
    AgentProfileRequired { session: SessionId },
    /// The workspace of a closed session cannot be read.
    #[error(transparent)]
    Folder(Arc<piton_workspace::Error>),
    /// The restart policy does not start it for a prompt.
    #[error("The session's agent does not run")]
    AgentNotRunning,
    /// It was to be given up as one that does not respond.
    #[error("The executor {execution} responds")]
    ExecutorInUse { execution: ExecutionId },
    #[error("The session's agent takes no content of the kind {kind}")]
    ContentNotSupported { kind: BlockKind },
    #[error("The request was fulfilled before, under this key")]
    ResponseNotKept,
    /// What was asked for needs a running engine; this one is offline.
    #[error("This needs a server, and none runs")]
    ServerRequired,
    #[error("This is no place in the list")]
    CursorInvalid,
    #[error("Task {task} has more than {max} sessions")]
    TaskTooLarge { task: TaskId, max: usize },
    #[error("The link is not known, has expired, or was used before")]
    LinkInvalid,
    #[error("There is no such shell")]
    ShellNotFound,
    #[error("There is a file {} already", path.display())]
    FileExists { path: PathBuf },
    /// The session exists, and its worktree does not yet.
    #[error("{error}")]
    WorktreePending { session: SessionId, error: Box<Self> },
    /// agentctl says no about the workspace, or nothing.
    #[error(transparent)]
    Workspace(Arc<ClientError>),
}

/// Why a session's agent does not run though it was started, in the words of the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The agent `{agent}` could not be started: {message}")]
pub struct StartFailure {
    pub session: SessionId,
    pub agent: String,
    pub reason: Reason,
    pub code: AnyCode,
    pub message: String,
    /// The agent was to continue a conversation: the user can leave it.
    pub has_conversation: bool,
}

impl StartFailure {
    pub fn code(&self) -> Code {
        match agentctl_code(&self.code) {
            Code::AgentctlRefused => Code::AgentStartFailed,
            code => code,
        }
    }

    /// What the user can do about a conversation that the agent does not continue.
    pub fn choices(&self) -> Option<String> {
        let session = &self.session;
        self.has_conversation.then(|| {
            format!(
                "Retry: `piton sessions resume {session}`. Continue with history: `piton sessions \
                 resume {session} --with-history`. Continue without context: `piton sessions resume \
                 {session} --fresh`. New session: `piton chat`."
            )
        })
    }
}

impl From<piton_graph::Error> for Error {
    fn from(error: piton_graph::Error) -> Self {
        match error {
            piton_graph::Error::Store(error) => Self::Store(error),
            piton_graph::Error::Refused(refusal) => Self::Refused(refusal),
            other => Self::Graph(Arc::new(other)),
        }
    }
}

impl Error {
    pub fn code(&self) -> Code {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Store(error) => error.code(),
            Self::Agentctl(Fault::Problem(problem)) => agentctl_code(&problem.code),
            Self::Agentctl(Fault::Unreachable { .. }) => Code::AgentctlUnreachable,
            Self::StartError(start_error) => start_error.code,
            Self::StartFailed(failure) => failure.code(),
            Self::AgentLate | Self::AgentNotRunning => Code::AgentNotRunning,
            Self::Worktree(fault) => fault.code(),
            Self::Finish(fault) => fault.code(),
            Self::RestoreFailed { code, .. } => *code,
            Self::Snapshot(fault) => snapshot_code(fault),
            Self::CheckpointNotFound { .. } => Code::CheckpointNotFound,
            Self::SnapshotNotFound { .. } => Code::SnapshotNotFound,
            Self::WorkspaceConflict { .. } => Code::WorkspaceConflict,
            Self::ShuttingDown => Code::StoreClosed,
            Self::Invalid(_) => Code::RequestInvalid,
            Self::Id(_) => Code::IdInvalid,
            Self::Graph(error) => error.code(),
            Self::GraphRunning { .. } => Code::RunInProgress,
            Self::SessionIsGraph { .. } => Code::SessionIsGraph,
            Self::AgentNotFound { .. } => Code::AgentNotFound,
            Self::AgentProfileRequired { .. } => Code::AgentProfileRequired,
            Self::Folder(error) => error.code(),
            Self::ExecutorInUse { .. } => Code::ExecutorInUse,
            Self::ContentNotSupported { .. } => Code::ContentNotSupported,
            Self::ResponseNotKept => Code::ResponseNotKept,
            Self::ServerRequired => Code::ServerNotRunning,
            Self::CursorInvalid => Code::CursorInvalid,
            Self::TaskTooLarge { .. } => Code::LimitReached,
            Self::LinkInvalid => Code::Unauthenticated,
            Self::ShellNotFound => Code::ShellNotFound,
            Self::FileExists { .. } => Code::FileExists,
            Self::WorktreePending { error, .. } => error.code(),
            Self::Workspace(error) => workspace_code(error),
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        self.code().hint()
    }
}

impl From<snapshot::Error> for Error {
    fn from(fault: snapshot::Error) -> Self {
        Self::Snapshot(Arc::new(fault))
    }
}

fn snapshot_code(fault: &snapshot::Error) -> Code {
    use snapshot::Error as Fault;
    match fault {
        Fault::TooManyFiles { .. } => Code::LimitReached,
        Fault::ObjectMissing { .. } => Code::SnapshotNotFound,
        Fault::ObjectDamaged { .. } => Code::CheckpointDamaged,
        Fault::InUse | Fault::WorkspaceInUse => Code::StoreInUse,
        Fault::RestoreOpen => Code::RestoreInProgress,
        Fault::ForeignChanges { .. } | Fault::NotSaved { .. } => Code::WorkspaceConflict,
        Fault::DiskFull { .. } => Code::DiskFull,
        Fault::NotWritable { source, .. }
        | Fault::Io { source, .. }
        | Fault::Incomplete { source, .. }
            if is_full(source) =>
        {
            Code::DiskFull
        }
        Fault::NotWritable { .. } => Code::FileNotPermitted,
        Fault::Io { .. } | Fault::Incomplete { .. } => Code::FileIo,
        Fault::NoRandomness => Code::EntropyUnavailable,
    }
}

/// The disk, or the user's share of it.
fn is_full(source: &std::io::Error) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(source.kind(), StorageFull | QuotaExceeded)
}

/// The checkpoint that has a snapshot instead.
fn previous_text(previous: Option<&CheckpointId>) -> String {
    previous.map_or_else(String::new, |id| format!("; the one before that has is {id}"))
}

/// The first paths, and how many more.
fn listed(paths: &[String]) -> String {
    const LISTED_MAX: usize = 10;
    let first = paths.iter().take(LISTED_MAX).map(|path| path.replace(['\n', '\r'], " "));
    let first: Vec<String> = first.collect();
    let more = paths.len().saturating_sub(LISTED_MAX);
    if more == 0 { first.join(", ") } else { format!("{} and {more} more", first.join(", ")) }
}

/// What agentctl says about an agent or an execution. What it says about the server's own request is
/// nothing that a caller could do something about.
fn agentctl_code(code: &AnyCode) -> Code {
    match code.known() {
        None
        | Some(
            Code::Unauthenticated
            | Code::EpochStale
            | Code::EpochRequired
            | Code::ExecutorAlive
            | Code::CursorInvalid
            | Code::NotFound
            | Code::RequestInvalid,
        ) => Code::AgentctlRefused,
        Some(code) => code,
    }
}

/// What agentctl says about a workspace.
fn workspace_code(error: &ClientError) -> Code {
    match error.code().known() {
        Some(code @ (Code::NotFound | Code::RequestInvalid)) => code,
        _ => agentctl_code(&error.code()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_named_wherever_it_is_met() {
        use std::io::ErrorKind::{Other, PermissionDenied, QuotaExceeded, StorageFull};
        let path = || PathBuf::from("a");
        let code = |fault| snapshot_code(&fault);
        for full in [StorageFull, QuotaExceeded] {
            let source = || std::io::Error::from(full);
            let (io, not_writable) = (
                snapshot::Error::Io { path: path(), source: source() },
                snapshot::Error::NotWritable { path: path(), source: source() },
            );
            let incomplete = snapshot::Error::Incomplete { path: path(), source: source() };
            assert_eq!([io, not_writable, incomplete].map(code), [Code::DiskFull; 3], "{full}");
        }
        let io = snapshot::Error::Io { path: path(), source: Other.into() };
        assert_eq!(code(io), Code::FileIo);
        let refused =
            snapshot::Error::NotWritable { path: path(), source: PermissionDenied.into() };
        assert_eq!(code(refused), Code::FileNotPermitted);
    }
}
