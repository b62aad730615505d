//! What a new boot does about the old ones: every session with an open run, or an executor that
//! may live, whose writer is dead, is looked at once. Cost follows the number of those sessions.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream;
use piton_core::Code;
use piton_core::decide::{Command, Verdict};
use piton_core::id::SessionId;
use piton_core::state::ExecutorStatus;
use piton_store::{Durability, Query, Select};

use crate::coordinator::Coordinator;
use crate::env::Env;
use crate::error::Result;

/// Sessions recovered at the same time: enough to share flushes, few enough to finish the first
/// long before the last.
const AT_ONCE: usize = 256;
const PAGE: usize = 256;
/// How often a session is looked at again after somebody else wrote to it in between.
const TRIES_MAX: usize = 8;

/// What became of one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    pub session: SessionId,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Interrupted, reattached, or found unreachable: its log says which.
    Settled,
    /// There was nothing to do.
    Unchanged,
    /// Another boot lives and owns it.
    Owned,
    /// It could not be recovered and is left as it is; the others are not held up.
    Failed(Code),
}

#[derive(Debug)]
pub(crate) struct RecoveryManager {
    env: Arc<Env>,
    coordinator: Arc<Coordinator>,
}

impl RecoveryManager {
    pub(crate) fn new(env: Arc<Env>, coordinator: Arc<Coordinator>) -> Self {
        Self { env, coordinator }
    }

    /// Looks at every open session; `each` is told as soon as one is settled.
    pub(crate) async fn recover(&self, mut each: impl FnMut(Recovered)) -> Result<()> {
        let mut after = None;
        loop {
            let select = Select::NeedsRecovery;
            let query = Query { task_id: None, select, after, limit: PAGE };
            let page = self.env.store.list(query).await?;
            let mut recovering =
                stream::iter(page.rows).map(|row| self.recover_one(row)).buffer_unordered(AT_ONCE);
            while let Some(recovered) = recovering.next().await {
                each(recovered);
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    async fn recover_one(&self, row: piton_store::Row) -> Recovered {
        let session = row.session;
        let executor = row.summary.facts.executor.as_ref().map(|executor| executor.status);
        let outcome = match row.lease.owner {
            // Our own need no recovery, but for an executor that may have come back.
            Some(owner) if owner == self.env.boot => match executor {
                Some(ExecutorStatus::Unreachable) => self.settle(&session).await,
                _ => Outcome::Unchanged,
            },
            Some(owner) if self.env.is_alive(&owner) => Outcome::Owned,
            _ => self.settle(&session).await,
        };
        Recovered { session, outcome }
    }

    async fn settle(&self, session: &SessionId) -> Outcome {
        let mut tries = 0;
        loop {
            tries += 1;
            // The session fills in what it finds out about boots and executors.
            let command = Command::Recover { dead: BTreeSet::new(), probe: None };
            match self.coordinator.execute(session, command, Durability::Synced).await {
                Ok(ack) if ack.verdict == Verdict::Already => return Outcome::Unchanged,
                Ok(_) => return Outcome::Settled,
                // Another boot was quicker. It may have died since: what it left decides.
                Err(error) if error.code() == Code::SeqConflict && tries < TRIES_MAX => {}
                // It was taken over between the list and now.
                Err(error) if matches!(error.code(), Code::SessionOwned | Code::EpochStale) => {
                    return Outcome::Owned;
                }
                Err(error) => {
                    tracing::error!(%session, code = %error.code(), "session not recovered");
                    return Outcome::Failed(error.code());
                }
            }
        }
    }
}
