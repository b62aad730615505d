//! A shell's socket: what is typed goes in, what it writes comes out, byte for byte. It stands
//! between a client and agentctl's own socket, and ends when either of them does.

use std::time::Instant;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::SplitSink;
use piton_api::problem::Problem as Document;
use piton_core::access::{Bearer, Scope};
use piton_core::planted::{self, Bug};
use piton_exec::client::{ShellKeyboard, ShellScreen, ShellSocket};
use piton_runtime::check_terminal_side;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;

use super::{
    CLOSE_WAIT, LOST, Life, Pulse, SocketPermit, Why, broken, close_frame, closing, handshake,
    presented, send, ticks,
};
use crate::api::workspace::of_shell;
use crate::app::App;
use crate::connections::Connection;
use crate::extract::Path;
use crate::problem::Result;

/// What may be typed at once.
const TYPED_BYTES_MAX: usize = 256 * 1024;
/// What was typed and not taken by the shell yet, in messages.
const TYPED_MAX: usize = 16;

/// What a client says as text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Control {
    resize: Resize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resize {
    cols: u16,
    rows: u16,
}

enum Typed {
    Bytes(Bytes),
    Resize(Resize),
}

/// Attach to a shell's screen and keyboard, over a WebSocket.
///
/// Binary messages are the terminal's bytes, both ways; what the shell wrote last comes first. Text
/// `{"resize": {"cols": 80, "rows": 24}}` resizes it. When the shell ends, text
/// `{"exit_code": 0, "signal": null}` says how, and the socket is closed.
#[utoipa::path(get, path = "/sessions/{session_id}/shells/{shell_id}/socket", tag = "sockets",
    params(("session_id" = String, Path, description = "The session's id"),
        ("shell_id" = String, Path, description = "The shell's id"),
        ("Sec-WebSocket-Protocol" = Option<String>, Header, description = "`piton.v1`, and perhaps `bearer.TOKEN`")),
    responses((status = 101, description = "The socket is open"),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn attach(
    State(app): State<App>,
    Path((session, shell_id)): Path<(String, String)>,
    connection: Connection,
    headers: HeaderMap,
    upgrade: std::result::Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response> {
    let bearer = presented(&app, &connection, &headers)?;
    let principal = app.admit(&connection, bearer.as_ref(), Scope::Control)?;
    app.limits().take(&principal)?;
    let upgrade = handshake(upgrade, TYPED_BYTES_MAX)?;
    let client = of_shell(&app, &session, &shell_id).await?;
    let shell = client.attach_shell(&shell_id).await?;
    let place = app.sockets().enter()?;
    let place = (!planted::is(Bug::ShellSocketUncounted)).then_some(place);
    Ok(upgrade.on_upgrade(move |socket| show(app, bearer, socket, shell, place)))
}

async fn show(
    app: App,
    bearer: Option<Bearer>,
    socket: WebSocket,
    shell: ShellSocket,
    place: Option<SocketPermit>,
) {
    let (mut sink, mut source) = socket.split();
    let (screen, keyboard) = shell.split();
    let (out, outgoing) = mpsc::channel(1);
    let (keys, typed) = mpsc::channel(TYPED_MAX);
    let why = {
        // Each waits for its own other side only: a shell that does not read is still shown.
        let reading = async {
            read(screen, out).await;
            // How it ended is on its way: that is shown before anything else ends this.
            std::future::pending::<()>().await;
        };
        let typing = type_in(keyboard, typed);
        let showing = write(&mut sink, outgoing);
        let taking = take(&mut source, keys);
        tokio::select! {
            biased;
            () = app.stop().cancelled() => Some((closing::GOING_AWAY, "going away")),
            () = app.lost(bearer.as_ref()) => Some(LOST),
            why = showing => why,
            () = reading => None,
            () = typing => Some((closing::TRY_AGAIN, "the shell takes nothing")),
            why = taking => why,
        }
    };
    if let Some(why) = why {
        let _ = tokio::time::timeout(CLOSE_WAIT, send(&mut sink, close_frame(why))).await;
        let over = async { while let Some(Ok(_)) = source.next().await {} };
        let _ = tokio::time::timeout(CLOSE_WAIT, over).await;
    }
    drop(place);
}

/// What the shell writes, until it has ended.
async fn read(mut screen: ShellScreen, out: mpsc::Sender<Out>) {
    let last = loop {
        match screen.read().await {
            Ok(Some(bytes)) => {
                if out.send(Out::Message(Message::Binary(bytes))).await.is_err() {
                    return;
                }
            }
            Ok(None) => break screen.ended().cloned(),
            Err(error) => {
                tracing::debug!(code = %error.code(), %error, "a shell's socket ended");
                break None;
            }
        }
    };
    let last = match last {
        Some(ended) => {
            let said = json!({"exit_code": ended.exit_code, "signal": ended.signal});
            let _ = out.send(Out::Message(Message::text(said.to_string()))).await;
            (closing::NORMAL, "ended")
        }
        // Cut off for being too slow, or agentctl is gone: the shell may live, and be shown again.
        None => (closing::TRY_AGAIN, "the connection to the shell is lost"),
    };
    let _ = out.send(Out::End(last)).await;
}

enum Out {
    Message(Message),
    End(Why),
}

/// Sends the shell's output and returns why it ended; `None` if the client no longer reads.
async fn write(
    sink: &mut SplitSink<WebSocket, Message>,
    mut outgoing: mpsc::Receiver<Out>,
) -> Option<Why> {
    let mut pings = ticks();
    loop {
        let message = tokio::select! {
            next = outgoing.recv() => match next? {
                Out::Message(message) => message,
                Out::End(why) => return Some(why),
            },
            _ = pings.tick() => Message::Ping("".into()),
        };
        send(sink, message).await?;
    }
}

/// Types it; resolves when the shell takes no more while it lives.
async fn type_in(mut keyboard: ShellKeyboard, mut typed: mpsc::Receiver<Typed>) {
    while let Some(typed) = typed.recv().await {
        let done = match typed {
            Typed::Bytes(bytes) => keyboard.type_bytes(bytes).await,
            Typed::Resize(Resize { cols, rows }) => keyboard.resize(cols, rows).await,
        };
        if let Err(error) = done {
            tracing::debug!(code = %error.code(), %error, "a shell takes no input");
            // If it has ended, that is what is to be told.
            return tokio::time::sleep(CLOSE_WAIT).await;
        }
    }
    // No more input comes. The reading side decides when the connection ends.
    std::future::pending::<()>().await;
}

/// What a client says, until it leaves or must.
async fn take(
    source: &mut (impl futures_util::Stream<Item = std::result::Result<Message, axum::Error>> + Unpin),
    keys: mpsc::Sender<Typed>,
) -> Option<Why> {
    let (mut life, mut pulses) = (Life::new(Instant::now()), ticks());
    loop {
        let message = tokio::select! {
            message = source.next() => message,
            _ = pulses.tick() => {
                if life.pulse(Instant::now()) == Pulse::Gone {
                    return Some((closing::SILENT, "silent"));
                }
                continue;
            }
        };
        life.heard(Instant::now());
        let typed = match message {
            None | Some(Ok(Message::Close(_))) => return None,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
            Some(Ok(Message::Binary(bytes))) => Typed::Bytes(bytes),
            Some(Ok(Message::Text(text))) => match serde_json::from_str::<Control>(&text) {
                Ok(Control { resize })
                    if [resize.cols, resize.rows]
                        .into_iter()
                        .all(|side| check_terminal_side(side).is_ok()) =>
                {
                    Typed::Resize(resize)
                }
                _ => {
                    return Some((
                        closing::UNSUPPORTED,
                        "text is {\"resize\":{\"cols\":1,\"rows\":1}}",
                    ));
                }
            },
            Some(Err(error)) => return Some(broken(error)),
        };
        // A shell that does not read stops its typist, as a terminal does.
        keys.send(typed).await.ok()?;
    }
}
