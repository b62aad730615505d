//! HTTP and WebSocket over a Unix socket: [`piton_exec::protocol`], from agentctl's side.

mod gate;
pub(crate) mod guard;
mod stream;
mod workspace;

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use piton_core::Code;
use piton_exec::protocol::{Alive, Capabilities, Command, Health, Reply};

pub(crate) use gate::Gate;

use crate::agentctl::Agentctl;
use crate::problem::{Refused, problem};

/// A prompt, or a file.
const BODY_BYTES_MAX: usize = 40 * 1024 * 1024;

pub(crate) fn router(agentctl: Arc<Agentctl>) -> Router {
    let guarded = Router::new()
        .route("/health", get(health))
        .route("/capabilities", get(capabilities))
        .route("/commands", post(command))
        .route("/stream", get(stream::stream))
        .route("/files", get(workspace::read).put(workspace::write))
        .route("/list", get(workspace::list))
        .route("/git/status", get(workspace::git_status))
        .route("/git/diff", get(workspace::git_diff))
        .route("/git/log", get(workspace::git_log))
        .route("/git/truth", post(workspace::git_truth))
        .route("/shells", get(workspace::list_shells).post(workspace::new_shell))
        .route("/shells/{id}", get(workspace::attach).delete(workspace::end_shell))
        .fallback(unknown)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(agentctl.clone(), guard::admit));
    Router::new().route("/alive", get(alive)).merge(guarded).with_state(agentctl)
}

async fn alive(State(agentctl): State<Arc<Agentctl>>) -> Json<Alive> {
    let folder = agentctl.workspace.tree().mark().folder().to_owned();
    Json(Alive { execution_id: agentctl.execution_id.clone(), folder, protocol: agentctl.protocol })
}

async fn health(State(agentctl): State<Arc<Agentctl>>) -> Json<Health> {
    Json(agentctl.health().await)
}

async fn capabilities(State(agentctl): State<Arc<Agentctl>>) -> Json<Capabilities> {
    Json(agentctl.capabilities())
}

async fn command(
    State(agentctl): State<Arc<Agentctl>>,
    body: Bytes,
) -> Result<Json<Reply>, Refused> {
    let command: Command =
        serde_json::from_slice(&body).map_err(|e| problem(Code::RequestInvalid, e.to_string()))?;
    let doing = agentctl.clone();
    let admitting = doing.clone();
    let admit = move |act| async move { admitting.agent.admit(&act).await };
    Ok(Json(agentctl.commands.run(command, admit, move |act| doing.act(act)).await?))
}

async fn unknown() -> Refused {
    problem(Code::NotFound, "There is nothing under this path").into()
}
