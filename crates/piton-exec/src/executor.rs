//! An executor launches agentctls, finds them again, and proves their death. It knows nothing of
//! what they do: that is between the server and them, through a [`Client`].
//!
//! Docker and remote executors are to come: nothing here speaks of pids, and of paths only where
//! a file lies on the server's own machine.

use std::fmt;
use std::io;
use std::path::PathBuf;

use futures_util::future::BoxFuture;
use piton_core::Code;
use piton_core::id::{ExecutionId, SessionId};

use crate::client::Client;
use crate::leftovers;
use crate::protocol::Limits;

pub type Result<T> = std::result::Result<T, Error>;

/// What an execution is launched with.
#[derive(Clone)]
pub struct LaunchSpec {
    pub session: SessionId,
    /// Used once: an execution is one life of one agentctl.
    pub execution: ExecutionId,
    pub epoch: u64,
    /// Where the agent works, as the executor's machine names it.
    pub workspace: PathBuf,
    /// Bearer token and spool key are derived from it.
    pub secret: [u8; 32],
    pub mask_values: Vec<String>,
    /// `None`: the usual ones.
    pub mask_keys: Option<Vec<String>>,
    pub limits: Limits,
    /// The newest protocol that it may speak; one that this program does not know is the only one
    /// then. For tests of an upgrade.
    pub protocol_max: Option<u32>,
}

impl fmt::Debug for LaunchSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LaunchSpec({} of {})", self.execution, self.session)
    }
}

/// How an agentctl is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    Socket(PathBuf),
}

/// An execution that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    pub execution: ExecutionId,
    pub address: Address,
}

impl Located {
    pub fn client(&self, secret: &[u8; 32], epoch: u64) -> Client {
        let Address::Socket(path) = &self.address;
        Client::new(path, secret, epoch)
    }
}

/// What is known of an execution's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It answers.
    Alive,
    /// Proven dead, with everything that it ever started.
    Gone,
    /// Neither: it may be at work.
    Unreachable,
}

/// Launches agentctls and keeps track of them, also of those that another life of the server
/// launched.
pub trait Executor: Send + Sync + fmt::Debug {
    fn name(&self) -> &'static str;

    /// Resolves when agentctl answers. Refuses an execution that was launched before, dead or
    /// alive. When it fails, nothing of it is left running.
    fn launch(&self, spec: LaunchSpec) -> BoxFuture<'_, Result<Located>>;

    /// Every execution that is there, dead or alive, and whose it is.
    fn list(&self) -> BoxFuture<'_, Result<Vec<(SessionId, ExecutionId)>>>;

    /// Whether there is such an execution, dead or alive, and how it would be reached.
    fn find<'a>(&'a self, execution: &'a ExecutionId) -> BoxFuture<'a, Result<Option<Located>>>;

    /// Ends what a dead agentctl left running before it says [`Liveness::Gone`]. An execution that
    /// was never there is gone.
    fn probe<'a>(&'a self, execution: &'a ExecutionId) -> BoxFuture<'a, Liveness>;

    /// Ends agentctl and everything that it started; then it is gone. What it left in its spool
    /// stays. Does nothing to one that is gone already.
    fn stop<'a>(&'a self, execution: &'a ExecutionId) -> BoxFuture<'a, Result<()>>;

    /// A folder on this machine with the spool of an execution that is gone, for
    /// [`SpoolReader`](crate::spool::SpoolReader). Need not exist if nothing was ever written.
    fn spool<'a>(&'a self, execution: &'a ExecutionId) -> BoxFuture<'a, Result<PathBuf>>;

    /// Keeps what is left of an execution that is gone, where [`Self::list`] does not find it.
    fn set_aside<'a>(&'a self, execution: &'a ExecutionId) -> BoxFuture<'a, Result<()>>;

    /// Removes all that is kept of an execution that is gone, its spool too.
    fn forget<'a>(&'a self, execution: &'a ExecutionId) -> BoxFuture<'a, Result<()>>;

    /// Clears away what no execution uses any more and no launch will, such as programs of earlier
    /// versions. Nothing that runs, or is kept of what ran, is touched.
    fn tidy(&self) -> BoxFuture<'_, Result<()>>;
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("Cannot {what} {}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("The execution {execution} was launched before")]
    Exists { execution: ExecutionId },
    #[error("The execution {execution} is alive")]
    Alive { execution: ExecutionId },
    #[error("The execution {execution} does not end")]
    Stuck { execution: ExecutionId },
    #[error("{} is not a folder of our own that nobody else can enter", path.display())]
    Unsafe { path: PathBuf },
    #[error("Others than its owner can write to {}", path.display())]
    Exposed { path: PathBuf },
    #[error("No path for a socket is short enough: {} has {bytes} bytes", path.display())]
    TooLong { path: PathBuf, bytes: usize },
    #[error("The program {} cannot be started", path.display())]
    Program { path: PathBuf, source: io::Error },
    /// `said` is the end of its own log.
    #[error("agentctl ended at once ({status}): {said}")]
    Ended { status: String, said: String },
    #[error("agentctl did not answer within {seconds} s: {said}")]
    Silent { seconds: u64, said: String },
    #[error(transparent)]
    Leftovers(#[from] leftovers::Error),
}

impl Error {
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "executor_io",
            Self::Exists { .. } => "execution_exists",
            Self::Alive { .. } => "execution_alive",
            Self::Stuck { .. } => "execution_stuck",
            Self::Unsafe { .. } => "socket_folder_unsafe",
            Self::Exposed { .. } => Code::FilePermissions.as_str(),
            Self::TooLong { .. } => "socket_path_too_long",
            Self::Program { .. } => "agentctl_missing",
            Self::Ended { .. } => "agentctl_ended",
            Self::Silent { .. } => "agentctl_silent",
            Self::Leftovers(error) => error.code(),
        }
    }

    /// What to do about it, where there is something to be done.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unsafe { .. } => Some("Remove it, or use a data folder with a shorter path"),
            Self::Exposed { .. } => Some(Code::FilePermissions.hint()),
            Self::TooLong { .. } => Some("Use a data folder with a shorter path"),
            _ => None,
        }
    }
}
