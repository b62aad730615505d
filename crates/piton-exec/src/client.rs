//! A server's side of the [`protocol`](crate::protocol).
//!
//! A request is a connection of its own: they are rare, and a connection that is kept would have
//! to be watched. Everything has a time-out except waiting for the next frame of a stream.

mod stream;
mod workspace;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use zeroize::Zeroizing;

use crate::protocol::{
    self, Alive, Capabilities, Command, EPOCH, Health, PROTOCOL, PROTOCOL_HEADER, PROTOCOL_MIN,
    Problem, Reply,
};
use piton_core::{AnyCode, Code};

pub use stream::Stream;
pub use workspace::{ShellKeyboard, ShellScreen, ShellSocket};

const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// For what agentctl knows by heart.
const ASK_WAIT: Duration = Duration::from_secs(10);
/// For what the agent or the disk has a part in. The end of an agent is the longest.
const COMMAND_WAIT: Duration = Duration::from_secs(90);
/// Longest path of a socket that the kernel takes.
const SOCKET_BYTES_MAX: usize = 107;
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// agentctl refused it, and says why.
    #[error(transparent)]
    Problem(Problem),
    /// agentctl did not answer. It may still have executed the command: repeat it under its id.
    #[error("agentctl does not answer")]
    Unreachable(#[source] io::Error),
    /// The answer is not one that this program understands.
    #[error("agentctl speaks another language: {0}")]
    Protocol(String),
}

impl ClientError {
    pub fn code(&self) -> AnyCode {
        match self {
            Self::Problem(problem) => problem.code.clone(),
            Self::Unreachable(_) => Code::AgentctlUnreachable.into(),
            Self::Protocol(_) => Code::ProtocolUnsupported.into(),
        }
    }
}

/// Speaks to one agentctl. Clones share what they know of it.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    bearer: Secret,
    epoch: u64,
    /// The version that was agreed on; 0: none yet.
    spoken: Arc<AtomicU32>,
    protocol_max: u32,
}

/// A token does not show.
#[derive(Clone)]
struct Secret(Arc<Zeroizing<String>>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Client {
    pub fn new(socket: impl Into<PathBuf>, secret: &[u8; 32], epoch: u64) -> Self {
        let bearer = Secret(Arc::new(Zeroizing::new(protocol::bearer(secret))));
        let spoken = Arc::new(AtomicU32::new(0));
        Self { socket: socket.into(), bearer, epoch, spoken, protocol_max: PROTOCOL }
    }

    /// A client that is older than it is; for tests of an upgrade.
    pub fn with_protocol_max(mut self, protocol_max: u32) -> Self {
        self.protocol_max = protocol_max;
        self.spoken = Arc::default();
        self
    }

    /// The socket that it is reached at.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// How agentctl is, whatever versions it speaks.
    pub async fn health_of_any(&self) -> Result<Health, ClientError> {
        let request = self.request(Method::GET, "/health", PROTOCOL_MIN);
        self.json(request, Bytes::new(), ASK_WAIT).await
    }

    /// How agentctl is. Settles which version of the protocol is spoken from here on.
    pub async fn health(&self) -> Result<Health, ClientError> {
        let health = self.health_of_any().await?;
        let spoken = agree(health.protocol, (PROTOCOL_MIN, self.protocol_max))?;
        self.spoken.store(spoken, Ordering::Relaxed);
        Ok(health)
    }

    pub async fn capabilities(&self) -> Result<Capabilities, ClientError> {
        self.get("/capabilities", ASK_WAIT).await
    }

    /// Has something done. [`ClientError::Unreachable`] says nothing about whether it was: repeat
    /// it under the same id.
    pub async fn command(&self, command: &Command) -> Result<Reply, ClientError> {
        let body = serde_json::to_vec(command).map_err(|e| ClientError::Protocol(e.to_string()))?;
        let request = self.request(Method::POST, "/commands", self.version().await?);
        self.json(request, body.into(), COMMAND_WAIT).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str, wait: Duration) -> Result<T, ClientError> {
        let request = self.request(Method::GET, path, self.version().await?);
        self.json(request, Bytes::new(), wait).await
    }

    /// The version to speak; asked for once.
    async fn version(&self) -> Result<u32, ClientError> {
        match self.spoken.load(Ordering::Relaxed) {
            0 => {
                self.health().await?;
                Ok(self.spoken.load(Ordering::Relaxed))
            }
            spoken => Ok(spoken),
        }
    }

    fn request(&self, method: Method, path: &str, protocol: u32) -> hyper::http::request::Builder {
        Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "agentctl")
            .header(AUTHORIZATION, format!("Bearer {}", self.bearer.0.as_str()))
            .header(EPOCH, self.epoch)
            .header(PROTOCOL_HEADER, protocol)
    }

    async fn json<T: DeserializeOwned>(
        &self,
        request: hyper::http::request::Builder,
        body: Bytes,
        wait: Duration,
    ) -> Result<T, ClientError> {
        let answer = self.bytes(request, body, wait).await?;
        serde_json::from_slice(&answer).map_err(|e| ClientError::Protocol(e.to_string()))
    }

    async fn bytes(
        &self,
        request: hyper::http::request::Builder,
        body: Bytes,
        wait: Duration,
    ) -> Result<Bytes, ClientError> {
        let request =
            request.body(Full::new(body)).map_err(|e| ClientError::Protocol(e.to_string()))?;
        let stream = connect(&self.socket).await?;
        let (status, answer) = within(wait, exchange(stream, request)).await?;
        if status.is_success() { Ok(answer) } else { Err(refused(status, &answer)) }
    }
}

/// The newest version that both speak.
fn agree(theirs: (u32, u32), ours: (u32, u32)) -> Result<u32, ClientError> {
    let newest = theirs.1.min(ours.1);
    if newest < theirs.0.max(ours.0) {
        return Err(ClientError::Protocol(format!(
            "It speaks protocol {} to {}, this program {} to {}",
            theirs.0, theirs.1, ours.0, ours.1
        )));
    }
    Ok(newest)
}

/// Asks which agentctl answers at this socket. Needs no secret.
pub(crate) async fn alive(socket: &Path) -> Result<Alive, ClientError> {
    let request = Request::get("/alive").header(HOST, "agentctl").body(Full::new(Bytes::new()));
    let request = request.map_err(|e| ClientError::Protocol(e.to_string()))?;
    let stream = connect(socket).await?;
    let (status, answer) = within(ASK_WAIT, exchange(stream, request)).await?;
    if !status.is_success() {
        return Err(refused(status, &answer));
    }
    serde_json::from_slice(&answer).map_err(|e| ClientError::Protocol(e.to_string()))
}

fn refused(status: StatusCode, answer: &[u8]) -> ClientError {
    match serde_json::from_slice(answer) {
        Ok(problem) => ClientError::Problem(problem),
        Err(_) => ClientError::Protocol(format!("It answered {status}")),
    }
}

async fn connect(socket: &Path) -> Result<UnixStream, ClientError> {
    within(CONNECT_WAIT, async {
        let short = Short::of(socket).map_err(ClientError::Unreachable)?;
        UnixStream::connect(&short.path).await.map_err(ClientError::Unreachable)
    })
    .await
}

/// A path that the kernel takes for a socket's. The data folder may have been moved to where the
/// socket's own is too long; it is reached through its open folder then.
struct Short {
    path: PathBuf,
    /// Open for as long as the path is used.
    _folder: Option<File>,
}

impl Short {
    fn of(socket: &Path) -> io::Result<Self> {
        let whole = || Ok(Self { path: socket.to_owned(), _folder: None });
        let (Some(folder), Some(name)) = (socket.parent(), socket.file_name()) else {
            return whole();
        };
        if socket.as_os_str().len() <= SOCKET_BYTES_MAX || !cfg!(target_os = "linux") {
            return whole();
        }
        let folder = File::open(folder)?;
        let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
        Ok(Self { path, _folder: Some(folder) })
    }
}

async fn within<T>(
    wait: Duration,
    doing: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, format!("No answer in {wait:?}"));
    let done = tokio::time::timeout(wait, doing).await;
    done.unwrap_or_else(|_| Err(ClientError::Unreachable(late())))
}

async fn exchange(
    stream: UnixStream,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), ClientError> {
    let broken = |e: hyper::Error| ClientError::Unreachable(io::Error::other(e));
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let talking = async {
        let answer = sender.send_request(request).await.map_err(broken)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|e| ClientError::Unreachable(io::Error::other(e)))?;
        Ok((status, body.to_bytes()))
    };
    // The connection is driven here and not in a task: nothing outlives the request.
    let mut connection = std::pin::pin!(connection);
    let mut talking = std::pin::pin!(talking);
    let mut is_over = false;
    loop {
        tokio::select! {
            answer = &mut talking => return answer,
            _ = &mut connection, if !is_over => is_over = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_common_version_is_spoken() {
        assert_eq!(agree((1, 2), (1, 2)).unwrap(), 2);
        assert_eq!(agree((1, 1), (1, 2)).unwrap(), 1);
        assert_eq!(agree((2, 3), (1, 2)).unwrap(), 2);
        let error = agree((3, 4), (1, 2)).unwrap_err();
        let said =
            "agentctl speaks another language: It speaks protocol 3 to 4, this program 1 to 2";
        assert_eq!(error.to_string(), said);
        assert_eq!(error.code(), Code::ProtocolUnsupported);
    }
}
