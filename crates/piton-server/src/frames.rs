//! What readers of a log are sent: server-sent events and WebSocket messages. The broadcast keeps
//! both beside the records that they are made of, so that each is made once for all readers.

use std::borrow::Cow;
use std::sync::OnceLock;

use axum::extract::ws::Utf8Bytes;
use bytes::{Bytes, BytesMut};
use piton_api::socket_event::SocketEvent;
use piton_core::id::SessionId;
use piton_core::{Code, Record, Seq};
use piton_runtime::broadcast::{self, ChunkPart, Entry, Owner};

use crate::app::App;
use crate::problem::{Problem, Result};
use crate::sockets::translate;

/// What a chunk of a log is rendered to.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    events: OnceLock<Bytes>,
    messages: OnceLock<Vec<Utf8Bytes>>,
}

pub(crate) type Broadcasts = broadcast::Broadcasts<Frames>;
pub(crate) type Reader = broadcast::Reader<Frames>;

/// Reads a session's log from after a position; also says where the log stands.
pub(crate) async fn read(app: &App, session: &SessionId, after: Seq) -> Result<(Reader, Seq)> {
    match app.broadcasts().read(session, after).await? {
        (Some(reader), last) => Ok((reader, last)),
        (None, last) => {
            let title = format!("The log ends at {last}, before {after}");
            Err(Problem::new(Code::CursorInvalid, title))
        }
    }
}

/// How many records a reader was given.
pub(crate) fn count(parts: &[ChunkPart<Frames>]) -> u64 {
    parts.iter().map(|part| part.entries().len() as u64).sum()
}

/// As server-sent events.
pub(crate) fn events(owner: &Owner, parts: &[ChunkPart<Frames>]) -> Bytes {
    let render = |part: &ChunkPart<Frames>| match part.rendered() {
        Some(frames) => frames.events.get_or_init(|| render_events(owner, part.entries())).clone(),
        None => render_events(owner, part.entries()),
    };
    match parts {
        [part] => render(part),
        parts => {
            let mut all = BytesMut::new();
            for part in parts {
                all.extend_from_slice(&render(part));
            }
            all.freeze()
        }
    }
}

/// As messages of a WebSocket.
pub(crate) fn messages<'a>(owner: &Owner, part: &'a ChunkPart<Frames>) -> Cow<'a, [Utf8Bytes]> {
    match part.rendered() {
        Some(frames) => {
            let rendered = frames.messages.get_or_init(|| render_messages(owner, part.entries()));
            Cow::Borrowed(rendered)
        }
        None => Cow::Owned(render_messages(owner, part.entries())),
    }
}

fn render_messages(owner: &Owner, entries: &[Entry]) -> Vec<Utf8Bytes> {
    let translated = entries.iter().flat_map(|entry| translate::translate(owner, entry));
    translated.map(|event| message(&event).into()).collect()
}

/// An event as a message of a WebSocket.
pub(crate) fn message(event: &SocketEvent) -> String {
    // Strings, numbers and flags: that they can be written is certain.
    serde_json::to_string(event).unwrap_or_default()
}

/// A record is an event whose id is its seq. A change of the derived status comes before the record
/// that caused it and has no id: a reader that is cut between the two gets both again.
fn render_events(owner: &Owner, entries: &[Entry]) -> Bytes {
    let mut bytes = BytesMut::new();
    for entry in entries {
        if let Some(changed) = translate::state_changed(owner, entry) {
            let data = serde_json::to_string(&changed).unwrap_or_default();
            let frame = format!("event: session.state_changed\ndata: {data}\n\n");
            bytes.extend_from_slice(frame.as_bytes());
        }
        let record = &entry.record;
        let head = format!("id: {}\nevent: {}\ndata: ", record.seq, record.kind);
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(data(record).as_bytes());
        bytes.extend_from_slice(b"\n\n");
    }
    bytes.freeze()
}

fn data(record: &Record) -> String {
    match record.to_flat() {
        Ok(flat) => serde_json::Value::Object(flat).to_string(),
        // What cannot be shown still has its place: a reader must not see a gap.
        Err(_) => format!("{{\"seq\":{},\"kind\":\"{}\"}}", record.seq, record.kind),
    }
}
