//! Speaking to the data folder's server.

use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use piton_core::Code;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::error::{Error, Result};
use crate::server::{self, ServerInfo};

/// The largest answer that is taken whole.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How long an answer may take. A server gives an agent 90 seconds to start.
const ANSWER_WAIT: Duration = Duration::from_mins(2);

#[derive(Clone, Debug)]
pub(crate) struct Client {
    place: ServerInfo,
}

impl Client {
    /// The data folder's server, if one lives.
    pub(crate) fn find(data: &Path) -> Option<Self> {
        server::find(data).map(|place| Self { place })
    }

    /// The data folder's server, which must live.
    pub(crate) fn must(data: &Path) -> Result<Self> {
        let message = format!("No server runs on {}", data.display());
        Self::find(data).ok_or_else(|| Error::new(Code::ServerNotRunning, message))
    }

    pub(crate) fn place(&self) -> &ServerInfo {
        &self.place
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value> {
        self.ask(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.ask(Method::POST, path, Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<Value> {
        self.ask(Method::DELETE, path, None).await
    }

    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        match tokio::time::timeout(ANSWER_WAIT, self.ask_patiently(method, path, body)).await {
            Ok(answered) => answered,
            Err(late) => Err(self.silent(&late)),
        }
    }

    async fn ask_patiently(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value> {
        let response = self.send(method, path, body).await?;
        let status = response.status();
        let body = http_body_util::Limited::new(response.into_body(), ANSWER_BYTES_MAX);
        let bytes = body.collect().await.map_err(|error| self.silent(&*error))?.to_bytes();
        let answer = match (status, bytes.is_empty()) {
            (StatusCode::NO_CONTENT, _) | (_, true) => Value::Null,
            _ => serde_json::from_slice(&bytes).map_err(|error| self.silent(&error))?,
        };
        if status.is_success() { Ok(answer) } else { Err(refused(&answer)) }
    }

    /// Asks, and leaves the answer to be read as it comes.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response<Incoming>> {
        let host = self.place.address.trim_start_matches("http://");
        let stream = TcpStream::connect(host).await.map_err(|error| self.silent(&error))?;
        let io = TokioIo::new(stream);
        let (mut sender, connection) =
            http1::handshake(io).await.map_err(|error| self.silent(&error))?;
        // Its end is seen by whoever reads the answer.
        tokio::spawn(async move { drop(connection.await) });
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", host)
            .header("authorization", format!("Bearer {}", self.place.token));
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = body.map(ToString::to_string).unwrap_or_default();
        let request = request.body(Full::new(Bytes::from(body)));
        let request = request.map_err(|error| self.silent(&error))?;
        sender.send_request(request).await.map_err(|error| self.silent(&error))
    }

    fn silent(&self, cause: &(dyn std::error::Error + 'static)) -> Error {
        let ServerInfo { address, pid, .. } = &self.place;
        let message = format!("The server at {address} (pid {pid}) does not answer");
        Error::new(Code::ServerUnreachable, message).because(cause)
    }
}

/// A text as it may stand in a path or a query.
pub(crate) fn encoded(text: &str) -> String {
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

/// What the server's problem document says.
fn refused(problem: &Value) -> Error {
    let text = |name: &str| problem[name].as_str().map(str::to_owned);
    let named = text("code").unwrap_or_default();
    let code = Code::ALL.iter().copied().find(|code| code.as_str() == named);
    let title = text("title").unwrap_or_else(|| "The server refused".to_owned());
    let title = match text("detail") {
        Some(detail) => format!("{title}: {detail}"),
        None => title,
    };
    let error = Error::new(code.unwrap_or(Code::ServerUnreachable), title);
    match text("hint") {
        Some(hint) if code.is_none() => error.with_hint(hint),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_means_something_in_a_path_is_encoded() {
        assert_eq!(encoded("sess_0-1.~"), "sess_0-1.~");
        assert_eq!(encoded("a/b?c=d&e é%"), "a%2Fb%3Fc%3Dd%26e%20%C3%A9%25");
    }

    #[test]
    fn a_problem_is_told_with_code_sentence_and_hint() {
        let known = refused(&json!({
            "code": "wait_not_found", "title": "There is no wait w", "detail": "really",
        }));
        assert_eq!(known.code(), Some(Code::WaitNotFound));
        assert_eq!(known.message(), "There is no wait w: really");
        // A newer server's code is not known here; its hint is.
        let newer = refused(&json!({"code": "newer", "title": "No", "hint": "Do this."}));
        let hints: Vec<_> = newer
            .lines(&crate::call::Call::default())
            .into_iter()
            .filter(|(l, _)| *l == "Hint")
            .collect();
        assert_eq!(hints, [("Hint", "Do this.".to_owned())]);
    }
}
