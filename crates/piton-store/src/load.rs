//! A session's state from its snapshot and the rest of its log.

use piton_core::State;
use piton_core::id::SessionId;
use piton_core::planted::{self, Bug};
use piton_core::state::PROJECTOR_VERSION;
use std::sync::Arc;

use crate::contract::{Detail, Head, Store};
use crate::error::{Error, Result};

/// Records read at a time while replaying.
const READ_MAX: usize = 1_000;

#[derive(Clone, Debug)]
pub struct LoadedState {
    pub state: State,
    pub head: Head,
    /// How many records were replayed after the snapshot.
    pub replayed: u64,
}

/// Loads a session. A snapshot of another projector, or whose chain is not the log's, is passed
/// over: the log is the truth.
pub async fn load(store: &dyn Store, session: &SessionId) -> Result<LoadedState> {
    let head = store
        .head(session)
        .await?
        .ok_or_else(|| Error::SessionUnknown { session: session.clone() })?;
    let mut state = usable_snapshot(store, session).await?.unwrap_or_default();
    let mut replayed = 0;
    while state.last_seq < head.last_seq {
        let records = store.read(session, state.last_seq, READ_MAX, Detail::Headers).await?;
        if records.is_empty() {
            return Err(damaged(session, state.last_seq + 1, None));
        }
        for record in &records {
            if record.seq != state.last_seq + 1 {
                return Err(damaged(session, state.last_seq + 1, None));
            }
            if record.seq > head.last_seq {
                break;
            }
            state.apply_record(record).map_err(|e| damaged(session, record.seq, Some(e)))?;
            replayed += 1;
        }
    }
    Ok(LoadedState { state, head, replayed })
}

fn damaged(session: &SessionId, seq: u64, source: Option<piton_core::event::ParseError>) -> Error {
    Error::RecordDamaged {
        session: session.clone(),
        seq,
        source: source.map(|e| Arc::new(e) as crate::error::Cause),
    }
}

async fn usable_snapshot(store: &dyn Store, session: &SessionId) -> Result<Option<State>> {
    let Some(snapshot) = store.snapshot(session).await? else { return Ok(None) };
    if snapshot.projector != PROJECTOR_VERSION {
        return Ok(None);
    }
    let fits = store.chain_at(session, snapshot.seq).await? == Some(snapshot.chain);
    if !fits && !planted::is(Bug::SnapshotStale) {
        return Ok(None);
    }
    Ok(serde_json::from_str::<State>(&snapshot.body)
        .ok()
        .filter(|state| state.last_seq == snapshot.seq))
}
