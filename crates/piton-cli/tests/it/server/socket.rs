//! A WebSocket client that knows no more than the protocol.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::handshake::HandshakeError;
use tokio_tungstenite::tungstenite::http::HeaderName;
use tokio_tungstenite::tungstenite::{self, Error, Message, WebSocket};

use crate::server::world::{TEST_TIMEOUT, World};

pub(crate) struct Socket {
    pub(crate) inner: WebSocket<TcpStream>,
    /// The subprotocol that was chosen.
    pub(crate) protocol: Option<String>,
    next: u64,
    events: VecDeque<Value>,
}

/// What came instead of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// Nothing, for as long as was waited.
    Nothing,
    /// The socket was closed, with this code.
    Closed(Option<u16>),
}

impl Socket {
    pub(crate) fn open(world: &World, path: &str, headers: &[(&str, &str)]) -> Result<Self, Value> {
        Self::open_at(&world.address, path, headers)
    }

    /// The same at any server.
    pub(crate) fn open_at(
        address: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Self, Value> {
        let host = address.trim_start_matches("http://");
        let mut request = format!("ws://{host}{path}").into_client_request().unwrap();
        for (name, value) in headers {
            let name: HeaderName = name.parse().unwrap();
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        let stream = TcpStream::connect(host).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        match tungstenite::client(request, stream) {
            Ok((inner, response)) => {
                let protocol = response.headers().get("sec-websocket-protocol");
                let protocol = protocol.map(|value| value.to_str().unwrap().to_owned());
                Ok(Self { inner, protocol, next: 0, events: VecDeque::new() })
            }
            Err(HandshakeError::Failure(Error::Http(response))) => {
                let body = response.body().clone().unwrap_or_default();
                Err(serde_json::from_slice(&body).unwrap_or_default())
            }
            Err(error) => panic!("no handshake: {error}"),
        }
    }

    pub(crate) fn connect(world: &World) -> Self {
        let bearer = format!("Bearer {}", world.token);
        Self::open(world, "/api/v1/ws", &[("authorization", &bearer)]).unwrap()
    }

    pub(crate) fn read(&mut self, timeout: Duration) -> Result<Message, Silence> {
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = left.max(Duration::from_millis(1));
            self.inner.get_ref().set_read_timeout(Some(left)).unwrap();
            match self.inner.read() {
                Ok(Message::Ping(_) | Message::Pong(_)) => {}
                Ok(Message::Close(frame)) => {
                    return Err(Silence::Closed(frame.map(|frame| frame.code.into())));
                }
                Ok(message) => return Ok(message),
                Err(Error::Io(error))
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    return Err(Silence::Nothing);
                }
                Err(_) => return Err(Silence::Closed(None)),
            }
        }
    }

    fn json(&mut self, timeout: Duration) -> Result<Value, Silence> {
        match self.read(timeout)? {
            Message::Text(text) => Ok(serde_json::from_str(&text).unwrap()),
            other => panic!("not text: {other:?}"),
        }
    }

    pub(crate) fn say(&mut self, text: &str) {
        self.inner.send(Message::text(text)).unwrap();
    }

    /// Asks without waiting for the answer.
    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> String {
        self.next += 1;
        let id = self.next.to_string();
        self.say(&json!({"id": id, "method": method, "params": params}).to_string());
        id
    }

    /// The next answer; events that come before it are kept.
    pub(crate) fn answer(&mut self) -> Value {
        loop {
            let message = self.json(TEST_TIMEOUT).unwrap();
            if message.get("event").is_none() {
                return message;
            }
            self.events.push_back(message);
        }
    }

    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        let id = self.ask(method, params);
        let answer = self.answer();
        assert_eq!(answer["id"], id.as_str());
        answer
    }

    pub(crate) fn good(&mut self, method: &str, params: &Value) -> Value {
        let answer = self.call(method, params);
        assert!(answer.get("error").is_none(), "{method}: {answer:#}");
        answer["result"].clone()
    }

    /// The code with which a method is refused.
    pub(crate) fn refused(&mut self, method: &str, params: &Value) -> String {
        let answer = self.call(method, params);
        answer["error"]["code"].as_str().unwrap_or_else(|| panic!("{answer:#}")).to_owned()
    }

    /// The next event.
    pub(crate) fn event(&mut self, timeout: Duration) -> Result<Value, Silence> {
        match self.events.pop_front() {
            Some(event) => Ok(event),
            None => self.json(timeout),
        }
    }

    /// Events up to one that is wanted, with it.
    pub(crate) fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut seen = Vec::new();
        loop {
            let event = self.event(TEST_TIMEOUT);
            let event = event.unwrap_or_else(|silence| panic!("{silence:?} after {seen:#?}"));
            seen.push(event);
            if wanted(&seen[seen.len() - 1]) {
                return seen;
            }
        }
    }

    /// The code with which the socket is closed, whatever comes before.
    pub(crate) fn closed(&mut self) -> Option<u16> {
        loop {
            match self.read(TEST_TIMEOUT) {
                Ok(_) => {}
                Err(Silence::Closed(code)) => return code,
                Err(Silence::Nothing) => panic!("not closed"),
            }
        }
    }
}
