//! What every handler holds.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use piton_agent::profiles::Profile;
use piton_core::access::{Bearer, Denied, Scope};
use piton_core::decide::{Command, Verdict};
use piton_core::id::SessionId;
use piton_core::registry;
use piton_core::resume::Policy;
use piton_core::{Code, Seq};
use piton_runtime::{Executions, Handle, MetadataLog, Resumer, Worktrees};
use piton_store::Detail;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::api::health::Readiness;
use crate::api::starting::{Agents, Known};
use crate::audit::Audit;
use crate::connections::{Connection, ConnectionLimits, Connections, Presented};
use crate::extract::Asker;
use crate::frames::Broadcasts;
use crate::index::{self, Index};
use crate::limits::{Limits, Rate};
use crate::metrics::Metrics;
use crate::problem::{Problem, Result};
use crate::sockets::Sockets;

/// The principal of whoever can read the server's own file in the data folder.
pub(crate) const LOCAL: &str = "local";

/// Stands for the session's id in an agent's command.
pub const SESSION: &str = "{session}";

/// What a server is made of.
#[derive(Debug)]
pub struct Options {
    pub handle: Handle,
    pub executions: Executions,
    pub worktrees: Worktrees,
    pub metadata: MetadataLog,
    /// What can be run as an agent. Of several with one id the last counts.
    pub agents: Vec<Profile>,
    /// Opens everything; made anew by every life of the server and never written to a log.
    pub local: Option<Bearer>,
    /// Names by which the server may be spoken to, beside its address.
    pub hosts: Vec<String>,
    /// Pages of other origins that may use it.
    pub origins: Vec<String>,
    /// Where sessions work that name no folder.
    pub scratch: PathBuf,
    /// When agents are started again, and what they are told.
    pub policy: Policy,
    pub rate: Rate,
    pub connections: ConnectionLimits,
    pub version: String,
}

#[derive(Clone, Debug)]
pub(crate) struct App(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: Options,
    agents: Arc<Agents>,
    resumer: Resumer,
    limits: Limits,
    connections: Connections,
    broadcasts: Broadcasts,
    index: Index,
    sockets: Sockets,
    metrics: Metrics,
    audit: Audit,
    readiness: Readiness,
    stop: CancellationToken,
    local: Arc<str>,
}

/// What a request came to, perhaps an earlier time.
#[derive(Debug)]
pub(crate) struct Fulfilled<T> {
    pub(crate) response: T,
    pub(crate) replayed: bool,
}

impl App {
    pub(crate) fn new(options: Options, stop: CancellationToken) -> Self {
        let by_id = options.agents.iter().map(|agent| (agent.id.clone(), agent.clone())).collect();
        let (scratch, worktrees) = (options.scratch.clone(), options.worktrees.clone());
        let agents = Arc::new(Agents { by_id, scratch, worktrees });
        let known = Arc::new(Known(Arc::clone(&agents)));
        let (handle, executions) = (options.handle.clone(), options.executions.clone());
        let resumer = Resumer::new(handle, executions, known, options.policy);
        let view = options.handle.view().clone();
        let metrics = Metrics::new(options.handle.clone());
        Self(Arc::new(Inner {
            limits: Limits::new(options.rate),
            connections: Connections::new(options.connections),
            broadcasts: Broadcasts::new(view.clone()),
            index: Index::new(view, index::render),
            sockets: Sockets::new(options.connections.sockets_max),
            agents,
            resumer,
            metrics,
            audit: Audit::default(),
            readiness: Readiness::default(),
            stop,
            local: LOCAL.into(),
            options,
        }))
    }

    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.0.options.handle
    }

    pub(crate) fn executions(&self) -> &Executions {
        &self.0.options.executions
    }

    pub(crate) fn resumer(&self) -> &Resumer {
        &self.0.resumer
    }

    pub(crate) fn worktrees(&self) -> &Worktrees {
        &self.0.options.worktrees
    }

    pub(crate) fn metadata(&self) -> &MetadataLog {
        &self.0.options.metadata
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    pub(crate) fn connections(&self) -> &Connections {
        &self.0.connections
    }

    pub(crate) fn broadcasts(&self) -> &Broadcasts {
        &self.0.broadcasts
    }

    pub(crate) fn index(&self) -> &Index {
        &self.0.index
    }

    pub(crate) fn sockets(&self) -> &Sockets {
        &self.0.sockets
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    pub(crate) fn audit(&self) -> &Audit {
        &self.0.audit
    }

    pub(crate) fn readiness(&self) -> &Readiness {
        &self.0.readiness
    }

    /// Notes what was done that no session's log tells of.
    pub(crate) async fn done(
        &self,
        asker: &Asker,
        action: &str,
        target: impl Into<String>,
    ) -> Result<()> {
        let note = asker.noted(action, target);
        self.metadata().execute(None, registry::Command::Note(note)).await?;
        Ok(())
    }

    /// Resolves when the server is to end.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.0.stop
    }

    pub(crate) fn agents(&self) -> &BTreeMap<String, Profile> {
        &self.0.agents.by_id
    }

    pub(crate) fn agents_known(&self) -> &Agents {
        &self.0.agents
    }

    pub(crate) fn agent(&self, id: &str) -> Result<&Profile> {
        let unknown = || Problem::new(Code::AgentNotFound, format!("There is no agent {id:?}"));
        self.0.agents.by_id.get(id).ok_or_else(unknown)
    }

    /// Who a token's holder is. Requests without a token, and those with a wrong one, are taken
    /// from buckets of their peer: guessing is slow, and keeps no other peer out.
    pub(crate) fn admit(
        &self,
        connection: &Connection,
        bearer: Option<&Bearer>,
        needed: Scope,
    ) -> Result<Arc<str>> {
        let principal = self.recognize(connection, bearer, needed)?;
        connection.identify(&principal)?;
        Ok(principal)
    }

    fn recognize(
        &self,
        connection: &Connection,
        bearer: Option<&Bearer>,
        needed: Scope,
    ) -> Result<Arc<str>> {
        let Some(bearer) = bearer else {
            self.admit_without_token(connection, Presented::Nothing)?;
            return Err(Problem::new(Code::Unauthenticated, "The request carries no token"));
        };
        if let Some(local) = &self.0.options.local
            && local.id == bearer.id
            && bearer.secret.matches(&local.secret.hash())
        {
            return Ok(Arc::clone(&self.0.local));
        }
        match self.metadata().admit(bearer, needed) {
            Ok(access) => Ok(access.access_token_id.as_str().into()),
            Err(denied) => {
                match denied {
                    Denied::Unknown => {
                        self.admit_without_token(connection, Presented::WrongToken)?;
                    }
                    // Somebody who is known.
                    Denied::Expired | Denied::Scope { .. } => {
                        self.0.limits.take(&bearer.id.as_str().into())?;
                    }
                }
                Err(denied.into())
            }
        }
    }

    /// Resolves when a token that was good is not any more.
    pub(crate) async fn lost(&self, bearer: Option<&Bearer>) {
        let local = self.0.options.local.as_ref().map(|local| &local.id);
        match bearer.filter(|bearer| Some(&bearer.id) != local) {
            Some(bearer) => self.metadata().lost(&bearer.id).await,
            None => std::future::pending().await,
        }
    }

    /// Takes a request without a good token from the bucket of its peer.
    pub(crate) fn admit_without_token(
        &self,
        connection: &Connection,
        presented: Presented,
    ) -> Result<()> {
        self.0.limits.take(&connection.peer().bucket(presented))
    }

    /// Has a command carried out for somebody, once.
    pub(crate) async fn execute<T: Serialize + DeserializeOwned>(
        &self,
        session: &SessionId,
        asked: &Asked<'_>,
        response: T,
        command: Command,
    ) -> Result<Fulfilled<T>> {
        let kept = Some(to_value(&response)?);
        self.execute_keeping(session, asked, kept, response, command).await
    }

    /// The same, if the answer shows a secret: it must not reach the log.
    pub(crate) async fn execute_unkept<T: DeserializeOwned>(
        &self,
        session: &SessionId,
        asked: &Asked<'_>,
        response: T,
        command: Command,
    ) -> Result<Fulfilled<T>> {
        self.execute_keeping(session, asked, None, response, command).await
    }

    async fn execute_keeping<T: DeserializeOwned>(
        &self,
        session: &SessionId,
        asked: &Asked<'_>,
        kept: Option<Value>,
        response: T,
        command: Command,
    ) -> Result<Fulfilled<T>> {
        let request = asked.request(kept);
        let command = Command::Requested { request, command: Box::new(command) };
        let ack = self.handle().execute(session, command).await?;
        match ack.verdict {
            Verdict::Repeated { seq } => self.repeated(session, seq).await,
            _ => Ok(Fulfilled { response, replayed: false }),
        }
    }

    /// The same for what belongs to no session.
    pub(crate) async fn register<T: Serialize + DeserializeOwned>(
        &self,
        asked: &Asked<'_>,
        keep: bool,
        response: T,
        command: registry::Command,
    ) -> Result<Fulfilled<T>> {
        let kept = if keep { Some(to_value(&response)?) } else { None };
        let noted = self.metadata().execute(Some(asked.request(kept)), command).await?;
        match noted.verdict {
            Verdict::Repeated { seq } => self.repeated(&SessionId::metadata_log(), seq).await,
            _ => Ok(Fulfilled { response, replayed: false }),
        }
    }

    /// What the first of several equal requests was answered.
    pub(crate) async fn repeated<T: DeserializeOwned>(
        &self,
        session: &SessionId,
        seq: Seq,
    ) -> Result<Fulfilled<T>> {
        let store = self.handle().view().store();
        let records = store.read(session, seq - 1, 1, Detail::Full).await?;
        let kept = records.first().and_then(|record| record.content_field("response"));
        let response = kept.and_then(|kept| serde_json::from_value(kept).ok());
        let not_kept = || {
            Problem::new(Code::ResponseNotKept, "The request was fulfilled before, under this key")
        };
        Ok(Fulfilled { response: response.ok_or_else(not_kept)?, replayed: true })
    }
}

/// A request on its way to the log.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) asker: &'a Asker,
    pub(crate) action: &'static str,
    pub(crate) body: Value,
}

impl Asked<'_> {
    pub(crate) fn request(&self, response: Option<Value>) -> piton_core::request::Request {
        self.asker.request(self.action, &self.body, response)
    }
}

pub(crate) fn to_value(value: &impl Serialize) -> Result<Value> {
    serde_json::to_value(value).map_err(|error| Problem::malformed(error.to_string()))
}
