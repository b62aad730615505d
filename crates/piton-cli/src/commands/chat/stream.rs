//! A session's records as they come, over whatever happens to the server.

use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::body::Incoming;
use piton_core::Seq;
use serde_json::Value;

use crate::client::Client;
use crate::error::Result;

/// The longest event that is read.
const EVENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// One connection's events.
#[derive(Debug)]
pub(super) struct Events {
    body: Incoming,
    unread: Vec<u8>,
}

impl Events {
    /// Opens the stream behind a position.
    pub(super) async fn open(client: &Client, session: &str, after: Seq) -> Result<Self> {
        let path = format!("/api/v1/sessions/{session}/events?after={after}");
        let response = client.send(Method::GET, &path, None).await?;
        if !response.status().is_success() {
            // The same question, to be told what is wrong.
            client
                .get(&format!("/api/v1/sessions/{session}/records?after={after}&limit=1"))
                .await?;
        }
        Ok(Self { body: response.into_body(), unread: Vec::new() })
    }

    /// The next record; `None` when the connection is lost. Safe to cancel.
    pub(super) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = find(&self.unread) {
                let event: Vec<u8> = self.unread.drain(..end + 2).collect();
                match record(&event) {
                    Some(record) => return Some(record),
                    // A heartbeat.
                    None => continue,
                }
            }
            if self.unread.len() > EVENT_BYTES_MAX {
                return None;
            }
            let frame = self.body.frame().await?.ok()?;
            if let Some(data) = frame.data_ref() {
                self.unread.extend_from_slice(data);
            }
        }
    }
}

/// Where the first whole event ends.
fn find(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|pair| pair == b"\n\n")
}

fn record(event: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(event).ok()?;
    // Only records have an id: what else is said has no place in the log.
    text.lines().find(|line| line.starts_with("id: "))?;
    let data = text.lines().find_map(|line| line.strip_prefix("data: "))?;
    serde_json::from_str(data).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn records_are_found_among_heartbeats() {
        assert_eq!(record(b": here\n\n"), None);
        assert_eq!(record(b"event: session.state_changed\ndata: {\"seq\":3}\n\n"), None);
        let event = b"id: 3\nevent: run.started\ndata: {\"seq\":3}\n\n";
        assert_eq!(record(event), Some(json!({"seq": 3})));
        assert_eq!(find(event), Some(event.len() - 2));
        assert_eq!(find(b"id: 3\n"), None);
    }
}
