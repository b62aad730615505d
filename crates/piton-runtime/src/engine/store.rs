//! The store as a whole: verified, pruned. Bounded: a request takes a page.

use piton_core::decide::Removal;
use piton_core::id::SessionId;
use piton_store::{Finding, Query, Select, Verification};

use super::sessions::page_limit;
use super::{ArchiveTarget, Caller, Engine};
use crate::error::{Error, Result};
use crate::retention::{DueRemoval, Retention, due};

/// Logs that one request verifies, unless it says otherwise.
const VERIFIED: usize = 20;
const PAGE_ROWS: usize = 200;
const REASON: &str = "retention";

/// Some of the store's logs, verified.
#[derive(Debug)]
pub struct VerifiedPage {
    pub logs: Vec<(SessionId, Verification)>,
    /// What no single log shows; looked for with the last page.
    pub findings: Vec<Finding>,
    /// Where the next page begins; `None` on the last one.
    pub next: Option<SessionId>,
}

/// What became of a session that was due.
#[derive(Debug)]
pub struct Pruned {
    pub due: DueRemoval,
    /// `None`: it was only asked what is due.
    pub outcome: Option<Result<()>>,
}

impl Engine {
    /// Walks a page of logs and checks every link; with the last page also the store as a whole.
    pub async fn verify_store(
        &self,
        after: Option<&SessionId>,
        limit: Option<usize>,
    ) -> Result<VerifiedPage> {
        let limit = page_limit(Some(limit.unwrap_or(VERIFIED)))?;
        let mut page = self.0.store.logs(after, limit + 1).await?;
        let more = page.len() > limit;
        page.truncate(limit);
        let next = page.last().filter(|_| more).cloned();
        let mut logs = Vec::with_capacity(page.len());
        for session in page {
            let verified = self.0.store.verify(&session).await?;
            logs.push((session, verified));
        }
        let findings = match next {
            Some(_) => Vec::new(),
            None => self.0.store.verify_store().await?,
        };
        Ok(VerifiedPage { logs, findings, next })
    }

    /// Archives and deletes closed sessions that have been kept long enough, and whether more are due.
    /// What keeps one from being removed does not keep the others.
    pub async fn prune(
        &self,
        caller: &Caller,
        retention: Retention,
        dry_run: bool,
        limit: Option<usize>,
    ) -> Result<(Vec<Pruned>, bool)> {
        let limit = page_limit(limit)?;
        if retention == Retention::default() {
            let detail = "Name archive_after_s or delete_after_s";
            return Err(Error::Invalid(detail.to_owned()));
        }
        let (mut found, mut after) = (Vec::new(), None);
        // All of them before anything is removed: a page that begins behind what is gone is another.
        while found.len() <= limit {
            let query = Query { task_id: None, select: Select::All, after, limit: PAGE_ROWS };
            let page = self.0.store.list(query).await?;
            found.extend(due(&page.rows, retention, self.view().now()));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        let more = found.len() > limit;
        found.truncate(limit);
        let mut pruned = Vec::with_capacity(found.len());
        for due in found {
            let outcome = if dry_run { None } else { Some(self.remove_due(caller, &due).await) };
            pruned.push(Pruned { due, outcome });
        }
        Ok((pruned, more))
    }

    async fn remove_due(&self, caller: &Caller, due: &DueRemoval) -> Result<()> {
        if due.removal == Removal::Archive {
            return self.archive(caller, &due.session, ArchiveTarget::default()).await.map(drop);
        }
        self.delete(caller, &due.session, false, Some(REASON.to_owned())).await.map(drop)
    }
}
