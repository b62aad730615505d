//! Questions that runs wait on, and the tokens with which strangers answer them.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use piton_core::decide::{Command, Refusal};
use piton_core::id::{SessionId, WaitId};
use piton_core::limits::REQUEST_KEPT_FOR;
use piton_core::token::{NewToken, ResumeToken};
use piton_core::{Seq, Timestamp};
use piton_store::{Cursor, Page, Query, Row, Select};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::Reply;
use super::status::{self, WaitView};
use crate::app::{App, Asked, Fulfilled, to_value};
use crate::extract::{Asker, Body, Controller, Path, Perhaps, Reader};
use crate::problem::{Document, Result};

/// Sessions that are looked at for open waits; those that are due first.
const SESSIONS_MAX: usize = 1_000;
/// Sessions that are looked at for a request whose wait is over.
const LOOKED_AT_MAX: usize = 256;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Waits {
    /// Open, those with the earliest deadline first.
    waits: Vec<WaitView>,
    /// There are more than are shown.
    truncated: bool,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answering {
    /// What the question asks for; for a permission `{"option_id": …}`.
    #[schema(value_type = Object)]
    answer: Value,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Answered {
    session_id: String,
    /// This very answer was given before.
    #[serde(default)]
    replayed: bool,
}

#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Minting {
    /// After how many seconds the token runs out; without it, it does not.
    valid_for_s: Option<u64>,
}

/// A body that has nothing to say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Minted {
    session_id: String,
    token_id: String,
    /// Shown here and nowhere else.
    token: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenAnswer {
    /// The token as it was shown: `rt_….SECRET`.
    token: String,
    #[schema(value_type = Option<Object>)]
    #[serde(default)]
    answer: Value,
    /// The session that the holder believes it is for.
    session_id: Option<String>,
}

/// A page of the sessions that wait, those that are due first.
async fn waiting(app: &App, after: Option<Cursor>) -> Result<Page> {
    let select = Select::DueBy(Timestamp::from_millis(i64::MAX));
    let query = Query { task_id: None, select, after, limit: SESSIONS_MAX };
    Ok(app.handle().view().store().list(query).await?)
}

async fn open(app: &App) -> Result<Waits> {
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
    Ok(Waits { waits, truncated })
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
    responses((status = 200, body = Waits),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn list(State(app): State<App>, _reader: Reader) -> Result<Json<Waits>> {
    Ok(Json(open(&app).await?))
}

/// Answers a question, as somebody who may control the session.
#[utoipa::path(post, path = "/waits/{wait_id}/answer", tag = "waits", request_body = Answering,
    params(("wait_id" = String, Path, description = "The wait's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Asked again under the same key, it is answered once")),
    responses((status = 200, body = Answered),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn answer(
    State(app): State<App>,
    Controller(asker): Controller,
    Path(wait): Path<String>,
    Body(answering): Body<Answering>,
) -> Result<Reply<Answered>> {
    Ok(Reply::ok(answer_now(&app, &asker, &wait, answering).await?))
}

/// What HTTP and the WebSocket both call.
pub(crate) async fn answer_now(
    app: &App,
    asker: &Asker,
    wait: &str,
    answering: Answering,
) -> Result<Fulfilled<Answered>> {
    let wait_id: WaitId = wait.parse()?;
    let request = Asked { asker, action: "waits.answer", body: to_value(&answering)? };
    let session = match session_of(app, &wait_id).await {
        Err(unknown) if asker.has_key() => {
            // Perhaps because it was answered, under this very key.
            let (session, seq) = fulfilled_in(app, &request).await?.ok_or(unknown)?;
            let mut answered: Fulfilled<Answered> = app.repeated(&session, seq).await?;
            answered.response.replayed = true;
            return Ok(answered);
        }
        session => session?,
    };
    let answered = Answered { session_id: session.to_string(), replayed: false };
    app.handle().check_answer(&session, &wait_id, &answering.answer).await?;
    let fresh = NewToken::from(&app.handle().ids().token()?);
    let command = Command::AnswerByWait { wait_id, fresh, answer: answering.answer };
    app.execute(&session, &request, answered, command).await
}

/// Makes a new token for a question, good as long as that is open; the old one is revoked.
#[utoipa::path(post, path = "/waits/{wait_id}/token", tag = "waits",
    params(("wait_id" = String, Path, description = "The wait's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Asked again under the same key, it is made once and not shown again")),
    responses((status = 201, body = Minted),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn rotate(
    State(app): State<App>,
    Controller(asker): Controller,
    Path(wait): Path<String>,
    Perhaps(Nothing {}): Perhaps<Nothing>,
) -> Result<Reply<Minted>> {
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
) -> Result<Reply<Minted>> {
    let response = Minted {
        session_id: session.to_string(),
        token_id: token.id.to_string(),
        token: token.reveal(),
    };
    Ok(Reply::created(app.execute_unkept(session, request, response, command).await?))
}

/// Makes a token with which the interrupted run can be resumed.
#[utoipa::path(post, path = "/sessions/{session_id}/token", tag = "waits", request_body = Option<Minting>,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Asked again under the same key, it is made once and not shown again")),
    responses((status = 201, body = Minted),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn mint(
    State(app): State<App>,
    Controller(asker): Controller,
    Path(session): Path<String>,
    Perhaps(minting): Perhaps<Minting>,
) -> Result<Reply<Minted>> {
    let session = SessionId::from_user(&session)?;
    let now = app.handle().view().now();
    let expires_at = minting.valid_for_s.map(|seconds| now.after(Duration::from_secs(seconds)));
    let token = app.handle().ids().token()?;
    let command = Command::MintInterruption { fresh: NewToken::from(&token), expires_at };
    let request = Asked { asker: &asker, action: "sessions.token", body: to_value(&minting)? };
    mint_now(&app, &session, &request, &token, command).await
}

/// Answers with a token; for holders without a login.
#[utoipa::path(post, path = "/resume-tokens/{token_id}", tag = "waits", request_body = TokenAnswer, security(()),
    params(("token_id" = String, Path, description = "The token's public id")),
    responses((status = 200, body = Answered),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn answer_with_token(
    State(app): State<App>,
    Path(token_id): Path<String>,
    Body(presented): Body<TokenAnswer>,
) -> Result<Json<Answered>> {
    app.admit_nobody()?;
    let token: ResumeToken = presented.token.parse().map_err(|_| Refusal::ResumeTokenNotFound)?;
    if token.id.as_str() != token_id {
        return Err(Refusal::ResumeTokenMismatch.into());
    }
    let within = presented.session_id.as_deref().map(str::parse).transpose()?;
    let answered = app.handle().answer_with_token(within.as_ref(), token, presented.answer).await?;
    let (session_id, replayed) = (answered.session.to_string(), answered.replayed);
    Ok(Json(Answered { session_id, replayed }))
}
