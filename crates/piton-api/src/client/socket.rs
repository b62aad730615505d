//! The WebSocket: methods and their answers, and the events of the sessions that are subscribed to.

use std::collections::{BTreeMap, VecDeque};

use futures_util::{SinkExt as _, StreamExt as _};
use piton_core::Seq;
use piton_core::id::SessionId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{self, Message};

use super::http::unreachable;
use super::{Backoff, Client, Endpoint, Error, RESPONSE_TIMEOUT, Result};
use crate::problem::Problem;
use crate::socket_event::SocketEvent;

/// Events that wait to be taken while an answer is awaited; more than that, and the connection is
/// made again behind what was taken.
const PENDING_MAX: usize = 4_096;

#[derive(Deserialize)]
struct Incoming {
    #[serde(default)]
    id: Option<u64>,
    #[serde(default)]
    result: Option<Value>,
    #[serde(default)]
    error: Option<Box<Problem>>,
    #[serde(default)]
    event: Option<String>,
    #[serde(default)]
    payload: Option<Map<String, Value>>,
}

/// A connection that is made again when it is lost; subscriptions go on behind the last record that
/// was taken.
#[derive(Debug)]
pub struct Socket {
    client: Client,
    connection: Option<Connection>,
    /// By session: the last seq whose events were all taken.
    subscriptions: BTreeMap<SessionId, Seq>,
    next_id: u64,
    backoff: Backoff,
}

#[derive(Debug)]
struct Connection {
    endpoint: Endpoint,
    stream: WebSocketStream<TcpStream>,
    pending: VecDeque<SocketEvent>,
}

impl Client {
    /// Opens a WebSocket.
    pub async fn socket(&self) -> Result<Socket> {
        let connection = Connection::open(self).await?;
        Ok(Socket {
            client: self.clone(),
            connection: Some(connection),
            subscriptions: BTreeMap::new(),
            next_id: 0,
            backoff: Backoff::default(),
        })
    }
}

impl Connection {
    async fn open(client: &Client) -> Result<Self> {
        let endpoint = client.endpoint()?;
        let authority = endpoint.authority()?.to_owned();
        let connecting = async {
            let stream = TcpStream::connect(&authority).await?;
            // Messages are small, and must not wait for more of them.
            let _ = stream.set_nodelay(true);
            let mut request = format!("ws://{authority}/api/v1/ws").into_client_request()?;
            let token = format!("Bearer {}", endpoint.token).parse();
            let token = token.map_err(|_| tungstenite::Error::Utf8("the token".to_owned()))?;
            request.headers_mut().insert("authorization", token);
            Ok(tokio_tungstenite::client_async(request, stream).await?.0)
        };
        match connecting.await {
            Ok(stream) => Ok(Self { endpoint, stream, pending: VecDeque::new() }),
            Err(tungstenite::Error::Http(response)) => {
                let body = response.body().as_deref().unwrap_or_default();
                Err(super::http::refused(&endpoint, response.status(), body))
            }
            Err(error) => Err(unreachable(&endpoint, error)),
        }
    }

    async fn next(&mut self) -> Result<Incoming> {
        loop {
            let message = self.stream.next().await;
            let message = message.ok_or_else(|| unreachable(&self.endpoint, "closed"))?;
            match message.map_err(|error| unreachable(&self.endpoint, error))? {
                Message::Text(text) => {
                    let read = serde_json::from_str(&text);
                    return read.map_err(|error| unreachable(&self.endpoint, error));
                }
                Message::Close(_) => return Err(unreachable(&self.endpoint, "closed")),
                _ => {}
            }
        }
    }

    /// Sends a request and waits for its answer; events that come first are kept.
    async fn call(&mut self, id: u64, method: &str, params: &Value) -> Result<Value> {
        let request = json!({"id": id, "method": method, "params": params}).to_string();
        let sent = self.stream.send(Message::text(request)).await;
        sent.map_err(|error| unreachable(&self.endpoint, error))?;
        loop {
            let incoming = self.next().await?;
            if let (Some(event), Some(payload)) = (incoming.event, incoming.payload) {
                if self.pending.len() >= PENDING_MAX {
                    return Err(unreachable(&self.endpoint, "too many events are not taken"));
                }
                self.pending.push_back(SocketEvent::read(event, payload));
            } else if incoming.id == Some(id) {
                return match incoming.error {
                    Some(problem) => Err(Error::Problem(problem)),
                    None => Ok(incoming.result.unwrap_or_default()),
                };
            }
        }
    }
}

impl Socket {
    async fn connected(&mut self) -> Result<&mut Connection> {
        if self.connection.is_none() {
            let mut connection = Connection::open(&self.client).await?;
            for (session, after) in &self.subscriptions {
                self.next_id += 1;
                let params = json!({"session_id": session, "after": after});
                connection.call(self.next_id, "session.subscribe", &params).await?;
            }
            self.connection = Some(connection);
        }
        // It was just made, or was there.
        self.connection.as_mut().ok_or(Error::NotRunning)
    }

    /// Calls a method. It is sent once: whether one whose answer was lost was carried out is found
    /// out by its idempotency key.
    pub async fn call<T: DeserializeOwned>(
        &mut self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<T> {
        let endpoint = self.client.endpoint()?;
        let params = serde_json::to_value(params).map_err(|e| unreachable(&endpoint, e))?;
        self.next_id += 1;
        let id = self.next_id;
        let connection = self.connected().await?;
        let called = connection.call(id, method, &params);
        let called = match tokio::time::timeout(RESPONSE_TIMEOUT, called).await {
            Ok(called) => called,
            Err(late) => Err(unreachable(&endpoint, late)),
        };
        if called.as_ref().is_err_and(Error::is_connection) {
            self.connection = None;
        }
        serde_json::from_value(called?).map_err(|error| unreachable(&endpoint, error))
    }

    /// Subscribes to a session's events from after a position.
    pub async fn subscribe(&mut self, session: &SessionId, after: Seq) -> Result<()> {
        let params = json!({"session_id": session, "after": after});
        let _: Value = self.call("session.subscribe", &params).await?;
        self.subscriptions.insert(session.clone(), after);
        Ok(())
    }

    /// Ends a subscription.
    pub async fn unsubscribe(&mut self, session: &SessionId) -> Result<()> {
        self.subscriptions.remove(session);
        let _: Value = self.call("session.unsubscribe", &json!({"session_id": session})).await?;
        if let Some(connection) = &mut self.connection {
            connection.pending.retain(|event| event.session_id() != Some(session.as_str()));
        }
        Ok(())
    }

    /// The next event of a session that is subscribed to, over lost connections. Safe to cancel
    /// while nothing is being connected.
    pub async fn next_event(&mut self) -> Result<SocketEvent> {
        loop {
            let next = match self.connected().await {
                Ok(connection) => match connection.pending.pop_front() {
                    Some(event) => Ok(Some(event)),
                    None => connection.next().await.map(|incoming| {
                        let Incoming { event, payload, .. } = incoming;
                        Some(SocketEvent::read(event?, payload?))
                    }),
                },
                Err(error) => Err(error),
            };
            match next {
                Ok(Some(event)) => {
                    self.backoff.reset();
                    self.note(&event);
                    return Ok(event);
                }
                Ok(None) => {}
                Err(error) if error.is_connection() => {
                    self.connection = None;
                    tokio::time::sleep(self.backoff.delay()).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn note(&mut self, event: &SocketEvent) {
        if let (Some(seq), Some(session), false) =
            (event.seq(), event.session_id(), event.has_more())
            && let Ok(session) = session.parse::<SessionId>()
            && let Some(after) = self.subscriptions.get_mut(&session)
        {
            *after = seq.max(*after);
        }
    }
}
