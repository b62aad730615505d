//! The conversations that agents have, and sessions that are forked from others.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use piton_api::agent_view::{AgentSession, AgentSessionPage, AgentSessionQuery, ForkRequest};
use piton_api::problem::Problem as Document;
use piton_api::session::SessionCreated;
use piton_core::id::SessionId;
use piton_runtime::{Caller, ForkSpec, Fulfilled};

use super::Reply;
use crate::app::App;
use crate::extract::{Administrator, Controller, OptionalBody, Params, Path, Reader};
use crate::problem::Result;

/// List the conversations that an agent keeps. Requires a running agent of that profile.
#[utoipa::path(get, path = "/agents/{agent}/sessions", operation_id = "list_agent_sessions", tag = "agents",
    params(("agent" = String, Path, description = "The agent profile's id"), AgentSessionQuery),
    responses((status = 200, body = AgentSessionPage),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(app): State<App>,
    _reader: Reader,
    Path(agent): Path<String>,
    Params(query): Params<AgentSessionQuery>,
) -> Result<Json<AgentSessionPage>> {
    let folder = query.folder.map(Into::into);
    let listed = app.engine().agent_sessions(&agent, folder, query.after).await?;
    let sessions = listed.sessions.into_iter().map(|session| AgentSession {
        agent_session_id: session.agent_session_id,
        folder: session.cwd.map(|cwd| cwd.to_string_lossy().into_owned()),
        title: session.title,
        updated_at: session.updated_at,
    });
    Ok(Json(AgentSessionPage { sessions: sessions.collect(), next: listed.next_cursor }))
}

/// Close a conversation that an agent keeps. Refused while an open session uses it.
#[utoipa::path(post, path = "/agents/{agent}/sessions/{agent_session_id}/close", operation_id = "close_agent_session", tag = "agents",
    params(("agent" = String, Path, description = "The agent profile's id"),
        ("agent_session_id" = String, Path, description = "The agent's own id of the conversation")),
    responses((status = 204),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn close(
    State(app): State<App>,
    Controller(caller): Controller,
    Path((agent, id)): Path<(String, String)>,
) -> Result<StatusCode> {
    app.engine().close_agent_session(&caller, &agent, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Delete a conversation that an agent keeps. Refused while an open session uses it.
#[utoipa::path(delete, path = "/agents/{agent}/sessions/{agent_session_id}", operation_id = "delete_agent_session", tag = "agents",
    params(("agent" = String, Path, description = "The agent profile's id"),
        ("agent_session_id" = String, Path, description = "The agent's own id of the conversation")),
    responses((status = 204),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn delete(
    State(app): State<App>,
    Administrator(caller): Administrator,
    Path((agent, id)): Path<(String, String)>,
) -> Result<StatusCode> {
    app.engine().delete_agent_session(&caller, &agent, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Create a session whose agent begins with a copy of this session's conversation.
///
/// The agent makes the copy at its newest turn, when it is first started; the session's own conversation
/// stays as it is. The new session works in the same folder. An agent that does not offer this is refused
/// with `agent_not_offered`; while a run is open, the fork is refused with `run_in_progress`.
///
/// Of a graph: a session that begins with what the graph did up to a checkpoint. It is paused.
#[utoipa::path(post, path = "/sessions/{session_id}/fork", operation_id = "fork_session", tag = "sessions", request_body = Option<ForkRequest>,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 201, body = SessionCreated),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn fork(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    OptionalBody(fork): OptionalBody<ForkRequest>,
) -> Result<Reply<SessionCreated>> {
    Ok(Reply::created(fork_now(&app, &caller, &session, fork).await?))
}

pub(crate) async fn fork_now(
    app: &App,
    caller: &Caller,
    session: &str,
    fork: ForkRequest,
) -> Result<Fulfilled<SessionCreated>> {
    let session = SessionId::from_user(session)?;
    let is_graph = app.engine().view().state(&session).await?.facts.graph.is_some();
    if is_graph || fork.checkpoint_id.is_some() {
        let named = fork.checkpoint_id.as_deref();
        let forked = app.engine().fork_graph(caller, &session, named).await?;
        return Ok(forked.map(|created| SessionCreated::new(created.session_id, None, None)));
    }
    let spec = ForkSpec { title: fork.title, start: fork.start.unwrap_or(true) };
    let forked = app.engine().fork(caller, &session, spec).await?;
    Ok(forked.map(|created| {
        SessionCreated::new(created.session_id, created.agent_profile_id, created.notice)
    }))
}
