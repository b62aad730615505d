//! A session's agent: what it offers and says about itself, and what users choose of it.

use axum::Json;
use axum::extract::State;
use piton_api::agent_view::{AgentChoice, AgentView, LoginRequest};
use piton_api::problem::Problem as Document;
use piton_api::session::SessionRun;
use piton_core::id::SessionId;
use piton_runtime::{Caller, Fulfilled};

use super::Reply;
use super::sessions::about;
use crate::app::App;
use crate::extract::{Body, Controller, OptionalBody, Path, Reader};
use crate::problem::Result;

/// Get what a session's agent offers and reports: modes, models, config options, slash commands,
/// plan, usage and cost.
#[utoipa::path(get, path = "/sessions/{session_id}/agent", operation_id = "show_agent", tag = "agents",
    params(("session_id" = String, Path, description = "The session's id")),
    responses((status = 200, body = AgentView),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn show(
    State(app): State<App>,
    _reader: Reader,
    Path(session): Path<String>,
) -> Result<Json<AgentView>> {
    Ok(Json(show_now(&app, &session).await?))
}

pub(crate) async fn show_now(app: &App, session: &str) -> Result<AgentView> {
    Ok(app.engine().agent_view(&SessionId::from_user(session)?).await?.into())
}

/// Set the mode, model or config options of a session's agent.
///
/// Given to the agent now, if it runs, and to every agent that is started for the session later. What
/// the agent does not offer is refused with `choice_not_offered`; before an agent was started it is not
/// known what it offers, and the choice is kept for it.
#[utoipa::path(post, path = "/sessions/{session_id}/agent", operation_id = "configure_agent", tag = "agents", request_body = AgentChoice,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 200, body = SessionRun),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn configure(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    Body(choice): Body<AgentChoice>,
) -> Result<Reply<SessionRun>> {
    Ok(Reply::ok(configure_now(&app, &caller, &session, choice).await?))
}

pub(crate) async fn configure_now(
    app: &App,
    caller: &Caller,
    session: &str,
    choice: AgentChoice,
) -> Result<Fulfilled<SessionRun>> {
    let session = SessionId::from_user(session)?;
    Ok(about(app.engine().configure_agent(caller, &session, choice.into()).await?))
}

/// Log in to the session's agent. An agent that does not run is started, and logs in before it
/// opens its conversation; the response comes when the agent runs.
#[utoipa::path(post, path = "/sessions/{session_id}/login", operation_id = "log_in_agent", tag = "agents", request_body = Option<LoginRequest>,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 200, body = SessionRun),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn log_in(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    OptionalBody(login): OptionalBody<LoginRequest>,
) -> Result<Reply<SessionRun>> {
    Ok(Reply::ok(log_in_now(&app, &caller, &session, login).await?))
}

pub(crate) async fn log_in_now(
    app: &App,
    caller: &Caller,
    session: &str,
    login: LoginRequest,
) -> Result<Fulfilled<SessionRun>> {
    let session = SessionId::from_user(session)?;
    Ok(about(app.engine().log_in(caller, &session, login.auth_method).await?))
}
