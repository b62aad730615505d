//! Agentctls as an executor runs them.

use std::fmt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use piton_core::decide::Probe;
use piton_core::id::{ExecutionId, SessionId};
use piton_core::limits::{IMPORT_BYTES_MAX, IMPORT_ENTRIES_MAX};
use piton_core::spool::{Pos, Spool};
use piton_exec::client::{Client, ClientError, Stream};
use piton_exec::executor::{Executor, LaunchSpec, Liveness};
use piton_exec::protocol::{Command, Frame, Limits, Problem, Reply, spool_key};
use piton_exec::spool::SpoolReader;
use piton_store::BoxFuture;

use super::{Agentctl, At, Fault, Following, Found, Launching};
use crate::world::Drained;

/// Speaks to the agentctls of one executor.
#[derive(Clone)]
pub struct OnExecutor {
    executor: Arc<dyn Executor>,
    mask_values: Arc<[String]>,
    mask_keys: Option<Vec<String>>,
    limits: Limits,
    protocol_max: Option<u32>,
}

/// Nothing of a secret may reach a log line.
impl fmt::Debug for OnExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OnExecutor({})", self.executor.name())
    }
}

impl OnExecutor {
    pub fn new(executor: Arc<dyn Executor>) -> Self {
        Self {
            executor,
            mask_values: Arc::new([]),
            mask_keys: None,
            limits: Limits::default(),
            protocol_max: None,
        }
    }

    /// What agentctl must not write: values, and the keys whose values are secret (`None`: the
    /// usual ones).
    pub fn masking(mut self, values: Vec<String>, keys: Option<Vec<String>>) -> Self {
        (self.mask_values, self.mask_keys) = (values.into(), keys);
        self
    }

    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The newest protocol that agentctls may speak, and we with them; for tests of an upgrade.
    pub fn protocol_max(mut self, protocol_max: Option<u32>) -> Self {
        self.protocol_max = protocol_max;
        self
    }

    async fn client(&self, at: &At) -> Result<Client, Fault> {
        let located = self.executor.find(&at.execution).await.map_err(unreachable)?;
        let missing = || Fault::Unreachable { message: "It is not there".to_owned() };
        let client = located.ok_or_else(missing)?.client(&at.secret, at.epoch);
        Ok(match self.protocol_max {
            Some(protocol_max) => client.with_protocol_max(protocol_max),
            None => client,
        })
    }

    async fn follow_now(&self, at: &At, after: Option<Spool>) -> Result<Followed, Fault> {
        let client = self.client(at).await?;
        let spool_id = client.health().await.map_err(fault)?.spool.spool_id;
        let pos = after.filter(|after| after.spool_id == spool_id).map_or(0, |after| after.pos);
        let stream = client.stream(&spool_id, pos).await.map_err(fault)?;
        Ok(Followed { spool_id, stream })
    }
}

/// Reads what is left in a folder; what is behind damage cannot be had.
fn read_spool(folder: &Path, key: &[u8; 32], after: Option<Spool>) -> Drained {
    let damaged = |error: piton_exec::spool::Error| {
        tracing::error!(code = error.code(), %error, "spool not readable to its end");
        Some(error.to_string())
    };
    let reader = match SpoolReader::open(folder, key) {
        Ok(reader) => reader,
        Err(error) => return Drained { damage: damaged(error), ..Drained::default() },
    };
    let Some(spool_id) = reader.spool_id().map(ToOwned::to_owned) else {
        return Drained::default();
    };
    let pos = after.filter(|after| after.spool_id == spool_id).map_or(0, |after| after.pos);
    // Trimmed for a log that had more than this one: one that was restored from a backup.
    let lost = (reader.first() > pos + 1).then(|| (pos + 1, reader.first() - 1));
    let mut drained = Drained { spool_id, lost, ..Drained::default() };
    let mut bytes = 0;
    let mut entries = reader.after(pos);
    for entry in entries.by_ref().take(IMPORT_ENTRIES_MAX) {
        match entry {
            Ok(entry) => {
                bytes += entry.weight();
                if bytes > IMPORT_BYTES_MAX && !drained.entries.is_empty() {
                    break;
                }
                drained.entries.push(entry);
            }
            Err(error) => {
                drained.damage = damaged(error);
                break;
            }
        }
    }
    if let Some(pos) = entries.cut_off() {
        drained.damage = Some(format!("Entry {pos}, the last one, was cut off"));
    }
    drained
}

fn unreachable(error: impl fmt::Display) -> Fault {
    Fault::Unreachable { message: error.to_string() }
}

fn fault(error: ClientError) -> Fault {
    match error {
        ClientError::Problem(problem) => Fault::Problem(problem),
        ClientError::Unreachable(source) => unreachable(source),
        error @ ClientError::Protocol(_) => Fault::Problem(Problem {
            code: "protocol_unsupported".to_owned(),
            message: error.to_string(),
            hint: None,
        }),
    }
}

impl Agentctl for OnExecutor {
    fn runtime(&self) -> &'static str {
        self.executor.name()
    }

    fn launch(&self, at: &At, launching: Launching) -> BoxFuture<Result<(), Fault>> {
        let spec = LaunchSpec {
            session: at.session.clone(),
            execution: at.execution.clone(),
            epoch: at.epoch,
            workspace: launching.workspace,
            secret: at.secret,
            mask_values: self.mask_values.to_vec(),
            mask_keys: self.mask_keys.clone(),
            limits: self.limits,
            protocol_max: self.protocol_max,
        };
        let executor = Arc::clone(&self.executor);
        Box::pin(async move {
            let launched = executor.launch(spec).await.map(drop);
            launched.map_err(|error| {
                let mut message = error.to_string();
                let mut source = std::error::Error::source(&error);
                while let Some(cause) = source {
                    message = format!("{message}: {cause}");
                    source = cause.source();
                }
                let (code, hint) = (error.code().to_owned(), error.hint().map(ToOwned::to_owned));
                Fault::Problem(Problem { code, message, hint })
            })
        })
    }

    fn probe(&self, _session: &SessionId, execution: &ExecutionId) -> BoxFuture<Probe> {
        let (executor, execution) = (Arc::clone(&self.executor), execution.clone());
        Box::pin(async move {
            match executor.probe(&execution).await {
                Liveness::Alive => Probe::Alive,
                Liveness::Gone => Probe::Gone,
                Liveness::Unreachable => Probe::Unreachable,
            }
        })
    }

    fn command(&self, at: &At, command: Command) -> BoxFuture<Result<Reply, Fault>> {
        let (this, at) = (self.clone(), at.clone());
        Box::pin(async move { this.client(&at).await?.command(&command).await.map_err(fault) })
    }

    fn follow(
        &self,
        at: &At,
        after: Option<Spool>,
    ) -> BoxFuture<Result<Box<dyn Following>, Fault>> {
        let (this, at) = (self.clone(), at.clone());
        Box::pin(async move { Ok(Box::new(this.follow_now(&at, after).await?) as _) })
    }

    fn is_working(&self, at: &At) -> BoxFuture<Result<bool, Fault>> {
        let (this, at) = (self.clone(), at.clone());
        Box::pin(async move {
            let health = this.client(&at).await?.health_of_any().await.map_err(fault)?;
            Ok(health.run_id.is_some())
        })
    }

    fn workspace(&self, at: &At) -> BoxFuture<Result<Client, Fault>> {
        let (this, at) = (self.clone(), at.clone());
        Box::pin(async move { this.client(&at).await })
    }

    fn drain(&self, at: &At, after: Option<Spool>) -> BoxFuture<Drained> {
        let (executor, at) = (Arc::clone(&self.executor), at.clone());
        Box::pin(async move {
            let folder = match executor.spool(&at.execution).await {
                Ok(folder) => folder,
                Err(error) => {
                    return Drained { damage: Some(error.to_string()), ..Drained::default() };
                }
            };
            let key = spool_key(&at.secret);
            let read = tokio::task::spawn_blocking(move || read_spool(&folder, &key, after));
            read.await.unwrap_or_default()
        })
    }

    fn stop(&self, at: &At) -> BoxFuture<Result<(), Fault>> {
        let (executor, execution) = (Arc::clone(&self.executor), at.execution.clone());
        Box::pin(async move { executor.stop(&execution).await.map_err(unreachable) })
    }

    fn forget(&self, at: &At) -> BoxFuture<()> {
        let (executor, execution) = (Arc::clone(&self.executor), at.execution.clone());
        Box::pin(async move {
            if let Err(error) = executor.forget(&execution).await {
                tracing::warn!(%execution, %error, "what an execution left is not cleared away");
            }
        })
    }

    fn set_aside(&self, at: &At) -> BoxFuture<()> {
        let (executor, execution) = (Arc::clone(&self.executor), at.execution.clone());
        Box::pin(async move {
            if let Err(error) = executor.set_aside(&execution).await {
                tracing::warn!(%execution, %error, "a damaged spool is not set aside");
            }
        })
    }

    fn purge(&self, found: &Found) -> BoxFuture<Result<(), Fault>> {
        let (executor, execution) = (Arc::clone(&self.executor), found.execution.clone());
        Box::pin(async move {
            executor.stop(&execution).await.map_err(unreachable)?;
            executor.forget(&execution).await.map_err(unreachable)
        })
    }

    fn tidy(&self) -> BoxFuture<()> {
        let executor = Arc::clone(&self.executor);
        Box::pin(async move {
            if let Err(error) = executor.tidy().await {
                tracing::warn!(code = error.code(), %error, "old programs are not cleared away");
            }
        })
    }

    fn list(&self) -> BoxFuture<Vec<Found>> {
        let executor = Arc::clone(&self.executor);
        Box::pin(async move {
            let listed = executor.list().await;
            let listed =
                listed.inspect_err(|error| tracing::warn!(%error, "executions not listed"));
            let found = |(session, execution)| Found { session, execution };
            listed.unwrap_or_default().into_iter().map(found).collect()
        })
    }
}

struct Followed {
    spool_id: String,
    stream: Stream,
}

impl Following for Followed {
    fn spool_id(&self) -> &str {
        &self.spool_id
    }

    fn next(&mut self) -> Pin<Box<dyn Future<Output = Option<Frame>> + Send + '_>> {
        Box::pin(async move {
            match self.stream.next().await {
                Ok(frame) => frame,
                Err(error) => {
                    tracing::debug!(code = error.code(), %error, "stream ended");
                    None
                }
            }
        })
    }

    fn ack(&mut self, pos: Pos) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            if let Err(error) = self.stream.ack(pos).await {
                // It is acknowledged again with what comes next.
                tracing::debug!(code = error.code(), %error, "not acknowledged");
            }
        })
    }
}
