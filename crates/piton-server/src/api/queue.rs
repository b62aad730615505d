//! Prompts, and the queue that they wait in while a run is open. Each `…_now` is what HTTP and the
//! WebSocket both call.

use axum::Json;
use axum::extract::State;
use piton_api::WireEnum;
use piton_api::enums::IfBusy as WireIfBusy;
use piton_api::problem::Problem as Document;
use piton_api::queue::{
    PromptAccepted, PromptRequest, Queue, QueueChanged, QueueEdit, QueueRemoval, QueueRequest,
    QueuedPrompt,
};
use piton_core::decide::IfBusy;
use piton_core::id::{MessageId, SessionId};
use piton_runtime::{AffectedQueue, Caller, Fulfilled, QueueReport, QueuedPromptReport};

use super::Reply;
use crate::app::App;
use crate::extract::{Controller, LargeBody, Params, Path, Reader};
use crate::problem::{Problem, Result};

/// Prompt a session: start a run, or queue the prompt while a run is open.
#[utoipa::path(post, path = "/sessions/{session_id}/messages", tag = "sessions", request_body = PromptRequest,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 202, body = PromptAccepted),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn prompt(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    LargeBody(prompt): LargeBody<PromptRequest>,
) -> Result<Reply<PromptAccepted>> {
    Ok(Reply::accepted(prompt_now(&app, &caller, &session, prompt).await?))
}

pub(crate) async fn prompt_now(
    app: &App,
    caller: &Caller,
    session: &str,
    prompt: PromptRequest,
) -> Result<Fulfilled<PromptAccepted>> {
    let if_busy = match prompt.if_busy {
        None => IfBusy::Default,
        Some(WireEnum::Known(if_busy)) => if_busy,
        Some(other @ WireEnum::Other(_)) => {
            return Err(Problem::malformed(unknown_choice(&other)));
        }
    };
    let session = SessionId::from_user(session)?;
    let prompted = app.engine().prompt_if_busy(caller, &session, prompt.content, if_busy).await?;
    Ok(prompted.map(|prompted| PromptAccepted {
        run_id: prompted.run_id.to_string(),
        message_id: prompted.message_id.to_string(),
        pending: prompted.pending,
        queued: prompted.queued,
        position: prompted.position,
    }))
}

fn unknown_choice(if_busy: &WireIfBusy) -> String {
    format!("if_busy is queue, reject or supersede, not {if_busy}")
}

/// Queue a prompt while a run is open; otherwise start a run with it.
#[utoipa::path(post, path = "/sessions/{session_id}/queue", operation_id = "queue_prompt", tag = "queue", request_body = QueueRequest,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 202, body = PromptAccepted),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn add(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    LargeBody(prompt): LargeBody<QueueRequest>,
) -> Result<Reply<PromptAccepted>> {
    Ok(Reply::accepted(add_now(&app, &caller, &session, prompt).await?))
}

pub(crate) async fn add_now(
    app: &App,
    caller: &Caller,
    session: &str,
    prompt: QueueRequest,
) -> Result<Fulfilled<PromptAccepted>> {
    prompt_now(app, caller, session, PromptRequest::queued(prompt.content)).await
}

/// List the queued prompts of a session in delivery order.
#[utoipa::path(get, path = "/sessions/{session_id}/queue", operation_id = "list_queue", tag = "queue",
    params(("session_id" = String, Path, description = "The session's id")),
    responses((status = 200, body = Queue),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(app): State<App>,
    _reader: Reader,
    Path(session): Path<String>,
) -> Result<Json<Queue>> {
    Ok(Json(list_now(&app, &session).await?))
}

pub(crate) async fn list_now(app: &App, session: &str) -> Result<Queue> {
    Ok(list_of(app.engine().queue(&SessionId::from_user(session)?).await?))
}

pub(crate) fn list_of(report: QueueReport) -> Queue {
    let QueueReport { session_id, prompts, max } = report;
    let held = prompts.iter().any(|prompt| prompt.held);
    let prompts = prompts.into_iter().map(spelled).collect();
    Queue { session_id, prompts, held, max }
}

fn spelled(report: QueuedPromptReport) -> QueuedPrompt {
    QueuedPrompt {
        message_id: report.message_id.to_string(),
        run_id: report.run_id.to_string(),
        position: report.position,
        version: report.version,
        queued_at: report.queued_at,
        held: report.held,
        text: report.text,
        content: report.content,
    }
}

/// Get one queued prompt, with all of its content.
#[utoipa::path(get, path = "/sessions/{session_id}/queue/{message_id}", operation_id = "show_queued_prompt", tag = "queue",
    params(("session_id" = String, Path, description = "The session's id"),
        ("message_id" = String, Path, description = "The prompt's message id")),
    responses((status = 200, body = QueuedPrompt),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn show(
    State(app): State<App>,
    _reader: Reader,
    Path((session, message)): Path<(String, String)>,
) -> Result<Json<QueuedPrompt>> {
    let (session, message) = (SessionId::from_user(&session)?, message.parse::<MessageId>()?);
    Ok(Json(spelled(app.engine().queued_prompt(&session, &message).await?)))
}

/// Edit the text or the content of a queued prompt, or move it.
#[utoipa::path(patch, path = "/sessions/{session_id}/queue/{message_id}", operation_id = "edit_queued_prompt", tag = "queue", request_body = QueueEdit,
    params(("session_id" = String, Path, description = "The session's id"),
        ("message_id" = String, Path, description = "The prompt's message id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 200, body = QueueChanged),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn edit(
    State(app): State<App>,
    Controller(caller): Controller,
    Path((session, message)): Path<(String, String)>,
    LargeBody(edit): LargeBody<QueueEdit>,
) -> Result<Reply<QueueChanged>> {
    Ok(Reply::ok(edit_now(&app, &caller, &session, &message, edit).await?))
}

pub(crate) async fn edit_now(
    app: &App,
    caller: &Caller,
    session: &str,
    message: &str,
    edit: QueueEdit,
) -> Result<Fulfilled<QueueChanged>> {
    let (session, message) = (SessionId::from_user(session)?, message.parse::<MessageId>()?);
    let engine = app.engine();
    let changed = match edit {
        QueueEdit { text: Some(text), content: None, position: None, version } => {
            engine.edit_queued_text(caller, &session, message, version, text).await?
        }
        QueueEdit { text: None, content: Some(content), position: None, version } => {
            engine.edit_queued(caller, &session, message, version, content).await?
        }
        QueueEdit { text: None, content: None, position: Some(position), version: None } => {
            engine.move_queued(caller, &session, message, position).await?
        }
        _ => {
            let detail = "Give either text or content, with or without version, or position";
            return Err(Problem::malformed(detail));
        }
    };
    Ok(changed.map(changed_queue))
}

fn changed_queue(changed: AffectedQueue) -> QueueChanged {
    let message_id = changed.message_id.map(|message| message.to_string());
    QueueChanged { session_id: changed.session_id, message_id }
}

/// Remove a queued prompt: it is not delivered.
#[utoipa::path(delete, path = "/sessions/{session_id}/queue/{message_id}", operation_id = "remove_queued_prompt", tag = "queue",
    params(("session_id" = String, Path, description = "The session's id"),
        ("message_id" = String, Path, description = "The prompt's message id"), QueueRemoval,
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 200, body = QueueChanged),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn remove(
    State(app): State<App>,
    Controller(caller): Controller,
    Path((session, message)): Path<(String, String)>,
    Params(removal): Params<QueueRemoval>,
) -> Result<Reply<QueueChanged>> {
    Ok(Reply::ok(remove_now(&app, &caller, &session, &message, &removal).await?))
}

pub(crate) async fn remove_now(
    app: &App,
    caller: &Caller,
    session: &str,
    message: &str,
    removal: &QueueRemoval,
) -> Result<Fulfilled<QueueChanged>> {
    let (session, message) = (SessionId::from_user(session)?, message.parse::<MessageId>()?);
    let removed = app.engine().remove_queued(caller, &session, message, removal.version).await?;
    Ok(removed.map(changed_queue))
}

/// Release the prompts that an interruption, a failure or a cancellation held.
#[utoipa::path(post, path = "/sessions/{session_id}/queue/release", operation_id = "release_queue", tag = "queue",
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 200, body = QueueChanged),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn release(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
) -> Result<Reply<QueueChanged>> {
    Ok(Reply::ok(release_now(&app, &caller, &session).await?))
}

pub(crate) async fn release_now(
    app: &App,
    caller: &Caller,
    session: &str,
) -> Result<Fulfilled<QueueChanged>> {
    let released = app.engine().release_queue(caller, &SessionId::from_user(session)?).await?;
    Ok(released.map(changed_queue))
}
