//! The session engine: one method per thing that a client can ask. HTTP, WebSocket, the command
//! line and embedders call the same methods; these layers translate and decide nothing.
//!
//! [`Engine::start`] runs sessions and their agents. [`Engine::offline`] is the same interface over
//! the offline writer, for a process that runs none: what needs an agent is refused there with
//! `server_not_running`, and a session that a living process owns with `session_owned`.

mod access_tokens;
mod agent;
mod agent_nodes;
mod agent_sessions;
mod caller;
mod catalog;
mod finishing;
mod graphs;
mod queue;
mod removal;
mod requests;
mod restoring;
mod rewind;
mod rewind_files;
mod runs;
mod sessions;
mod snapshot_flush;
mod snapshots;
mod start_plan;
mod status;
mod store;
mod tasks;
mod waits;
mod workspace;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use piton_agent::profiles::Profile;
use piton_core::decide::Command;
use piton_core::graph::{CheckpointOptions, StoreFeatures};
use piton_core::id::SessionId;
use piton_core::resume::Policy;
use piton_exec::executor::{Executor, LaunchOptions};
use piton_graph::{GraphStore, StoreParts};
use piton_store::Store;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use crate::error::{Error, Result};
use crate::executions::Executions;
use crate::interfaces::{Clock, Ids};
use crate::metadata::MetadataLog;
use crate::offline::OfflineWriter;
use crate::service::{Handle, Options, Service};
use crate::session::Ack;
use crate::settings::Settings;
use crate::view::View;
use crate::worktrees::Worktrees;

pub use access_tokens::{IssuedToken, NewAccessToken};
pub use agent_sessions::ForkSpec;
pub use caller::Caller;
pub use catalog::{AgentCatalog, DefaultAgent, SESSION_PLACEHOLDER, TEST_AGENT};
pub use finishing::{CommittedWork, MergedWork, PushedWork};
pub use graphs::{CheckpointQuery, GraphResume, GraphRunSpec, GraphSource, ResumedGraph};
pub use queue::{AffectedQueue, Prompted, QueueReport, QueuedPromptReport};
pub use removal::{ArchiveTarget, Deleted, RedactionReport};
pub use requests::Fulfilled;
pub use rewind::{
    FileChange, RewindReport, RewindSpec, RewoundConversation, RewoundFiles, SkippedPath,
};
pub use runs::{AffectedRun, OpenedSession, ResumeSpec};
pub use sessions::{CreatedSession, SessionFilter, SessionSpec};
pub use status::{Contact, SessionReport};
pub use store::{Pruned, VerifiedPage};
pub(crate) use tasks::derive_task_state;
pub use tasks::{ChangedTask, CreatedTask, TaskPage, TaskReport};
pub use waits::{AnsweredWait, IssuedResumeToken, OpenWaits};
pub use workspace::{OpenedShell, check_terminal_side};

use graphs::Graphs;
use snapshots::Snapshots;
use start_plan::StartPlans;

/// Options of an engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Store, clock, boot and masks. Driver and executors are the engine's own.
    pub service: Options,
    /// The agents that can be run. Of several profiles with the same id the last counts.
    pub profiles: Vec<Profile>,
    /// The agent of sessions that name none, if the user set one; without one it is the first that
    /// is installed, else the test agent.
    pub default_agent: Option<String>,
    /// When agents are restarted, and which context they receive.
    pub policy: Policy,
    /// What every agentctl is launched with: the rules of masking, and limits.
    pub launch: LaunchOptions,
    /// The folder of the sessions' git worktrees.
    pub worktrees: PathBuf,
    /// Sessions that name no folder get a workspace of their own in this one.
    pub scratch: PathBuf,
    /// The folder that archived sessions are moved to.
    pub archive: PathBuf,
    /// The folder of the snapshots of workspaces; `None`: none are taken, and turns have no
    /// checkpoints.
    pub snapshots: Option<PathBuf>,
    /// Whether the store encrypts and compresses contents; checkpoint options that contradict it are
    /// refused.
    pub store_features: StoreFeatures,
    /// Checkpoint options of all graphs; they win over a graph's own.
    pub checkpoint: CheckpointOptions,
}

impl EngineOptions {
    /// Options with every folder at its default place in a data folder.
    pub fn new(service: Options, data: &Path) -> Self {
        Self {
            launch: LaunchOptions::new(&service.masker),
            service,
            profiles: Vec::new(),
            default_agent: None,
            policy: Policy::default(),
            worktrees: data.join("worktrees"),
            scratch: data.join("workspaces"),
            archive: data.join("archive"),
            snapshots: None,
            store_features: StoreFeatures {
                is_encrypted: false,
                compresses_above: None,
                key_source: None,
            },
            checkpoint: CheckpointOptions::default(),
        }
    }

    fn catalog(&mut self) -> Arc<AgentCatalog> {
        let profiles = std::mem::take(&mut self.profiles);
        Arc::new(AgentCatalog::new(profiles, self.default_agent.clone()))
    }
}

/// What callers hold. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Engine(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    writer: Writer,
    catalog: Arc<AgentCatalog>,
    /// Read when it is first needed: most offline commands do not.
    metadata: OnceCell<MetadataLog>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ids: Ids,
    policy: Policy,
    archive: PathBuf,
}

/// How this engine appends to the logs of sessions.
#[derive(Debug)]
enum Writer {
    Running(Box<Running>),
    Offline(OfflineWriter),
}

/// The parts of an engine that runs sessions.
#[derive(Debug)]
struct Running {
    handle: Handle,
    executions: Executions,
    plans: StartPlans,
    worktrees: Worktrees,
    graphs: Graphs,
    snapshots: Option<Snapshots>,
}

/// An engine that runs sessions. Dropping it stops its tasks at once, as a crash would; agents outlive
/// it in any case.
#[derive(Debug)]
pub struct RunningEngine {
    engine: Engine,
    service: Option<Service>,
    executions: Executions,
    graphs: Graphs,
    tasks: JoinSet<()>,
}

impl RunningEngine {
    pub fn engine(&self) -> Engine {
        self.engine.clone()
    }

    /// Accepts no further commands and waits until those that were accepted are durable. Agents and their agentctls
    /// keep running.
    pub async fn shut_down(mut self) {
        self.tasks.abort_all();
        self.graphs.detach();
        self.executions.detach();
        if let Some(service) = self.service.take() {
            service.shut_down().await;
        }
    }
}

impl Drop for RunningEngine {
    fn drop(&mut self) {
        self.graphs.detach();
        self.executions.detach();
    }
}

impl Engine {
    /// Runs sessions from now on: finds the executions of earlier boots again, reattaches or interrupts
    /// the runs that those boots left open, starts agents that are to be started at boot, and those that
    /// prompts wait for. Does not wait for any of this; until a session was looked at, the reason of its
    /// status is `executor_probing`.
    pub async fn start(
        mut options: EngineOptions,
        executor: Arc<dyn Executor>,
    ) -> Result<RunningEngine> {
        let catalog = options.catalog();
        let (store, clock) = (options.service.store.clone(), options.service.clock.clone());
        let ids = Ids::new(Arc::clone(&clock), options.service.entropy.clone());
        let executions = Executions::new(executor, Arc::clone(&store), options.launch);
        let left = graphs::left_by_dead_boots(&options.service).await?;
        let graph_store = GraphStore::from_parts(StoreParts {
            store: Arc::clone(&store),
            boot: options.service.boot.clone(),
            liveness: Arc::clone(&options.service.liveness),
            features: options.store_features,
            masker: Arc::clone(&options.service.masker),
        })
        .with_checkpoints(options.checkpoint);
        let snapshots = options.snapshots.map(|root| Snapshots::new(root, Arc::clone(&store)));
        let mut service = Options {
            driver: Arc::new(executions.clone()),
            executors: Arc::new(executions.clone()),
            ..options.service
        };
        if let Some(snapshots) = &snapshots {
            service.turns = Arc::new(snapshots.clone());
        }
        let service = Service::begin(service);
        let handle = service.handle();
        let metadata = MetadataLog::open(&handle).await?;
        let worktrees = Worktrees::open(handle.clone(), &options.worktrees)?
            .with_executions(executions.clone());
        let plans = StartPlans::new(Arc::clone(&catalog), worktrees.clone(), options.scratch);
        handle.supervisors().set_agents(Arc::new(plans.clone()), options.policy);
        let mut tasks = JoinSet::new();
        let followed = metadata.clone();
        tasks.spawn(async move {
            if let Err(error) = followed.follow().await {
                tracing::error!(code = %error.code(), "the metadata log is not followed");
            }
        });
        let graphs = Graphs::new(graph_store, Arc::clone(&handle.env().graphs));
        if let Some(snapshots) = snapshots.clone() {
            snapshots.attach(handle.clone(), plans.clone(), executions.clone());
            tasks.spawn(async move { snapshots.settle_all().await });
        }
        let executions_of = executions.clone();
        let running = Running {
            handle,
            executions: executions_of,
            plans,
            worktrees,
            graphs: graphs.clone(),
            snapshots,
        };
        let engine = Self(Arc::new(Inner {
            writer: Writer::Running(Box::new(running)),
            catalog,
            metadata: OnceCell::new_with(Some(metadata)),
            store,
            clock,
            ids,
            policy: options.policy,
            archive: options.archive,
        }));
        let continuing = engine.clone();
        tasks.spawn(async move { continuing.continue_graphs(left).await });
        let expired = engine.clone();
        tasks.spawn(async move { expired.continue_expired().await });
        Ok(RunningEngine { engine, service: Some(service), executions, graphs, tasks })
    }

    /// For a process that runs no sessions: each change is one batch that takes the session's lease
    /// and gives it back. Runs, probes and sweeps nothing.
    pub fn offline(mut options: EngineOptions) -> Self {
        let catalog = options.catalog();
        let (store, clock) = (options.service.store.clone(), options.service.clock.clone());
        if let Some(root) = options.snapshots {
            options.service.turns = Arc::new(Snapshots::new(root, Arc::clone(&store)));
        }
        Self(Arc::new(Inner {
            ids: Ids::new(Arc::clone(&clock), options.service.entropy.clone()),
            writer: Writer::Offline(Service::offline_writer(options.service)),
            catalog,
            metadata: OnceCell::new(),
            store,
            clock,
            policy: options.policy,
            archive: options.archive,
        }))
    }

    /// What can be read: states, statuses, lists, records.
    pub fn view(&self) -> &View {
        match &self.0.writer {
            Writer::Running(running) => running.handle.view(),
            Writer::Offline(writer) => writer.view(),
        }
    }

    pub fn catalog(&self) -> &AgentCatalog {
        &self.0.catalog
    }

    pub fn policy(&self) -> Policy {
        match &self.0.writer {
            Writer::Running(running) => running.handle.supervisors().policy(),
            Writer::Offline(_) => self.0.policy,
        }
    }

    /// New settings and a new policy count from now on, for all sessions.
    pub fn reconfigure(&self, settings: Settings, policy: Policy) -> Result<()> {
        let handle = &self.running()?.handle;
        handle.supervisors().set_policy(policy);
        handle.set_settings(settings);
        Ok(())
    }

    pub fn settings(&self) -> Settings {
        match &self.0.writer {
            Writer::Running(running) => running.handle.settings(),
            Writer::Offline(_) => Settings::default(),
        }
    }

    /// How long a request waits for an agent's start to succeed or fail.
    fn start_wait(&self) -> Duration {
        self.settings().agent_start_timeout
    }

    fn request_kept_for(&self) -> Duration {
        self.settings().limits.request_kept_for
    }

    /// The log of what belongs to no session: tasks, access tokens, audit, deletions.
    pub async fn metadata(&self) -> Result<&MetadataLog> {
        let open = || async {
            match &self.0.writer {
                Writer::Running(running) => MetadataLog::open(&running.handle).await,
                Writer::Offline(writer) => writer.metadata().await,
            }
        };
        self.0.metadata.get_or_try_init(open).await
    }

    /// The metadata log of a running engine.
    pub fn metadata_log(&self) -> Result<&MetadataLog> {
        self.running()?;
        self.0.metadata.get().ok_or(Error::ShuttingDown)
    }

    /// The session service below the engine, for callers that drive sessions without an agent.
    pub fn handle(&self) -> Result<&Handle> {
        Ok(&self.running()?.handle)
    }

    pub fn ids(&self) -> &Ids {
        &self.0.ids
    }

    fn running(&self) -> Result<&Running> {
        match &self.0.writer {
            Writer::Running(running) => Ok(running),
            Writer::Offline(_) => Err(Error::ServerRequired),
        }
    }

    fn is_offline(&self) -> bool {
        matches!(self.0.writer, Writer::Offline(_))
    }

    /// Every change that the engine makes to a session goes through here.
    async fn write(&self, session: &SessionId, command: Command) -> Result<Ack> {
        match &self.0.writer {
            Writer::Running(running) => running.handle.execute(session, command).await,
            Writer::Offline(writer) => writer.execute(session, command).await,
        }
    }
}
