//! What changes in the index of sessions, as server-sent events. The broadcast follows the store and
//! renders each entry once for all readers.

use std::convert::Infallible;

use axum::extract::State;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use piton_api::event::{DeletedSession, DeletedTask, GONE, INDEX, LISTING, Listing, TASK};
use piton_api::problem::Problem as Document;
use piton_api::socket_event::SocketEvent;
use piton_api::task::TaskStateChanged;
use piton_runtime::Listed;
use piton_runtime::broadcast::{self, IndexEvent as Event, IndexReader, TaskEvent};
use serde::Serialize;

use crate::api::{status, tasks};
use crate::app::App;
use crate::connections::Connection;
use crate::events::{Access, HEARTBEAT, event_stream};
use crate::extract::Reader;
use crate::frames::message;
use crate::metrics::Subscriber;
use crate::problem::Result;

pub(crate) type Index = broadcast::Index<Bytes>;

fn sse(name: &str, data: &impl Serialize) -> Bytes {
    // Strings, numbers and flags: that they can be written is certain.
    let data = serde_json::to_string(data).unwrap_or_default();
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

/// A session as an event.
pub(crate) fn render(listed: &Listed) -> Bytes {
    sse(INDEX, &status::summary(listed))
}

fn frame(event: Event<Bytes>) -> Bytes {
    match event {
        Event::Listing { sessions, tasks: listed, truncated } => {
            let head = Listing { sessions: sessions.len(), tasks: listed.len(), truncated };
            let mut listing = BytesMut::from(sse(LISTING, &head));
            for session in sessions {
                listing.extend_from_slice(&session);
            }
            for task in listed {
                listing.extend_from_slice(&sse(TASK, &tasks::summary(&task)));
            }
            listing.freeze()
        }
        Event::Changed(session) => session,
        Event::Removed(session_id) => sse(GONE, &DeletedSession { session_id }),
        Event::Task(event) => {
            let event = serde_json::to_value(task_event(event)).unwrap_or_default();
            sse(event["event"].as_str().unwrap_or_default(), &event["payload"])
        }
    }
}

/// What readers of a WebSocket are sent for an event of the index, in order: the same events, as messages.
pub(crate) fn messages(event: Event<Bytes>) -> Vec<String> {
    // A session is rendered once for all readers, as a server-sent event; its data is the payload.
    fn session(rendered: &Bytes) -> Option<String> {
        let text = std::str::from_utf8(rendered).ok()?;
        let data = text.split_once("\ndata: ")?.1.trim_end();
        Some(format!(r#"{{"event":"{INDEX}","payload":{data}}}"#))
    }
    match event {
        Event::Listing { sessions, tasks: listed, truncated } => {
            let head = Listing { sessions: sessions.len(), tasks: listed.len(), truncated };
            let mut all = vec![message(&SocketEvent::Listing(head))];
            all.extend(sessions.iter().filter_map(session));
            let tasks = listed.iter().map(|task| SocketEvent::Task(tasks::summary(task).into()));
            all.extend(tasks.map(|task| message(&task)));
            all
        }
        Event::Changed(changed) => session(&changed).into_iter().collect(),
        Event::Removed(session_id) => {
            vec![message(&SocketEvent::Gone(DeletedSession { session_id }))]
        }
        Event::Task(event) => vec![message(&task_event(event))],
    }
}

/// An event about a task, as server-sent events and the WebSocket have it.
pub(crate) fn task_event(event: TaskEvent) -> SocketEvent {
    match event {
        TaskEvent::Updated(task) => SocketEvent::TaskUpdated(tasks::summary(&task).into()),
        TaskEvent::StateChanged { task, old_state } => {
            let task = tasks::summary(&task);
            let (old_state, new_state) = (old_state.into(), task.state.clone());
            SocketEvent::TaskStateChanged(TaskStateChanged { task, old_state, new_state }.into())
        }
        TaskEvent::Deleted(task_id) => SocketEvent::TaskDeleted(DeletedTask { task_id }),
    }
}

/// Stream changes of the session index and of tasks. Events of different sessions have no order
/// among each other.
///
/// First `listing` with the number of sessions that follow, which replaces all that was known; then
/// an `index` event for each of them (the last active 1,000; `truncated` says that there are more);
/// then a `task` event for each of the newest 1,000 tasks; then `index` for whatever changes, `gone`
/// for a session that is deleted, `task.updated`, `task.state_changed` and `task.deleted` for tasks.
/// The stream cannot be continued: a new connection, and a reader that falls behind, gets a `listing`
/// again.
#[utoipa::path(
    get, path = "/events", tag = "sessions",
    responses(
        (status = 200, description = "`listing`, `index`, `gone`, `task` and `task.*` events", content_type = "text/event-stream", body = String),
        (status = "4XX", body = Document, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn index_events(
    State(app): State<App>,
    reader: Reader,
    connection: Connection,
) -> Result<Response> {
    let index = app.index().read().await?;
    let subscriber = app.metrics().subscribe();
    let begin = Bytes::from_static(b"retry: 1000\n\n");
    let access = Access::watch(&app, reader, connection);
    let following = Following { app, access, index, _subscriber: subscriber };
    let frames = stream::unfold((following, Some(begin)), |(mut following, begin)| async move {
        let frame = match begin {
            Some(begin) => Some(begin),
            None => following.next().await,
        };
        frame.map(|frame| (Ok::<_, Infallible>(frame), (following, None)))
    });
    Ok(event_stream(frames))
}

struct Following {
    app: App,
    access: Access,
    index: IndexReader<Bytes>,
    _subscriber: Subscriber,
}

impl Following {
    async fn next(&mut self) -> Option<Bytes> {
        let event = tokio::select! {
            biased;
            () = self.app.stop().cancelled() => return None,
            () = self.access.ended() => return None,
            event = tokio::time::timeout(HEARTBEAT, self.index.next()) => event,
        };
        match event {
            Ok(event) => event.map(frame),
            Err(_) => Some(Bytes::from_static(b": here\n\n")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_says_how_many_sessions_follow() {
        let session = Bytes::from_static(b"event: index\ndata: 1\n\n");
        let listing =
            Event::Listing { sessions: vec![session.clone()], tasks: Vec::new(), truncated: false };
        let expected = "event: listing\ndata: {\"sessions\":1,\"tasks\":0,\"truncated\":false}\n\n";
        assert_eq!(frame(listing), [expected.as_bytes(), &session].concat());
        assert_eq!(frame(Event::Changed(session.clone())), session);
        let listing =
            Event::Listing { sessions: vec![session.clone()], tasks: Vec::new(), truncated: true };
        let head = r#"{"event":"listing","payload":{"sessions":1,"tasks":0,"truncated":true}}"#;
        assert_eq!(messages(listing), [head, r#"{"event":"index","payload":1}"#]);
        assert_eq!(
            messages(Event::Removed("s1".parse().unwrap())),
            [r#"{"event":"gone","payload":{"session_id":"s1"}}"#]
        );
        let gone = Bytes::from("event: gone\ndata: {\"session_id\":\"s1\"}\n\n");
        assert_eq!(frame(Event::Removed("s1".parse().unwrap())), gone);
    }
}
