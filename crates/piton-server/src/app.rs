//! What every handler holds.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use piton_api::server::{Examination, Reloaded};
use piton_core::Code;
use piton_core::access::{AccessDenied, Bearer, Scope};
use piton_core::planted::{self, Bug};
use piton_runtime::{Engine, Handle, MetadataLog};
use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::api::health::Readiness;
use crate::audit::Audit;
use crate::connections::{Connection, ConnectionLimits, Connections, Presented};
use crate::frames::Broadcasts;
use crate::index::{self, Index};
use crate::limits::{Limits, Rate};
use crate::metrics::Metrics;
use crate::problem::{Problem, Result};
use crate::sockets::Sockets;
use crate::web::WebFiles;

/// The principal of a caller that can read the server's own file in the data folder.
pub(crate) const LOCAL: &str = "local";

/// What a server is made of.
#[derive(Debug)]
pub struct Options {
    /// One that runs sessions.
    pub engine: Engine,
    /// Has every scope. Each server process creates its own and never writes it to a log.
    pub local: Option<Bearer>,
    /// Names by which the server may be spoken to, beside its address.
    pub hosts: Vec<String>,
    /// Pages of other origins that may use it.
    pub origins: Vec<String>,
    pub rate: Rate,
    pub connections: ConnectionLimits,
    pub version: String,
    /// Looks at what the server stands on; `None`: the embedder has nothing to look at.
    pub doctor: Option<Arc<dyn Doctor>>,
    /// Where the web app's files are.
    pub web: WebFiles,
    /// Reads the settings again; `None` if the embedder has no settings.
    pub reload: Option<Arc<dyn Reload>>,
}

/// Reads the settings again and has those count that can. What is invalid changes nothing.
pub trait Reload: fmt::Debug + Send + Sync {
    fn reload(&self) -> std::result::Result<Reloaded, ReloadError>;
}

/// Looks at the machine that the server runs on, and changes nothing.
pub trait Doctor: fmt::Debug + Send + Sync {
    fn examine(
        &self,
    ) -> Pin<Box<dyn Future<Output = std::result::Result<Examination, String>> + Send>>;
}

/// Why the settings are as they were.
#[derive(Clone, Debug)]
pub struct ReloadError {
    pub code: Code,
    pub message: String,
}

#[derive(Clone, Debug)]
pub(crate) struct App(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: Options,
    handle: Handle,
    metadata: MetadataLog,
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

impl App {
    pub(crate) fn new(options: Options, stop: CancellationToken) -> piton_runtime::Result<Self> {
        let handle = options.engine.handle()?.clone();
        let metadata = options.engine.metadata_log()?.clone();
        let view = handle.view().clone();
        let metrics = Metrics::new(handle.clone());
        Ok(Self(Arc::new(Inner {
            limits: Limits::new(options.rate),
            connections: Connections::new(options.connections),
            broadcasts: Broadcasts::new(view.clone()),
            index: Index::new(view, metadata.clone(), index::render),
            sockets: Sockets::new(options.connections.sockets_max),
            handle,
            metadata,
            metrics,
            audit: Audit::default(),
            readiness: Readiness::default(),
            stop,
            local: LOCAL.into(),
            options,
        })))
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

    pub(crate) fn metadata(&self) -> &MetadataLog {
        &self.0.metadata
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

    /// Resolves when the server is to end.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.0.stop
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
                    AccessDenied::Unknown => {
                        self.admit_without_token(connection, Presented::WrongToken)?;
                    }
                    AccessDenied::Scope { .. } if planted::is(Bug::RefusalUncounted) => {}
                    // The token is genuine: charge it to its own bucket.
                    AccessDenied::Expired | AccessDenied::Scope { .. } => {
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
}

pub(crate) fn to_value(value: &impl Serialize) -> Result<Value> {
    serde_json::to_value(value).map_err(|error| Problem::malformed(error.to_string()))
}
