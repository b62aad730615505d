//! `WebSocket` connections: one for methods and events, and one for each attached shell.

pub(crate) mod conversation;
mod methods;
pub(crate) mod shell;
mod subscriptions;
pub(crate) mod translate;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::http::{HeaderMap, header};
use futures_util::SinkExt as _;
use futures_util::stream::SplitSink;
use piton_core::Code;
use piton_core::access::{AccessDenied, Bearer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_tungstenite::tungstenite;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::app::App;
use crate::connections::Connection;
use crate::extract;
use crate::problem::{Problem, Result};
pub use methods::{OPERATIONS, Operation};

/// The version that is spoken, as a subprotocol.
const PROTOCOL: &str = "piton.v1";
/// What a browser, which can set no headers, puts before its token.
const BEARER: &str = "bearer.";
/// How often the server pings a client.
const PING_EVERY: Duration = Duration::from_secs(20);
/// A client that is silent for this long counts as gone.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// How long a message may take to be taken.
const WRITE_WAIT: Duration = Duration::from_secs(30);
/// How long the other side may take to say goodbye.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// Why a socket is closed: codes of RFC 6455, and ours from 4000 on.
mod closing {
    pub(super) const NORMAL: u16 = 1000;
    pub(super) const GOING_AWAY: u16 = 1001;
    pub(super) const PROTOCOL_ERROR: u16 = 1002;
    pub(super) const UNSUPPORTED: u16 = 1003;
    pub(super) const NOT_UTF8: u16 = 1007;
    pub(super) const NOT_ALLOWED: u16 = 1008;
    pub(super) const TOO_LARGE: u16 = 1009;
    pub(super) const TRY_AGAIN: u16 = 1013;
    pub(super) const SILENT: u16 = 4008;
}

/// A code and a word about it.
type Why = (u16, &'static str);

/// A token opens nothing for longer than until it is taken back, or has run out.
const LOST: Why = (closing::NOT_ALLOWED, "the token is not good any more");

/// The sockets that are open: so many and no more, and a server's end waits for theirs.
#[derive(Debug)]
pub(crate) struct Sockets {
    places: Arc<Semaphore>,
    open: TaskTracker,
}

/// Held for as long as a socket is open.
#[derive(Debug)]
pub(crate) struct SocketPermit {
    _permit: OwnedSemaphorePermit,
    _open: TaskTrackerToken,
}

impl Sockets {
    pub(crate) fn new(sockets_max: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(sockets_max)), open: TaskTracker::new() }
    }

    fn enter(&self) -> Result<SocketPermit> {
        let full = |_| Problem::new(Code::LimitReached, "There are too many sockets already");
        let permit = Arc::clone(&self.places).try_acquire_owned().map_err(full)?;
        Ok(SocketPermit { _permit: permit, _open: self.open.token() })
    }

    /// Resolves when all are closed.
    pub(crate) async fn over(&self) {
        self.open.close();
        self.open.wait().await;
    }
}

/// Who opens a socket, by header or by subprotocol, and that a version is offered which is spoken.
/// Never by the address: addresses are kept in histories and logs.
fn credentials(headers: &HeaderMap) -> Result<Option<Bearer>> {
    let mut offered = Vec::new();
    for value in headers.get_all(header::SEC_WEBSOCKET_PROTOCOL) {
        let value = value.to_str().map_err(|_| Problem::malformed("A subprotocol is no text"))?;
        offered.extend(value.split(',').map(str::trim));
    }
    if !offered.is_empty() && !offered.contains(&PROTOCOL) {
        return Err(Problem::malformed(format!(
            "The only subprotocol that is spoken is {PROTOCOL}"
        )));
    }
    if headers.contains_key(header::AUTHORIZATION) {
        return extract::bearer(headers);
    }
    let token = offered.iter().find_map(|offer| offer.strip_prefix(BEARER));
    Ok(token.map(str::parse).transpose().map_err(|_| AccessDenied::Unknown)?)
}

/// The same; what is no token is counted like a wrong one.
fn presented(app: &App, connection: &Connection, headers: &HeaderMap) -> Result<Option<Bearer>> {
    extract::presented(app, connection, credentials(headers))
}

/// Refuses a request that is not a WebSocket handshake.
fn handshake(
    upgrade: std::result::Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    message_bytes_max: usize,
) -> Result<WebSocketUpgrade> {
    let upgrade = upgrade.map_err(|rejection| Problem::malformed(rejection.body_text()))?;
    Ok(upgrade
        .protocols([PROTOCOL])
        .max_message_size(message_bytes_max)
        .max_frame_size(message_bytes_max))
}

/// What is known of the other side's life.
#[derive(Debug)]
struct Life {
    heard_at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pulse {
    Ask,
    Gone,
}

impl Life {
    fn new(now: Instant) -> Self {
        Self { heard_at: now }
    }

    fn heard(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// What to do when it is time to ask.
    fn pulse(&self, now: Instant) -> Pulse {
        if now.saturating_duration_since(self.heard_at) > SILENCE_MAX {
            return Pulse::Gone;
        }
        Pulse::Ask
    }
}

fn ticks() -> tokio::time::Interval {
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + PING_EVERY, PING_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks
}

fn close_frame((code, reason): Why) -> Message {
    Message::Close(Some(CloseFrame { code, reason: reason.into() }))
}

/// Sends one message; `None` if the client does not read it in time or has left.
async fn send(sink: &mut SplitSink<WebSocket, Message>, message: Message) -> Option<()> {
    tokio::time::timeout(WRITE_WAIT, sink.send(message)).await.ok()?.ok()
}

/// Why what came in cannot be read.
fn broken(error: axum::Error) -> Why {
    match error.into_inner().downcast_ref::<tungstenite::Error>() {
        Some(tungstenite::Error::Capacity(_)) => (closing::TOO_LARGE, "too large"),
        Some(tungstenite::Error::Utf8(_)) => (closing::NOT_UTF8, "not UTF-8"),
        _ => (closing::PROTOCOL_ERROR, "not understood"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_misses_two_pings_is_gone() {
        let begin = Instant::now();
        let mut life = Life::new(begin);
        assert_eq!(life.pulse(begin + PING_EVERY), Pulse::Ask);
        assert_eq!(life.pulse(begin + 2 * PING_EVERY), Pulse::Ask);
        assert_eq!(life.pulse(begin + 3 * PING_EVERY), Pulse::Gone);
        life.heard(begin + 2 * PING_EVERY);
        assert_eq!(life.pulse(begin + 3 * PING_EVERY), Pulse::Ask);
    }

    #[test]
    fn a_token_comes_by_header_or_by_subprotocol() {
        let token = format!("key_1.{}", "0".repeat(64));
        let with = |pairs: &[(header::HeaderName, String)]| {
            let pairs = pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap()));
            credentials(&pairs.collect())
        };
        let offer = |text: String| with(&[(header::SEC_WEBSOCKET_PROTOCOL, text)]);
        let expected: Bearer = token.parse().unwrap();
        assert!(with(&[]).unwrap().is_none());
        assert!(offer("piton.v1".into()).unwrap().is_none());
        assert_eq!(offer(format!("piton.v1, bearer.{token}")).unwrap(), Some(expected.clone()));
        assert_eq!(offer(format!("bearer.{token},piton.v1")).unwrap(), Some(expected.clone()));
        let headed = with(&[(header::AUTHORIZATION, format!("Bearer {token}"))]);
        assert_eq!(headed.unwrap(), Some(expected));
        for (offered, code) in [
            (format!("bearer.{token}"), Code::RequestInvalid),
            ("piton.v2".to_owned(), Code::RequestInvalid),
            ("piton.v1, bearer.x".to_owned(), Code::Unauthenticated),
        ] {
            assert_eq!(offer(offered).unwrap_err().code, code);
        }
    }
}
