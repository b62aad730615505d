//! A new session from a checkpoint of another one.

use piton_core::NewRecord;
use piton_core::event::{Event, GraphForked, SessionCreated, SessionLeased, SessionReleased};
use piton_core::id::{CheckpointId, SessionId};
use piton_store::{Durability, Position, WritableRecords};

use crate::error::Result;
use crate::log::Reader;
use crate::store::{GraphStore, new_session, now};

/// Records that a fork copies at a time.
const COPY_RECORDS: usize = 500;

/// A new session with a copy of the graph's records up to a checkpoint. Contents that are blobs are
/// shared. It is paused: resume it.
pub async fn fork(
    store: &GraphStore,
    session: &SessionId,
    checkpoint: &CheckpointId,
) -> Result<SessionId> {
    let log = Reader::new(store.store(), session.clone());
    let (folded, events) = log.load().await?;
    let entry = folded.index.may_resume(checkpoint)?.clone();
    let id = new_session()?;
    let mut copy = Copy::new(store, id.clone());
    let info = folded.session.info.as_ref();
    copy.push(NewRecord::new(
        now(),
        SessionCreated {
            session_id: id.clone(),
            title: info.and_then(|info| info.title.clone()),
            task_id: None,
            working_dir: info.and_then(|info| info.working_dir.clone()),
            provider: None,
            agent_profile_id: None,
        },
    ));
    let forked = GraphForked {
        from_session_id: session.clone(),
        from_checkpoint_id: checkpoint.clone(),
        from_seq: entry.seq,
    };
    copy.push(NewRecord::new(now(), forked));
    let kept = folded.lineage_events(&events, entry.lineage, entry.seq);
    for (seq, ..) in kept.into_iter().filter(|(_, _, event)| is_copied(event)) {
        let record = log.record(*seq).await?;
        let payload = match &record.content {
            piton_core::Content::Json(json) => Some(json.as_bytes()),
            _ => None,
        };
        let header = record.header.as_bytes();
        // The store read it as a record.
        if let Ok(new) = NewRecord::from_bytes(record.ts, &record.kind, header, payload) {
            copy.push(renumbered(new));
        }
        if copy.batch.len() >= COPY_RECORDS {
            copy.commit().await?;
        }
    }
    copy.finish().await?;
    Ok(id)
}

/// What a fork takes over: what the graph did, not who ran it or what was asked.
fn is_copied(event: &Event) -> bool {
    const COPIED: &[&str] = &["node.", "edge.", "memory.", "output.", "loop.", "map."];
    let kind = event.kind();
    matches!(event, Event::GraphBound(_) | Event::CheckpointCreated(_))
        || COPIED.iter().any(|begin| kind.starts_with(begin))
}

/// A fork has one lineage.
fn renumbered(record: NewRecord) -> NewRecord {
    match &record.event {
        Event::CheckpointCreated(e) if e.lineage != 1 => {
            let event = piton_core::event::CheckpointCreated { lineage: 1, ..e.clone() };
            NewRecord { payload: record.payload, ..NewRecord::new(record.ts, event) }
        }
        _ => record,
    }
}

/// A log that is written record by record, in batches, as it was elsewhere.
struct Copy {
    store: GraphStore,
    id: SessionId,
    state: piton_core::State,
    batch: Vec<NewRecord>,
}

impl Copy {
    fn new(store: &GraphStore, id: SessionId) -> Self {
        let state = piton_core::State::default();
        let mut copy = Self { store: store.clone(), id, state, batch: Vec::new() };
        let boot_id = store.boot().clone();
        copy.push(NewRecord::new(now(), SessionLeased { boot_id, epoch: 1 }));
        copy
    }

    fn push(&mut self, record: NewRecord) {
        self.state.apply(self.state.last_seq + 1, record.ts, &record.event);
        self.batch.push(record);
    }

    async fn commit(&mut self) -> Result<()> {
        let records = std::mem::take(&mut self.batch);
        let expected = self.state.last_seq - records.len() as u64;
        let writer = self.store.writer(&[])?;
        let at = Position { expected, epoch: 1 };
        // Masked when it was first written.
        let records = WritableRecords::verbatim(records);
        let summary = self.state.summary();
        writer.append(&self.id, at, records, Durability::Synced, summary).await?;
        Ok(())
    }

    async fn finish(mut self) -> Result<()> {
        let boot_id = self.store.boot().clone();
        self.push(NewRecord::new(now(), SessionReleased { boot_id, epoch: 1 }));
        self.commit().await
    }
}
