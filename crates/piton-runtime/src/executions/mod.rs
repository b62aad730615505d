//! Executions: starting an agentctl for a session, telling it what the log demands, and bringing
//! what it says into the log. The agent's turn goes on while nobody is here; this picks it up.

mod driving;
mod following;
mod preparing;
mod strangers;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use piton_core::decide::{Command, Refusal};
use piton_core::event::{Event, ExecutorError, ExecutorReady, ExecutorStarting};
use piton_core::id::{ExecutionId, SessionId};
use piton_core::planted::{self, Bug};
use piton_core::reason::Reason;
use piton_core::state::{AgentStatus, Executor, ExecutorStatus};
use piton_core::{Code, State};
use piton_exec::client::Client;
use piton_exec::executor::{self, At, Fault, LaunchOptions, LaunchSpec};
use piton_exec::protocol::{self, Act, Start};
use piton_store::{Query, Select, Store};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;

use crate::error::{Error, Result};
use crate::resuming::Obstacle;
use crate::service::Handle;

/// How often a command is sent again when no answer came.
const TRIES_MAX: usize = 5;
const TRY_AGAIN: Duration = Duration::from_millis(200);
const PAGE: usize = 256;
/// An agentctl and this program have no version in common.
const PROTOCOL_UNSUPPORTED: &str = "protocol_unsupported";

/// Cheap to clone. Give it to [`crate::Options`] as driver and as executors, and
/// [`Executions::attach`] the service's handle when it has started.
#[derive(Clone)]
pub struct Executions(Arc<Inner>);

struct Inner {
    executor: Arc<dyn executor::Executor>,
    launch_options: LaunchOptions,
    store: Arc<dyn Store>,
    attached: Mutex<Attached>,
    attached_changed: Notify,
    followed: Mutex<Followed>,
    launched_changed: Notify,
    /// Sessions that were seen to have a run that no agent works on. A hint.
    stranded: Mutex<BTreeSet<SessionId>>,
    stranded_changed: Notify,
}

/// The service holds these executions, and these the service: not for longer than they are attached.
enum Attached {
    NotYet,
    To(Box<Handle>),
    NoMore,
}

#[derive(Default)]
struct Followed {
    /// Executions with a follower.
    by_session: HashMap<SessionId, ExecutionId>,
    /// Sessions whose agentctl is connected, and which one it is.
    live: HashMap<SessionId, ExecutionId>,
    /// Executions that live and do not let themselves be followed.
    refused: HashSet<ExecutionId>,
    /// Executions that are being launched: nobody may take them for dead.
    launching: HashSet<ExecutionId>,
    tasks: JoinSet<()>,
    closed: bool,
}

impl Followed {
    /// What is connected since under another execution stays.
    fn is_dead(&mut self, session: &SessionId, execution: &ExecutionId) {
        if self.live.get(session) == Some(execution) {
            self.live.remove(session);
        }
    }
}

/// A launch that is under way.
struct OnItsWay(Executions, ExecutionId);

impl OnItsWay {
    fn new(executions: &Executions, execution: &ExecutionId) -> Self {
        executions.followed().launching.insert(execution.clone());
        Self(executions.clone(), execution.clone())
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.0.followed().launching.remove(&self.1);
        self.0.0.launched_changed.notify_waiters();
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
        let (attached, attached_changed) = (Mutex::new(Attached::NotYet), Notify::new());
        let (followed, launched_changed) = (Mutex::default(), Notify::new());
        Self(Arc::new(Inner {
            executor,
            launch_options,
            store,
            attached,
            attached_changed,
            followed,
            launched_changed,
            stranded: Mutex::default(),
            stranded_changed: Notify::new(),
        }))
    }

    fn followed(&self) -> MutexGuard<'_, Followed> {
        self.0.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attached(&self) -> MutexGuard<'_, Attached> {
        self.0.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, attached: Attached) {
        *self.attached() = attached;
        self.0.attached_changed.notify_waiters();
    }

    /// The service has started and has taken over what was alive: follow it, and end what is no
    /// session's any more.
    pub async fn attach(&self, handle: Handle) -> Result<()> {
        self.set(Attached::To(Box::new(handle.clone())));
        let mut after = None;
        loop {
            let query = Query { task_id: None, select: Select::NeedsRecovery, after, limit: PAGE };
            let page = self.0.store.list(query).await?;
            for row in page.rows {
                let executor = row.summary.facts.executor.filter(Executor::may_live);
                let theirs = row.lease.owner.filter(|owner| owner != handle.boot());
                let is_theirs = theirs.is_some_and(|owner| handle.env().is_alive(&owner));
                if let (Some(executor), false) = (executor, is_theirs) {
                    self.follow(&row.session, &executor.execution_id);
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        let executions = self.clone();
        self.followed().tasks.spawn(async move {
            if let Err(error) = executions.0.executor.tidy().await {
                tracing::warn!(code = error.code(), %error, "old programs are not cleared away");
            }
            executions.watch_strangers().await;
        });
        Ok(())
    }

    /// Follows nobody any more; agents and their agentctls go on.
    pub fn detach(&self) {
        let mut followed = self.followed();
        followed.closed = true;
        followed.tasks.abort_all();
        followed.live.clear();
        drop(followed);
        self.set(Attached::NoMore);
        self.0.stranded_changed.notify_one();
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

    /// Whom to speak to about an execution. Its secret is derived, not kept.
    async fn at(&self, session: &SessionId, execution: &ExecutionId, epoch: u64) -> Result<At> {
        let head = self.0.store.copy_head(session).await?;
        let unknown = || piton_store::Error::SessionNotFound { session: session.clone() };
        let secret = head.ok_or_else(unknown)?.chain_key.derive(&format!("execution {execution}"));
        Ok(At { session: session.clone(), execution: execution.clone(), secret, epoch })
    }

    /// Starts an agentctl for a session that has none. The workspace is usable when this returns.
    /// Goes on when the asker has left.
    pub async fn launch(&self, session: &SessionId, workspace: PathBuf) -> Result<ExecutionId> {
        let (executions, session) = (self.clone(), session.clone());
        let (told, launched) = oneshot::channel();
        self.followed().tasks.spawn(async move {
            // Nobody may be left to hear it; the log says it, too.
            let _ = told.send(executions.launch_now(&session, workspace).await);
        });
        launched.await.map_err(|_| Error::ShuttingDown)?
    }

    async fn launch_now(&self, session: &SessionId, workspace: PathBuf) -> Result<ExecutionId> {
        let handle = self.handle().await?;
        let execution_id = handle.ids().execution()?;
        let runtime = self.0.executor.name().to_owned();
        let starting = ExecutorStarting { execution_id: execution_id.clone(), runtime };
        // From before the log knows of it until it answers.
        let on_its_way = OnItsWay::new(self, &execution_id);
        observe(&handle, session, starting, None).await?;
        let epoch = handle.state(session).await?.lease.epoch;
        let at = self.at(session, &execution_id, epoch).await?;
        let launched = self.0.executor.launch(self.launch_spec(&at, workspace)).await;
        drop(on_its_way);
        if let Err(fault) = launched {
            self.not_launched(&handle, &at, &fault).await?;
            return Err(fault.into());
        }
        let ready = ExecutorReady { execution_id: execution_id.clone() };
        observe(&handle, session, ready, None).await?;
        self.follow(session, &execution_id);
        Ok(execution_id)
    }

    fn launch_spec(&self, at: &At, workspace: PathBuf) -> LaunchSpec {
        let LaunchOptions { given, limits } = self.0.launch_options.clone();
        LaunchSpec {
            session: at.session.clone(),
            execution: at.execution.clone(),
            epoch: at.epoch,
            workspace,
            secret: at.secret,
            mask_values: given.values,
            mask_keys: Some(given.keys),
            limits,
            protocol_max: None,
        }
    }

    /// What was said to a session has no agent to be given to.
    fn is_stranded(&self, session: &SessionId) {
        let mut stranded = self.0.stranded.lock().unwrap_or_else(PoisonError::into_inner);
        if stranded.insert(session.clone()) {
            self.0.stranded_changed.notify_one();
        }
    }

    /// The next session of which that was seen; `None` when nobody is attached any more.
    pub(crate) async fn stranded(&self) -> Option<SessionId> {
        loop {
            let changed = self.0.stranded_changed.notified();
            let next = self.0.stranded.lock().unwrap_or_else(PoisonError::into_inner).pop_first();
            if next.is_some() {
                return next;
            }
            if matches!(*self.attached(), Attached::NoMore) {
                return None;
            }
            changed.await;
        }
    }

    /// Nothing could be launched, and the log says why.
    pub(crate) async fn cannot_launch(
        &self,
        session: &SessionId,
        obstacle: &Obstacle,
    ) -> Result<()> {
        let handle = self.handle().await?;
        let state = handle.state(session).await?;
        if state.facts.executor.as_ref().is_some_and(Executor::may_live) {
            // The workspace is there all the same.
            return Ok(());
        }
        let execution_id = handle.ids().execution()?;
        let runtime = self.0.executor.name().to_owned();
        let on_its_way = OnItsWay::new(self, &execution_id);
        let starting = ExecutorStarting { execution_id: execution_id.clone(), runtime };
        observe(&handle, session, starting, None).await?;
        let (reason, code) = (Some(obstacle.reason), Some(obstacle.code.to_string()));
        let failed = ExecutorError { execution_id, reason, code };
        let failed = observe(&handle, session, failed, Some(obstacle.message.clone())).await;
        drop(on_its_way);
        failed
    }

    /// Waits for the end of a launch that is under way here.
    async fn launched(&self, execution: &ExecutionId) {
        loop {
            let changed = self.0.launched_changed.notified();
            if !self.followed().launching.contains(execution) {
                return;
            }
            changed.await;
        }
    }

    /// A launch that failed may have launched something, and somebody may have found it already.
    async fn not_launched(&self, handle: &Handle, at: &At, fault: &Fault) -> Result<()> {
        let is_gone = self.0.executor.stop(&at.execution, at.epoch).await.is_ok();
        let facts = handle.state(&at.session).await?.facts;
        let executor = facts.executor.filter(|e| e.execution_id == at.execution);
        let unseen = executor.is_some_and(|e| e.status == ExecutorStatus::Starting)
            && facts.agent.is_none_or(|agent| agent.status == AgentStatus::Exited);
        if !is_gone || !unseen {
            return handle.execute(&at.session, recover()).await.map(drop);
        }
        let reason = Some(Reason::ExecutorError);
        let code = match fault {
            Fault::Problem(problem) => Some(problem.code.clone()),
            Fault::Unreachable { .. } => None,
        };
        let failed = ExecutorError { execution_id: at.execution.clone(), reason, code };
        observe(handle, &at.session, failed, Some(fault.to_string())).await
    }

    /// Starts the agent beside the session's agentctl. What became of it is in the log.
    pub async fn start_agent(&self, session: &SessionId, start: Start) -> Result<()> {
        let handle = self.handle().await?;
        let (at, state) = self.current(&handle, session).await?;
        // Somebody who only wanted the workspace may have launched it a moment ago.
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

    /// Ends the session's agent and agentctl, and everything they left running.
    pub async fn stop(&self, session: &SessionId) -> Result<()> {
        let handle = self.handle().await?;
        let (at, _) = self.current(&handle, session).await?;
        self.0.executor.stop(&at.execution, at.epoch).await?;
        handle.execute(session, recover()).await.map(drop)
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

    /// The session's execution, which may live.
    async fn current(&self, handle: &Handle, session: &SessionId) -> Result<(At, State)> {
        let mut state = handle.state(session).await?;
        if state.lease.owner.as_ref() != Some(handle.boot()) {
            // Another's epoch is not ours to speak with.
            handle.execute(session, recover()).await?;
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
                    tokio::time::sleep(TRY_AGAIN * u32::try_from(tries).unwrap_or(1)).await;
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

/// The session finds out itself what became of its executor.
pub(crate) fn recover() -> Command {
    Command::Recover { dead: std::collections::BTreeSet::new(), probe: None }
}

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
fn not_ours(error: &Error) -> bool {
    matches!(error.code(), Code::SessionOwned | Code::EpochStale | Code::SessionNotFound)
}
