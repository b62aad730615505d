//! Speaking to an agentctl that has a socket, and reading the spool that a dead one left in a folder.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use piton_core::decide::Import;
use piton_core::id::ExecutionId;
use piton_core::limits::{IMPORT_BYTES_MAX, IMPORT_ENTRIES_MAX};
use piton_core::spool::{Entry, Pos, Spool};
use piton_core::{AnyCode, Code};

use super::{At, EntryStream, Error};
use crate::client::{Client, ClientError, Stream};
use crate::protocol::{Frame, Problem, spool_key};
use crate::spool::SpoolReader;

/// Why an agentctl did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It answered, and refused.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// It did not answer; whether it did it is not known.
    #[error("agentctl does not answer: {message}")]
    Unreachable { message: String },
}

impl Fault {
    pub fn unreachable(error: impl fmt::Display) -> Self {
        Self::Unreachable { message: error.to_string() }
    }

    pub fn code(&self) -> AnyCode {
        match self {
            Self::Problem(problem) => problem.code.clone(),
            Self::Unreachable { .. } => Code::AgentctlUnreachable.into(),
        }
    }
}

impl From<ClientError> for Fault {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Problem(problem) => Self::Problem(problem),
            ClientError::Unreachable(source) => Self::unreachable(source),
            error @ ClientError::Protocol(_) => {
                Self::Problem(Problem::new(Code::ProtocolUnsupported, error.to_string()))
            }
        }
    }
}

/// With all its causes.
impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let mut message = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        Self::Problem(Problem::new(error.code(), message))
    }
}

/// What is left of a dead execution's spool.
#[derive(Clone, Debug, Default)]
pub struct Drained {
    pub spool_id: String,
    /// In order, from behind the cursor; empty at the end.
    pub entries: Vec<Entry>,
    /// Positions before them that are gone, first and last.
    pub lost: Option<(Pos, Pos)>,
    /// Why there are no more of them though there may have been: what is behind damage is lost.
    pub damage: Option<String>,
}

impl Drained {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.lost.is_none() && self.damage.is_none()
    }

    /// What the log makes of it.
    pub fn import(self, execution_id: ExecutionId) -> Import {
        let Self { spool_id, entries, lost, damage } = self;
        let (masked, fresh, rules) = (BTreeMap::new(), Vec::new(), Arc::default());
        Import { execution_id, spool_id, entries, lost, damage, masked, fresh, rules }
    }
}

pub(super) async fn follow(
    client: &Client,
    after: Option<Spool>,
) -> Result<Box<dyn EntryStream>, ClientError> {
    let spool_id = client.health().await?.spool.spool_id;
    let pos = after.filter(|after| after.spool_id == spool_id).map_or(0, |after| after.pos);
    let stream = client.stream(&spool_id, pos).await?;
    Ok(Box::new(Followed { spool_id, stream }))
}

struct Followed {
    spool_id: String,
    stream: Stream,
}

impl EntryStream for Followed {
    fn spool_id(&self) -> &str {
        &self.spool_id
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Frame>> {
        Box::pin(async move {
            match self.stream.next().await {
                Ok(frame) => frame,
                Err(error) => {
                    tracing::debug!(code = %error.code(), %error, "stream ended");
                    None
                }
            }
        })
    }

    fn ack(&mut self, pos: Pos) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Err(error) = self.stream.ack(pos).await {
                // It is acknowledged again with what comes next.
                tracing::debug!(code = %error.code(), %error, "agentctl did not acknowledge a segment");
            }
        })
    }
}

pub(super) async fn drain(folder: PathBuf, at: &At, after: Option<Spool>) -> Drained {
    let key = spool_key(&at.secret);
    let read = tokio::task::spawn_blocking(move || read_spool(&folder, &key, after));
    read.await.unwrap_or_default()
}

/// Reads what is left in a folder; what is behind damage cannot be had.
fn read_spool(folder: &Path, key: &[u8; 32], after: Option<Spool>) -> Drained {
    let damaged = |error: crate::spool::Error| {
        tracing::error!(code = %error.code(), %error, "spool not readable to its end");
        Some(error.to_string())
    };
    let reader = match SpoolReader::open(folder, key) {
        Ok(reader) => reader,
        Err(error) => return Drained { damage: damaged(error), ..Drained::default() },
    };
    let Some(spool_id) = reader.spool_id().map(ToOwned::to_owned) else {
        return Drained::default();
    };
    let pos = after.filter(|after| after.spool_id == spool_id).map_or(0, |after| after.pos);
    // Trimmed for a log that had more than this one: one that was restored from a backup.
    let lost = (reader.first() > pos + 1).then(|| (pos + 1, reader.first() - 1));
    let mut drained = Drained { spool_id, lost, ..Drained::default() };
    let mut bytes = 0;
    let mut entries = reader.after(pos);
    for entry in entries.by_ref().take(IMPORT_ENTRIES_MAX) {
        match entry {
            Ok(entry) => {
                bytes += entry.weight();
                if bytes > IMPORT_BYTES_MAX && !drained.entries.is_empty() {
                    break;
                }
                drained.entries.push(entry);
            }
            Err(error) => {
                drained.damage = damaged(error);
                break;
            }
        }
    }
    if let Some(pos) = entries.cut_off() {
        drained.damage = Some(format!("Entry {pos}, the last one, was cut off"));
    }
    drained
}
