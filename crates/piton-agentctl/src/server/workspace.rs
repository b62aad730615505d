//! Files, git and shells, with or without an agent.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path as InPath, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use piton_exec::protocol::workspace::{
    GitCommit, GitDiff, GitStatus, LOG_MAX, ListedShell, Listing, NewShell, Shell, ShellControl,
    Truth, TruthRequest,
};
use serde::Deserialize;
use tokio::sync::mpsc::Receiver;

use crate::agentctl::Agentctl;
use crate::problem::{Refused, problem};
use crate::workspace::{Error, ShellEvent, ShellWriter, Staged, shells};
use piton_core::Code;

/// What is typed at once.
const TYPED_BYTES_MAX: usize = 1024 * 1024;
/// Codes of a WebSocket's close frame.
const CUT_OFF: u16 = 4010;
const NORMAL: u16 = 1000;

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        problem(error.code(), with_causes(&error)).into()
    }
}

impl From<shells::Error> for Refused {
    fn from(error: shells::Error) -> Self {
        problem(error.code(), with_causes(&error)).into()
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |message, cause| format!("{message}: {cause}"))
}

#[derive(Debug, Deserialize)]
pub(super) struct At {
    path: PathBuf,
}

#[derive(Debug, Deserialize)]
pub(super) struct Diffed {
    #[serde(default)]
    staged: bool,
    path: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Logged {
    limit: Option<usize>,
}

type Shared = State<Arc<Agentctl>>;

pub(super) async fn read(agentctl: Shared, Query(at): Query<At>) -> Result<Vec<u8>, Refused> {
    Ok(agentctl.workspace.read(&at.path, None).await?.bytes)
}

pub(super) async fn write(
    agentctl: Shared,
    Query(at): Query<At>,
    body: Bytes,
) -> Result<StatusCode, Refused> {
    agentctl.workspace.write(&at.path, body.into()).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn list(agentctl: Shared, Query(at): Query<At>) -> Result<Json<Listing>, Refused> {
    Ok(Json(agentctl.workspace.list(&at.path).await?))
}

pub(super) async fn git_status(agentctl: Shared) -> Result<Json<GitStatus>, Refused> {
    Ok(Json(agentctl.workspace.git_status().await?))
}

pub(super) async fn git_diff(
    agentctl: Shared,
    Query(diffed): Query<Diffed>,
) -> Result<Json<GitDiff>, Refused> {
    let staged = if diffed.staged { Staged::Yes } else { Staged::No };
    let path: Option<&Path> = diffed.path.as_deref();
    Ok(Json(agentctl.workspace.git_diff(staged, path).await?))
}

pub(super) async fn git_truth(agentctl: Shared, body: Bytes) -> Result<Json<Truth>, Refused> {
    let request: TruthRequest =
        serde_json::from_slice(&body).map_err(|e| problem(Code::RequestInvalid, e.to_string()))?;
    Ok(Json(agentctl.workspace.truth(&request).await?))
}

pub(super) async fn git_log(
    agentctl: Shared,
    Query(logged): Query<Logged>,
) -> Result<Json<Vec<GitCommit>>, Refused> {
    Ok(Json(agentctl.workspace.git_log(logged.limit.unwrap_or(LOG_MAX)).await?))
}

pub(super) async fn list_shells(agentctl: Shared) -> Json<Vec<ListedShell>> {
    Json(agentctl.shells.list())
}

pub(super) async fn new_shell(agentctl: Shared, body: Bytes) -> Result<Json<Shell>, Refused> {
    let new: NewShell =
        serde_json::from_slice(&body).map_err(|e| problem(Code::RequestInvalid, e.to_string()))?;
    agentctl.agent.admit_start()?;
    Ok(Json(agentctl.shells.open(new).await?))
}

pub(super) async fn end_shell(
    agentctl: Shared,
    InPath(shell_id): InPath<String>,
) -> Result<StatusCode, Refused> {
    agentctl.shells.close(&shell_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn attach(
    State(agentctl): Shared,
    InPath(shell_id): InPath<String>,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Refused> {
    let (events, writer) = agentctl.shells.attach(&shell_id)?;
    let present = agentctl.activity.enter();
    let upgrade = upgrade.max_message_size(TYPED_BYTES_MAX).max_frame_size(TYPED_BYTES_MAX);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let (mut sink, mut source) = socket.split();
        tokio::select! {
            () = show(&mut sink, events) => {}
            () = take(&mut source, &writer) => {}
            // A person at a shell does not keep an agentctl from ending.
            () = agentctl.until_over() => {}
        }
        drop(present);
    }))
}

async fn show(sink: &mut SplitSink<WebSocket, Message>, mut events: Receiver<ShellEvent>) {
    while let Some(event) = events.recv().await {
        let (message, close) = match event {
            ShellEvent::Output(bytes) => (Message::Binary(bytes.into()), None),
            ShellEvent::Ended(ended) => {
                let Ok(text) = serde_json::to_string(&ended) else { return };
                (Message::text(text), Some((NORMAL, "ended")))
            }
            ShellEvent::CutOff => {
                let frame = CloseFrame { code: CUT_OFF, reason: "too_slow".into() };
                let _ = sink.send(Message::Close(Some(frame))).await;
                return;
            }
        };
        if sink.send(message).await.is_err() {
            return;
        }
        if let Some((code, reason)) = close {
            let frame = CloseFrame { code, reason: reason.into() };
            let _ = sink.send(Message::Close(Some(frame))).await;
            return;
        }
    }
}

async fn take(source: &mut SplitStream<WebSocket>, writer: &ShellWriter) {
    while let Some(Ok(message)) = source.next().await {
        let done = match message {
            Message::Binary(bytes) => writer.write(&bytes).await,
            Message::Text(text) => match serde_json::from_str(&text) {
                Ok(ShellControl::Resize { cols, rows }) => writer.resize(cols, rows),
                // A newer client's wish.
                Err(_) => Ok(()),
            },
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) => Ok(()),
        };
        if let Err(error) = done {
            // The shell has ended; what it last wrote is still on its way.
            tracing::debug!("A shell takes no more input: {error}");
            return std::future::pending().await;
        }
    }
}
