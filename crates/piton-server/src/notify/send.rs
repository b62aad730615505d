//! One POST to another server, over HTTP or TLS, believing the certificates that the machine believes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper::{Request, Uri, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

const TIMEOUT: Duration = Duration::from_secs(20);
/// Where systems keep the certificates that they believe; `$SSL_CERT_FILE` counts more.
const ROOTS: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Where notifications are posted. What identifies a topic may be in the path: only the host is shown.
#[derive(Clone)]
pub struct Endpoint {
    uri: Uri,
    token: Option<String>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint({})", self.host())
    }
}

/// Why an address cannot be posted to.
#[derive(Debug, thiserror::Error)]
#[error("it is not an address of the form https://HOST/PATH or http://HOST/PATH")]
pub struct EndpointError;

impl Endpoint {
    pub fn new(url: &str, token: Option<String>) -> Result<Self, EndpointError> {
        let uri: Uri = url.parse().map_err(|_| EndpointError)?;
        let is_known = matches!(uri.scheme_str(), Some("http" | "https"));
        // A name and a password in the address are never sent.
        let is_plain = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
        let is_header = token.as_deref().is_none_or(|t| header::HeaderValue::from_str(t).is_ok());
        if is_known && is_plain && is_header { Ok(Self { uri, token }) } else { Err(EndpointError) }
    }

    pub fn host(&self) -> &str {
        self.uri.host().unwrap_or_default()
    }

    fn is_tls(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }

    /// The status of the answer.
    pub(super) async fn post(
        &self,
        id: &str,
        body: Vec<u8>,
    ) -> Result<u16, Box<dyn std::error::Error + Send + Sync>> {
        let posting = async {
            let port = self.uri.port_u16().unwrap_or(if self.is_tls() { 443 } else { 80 });
            let host = self.host().trim_start_matches('[').trim_end_matches(']');
            let stream = TcpStream::connect((host, port)).await?;
            if !self.is_tls() {
                return self.exchange(stream, id, body).await;
            }
            let roots = tokio::task::spawn_blocking(roots).await??;
            let provider = Arc::new(crypto::ring::default_provider());
            let config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()?
                .with_root_certificates(roots)
                .with_no_client_auth();
            let name = ServerName::try_from(host.to_owned())?;
            let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
            self.exchange(stream, id, body).await
        };
        tokio::time::timeout(TIMEOUT, posting).await?
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        id: &str,
        body: Vec<u8>,
    ) -> Result<u16, Box<dyn std::error::Error + Send + Sync>> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Its end is seen by the request.
        let connection = tokio::spawn(async move { drop(connection.await) });
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let host = self.uri.authority().map_or("", |authority| authority.as_str());
        let mut request = Request::post(path)
            .header(header::HOST, host)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, "piton")
            .header("idempotency-key", id);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let answer = sender.send_request(request.body(Full::new(Bytes::from(body)))?).await;
        connection.abort();
        Ok(answer?.status().as_u16())
    }
}

fn roots() -> Result<RootCertStore, std::io::Error> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let found = named.or_else(|| ROOTS.iter().map(PathBuf::from).find(|path| path.exists()));
    let none = || std::io::Error::other("no file with this machine's certificates was found");
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(found.ok_or_else(none)?);
    // One that cannot be used makes the others no worse.
    for certificate in certificates.map_err(std::io::Error::other)?.flatten() {
        let _ = roots.add(certificate);
    }
    if roots.is_empty() { Err(none()) } else { Ok(roots) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_http_or_https_without_a_password_and_never_shown_whole() {
        let good = Endpoint::new("https://ntfy.example/secret-topic", Some("t".into())).unwrap();
        assert_eq!(format!("{good:?}"), "Endpoint(ntfy.example)");
        assert!(Endpoint::new("http://127.0.0.1:8080", None).is_ok());
        for bad in ["ntfy.example", "ftp://a/b", "/path", "", "https://user:pass@host/"] {
            assert!(Endpoint::new(bad, None).is_err(), "{bad}");
        }
        assert!(Endpoint::new("http://a", Some("line\nbreak".into())).is_err());
    }
}
