//! Streams that go on over lost connections: a session's records, and the index of sessions.

use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::body::Incoming;
use piton_core::Seq;
use piton_core::id::SessionId;
use tokio::time::Instant;

use super::http::{refused, unreachable};
use super::{Backoff, Client, Endpoint, Error, Parser, Result, SseEvent};
use crate::event::{
    DeletedSession, DeletedTask, GONE, INDEX, LISTING, Listing, TASK, TASK_DELETED,
    TASK_STATE_CHANGED, TASK_UPDATED,
};
use crate::record::FlatRecord;
use crate::status::SessionSummary;
use crate::task::{TaskStateChanged, TaskSummary};

/// One connection's events.
#[derive(Debug)]
struct Connection {
    endpoint: Endpoint,
    body: Incoming,
    parser: Parser,
}

impl Connection {
    async fn open(client: &Client, path: &str, after: Option<Seq>) -> Result<Self> {
        let endpoint = client.endpoint()?;
        let after = after.map(|after| after.to_string());
        let last: Vec<(&str, &str)> =
            after.iter().map(|after| ("last-event-id", after.as_str())).collect();
        let sent = client.send(&endpoint, Method::GET, path, None, &last).await;
        let (response, _sender) = sent?;
        let (parts, body) = response.into_parts();
        if !parts.status.is_success() {
            let bytes = body.collect().await.map_err(|error| unreachable(&endpoint, error))?;
            return Err(refused(&endpoint, parts.status, &bytes.to_bytes()));
        }
        Ok(Self { endpoint, body, parser: Parser::default() })
    }

    /// The next event; an error when the connection is lost. Safe to cancel.
    async fn next(&mut self) -> Result<SseEvent> {
        loop {
            if let Some(event) = self.parser.next_event() {
                return Ok(event);
            }
            let frame = self.body.frame().await;
            let frame = frame.ok_or_else(|| unreachable(&self.endpoint, "the stream ended"))?;
            let frame = frame.map_err(|error| unreachable(&self.endpoint, error))?;
            if let Some(data) = frame.data_ref() {
                self.parser.push(data).map_err(|error| unreachable(&self.endpoint, error))?;
            }
        }
    }
}

/// A session's records, each once and in order, from after a position on and for ever.
#[derive(Debug)]
pub struct Records {
    client: Client,
    session: SessionId,
    after: Seq,
    backoff: Backoff,
    connection: Option<Connection>,
}

impl Client {
    /// Follows a session's log; what comes after `after` is given.
    pub fn records_from(&self, session: &SessionId, after: Seq) -> Records {
        let (client, session) = (self.clone(), session.clone());
        Records { client, session, after, backoff: Backoff::default(), connection: None }
    }

    /// Follows the index of sessions.
    pub fn index_events(&self) -> IndexEvents {
        IndexEvents {
            client: self.clone(),
            backoff: Backoff::default(),
            connection: None,
            retry_at: None,
        }
    }
}

impl Records {
    /// The last seq that was given.
    pub fn position(&self) -> Seq {
        self.after
    }

    /// The next record, over lost connections and restarts of the server. Fails if the server
    /// refuses: the session was deleted, or the access token is not good any more. Safe to cancel.
    pub async fn next(&mut self) -> Result<FlatRecord> {
        loop {
            match self.try_next().await {
                Err(error) if error.is_connection() => {
                    tokio::time::sleep(self.backoff.delay()).await;
                }
                done => return done,
            }
        }
    }

    /// Connects if there is no connection, behind the last record that was given.
    pub async fn connect(&mut self) -> Result<()> {
        if self.connection.is_none() {
            let path = format!("/api/v1/sessions/{}/events", self.session);
            let opened = Connection::open(&self.client, &path, Some(self.after)).await?;
            self.connection = Some(opened);
        }
        Ok(())
    }

    /// The next record of this connection, or of a new one if there is none. After an error of the
    /// connection the next call connects again, behind the last record that was given.
    pub async fn try_next(&mut self) -> Result<FlatRecord> {
        self.connect().await?;
        let Some(connection) = &mut self.connection else { return Err(Error::NotRunning) };
        loop {
            let event = match connection.next().await {
                Ok(event) => event,
                Err(error) => {
                    self.connection = None;
                    return Err(error);
                }
            };
            // Only records have a place in the log.
            if event.id.is_none() {
                continue;
            }
            let read = serde_json::from_str::<FlatRecord>(&event.data);
            let record = read.map_err(|error| unreachable(&connection.endpoint, error))?;
            if record.seq() <= self.after {
                continue;
            }
            self.after = record.seq();
            self.backoff.reset();
            return Ok(record);
        }
    }
}

/// An event of the stream of the session index.
#[derive(Clone, Debug, PartialEq)]
pub enum IndexUpdate {
    /// What is known is replaced by what follows.
    Listing(Listing),
    Changed(Box<SessionSummary>),
    Gone(DeletedSession),
    /// A task as it is: of a listing, new, or with another title.
    Task(Box<TaskSummary>),
    TaskStateChanged(Box<TaskStateChanged>),
    TaskGone(DeletedTask),
}

/// Changes of the index of sessions. A new connection begins with a listing.
#[derive(Debug)]
pub struct IndexEvents {
    client: Client,
    backoff: Backoff,
    connection: Option<Connection>,
    /// No connection is tried before this.
    retry_at: Option<Instant>,
}

impl IndexEvents {
    /// The next change, over lost connections. Safe to cancel.
    pub async fn next(&mut self) -> Result<IndexUpdate> {
        loop {
            if let Some(update) = self.next_or_lost().await? {
                return Ok(update);
            }
        }
    }

    /// The next change; `None` each time that the connection is lost or cannot be opened. The next call
    /// opens another one, after a delay that grows. Safe to cancel.
    pub async fn next_or_lost(&mut self) -> Result<Option<IndexUpdate>> {
        loop {
            if let Some(at) = self.retry_at {
                tokio::time::sleep_until(at).await;
            }
            let connection = match &mut self.connection {
                Some(connection) => connection,
                None => match Connection::open(&self.client, "/api/v1/events", None).await {
                    Ok(opened) => self.connection.insert(opened),
                    Err(error) if !error.is_transient() => return Err(error),
                    Err(_) => {
                        self.retry_at = Some(Instant::now() + self.backoff.delay());
                        return Ok(None);
                    }
                },
            };
            self.retry_at = None;
            let Ok(event) = connection.next().await else {
                self.connection = None;
                self.retry_at = Some(Instant::now() + self.backoff.delay());
                return Ok(None);
            };
            let wrong = |error: serde_json::Error| unreachable(&connection.endpoint, error);
            let data = event.data.as_str();
            let update = match event.event.as_str() {
                LISTING => IndexUpdate::Listing(serde_json::from_str(data).map_err(wrong)?),
                INDEX => IndexUpdate::Changed(serde_json::from_str(data).map_err(wrong)?),
                GONE => IndexUpdate::Gone(serde_json::from_str(data).map_err(wrong)?),
                TASK | TASK_UPDATED => {
                    IndexUpdate::Task(serde_json::from_str(data).map_err(wrong)?)
                }
                TASK_STATE_CHANGED => {
                    IndexUpdate::TaskStateChanged(serde_json::from_str(data).map_err(wrong)?)
                }
                TASK_DELETED => IndexUpdate::TaskGone(serde_json::from_str(data).map_err(wrong)?),
                // A newer server's.
                _ => continue,
            };
            self.backoff.reset();
            return Ok(Some(update));
        }
    }
}
