//! Sessions: made, listed, paused, resumed, ended. Each `…_now` is what HTTP and the
//! WebSocket both call.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use piton_api::problem::Problem as Document;
use piton_api::session::{
    AbandonRequest, AgentRequest, CloseRequest, ContextChoice, DeleteQuery, NewSession,
    RenameRequest, ResumeRequest, RunRequest, SessionCreated, SessionDeleted, SessionPage,
    SessionQuery, SessionRun, StartRequest,
};
use piton_api::{SessionStatus, WireEnum};
use piton_core::Code;
use piton_core::event::Outcome;
use piton_core::id::{RunId, SessionId};
use piton_core::resume::StartContext;
use piton_core::status::Name;
use piton_runtime::{
    AffectedRun, Caller, Fulfilled, OpenedSession, ResumeSpec, SessionFilter, SessionSpec,
};
use piton_store::{Cursor, CursorError};

use super::{Reply, status, worktrees};
use crate::app::App;
use crate::extract::{Administrator, Body, Controller, OptionalBody, Params, Path, Reader};
use crate::problem::{Problem, Result};

/// The run that a request names.
fn named_run(request: &RunRequest) -> Result<Option<RunId>> {
    Ok(request.run_id.as_deref().map(str::parse).transpose()?)
}

/// Create a session, in a task or alone, and start its agent.
#[utoipa::path(post, path = "/sessions", operation_id = "create_session", tag = "sessions", request_body = NewSession,
    params(("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 201, body = SessionCreated),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn create(
    State(app): State<App>,
    Controller(caller): Controller,
    Body(new): Body<NewSession>,
) -> Result<Reply<SessionCreated>> {
    Ok(Reply::created(create_now(&app, &caller, new).await?))
}

pub(crate) async fn create_now(
    app: &App,
    caller: &Caller,
    new: NewSession,
) -> Result<Fulfilled<SessionCreated>> {
    let spec = SessionSpec {
        title: new.title,
        task_id: new.task_id.as_deref().map(str::parse).transpose()?,
        agent_profile_id: new.agent_profile_id,
        working_dir: new.working_dir,
        repo: new.repo.map(Into::into),
        base: new.base,
        start: new.start.unwrap_or(true),
        choice: new.agent.map(Into::into).unwrap_or_default(),
        mcp_servers: new.mcp_servers.into_iter().map(Into::into).collect(),
    };
    let created = app.engine().create(caller, spec).await?;
    Ok(created.map(|created| {
        SessionCreated::new(created.session_id, created.agent_profile_id, created.notice)
    }))
}

/// List sessions, last active first.
#[utoipa::path(get, path = "/sessions", operation_id = "list_sessions", tag = "sessions", params(SessionQuery),
    responses((status = 200, body = SessionPage),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(app): State<App>,
    _reader: Reader,
    Params(query): Params<SessionQuery>,
) -> Result<Json<SessionPage>> {
    Ok(Json(list_now(&app, &query).await?))
}

pub(crate) async fn list_now(app: &App, query: &SessionQuery) -> Result<SessionPage> {
    let filter = SessionFilter {
        task_id: query.task_id.as_deref().map(str::parse).transpose()?,
        status: query.status.as_deref().map(named).transpose()?,
        after: query.after.as_deref().map(cursor).transpose()?,
        limit: query.limit,
    };
    let (listed, next) = app.engine().sessions(filter).await?;
    let next = next.as_ref().map(Cursor::to_string);
    Ok(SessionPage { sessions: listed.iter().map(status::summary).collect(), next })
}

fn named(text: &str) -> Result<Name> {
    let found = Name::ALL.iter().copied().find(|name| name.as_str() == text);
    found.ok_or_else(|| Problem::malformed(format!("There is no status {text:?}")))
}

fn cursor(text: &str) -> Result<Cursor> {
    text.parse().map_err(|error: CursorError| Problem::new(Code::CursorInvalid, error.to_string()))
}

/// Get the status of a session.
#[utoipa::path(get, path = "/sessions/{session_id}", operation_id = "show_session", tag = "sessions",
    params(("session_id" = String, Path, description = "The session's id")),
    responses((status = 200, body = SessionStatus),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn show(
    State(app): State<App>,
    _reader: Reader,
    Path(session): Path<String>,
) -> Result<Json<SessionStatus>> {
    Ok(Json(status::of(&app, &SessionId::from_user(&session)?).await?))
}

/// Get the status of a session; the same as `GET /sessions/{session_id}`.
#[utoipa::path(get, path = "/sessions/{session_id}/status", tag = "sessions",
    params(("session_id" = String, Path, description = "The session's id")),
    responses((status = 200, body = SessionStatus),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn show_status(
    State(app): State<App>,
    _reader: Reader,
    Path(session): Path<String>,
) -> Result<Json<SessionStatus>> {
    Ok(Json(status::of(&app, &SessionId::from_user(&session)?).await?))
}

/// What a request was about, spelled.
pub(crate) fn about(changed: Fulfilled<AffectedRun>) -> Fulfilled<SessionRun> {
    changed.map(|AffectedRun { session_id, run_id, pending }| SessionRun {
        session_id,
        run_id: run_id.as_ref().map(ToString::to_string),
        pending,
    })
}

/// Whether a session belongs to the task that a request names.
pub(crate) async fn check_task(app: &App, session: &SessionId, task: &str) -> Result<()> {
    Ok(app.engine().check_task(session, &task.parse()?).await?)
}

/// 200 when it is known that the agent runs, 202 while it still starts.
fn started(done: Fulfilled<SessionRun>) -> Reply<SessionRun> {
    if done.response.pending { Reply::accepted(done) } else { Reply::ok(done) }
}

fn context(choice: Option<ContextChoice>) -> StartContext {
    match choice {
        None | Some(ContextChoice::Native) => StartContext::Native,
        Some(ContextChoice::Injected) => StartContext::Injected,
        Some(ContextChoice::None) => StartContext::None,
    }
}

/// Resume a session: start its agent if it does not run, and continue a paused run. An interrupted
/// run is continued if the request or the setting asks for it. Responds when the start has
/// succeeded or failed.
#[utoipa::path(post, path = "/sessions/{session_id}/resume", tag = "sessions", request_body = Option<ResumeRequest>,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 200, body = SessionRun), (status = 202, body = SessionRun, description = "The agent still starts"),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn resume(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    OptionalBody(how): OptionalBody<ResumeRequest>,
) -> Result<Reply<SessionRun>> {
    Ok(started(resume_now(&app, &caller, &session, &how).await?))
}

pub(crate) async fn resume_now(
    app: &App,
    caller: &Caller,
    session: &str,
    how: &ResumeRequest,
) -> Result<Fulfilled<SessionRun>> {
    let session = SessionId::from_user(session)?;
    let how = ResumeSpec { continue_run: how.continue_run, context: context(how.context) };
    Ok(about(app.engine().resume(caller, &session, how).await?))
}

/// Start the session's agent if it does not run; an interrupted run stays interrupted.
#[utoipa::path(post, path = "/sessions/{session_id}/start", tag = "sessions", request_body = Option<StartRequest>,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 200, body = SessionRun), (status = 202, body = SessionRun, description = "The agent still starts"),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn start(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    OptionalBody(how): OptionalBody<StartRequest>,
) -> Result<Reply<SessionRun>> {
    Ok(started(start_now(&app, &caller, &session, &how).await?))
}

pub(crate) async fn start_now(
    app: &App,
    caller: &Caller,
    session: &str,
    how: &StartRequest,
) -> Result<Fulfilled<SessionRun>> {
    let session = SessionId::from_user(session)?;
    let context = match how.context {
        None if how.fresh => StartContext::Fresh,
        choice => context(choice),
    };
    Ok(about(app.engine().start_agent(caller, &session, context).await?))
}

/// Open a session: start its agent and continue an interrupted run, if the settings say so.
/// Responds with the status after that, or 202 while the agent still starts. An agent that cannot
/// be started is an error.
#[utoipa::path(post, path = "/sessions/{session_id}/open", tag = "sessions",
    params(("session_id" = String, Path, description = "The session's id")),
    responses((status = 200, body = SessionStatus), (status = 202, body = SessionStatus),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn open(
    State(app): State<App>,
    _controller: Controller,
    Path(session): Path<String>,
) -> Result<Reply<SessionStatus>> {
    let response = open_now(&app, &session).await?;
    let opened = Fulfilled { response, replayed: false };
    Ok(if opened.response.pending { Reply::accepted(opened) } else { Reply::ok(opened) })
}

pub(crate) async fn open_now(app: &App, session: &str) -> Result<SessionStatus> {
    let session = SessionId::from_user(session)?;
    let OpenedSession { report, pending } = app.engine().open(&session).await?;
    Ok(SessionStatus { pending, ..status::spelled(&report) })
}

/// Pause a run: stop its turn until the run is resumed.
#[utoipa::path(post, path = "/sessions/{session_id}/pause", tag = "sessions", request_body = Option<RunRequest>,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 200, body = SessionRun),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn pause(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    OptionalBody(of): OptionalBody<RunRequest>,
) -> Result<Reply<SessionRun>> {
    Ok(Reply::ok(pause_now(&app, &caller, &session, &of).await?))
}

pub(crate) async fn pause_now(
    app: &App,
    caller: &Caller,
    session: &str,
    of: &RunRequest,
) -> Result<Fulfilled<SessionRun>> {
    let session = SessionId::from_user(session)?;
    Ok(about(app.engine().pause(caller, &session, named_run(of)?).await?))
}

/// Cancel a session's run.
#[utoipa::path(post, path = "/sessions/{session_id}/cancel", tag = "sessions", request_body = Option<RunRequest>,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 200, body = SessionRun),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn cancel(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    OptionalBody(of): OptionalBody<RunRequest>,
) -> Result<Reply<SessionRun>> {
    Ok(Reply::ok(cancel_now(&app, &caller, &session, &of).await?))
}

pub(crate) async fn cancel_now(
    app: &App,
    caller: &Caller,
    session: &str,
    of: &RunRequest,
) -> Result<Fulfilled<SessionRun>> {
    let session = SessionId::from_user(session)?;
    Ok(about(app.engine().cancel(caller, &session, named_run(of)?).await?))
}

/// Mark an interrupted run as handled, without resuming it.
#[utoipa::path(post, path = "/sessions/{session_id}/dismiss", tag = "sessions", request_body = Option<RunRequest>,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 200, body = SessionRun),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn dismiss(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    OptionalBody(of): OptionalBody<RunRequest>,
) -> Result<Reply<SessionRun>> {
    Ok(Reply::ok(dismiss_now(&app, &caller, &session, &of).await?))
}

pub(crate) async fn dismiss_now(
    app: &App,
    caller: &Caller,
    session: &str,
    of: &RunRequest,
) -> Result<Fulfilled<SessionRun>> {
    let session = SessionId::from_user(session)?;
    Ok(about(app.engine().dismiss(caller, &session, named_run(of)?).await?))
}

/// Stop the session's agent. The session stays, and its next prompt starts the agent again. Refused
/// while a run is open.
#[utoipa::path(post, path = "/sessions/{session_id}/stop", operation_id = "stop_agent", tag = "sessions",
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 200, body = SessionRun),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn stop(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
) -> Result<Reply<SessionRun>> {
    Ok(Reply::ok(stop_now(&app, &caller, &session).await?))
}

pub(crate) async fn stop_now(
    app: &App,
    caller: &Caller,
    session: &str,
) -> Result<Fulfilled<SessionRun>> {
    let session = SessionId::from_user(session)?;
    Ok(about(app.engine().stop_agent(caller, &session).await?))
}

/// Abandon an executor that does not respond: interrupt its run, so that another agent can be
/// started. If the executor returns, its agent is ended.
#[utoipa::path(post, path = "/sessions/{session_id}/abandon", operation_id = "abandon_executor", tag = "sessions", request_body = Option<AbandonRequest>,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 200, body = SessionRun),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn abandon(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    OptionalBody(which): OptionalBody<AbandonRequest>,
) -> Result<Reply<SessionRun>> {
    Ok(Reply::ok(abandon_now(&app, &caller, &session, &which).await?))
}

pub(crate) async fn abandon_now(
    app: &App,
    caller: &Caller,
    session: &str,
    which: &AbandonRequest,
) -> Result<Fulfilled<SessionRun>> {
    let session = SessionId::from_user(session)?;
    let execution = which.agent_execution_id.as_deref().map(str::parse).transpose()?;
    Ok(about(app.engine().abandon(caller, &session, execution).await?))
}

/// Close a session: it can be read, but not resumed.
#[utoipa::path(post, path = "/sessions/{session_id}/close", tag = "sessions", request_body = Option<CloseRequest>,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 200, body = SessionRun),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn close(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    OptionalBody(closing): OptionalBody<CloseRequest>,
) -> Result<Reply<SessionRun>> {
    Ok(Reply::ok(close_now(&app, &caller, &session, closing).await?))
}

pub(crate) async fn close_now(
    app: &App,
    caller: &Caller,
    session: &str,
    closing: CloseRequest,
) -> Result<Fulfilled<SessionRun>> {
    let session = SessionId::from_user(session)?;
    let outcome = match &closing.outcome {
        None => Outcome::Completed,
        Some(WireEnum::Known(outcome)) => *outcome,
        Some(WireEnum::Other(_)) => {
            return Err(Problem::malformed("outcome is completed, failed or cancelled"));
        }
    };
    Ok(about(app.engine().close(caller, &session, outcome).await?))
}

/// Rename a session, also a closed one.
#[utoipa::path(patch, path = "/sessions/{session_id}", operation_id = "rename_session", tag = "sessions", request_body = RenameRequest,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 200, body = SessionRun),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn rename(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    Body(rename): Body<RenameRequest>,
) -> Result<Reply<SessionRun>> {
    Ok(Reply::ok(rename_now(&app, &caller, &session, rename).await?))
}

pub(crate) async fn rename_now(
    app: &App,
    caller: &Caller,
    session: &str,
    rename: RenameRequest,
) -> Result<Fulfilled<SessionRun>> {
    let session = SessionId::from_user(session)?;
    Ok(about(app.engine().rename(caller, &session, rename.title).await?))
}

/// Assign an agent to a session whose log, written by another program, names none.
#[utoipa::path(put, path = "/sessions/{session_id}/agent", operation_id = "assign_agent", tag = "sessions", request_body = AgentRequest,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 200, body = SessionRun),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn assign_agent(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    Body(agent): Body<AgentRequest>,
) -> Result<Reply<SessionRun>> {
    let session = SessionId::from_user(&session)?;
    let assigned = app.engine().assign_agent(&caller, &session, agent.agent_profile_id).await?;
    Ok(Reply::ok(about(assigned)))
}

/// Delete a session's log. Refused while something runs in the session, unless forced.
#[utoipa::path(delete, path = "/sessions/{session_id}", tag = "sessions",
    params(("session_id" = String, Path, description = "The session's id"), DeleteQuery),
    responses((status = 204), (status = 200, body = SessionDeleted, description = "It had a worktree"),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn delete(
    State(app): State<App>,
    Administrator(caller): Administrator,
    Path(session): Path<String>,
    Params(deleting): Params<DeleteQuery>,
) -> Result<Response> {
    let session = SessionId::from_user(&session)?;
    let forced = deleting.force.unwrap_or(false);
    let deleted = app.engine().delete(&caller, &session, forced, deleting.reason).await?;
    match deleted.worktree {
        Some(left) => Ok(Json(worktrees::left(&session, left)).into_response()),
        None => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}
