//! Graphs, and their checkpoints.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use piton_api::graph::{
    ArtifactList, ArtifactQuery, CheckpointDiff, CheckpointPage, CheckpointQuery, CheckpointView,
    CheckpointsPruned, DiffQuery, GraphQuery, GraphResumed, GraphTimeline, GraphView, InspectQuery,
    PruneCheckpointsRequest, ResumeGraphRequest, RunGraphRequest,
};
use piton_api::problem::Problem as Document;
use piton_api::session::SessionCreated;
use piton_core::graph::{CheckpointFilter, CheckpointOptions, CheckpointType};
use piton_core::id::SessionId;
use piton_runtime::{GraphResume, GraphRunSpec, GraphSource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Reply;
use crate::app::App;
use crate::extract::{Controller, LargeBody, OptionalBody, Params, Path, Reader};
use crate::problem::{Problem, Result};

/// Checkpoints that remain if a request does not say how many.
const KEEP_COUNT: usize = 10;

/// The wire's type of the same names.
fn wire<T: DeserializeOwned>(value: &impl Serialize) -> Result<T> {
    serde_json::to_value(value)
        .and_then(serde_json::from_value)
        .map_err(|error| Problem::malformed(error.to_string()))
}

/// Which graph a request means; `None`: it names none.
fn source(graph: Option<Value>, file: Option<String>) -> Result<Option<GraphSource>> {
    match (graph, file) {
        (Some(_), Some(_)) => Err(Problem::malformed("Either graph or file, not both")),
        (Some(Value::String(text)), None) => Ok(Some(GraphSource::Text(text))),
        (Some(graph @ Value::Object(_)), None) => Ok(Some(GraphSource::Text(graph.to_string()))),
        (Some(_), None) => Err(Problem::malformed("graph is a text or an object")),
        (None, Some(file)) => Ok(Some(GraphSource::File(file.into()))),
        (None, None) => Ok(None),
    }
}

fn options(given: Option<Value>) -> Result<CheckpointOptions> {
    let Some(given) = given else { return Ok(CheckpointOptions::default()) };
    serde_json::from_value(given)
        .map_err(|error| Problem::malformed(format!("checkpoint: {error}")))
}

/// Run a graph in a new session.
///
/// Answers when the session exists and the run has begun; the session's events tell what its nodes do.
/// The server continues the graph when a wait of it is answered, and after a restart.
#[utoipa::path(post, path = "/graphs/run", operation_id = "run_graph", tag = "graphs", request_body = RunGraphRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 201, body = SessionCreated),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn run(
    State(app): State<App>,
    Controller(caller): Controller,
    LargeBody(asked): LargeBody<RunGraphRequest>,
) -> Result<Reply<SessionCreated>> {
    let RunGraphRequest { graph, file, inputs, working_dir, checkpoint } = asked;
    let graph = source(graph, file)?
        .ok_or_else(|| Problem::malformed("The request names neither graph nor file"))?;
    let spec = GraphRunSpec { graph, inputs, working_dir, checkpoint: options(checkpoint)? };
    let created = Box::pin(app.engine().run_graph(&caller, spec)).await?;
    Ok(Reply::created(created.map(|created| SessionCreated::new(created.session_id, None, None))))
}

/// Resume a session's graph at its last position, or from a checkpoint, with memory keys set first.
#[utoipa::path(post, path = "/sessions/{session_id}/graph/resume", operation_id = "resume_graph", tag = "graphs", request_body = Option<ResumeGraphRequest>,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 200, body = GraphResumed),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn resume(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    OptionalBody(how): OptionalBody<ResumeGraphRequest>,
) -> Result<Reply<GraphResumed>> {
    let session = SessionId::from_user(&session)?;
    let how = GraphResume {
        checkpoint: how.checkpoint_id,
        set: how.set,
        graph: source(how.graph, how.file)?,
        recorded_graph: how.recorded_graph,
        checkpoint_options: options(how.checkpoint)?,
    };
    let resumed = app.engine().resume_graph(&caller, &session, how).await?;
    Ok(Reply::ok(resumed.map(|resumed| GraphResumed {
        session_id: resumed.session_id,
        run_id: resumed.run_id.map(|run| run.to_string()),
        resumed_from: resumed.resumed_from.map(|from| from.to_string()),
    })))
}

/// Get the graph that a session runs: its nodes and edges with their progress.
#[utoipa::path(get, path = "/sessions/{session_id}/graph", operation_id = "show_graph", tag = "graphs",
    params(("session_id" = String, Path, description = "The session's id"), GraphQuery),
    responses((status = 200, body = GraphView),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn show(
    State(app): State<App>,
    _reader: Reader,
    Path(session): Path<String>,
    Params(query): Params<GraphQuery>,
) -> Result<Json<GraphView>> {
    let session = SessionId::from_user(&session)?;
    let include_memory = query.include_memory.unwrap_or(false);
    Ok(Json(wire(&app.engine().graph(&session, include_memory).await?)?))
}

/// Get the timeline of a session's graph: runs, nodes, checkpoints and lineages, oldest first.
#[utoipa::path(get, path = "/sessions/{session_id}/timeline", operation_id = "show_timeline", tag = "graphs",
    params(("session_id" = String, Path, description = "The session's id")),
    responses((status = 200, body = GraphTimeline),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn timeline(
    State(app): State<App>,
    _reader: Reader,
    Path(session): Path<String>,
) -> Result<Json<GraphTimeline>> {
    let session = SessionId::from_user(&session)?;
    let entries = wire(&app.engine().timeline(&session).await?)?;
    Ok(Json(GraphTimeline { session_id: session, entries }))
}

/// List the files that the nodes of a session's graph left.
#[utoipa::path(get, path = "/sessions/{session_id}/artifacts", operation_id = "list_artifacts", tag = "graphs",
    params(("session_id" = String, Path, description = "The session's id"), ArtifactQuery),
    responses((status = 200, body = ArtifactList),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn artifacts(
    State(app): State<App>,
    _reader: Reader,
    Path(session): Path<String>,
    Params(query): Params<ArtifactQuery>,
) -> Result<Json<ArtifactList>> {
    let session_id = SessionId::from_user(&session)?;
    let artifacts = wire(&app.engine().artifacts(&session_id, query.node.as_deref()).await?)?;
    Ok(Json(ArtifactList { session_id, artifacts }))
}

/// Get a file that a node of a graph left, byte for byte.
#[utoipa::path(get, path = "/sessions/{session_id}/artifacts/{name}", operation_id = "read_artifact", tag = "graphs",
    params(("session_id" = String, Path, description = "The session's id"),
        ("name" = String, Path, description = "The file's name")),
    responses((status = 200, body = String, content_type = "application/octet-stream"),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn artifact(
    State(app): State<App>,
    _reader: Reader,
    Path((session, name)): Path<(String, String)>,
) -> Result<Response> {
    let bytes = app.engine().artifact(&SessionId::from_user(&session)?, &name).await?;
    // Whatever is in it: a browser must not take it for a page of ours.
    let kind = HeaderValue::from_static("application/octet-stream");
    let saved = HeaderValue::from_static("attachment");
    let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, saved)];
    Ok((headers, bytes).into_response())
}

/// List the checkpoints of a session's graph, newest first.
#[utoipa::path(get, path = "/sessions/{session_id}/checkpoints", operation_id = "list_checkpoints", tag = "graphs",
    params(("session_id" = String, Path, description = "The session's id"), CheckpointQuery),
    responses((status = 200, body = CheckpointPage),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(app): State<App>,
    _reader: Reader,
    Path(session): Path<String>,
    Params(query): Params<CheckpointQuery>,
) -> Result<Json<CheckpointPage>> {
    let session = SessionId::from_user(&session)?;
    let checkpoint_type =
        match &query.checkpoint_type {
            None => None,
            Some(named) => Some(CheckpointType::parse(named).ok_or_else(|| {
                Problem::malformed(format!("There is no checkpoint type {named:?}"))
            })?),
        };
    let filter = CheckpointFilter {
        checkpoint_type,
        is_clean: query.clean,
        node: query.node,
        lineage: query.lineage,
    };
    let query = piton_runtime::CheckpointQuery { filter, limit: query.limit };
    Ok(Json(wire(&app.engine().checkpoints(&session, query).await?)?))
}

/// Get a checkpoint with its contents; `latest` is the newest one.
#[utoipa::path(get, path = "/sessions/{session_id}/checkpoints/{checkpoint_id}", operation_id = "inspect_checkpoint", tag = "graphs",
    params(("session_id" = String, Path, description = "The session's id"),
        ("checkpoint_id" = String, Path, description = "The checkpoint's id, or the beginning or end of it"), InspectQuery),
    responses((status = 200, body = CheckpointView),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn inspect(
    State(app): State<App>,
    _reader: Reader,
    Path((session, checkpoint)): Path<(String, String)>,
    Params(query): Params<InspectQuery>,
) -> Result<Json<CheckpointView>> {
    let session = SessionId::from_user(&session)?;
    let include_memory = query.include_memory.unwrap_or(false);
    Ok(Json(wire(&app.engine().checkpoint(&session, &checkpoint, include_memory).await?)?))
}

/// Delete a checkpoint. Refused for one that a lineage, a wait or a resume needs.
#[utoipa::path(delete, path = "/sessions/{session_id}/checkpoints/{checkpoint_id}", operation_id = "delete_checkpoint", tag = "graphs",
    params(("session_id" = String, Path, description = "The session's id"),
        ("checkpoint_id" = String, Path, description = "The checkpoint's id, or the beginning or end of it")),
    responses((status = 204),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn delete(
    State(app): State<App>,
    Controller(caller): Controller,
    Path((session, checkpoint)): Path<(String, String)>,
) -> Result<StatusCode> {
    let session = SessionId::from_user(&session)?;
    app.engine().delete_checkpoint(&caller, &session, &checkpoint).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Prune old checkpoints of a session's graph. Checkpoints that a lineage, a wait or a resume needs
/// are kept.
#[utoipa::path(post, path = "/sessions/{session_id}/checkpoints/prune", operation_id = "prune_checkpoints", tag = "graphs", request_body = Option<PruneCheckpointsRequest>,
    params(("session_id" = String, Path, description = "The session's id")),
    responses((status = 200, body = CheckpointsPruned),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn prune(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    OptionalBody(how): OptionalBody<PruneCheckpointsRequest>,
) -> Result<Json<CheckpointsPruned>> {
    let session_id = SessionId::from_user(&session)?;
    let keep = how.keep_count.unwrap_or(KEEP_COUNT);
    let (clean, dry_run) = (how.keep_clean_only, how.dry_run);
    let pruned = app.engine().prune_checkpoints(&caller, &session_id, keep, clean, dry_run).await?;
    let pruned = pruned.iter().map(ToString::to_string).collect();
    Ok(Json(CheckpointsPruned { session_id, pruned, dry_run }))
}

/// Compare two checkpoints of a session's graph.
#[utoipa::path(get, path = "/sessions/{session_id}/checkpoints/diff", operation_id = "diff_checkpoints", tag = "graphs",
    params(("session_id" = String, Path, description = "The session's id"), DiffQuery),
    responses((status = 200, body = CheckpointDiff),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn diff(
    State(app): State<App>,
    _reader: Reader,
    Path(session): Path<String>,
    Params(query): Params<DiffQuery>,
) -> Result<Json<CheckpointDiff>> {
    let session = SessionId::from_user(&session)?;
    let diff = app.engine().diff_checkpoints(&session, &query.from, query.to.as_deref()).await?;
    Ok(Json(wire(&diff)?))
}
