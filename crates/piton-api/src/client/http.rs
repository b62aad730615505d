//! Requests over connections that are kept and used again.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::TcpStream;

use super::{Client, Endpoint, Error, RESPONSE_TIMEOUT, Result};
use crate::problem::{CONTENT_TYPE, Problem};

/// The largest answer that is read whole.
const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Connections that are kept for later.
const IDLE_MAX: usize = 8;

type Sender = SendRequest<Full<Bytes>>;

/// Connections that wait for their next request.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Vec<(Endpoint, Sender)>>);

impl Pool {
    fn take(&self, endpoint: &Endpoint) -> Option<Sender> {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(to, sender)| to == endpoint && !sender.is_closed());
        idle.pop().map(|(_, sender)| sender)
    }

    fn put(&self, endpoint: &Endpoint, sender: Sender) {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX && !sender.is_closed() {
            idle.push((endpoint.clone(), sender));
        }
    }
}

/// An answer, and whether it was given before under the same idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotentResponse<T> {
    pub response: T,
    pub replayed: bool,
}

pub(super) fn unreachable(
    endpoint: &Endpoint,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    Error::Unreachable { address: endpoint.address.clone(), source: source.into() }
}

impl Client {
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.json(Method::GET, path, None).await
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T> {
        self.json(Method::POST, path, Some(self.encode(body)?)).await
    }

    pub(super) fn encode(&self, body: &impl Serialize) -> Result<Bytes> {
        let endpoint = self.endpoint()?;
        let body = serde_json::to_vec(body).map_err(|error| unreachable(&endpoint, error))?;
        Ok(Bytes::from(body))
    }

    pub(super) async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<T> {
        Ok(self.reply(method, path, body).await?.response)
    }

    /// Asks, and reads the whole answer as JSON; an empty one is `null`.
    pub(super) async fn reply<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<IdempotentResponse<T>> {
        let body = body.map(|body| (body, "application/json"));
        let (endpoint, parts, bytes) = self.whole(method, path, body).await?;
        let replayed = parts.headers.contains_key("idempotency-replayed");
        let bytes: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
        let response =
            serde_json::from_slice(bytes).map_err(|error| unreachable(&endpoint, error))?;
        Ok(IdempotentResponse { response, replayed })
    }

    /// Asks, and reads the whole answer.
    pub(super) async fn whole(
        &self,
        method: Method,
        path: &str,
        body: Option<(Bytes, &'static str)>,
    ) -> Result<(Endpoint, hyper::http::response::Parts, Bytes)> {
        let endpoint = self.endpoint()?;
        let asking = async {
            let (response, sender) = self.send(&endpoint, method, path, body, &[]).await?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
            let bytes = body.map_err(|error| unreachable(&endpoint, error))?.to_bytes();
            self.pool.put(&endpoint, sender);
            if !parts.status.is_success() {
                return Err(refused(&endpoint, parts.status, &bytes));
            }
            Ok((endpoint.clone(), parts, bytes))
        };
        let answered = tokio::time::timeout(RESPONSE_TIMEOUT, asking).await;
        answered.unwrap_or_else(|late| Err(unreachable(&endpoint, late)))
    }

    /// Asks, and reads no more than whether the server refuses.
    pub(super) async fn head(&self, endpoint: &Endpoint, method: Method, path: &str) -> Result<()> {
        let (response, _sender) = self.send(endpoint, method, path, None, &[]).await?;
        let (parts, body) = response.into_parts();
        if parts.status.is_success() {
            return Ok(());
        }
        let bytes = body.collect().await.map_err(|error| unreachable(endpoint, error))?;
        Err(refused(endpoint, parts.status, &bytes.to_bytes()))
    }

    /// Asks on a kept connection, or on a new one; the answer's body is left to be read.
    pub(super) async fn send(
        &self,
        endpoint: &Endpoint,
        method: Method,
        path: &str,
        body: Option<(Bytes, &'static str)>,
        headers: &[(&str, &str)],
    ) -> Result<(Response<Incoming>, Sender)> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, endpoint.authority()?)
            .header(header::AUTHORIZATION, format!("Bearer {}", endpoint.token));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(key) = &self.idempotency_key {
            request = request.header("idempotency-key", key);
        }
        let (bytes, kind) = body.unwrap_or_default();
        if !kind.is_empty() {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        let request = request.body(Full::new(bytes));
        let mut request = request.map_err(|error| unreachable(endpoint, error))?;
        while let Some(mut sender) = self.pool.take(endpoint) {
            if sender.ready().await.is_err() {
                continue;
            }
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, sender)),
                // The connection was closed before the request was sent: another one takes it.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(unreachable(endpoint, error.into_error())),
                },
            }
        }
        let mut sender = connect(endpoint).await?;
        let response = sender.send_request(request).await;
        Ok((response.map_err(|error| unreachable(endpoint, error))?, sender))
    }
}

async fn connect(endpoint: &Endpoint) -> Result<Sender> {
    let stream = TcpStream::connect(endpoint.authority()?).await;
    let stream = stream.map_err(|error| unreachable(endpoint, error))?;
    // A request is small, and must not wait for more of it.
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(stream);
    let (sender, connection) =
        http1::handshake(io).await.map_err(|error| unreachable(endpoint, error))?;
    // Its end is seen by the request that is under way.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// What a problem document says; an answer without one is no server's of Piton.
pub(super) fn refused(endpoint: &Endpoint, status: StatusCode, body: &[u8]) -> Error {
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => Error::Problem(Box::new(problem)),
        Err(_) => unreachable(endpoint, format!("status {status} without a {CONTENT_TYPE}")),
    }
}

/// A path with the fields of a query behind it.
pub(super) fn with_query(path: &str, query: &impl Serialize) -> String {
    let Ok(Value::Object(fields)) = serde_json::to_value(query) else {
        return path.to_owned();
    };
    let mut whole = path.to_owned();
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        whole.push(if whole.contains('?') { '&' } else { '?' });
        whole.extend([name, "=", encoded(&text).as_str()]);
    }
    whole
}

/// A text as it may stand in a path or a query.
pub(super) fn encoded(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{DeleteQuery, SessionQuery};

    #[test]
    fn what_means_something_in_a_path_is_encoded() {
        assert_eq!(encoded("sess_0-1.~"), "sess_0-1.~");
        assert_eq!(encoded("a/b?c=d&e é%"), "a%2Fb%3Fc%3Dd%26e%20%C3%A9%25");
    }

    #[test]
    fn a_query_has_the_fields_that_are_set() {
        assert_eq!(with_query("/s", &SessionQuery::default()), "/s");
        let query = DeleteQuery { force: Some(true), reason: Some("a b".into()) };
        assert_eq!(with_query("/s", &query), "/s?force=true&reason=a%20b");
    }
}
