//! Taking connections: plain or TLS, a bounded number, none that dawdles, and an end that lets
//! what is being answered be answered.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::{App, Options};
use crate::connections::{Connection, Connections};
use crate::notify::{self, Notify};
use crate::openapi;
use crate::stall::{STALL_TIMEOUT, StallGuard};

/// How long a request's headers, and a TLS handshake, may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HEADER_BYTES_MAX: usize = 64 * 1024;
/// How long requests may take to end when the server ends.
const ENDING: Duration = Duration::from_secs(5);
/// How long no connection is taken after one could not be.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// A certificate and its key.
#[derive(Clone)]
pub struct Tls(Arc<ServerConfig>);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls(…)")
    }
}

/// Why TLS cannot be spoken.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{path} is not readable as PEM")]
    Pem { path: String, source: rustls::pki_types::pem::Error },
    #[error("The certificate and the key cannot be used")]
    Config(#[from] rustls::Error),
}

impl Tls {
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let unreadable = |path: &Path| {
            let path = path.display().to_string();
            move |source| TlsError::Pem { path, source }
        };
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect)
            .map_err(unreadable(certificate))?;
        let secret = PrivateKeyDer::from_pem_file(key).map_err(unreadable(key))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, secret)?;
        Ok(Self(Arc::new(config)))
    }
}

/// A server that takes connections.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    router: Router,
    app: App,
    connections: Connections,
    serving: Vec<JoinHandle<()>>,
}

impl Server {
    /// Serves on a listener from now on.
    pub fn start(listener: TcpListener, tls: Option<Tls>, options: Options) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let app = App::new(options, stop.clone()).map_err(io::Error::other)?;
        let router = openapi::router(app.clone());
        let (stopped, served) = (stop.clone(), router.clone());
        let connections = app.connections().clone();
        let (counted, held) = (connections.clone(), app.clone());
        let serving = tokio::spawn(async move {
            accept(listener, tls, served, &counted, &stopped).await;
            // What became a socket is no request any more.
            if tokio::time::timeout(ENDING, app.sockets().over()).await.is_err() {
                tracing::warn!("a socket did not end in time");
            }
        });
        Ok(Self { address, stop, router, app: held, connections, serving: vec![serving] })
    }

    /// Serves the same, without TLS, on a listener that only this machine reaches: its own programs
    /// need not believe a certificate that was made for others.
    pub fn serve_on_loopback(&mut self, listener: TcpListener) -> io::Result<SocketAddr> {
        let address = listener.local_addr()?;
        if !address.ip().is_loopback() {
            let why = format!("{address} is reachable from other machines");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let (router, stop) = (self.router.clone(), self.stop.clone());
        let connections = self.connections.clone();
        self.serving.push(tokio::spawn(async move {
            accept(listener, None, router, &connections, &stop).await;
        }));
        Ok(address)
    }

    /// Posts a notification when a session waits or a run ends, from now on.
    pub fn notify(&mut self, notify: Notify) {
        self.serving.push(tokio::spawn(notify::run(self.app.clone(), notify)));
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no further connections, ends the streams, and waits for what is being answered.
    pub async fn shut_down(self) {
        self.stop.cancel();
        for serving in self.serving {
            // A panic in there is reported where it happened.
            let _ = serving.await;
        }
    }
}

async fn accept(
    listener: TcpListener,
    tls: Option<Tls>,
    router: Router,
    connections: &Connections,
    stop: &CancellationToken,
) {
    let conversations = TaskTracker::new();
    let acceptor = tls.map(|tls| TlsAcceptor::from(tls.0));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, mostly: there will be some again.
                tracing::warn!(%error, "a connection was not taken");
                connections.make_room();
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        // Events are small and must not wait for more of them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection may be slow");
        }
        let stream = StallGuard::new(stream, STALL_TIMEOUT);
        let (router, stop, acceptor) = (router.clone(), stop.clone(), acceptor.clone());
        let connection = connections.accept(peer.ip());
        conversations.spawn(async move {
            let closing = connection.clone();
            let conversation = async {
                let Some(acceptor) = acceptor else {
                    return converse(stream, router, connection, &stop).await;
                };
                match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => converse(stream, router, connection, &stop).await,
                    Ok(Err(error)) => tracing::debug!(%error, "the TLS handshake failed"),
                    Err(_) => tracing::debug!("the TLS handshake timed out"),
                }
            };
            tokio::select! {
                () = conversation => {}
                () = closing.closing() => tracing::debug!("the server closes a connection"),
            }
        });
    }
    drop(listener);
    conversations.close();
    conversations.wait().await;
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    router: Router,
    connection: Connection,
    stop: &CancellationToken,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(connection.clone());
        router.call(request)
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE_TIMEOUT)
        .max_buf_size(HEADER_BYTES_MAX)
        .half_close(false);
    let connection = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(ENDING, connection).await {
                Ok(ended) => ended,
                Err(_) => return tracing::warn!("a request did not end in time"),
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}
