//! What the caches should say, folded from the records while a log is verified, and what they do
//! say. A cache that is missing will be made again; one that says something else misleads.

use std::collections::BTreeMap;
use std::sync::Arc;

use piton_core::id::{SessionId, TokenId};
use piton_core::state::{PROJECTOR_VERSION, Summary};
use piton_core::{Event, State, token};
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
        let beyond = snapshot.as_ref().filter(|snapshot| snapshot.seq > state.last_seq);
        if let Some(wrong) = snapshot.as_ref().filter(|_| snapshot_wrong).or(beyond) {
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
        if lease != Some(state.lease.clone()) {
            return disagrees(IndexEntry::Lease);
        }
        let saved: Option<String> = self
            .conn
            .prepare_cached("SELECT summary FROM sessions WHERE no = ?1")
            .and_then(|mut find| find.query_row([no], |row| row.get(0)).optional())
            .map_err(|e| self.failed(e))?;
        let saved = saved.map(|saved| serde_json::from_str::<Summary>(&saved).ok());
        let listed = state.summary().filter(|_| !session.is_metadata_log());
        if saved != listed.map(Some) {
            return disagrees(IndexEntry::Session);
        }
        let saved = self.tokens_of(no)?;
        let ids = tokens.keys().chain(saved.keys());
        let differs =
            |id: &&TokenId| tokens.get(*id).map(Some) != saved.get(*id).map(Option::as_ref);
        match ids.into_iter().find(differs) {
            Some(id) => disagrees(IndexEntry::Token(id.clone())),
            None => Ok(None),
        }
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
