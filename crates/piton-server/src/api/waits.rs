//! Questions that runs wait on, and the tokens with which strangers answer them.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use piton_api::problem::Problem as Document;
use piton_api::wait::{
    AnswerAccepted, AnswerRequest, Empty, NewResumeToken, ResumeTokenCreated, TokenAnswerRequest,
    WaitList,
};
use piton_core::decide::{Command, Refusal};
use piton_core::id::{SessionId, WaitId};
use piton_core::limits::REQUEST_KEPT_FOR;
use piton_core::token::{NewToken, ResumeToken};
use piton_core::{Seq, Timestamp};
use piton_store::{Cursor, Page, Query, Row, Select};
use serde_json::Value;

use super::{Reply, sessions, status};
use crate::app::{App, Asked, Fulfilled, to_value};
use crate::extract::{Asker, Body, Controller, Path, Perhaps, Reader, WithoutToken};
use crate::problem::Result;

/// Sessions that are looked at for open waits; those that are due first.
const SESSIONS_MAX: usize = 1_000;
/// Sessions that are looked at for a request whose wait is over.
const LOOKED_AT_MAX: usize = 256;

/// A page of the sessions that wait, those that are due first.
async fn waiting(app: &App, after: Option<Cursor>) -> Result<Page> {
    let select = Select::DueBy(Timestamp::from_millis(i64::MAX));
    let query = Query { task_id: None, select, after, limit: SESSIONS_MAX };
    Ok(app.handle().view().store().list(query).await?)
}

async fn open(app: &App) -> Result<WaitList> {
    let page = waiting(app, None).await?;
    let mut waits = Vec::new();
    let mut truncated = page.next.is_some();
    for row in &page.rows {
        if waits.len() >= SESSIONS_MAX {
            truncated = true;
            break;
        }
        waits.extend(status::waits(app, &row.session, &row.summary.facts).await?);
    }
    Ok(WaitList { waits, truncated })
}

/// The session that a wait belongs to. Its cost follows the number of sessions that wait.
async fn session_of(app: &App, wait: &WaitId) -> Result<SessionId> {
    let mut after = None;
    loop {
        let page = waiting(app, after).await?;
        let asks = |row: &&Row| {
            let run = row.summary.facts.run.as_ref();
            run.is_some_and(|run| run.waits.contains_key(wait))
        };
        if let Some(row) = page.rows.iter().find(asks) {
            return Ok(row.session.clone());
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Err(Refusal::WaitNotFound { wait: wait.clone() }.into()),
        }
    }
}

/// Whether a wait's session belongs to the task that a request names.
pub(crate) async fn check_task(app: &App, wait: &str, task: &str) -> Result<()> {
    let session = session_of(app, &wait.parse()?).await?;
    sessions::check_task(app, &session, task).await
}

/// Where a request was fulfilled, if its address does not say so: among the sessions that were active
/// last, and within the time that keys are kept. Only asked for what seems not to be there.
async fn fulfilled_in(app: &App, request: &Asked<'_>) -> Result<Option<(SessionId, Seq)>> {
    let (now, request) = (app.handle().view().now(), request.request(None));
    let query = Query { task_id: None, select: Select::All, after: None, limit: LOOKED_AT_MAX };
    let page = app.handle().view().store().list(query).await?;
    let is_recent = |row: &&Row| now.since(row.summary.info.active_at) <= REQUEST_KEPT_FOR;
    for row in page.rows.iter().filter(is_recent) {
        let requests = app.handle().state(&row.session).await?.requests;
        if let Some(seq) = requests.find(&request, now)? {
            return Ok(Some((row.session.clone(), seq)));
        }
    }
    Ok(None)
}

/// The questions that are open, in all sessions.
#[utoipa::path(get, path = "/waits", operation_id = "list_waits", tag = "waits",
    responses((status = 200, body = WaitList),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn list(State(app): State<App>, _reader: Reader) -> Result<Json<WaitList>> {
    Ok(Json(open(&app).await?))
}

/// Answers a question, as somebody who may control the session.
#[utoipa::path(post, path = "/waits/{wait_id}/answer", tag = "waits", request_body = AnswerRequest,
    params(("wait_id" = String, Path, description = "The wait's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Asked again under the same key, it is answered once")),
    responses((status = 200, body = AnswerAccepted),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn answer(
    State(app): State<App>,
    Controller(asker): Controller,
    Path(wait): Path<String>,
    Body(answering): Body<AnswerRequest>,
) -> Result<Reply<AnswerAccepted>> {
    Ok(Reply::ok(answer_now(&app, &asker, &wait, answering).await?))
}

/// What HTTP and the WebSocket both call.
pub(crate) async fn answer_now(
    app: &App,
    asker: &Asker,
    wait: &str,
    answering: AnswerRequest,
) -> Result<Fulfilled<AnswerAccepted>> {
    let wait_id: WaitId = wait.parse()?;
    let request = Asked { asker, action: "waits.answer", body: to_value(&answering)? };
    let session = match session_of(app, &wait_id).await {
        Err(unknown) if asker.has_key() => {
            // Perhaps because it was answered, under this very key.
            let (session, seq) = fulfilled_in(app, &request).await?.ok_or(unknown)?;
            let mut answered: Fulfilled<AnswerAccepted> = app.repeated(&session, seq).await?;
            answered.response.replayed = true;
            return Ok(answered);
        }
        session => session?,
    };
    let answered = AnswerAccepted { session_id: session.clone(), replayed: false };
    app.handle().check_answer(&session, &wait_id, &answering.answer).await?;
    let fresh = NewToken::from(&app.handle().ids().token()?);
    let command = Command::AnswerByWait { wait_id, fresh, answer: answering.answer };
    app.execute(&session, &request, answered, command).await
}

/// Makes a new token for a question, good as long as that is open; the old one is revoked.
#[utoipa::path(post, path = "/waits/{wait_id}/token", tag = "waits",
    params(("wait_id" = String, Path, description = "The wait's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Asked again under the same key, it is made once and not shown again")),
    responses((status = 201, body = ResumeTokenCreated),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn rotate(
    State(app): State<App>,
    Controller(asker): Controller,
    Path(wait): Path<String>,
    Perhaps(Empty {}): Perhaps<Empty>,
) -> Result<Reply<ResumeTokenCreated>> {
    let wait_id: WaitId = wait.parse()?;
    let request = Asked { asker: &asker, action: "waits.token", body: Value::Null };
    let session = match session_of(&app, &wait_id).await {
        Err(unknown) if asker.has_key() => {
            let (session, seq) = fulfilled_in(&app, &request).await?.ok_or(unknown)?;
            return Ok(Reply::created(app.repeated(&session, seq).await?));
        }
        session => session?,
    };
    let token = app.handle().ids().token()?;
    let command = Command::RotateToken { wait_id, fresh: NewToken::from(&token) };
    mint_now(&app, &session, &request, &token, command).await
}

/// The secret is shown and not kept: a repetition is told that it was shown.
async fn mint_now(
    app: &App,
    session: &SessionId,
    request: &Asked<'_>,
    token: &ResumeToken,
    command: Command,
) -> Result<Reply<ResumeTokenCreated>> {
    let response = ResumeTokenCreated {
        session_id: session.clone(),
        token_id: token.id.to_string(),
        token: token.reveal(),
    };
    Ok(Reply::created(app.execute_unkept(session, request, response, command).await?))
}

/// Makes a token with which the interrupted run can be resumed.
#[utoipa::path(post, path = "/sessions/{session_id}/token", tag = "waits", request_body = Option<NewResumeToken>,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Asked again under the same key, it is made once and not shown again")),
    responses((status = 201, body = ResumeTokenCreated),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn mint(
    State(app): State<App>,
    Controller(asker): Controller,
    Path(session): Path<String>,
    Perhaps(minting): Perhaps<NewResumeToken>,
) -> Result<Reply<ResumeTokenCreated>> {
    let session = SessionId::from_user(&session)?;
    let now = app.handle().view().now();
    let expires_at = minting.valid_for_s.map(|seconds| now.after(Duration::from_secs(seconds)));
    let token = app.handle().ids().token()?;
    let command = Command::MintInterruption { fresh: NewToken::from(&token), expires_at };
    let request = Asked { asker: &asker, action: "sessions.token", body: to_value(&minting)? };
    mint_now(&app, &session, &request, &token, command).await
}

/// Answers with a token; for holders without a login.
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
    let answered = app.handle().answer_with_token(within.as_ref(), token, presented.answer).await?;
    let (session_id, replayed) = (answered.session, answered.replayed);
    Ok(Json(AnswerAccepted { session_id, replayed }))
}
