//! `/ws`: requests and their answers, and the events of the sessions that are subscribed to. A
//! message is JSON text; everything that waits is counted.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::StreamExt as _;
use futures_util::stream::SplitSink;
use piton_api::problem::Problem as Document;
use piton_core::Code;
use piton_core::access::{Bearer, Scope};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::subscriptions::Subscriptions;
use super::{
    CLOSE_WAIT, LOST, Life, Pulse, SocketPermit, broken, close_frame, closing, handshake, methods,
    presented, send, ticks,
};
use crate::app::{App, to_value};
use crate::connections::Connection;
use crate::problem::{Problem, Result};

/// The largest message that is taken.
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// Requests of one socket that are being fulfilled.
const REQUESTS_MAX: usize = 32;
/// Messages on their way out; who makes more waits.
const OUTGOING_MAX: usize = 64;

/// Something that a client asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    id: Value,
    method: String,
    #[serde(default)]
    params: Map<String, Value>,
}

/// Connect a WebSocket for methods, their results, and events.
///
/// Every message is JSON text. `{"id": "1", "method": "task.session.status", "params": {…}}` is
/// answered `{"id": "1", "result": …}` or `{"id": "1", "error": {problem document}}`; answers may
/// come in another order than their requests. Methods: `task.session.create`, `list`, `status`,
/// `start`, `resume`, `prompt`, `cancel`, `pause`, `dismiss`, `close`, `answer` take what the HTTP
/// operation of that name takes, with `session_id` (or `wait_id`) and `idempotency_key` among the
/// params; `session.subscribe {session_id, after}`, `session.unsubscribe {session_id}`,
/// `tasks.subscribe`, `tasks.unsubscribe` and `ping` are the socket's own. `tasks.subscribe {"sessions":
/// true}` sends the events of `GET /events` (`listing`, `index`, `gone`, `task`, `task.*`), so that one
/// socket follows the list and any number of sessions. Events: `{"event": "session.message.added", "payload": {session_id, task_id, seq, …}}`.
/// The token is in the `Authorization` header or, from a browser, among the subprotocols:
/// `piton.v1, bearer.TOKEN`.
#[utoipa::path(get, path = "/ws", tag = "sockets",
    params(("Sec-WebSocket-Protocol" = Option<String>, Header, description = "`piton.v1`, and perhaps `bearer.TOKEN`")),
    responses((status = 101, description = "The socket is open"),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn connect(
    State(app): State<App>,
    connection: Connection,
    headers: HeaderMap,
    upgrade: std::result::Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response> {
    let bearer = presented(&app, &connection, &headers)?;
    let no_token = || Problem::new(Code::Unauthenticated, "The request carries no token");
    match app.admit(&connection, bearer.as_ref(), Scope::Read) {
        // Good for something else: each method asks for what it needs.
        Err(problem) if problem.code == Code::InsufficientScope => {}
        admitted => app.limits().take(&admitted?)?,
    }
    let bearer = bearer.ok_or_else(no_token)?;
    let upgrade = handshake(upgrade, MESSAGE_BYTES_MAX)?;
    let place = app.sockets().enter()?;
    Ok(upgrade.on_upgrade(move |socket| converse(app, connection, bearer, socket, place)))
}

/// What everything that a socket does shares.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) app: App,
    pub(super) connection: Connection,
    pub(super) bearer: Arc<Bearer>,
    pub(super) out: mpsc::Sender<Message>,
    pub(super) subscriptions: Subscriptions,
}

async fn converse(
    app: App,
    connection: Connection,
    bearer: Bearer,
    socket: WebSocket,
    place: SocketPermit,
) {
    let (sink, mut source) = socket.split();
    let (out, outgoing) = mpsc::channel(OUTGOING_MAX);
    let mut writing = tokio::spawn(write(sink, outgoing));
    let subscriptions = Subscriptions::default();
    let line = Line { app: app.clone(), connection, bearer: Arc::new(bearer), out, subscriptions };
    let mut requests = JoinSet::new();
    let (mut hearing, mut ticks) = (Life::new(Instant::now()), ticks());
    let held = Arc::clone(&line.bearer);
    let mut taken_back = std::pin::pin!(app.lost(Some(&held)));
    let mut is_taken = true;
    let why = loop {
        tokio::select! {
            biased;
            () = app.stop().cancelled() => break Some((closing::GOING_AWAY, "going away")),
            () = &mut taken_back => break Some(LOST),
            // The client does not read what the server sends.
            _ = &mut writing => {
                is_taken = false;
                break None;
            }
            message = source.next() => {
                hearing.heard(Instant::now());
                match message {
                    None | Some(Ok(Message::Close(_))) => break None,
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    Some(Ok(Message::Binary(_))) => {
                        break Some((closing::UNSUPPORTED, "messages are text"));
                    }
                    Some(Ok(Message::Text(text))) => {
                        if let Some(refusal) = take(&line, &text, &mut requests) {
                            // Read nothing more from a client that does not read its answers. The
                            // next iteration handles whatever ends this wait.
                            tokio::select! {
                                biased;
                                () = app.stop().cancelled() => {}
                                () = &mut taken_back => break Some(LOST),
                                _ = line.out.send(refusal) => {}
                            }
                        }
                    }
                    Some(Err(error)) => break Some(broken(error)),
                }
            }
            Some(_) = requests.join_next() => {}
            _ = ticks.tick() => {
                if hearing.pulse(Instant::now()) == Pulse::Gone {
                    break Some((closing::SILENT, "silent"));
                }
                // With no room for it there is something else on its way, which tells as much.
                let _ = line.out.try_send(Message::Ping("".into()));
            }
        }
    };
    if why.is_some_and(|(code, _)| code == closing::GOING_AWAY) {
        // What is being answered is answered.
        let answered = async { while requests.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(CLOSE_WAIT, answered).await;
    }
    // In this order: a request that is still at work could begin to listen.
    requests.shutdown().await;
    line.subscriptions.end_all().await;
    if let Some(why) = why {
        let _ = tokio::time::timeout(CLOSE_WAIT, line.out.send(close_frame(why))).await;
    }
    drop(line);
    // The last messages are on their way; then the other side says goodbye, or does not.
    let over = async {
        if is_taken {
            let _ = (&mut writing).await;
        }
        while let Some(Ok(_)) = source.next().await {}
    };
    let _ = tokio::time::timeout(CLOSE_WAIT, over).await;
    writing.abort();
    drop(place);
}

async fn write(mut sink: SplitSink<WebSocket, Message>, mut outgoing: mpsc::Receiver<Message>) {
    while let Some(message) = outgoing.recv().await {
        if send(&mut sink, message).await.is_none() {
            return;
        }
    }
}

/// Begins with what a message asks for; or what is to be answered at once.
fn take(line: &Line, text: &Utf8Bytes, requests: &mut JoinSet<()>) -> Option<Message> {
    let request: Request = match serde_json::from_str(text) {
        Ok(request) => request,
        Err(error) => {
            // Whatever else is wrong with it: if it names itself, so does the answer.
            let id = serde_json::from_str::<Map<String, Value>>(text).ok();
            let id = id.and_then(|mut map| map.remove("id")).filter(is_id);
            return Some(refusal(&id.into(), Problem::malformed(error.to_string())));
        }
    };
    if !is_id(&request.id) {
        let detail = "An id is a string of at most 128 bytes, or a number";
        return Some(refusal(&Value::Null, Problem::malformed(detail)));
    }
    if requests.len() >= REQUESTS_MAX {
        let title = format!("{REQUESTS_MAX} requests of this socket are being fulfilled");
        return Some(refusal(&request.id, Problem::new(Code::LimitReached, title)));
    }
    let line = line.clone();
    requests.spawn(async move {
        let Request { id, method, params } = request;
        let message = match Box::pin(methods::call(&line, &id, &method, params)).await {
            Ok(None) => return,
            Ok(Some(answer)) => answer,
            Err(problem) => refusal(&id, problem),
        };
        // The socket may be closed meanwhile.
        let _ = line.out.send(message).await;
    });
    None
}

fn is_id(id: &Value) -> bool {
    match id {
        Value::String(id) => id.len() <= 128,
        id => id.is_number(),
    }
}

fn refusal(id: &Value, problem: Problem) -> Message {
    let error = to_value(&problem.document()).unwrap_or_default();
    Message::text(json!({"id": id, "error": error}).to_string())
}
