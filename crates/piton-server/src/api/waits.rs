//! Questions that runs wait on, and the tokens with which strangers answer them.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use piton_api::problem::Problem as Document;
use piton_api::status::Wait;
use piton_api::wait::{
    AnswerAccepted, AnswerRequest, Empty, NewResumeToken, ResumeTokenCreated, TokenAnswerRequest,
    WaitList,
};
use piton_core::decide::Refusal;
use piton_core::id::SessionId;
use piton_core::token::ResumeToken;
use piton_runtime::{Caller, Fulfilled, IssuedResumeToken, OpenWaits};

use super::Reply;
use crate::app::App;
use crate::extract::{Body, Controller, OptionalBody, Path, Reader, WithoutToken};
use crate::problem::Result;

/// Whether a wait's session belongs to the task that a request names.
pub(crate) async fn check_task(app: &App, wait: &str, task: &str) -> Result<()> {
    let session = app.engine().session_of_wait(&wait.parse()?).await?;
    Ok(app.engine().check_task(&session, &task.parse()?).await?)
}

/// List the open waits of all sessions.
#[utoipa::path(get, path = "/waits", operation_id = "list_waits", tag = "waits",
    responses((status = 200, body = WaitList),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn list(State(app): State<App>, _reader: Reader) -> Result<Json<WaitList>> {
    let OpenWaits { waits, truncated } = app.engine().waits().await?;
    let waits = waits.iter().map(|(session, open)| Wait::new(session, open)).collect();
    Ok(Json(WaitList { waits, truncated }))
}

/// Get one open wait with its whole question.
#[utoipa::path(get, path = "/waits/{wait_id}", operation_id = "get_wait", tag = "waits",
    params(("wait_id" = String, Path, description = "The wait's id")),
    responses((status = 200, body = Wait),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn get(
    State(app): State<App>,
    _reader: Reader,
    Path(wait): Path<String>,
) -> Result<Json<Wait>> {
    let (session, open) = app.engine().wait(&wait.parse()?).await?;
    Ok(Json(Wait::new(&session, &open)))
}

/// Answer a wait. Requires the scope `control`.
#[utoipa::path(post, path = "/waits/{wait_id}/answer", tag = "waits", request_body = AnswerRequest,
    params(("wait_id" = String, Path, description = "The wait's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 200, body = AnswerAccepted),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn answer(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(wait): Path<String>,
    Body(answering): Body<AnswerRequest>,
) -> Result<Reply<AnswerAccepted>> {
    Ok(Reply::ok(answer_now(&app, &caller, &wait, answering).await?))
}

/// What HTTP and the WebSocket both call.
pub(crate) async fn answer_now(
    app: &App,
    caller: &Caller,
    wait: &str,
    answering: AnswerRequest,
) -> Result<Fulfilled<AnswerAccepted>> {
    let AnswerRequest { answer, message } = answering;
    let answered =
        app.engine().answer_with_message(caller, &wait.parse()?, answer, message).await?;
    let replayed = answered.replayed;
    Ok(answered.map(|answered| AnswerAccepted { session_id: answered.session_id, replayed }))
}

/// Create a new resume token for a wait, valid while the wait is open, and revoke the old one.
#[utoipa::path(post, path = "/waits/{wait_id}/token", tag = "waits",
    params(("wait_id" = String, Path, description = "The wait's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request creates nothing and does not return the secret again")),
    responses((status = 201, body = ResumeTokenCreated),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn rotate(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(wait): Path<String>,
    OptionalBody(Empty {}): OptionalBody<Empty>,
) -> Result<Reply<ResumeTokenCreated>> {
    let issued = app.engine().rotate_resume_token(&caller, &wait.parse()?).await?;
    Ok(Reply::created(issued.map(shown)))
}

fn shown(issued: IssuedResumeToken) -> ResumeTokenCreated {
    let IssuedResumeToken { session_id, token_id, token } = issued;
    ResumeTokenCreated { session_id, token_id: token_id.to_string(), token }
}

/// Create a resume token for the interrupted run.
#[utoipa::path(post, path = "/sessions/{session_id}/token", tag = "waits", request_body = Option<NewResumeToken>,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request creates nothing and does not return the secret again")),
    responses((status = 201, body = ResumeTokenCreated),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn mint(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    OptionalBody(minting): OptionalBody<NewResumeToken>,
) -> Result<Reply<ResumeTokenCreated>> {
    let session = SessionId::from_user(&session)?;
    let valid_for = minting.valid_for_s.map(Duration::from_secs);
    let issued = app.engine().create_resume_token(&caller, &session, valid_for).await?;
    Ok(Reply::created(issued.map(shown)))
}

/// Answer a wait with its resume token; for parties without an access token.
#[utoipa::path(post, path = "/resume-tokens/{token_id}", tag = "waits", request_body = TokenAnswerRequest, security(()),
    params(("token_id" = String, Path, description = "The token's public id")),
    responses((status = 200, body = AnswerAccepted),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn answer_with_token(
    State(app): State<App>,
    _admitted: WithoutToken,
    Path(token_id): Path<String>,
    Body(presented): Body<TokenAnswerRequest>,
) -> Result<Json<AnswerAccepted>> {
    let token: ResumeToken = presented.token.parse().map_err(|_| Refusal::ResumeTokenNotFound)?;
    if token.id.as_str() != token_id {
        return Err(Refusal::ResumeTokenMismatch.into());
    }
    let within = presented.session_id.as_deref().map(str::parse).transpose()?;
    let answered = app.engine().answer_with_token(within.as_ref(), token, presented.answer).await?;
    let (session_id, replayed) = (answered.session, answered.replayed);
    Ok(Json(AnswerAccepted { session_id, replayed }))
}
