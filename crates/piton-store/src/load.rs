//! A session's state from its snapshot and the rest of its log. A store does this in one go, where
//! its records are, and hands over the result.

use piton_core::id::SessionId;
use piton_core::planted::{self, Bug};
use piton_core::record::may_follow;
use piton_core::state::PROJECTOR_VERSION;
use piton_core::{Event, Seq, State, Timestamp, chain};
use std::sync::Arc;

use crate::contract::{Detail, Head, Snapshot, Store};
use crate::error::{Error, Result};

/// Headers that are read at a time to know a state of the past.
const FOLD_RECORDS: usize = 1_000;

#[derive(Clone, Debug)]
pub struct LoadedState {
    pub state: State,
    pub head: Head,
    /// How many records were replayed after the snapshot.
    pub replayed: u64,
}

/// Loads a session that must be there.
pub async fn load(store: &dyn Store, session: &SessionId) -> Result<LoadedState> {
    let unknown = || Error::SessionNotFound { session: session.clone() };
    store.load(session).await?.ok_or_else(unknown)
}

/// The state as it was after a record of the past. Begins with the saved snapshot, if that is old
/// enough. A record that cannot be read changes nothing but the position.
pub async fn load_at(store: &dyn Store, session: &SessionId, seq: Seq) -> Result<State> {
    let mut state = match store.snapshot(session).await? {
        Some(saved) if saved.seq <= seq => {
            let chain_now = store.chain_at(session, saved.seq).await?;
            usable(&saved, chain_now).unwrap_or_default()
        }
        _ => State::default(),
    };
    while state.last_seq < seq {
        let left = usize::try_from(seq - state.last_seq).unwrap_or(FOLD_RECORDS);
        let limit = left.min(FOLD_RECORDS);
        let records = store.read(session, state.last_seq, limit, Detail::Headers).await?;
        let records: Vec<_> = records.into_iter().filter(|record| record.seq <= seq).collect();
        if records.is_empty() {
            break;
        }
        for record in &records {
            if state.apply_record(record).is_err() {
                state.last_seq = record.seq;
            }
        }
    }
    Ok(state)
}

/// A fold on its way to a head.
#[derive(Debug)]
pub(crate) struct Folding<'a> {
    session: &'a SessionId,
    head: Head,
    state: State,
    replayed: u64,
}

impl<'a> Folding<'a> {
    /// A snapshot of another projector, or whose chain is not the log's, is passed over: the log is
    /// the truth. It comes with the log's chain at its position.
    pub(crate) fn new(
        session: &'a SessionId,
        head: Head,
        snapshot: Option<(Snapshot, Option<chain::Hash>)>,
    ) -> Self {
        let state = snapshot.and_then(|(saved, now)| usable(&saved, now)).unwrap_or_default();
        Self { session, head, state, replayed: 0 }
    }

    /// The last record that was folded in; the next ones follow it.
    pub(crate) fn at(&self) -> Seq {
        self.state.last_seq
    }

    /// Whether the head is not reached yet.
    pub(crate) fn is_behind(&self) -> bool {
        self.state.last_seq < self.head.last_seq
    }

    /// Folds the next record in; false if it came after the head, and no more are needed.
    pub(crate) fn apply(
        &mut self,
        seq: Seq,
        ts: Timestamp,
        kind: &str,
        header: &str,
    ) -> Result<bool> {
        if seq > self.head.last_seq {
            return Ok(false);
        }
        if !may_follow(self.state.last_seq, seq, kind) {
            return Err(damaged(self.session, self.state.last_seq + 1, None));
        }
        let event = Event::parse(kind, header).map_err(|e| damaged(self.session, seq, Some(e)))?;
        self.state.apply(seq, ts, &event);
        self.replayed += 1;
        Ok(true)
    }

    pub(crate) fn finish(self) -> Result<LoadedState> {
        if self.state.last_seq < self.head.last_seq {
            return Err(damaged(self.session, self.state.last_seq + 1, None));
        }
        Ok(LoadedState { state: self.state, head: self.head, replayed: self.replayed })
    }
}

fn damaged(session: &SessionId, seq: Seq, source: Option<piton_core::event::ParseError>) -> Error {
    Error::RecordDamaged {
        session: session.clone(),
        seq,
        source: source.map(|e| Arc::new(e) as crate::error::Cause),
    }
}

fn usable(snapshot: &Snapshot, chain_now: Option<chain::Hash>) -> Option<State> {
    let fits = chain_now == Some(snapshot.chain) || planted::is(Bug::SnapshotStale);
    if snapshot.projector != PROJECTOR_VERSION || !fits {
        return None;
    }
    let state = serde_json::from_str::<State>(&snapshot.body).ok()?;
    (state.last_seq == snapshot.seq).then_some(state)
}
