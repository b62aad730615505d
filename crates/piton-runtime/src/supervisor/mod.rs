//! One supervisor per session that needs one: the only task that probes, drains, reattaches, follows,
//! starts, retries and ends the session's executions. Everything else wakes it with a cause and,
//! where it needs the outcome, awaits the answer.
//!
//! A supervisor exists while the session has an execution that may live or a start that is wanted; a
//! stored session costs nothing. [`Registry`] sees to it that there is at most one, and dropping the
//! service ends it. What it does next is one table: [`piton_core::supervise`].

mod agents;
mod boot_starts;
mod late;
mod sessions;
mod starting;
mod task;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use piton_core::decide::Refusal;
use piton_core::id::{ExecutionId, SessionId};
use piton_core::planted::{self, Bug};
use piton_core::resume::{Abilities, Plan, Policy, StartContext, StartTrigger};
use piton_core::{State, Timestamp};
use piton_store::Entropy;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

pub use agents::{LaunchConfig, LaunchConfigs, StartError};
pub(crate) use late::await_start;
pub use sessions::{Outcome, Recovered};
pub(crate) use starting::workspace_gone;

use crate::error::{Error, Result};
use crate::executions::Executions;
use crate::interfaces::Executors;
use crate::service::Handle;
use crate::settings::LiveSettings;
use boot_starts::BootStarts;
use task::Supervisor;

/// Wakes that may wait for one supervisor.
const WAKES_MAX: usize = 1_024;

/// Why a supervisor is woken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// This process has started, and a dead boot left the session.
    Boot,
    /// The session was found with something to settle or to follow while this process runs.
    Sweep,
    /// A command waits until it is known what became of the execution.
    Command,
    /// A prompt is in the log, and no agent is there to be given it.
    Undelivered,
    /// A launch has ended, well or not.
    LaunchEnded,
    /// The execution was stopped: what was known of it is out of date.
    Stopped,
    Closed,
    Abandoned,
    Deleted,
    /// The settings have changed.
    Settings,
    /// An execution is there that may not be the session's any more.
    Leftover(ExecutionId),
}

/// What reaches a supervisor.
enum Message {
    Wake(Wake),
    /// Answered as soon as the log says what became of the execution.
    Settle(Wake, oneshot::Sender<Result<Outcome>>),
    Start(StartRequest),
    Launch(PathBuf, oneshot::Sender<Result<ExecutionId>>),
    Stop(StopRequest),
}

/// A requested start of the agent.
struct StartRequest {
    trigger: StartTrigger,
    /// What the agent is to know of what was said before.
    context: StartContext,
    /// How the agent is to log in before it opens a conversation.
    auth_method: Option<String>,
    answer: oneshot::Sender<Result<Plan>>,
}

/// A user's wish that the execution ends, unless a run is open.
struct StopRequest {
    execution: ExecutionId,
    answer: oneshot::Sender<Result<()>>,
}

/// How agents are started, and when.
#[derive(Clone, Debug)]
struct Agents {
    catalog: Arc<dyn LaunchConfigs>,
    policy: Policy,
}

/// Reaches every session's supervisor. Cheap to clone.
#[derive(Clone)]
pub struct Supervisors(Arc<Inner>);

struct Inner {
    executors: Arc<dyn Executors>,
    /// `None`: executions are asked about and never followed or started here.
    executions: Option<Executions>,
    settings: Arc<LiveSettings>,
    boot_starts: BootStarts,
    entropy: Arc<dyn Entropy>,
    registry: Mutex<Registry>,
    agents: Mutex<Option<Agents>>,
    /// Sessions whose prompt found no agent before it was known how agents are started.
    undelivered: Mutex<BTreeSet<SessionId>>,
    /// When sessions were last active before this process began to recover them: that is no activity.
    active_before: Mutex<HashMap<SessionId, Timestamp>>,
}

/// Which sessions have a supervisor. Wakes are sent, and supervisors end, under its lock: no wake is
/// lost, and no session has two of them.
#[derive(Default)]
struct Registry {
    handle: Option<Handle>,
    by_session: HashMap<SessionId, mpsc::Sender<Message>>,
    tasks: JoinSet<()>,
}

impl fmt::Debug for Supervisors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Supervisors({})", self.registry().by_session.len())
    }
}

impl Supervisors {
    pub(crate) fn new(
        executors: Arc<dyn Executors>,
        settings: Arc<LiveSettings>,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        Self(Arc::new(Inner {
            executions: executors.executions(),
            executors,
            boot_starts: BootStarts::new(Arc::clone(&settings)),
            settings,
            entropy,
            registry: Mutex::default(),
            agents: Mutex::default(),
            undelivered: Mutex::default(),
            active_before: Mutex::default(),
        }))
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.0.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn agents(&self) -> Option<Agents> {
        self.0.agents.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on there are supervisors, until [`Self::detach`].
    pub(crate) fn attach(&self, handle: &Handle) {
        self.registry().handle = Some(handle.clone());
        if let Some(executions) = &self.0.executions {
            executions.attach_to(handle);
        }
    }

    /// Ends every supervisor at once; agents and their agentctls keep running.
    pub(crate) fn detach(&self) {
        // Dropped outside of the lock: what a task drops may want to wake another.
        let ended = std::mem::take(&mut *self.registry());
        drop(ended);
        if let Some(executions) = &self.0.executions {
            executions.detach();
        }
    }

    /// How agents are started, and when. Agents that are wanted already are started now: prompts that
    /// found none, and with `on_boot` those that ran when the last process ended.
    pub fn set_agents(&self, catalog: Arc<dyn LaunchConfigs>, policy: Policy) {
        let agents = Agents { catalog, policy };
        *self.0.agents.lock().unwrap_or_else(PoisonError::into_inner) = Some(agents);
        let waiting = {
            let mut waiting = self.0.undelivered.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *waiting)
        };
        for session in waiting {
            self.wake(&session, Wake::Undelivered);
        }
        let supervisors = self.clone();
        let mut registry = self.registry();
        if let Some(handle) = registry.handle.clone() {
            registry.tasks.spawn(async move {
                if let Err(error) = supervisors.start_at_boot(&handle, policy).await {
                    tracing::error!(code = %error.code(), "agents were not started");
                }
            });
        }
    }

    /// Another policy from now on; nothing is started because of it.
    pub(crate) fn set_policy(&self, policy: Policy) {
        let mut agents = self.0.agents.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(agents) = &mut *agents {
            agents.policy = policy;
        }
    }

    /// When agents are started, and what becomes of interrupted runs.
    pub fn policy(&self) -> Policy {
        self.agents().map(|agents| agents.policy).unwrap_or_default()
    }

    /// What the session's agent can do with a conversation that it had.
    pub fn abilities(&self, state: &State) -> Abilities {
        self.agents().map(|agents| agents.catalog.abilities(state)).unwrap_or_default()
    }

    /// Sees to it that the session's agent runs, if the policy has it started for this reason, and says
    /// what was decided. What a dead boot left is settled first. Returns when the log says what became
    /// of the agent; the start continues if the caller leaves.
    pub async fn ensure_running(&self, session: &SessionId, trigger: StartTrigger) -> Result<Plan> {
        self.start(session, trigger, StartContext::Native, None).await
    }

    /// Starts the agent as a user wants it to be started. For another context than its own, an agent
    /// that runs and is idle is ended first; one that works refuses it (`run_in_progress`).
    pub async fn start_with(&self, session: &SessionId, context: StartContext) -> Result<Plan> {
        self.start(session, StartTrigger::Manual, context, None).await
    }

    /// Starts the agent, which logs in this way first. One that runs is left as it is.
    pub(crate) async fn start_logged_in(
        &self,
        session: &SessionId,
        method: String,
    ) -> Result<Plan> {
        self.start(session, StartTrigger::Manual, StartContext::Native, Some(method)).await
    }

    /// [`Self::ensure_running`] without waiting for it; what goes wrong is in the log.
    pub fn ensure_running_later(&self, session: &SessionId, trigger: StartTrigger) {
        let (answer, _) = oneshot::channel();
        let context = StartContext::Native;
        let request = StartRequest { trigger, context, auth_method: None, answer };
        if let Err(error) = self.send(session, Message::Start(request)) {
            tracing::warn!(%session, code = %error.code(), %error, "the agent was not started");
        }
    }

    async fn start(
        &self,
        session: &SessionId,
        trigger: StartTrigger,
        context: StartContext,
        auth_method: Option<String>,
    ) -> Result<Plan> {
        let (answer, started) = oneshot::channel();
        let request = StartRequest { trigger, context, auth_method, answer };
        self.send(session, Message::Start(request))?;
        started.await.map_err(|_| Error::ShuttingDown)?
    }

    /// Work that outlives the request that began it, and ends with the service.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut registry = self.registry();
        while registry.tasks.try_join_next().is_some() {}
        if registry.handle.is_some() {
            registry.tasks.spawn(work);
        }
    }

    /// Starts an agentctl for a session that has none; the agent is not started with it.
    pub(crate) async fn launch(
        &self,
        session: &SessionId,
        workspace: PathBuf,
    ) -> Result<ExecutionId> {
        let (answer, launched) = oneshot::channel();
        self.send(session, Message::Launch(workspace, answer))?;
        launched.await.map_err(|_| Error::ShuttingDown)?
    }

    /// Has the supervisor find out, and write down, what became of the session's execution.
    pub(crate) async fn settle(&self, session: &SessionId, cause: Wake) -> Result<Outcome> {
        let (answer, settled) = oneshot::channel();
        self.send(session, Message::Settle(cause, answer))?;
        settled.await.map_err(|_| Error::ShuttingDown)?
    }

    /// Ends the execution and what it left running; refused while a run is open.
    pub(crate) async fn stop(&self, session: &SessionId, execution: ExecutionId) -> Result<()> {
        let (answer, stopped) = oneshot::channel();
        self.send(session, Message::Stop(StopRequest { execution, answer }))?;
        stopped.await.map_err(|_| Error::ShuttingDown)?
    }

    /// Every supervisor looks again: something that all of them go by has changed.
    pub(crate) fn wake_all(&self) {
        let registry = self.registry();
        for sender in registry.by_session.values() {
            // One that has so much to look at looks anyway.
            let _ = sender.try_send(Message::Wake(Wake::Settings));
        }
    }

    /// A hint: a no-op in a process without executions.
    pub(crate) fn wake(&self, session: &SessionId, cause: Wake) {
        if self.0.executions.is_none() {
            return;
        }
        if let Err(error) = self.send(session, Message::Wake(cause)) {
            tracing::debug!(%session, %error, "the supervisor was not woken");
        }
    }

    fn send(&self, session: &SessionId, message: Message) -> Result<()> {
        let mut registry = self.registry();
        let Some(handle) = registry.handle.clone() else { return Err(Error::ShuttingDown) };
        let known = registry.by_session.get(session);
        let message = match known.filter(|_| !planted::is(Bug::SupervisedTwice)) {
            None => message,
            Some(sender) => match sender.try_send(message) {
                Ok(()) => return Ok(()),
                Err(mpsc::error::TrySendError::Full(_)) => {
                    let what = "wakes of one session";
                    return Err(Refusal::LimitReached { what, max: WAKES_MAX }.into());
                }
                Err(mpsc::error::TrySendError::Closed(message)) => message,
            },
        };
        while registry.tasks.try_join_next().is_some() {}
        let (sender, inbox) = mpsc::channel(WAKES_MAX);
        // A new channel has room.
        let _ = sender.try_send(message);
        registry.by_session.insert(session.clone(), sender.clone());
        let supervisor = Supervisor::new(self.clone(), handle, session.clone(), inbox);
        let entry = Entry { supervisors: self.clone(), session: session.clone(), sender };
        registry.tasks.spawn(async move {
            let _entry = entry;
            supervisor.run().await;
        });
        Ok(())
    }

    /// Ends the supervisor, unless a message arrived meanwhile: then returns that message.
    fn end(&self, session: &SessionId, inbox: &mut mpsc::Receiver<Message>) -> Option<Message> {
        let mut registry = self.registry();
        if let Ok(message) = inbox.try_recv() {
            return Some(message);
        }
        registry.by_session.remove(session);
        inbox.close();
        None
    }
}

/// A supervisor's place in the registry: it goes with the task, however that ends.
struct Entry {
    supervisors: Supervisors,
    session: SessionId,
    sender: mpsc::Sender<Message>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut registry = self.supervisors.registry();
        let known = registry.by_session.get(&self.session);
        if known.is_some_and(|sender| sender.same_channel(&self.sender)) {
            registry.by_session.remove(&self.session);
        }
    }
}
