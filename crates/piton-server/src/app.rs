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
use piton_runtime::{Executions, Handle, Reserved, Resumer, Worktrees};
use piton_store::Detail;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::api::starting::{Agents, Known};
use crate::audit::Audit;
use crate::extract::Asker;
use crate::feed::Feeds;
use crate::index::Index;
use crate::limits::{Limits, Rate};
use crate::metrics::Metrics;
use crate::problem::{Problem, Result};
use crate::sockets::Sockets;
use crate::sockets::rooms::Rooms;

/// The principal of whoever can read the server's own file in the data folder.
pub(crate) const LOCAL: &str = "local";

/// What a server is made of.
#[derive(Debug)]
pub struct Options {
    /// A running one.
    pub engine: Engine,
    /// Opens everything; made anew by every life of the server and never written to a log.
    pub local: Option<Bearer>,
    /// Names by which the server may be spoken to, beside its address.
    pub hosts: Vec<String>,
    /// Pages of other origins that may use it.
    pub origins: Vec<String>,
    pub rate: Rate,
    pub version: String,
}

#[derive(Clone, Debug)]
pub(crate) struct App(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: Options,
    handle: Handle,
    reserved: Reserved,
    limits: Limits,
    feeds: Feeds,
    index: Index,
    rooms: Rooms,
    sockets: Sockets,
    metrics: Metrics,
    audit: Audit,
    stop: CancellationToken,
    local: Arc<str>,
    nobody: Arc<str>,
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
            feeds: Feeds::new(view.clone(), metrics.clone()),
            index: Index::new(view.clone()),
            rooms: Rooms::new(view, metrics.clone()),
            sockets: Sockets::default(),
            agents,
            resumer,
            metrics,
            audit: Audit::default(),
            stop,
            local: LOCAL.into(),
            nobody: "".into(),
            options,
        }))
    }

    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.0.options.engine
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.0.handle
    }

    pub(crate) fn reserved(&self) -> &Reserved {
        &self.0.reserved
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    pub(crate) fn feeds(&self) -> &Feeds {
        &self.0.feeds
    }

    pub(crate) fn index(&self) -> &Index {
        &self.0.index
    }

    pub(crate) fn rooms(&self) -> &Rooms {
        &self.0.rooms
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

    /// Resolves when the server is to end.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.0.stop
    }

    /// Who a token's holder is. Whoever has none, or a wrong one, shares one bucket with all others
    /// like that: guessing is slow for everybody.
    pub(crate) fn admit(&self, bearer: Option<&Bearer>, needed: Scope) -> Result<Arc<str>> {
        let Some(bearer) = bearer else {
            self.0.limits.take(&self.0.nobody)?;
            return Err(Problem::new(Code::Unauthenticated, "The request carries no token"));
        };
        if let Some(local) = &self.0.options.local
            && local.id == bearer.id
            && bearer.secret.matches(&local.secret.hash())
        {
            return Ok(Arc::clone(&self.0.local));
        }
        match self.reserved().admit(bearer, needed) {
            Ok(access) => Ok(access.access_token_id.as_str().into()),
            Err(denied) => {
                match denied {
                    Denied::Unknown => self.0.limits.take(&self.0.nobody)?,
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
            Some(bearer) => self.reserved().lost(&bearer.id).await,
            None => std::future::pending().await,
        }
    }

    /// Takes from the bucket of those who need no token.
    pub(crate) fn admit_nobody(&self) -> Result<()> {
        self.0.limits.take(&self.0.nobody)
    }
}

pub(crate) fn to_value(value: &impl Serialize) -> Result<Value> {
    serde_json::to_value(value).map_err(|error| Problem::malformed(error.to_string()))
}
