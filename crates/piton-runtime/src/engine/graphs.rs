//! Graphs: run, resumed, paused and cancelled here, and continued after a restart. What a graph does is
//! `piton-graph`'s; this hosts its runs and answers requests about them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use piton_core::Code;
use piton_core::decide::{Command, Refusal};
use piton_core::graph::{CheckpointFilter, CheckpointOptions};
use piton_core::id::{CheckpointId, RunId, SessionId, WaitId};
use piton_core::reason::Reason;
use piton_core::resume::ContinueRun;
use piton_core::state::{Phase, Run as SessionRun};
use piton_graph::checkpoints::{
    self, ArtifactSummary, Checkpoint, CheckpointDiff, CheckpointList, GraphOverview, TimelineEntry,
};
use piton_graph::{Graph, GraphStore, Outcome, Run, Runner};
use piton_store::{Query, Select};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use super::agent_nodes::EngineAgents;
use super::requests::Request;
use super::sessions::hex;
use super::{AffectedRun, Caller, CreatedSession, Engine, Fulfilled};
use crate::error::{Error, Result};
use crate::graphs::{HostedGraphs, Reservation};
use crate::service::Options;

/// How often a resume is tried again when another writer wrote to the session in between.
const RESUME_TRIES: usize = 5;
const PAGE_ROWS: usize = 256;
/// Checkpoints in a list, at most and by default.
const CHECKPOINTS_MAX: usize = 1_000;
const CHECKPOINTS_DEFAULT: usize = 100;

/// Where a graph comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GraphSource {
    /// YAML or JSON.
    Text(String),
    /// A file that this process can read; an absolute path.
    File(PathBuf),
}

impl GraphSource {
    fn read(&self) -> Result<Graph> {
        Ok(match self {
            Self::Text(text) => Graph::from_text(text)?,
            Self::File(path) if path.is_absolute() => Graph::from_file(path)?,
            Self::File(_) => {
                return Err(Error::Invalid("A graph's file is an absolute path".to_owned()));
            }
        })
    }
}

/// A graph to run.
#[derive(Clone, Debug, Serialize)]
pub struct GraphRunSpec {
    pub graph: GraphSource,
    pub inputs: Map<String, Value>,
    /// The folder in which commands run; an absolute path. `None`: the server's own.
    pub working_dir: Option<String>,
    /// They win over the graph's own and the settings'.
    pub checkpoint: CheckpointOptions,
}

/// How a graph is resumed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GraphResume {
    /// The id, or the beginning or end of it; `None`: where the log ends.
    pub checkpoint: Option<String>,
    /// Keys of the memory that are set first.
    pub set: Map<String, Value>,
    /// Instead of the graph that ran.
    pub graph: Option<GraphSource>,
    /// The graph as it ran, though its file changed.
    pub recorded_graph: bool,
    pub checkpoint_options: CheckpointOptions,
}

/// A graph that was resumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumedGraph {
    pub session_id: SessionId,
    pub run_id: Option<RunId>,
    /// The checkpoint that it was resumed from.
    pub resumed_from: Option<CheckpointId>,
}

/// Which checkpoints to list.
#[derive(Clone, Debug, Default)]
pub struct CheckpointQuery {
    pub filter: CheckpointFilter,
    /// `None`: 100.
    pub limit: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GraphStop {
    Pause,
    Cancel,
}

/// The runs of graphs in this process. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Graphs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: GraphStore,
    hosted: Arc<HostedGraphs>,
    tasks: Mutex<JoinSet<()>>,
    /// The engine ends: runs are cut off, and what they started elsewhere continues.
    is_detached: AtomicBool,
}

impl Graphs {
    pub(super) fn new(store: GraphStore, hosted: Arc<HostedGraphs>) -> Self {
        let (tasks, is_detached) = Default::default();
        Self(Arc::new(Inner { store, hosted, tasks, is_detached }))
    }

    /// Ends the runs wherever they are, as a crash would; the next boot continues them.
    pub(super) fn detach(&self) {
        self.0.is_detached.store(true, Ordering::SeqCst);
        self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }

    pub(super) fn is_detached(&self) -> bool {
        self.0.is_detached.load(Ordering::SeqCst)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        if !self.is_detached() {
            tasks.spawn(task);
        }
    }
}

/// The graphs that a server ran when it ended.
pub(super) async fn left_by_dead_boots(options: &Options) -> Result<Vec<SessionId>> {
    let (mut left, mut after) = (Vec::new(), None);
    loop {
        let select = Select::NeedsRecovery;
        let query = Query { task_id: None, select, after, limit: PAGE_ROWS };
        let page = options.store.list(query).await?;
        for row in page.rows {
            let facts = &row.summary.facts;
            let is_left = facts.graph.is_some()
                && facts.graph_on_server
                && !facts.is_graph_waiting()
                && facts
                    .run
                    .as_ref()
                    .is_some_and(|run| run.is_open() && !options.liveness.is_alive(&run.boot_id));
            if is_left {
                left.push(row.session);
            }
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(left),
        }
    }
}

impl Engine {
    /// Runs a graph in a new session. Answers when the session exists and the run has begun.
    pub async fn run_graph(
        &self,
        caller: &Caller,
        spec: GraphRunSpec,
    ) -> Result<Fulfilled<CreatedSession>> {
        self.running()?;
        let request = Request::new(caller, "graphs.run", "", &spec)?;
        let session: SessionId = match request.seed() {
            Some(seed) => format!("sess_{}", hex(&seed)).parse()?,
            None => self.ids().session()?,
        };
        let created =
            CreatedSession { session_id: session.clone(), agent_profile_id: None, notice: None };
        match self.view().state(&session).await {
            Ok(state) => {
                let replayed = self.find_replay(&session, &state.requests, &request).await?;
                return Ok(replayed.unwrap_or(Fulfilled { response: created, replayed: true }));
            }
            Err(error) if error.code() == Code::SessionNotFound => {}
            Err(error) => return Err(error),
        }
        let GraphRunSpec { graph, inputs, working_dir, checkpoint } = spec;
        if let Some(folder) = &working_dir {
            super::sessions::check_folder(folder).await?;
        }
        let graph = graph.read()?;
        self.check_profiles(&graph)?;
        let reservation = self.reserve(&session)?;
        let mut runner = self.runner(&graph)?.checkpoints(checkpoint).session(session.clone());
        if let Some(folder) = working_dir {
            runner = runner.working_dir(folder);
        }
        let run = runner.start(inputs).await?;
        self.host(run, reservation)?;
        self.execute(&session, &request, created, Command::Nothing).await
    }

    /// Resumes a graph: where it stood, or from a checkpoint, with keys of its memory set. Answers when
    /// the run has begun.
    pub async fn resume_graph(
        &self,
        caller: &Caller,
        session: &SessionId,
        how: GraphResume,
    ) -> Result<Fulfilled<ResumedGraph>> {
        self.running()?;
        let request = Request::new(caller, "sessions.resume", session, &how)?;
        let state = self.view().state(session).await?;
        if let Some(replayed) = self.find_replay(session, &state.requests, &request).await? {
            return Ok(replayed);
        }
        let resumed_from = Box::pin(self.resume_hosted(session, &how)).await?;
        let run_id = self.view().state(session).await?.facts.run.map(|run| run.run_id);
        let resumed = ResumedGraph { session_id: session.clone(), run_id, resumed_from };
        self.execute(session, &request, resumed, Command::Nothing).await
    }

    async fn resume_hosted(
        &self,
        session: &SessionId,
        how: &GraphResume,
    ) -> Result<Option<CheckpointId>> {
        let store = &self.0.store;
        let graph = match &how.graph {
            Some(source) => source.read()?,
            None if how.recorded_graph => Graph::recorded(store, session).await?,
            None => Graph::of_session(store, session).await?,
        };
        self.check_profiles(&graph)?;
        let checkpoint = match &how.checkpoint {
            Some(named) => Some(checkpoints::find(store, session, named).await?),
            None => None,
        };
        let reservation = self.reserve(session)?;
        let mut tries = 0;
        let run = loop {
            tries += 1;
            let runner = self.runner(&graph)?.checkpoints(how.checkpoint_options.clone());
            match runner.resume(session, checkpoint.as_ref(), how.set.clone()).await {
                Ok(run) => break run,
                Err(error)
                    if tries < RESUME_TRIES
                        && matches!(error.code(), Code::SeqConflict | Code::EpochStale) => {}
                Err(error) => return Err(error.into()),
            }
        };
        let resumed_from = run.resumed_from().cloned();
        self.host(run, reservation)?;
        Ok(resumed_from)
    }

    /// Agents that no profile describes are found before the run begins.
    fn check_profiles(&self, graph: &Graph) -> Result<()> {
        for profile in
            graph.spec().all_nodes().into_iter().filter_map(|(_, node)| match &node.kind {
                piton_graph::NodeKind::Agent(agent) => agent.profile.as_deref(),
                _ => None,
            })
        {
            self.catalog().get(profile)?;
        }
        Ok(())
    }

    fn runner(&self, graph: &Graph) -> Result<Runner> {
        let graphs = &self.running()?.graphs;
        let agents = Arc::new(EngineAgents::new(self.clone(), graphs.clone()));
        Ok(graph.runner(&graphs.0.store).on_server().agents(agents))
    }

    fn reserve(&self, session: &SessionId) -> Result<Reservation> {
        let reserved = self.running()?.graphs.0.hosted.reserve(session);
        reserved.ok_or_else(|| Error::GraphRunning { session: session.clone() })
    }

    /// Runs until the graph ends or waits; the log says what became of it.
    fn host(&self, run: Run, reservation: Reservation) -> Result<()> {
        let graphs = &self.running()?.graphs;
        let session = run.session().clone();
        reservation.begin(run.handle());
        let engine = self.clone();
        graphs.spawn(async move {
            let outcome = Box::pin(run.finish()).await;
            drop(reservation);
            if let Ok(Outcome::Waiting { waits }) = &outcome
                && let Ok(running) = engine.running()
            {
                // While the graph ran it watched them itself.
                let first = waits.iter().filter_map(|wait| wait.deadline_at).min();
                running.handle.env().deadlines.note(first);
            }
            match outcome {
                Ok(Outcome::Failed(failure)) => {
                    tracing::info!(%session, node = %failure.node, code = %failure.code, "graph failed");
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(%session, code = %error.code(), %error, "graph stopped");
                    engine.interrupt_graph(&session).await;
                }
            }
        });
        Ok(())
    }

    /// Nothing drives the run any more, and the log has to say so.
    async fn interrupt_graph(&self, session: &SessionId) {
        let open = match self.view().state(session).await {
            Ok(state) => state.facts.run.filter(SessionRun::is_open),
            Err(_) => None,
        };
        let Some(run) = open else { return };
        let (run_id, reason) = (run.run_id, Reason::ProcessExit);
        if let Err(error) = self.write(session, Command::Interrupt { run_id, reason }).await {
            tracing::error!(%session, code = %error.code(), "graph not interrupted");
        }
    }

    /// Continues the graphs that a server ran when it ended, unless `continue_run` is `never`.
    pub(super) async fn continue_graphs(&self, left: Vec<SessionId>) {
        if self.policy().continue_run == ContinueRun::Never {
            return;
        }
        for session in left {
            let how = GraphResume { recorded_graph: true, ..GraphResume::default() };
            if let Err(error) = Box::pin(self.resume_hosted(&session, &how)).await {
                tracing::warn!(%session, code = %error.code(), %error, "graph not continued");
            }
        }
    }

    /// Continues the graphs of which a wait's time has passed, for ever: the node that waited fails.
    pub(super) async fn continue_expired(&self) {
        loop {
            let Ok(running) = self.running() else { return };
            let session = running.graphs.0.hosted.next_due().await;
            if let Err(error) = Box::pin(self.continue_answered(&session)).await {
                tracing::warn!(%session, code = %error.code(), %error, "graph not continued");
            }
        }
    }

    /// A wait of a graph was answered or has expired, and the graph does not run: it continues. One that cannot is
    /// paused, and a resume says why.
    pub(super) async fn continue_answered(&self, session: &SessionId) -> Result<()> {
        let facts = self.view().state(session).await?.facts;
        // The run of an earlier boot may have been recovered meanwhile.
        let is_left = |run: &SessionRun| match run.phase {
            Phase::Open => !run.is_waiting(),
            Phase::Interrupted { reason, .. } => reason == Reason::ProcessRestart,
            Phase::Paused | Phase::Dismissed | Phase::Ended(_) => false,
        };
        let run = facts.run.filter(is_left);
        let (Some(run), true) = (run, facts.graph.is_some()) else { return Ok(()) };
        if self.running()?.graphs.0.hosted.is_hosted(session) {
            return Ok(());
        }
        let how = GraphResume { recorded_graph: true, ..GraphResume::default() };
        match Box::pin(self.resume_hosted(session, &how)).await {
            Ok(_) | Err(Error::GraphRunning { .. }) => Ok(()),
            Err(error) => {
                tracing::warn!(%session, code = %error.code(), %error, "graph not continued");
                if run.phase != Phase::Open {
                    return Ok(());
                }
                let command = Command::Pause { run_id: run.run_id };
                self.write(session, command).await.map(drop)
            }
        }
    }

    /// Of a graph's question, an option can be named by its text alone.
    pub(super) async fn graph_answer(
        &self,
        session: &SessionId,
        wait: &WaitId,
        answer: Value,
    ) -> Result<Value> {
        let is_graph = self.view().state(session).await?.facts.graph.is_some();
        let Value::String(text) = answer else { return Ok(answer) };
        if !is_graph {
            return Ok(text.into());
        }
        let question = checkpoints::question(&self.0.store, session, wait).await?;
        Ok(if question.options.is_empty() { text.into() } else { json!({"option_id": text}) })
    }

    /// Pauses or cancels a graph that runs here; `None`: none does. A pause is pending until the nodes
    /// that run have completed.
    pub(super) async fn stop_graph(
        &self,
        caller: &Caller,
        session: &SessionId,
        run: Option<&RunId>,
        stop: GraphStop,
    ) -> Result<Option<Fulfilled<AffectedRun>>> {
        let super::Writer::Running(running) = &self.0.writer else { return Ok(None) };
        let hosted = &running.graphs.0.hosted;
        let Some(handle) = hosted.run(session).await else { return Ok(None) };
        let action = match stop {
            GraphStop::Pause => "sessions.pause",
            GraphStop::Cancel => "sessions.cancel",
        };
        let request = Request::new(caller, action, session, &json!({"run_id": run}))?;
        let latest = self.view().state(session).await?.facts.run.map(|run| run.run_id);
        if let Some(run) = run
            && latest.as_ref() != Some(run)
        {
            return Err(Refusal::RunNotFound { run: run.clone() }.into());
        }
        let stopped = AffectedRun::new(session, latest);
        let mut done = self.execute(session, &request, stopped, Command::Nothing).await?;
        match stop {
            GraphStop::Pause => handle.pause(),
            GraphStop::Cancel => handle.cancel(),
        }
        let ended = tokio::time::timeout(self.start_wait(), hosted.ended(session)).await;
        done.response.pending = ended.is_err();
        Ok(Some(done))
    }

    /// The graph that a session runs, and how far it came.
    pub async fn graph(&self, session: &SessionId, include_memory: bool) -> Result<GraphOverview> {
        Ok(checkpoints::overview(&self.0.store, session, include_memory).await?)
    }

    pub async fn timeline(&self, session: &SessionId) -> Result<Vec<TimelineEntry>> {
        Ok(checkpoints::timeline(&self.0.store, session).await?)
    }

    /// The files that nodes left.
    pub async fn artifacts(
        &self,
        session: &SessionId,
        node: Option<&str>,
    ) -> Result<Vec<ArtifactSummary>> {
        Ok(checkpoints::artifacts(&self.0.store, session, None, node).await?)
    }

    /// A file that a node left.
    pub async fn artifact(&self, session: &SessionId, name: &str) -> Result<Vec<u8>> {
        Ok(checkpoints::artifact(&self.0.store, session, name).await?)
    }

    pub async fn checkpoints(
        &self,
        session: &SessionId,
        query: CheckpointQuery,
    ) -> Result<CheckpointList> {
        let limit = query.limit.unwrap_or(CHECKPOINTS_DEFAULT);
        if !(1..=CHECKPOINTS_MAX).contains(&limit) {
            return Err(Error::Invalid(format!("limit is 1 to {CHECKPOINTS_MAX}")));
        }
        Ok(checkpoints::list(&self.0.store, session, &query.filter, limit).await?)
    }

    /// A checkpoint, by its id or the beginning or end of it; `latest` is the newest.
    pub async fn checkpoint(
        &self,
        session: &SessionId,
        named: &str,
        include_memory: bool,
    ) -> Result<Checkpoint> {
        let id = self.find_checkpoint(session, named).await?;
        let mut shown = checkpoints::load(&self.0.store, session, id.as_ref()).await?;
        if !include_memory {
            shown.shared_memory = None;
        }
        Ok(shown)
    }

    async fn find_checkpoint(
        &self,
        session: &SessionId,
        named: &str,
    ) -> Result<Option<CheckpointId>> {
        if named == "latest" {
            return Ok(None);
        }
        Ok(Some(checkpoints::find(&self.0.store, session, named).await?))
    }

    pub async fn diff_checkpoints(
        &self,
        session: &SessionId,
        from: &str,
        to: Option<&str>,
    ) -> Result<CheckpointDiff> {
        let store = &self.0.store;
        let from = checkpoints::find(store, session, from).await?;
        let to = self.find_checkpoint(session, to.unwrap_or("latest")).await?;
        Ok(checkpoints::diff(store, session, &from, to.as_ref()).await?)
    }

    /// Deletes a checkpoint of a graph that does not run.
    pub async fn delete_checkpoint(
        &self,
        caller: &Caller,
        session: &SessionId,
        named: &str,
    ) -> Result<()> {
        let id = checkpoints::find(&self.0.store, session, named).await?;
        let reservation = self.reserve(session)?;
        checkpoints::delete(&self.running()?.graphs.0.store, session, &id).await?;
        drop(reservation);
        self.audit(caller, "checkpoints.delete", format!("{session}/{id}")).await
    }

    /// Prunes old checkpoints so that `keep` remain; says which. `is_plan`: changes nothing.
    pub async fn prune_checkpoints(
        &self,
        caller: &Caller,
        session: &SessionId,
        keep: usize,
        keep_clean_only: bool,
        is_plan: bool,
    ) -> Result<Vec<CheckpointId>> {
        if is_plan {
            let store = &self.0.store;
            return Ok(checkpoints::prune_plan(store, session, keep, keep_clean_only).await?);
        }
        let reservation = self.reserve(session)?;
        let store = &self.running()?.graphs.0.store;
        let pruned = checkpoints::prune(store, session, keep, keep_clean_only).await?;
        drop(reservation);
        self.audit(caller, "checkpoints.prune", session.to_string()).await?;
        Ok(pruned)
    }

    /// A new session from a checkpoint; it is paused. `None`: the newest checkpoint.
    pub async fn fork_graph(
        &self,
        caller: &Caller,
        session: &SessionId,
        named: Option<&str>,
    ) -> Result<Fulfilled<CreatedSession>> {
        let store = &self.running()?.graphs.0.store;
        let arguments = json!({"checkpoint_id": named});
        let request = Request::new(caller, "sessions.fork", session, &arguments)?;
        let id: SessionId = match request.seed() {
            Some(seed) => format!("sess_{}", hex(&seed)).parse()?,
            None => self.ids().session()?,
        };
        let created =
            CreatedSession { session_id: id.clone(), agent_profile_id: None, notice: None };
        if let Ok(state) = self.view().state(&id).await {
            let replayed = self.find_replay(&id, &state.requests, &request).await?;
            return Ok(replayed.unwrap_or(Fulfilled { response: created, replayed: true }));
        }
        let checkpoint = match self.find_checkpoint(session, named.unwrap_or("latest")).await? {
            Some(checkpoint) => checkpoint,
            None => checkpoints::load(&self.0.store, session, None).await?.checkpoint_id,
        };
        checkpoints::fork_as(store, session, &checkpoint, id.clone()).await?;
        self.execute(&id, &request, created, Command::Nothing).await
    }
}
