//! Sessions: made, listed, prompted, paused, resumed, ended. Each `…_now` is what HTTP and the
//! WebSocket both call.

use std::path::Path as FilePath;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use piton_api::problem::Problem as Document;
use piton_api::session::{
    CloseRequest, DeleteQuery, NewSession, PromptAccepted, PromptRequest, RunRequest,
    SessionCreated, SessionDeleted, SessionPage, SessionQuery, SessionRun, StartRequest,
};
use piton_api::{SessionStatus, WireEnum};
use piton_core::Code;
use piton_core::decide::{Command, Create, Message, Refusal};
use piton_core::event::Outcome;
use piton_core::id::{RunId, SessionId, TaskId};
use piton_core::reason::Reason;
use piton_core::resume::{AgentRestart, StartTrigger, goes_on_with, is_running};
use piton_core::status::Name;
use piton_store::Cursor;
use serde_json::json;

use super::starting::AGENT_DEFAULT;
use super::{Reply, status, tasks, worktrees};
use crate::app::{App, Asked, Fulfilled, to_value};
use crate::extract::{Administrator, Asker, Body, Controller, Params, Path, Perhaps, Reader};
use crate::problem::{Problem, Result};

const TITLE_BYTES_MAX: usize = 1_024;
const REASON_BYTES_MAX: usize = 1_024;
const PAGE_MAX: usize = 200;

/// The run that a request names.
fn named_run(request: &RunRequest) -> Result<Option<RunId>> {
    Ok(request.run_id.as_deref().map(str::parse).transpose()?)
}

/// Makes a session, in a task or alone, and starts its agent.
#[utoipa::path(post, path = "/sessions", operation_id = "create_session", tag = "sessions", request_body = NewSession,
    params(("Idempotency-Key" = Option<String>, Header, description = "Asked again under the same key, it is made once")),
    responses((status = 201, body = SessionCreated),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn create(
    State(app): State<App>,
    Controller(asker): Controller,
    Body(new): Body<NewSession>,
) -> Result<Reply<SessionCreated>> {
    Ok(Reply::created(create_now(&app, &asker, new).await?))
}

pub(crate) async fn create_now(
    app: &App,
    asker: &Asker,
    new: NewSession,
) -> Result<Fulfilled<SessionCreated>> {
    let body = to_value(&new)?;
    if new.title.as_ref().is_some_and(|title| title.len() > TITLE_BYTES_MAX) {
        return Err(Problem::malformed(format!("A title has at most {TITLE_BYTES_MAX} bytes")));
    }
    let task_id = new.task_id.as_deref().map(str::parse).transpose()?;
    if let Some(task_id) = &task_id {
        tasks::find(app, task_id)?;
    }
    if let Some(agent) = &new.agent_profile_id {
        app.agent(agent)?;
    }
    if let Some(folder) = &new.working_dir {
        check_folder(folder).await?;
    }
    // Under a key the id follows from it: a repetition finds the session that the first one made.
    let session_id: SessionId = match asker.seed() {
        Some(seed) => format!("sess_{}", hex(&seed)).parse()?,
        None => app.handle().ids().session()?,
    };
    let plan = worktrees::plan(app, &session_id, &new).await?;
    let request = Asked { asker, action: "sessions.create", body };
    let made = SessionCreated { session_id: session_id.clone() };
    let create = Create {
        session_id: session_id.clone(),
        title: new.title,
        task_id,
        working_dir: new.working_dir,
        provider: None,
        // Named, since another may be the usual one tomorrow.
        agent_profile_id: Some(new.agent_profile_id.unwrap_or_else(|| AGENT_DEFAULT.to_owned())),
    };
    let command = match plan {
        Some(plan) => Command::CreateInWorktree(create, Box::new(plan)),
        None => Command::Create(create),
    };
    let made = app.execute(&session_id, &request, made, command).await?;
    if new.repo.is_some() {
        worktrees::prepare(app, &session_id).await?;
    }
    if new.start.unwrap_or(true) && !made.replayed {
        app.resumer().ensure_later(&session_id, StartTrigger::Created);
    }
    Ok(made)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

async fn check_folder(folder: &str) -> Result<()> {
    let path = FilePath::new(folder).to_owned();
    if !path.is_absolute() || folder.contains('\0') {
        return Err(Problem::malformed("working_dir is an absolute path"));
    }
    let is_dir = tokio::task::spawn_blocking(move || path.is_dir()).await;
    if !is_dir.unwrap_or(false) {
        return Err(Problem::malformed("working_dir is not a folder"));
    }
    Ok(())
}

/// A page of sessions, last active first.
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
    let limit = query.limit.unwrap_or(50);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(Problem::malformed(format!("limit is 1 to {PAGE_MAX}")));
    }
    let task_id = query.task_id.as_deref().map(str::parse).transpose()?;
    let named = query.status.as_deref().map(named).transpose()?;
    let after = query.after.as_deref().map(cursor).transpose()?;
    let (listed, next) = app.handle().list(task_id, named, after, limit).await?;
    let next = next.map(|next| format!("{}.{}", next.millis, next.session));
    Ok(SessionPage { sessions: listed.iter().map(status::summary).collect(), next })
}

fn named(text: &str) -> Result<Name> {
    let found = Name::ALL.iter().copied().find(|name| name.as_str() == text);
    found.ok_or_else(|| Problem::malformed(format!("There is no status {text:?}")))
}

fn cursor(text: &str) -> Result<Cursor> {
    let parse = || {
        let (millis, session) = text.split_once('.')?;
        Some(Cursor { millis: millis.parse().ok()?, session: session.parse().ok()? })
    };
    parse().ok_or_else(|| Problem::new(Code::CursorInvalid, "This is no place in the list"))
}

/// Where a session stands.
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

/// Where a session stands; S2's name for it.
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

/// Says something to a session's agent: a new run begins.
#[utoipa::path(post, path = "/sessions/{session_id}/messages", tag = "sessions", request_body = PromptRequest,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Asked again under the same key, it is said once")),
    responses((status = 202, body = PromptAccepted),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn prompt(
    State(app): State<App>,
    Controller(asker): Controller,
    Path(session): Path<String>,
    Body(prompt): Body<PromptRequest>,
) -> Result<Reply<PromptAccepted>> {
    Ok(Reply::accepted(prompt_now(&app, &asker, &session, prompt).await?))
}

pub(crate) async fn prompt_now(
    app: &App,
    asker: &Asker,
    session: &str,
    prompt: PromptRequest,
) -> Result<Fulfilled<PromptAccepted>> {
    let session = SessionId::from_user(session)?;
    if prompt.content.is_empty() {
        return Err(Problem::malformed("content is empty"));
    }
    let request = Asked { asker, action: "sessions.prompt", body: to_value(&prompt)? };
    let state = app.handle().state(&session).await?;
    let repeats = state.requests.find(&request.request(None), app.handle().view().now())?.is_some();
    let is_manual = app.resumer().policy().agent_restart == AgentRestart::Manual;
    if !repeats && is_manual && state.facts.closed.is_none() && !is_running(&state.facts) {
        let title = "The session's agent does not run";
        return Err(Problem::new(Code::AgentNotRunning, title));
    }
    let (run_id, message_id) = (app.handle().ids().run()?, app.handle().ids().message()?);
    let prompted =
        PromptAccepted { run_id: run_id.to_string(), message_id: message_id.to_string() };
    let message = Some(Message { message_id, content: prompt.content });
    let command = Command::Start { run_id, message };
    app.execute(&session, &request, prompted, command).await
}

/// Whether a session belongs to the task that a request names.
pub(crate) async fn check_task(app: &App, session: &SessionId, task: &str) -> Result<()> {
    let task: TaskId = task.parse()?;
    let info = app.handle().state(session).await?.info;
    if info.and_then(|info| info.task_id) == Some(task) {
        return Ok(());
    }
    Err(piton_store::Error::SessionNotFound { session: session.clone() }.into())
}

/// The run that is meant when nobody names one.
async fn current_run(app: &App, session: &SessionId) -> Result<RunId> {
    let run = app.handle().state(session).await?.facts.run;
    Ok(run.map(|run| run.run_id).ok_or(Refusal::NeverRun)?)
}

async fn of_run(
    app: &App,
    asker: &Asker,
    session: &str,
    action: &'static str,
    command: impl FnOnce(RunId) -> Command,
) -> Result<Fulfilled<SessionRun>> {
    let session = SessionId::from_user(session)?;
    let run_id = current_run(app, &session).await?;
    let request = Asked { asker, action, body: json!(null) };
    let done = SessionRun { session_id: session.clone(), run_id: Some(run_id.to_string()) };
    app.execute(&session, &request, done, command(run_id)).await
}

/// Goes on with a paused or interrupted run, and starts the agent if it does not run.
#[utoipa::path(post, path = "/sessions/{session_id}/resume", tag = "sessions",
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Asked again under the same key, it is done once")),
    responses((status = 200, body = SessionRun),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn resume(
    State(app): State<App>,
    Controller(asker): Controller,
    Path(session): Path<String>,
) -> Result<Reply<SessionRun>> {
    Ok(Reply::ok(resume_now(&app, &asker, &session).await?))
}

pub(crate) async fn resume_now(
    app: &App,
    asker: &Asker,
    session: &str,
) -> Result<Fulfilled<SessionRun>> {
    let id = SessionId::from_user(session)?;
    let state = app.handle().state(&id).await?;
    if state.facts.closed.is_some() {
        return Err(Refusal::SessionClosed.into());
    }
    let request = Asked { asker, action: "sessions.resume", body: json!(null) }.request(None);
    if let Some(seq) = state.requests.find(&request, app.handle().view().now())? {
        // SessionRun before: what happened since is nobody's wish.
        return app.repeated(&id, seq).await;
    }
    app.resumer().ensure(&id, StartTrigger::Manual).await?;
    let turn = app.resumer().policy().continue_run;
    if goes_on_with(&state.facts, turn, StartTrigger::Manual).is_none() {
        let response = SessionRun { session_id: id.clone(), run_id: None };
        let request = Asked { asker, action: "sessions.resume", body: json!(null) };
        return app.execute(&id, &request, response, Command::Nothing).await;
    }
    of_run(app, asker, session, "sessions.resume", |run_id| Command::Resume { run_id }).await
}

/// Starts the session's agent if it does not run; what was interrupted stays so.
#[utoipa::path(post, path = "/sessions/{session_id}/start", tag = "sessions", request_body = Option<StartRequest>,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Asked again under the same key, it is done once")),
    responses((status = 200, body = SessionRun),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn start(
    State(app): State<App>,
    Controller(asker): Controller,
    Path(session): Path<String>,
    Perhaps(how): Perhaps<StartRequest>,
) -> Result<Reply<SessionRun>> {
    Ok(Reply::ok(start_now(&app, &asker, &session, &how).await?))
}

pub(crate) async fn start_now(
    app: &App,
    asker: &Asker,
    session: &str,
    how: &StartRequest,
) -> Result<Fulfilled<SessionRun>> {
    let session = SessionId::from_user(session)?;
    let state = app.handle().state(&session).await?;
    if state.facts.closed.is_some() {
        return Err(Refusal::SessionClosed.into());
    }
    let request = Asked { asker, action: "sessions.start", body: to_value(how)? };
    let found = state.requests.find(&request.request(None), app.handle().view().now())?;
    if let Some(seq) = found {
        return app.repeated(&session, seq).await;
    }
    if how.fresh {
        app.resumer().ensure_afresh(&session).await?;
    } else {
        app.resumer().ensure(&session, StartTrigger::Manual).await?;
    }
    let response = SessionRun { session_id: session.clone(), run_id: None };
    app.execute(&session, &request, response, Command::Nothing).await
}

/// Somebody looks at the session: its agent is started, and an interrupted turn goes on, if the
/// settings want that. Says where the session stands then.
#[utoipa::path(post, path = "/sessions/{session_id}/open", tag = "sessions",
    params(("session_id" = String, Path, description = "The session's id")),
    responses((status = 200, body = SessionStatus),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn open(
    State(app): State<App>,
    _controller: Controller,
    Path(session): Path<String>,
) -> Result<Json<SessionStatus>> {
    Ok(Json(open_now(&app, &session).await?))
}

pub(crate) async fn open_now(app: &App, session: &str) -> Result<SessionStatus> {
    let session = SessionId::from_user(session)?;
    let state = app.handle().state(&session).await?;
    // Looking at what is over is no wrong.
    if state.facts.closed.is_none() {
        match app.resumer().ensure(&session, StartTrigger::Open).await {
            // The log says why there is no agent, and so does the status.
            Err(piton_runtime::Error::Obstacle(_)) => {}
            ensured => {
                ensured?;
            }
        }
    }
    status::of(app, &session).await
}

/// Stops the run's turn; it goes on when it is resumed.
#[utoipa::path(post, path = "/sessions/{session_id}/pause", tag = "sessions", request_body = Option<RunRequest>,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Asked again under the same key, it is done once")),
    responses((status = 200, body = SessionRun),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn pause(
    State(app): State<App>,
    Controller(asker): Controller,
    Path(session): Path<String>,
    Perhaps(of): Perhaps<RunRequest>,
) -> Result<Reply<SessionRun>> {
    Ok(Reply::ok(pause_now(&app, &asker, &session, &of).await?))
}

pub(crate) async fn pause_now(
    app: &App,
    asker: &Asker,
    session: &str,
    of: &RunRequest,
) -> Result<Fulfilled<SessionRun>> {
    let named = named_run(of)?;
    let command = |run_id| Command::Pause { run_id: named.unwrap_or(run_id) };
    of_run(app, asker, session, "sessions.pause", command).await
}

/// Ends the run.
#[utoipa::path(post, path = "/sessions/{session_id}/cancel", tag = "sessions", request_body = Option<RunRequest>,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Asked again under the same key, it is done once")),
    responses((status = 200, body = SessionRun),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn cancel(
    State(app): State<App>,
    Controller(asker): Controller,
    Path(session): Path<String>,
    Perhaps(of): Perhaps<RunRequest>,
) -> Result<Reply<SessionRun>> {
    Ok(Reply::ok(cancel_now(&app, &asker, &session, &of).await?))
}

pub(crate) async fn cancel_now(
    app: &App,
    asker: &Asker,
    session: &str,
    of: &RunRequest,
) -> Result<Fulfilled<SessionRun>> {
    let named = named_run(of)?;
    let command = |run_id| {
        let run_id = named.unwrap_or(run_id);
        Command::Cancel { run_id, reason: Reason::UserRequest }
    };
    of_run(app, asker, session, "sessions.cancel", command).await
}

/// Leaves an interrupted run as it is.
#[utoipa::path(post, path = "/sessions/{session_id}/dismiss", tag = "sessions", request_body = Option<RunRequest>,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Asked again under the same key, it is done once")),
    responses((status = 200, body = SessionRun),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn dismiss(
    State(app): State<App>,
    Controller(asker): Controller,
    Path(session): Path<String>,
    Perhaps(of): Perhaps<RunRequest>,
) -> Result<Reply<SessionRun>> {
    Ok(Reply::ok(dismiss_now(&app, &asker, &session, &of).await?))
}

pub(crate) async fn dismiss_now(
    app: &App,
    asker: &Asker,
    session: &str,
    of: &RunRequest,
) -> Result<Fulfilled<SessionRun>> {
    let named = named_run(of)?;
    let command = |run_id| Command::Dismiss { run_id: named.unwrap_or(run_id) };
    of_run(app, asker, session, "sessions.dismiss", command).await
}

/// Closes a session: it can be read, and not be gone on with.
#[utoipa::path(post, path = "/sessions/{session_id}/close", tag = "sessions", request_body = Option<CloseRequest>,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Asked again under the same key, it is done once")),
    responses((status = 200, body = SessionRun),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn close(
    State(app): State<App>,
    Controller(asker): Controller,
    Path(session): Path<String>,
    Perhaps(closing): Perhaps<CloseRequest>,
) -> Result<Reply<SessionRun>> {
    Ok(Reply::ok(close_now(&app, &asker, &session, closing).await?))
}

pub(crate) async fn close_now(
    app: &App,
    asker: &Asker,
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
    let request = Asked { asker, action: "sessions.close", body: to_value(&closing)? };
    let done = SessionRun { session_id: session.clone(), run_id: None };
    app.execute(&session, &request, done, Command::Close { outcome }).await
}

/// Deletes a session's log. What is still at work in it keeps it, unless it is forced.
#[utoipa::path(delete, path = "/sessions/{session_id}", tag = "sessions",
    params(("session_id" = String, Path, description = "The session's id"), DeleteQuery),
    responses((status = 204), (status = 200, body = SessionDeleted, description = "It had a worktree"),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn delete(
    State(app): State<App>,
    Administrator(asker): Administrator,
    Path(session): Path<String>,
    Params(deleting): Params<DeleteQuery>,
) -> Result<Response> {
    let session: SessionId = SessionId::from_user(&session)?;
    let by = format!("by {}", asker.principal);
    let reason = match deleting.reason {
        Some(reason) if reason.len() > REASON_BYTES_MAX => {
            let most = format!("A reason has at most {REASON_BYTES_MAX} bytes");
            return Err(Problem::malformed(most));
        }
        Some(reason) => Some(format!("{reason} ({by})")),
        None => Some(by),
    };
    // Only its log knows of the worktree.
    let left = app.worktrees().leave(&session).await?;
    if deleting.force.unwrap_or(false) {
        app.handle().delete_forced(&session, reason).await?;
    } else {
        app.handle().delete(&session, reason).await?;
    }
    match left {
        Some(left) => Ok(worktrees::left(&app, &asker, &session, left).await?.into_response()),
        None => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}
