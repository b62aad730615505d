//! A spool as it grows.

use std::io;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use hyper::header::{CONNECTION, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use hyper::{Method, Request};
use piton_core::spool::Pos;
use piton_core::{AnyCode, Code};
use tokio::net::UnixStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};

use super::{ASK_WAIT, Client, ClientError, connect, refused, within};
use crate::protocol::{Ack, Frame, Problem, closing};
use crate::spool::format;

const ACK_WAIT: Duration = Duration::from_secs(10);

/// A stream of a spool's entries. Ends when agentctl ends, or when a later
/// stream or a client with a higher epoch replaces it.
#[derive(Debug)]
pub struct Stream {
    socket: WebSocketStream<UnixStream>,
}

impl Client {
    /// The entries of a spool behind `after`, and what comes.
    pub async fn stream(&self, spool_id: &str, after: Pos) -> Result<Stream, ClientError> {
        let protocol = self.version().await?;
        let path = format!("/stream?spool_id={spool_id}&after={after}");
        Ok(Stream { socket: self.web_socket(&path, protocol).await? })
    }

    pub(super) async fn web_socket(
        &self,
        path: &str,
        protocol: u32,
    ) -> Result<WebSocketStream<UnixStream>, ClientError> {
        let request: Request<()> = self
            .request(Method::GET, &format!("ws://agentctl{path}"), protocol)
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, generate_key())
            .body(())
            .map_err(|e| ClientError::Protocol(e.to_string()))?;
        let bytes_max = usize::try_from(format::FRAME_BYTES_MAX).unwrap_or(usize::MAX);
        let config = WebSocketConfig::default()
            .max_message_size(Some(bytes_max))
            .max_frame_size(Some(bytes_max));
        let stream = connect(&self.socket).await?;
        let shaking = async {
            let shaken =
                tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await;
            match shaken {
                Ok((socket, _)) => Ok(socket),
                Err(tungstenite::Error::Http(answer)) => {
                    let body = answer.body().clone().unwrap_or_default();
                    Err(refused(answer.status(), &body))
                }
                Err(error) => Err(broken(error)),
            }
        };
        within(ASK_WAIT, shaking).await
    }
}

impl Stream {
    /// The next entries; `None` when agentctl has ended and everything was given. May be dropped
    /// while it waits.
    pub async fn next(&mut self) -> Result<Option<Frame>, ClientError> {
        loop {
            let message = match self.socket.next().await {
                Some(message) => message.map_err(broken)?,
                None => return Err(gone()),
            };
            match message {
                Message::Text(text) => {
                    let frame = serde_json::from_str(&text);
                    return frame.map(Some).map_err(|e| ClientError::Protocol(e.to_string()));
                }
                Message::Close(Some(frame)) if u16::from(frame.code) == closing::OVER => {
                    return Ok(None);
                }
                Message::Close(Some(frame)) => return Err(ended(&frame.reason)),
                Message::Close(None) => return Err(gone()),
                _ => {}
            }
        }
    }

    /// Everything up to `pos` is durable here: agentctl may forget it.
    pub async fn ack(&mut self, pos: Pos) -> Result<(), ClientError> {
        let text = serde_json::to_string(&Ack { ack: pos });
        let text = text.map_err(|e| ClientError::Protocol(e.to_string()))?;
        let sent = async { self.socket.send(Message::text(text)).await.map_err(broken) };
        within(ACK_WAIT, sent).await
    }
}

fn gone() -> ClientError {
    ClientError::Unreachable(io::ErrorKind::UnexpectedEof.into())
}

/// agentctl ended this stream and not itself.
fn ended(why: &str) -> ClientError {
    let code = AnyCode::from(why);
    let message = match code.known() {
        Some(Code::EpochStale) => "A server with a higher epoch has taken over",
        Some(Code::StreamReplaced) => "A later stream has taken this one's place",
        _ => "agentctl ended the stream",
    };
    ClientError::Problem(Problem { code, message: message.to_owned() })
}

pub(super) fn broken(error: tungstenite::Error) -> ClientError {
    match error {
        tungstenite::Error::Io(e) => ClientError::Unreachable(e),
        tungstenite::Error::ConnectionClosed
        | tungstenite::Error::AlreadyClosed
        | tungstenite::Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => gone(),
        other => ClientError::Protocol(other.to_string()),
    }
}
