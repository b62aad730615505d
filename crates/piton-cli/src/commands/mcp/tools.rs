//! The tools. Each returns its result as structured content, or an error with a code and a hint.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use piton_api::agent_view::ForkRequest;
use piton_api::graph::{ResumeGraphRequest, RunGraphRequest};
use piton_api::wait::AnswerRequest;
use piton_core::Code;
use piton_core::graph::{CheckpointFilter, CheckpointType};
use piton_core::id::{CheckpointId, SessionId, WaitId};
use piton_graph::{CheckpointOptions, Graph, checkpoints};
use piton_runtime::{Listed, View};
use piton_store::Store;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::CallToolResult;
use rmcp::{ServerHandler, tool, tool_handler, tool_router};
use serde_json::{Map, Value, json};

use super::parameters::{
    AnswerWait, ForkSession, InspectCheckpoint, ListCheckpoints, ListSessions, ResumeSession,
    RunGraph,
};
use super::runs::Runs;
use crate::call::Call;
use crate::commands::run;
use crate::commands::sessions::StatusFilter;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::graphs::{self, GraphHost};
use crate::lookup;

/// Most sessions that a list has.
const LIMIT_MAX: usize = 200;
/// Most checkpoints that a list has.
const CHECKPOINTS_MAX: usize = 1_000;

/// What the tools work with. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Tools(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    cx: Context,
    /// What runs graphs here, once it is needed.
    host: OnceLock<GraphHost>,
    opening: Mutex<()>,
    runs: Runs,
}

impl Tools {
    pub(super) fn new(cx: Context) -> Self {
        let (host, opening, runs) = Default::default();
        Self(Arc::new(Inner { cx, host, opening, runs }))
    }

    pub(super) fn context(&self) -> &Context {
        &self.0.cx
    }

    /// What runs graphs in this process; opened when it is first needed, and a store made if there is
    /// none.
    pub(super) fn host(&self) -> Result<&GraphHost> {
        let _one = self.0.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if self.0.host.get().is_none() {
            let host = GraphHost::open(&self.0.cx)?;
            return Ok(self.0.host.get_or_init(|| host));
        }
        self.0.host.get().ok_or_else(|| self.0.cx.missing_store())
    }

    pub(super) fn runs(&self) -> &Runs {
        &self.0.runs
    }

    /// The store, for reading: beside a server that alone writes to it as it is now.
    fn store(&self) -> Result<Arc<dyn Store>> {
        match self.0.host.get() {
            Some(host) => Ok(Arc::clone(host.store.store())),
            None => Ok(Arc::clone(self.0.cx.existing_view()?.store())),
        }
    }

    fn view(&self) -> Result<View> {
        Ok(View::new(self.store()?, Arc::new(self.0.cx.locks()), self.0.cx.clock()))
    }

    /// A session that runs a graph, in the folder that is named, if one is.
    async fn session(&self, id: &str, folder: &str) -> Result<SessionId> {
        let view = self.view()?;
        let id = lookup::session(&view, id.parse()?).await?;
        graphs::require_graph(&view, &id).await?;
        let state = view.state(&id).await?;
        let works_in = state.info.and_then(|info| info.working_dir);
        if !folder.is_empty() && works_in.as_deref() != Some(folder) {
            let message = format!("There is no session {id} in the folder {folder}");
            return Err(Error::new(Code::SessionNotFound, message));
        }
        Ok(id)
    }

    async fn checkpoint(&self, session: &SessionId, named: &str) -> Result<Option<CheckpointId>> {
        if named.is_empty() {
            return Ok(None);
        }
        Ok(Some(checkpoints::find(&self.store()?, session, named).await?))
    }

    async fn list_sessions(&self, asked: ListSessions) -> Result<Value> {
        let wanted = StatusFilter::parse(&asked.status)
            .map_err(|why| Error::new(Code::RequestInvalid, format!("status: {why}")))?;
        let chosen = |listed: &Listed| {
            let summary = &listed.row.summary;
            let folder = summary.info.working_dir.as_deref().unwrap_or_default();
            summary.facts.graph.is_some()
                && wanted.fits(&listed.status)
                && (asked.agent_work_dir.is_empty() || asked.agent_work_dir == folder)
        };
        let limit = asked.limit.clamp(1, LIMIT_MAX);
        let (view, mut listed, mut total, mut after) = (self.view()?, Vec::new(), 0, None);
        loop {
            let (page, next) = view.list_where(None, &chosen, after, LIMIT_MAX).await?;
            total += page.len();
            let room = limit.saturating_sub(listed.len());
            listed.extend(page.into_iter().take(room));
            match next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        let mut sessions = Vec::new();
        for one in listed {
            let view = checkpoints::view(&self.store()?, &one.row.session).await?;
            sessions.push(json!({
                "session_id": view.session_id,
                "status": asked.status,
                "error": view.error,
                "failed_at_node": view.failed_at_node,
                "last_checkpoint": view.last_checkpoint,
                "created_at": view.created_at,
                "updated_at": view.updated_at,
            }));
        }
        Ok(json!({"sessions": sessions, "total": total}))
    }

    async fn list_checkpoints(&self, asked: ListCheckpoints) -> Result<Value> {
        let session = self.session(&asked.session_id, &asked.agent_work_dir).await?;
        let checkpoint_type = match asked.checkpoint_type.as_str() {
            "" => None,
            named => Some(CheckpointType::parse(named).ok_or_else(|| {
                let message = format!("There is no checkpoint type {named:?}");
                Error::new(Code::RequestInvalid, message)
            })?),
        };
        let is_clean = asked.clean_only.then_some(true);
        let filter = CheckpointFilter { checkpoint_type, is_clean, ..CheckpointFilter::default() };
        let list = checkpoints::list(&self.store()?, &session, &filter, CHECKPOINTS_MAX).await?;
        // Oldest first, as an index is written.
        let listed: Vec<Value> = list
            .checkpoints
            .iter()
            .rev()
            .map(|one| {
                json!({
                    "checkpoint_id": one.checkpoint_id,
                    "type": one.checkpoint_type,
                    "created_at": one.created_at,
                    "current_node": one.current_node,
                    "is_clean": one.is_clean,
                    "can_resume_from": one.can_resume_from,
                    "description": one.description,
                })
            })
            .collect();
        Ok(json!({"session_id": session, "checkpoints": listed}))
    }

    async fn inspect(&self, asked: InspectCheckpoint) -> Result<Value> {
        let session = self.session(&asked.session_id, &asked.agent_work_dir).await?;
        let id = self.checkpoint(&session, &asked.checkpoint_id).await?;
        let one = checkpoints::load(&self.store()?, &session, id.as_ref()).await?;
        let mut shown = json!({
            "checkpoint_id": one.checkpoint_id,
            "type": one.checkpoint_type,
            "current_node": one.current_node,
            "execution_path": one.execution_path,
            "accumulated_outputs": one.accumulated_outputs,
            "metrics_snapshot": {
                "total_retries": one.metrics_snapshot.total_retries,
                "nodes_with_failures": one.metrics_snapshot.nodes_with_failures,
            },
        });
        if asked.include_memory {
            shown["memory"] = json!(one.shared_memory);
        }
        Ok(shown)
    }

    /// Continues a session, in this process or on the server that owns it; says which checkpoint it continues from.
    async fn continue_session(
        &self,
        session: &SessionId,
        checkpoint: Option<&CheckpointId>,
        set: Map<String, Value>,
    ) -> Result<Option<CheckpointId>> {
        let graph = Graph::of_session(&self.store()?, session).await?;
        if let Some(client) = run::server_for_resume(&self.0.cx, &graph, session).await? {
            let how = ResumeGraphRequest {
                checkpoint_id: checkpoint.map(ToString::to_string),
                set,
                recorded_graph: true,
                ..ResumeGraphRequest::default()
            };
            let from = client.resume_graph(session, &how).await?.resumed_from;
            return Ok(from.map(|from| from.parse()).transpose()?);
        }
        let runner = graph.runner(&self.host()?.store).checkpoints(CheckpointOptions::default());
        let run = runner.resume(session, checkpoint, set).await;
        let run = run.map_err(|error| graphs::owned(&self.0.cx, error))?;
        let from = run.resumed_from().cloned();
        self.0.runs.spawn(run);
        Ok(from)
    }

    async fn resume(&self, asked: ResumeSession) -> Result<Value> {
        let session = self.session(&asked.session_id, &asked.agent_work_dir).await?;
        let id = self.checkpoint(&session, &asked.checkpoint_id).await?;
        let set: Map<String, Value> =
            serde_json::from_str(&asked.memory_modifications).map_err(|error| {
                let message = "memory_modifications is not a JSON object";
                Error::new(Code::RequestInvalid, message).because(&error)
            })?;
        let from = Box::pin(self.continue_session(&session, id.as_ref(), set)).await?;
        let place = from.as_ref().map_or("where it stood", |from| from.as_str());
        let message = format!("Session resumed successfully from {place}");
        Ok(json!({
            "session_id": session, "resumed_from": from, "status": "active", "message": message,
        }))
    }

    async fn run(&self, asked: RunGraph) -> Result<Value> {
        let graph = Graph::from_file(&asked.graph)?;
        let folder = match asked.agent_work_dir.as_str() {
            "" => std::env::current_dir()?,
            folder => std::path::absolute(folder)?,
        };
        if let Some(client) = run::server_for_run(&self.0.cx, &graph).await? {
            let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
            let request = RunGraphRequest {
                file: graph.file().map(text),
                inputs: asked.inputs,
                working_dir: Some(text(&folder)),
                ..RunGraphRequest::default()
            };
            let session = client.run_graph(&request).await?.session_id;
            return Ok(json!({"session_id": session, "graph": graph.name(), "status": "active"}));
        }
        let runner = graph.runner(&self.host()?.store);
        let runner = runner.working_dir(folder.to_string_lossy().into_owned());
        let run = runner.start(asked.inputs).await?;
        let session = run.session().clone();
        self.0.runs.spawn(run);
        Ok(json!({"session_id": session, "graph": graph.name(), "status": "active"}))
    }

    async fn fork(&self, asked: ForkSession) -> Result<Value> {
        let session = self.session(&asked.session_id, "").await?;
        let id = match self.checkpoint(&session, &asked.checkpoint_id).await? {
            Some(id) => id,
            None => checkpoints::load(&self.store()?, &session, None).await?.checkpoint_id,
        };
        let forked = match graphs::server_of_store(&self.0.cx)? {
            Some(client) => {
                let checkpoint_id = Some(id.to_string());
                let request = ForkRequest { checkpoint_id, ..ForkRequest::default() };
                client.fork(&session, &request).await?.session_id
            }
            None => checkpoints::fork(&self.host()?.store, &session, &id).await?,
        };
        Ok(json!({"session_id": forked, "forked_from": session, "checkpoint_id": id}))
    }

    /// Answers a graph that runs here while other branches run, one of the server there, and one
    /// that no process runs by continuing it here.
    async fn give_answer(&self, session: &SessionId, wait: &WaitId, answer: Value) -> Result<()> {
        if let Some(run) = self.0.runs.handle(session)
            && run.answer(wait.clone(), answer.clone()).await?
        {
            return Ok(());
        }
        if let Some(client) = graphs::server_for_change(&self.0.cx, session).await? {
            client.answer(wait, &AnswerRequest { answer, message: None }).await?;
            return Ok(());
        }
        // Its run has ended, and may not have let go of the session yet.
        self.0.runs.ended(session).await;
        let answered = piton_graph::answer(&self.host()?.store, session, wait, answer).await;
        answered.map_err(|error| graphs::owned(&self.0.cx, error))?;
        Box::pin(self.continue_session(session, None, Map::new())).await?;
        Ok(())
    }

    async fn answer(&self, asked: AnswerWait) -> Result<Value> {
        let session = self.session(&asked.session_id, "").await?;
        let wait: WaitId = match asked.wait_id.as_str() {
            "" => {
                let view = checkpoints::view(&self.store()?, &session).await?;
                let [wait] = view.waits.as_slice() else {
                    let message = format!("Session {session} has {} open waits", view.waits.len());
                    return Err(Error::new(Code::WaitNotFound, message));
                };
                wait.clone()
            }
            named => named.parse()?,
        };
        self.give_answer(&session, &wait, asked.answer).await?;
        Ok(json!({"session_id": session, "wait_id": wait, "status": "active"}))
    }
}

fn result(done: Result<Value>) -> CallToolResult {
    match done {
        Ok(value) => CallToolResult::structured(value),
        Err(error) => CallToolResult::structured_error(error.to_json(&Call::default())),
    }
}

#[tool_router]
impl Tools {
    #[tool(description = "List sessions that can be resumed")]
    async fn list_resumable_sessions(
        &self,
        Parameters(asked): Parameters<ListSessions>,
    ) -> CallToolResult {
        result(self.list_sessions(asked).await)
    }

    #[tool(description = "List all checkpoints of a session")]
    async fn list_session_checkpoints(
        &self,
        Parameters(asked): Parameters<ListCheckpoints>,
    ) -> CallToolResult {
        result(self.list_checkpoints(asked).await)
    }

    #[tool(description = "Inspect a checkpoint's detailed state")]
    async fn inspect_checkpoint(
        &self,
        Parameters(asked): Parameters<InspectCheckpoint>,
    ) -> CallToolResult {
        result(self.inspect(asked).await)
    }

    #[tool(description = "Resume a session from a checkpoint, with keys of the memory set first")]
    async fn resume_session(&self, Parameters(asked): Parameters<ResumeSession>) -> CallToolResult {
        result(self.resume(asked).await)
    }

    #[tool(description = "Run a graph in a new session; it runs in the background")]
    async fn run_graph(&self, Parameters(asked): Parameters<RunGraph>) -> CallToolResult {
        result(self.run(asked).await)
    }

    #[tool(description = "Create a session that begins with what a graph did up to a checkpoint")]
    async fn fork_session(&self, Parameters(asked): Parameters<ForkSession>) -> CallToolResult {
        result(self.fork(asked).await)
    }

    #[tool(description = "Answer what a graph waits for, and let it continue")]
    async fn answer_wait(&self, Parameters(asked): Parameters<AnswerWait>) -> CallToolResult {
        result(self.answer(asked).await)
    }
}

#[tool_handler(
    name = "piton",
    instructions = "Graphs that survive crashes: run them, find those that failed, look into their checkpoints, resume them with edited memory."
)]
impl ServerHandler for Tools {}
