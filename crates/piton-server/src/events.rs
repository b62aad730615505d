//! Server-sent events: a session's records as they become durable, and what changes in the index.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use piton_api::problem::Problem as Document;
use piton_api::record::StreamQuery;
use piton_core::id::SessionId;
use piton_core::planted::{self, Bug};
use tokio::time::{Instant, Interval};
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};

use crate::app::App;
use crate::connections::Connection;
use crate::extract::{Params, Path, Reader};
use crate::frames;
use crate::metrics::Subscriber;
use crate::problem::{Problem, Result};

/// How often a stream says that it is there.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long a stream may take to end when its access token does.
const REVOKED_WAIT: Duration = Duration::from_secs(1);
const LAST_EVENT_ID: &str = "last-event-id";

/// Stream a session's records after a position, as they become durable.
///
/// The `id` of an event is the record's seq. A client that reconnects sends it as `Last-Event-ID`
/// (or `?after=`) and continues without a gap or a repeat, also when the server was restarted. An
/// event `session.state_changed` without an id comes before the record that changes the derived
/// status; its fields are those of the WebSocket's event.
#[utoipa::path(
    get, path = "/sessions/{session_id}/events", tag = "sessions",
    params(
        ("session_id" = String, Path, description = "The session's id"),
        ("Last-Event-ID" = Option<u64>, Header, description = "The last seq that is known"),
        StreamQuery,
    ),
    responses(
        (status = 200, description = "Records as they become durable", content_type = "text/event-stream", body = String),
        (status = "4XX", body = Document, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn session_events(
    State(app): State<App>,
    reader: Reader,
    connection: Connection,
    Path(session): Path<String>,
    Params(from): Params<StreamQuery>,
    headers: HeaderMap,
) -> Result<Response> {
    let session = SessionId::from_user(&session)?;
    // What the client's own reconnection says is newer than the address it was first given.
    let header = headers.get(LAST_EVENT_ID);
    let is_passed_over = planted::is(Bug::AddressBeatsHeader) && from.after.is_some();
    let after = match header.filter(|_| !is_passed_over) {
        Some(id) => {
            let id = id.to_str().ok().and_then(|id| id.parse().ok());
            id.ok_or_else(|| Problem::malformed("Last-Event-ID is not a seq"))?
        }
        None => from.after.unwrap_or(0),
    };
    let (log, _) = frames::read(&app, &session, after).await?;
    let begin = Bytes::from_static(b": piton\nretry: 1000\n\n");
    let stopped = Box::pin(app.stop().clone().cancelled_owned());
    let beats = tokio::time::interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    let (access, subscriber) = (Access::watch(&app, reader, connection), app.metrics().subscribe());
    let following = Following { log, subscriber, access, stopped, beats };
    let frames = stream::unfold((following, Some(begin)), |(mut following, begin)| async move {
        let frame = match begin {
            Some(begin) => Some(begin),
            None => following.next().await,
        };
        frame.map(|frame| (Ok(frame), (following, None)))
    });
    Ok(event_stream(frames))
}

/// One reader's stream.
struct Following {
    log: frames::Reader,
    subscriber: Subscriber,
    /// These live as long as the stream: to be made for every event they would cost more than it.
    access: Access,
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
    beats: Interval,
}

impl Following {
    /// What is sent next; `None`: the stream ends.
    async fn next(&mut self) -> Option<Bytes> {
        let next = tokio::select! {
            biased;
            () = &mut self.stopped => return None,
            () = self.access.ended() => return None,
            next = self.log.next() => next,
            _ = self.beats.tick() => return Some(Bytes::from_static(b": here\n\n")),
        };
        let owner = self.log.owner();
        match next {
            Ok(parts) => {
                self.subscriber.delivered(frames::count(&parts));
                Some(frames::events(owner, &parts))
            }
            Err(error) => {
                tracing::info!(session = %owner.session, code = %error.code(), "a reader's stream ends");
                None
            }
        }
    }
}

/// The access token that a stream depends on, watched while the stream is open.
#[derive(Debug)]
pub(crate) struct Access {
    revoked: Pin<Box<WaitForCancellationFutureOwned>>,
    _open: DropGuard,
}

impl Access {
    /// A reader that takes nothing is not asked for, so its stream does not notice the end of its
    /// access token: then its connection is closed.
    pub(crate) fn watch(app: &App, reader: Reader, connection: Connection) -> Self {
        let (revoked, open) = (CancellationToken::new(), CancellationToken::new());
        let (end, closed, app) = (revoked.clone(), open.clone(), app.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = closed.cancelled() => return,
                () = reader.pass().lost(app) => end.cancel(),
            }
            if tokio::time::timeout(REVOKED_WAIT, closed.cancelled()).await.is_err() {
                connection.close();
            }
        });
        Self { revoked: Box::pin(revoked.cancelled_owned()), _open: open.drop_guard() }
    }

    /// Resolves when the access token is revoked, or has expired.
    pub(crate) async fn ended(&mut self) {
        (&mut self.revoked).await;
    }
}

/// A response with server-sent events that proxies neither buffer nor cache.
pub(crate) fn event_stream(
    frames: impl stream::Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
) -> Response {
    let mut response = Response::new(Body::from_stream(frames));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
