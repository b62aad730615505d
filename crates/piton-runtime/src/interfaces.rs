//! What the runtime needs from outside, behind small traits, so that a simulator can own it: time,
//! liveness of executors, and the driver that carries effects out. Disk, randomness and the
//! liveness of boots are `piton-store`'s traits.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use piton_core::decide::{Probe, TurnStart};
use piton_core::id::{
    AccessTokenId, BootId, CallId, CheckpointId, ExecutionId, MessageId, RunId, SessionId, TaskId,
    TokenId, WaitId,
};
use piton_core::spool::Spool;
use piton_core::state::Effect;
use piton_core::token::{ResumeToken, Secret};
use piton_core::{PromptContent, Record, State, Timestamp};
use piton_exec::executor::Drained;
use piton_store::{BoxFuture, Entropy};

use crate::executions::Executions;

/// The time of day, which may jump, and waiting, which may not.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    fn now(&self) -> Timestamp;
    fn sleep(&self, span: Duration) -> BoxFuture<()>;
}

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn sleep(&self, span: Duration) -> BoxFuture<()> {
        Box::pin(tokio::time::sleep(span))
    }
}

/// An effect to be carried out, with what is needed for it.
#[derive(Clone, Debug)]
pub struct EffectJob {
    pub session: SessionId,
    /// The same for every repetition of the same effect.
    pub key: String,
    pub effect: Effect,
    /// The record it follows from, with its content.
    pub cause: Record,
    /// What a run begins with, if it begins with something.
    pub message: Option<PromptContent>,
}

/// Carries effects out. A repetition with a known key must change nothing.
pub trait Driver: Send + Sync + fmt::Debug + 'static {
    /// Resolves to `true` when the effect was carried out, `false` when it has to be tried again
    /// by a later life.
    fn perform(&self, job: EffectJob) -> BoxFuture<bool>;

    /// Whether the agent of a session can receive commands now.
    fn is_live(&self, session: &SessionId) -> bool;
}

/// Drives no agents: effects stay pending, and no agent is live.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDriver;

impl Driver for NoDriver {
    fn perform(&self, _job: EffectJob) -> BoxFuture<bool> {
        Box::pin(std::future::ready(false))
    }

    fn is_live(&self, _session: &SessionId) -> bool {
        false
    }
}

/// Asks executors whether they are alive, and what they left.
pub trait Executors: Send + Sync + fmt::Debug + 'static {
    fn probe(&self, session: &SessionId, execution: &ExecutionId) -> BoxFuture<Probe>;

    /// The spool entries of a dead execution that no log has imported, a batch at a time.
    fn drain(
        &self,
        _session: &SessionId,
        _execution: &ExecutionId,
        _after: Option<Spool>,
    ) -> BoxFuture<Drained> {
        Box::pin(std::future::ready(Drained::default()))
    }

    /// How to speak to them, if they can be followed, started and ended from here.
    fn executions(&self) -> Option<Executions> {
        None
    }
}

/// No executors: whatever a log speaks of is gone.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoExecutors;

impl Executors for NoExecutors {
    fn probe(&self, _session: &SessionId, _execution: &ExecutionId) -> BoxFuture<Probe> {
        Box::pin(std::future::ready(Probe::Gone))
    }
}

/// What is kept of a session beside its log, such as the memory of a built-in agent.
pub trait SessionFiles: Send + Sync + fmt::Debug + 'static {
    /// The session's log is gone, and that is durable. What cannot be removed is removed by a later
    /// life of the process.
    fn remove(&self, session: &SessionId);
}

/// Nothing is kept beside the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSessionFiles;

impl SessionFiles for NoSessionFiles {
    fn remove(&self, _session: &SessionId) {}
}

/// Takes snapshots of the files of agents' sessions, around their turns.
pub trait TurnSnapshots: Send + Sync + fmt::Debug + 'static {
    /// What the turn of a queued prompt begins with, or an interrupted run continues with; `None`: no checkpoint is made.
    fn before_queued_turn(
        &self,
        session: &SessionId,
        state: &State,
    ) -> BoxFuture<Option<TurnStart>>;

    /// The agent of a session without checkpoints accepts prompts. Returns at once.
    fn agent_started(&self, session: &SessionId);

    /// The log says that a restore is open. Returns at once; it is called again until it has ended.
    fn restore_open(&self, session: &SessionId);

    /// A prompt was given to the agent, or could not be given. Returns at once.
    fn prompt_delivered(&self, session: &SessionId);

    /// A run has ended or was interrupted, and that is durable. Returns at once.
    fn turn_ended(&self, session: &SessionId, run_id: &RunId);

    /// The session's log is gone, and that is durable.
    fn remove(&self, session: &SessionId);
}

/// Takes no snapshots, and makes no checkpoints of turns.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTurnSnapshots;

impl TurnSnapshots for NoTurnSnapshots {
    fn before_queued_turn(&self, _: &SessionId, _: &State) -> BoxFuture<Option<TurnStart>> {
        Box::pin(std::future::ready(None))
    }

    fn agent_started(&self, _session: &SessionId) {}

    fn restore_open(&self, _session: &SessionId) {}

    fn prompt_delivered(&self, _session: &SessionId) {}

    fn turn_ended(&self, _session: &SessionId, _run_id: &RunId) {}

    fn remove(&self, _session: &SessionId) {}
}

/// Makes ids and secrets.
#[derive(Clone, Debug)]
pub struct Ids {
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

macro_rules! makers {
    ($($name:ident -> $id:ident;)*) => {$(
        pub fn $name(&self) -> piton_store::Result<$id> {
            let (unix_ms, random) = self.seed()?;
            Ok($id::new(unix_ms, random))
        }
    )*};
}

impl Ids {
    pub fn new(clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        Self { clock, entropy }
    }

    fn seed(&self) -> piton_store::Result<(u64, [u8; 10])> {
        let mut random = [0; 10];
        self.entropy.fill(&mut random)?;
        Ok((u64::try_from(self.clock.now().as_millis()).unwrap_or(0), random))
    }

    makers! {
        session -> SessionId;
        task -> TaskId;
        run -> RunId;
        message -> MessageId;
        wait -> WaitId;
        boot -> BootId;
        call -> CallId;
        execution -> ExecutionId;
        checkpoint -> CheckpointId;
        token_id -> TokenId;
        access -> AccessTokenId;
    }

    /// A new token with its secret.
    pub fn token(&self) -> piton_store::Result<ResumeToken> {
        let mut secret = [0; 32];
        self.entropy.fill(&mut secret)?;
        Ok(ResumeToken { id: self.token_id()?, secret: Secret::new(secret) })
    }
}
