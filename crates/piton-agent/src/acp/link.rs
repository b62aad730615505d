//! What is on its way to the agent, and who waits for its answers.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use piton_core::spool::OpenedAs;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use super::Error;
use super::wire;

/// An error as the agent said it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) code: i64,
    pub(super) message: String,
}

/// What came back.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    Result(Value),
    Failed(Failure),
    /// It was longer than a message may be, and skipped.
    TooLong,
    /// None: the request could not be written.
    Unsent,
}

/// A line on its way, and the request that it is.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) line: Vec<u8>,
    pub(super) id: Option<i64>,
}

/// Who waits for an answer.
pub(super) enum Waiter {
    Plain(oneshot::Sender<Answer>),
    /// The reader of the answer opens the session before it reads anything behind the answer.
    Begin {
        opened_as: OpenedAs,
        asked_id: Option<String>,
        done: oneshot::Sender<Result<(), Error>>,
    },
    /// Likewise, the reader ends the turn.
    Prompt {
        done: oneshot::Sender<Result<String, Error>>,
    },
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain",
            Self::Begin { .. } => "Begin",
            Self::Prompt { .. } => "Prompt",
        })
    }
}

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) method: &'static str,
    pub(super) waiter: Waiter,
}

#[derive(Debug)]
struct Inner {
    last_id: i64,
    waiting: HashMap<i64, Waiting>,
    sender: Option<mpsc::Sender<Outgoing>>,
    is_over: bool,
}

#[derive(Debug)]
pub(super) struct Link {
    inner: Mutex<Inner>,
    requests_max: usize,
    /// The agent does not listen any more.
    is_deaf: watch::Sender<bool>,
    /// The agent is being ended.
    is_ending: AtomicBool,
}

impl Link {
    pub(super) fn new(sender: mpsc::Sender<Outgoing>, requests_max: usize) -> Self {
        let inner =
            Inner { last_id: 0, waiting: HashMap::new(), sender: Some(sender), is_over: false };
        Self {
            inner: Mutex::new(inner),
            requests_max,
            is_deaf: watch::Sender::new(false),
            is_ending: AtomicBool::new(false),
        }
    }

    /// Nothing in here can be left half done by a panic.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_ending(&self) {
        self.is_ending.store(true, Ordering::Release);
    }

    pub(super) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// Registers a request before it is sent: its answer may be quicker than we are.
    pub(super) fn register(
        self: &Arc<Self>,
        method: &'static str,
        waiter: Waiter,
    ) -> Result<Registered, Error> {
        let mut inner = self.inner();
        if inner.is_over || inner.sender.is_none() {
            return Err(Error::Closed);
        }
        if inner.waiting.len() >= self.requests_max {
            return Err(Error::TooMany);
        }
        inner.last_id += 1;
        let id = inner.last_id;
        inner.waiting.insert(id, Waiting { method, waiter });
        Ok(Registered { link: Some(Arc::clone(self)), id })
    }

    /// The request that this answers; `None`: no request (still) waits for it.
    pub(super) fn take(&self, id: i64) -> Option<Waiting> {
        self.inner().waiting.remove(&id)
    }

    pub(super) async fn send(&self, line: Vec<u8>) -> Result<(), Error> {
        self.send_line(Outgoing { line, id: None }).await
    }

    pub(super) async fn send_request(
        &self,
        request: &Registered,
        method: &str,
        params: &Value,
    ) -> Result<(), Error> {
        let line = wire::request_line(request.id, method, params);
        self.send_line(Outgoing { line, id: Some(request.id) }).await
    }

    async fn send_line(&self, outgoing: Outgoing) -> Result<(), Error> {
        let sender = self.inner().sender.clone().ok_or(Error::Closed)?;
        sender.send(outgoing).await.map_err(|_| Error::Closed)
    }

    /// Without waiting for room; whether there was some.
    pub(super) fn try_send(&self, line: Vec<u8>) -> bool {
        let sender = self.inner().sender.clone();
        sender.is_some_and(|sender| sender.try_send(Outgoing { line, id: None }).is_ok())
    }

    pub(super) async fn answer(&self, id: &Value, result: &Value) -> Result<(), Error> {
        self.send(wire::answer_line(id, result)).await
    }

    pub(super) fn not_reading(&self) {
        self.is_deaf.send_replace(true);
    }

    pub(super) async fn until_deaf(&self) {
        // The sender is our own: this does not fail.
        let _ = self.is_deaf.subscribe().wait_for(|is_deaf| *is_deaf).await;
    }

    /// Nothing more is sent; what was queued still is, then the agent's input ends.
    pub(super) fn close(&self) {
        self.inner().sender = None;
    }

    /// Nothing more will come: fails all waiting requests.
    pub(super) fn end(&self) {
        let mut inner = self.inner();
        inner.is_over = true;
        inner.sender = None;
        inner.waiting.clear();
    }
}

/// A request that waits for its answer; dropping this forgets the request.
#[derive(Debug)]
pub(super) struct Registered {
    link: Option<Arc<Link>>,
    id: i64,
}

impl Registered {
    /// It stays registered however long it takes.
    pub(super) fn keep(mut self) {
        self.link = None;
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            link.inner().waiting.remove(&self.id);
        }
    }
}
