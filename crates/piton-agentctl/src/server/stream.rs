//! The spool as it grows, from any position on. Nothing is buffered for a slow reader: what it has
//! not taken is read from the files when it does.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Query, State};
use axum::response::Response;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use piton_core::Code;
use piton_core::spool::Pos;
use piton_exec::protocol::{Ack, closing};
use serde::Deserialize;

use super::guard::Caller;
use crate::agentctl::Agentctl;
use crate::problem::{Refused, problem};
use crate::spool::ReadError;

/// As much of the spool as one frame holds, if it is more than one entry.
const FRAME_BYTES_MAX: usize = 256 * 1024;
/// An acknowledgement is a number.
const ACK_BYTES_MAX: usize = 4 * 1024;
const CLOSE_WAIT: Duration = Duration::from_secs(1);

#[derive(Debug, Deserialize)]
pub(crate) struct From {
    spool_id: String,
    after: Pos,
}

/// Why a stream ends.
type End = (u16, String);

pub(crate) async fn stream(
    State(agentctl): State<Arc<Agentctl>>,
    Extension(caller): Extension<Caller>,
    Query(from): Query<From>,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Refused> {
    let health = agentctl.spool.health();
    if from.spool_id != health.spool_id {
        let message =
            format!("This agentctl's spool is {}, not {}", health.spool_id, from.spool_id);
        return Err(problem(Code::SpoolNotFound, message).into());
    }
    if from.after > health.last {
        let message = format!("The spool ends with {}, before {}", health.last, from.after);
        return Err(problem(Code::CursorInvalid, message).into());
    }
    let upgrade = upgrade.max_message_size(ACK_BYTES_MAX).max_frame_size(ACK_BYTES_MAX);
    let present = agentctl.activity.enter();
    Ok(upgrade.on_upgrade(move |socket| async move {
        run(&agentctl, socket, from.after, caller).await;
        drop(present);
    }))
}

async fn run(agentctl: &Agentctl, socket: WebSocket, after: Pos, caller: Caller) {
    let (mut sink, mut source) = socket.split();
    let _followed = agentctl.spool.followed();
    let end = tokio::select! {
        end = superseded(agentctl, caller.epoch) => Some(end),
        end = send(agentctl, &mut sink, after) => end,
        end = receive(agentctl, &mut source) => end,
    };
    let Some((code, reason)) = end else { return };
    let close = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
    let _ = tokio::time::timeout(CLOSE_WAIT, sink.send(close)).await;
}

/// One stream at a time, and none of an epoch that is over.
async fn superseded(agentctl: &Agentctl, epoch: u64) -> End {
    let own = agentctl.next_stream();
    let mut streams = agentctl.streams();
    let mut epochs = agentctl.epochs.watch();
    tokio::select! {
        _ = epochs.wait_for(|highest| *highest > epoch) => {
            (closing::EPOCH_STALE, Code::EpochStale.to_string())
        }
        _ = streams.wait_for(|newest| *newest != own) => {
            (closing::REPLACED, Code::StreamReplaced.to_string())
        }
    }
}

/// `None`: the other side is gone.
async fn send(
    agentctl: &Agentctl,
    sink: &mut SplitSink<WebSocket, Message>,
    mut after: Pos,
) -> Option<End> {
    let mut last = agentctl.spool.last();
    let mut over = agentctl.over();
    loop {
        // Seen before the spool is read: what was kept before the end is sent before the end.
        let is_over = *over.borrow_and_update();
        let mut gap = None;
        let entries = match agentctl.spool.read(after, FRAME_BYTES_MAX).await {
            Ok(entries) => entries,
            Err(ReadError::Lost { first, last }) => {
                (gap, after) = (Some((first, last)), last);
                Vec::new()
            }
            Err(error) => {
                tracing::error!("The spool cannot be read: {error}");
                return Some((closing::UNREADABLE, Code::SpoolUnreadable.to_string()));
            }
        };
        if entries.is_empty() && gap.is_none() {
            if is_over {
                return Some((closing::OVER, "over".to_owned()));
            }
            tokio::select! {
                changed = last.wait_for(|last| *last > after) => { changed.ok()?; }
                changed = over.changed() => changed.ok()?,
            }
            continue;
        }
        after += entries.len() as Pos;
        sink.send(Message::text(frame(&entries, gap))).await.ok()?;
    }
}

/// A [`piton_exec::protocol::Frame`], without reading the entries.
fn frame(entries: &[Arc<str>], gap: Option<(Pos, Pos)>) -> String {
    let lost = gap.map(|(first, last)| format!("\"lost\":[{first},{last}],"));
    let mut text = format!("{{{}\"entries\":[", lost.unwrap_or_default());
    for (index, entry) in entries.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(entry);
    }
    text.push_str("]}");
    text
}

async fn receive(agentctl: &Agentctl, source: &mut SplitStream<WebSocket>) -> Option<End> {
    loop {
        match source.next().await?.ok()? {
            Message::Text(text) => match serde_json::from_str::<Ack>(&text) {
                Ok(Ack { ack }) if ack <= agentctl.spool.health().last => agentctl.spool.ack(ack),
                _ => return Some((closing::MALFORMED, Code::RequestInvalid.to_string())),
            },
            Message::Close(_) => return None,
            Message::Binary(_) => {
                return Some((closing::MALFORMED, Code::RequestInvalid.to_string()));
            }
            Message::Ping(_) | Message::Pong(_) => {}
        }
    }
}
