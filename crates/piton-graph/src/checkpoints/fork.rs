//! A new session from a checkpoint of another one.

use piton_core::event::{
    ArtifactAdded, Event, GraphForked, LoopIterated, MapItemCompleted, MapListed, MemoryChanged,
    NodeEvent, OutputAdded, SessionCreated, SessionLeased, SessionReleased,
};
use piton_core::graph::{CheckpointConfig, CheckpointOptions};
use piton_core::id::{CheckpointId, SessionId};
use piton_core::limits::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX, PAYLOAD_BYTES_MAX};
use piton_core::{Content, NewRecord, Seq};
use piton_store::{Durability, Position, WritableRecords};

use crate::error::Result;
use crate::log::Reader;
use crate::store::{GraphStore, new_session, now};

/// Records and bytes of contents that a fork writes in one batch. A larger fork takes several: its
/// first record says where the copy ends, and until then it can be neither read nor resumed.
const COPY_RECORDS: usize = BATCH_RECORDS_MAX - 8;
const COPY_BYTES: usize = BATCH_BYTES_MAX / 2 - PAYLOAD_BYTES_MAX / 2;

/// A new session with a copy of the graph's records up to a checkpoint. Contents that are blobs are
/// shared. It is paused: resume it.
pub async fn fork(
    store: &GraphStore,
    session: &SessionId,
    checkpoint: &CheckpointId,
) -> Result<SessionId> {
    fork_as(store, session, checkpoint, new_session()?).await
}

/// The same, in a session of this id.
pub async fn fork_as(
    store: &GraphStore,
    session: &SessionId,
    checkpoint: &CheckpointId,
    id: SessionId,
) -> Result<SessionId> {
    let log = Reader::new(store.store(), session.clone());
    let (folded, events) = log.load_readable().await?;
    let entry = folded.index.may_resume(checkpoint)?.clone();
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
        through: None,
    };
    let kept = folded.lineage_events(&events, entry.lineage, entry.seq);
    let copied = |event: &Event| match event {
        // Pruned and deleted ones stay gone, and one that cannot be restored is no offer.
        Event::CheckpointCreated(e) => {
            folded.index.get(&e.checkpoint_id).is_some_and(|entry| !entry.is_damaged)
        }
        other => is_copied(other),
    };
    let kept: Vec<_> = kept.into_iter().filter(|(_, _, event)| copied(event)).collect();
    // Keys that were excluded later than the checkpoint are excluded in the copy, too.
    let recorded = folded.index.options();
    let configured = CheckpointConfig::of([recorded]).to_record(recorded, recorded);
    let is_configured = *recorded != CheckpointOptions::default();
    let copied = kept.len() + usize::from(is_configured);
    let through = Some(copy.state.last_seq + 1 + copied as Seq);
    copy.push(NewRecord::new(now(), GraphForked { through, ..forked }));
    if is_configured {
        copy.push(NewRecord::new(now(), configured));
    }
    for (seq, ..) in kept {
        let record = log.record(*seq).await?;
        let payload = match &record.content {
            Content::Json(json) => Some(json.as_bytes()),
            _ => None,
        };
        let header = record.header.as_bytes();
        let new =
            NewRecord::from_bytes(record.ts, &record.kind, header, payload).map_err(|_| {
                // The store read it as a record.
                let (session, source) = (session.clone(), None);
                piton_store::Error::RecordDamaged { session, seq: *seq, source }
            })?;
        copy.push(if record.content == Content::Redacted { lost(new) } else { renumbered(new) });
        if copy.batch.len() >= COPY_RECORDS || copy.bytes >= COPY_BYTES {
            copy.commit().await?;
        }
    }
    copy.finish().await?;
    Ok(id)
}

/// What a fork takes over: what the graph did, not who ran it or what was asked.
fn is_copied(event: &Event) -> bool {
    const COPIED: &[&str] = &["node.", "edge.", "memory.", "output.", "loop.", "map.", "artifact."];
    let kind = event.kind();
    matches!(event, Event::GraphBound(_)) || COPIED.iter().any(|begin| kind.starts_with(begin))
}

/// The copy of a record whose content was redacted says that there is none. What a safe point had kept
/// is not known by its keys, so that the copy has the node begin again.
fn lost(record: NewRecord) -> NewRecord {
    let excluded = true;
    let event: Event = match &record.event {
        Event::MemoryChanged(e) => MemoryChanged { excluded, ..e.clone() }.into(),
        Event::OutputAdded(e) => OutputAdded { excluded, ..e.clone() }.into(),
        Event::ArtifactAdded(e) => ArtifactAdded { excluded, ..e.clone() }.into(),
        Event::LoopIterated(e) => LoopIterated { excluded, ..e.clone() }.into(),
        Event::MapListed(e) => MapListed { excluded, ..e.clone() }.into(),
        Event::MapItemCompleted(e) => MapItemCompleted { excluded, ..e.clone() }.into(),
        Event::NodeSafePoint(e) => {
            let (path, visit, attempt) = (e.path.clone(), e.visit, e.attempt);
            NodeEvent { path, visit, attempt }.into()
        }
        _ => return renumbered(record),
    };
    NewRecord::new(record.ts, event)
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
    /// Of the contents in the batch.
    bytes: usize,
}

impl Copy {
    fn new(store: &GraphStore, id: SessionId) -> Self {
        let state = piton_core::State::default();
        let mut copy = Self { store: store.clone(), id, state, batch: Vec::new(), bytes: 0 };
        let boot_id = store.boot().clone();
        copy.push(NewRecord::new(now(), SessionLeased { boot_id, epoch: 1 }));
        copy
    }

    fn push(&mut self, record: NewRecord) {
        self.state.apply(self.state.last_seq + 1, record.ts, &record.event);
        self.bytes += record.payload.as_ref().map_or(0, |payload| payload.len());
        self.batch.push(record);
    }

    async fn commit(&mut self) -> Result<()> {
        let records = std::mem::take(&mut self.batch);
        self.bytes = 0;
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
