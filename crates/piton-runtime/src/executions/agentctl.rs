//! What the runtime asks of agentctls, behind a trait, so that a simulator can own them.

use std::fmt;
use std::path::PathBuf;

use piton_core::decide::Probe;
use piton_core::id::{ExecutionId, SessionId};
use piton_core::spool::{Pos, Spool};
use piton_exec::client::Client;
use piton_exec::protocol::{Command, Frame, Problem, Reply};
use piton_store::BoxFuture;

use crate::world::Drained;

/// One execution, and who asks.
#[derive(Clone)]
pub struct At {
    pub session: SessionId,
    pub execution: ExecutionId,
    /// Who has it may speak to the execution and read its spool.
    pub secret: [u8; 32],
    /// The asker's lease; a lower one than the highest seen is refused.
    pub epoch: u64,
}

impl fmt::Debug for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "At({} of {}, epoch {})", self.execution, self.session, self.epoch)
    }
}

/// What to launch an agentctl with.
#[derive(Clone, Debug)]
pub struct Launching {
    pub workspace: PathBuf,
}

/// An execution that is somewhere, whether or not a session knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub session: SessionId,
    pub execution: ExecutionId,
}

/// Why an agentctl did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It answered, and refused.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// It did not answer; whether it did it is not known.
    #[error("agentctl does not answer: {message}")]
    Unreachable { message: String },
}

/// Launches agentctls, finds them again, and speaks to them.
pub trait Agentctl: Send + Sync + fmt::Debug + 'static {
    /// The name under which the log knows where executions run.
    fn runtime(&self) -> &'static str;

    /// Resolves when it answers.
    fn launch(&self, at: &At, launching: Launching) -> BoxFuture<Result<(), Fault>>;

    /// *Gone* is proven: nothing of the execution is left running, and nothing of it ever will be.
    /// A launch under its id that is still under way, by whomever, fails from then on.
    fn probe(&self, session: &SessionId, execution: &ExecutionId) -> BoxFuture<Probe>;

    /// What is refused for now only (`agent_not_running`, `agent_busy`, `epoch_stale`, `closing`) is
    /// refused before it is journaled: nothing of it is remembered or in the spool, and a repeat is
    /// tried anew. Everything else is in the spool before the agent is touched.
    fn command(&self, at: &At, command: Command) -> BoxFuture<Result<Reply, Fault>>;

    /// What it says, from behind a position.
    fn follow(&self, at: &At, after: Option<Spool>)
    -> BoxFuture<Result<Box<dyn Following>, Fault>>;

    /// Whether a turn is under way, as it says itself; also of one that speaks another version and
    /// cannot be followed.
    fn is_working(&self, at: &At) -> BoxFuture<Result<bool, Fault>>;

    /// A way to its workspace: files, git, shells. None of it is a record, so none of it needs the
    /// runtime; whoever asks speaks to it directly, with this epoch.
    fn workspace(&self, at: &At) -> BoxFuture<Result<Client, Fault>>;

    /// What a dead one wrote down, a batch at a time.
    fn drain(&self, at: &At, after: Option<Spool>) -> BoxFuture<Drained>;

    /// Ends it and everything it left running; afterwards it is gone.
    fn stop(&self, at: &At) -> BoxFuture<Result<(), Fault>>;

    /// Removes what a dead one left on the disk.
    fn forget(&self, at: &At) -> BoxFuture<()>;

    /// Puts what a dead one left where nobody finds it by itself, and keeps it.
    fn set_aside(&self, at: &At) -> BoxFuture<()>;

    /// Ends and removes an execution whose session is no more, and its secret with it.
    fn purge(&self, found: &Found) -> BoxFuture<Result<(), Fault>>;

    /// Every execution that is there, dead or alive.
    fn list(&self) -> BoxFuture<Vec<Found>>;

    /// Clears away what no execution uses any more.
    fn tidy(&self) -> BoxFuture<()>;
}

/// A stream of what one execution says.
pub trait Following: Send + 'static {
    fn spool_id(&self) -> &str;

    /// The next entries; `None` when the connection is lost. Dropping the future loses nothing.
    fn next(&mut self) -> std::pin::Pin<Box<dyn Future<Output = Option<Frame>> + Send + '_>>;

    /// All up to here is durable in the log.
    fn ack(&mut self, pos: Pos) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}
