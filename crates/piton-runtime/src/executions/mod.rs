//! Executions: starts an agentctl for a session, sends it the effects that the log demands, and
//! imports what it says into the log. The agent's turn continues while no server runs; the next
//! server picks it up here.

mod configuring;
mod driving;
mod following;
mod leftovers;
mod preparing;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use piton_core::decide::{Command, Probe, Refusal};
use piton_core::event::{AgentResuming, Event, ExecutorError, ExecutorReady, ExecutorStarting};
use piton_core::id::{ExecutionId, SessionId};
use piton_core::planted::{self, Bug};
use piton_core::reason::Reason;
use piton_core::spool::Spool;
use piton_core::state::{AgentStatus, Executor, ExecutorStatus};
use piton_core::{Code, Seq, State, Timestamp};
use piton_exec::client::Client;
use piton_exec::executor::{
    self, At, EntryStream, Fault, LaunchOptions, LaunchSpec, ListedExecution,
};
use piton_exec::protocol::{self, Act, Limits, Start};
use piton_store::Store;
use tokio::sync::Notify;

use crate::error::{Error, Result};
use crate::service::Handle;
use crate::settings::Settings;
use crate::supervisor::{StartError, Wake};

pub(crate) use following::{Over, pump};

/// How often a command is sent again when no answer came.
const TRIES_MAX: usize = 5;
const RETRY_DELAY: Duration = Duration::from_millis(200);
/// Executions of one session whose secrets are kept.
const SECRETS_MAX: usize = 4;

/// Speaks to the executions of sessions. Cheap to clone. Give it to [`crate::Options`] as driver and as
/// executors: the service's supervisors follow, start and end what it reaches.
#[derive(Clone)]
pub struct Executions(Arc<Inner>);

struct Inner {
    executor: Arc<dyn executor::Executor>,
    launch_options: LaunchOptions,
    store: Arc<dyn Store>,
    attached: Mutex<Attached>,
    attached_changed: Notify,
    links: Mutex<Links>,
    launched_changed: Notify,
}

/// The service holds these executions, and these the service: not for longer than it runs.
enum Attached {
    NotYet,
    To(Box<Handle>),
    NoMore,
}

#[derive(Default)]
struct Links {
    /// Sessions whose agentctl is connected, and which one it is.
    connected: HashMap<SessionId, ExecutionId>,
    /// When each supervised session's agentctl was last heard from.
    seen: HashMap<SessionId, Timestamp>,
    /// Executions that are being launched: they must not be taken for dead.
    launching: HashSet<ExecutionId>,
    /// What is needed to speak to the executions of supervised sessions.
    secrets: HashMap<SessionId, Vec<(ExecutionId, [u8; 32])>>,
}

/// A launch that is under way.
struct Launch {
    executions: Executions,
    session: SessionId,
    execution: ExecutionId,
}

impl Launch {
    fn begin(executions: &Executions, session: &SessionId, execution: &ExecutionId) -> Self {
        executions.links().launching.insert(execution.clone());
        let (executions, execution) = (executions.clone(), execution.clone());
        Self { executions, session: session.clone(), execution }
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        self.executions.links().launching.remove(&self.execution);
        self.executions.0.launched_changed.notify_waiters();
        let attached = match &*self.executions.attached() {
            Attached::To(handle) => Some(Handle::clone(handle)),
            Attached::NotYet | Attached::NoMore => None,
        };
        if let Some(handle) = attached {
            handle.supervisors().wake(&self.session, Wake::LaunchEnded);
        }
    }
}

impl fmt::Debug for Executions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Executions({:?})", self.0.executor)
    }
}

impl Executions {
    pub fn new(
        executor: Arc<dyn executor::Executor>,
        store: Arc<dyn Store>,
        launch_options: LaunchOptions,
    ) -> Self {
        Self(Arc::new(Inner {
            executor,
            launch_options,
            store,
            attached: Mutex::new(Attached::NotYet),
            attached_changed: Notify::new(),
            links: Mutex::default(),
            launched_changed: Notify::new(),
        }))
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        self.0.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attached(&self) -> MutexGuard<'_, Attached> {
        self.0.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, attached: Attached) {
        *self.attached() = attached;
        self.0.attached_changed.notify_waiters();
    }

    pub(crate) fn attach_to(&self, handle: &Handle) {
        self.set(Attached::To(Box::new(handle.clone())));
    }

    /// The service attaches itself when it is made.
    pub async fn attach(&self, _handle: Handle) -> Result<()> {
        std::future::ready(Ok(())).await
    }

    /// Disconnects from all executions; agents and their agentctls keep running.
    pub fn detach(&self) {
        self.links().connected.clear();
        self.set(Attached::NoMore);
    }

    pub(crate) fn set_connected(&self, session: &SessionId, execution: &ExecutionId) {
        self.links().connected.insert(session.clone(), execution.clone());
    }

    /// When the session's agentctl was last heard from in this life of the process.
    pub fn last_seen(&self, session: &SessionId) -> Option<Timestamp> {
        self.links().seen.get(session).copied()
    }

    /// The session's agentctl was heard from.
    pub(crate) fn note_seen(&self, session: &SessionId, at: Timestamp) {
        self.links().seen.insert(session.clone(), at);
    }

    /// What is connected since under another execution stays.
    pub(crate) fn set_disconnected(&self, session: &SessionId, execution: &ExecutionId) {
        let mut links = self.links();
        if links.connected.get(session) == Some(execution) {
            links.connected.remove(session);
        }
    }

    pub(crate) fn is_connected(&self, session: &SessionId, execution: &ExecutionId) -> bool {
        self.links().connected.get(session) == Some(execution)
    }

    pub(crate) fn is_launching(&self, execution: &ExecutionId) -> bool {
        self.links().launching.contains(execution)
    }

    /// Every execution that is there, dead or alive.
    pub(crate) async fn list(&self) -> Vec<ListedExecution> {
        let listed = self.0.executor.list().await;
        let listed = listed.inspect_err(|error| tracing::warn!(%error, "executions not listed"));
        listed.unwrap_or_default()
    }

    /// How much memory the processes of each execution use, in bytes, as far as that is known.
    pub async fn memory(&self) -> BTreeMap<ExecutionId, u64> {
        self.0.executor.memory().await
    }

    /// Clears away what no execution uses any more.
    pub(crate) async fn tidy(&self) {
        if let Err(error) = self.0.executor.tidy().await {
            tracing::warn!(code = %error.code(), %error, "old programs are not cleared away");
        }
    }

    /// Shakes hands with an execution and follows what it says.
    pub(crate) async fn follow(
        &self,
        at: &At,
        after: Option<Spool>,
    ) -> Result<Box<dyn EntryStream>, Fault> {
        self.0.executor.follow(at, after).await
    }

    /// Whether a user has a shell open beside the agent.
    pub(crate) async fn has_shells(&self, at: &At) -> Result<bool, Fault> {
        self.0.executor.has_shells(at).await
    }

    /// Ends an execution and everything it left running.
    pub(crate) async fn stop_at(&self, at: &At) -> Result<(), Fault> {
        self.0.executor.stop(&at.execution, at.epoch).await
    }

    /// The service's handle, as soon as there is one.
    async fn handle(&self) -> Result<Handle> {
        loop {
            let changed = self.0.attached_changed.notified();
            match &*self.attached() {
                Attached::To(handle) => return Ok(Handle::clone(handle)),
                Attached::NoMore => return Err(Error::ShuttingDown),
                Attached::NotYet => {}
            }
            changed.await;
        }
    }

    /// How to speak to an execution. Its secret is derived once and kept while the session is
    /// supervised; it is never stored.
    pub(crate) async fn at(
        &self,
        session: &SessionId,
        execution: &ExecutionId,
        epoch: u64,
    ) -> Result<At> {
        let known = {
            let links = self.links();
            let secrets = links.secrets.get(session).into_iter().flatten();
            secrets.clone().find(|(of, _)| of == execution).map(|(_, secret)| *secret)
        };
        let secret = match known {
            Some(secret) => secret,
            None => self.derive_secret(session, execution).await?,
        };
        Ok(At { session: session.clone(), execution: execution.clone(), secret, epoch })
    }

    async fn derive_secret(
        &self,
        session: &SessionId,
        execution: &ExecutionId,
    ) -> Result<[u8; 32]> {
        let head = self.0.store.copy_head(session).await?;
        let unknown = || piton_store::Error::SessionNotFound { session: session.clone() };
        let secret = head.ok_or_else(unknown)?.chain_key.derive(&format!("execution {execution}"));
        let mut links = self.links();
        let secrets = links.secrets.entry(session.clone()).or_default();
        secrets.retain(|(of, _)| of != execution);
        let over = (secrets.len() + 1).saturating_sub(SECRETS_MAX);
        secrets.drain(..over);
        secrets.push((execution.clone(), secret));
        Ok(secret)
    }

    /// The session has no supervisor any more.
    pub(crate) fn forget_secrets(&self, session: &SessionId) {
        let mut links = self.links();
        links.secrets.remove(session);
        links.seen.remove(session);
    }

    /// Starts an agentctl for a session that has none. The workspace is usable when this returns. The
    /// launch continues if the caller leaves.
    pub async fn launch(&self, session: &SessionId, workspace: PathBuf) -> Result<ExecutionId> {
        let handle = self.handle().await?;
        handle.supervisors().launch(session, workspace).await
    }

    /// `resuming`: an agent is started beside it at once, and this is how.
    pub(crate) async fn launch_now(
        &self,
        session: &SessionId,
        workspace: PathBuf,
        resuming: Option<&dyn Resuming>,
    ) -> Result<ExecutionId> {
        let handle = self.handle().await?;
        let owner = handle.state(session).await?.lease.owner;
        if let Some(owner) = owner.filter(|owner| owner != handle.boot())
            && handle.env().is_alive(&owner)
        {
            let session = session.clone();
            return Err(piton_store::Error::SessionOwned { session, owner }.into());
        }
        let execution_id = handle.ids().execution()?;
        let runtime = self.0.executor.name().to_owned();
        let starting = ExecutorStarting { execution_id: execution_id.clone(), runtime };
        // From before the log knows of it until it answers.
        let launch = Launch::begin(self, session, &execution_id);
        observe(&handle, session, starting, None).await?;
        if let Some(resuming) = resuming {
            observe(&handle, session, resuming(&execution_id), None).await?;
        }
        let epoch = handle.state(session).await?.lease.epoch;
        let at = self.at(session, &execution_id, epoch).await?;
        let spec = self.launch_spec(&at, workspace, &handle.settings());
        let launched = self.0.executor.launch(spec).await;
        if let Err(fault) = launched {
            self.not_launched(&handle, &at, &fault, launch).await?;
            return Err(fault.into());
        }
        drop(launch);
        let ready = ExecutorReady { execution_id: execution_id.clone() };
        observe(&handle, session, ready, None).await?;
        Ok(execution_id)
    }

    fn launch_spec(&self, at: &At, workspace: PathBuf, settings: &Settings) -> LaunchSpec {
        let LaunchOptions { given, limits } = self.0.launch_options.clone();
        let idle_s_max = settings.agentctl_idle_timeout.as_secs();
        let start_ms_max = limits.start_ms_max.saturating_add(settings.more_start_ms());
        LaunchSpec {
            session: at.session.clone(),
            execution: at.execution.clone(),
            epoch: at.epoch,
            workspace,
            secret: at.secret,
            mask_values: given.values,
            mask_keys: Some(given.keys),
            limits: Limits { idle_s_max, start_ms_max, ..limits },
            ready_timeout: settings.executor_ready_timeout,
            protocol_max: None,
        }
    }

    /// Nothing could be launched, and the log says why.
    pub(crate) async fn cannot_launch(
        &self,
        session: &SessionId,
        start_error: &StartError,
    ) -> Result<()> {
        let handle = self.handle().await?;
        let state = handle.state(session).await?;
        if state.facts.executor.as_ref().is_some_and(Executor::may_live) {
            // The workspace is there all the same.
            return Ok(());
        }
        let execution_id = handle.ids().execution()?;
        let runtime = self.0.executor.name().to_owned();
        let launch = Launch::begin(self, session, &execution_id);
        let starting = ExecutorStarting { execution_id: execution_id.clone(), runtime };
        observe(&handle, session, starting, None).await?;
        let (reason, code) = (Some(start_error.reason), Some(start_error.code.into()));
        let failed = ExecutorError { execution_id, reason, code };
        let failed = observe(&handle, session, failed, Some(start_error.message.clone())).await;
        drop(launch);
        failed
    }

    /// Waits for the end of a launch that is under way here.
    pub(crate) async fn launched(&self, execution: &ExecutionId) {
        loop {
            let changed = self.0.launched_changed.notified();
            if !self.is_launching(execution) {
                return;
            }
            changed.await;
        }
    }

    /// A failed launch may have left a running agentctl, which a supervisor may have found already.
    /// The launch counts as under way until the log says how it ended, so that no supervisor
    /// settles it in between.
    async fn not_launched(
        &self,
        handle: &Handle,
        at: &At,
        fault: &Fault,
        launch: Launch,
    ) -> Result<()> {
        let is_gone = self.0.executor.stop(&at.execution, at.epoch).await.is_ok();
        let facts = handle.state(&at.session).await?.facts;
        let executor = facts.executor.filter(|e| e.execution_id == at.execution);
        let unseen = executor.is_some_and(|e| e.status == ExecutorStatus::Starting)
            && facts.agent.is_none_or(|agent| agent.status == AgentStatus::Exited);
        if !is_gone || !unseen {
            drop(launch);
            return handle.supervisors().settle(&at.session, Wake::Stopped).await.map(drop);
        }
        let reason = Some(Reason::ExecutorError);
        let code = match fault {
            Fault::Problem(problem) => Some(problem.code.clone()),
            Fault::Unreachable { .. } => None,
        };
        let failed = ExecutorError { execution_id: at.execution.clone(), reason, code };
        let failed = observe(handle, &at.session, failed, Some(fault.to_string())).await;
        drop(launch);
        failed
    }

    /// Starts the agent beside the session's agentctl. What became of it is in the log.
    pub async fn start_agent(&self, session: &SessionId, start: Start) -> Result<()> {
        let handle = self.handle().await?;
        let (at, state) = self.current(&handle, session).await?;
        // A request that only needed the workspace may have launched it a moment ago.
        self.launched(&at.execution).await;
        let id = format!("{}/start/{}", at.execution, state.last_seq);
        self.tell(&at, id, Act::Start(start)).await.map(drop)
    }

    /// The way to the workspace of the session's agentctl, with the epoch as it is now. It does not
    /// wait for an agent.
    pub async fn workspace(&self, session: &SessionId) -> Result<Client> {
        let handle = self.handle().await?;
        let (at, _) = self.current(&handle, session).await?;
        self.launched(&at.execution).await;
        Ok(self.0.executor.client(&at).await?)
    }

    /// Ends the session's agent; its agentctl stays, and the shells with it. What became of it is in
    /// the log.
    pub async fn stop_agent(&self, session: &SessionId) -> Result<()> {
        let handle = self.handle().await?;
        let (at, state) = self.current(&handle, session).await?;
        let id = format!("{}/stop/{}", at.execution, state.last_seq);
        self.tell(&at, id, Act::Stop {}).await.map(drop)
    }

    /// Ends an execution's agent because the record at `ending_seq` says so. The order has the record's
    /// name: however often it is given, and by whichever boot, it ends one agent.
    pub(crate) async fn end_agent(
        &self,
        session: &SessionId,
        execution: &ExecutionId,
        ending_seq: Seq,
    ) -> Result<()> {
        let handle = self.handle().await?;
        let (at, _) = self.current(&handle, session).await?;
        if at.execution != *execution {
            return Ok(());
        }
        match self.tell(&at, format!("{execution}/end/{ending_seq}"), Act::Stop {}).await {
            // It ended by itself; the spool says so.
            Err(Error::Agentctl(Fault::Problem(problem)))
                if problem.code == Code::AgentNotRunning =>
            {
                Ok(())
            }
            sent => sent.map(drop),
        }
    }

    /// Ends the session's agent and agentctl, and everything they left running.
    pub async fn stop(&self, session: &SessionId) -> Result<()> {
        let handle = self.handle().await?;
        let (at, _) = self.current(&handle, session).await?;
        self.0.executor.stop(&at.execution, at.epoch).await?;
        handle.supervisors().settle(session, Wake::Stopped).await.map(drop)
    }

    /// The same as a user asks for it: refused while a run is open. Its supervisor does it, so that no
    /// prompt and no start gets to an agent that is about to end.
    pub(crate) async fn stop_unless_busy(&self, session: &SessionId) -> Result<()> {
        let handle = self.handle().await?;
        let (at, _) = self.current(&handle, session).await?;
        handle.supervisors().stop(session, at.execution).await?;
        handle.supervisors().settle(session, Wake::Stopped).await.map(drop)
    }

    /// Asks the agent something that its protocol has and ours does not.
    pub async fn ask_agent(
        &self,
        session: &SessionId,
        id: String,
        method: String,
        params: serde_json::Value,
    ) -> Result<serde_json::Value> {
        let handle = self.handle().await?;
        let (at, _) = self.current(&handle, session).await?;
        Ok(self.tell(&at, id, Act::Ask { method, params }).await?.result)
    }

    /// Whether an execution responds right now.
    pub(crate) async fn responds(&self, execution: &ExecutionId) -> bool {
        self.0.executor.probe(execution).await == Probe::Alive
    }

    /// The session's execution, which may live.
    async fn current(&self, handle: &Handle, session: &SessionId) -> Result<(At, State)> {
        let mut state = handle.state(session).await?;
        if state.lease.owner.as_ref() != Some(handle.boot()) {
            // Another's epoch is not ours to speak with.
            handle.supervisors().settle(session, Wake::Command).await?;
            state = handle.state(session).await?;
            if let Some(owner) = state.lease.owner.clone().filter(|owner| owner != handle.boot()) {
                let session = session.clone();
                return Err(piton_store::Error::SessionOwned { session, owner }.into());
            }
        }
        let executor = state.facts.executor.as_ref().filter(|executor| executor.may_live());
        let execution = executor.ok_or(Error::Refused(Refusal::ExecutorNotFound))?;
        let at = self.at(session, &execution.execution_id, state.lease.epoch).await?;
        Ok((at, state))
    }

    /// Sends a command until it is answered; agentctl knows a repetition by its id.
    async fn tell(&self, at: &At, id: String, act: Act) -> Result<protocol::Reply> {
        let mut tries = 0;
        loop {
            tries += 1;
            let id =
                if planted::is(Bug::CommandIdNew) { format!("{id}-{tries}") } else { id.clone() };
            let command = protocol::Command { id, act: act.clone() };
            match self.0.executor.command(at, command).await {
                Err(Fault::Unreachable { .. }) if tries < TRIES_MAX => {
                    tokio::time::sleep(RETRY_DELAY * u32::try_from(tries).unwrap_or(1)).await;
                    // It may have been given up meanwhile, and another be the session's.
                    let handle = self.handle().await?;
                    if self.current(&handle, &at.session).await?.0.execution != at.execution {
                        return Err(Error::Refused(Refusal::ExecutorNotFound));
                    }
                }
                answered => return answered.map_err(Into::into),
            }
        }
    }
}

/// The record that comes before the start of an execution's agent.
pub(crate) trait Resuming: Fn(&ExecutionId) -> AgentResuming + Send + Sync {}
impl<F: Fn(&ExecutionId) -> AgentResuming + Send + Sync> Resuming for F {}

async fn observe(
    handle: &Handle,
    session: &SessionId,
    event: impl Into<Event>,
    message: Option<String>,
) -> Result<()> {
    let command = Command::Observe { event: event.into(), message };
    handle.execute(session, command).await.map(drop)
}

/// Another process owns the session now: what it does is not ours.
pub(crate) fn is_not_ours(error: &Error) -> bool {
    matches!(error.code(), Code::SessionOwned | Code::EpochStale | Code::SessionNotFound)
}
