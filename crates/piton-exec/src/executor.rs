//! An executor launches agentctls, finds them again, proves their death and speaks to them.
//!
//! Docker and remote executors are to come: nothing here speaks of pids, and of paths only where
//! a file lies on the server's own machine. The simulator implements the same trait.

mod connection;
mod conversation;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::BoxFuture;
use piton_core::Code;
use piton_core::decide::Probe;
use piton_core::id::{ExecutionId, SessionId};
use piton_core::mask::{MaskRules, Masker};
use piton_core::spool::{Pos, Spool};

pub use connection::Connections;
pub use conversation::{Drained, Fault};

use crate::client::Client;
use crate::leftovers;
use crate::protocol::{Command, Frame, Limits, Reply};

/// How long an agentctl may take to answer after its launch, unless a setting says otherwise.
pub const READY_TIMEOUT: Duration = Duration::from_mins(1);

pub type Result<T, E = Error> = std::result::Result<T, E>;

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
    /// How long it may take to answer.
    pub ready_timeout: Duration,
    /// The newest protocol that it may speak; one that this program does not know is the only one
    /// then. For tests of an upgrade.
    pub protocol_max: Option<u32>,
}

impl fmt::Debug for LaunchSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LaunchSpec({} of {})", self.execution, self.session)
    }
}

/// What every execution of a server is launched with.
#[derive(Clone)]
pub struct LaunchOptions {
    /// Agentctls write spools: they mask by the same rules as the process that imports them.
    pub given: MaskRules,
    pub limits: Limits,
}

impl LaunchOptions {
    pub fn new(masker: &Masker) -> Self {
        Self { given: masker.given(), limits: Limits::default() }
    }
}

/// No secret may reach a log line.
impl fmt::Debug for LaunchOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LaunchOptions({:?}, {:?})", self.given, self.limits)
    }
}

/// One execution, and what a caller needs to speak to it.
#[derive(Clone)]
pub struct At {
    pub session: SessionId,
    pub execution: ExecutionId,
    /// Who has it may speak to the execution and read its spool.
    pub secret: [u8; 32],
    /// The caller's lease; a lower one than the highest seen is refused.
    pub epoch: u64,
}

impl fmt::Debug for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "At({} of {}, epoch {})", self.execution, self.session, self.epoch)
    }
}

/// An execution that an executor lists, whether or not a session knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedExecution {
    pub session: SessionId,
    pub execution: ExecutionId,
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
    /// The newest protocol to speak to it; `None`: the newest that this program knows.
    pub protocol_max: Option<u32>,
}

impl Located {
    pub fn client(&self, secret: &[u8; 32], epoch: u64) -> Client {
        let Address::Socket(path) = &self.address;
        let client = Client::new(path, secret, epoch);
        match self.protocol_max {
            Some(protocol_max) => client.with_protocol_max(protocol_max),
            None => client,
        }
    }
}

/// Launches agentctls, keeps track of them, also of those that another life of the server launched,
/// and speaks to them.
///
/// An implementation gives the first part. The second part follows from it: [`Self::find`] names a
/// socket to connect to, and [`Self::spool`] a folder to read. Only an executor without sockets
/// and folders, such as a simulated one, replaces the second part.
pub trait Executor: Send + Sync + fmt::Debug + 'static {
    /// The name under which the log knows where executions run.
    fn name(&self) -> &'static str;

    /// Resolves when agentctl answers. Refuses an execution that was launched before, dead or
    /// alive. When it fails, nothing of it is left running.
    fn launch(&self, spec: LaunchSpec) -> BoxFuture<'_, Result<(), Fault>>;

    /// Every execution that is there, dead or alive, and whose it is.
    fn list(&self) -> BoxFuture<'_, Result<Vec<ListedExecution>>>;

    /// Whether there is such an execution, dead or alive, and how it would be reached.
    fn find<'a>(&'a self, execution: &'a ExecutionId) -> BoxFuture<'a, Result<Option<Located>>>;

    /// *Gone* is proven: what a dead agentctl left running was ended first, and nothing of the
    /// execution will ever run again. A launch under its id that is still under way, by whomever,
    /// fails from then on. An execution that was never there is gone.
    fn probe<'a>(&'a self, execution: &'a ExecutionId) -> BoxFuture<'a, Probe>;

    /// Ends agentctl and everything that it started; then it is gone. What it left in its spool
    /// stays. Does nothing to one that is gone already. `epoch` is the caller's lease: an executor
    /// that knows a higher one may refuse.
    fn stop<'a>(
        &'a self,
        execution: &'a ExecutionId,
        epoch: u64,
    ) -> BoxFuture<'a, Result<(), Fault>>;

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

    /// Ends and removes an execution whose session was deleted, and its secret with it.
    fn purge<'a>(&'a self, found: &'a ListedExecution) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            self.stop(&found.execution, u64::MAX).await?;
            self.forget(&found.execution).await.map_err(Fault::unreachable)
        })
    }

    /// The clients of the current connections, for an executor that keeps them: then the handshake
    /// (where agentctl is, and which version it speaks) is made once per connection.
    fn connections(&self) -> Option<&Connections> {
        None
    }

    /// A client of agentctl, for what is no record: files, git, shells. That of the current
    /// connection, if there is one.
    fn client<'a>(&'a self, at: &'a At) -> BoxFuture<'a, Result<Client, Fault>> {
        Box::pin(async move {
            match self.connections().and_then(|connections| connections.get(at)) {
                Some(client) => Ok(client),
                None => self.connect(at).await,
            }
        })
    }

    /// A client of a new connection: the handshake is made again with its first request.
    fn connect<'a>(&'a self, at: &'a At) -> BoxFuture<'a, Result<Client, Fault>> {
        Box::pin(async move {
            let located = self.find(&at.execution).await.map_err(Fault::unreachable)?;
            let located = located.ok_or_else(|| Fault::unreachable("It is not there"))?;
            let client = located.client(&at.secret, at.epoch);
            if let Some(connections) = self.connections() {
                connections.insert(at, client.clone());
            }
            Ok(client)
        })
    }

    /// What is refused for now only (`agent_not_running`, `agent_busy`, `epoch_stale`, `closing`) is
    /// refused before it is journaled: nothing of it is remembered or in the spool, and a repeat is
    /// tried again. Everything else is in the spool before the agent is touched.
    fn command<'a>(&'a self, at: &'a At, command: Command) -> BoxFuture<'a, Result<Reply, Fault>> {
        Box::pin(async move {
            let answered = self.client(at).await?.command(&command).await;
            connection::answered(self.connections(), at, answered)
        })
    }

    /// The entries that agentctl writes to its spool, from behind a position.
    fn follow<'a>(
        &'a self,
        at: &'a At,
        after: Option<Spool>,
    ) -> BoxFuture<'a, Result<Box<dyn EntryStream>, Fault>> {
        Box::pin(async move {
            let followed = conversation::follow(&self.connect(at).await?, after).await;
            connection::answered(self.connections(), at, followed)
        })
    }

    /// Whether a turn is under way, as agentctl says itself; also of one that speaks another
    /// version and cannot be followed.
    fn is_working<'a>(&'a self, at: &'a At) -> BoxFuture<'a, Result<bool, Fault>> {
        Box::pin(async move {
            let health = self.client(at).await?.health_of_any().await?;
            Ok(health.run_id.is_some())
        })
    }

    /// How much memory the processes of each execution use, as far as that is known, in bytes: the
    /// agent, and everything that runs beside it.
    fn memory(&self) -> BoxFuture<'_, BTreeMap<ExecutionId, u64>> {
        Box::pin(std::future::ready(BTreeMap::new()))
    }

    /// Whether a shell is open beside the agent.
    fn has_shells<'a>(&'a self, at: &'a At) -> BoxFuture<'a, Result<bool, Fault>> {
        Box::pin(async move { Ok(self.client(at).await?.health_of_any().await?.shells > 0) })
    }

    /// What a dead execution wrote to its spool, a batch at a time.
    fn drain<'a>(&'a self, at: &'a At, after: Option<Spool>) -> BoxFuture<'a, Drained> {
        Box::pin(async move {
            match self.spool(&at.execution).await {
                Ok(folder) => conversation::drain(folder, at, after).await,
                Err(error) => Drained { damage: Some(error.to_string()), ..Drained::default() },
            }
        })
    }
}

/// A stream of the entries of one execution.
pub trait EntryStream: Send + 'static {
    fn spool_id(&self) -> &str;

    /// The next entries; `None` when the connection is lost. Dropping the future loses nothing.
    fn next(&mut self) -> BoxFuture<'_, Option<Frame>>;

    /// All up to here is durable in the log.
    fn ack(&mut self, pos: Pos) -> BoxFuture<'_, ()>;
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
    #[error("{} must be a folder that belongs to this user and that no other user can enter", path.display())]
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
    pub fn code(&self) -> Code {
        match self {
            Self::Io { .. } => Code::ExecutorIo,
            Self::Exists { .. } => Code::ExecutionExists,
            Self::Alive { .. } => Code::ExecutorAlive,
            Self::Stuck { .. } => Code::ExecutionStuck,
            Self::Unsafe { .. } => Code::SocketFolderUnsafe,
            Self::Exposed { .. } => Code::FilePermissions,
            Self::TooLong { .. } => Code::SocketPathTooLong,
            Self::Program { .. } => Code::AgentctlMissing,
            Self::Ended { .. } => Code::AgentctlEnded,
            Self::Silent { .. } => Code::AgentctlTimeout,
            Self::Leftovers(error) => error.code(),
        }
    }
}
