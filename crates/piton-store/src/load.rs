//! A session's state from its snapshot and the rest of its log. A store does this in one go, where
//! its records are, and hands over the result.

use piton_core::id::SessionId;
use piton_core::planted::{self, Bug};
use piton_core::record::may_follow;
use piton_core::state::PROJECTOR_VERSION;
use piton_core::{Record, Seq, State, chain};
use std::sync::Arc;

use crate::contract::{Head, Snapshot, Store};
use crate::error::{Error, Result};

#[derive(Clone, Debug)]
pub struct LoadedState {
    pub state: State,
    pub head: Head,
    /// How many records were replayed after the snapshot.
    pub replayed: u64,
}

/// Loads a session that must be there.
pub async fn load(store: &dyn Store, session: &SessionId) -> Result<LoadedState> {
    let unknown = || Error::SessionUnknown { session: session.clone() };
    store.load(session).await?.ok_or_else(unknown)
}

/// Folds up to a head. A snapshot of another projector, or whose chain is not the log's, is passed
/// over: the log is the truth. `chain_now` is the log's chain at the snapshot; `read` gives the
/// next headers after a position.
pub(crate) fn fold(
    session: &SessionId,
    head: Head,
    snapshot: Option<(Snapshot, Option<chain::Hash>)>,
    mut read: impl FnMut(Seq) -> Result<Vec<Record>>,
) -> Result<LoadedState> {
    let mut state = snapshot.and_then(|(saved, now)| usable(&saved, now)).unwrap_or_default();
    let mut replayed = 0;
    while state.last_seq < head.last_seq {
        let records = read(state.last_seq)?;
        if records.is_empty() {
            return Err(damaged(session, state.last_seq + 1, None));
        }
        for record in records.iter().take_while(|record| record.seq <= head.last_seq) {
            if !may_follow(state.last_seq, record.seq, &record.kind) {
                return Err(damaged(session, state.last_seq + 1, None));
            }
            state.apply_record(record).map_err(|e| damaged(session, record.seq, Some(e)))?;
            replayed += 1;
        }
    }
    Ok(LoadedState { state, head, replayed })
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
