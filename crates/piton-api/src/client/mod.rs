//! A small client of the API: typed requests over kept connections, records as they come, a WebSocket.
//! What is lost with a connection is asked for again after the last seq that was seen.

mod backoff;
mod graphs;
mod http;
mod requests;
mod socket;
mod sse;
mod stream;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use piton_core::Code;

use crate::problem::Problem;
use crate::server::{SERVER_INFO_PATH, ServerInfo};
pub use backoff::Backoff;
pub use http::IdempotentResponse;
pub use socket::Socket;
pub use sse::{Parser, SseEvent};
pub use stream::{IndexEvents, IndexUpdate, Records};

/// How long an answer may take. A server gives an agent 90 seconds to start.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_mins(2);

/// Where a server is, and what it is asked with.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `http://127.0.0.1:7411`.
    pub address: String,
    /// An access token.
    pub token: String,
}

impl Endpoint {
    /// Host and port.
    fn authority(&self) -> Result<&str> {
        let authority = self.address.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
        authority
            .filter(|authority| !authority.contains('/'))
            .ok_or_else(|| Error::Address { address: self.address.clone() })
    }
}

impl ServerInfo {
    /// What the last server of a data folder left there; it may have ended since.
    pub fn read(data: &Path) -> Option<Self> {
        let text = std::fs::read(data.join(SERVER_INFO_PATH)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint { address: self.address.clone(), token: self.token.clone() }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({})", self.address)
    }
}

/// Says where the server is now: one that is started again may be elsewhere. `None`: none runs.
pub type EndpointLookup = dyn Fn() -> Option<Endpoint> + Send + Sync;

/// What came of a request.
#[derive(Debug)]
pub enum Error {
    /// The server refused, and says why.
    Problem(Box<Problem>),
    /// No server runs.
    NotRunning,
    /// The server did not answer, or not as a server of Piton does.
    Unreachable { address: String, source: Box<dyn std::error::Error + Send + Sync> },
    /// The address is not of the form `http://HOST:PORT`.
    Address { address: String },
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The code that a person looks up; of a newer server's codes `None`.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Problem(problem) => problem.code.known(),
            Self::NotRunning => Some(Code::ServerNotRunning),
            Self::Unreachable { .. } => Some(Code::ServerUnreachable),
            Self::Address { .. } => Some(Code::ConfigInvalid),
        }
    }

    /// Whether the connection failed, so that another one may do.
    pub fn is_connection(&self) -> bool {
        matches!(self, Self::NotRunning | Self::Unreachable { .. })
    }

    /// Whether the same request may succeed later: there is no connection, or the server ends or is
    /// busy.
    pub fn is_transient(&self) -> bool {
        let code = self.code();
        self.is_connection()
            || matches!(code, Some(Code::StoreClosed | Code::StoreBusy | Code::RateLimited))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Problem(problem) => problem.fmt(f),
            Self::NotRunning => f.write_str("No server runs"),
            Self::Unreachable { address, .. } => {
                write!(f, "The server at {address} does not respond")
            }
            Self::Address { address } => {
                write!(f, "{address:?} is not an address of the form http://HOST:PORT")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreachable { source, .. } => Some(&**source),
            _ => None,
        }
    }
}

/// Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client {
    locate: Arc<EndpointLookup>,
    pool: Arc<http::Pool>,
    idempotency_key: Option<String>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({:?})", (self.locate)())
    }
}

impl Client {
    pub fn new(address: impl Into<String>, token: impl Into<String>) -> Self {
        let endpoint = Endpoint { address: address.into(), token: token.into() };
        Self::located(move || Some(endpoint.clone()))
    }

    /// The server of a data folder, wherever it is when it is asked.
    pub fn of_data_folder(data: &Path) -> Self {
        let data = data.to_owned();
        Self::located(move || ServerInfo::read(&data).map(|info| info.endpoint()))
    }

    /// Asks before each connection where the server is.
    pub fn located(locate: impl Fn() -> Option<Endpoint> + Send + Sync + 'static) -> Self {
        Self { locate: Arc::new(locate), pool: Arc::default(), idempotency_key: None }
    }

    /// The same client, whose requests carry an idempotency key: repeated, they are done once. For
    /// one request and its repetitions.
    #[must_use]
    pub fn with_idempotency_key(&self, key: impl Into<String>) -> Self {
        Self { idempotency_key: Some(key.into()), ..self.clone() }
    }

    /// Where the server is now.
    pub fn endpoint(&self) -> Result<Endpoint> {
        (self.locate)().ok_or(Error::NotRunning)
    }
}
