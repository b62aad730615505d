//! Idempotent requests: what a caller asks for is written beside what it changes, and a repetition
//! under the same key is answered from the log. HTTP and WebSocket share keys, because a key counts
//! for an action and its target, not for an address.

use std::fmt::Display;

use piton_core::Seq;
use piton_core::decide::{Command, Verdict};
use piton_core::event::AuditRecorded;
use piton_core::id::SessionId;
use piton_core::registry;
use piton_core::request::{self, Key, Requests};
use piton_store::Detail;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Caller, Engine};
use crate::error::{Error, Result};

/// What a request was answered, perhaps an earlier time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fulfilled<T> {
    pub response: T,
    /// It was fulfilled before, under the same key.
    pub replayed: bool,
}

impl<T> Fulfilled<T> {
    pub(super) fn new(response: T) -> Self {
        Self { response, replayed: false }
    }

    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Fulfilled<U> {
        Fulfilled { response: change(self.response), replayed: self.replayed }
    }
}

/// A caller's request on its way to the log.
#[derive(Debug)]
pub(super) struct Request<'a> {
    caller: &'a Caller,
    /// What the log calls it: `sessions.create`, `waits.answer`, …
    action: &'static str,
    /// The session, wait or token that it is about; empty for what is yet to be made.
    target: String,
    arguments: Value,
}

impl<'a> Request<'a> {
    pub(super) fn new(
        caller: &'a Caller,
        action: &'static str,
        target: impl Display,
        arguments: &impl Serialize,
    ) -> Result<Self> {
        let arguments =
            serde_json::to_value(arguments).map_err(|error| Error::Invalid(error.to_string()))?;
        Ok(Self { caller, action, target: target.to_string(), arguments })
    }

    pub(super) fn has_key(&self) -> bool {
        self.caller.key().is_some()
    }

    fn key(&self) -> Option<Key> {
        let place = format!("{} {}", self.action, self.target);
        let key = self.caller.key()?;
        Some(Key::new(self.caller.principal(), &place, key, &self.arguments))
    }

    /// What the log says of it. `response` is what a repetition is answered.
    pub(super) fn logged(&self, response: Option<Value>) -> request::Request {
        request::Request {
            principal: self.caller.principal().to_owned(),
            action: self.action.to_owned(),
            key: self.key(),
            response,
        }
    }

    /// The same for every repetition, whatever its arguments; `None` without a key.
    pub(super) fn seed(&self) -> Option<[u8; 16]> {
        let mut seed = [0; 16];
        seed.copy_from_slice(&blake3::hash(self.key()?.key.as_bytes()).as_bytes()[..16]);
        Some(seed)
    }
}

/// That a caller did something which no session's log tells of.
pub(super) fn audited(caller: &Caller, action: &str, target: impl Into<String>) -> AuditRecorded {
    AuditRecorded {
        principal: Some(caller.principal().to_owned()),
        action: action.to_owned(),
        target: Some(target.into()),
        outcome: "done".to_owned(),
        count: None,
    }
}

pub(super) fn value(response: &impl Serialize) -> Result<Value> {
    serde_json::to_value(response).map_err(|error| Error::Invalid(error.to_string()))
}

impl Engine {
    /// Has a command carried out, once for each key.
    pub(super) async fn execute<T: Serialize + DeserializeOwned>(
        &self,
        session: &SessionId,
        request: &Request<'_>,
        response: T,
        command: Command,
    ) -> Result<Fulfilled<T>> {
        let kept = Some(value(&response)?);
        self.execute_keeping(session, request, kept, response, command).await
    }

    /// The same, if the response shows a secret: it must not reach the log, and a repetition is
    /// refused with `response_not_kept`.
    pub(super) async fn execute_secret<T: DeserializeOwned>(
        &self,
        session: &SessionId,
        request: &Request<'_>,
        response: T,
        command: Command,
    ) -> Result<Fulfilled<T>> {
        self.execute_keeping(session, request, None, response, command).await
    }

    async fn execute_keeping<T: DeserializeOwned>(
        &self,
        session: &SessionId,
        request: &Request<'_>,
        kept: Option<Value>,
        response: T,
        command: Command,
    ) -> Result<Fulfilled<T>> {
        let ack = self.write(session, self.requested(request, kept, command)).await?;
        match ack.verdict {
            Verdict::Repeated { seq } => self.replay(session, seq).await,
            _ => Ok(Fulfilled::new(response)),
        }
    }

    /// The command with the request beside it. An offline change without a key is the owner's own,
    /// and its record is all there is to say about it.
    pub(super) fn requested(
        &self,
        request: &Request<'_>,
        kept: Option<Value>,
        command: Command,
    ) -> Command {
        if self.is_offline() && !request.has_key() {
            return command;
        }
        Command::Requested { request: request.logged(kept), command: Box::new(command) }
    }

    /// The same for what belongs to no session.
    pub(super) async fn register<T: Serialize + DeserializeOwned>(
        &self,
        request: &Request<'_>,
        response: T,
        command: registry::Command,
    ) -> Result<Fulfilled<T>> {
        let kept = Some(value(&response)?);
        self.register_keeping(request, kept, response, command).await
    }

    pub(super) async fn register_keeping<T: DeserializeOwned>(
        &self,
        request: &Request<'_>,
        kept: Option<Value>,
        response: T,
        command: registry::Command,
    ) -> Result<Fulfilled<T>> {
        let metadata = self.metadata().await?;
        let noted = metadata.execute(Some(request.logged(kept)), command).await?;
        match noted.verdict {
            Verdict::Repeated { seq } => self.replay(&SessionId::metadata_log(), seq).await,
            _ => Ok(Fulfilled::new(response)),
        }
    }

    /// Writes to the metadata log that a caller did something.
    pub(super) async fn audit(
        &self,
        caller: &Caller,
        action: &str,
        target: impl Into<String>,
    ) -> Result<()> {
        let command = registry::Command::Note(audited(caller, action, target));
        self.metadata().await?.execute(None, command).await.map(drop)
    }

    /// What was answered to the same request before, if it was made before.
    pub(super) async fn find_replay<T: DeserializeOwned>(
        &self,
        session: &SessionId,
        requests: &Requests,
        request: &Request<'_>,
    ) -> Result<Option<Fulfilled<T>>> {
        match requests.find(&request.logged(None), self.0.clock.now(), self.request_kept_for())? {
            Some(seq) => self.replay(session, seq).await.map(Some),
            None => Ok(None),
        }
    }

    /// What the first of several equal requests was answered.
    pub(super) async fn replay<T: DeserializeOwned>(
        &self,
        session: &SessionId,
        seq: Seq,
    ) -> Result<Fulfilled<T>> {
        let records = self.0.store.read(session, seq - 1, 1, Detail::Full).await?;
        let kept = records.first().and_then(|record| record.content_field("response"));
        let response = kept.and_then(|kept| serde_json::from_value(kept).ok());
        Ok(Fulfilled { response: response.ok_or(Error::ResponseNotKept)?, replayed: true })
    }
}
