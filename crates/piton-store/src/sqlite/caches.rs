//! What the caches should say, folded from the records while a log is verified, and what they do
//! say. A cache that is missing will be made again; one that says something else misleads.

use std::collections::BTreeMap;
use std::sync::Arc;

use piton_core::id::{SessionId, TokenId};
use piton_core::state::{PROJECTOR_VERSION, Summary};
use piton_core::{Event, State, Timestamp, token};
use rusqlite::OptionalExtension;

use super::logs;
use super::read::{Raw, Reader};
use crate::contract::{IndexEntry, Problem, Snapshot};
use crate::error::{Cause, Error, Result};

pub(crate) struct Caches {
    state: State,
    tokens: BTreeMap<TokenId, token::Entry>,
    snapshot: Option<Snapshot>,
    /// Where the snapshot claims to fit and says something else.
    snapshot_wrong: bool,
    /// A record made no sense: nothing can be compared.
    pub(crate) unreadable: bool,
}

/// By what a session is listed, beside its summary.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Columns {
    pub(crate) id: String,
    pub(crate) active_at: i64,
    pub(crate) task_id: Option<String>,
    pub(crate) closed: bool,
    pub(crate) needs_recovery: bool,
    pub(crate) deadline_at: Option<i64>,
}

impl Columns {
    pub(crate) fn of(session: &SessionId, summary: &Summary) -> Self {
        Self {
            id: session.as_str().to_owned(),
            active_at: summary.info.active_at.as_millis(),
            task_id: summary.info.task_id.as_ref().map(|task| task.as_str().to_owned()),
            closed: summary.facts.closed.is_some(),
            needs_recovery: summary.facts.needs_recovery(),
            deadline_at: summary.facts.deadline_at().map(Timestamp::as_millis),
        }
    }
}

impl Caches {
    pub(crate) fn new(snapshot: Option<Snapshot>) -> Self {
        Self {
            state: State::default(),
            tokens: BTreeMap::new(),
            snapshot,
            snapshot_wrong: false,
            unreadable: false,
        }
    }

    pub(crate) fn apply(&mut self, raw: &Raw<'_>, event: &Event) {
        self.state.apply(raw.seq, raw.ts, event);
        if let Some(id) = token::subject(event)
            && let Some(entry) = token::transition(self.tokens.remove(id), raw.seq, event)
        {
            self.tokens.insert(id.clone(), entry);
        }
        if let Some(snapshot) = self.snapshot.take_if(|snapshot| snapshot.seq == raw.seq) {
            let claims = snapshot.projector == PROJECTOR_VERSION && snapshot.chain == raw.chain;
            let saved = serde_json::from_str::<State>(&snapshot.body).ok();
            self.snapshot_wrong = claims && saved.as_ref() != Some(&self.state);
            self.snapshot = Some(snapshot);
        }
    }
}

impl Reader {
    /// The first thing in the caches that is not what the log says.
    pub(crate) fn compare(
        &self,
        session: &SessionId,
        no: i64,
        caches: Caches,
    ) -> Result<Option<Problem>> {
        let Caches { state, tokens, snapshot, snapshot_wrong, unreadable } = caches;
        if unreadable {
            return Ok(None);
        }
        // One that is ahead of the log was made from records that are no longer there.
        let found = state.last_seq;
        let ahead = |known| Ok(Some(Problem::CutBehindCache { known, found }));
        if let Some(beyond) = snapshot.as_ref().filter(|snapshot| snapshot.seq > found) {
            return ahead(beyond.seq);
        }
        if let Some(wrong) = snapshot.as_ref().filter(|_| snapshot_wrong) {
            return Ok(Some(Problem::SnapshotDisagrees { seq: wrong.seq }));
        }
        let disagrees = |what| Ok(Some(Problem::IndexDisagrees { what }));
        let lease = self
            .conn
            .prepare_cached("SELECT epoch, owner FROM heads WHERE no = ?1")
            .and_then(|mut find| find.query_row([no], |row| logs::lease(row, 0)).optional())
            .map_err(|e| self.failed(e))?;
        // Without it nothing of this log is cached.
        let Some(lease) = lease else { return Ok(None) };
        if lease.as_ref().is_some_and(|lease| lease.epoch > state.lease.epoch) {
            // Only a record behind the log's end can have said so.
            return ahead(found + 1);
        }
        if lease != Some(state.lease.clone()) {
            return disagrees(IndexEntry::Lease);
        }
        let saved = self.row_of(no)?;
        let listed = state.summary().filter(|_| !session.is_metadata_log());
        let later =
            |saved: &Summary, listed: &Summary| saved.info.active_at > listed.info.active_at;
        if let (Some((_, Some(saved))), Some(listed)) = (&saved, &listed)
            && later(saved, listed)
        {
            return ahead(found + 1);
        }
        let listed = listed.map(|listed| (Columns::of(session, &listed), Some(listed)));
        if saved != listed {
            return disagrees(IndexEntry::Session);
        }
        let saved = self.tokens_of(no)?;
        if saved.keys().any(|id| !tokens.contains_key(id)) {
            return ahead(found + 1);
        }
        let ids = tokens.keys().chain(saved.keys());
        let differs =
            |id: &&TokenId| tokens.get(*id).map(Some) != saved.get(*id).map(Option::as_ref);
        match ids.into_iter().find(differs) {
            Some(id) => disagrees(IndexEntry::Token(id.clone())),
            None => Ok(None),
        }
    }

    /// A log's row in the index; its summary is `None` if it cannot be read.
    fn row_of(&self, no: i64) -> Result<Option<(Columns, Option<Summary>)>> {
        let row = |row: &rusqlite::Row<'_>| {
            let columns = Columns {
                id: row.get(0)?,
                active_at: row.get(1)?,
                task_id: row.get(2)?,
                closed: row.get(3)?,
                needs_recovery: row.get(4)?,
                deadline_at: row.get(5)?,
            };
            Ok((columns, row.get::<_, String>(6)?))
        };
        let found = self
            .conn
            .prepare_cached(
                "SELECT id, active_at, task_id, closed, needs_recovery, deadline_at, summary
                 FROM sessions WHERE no = ?1",
            )
            .and_then(|mut find| find.query_row([no], row).optional())
            .map_err(|e| self.failed(e))?;
        Ok(found.map(|(columns, summary)| (columns, serde_json::from_str(&summary).ok())))
    }

    /// `None` for an entry that cannot be read.
    fn tokens_of(&self, no: i64) -> Result<BTreeMap<TokenId, Option<token::Entry>>> {
        let rows = || {
            let mut select =
                self.conn.prepare_cached("SELECT id, entry FROM tokens WHERE no = ?1")?;
            let rows = select
                .query_map([no], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        let mut tokens = BTreeMap::new();
        for (id, entry) in rows().map_err(|e| self.failed(e))? {
            let id = id.parse::<TokenId>().map_err(|e| Error::Damaged {
                path: self.path.clone(),
                source: Some(Arc::new(e) as Cause),
            })?;
            tokens.insert(id, serde_json::from_str(&entry).ok());
        }
        Ok(tokens)
    }
}
