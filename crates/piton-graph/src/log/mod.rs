//! A graph's session: its log, what it folds into, and the one way to add to it.

mod marking;
mod reader;

use std::time::Duration;

use piton_core::decide::{self, Command, Context, Verdict};
use piton_core::event::{EffectDone, Event, MemoryChanged, SessionLeased, SessionReleased};
use piton_core::graph::CheckpointConfig;
use piton_core::id::SessionId;
use piton_core::limits::Limits;
use piton_core::{Code, NewRecord, Seq};
use piton_store::{Durability, Position, Writer};
use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::error::Result;
use crate::store::{GraphStore, now};
pub(crate) use reader::{Folded, Logged, Reader};

/// What may be in a batch before another node's completion joins it.
const SHARED_RECORDS_MAX: usize = 100;
const SHARED_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How long a full disk is waited for before the next try, at first and at most.
const FULL_DELAY_MIN: Duration = Duration::from_millis(250);
const FULL_DELAY_MAX: Duration = Duration::from_secs(30);

/// A session's log that this process reads, and writes if it takes the lease.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) store: GraphStore,
    pub(crate) id: SessionId,
    pub(crate) reader: Reader,
    pub(crate) folded: Folded,
    writer: Writer,
    /// What is decided and not appended yet.
    batch: Vec<NewRecord>,
    /// Contents above so many bytes are compressed.
    compress_above: usize,
}

impl Log {
    /// A log that does not exist yet.
    pub(crate) fn new(
        store: &GraphStore,
        id: SessionId,
        config: &CheckpointConfig,
    ) -> Result<Self> {
        let writer = store.writer(&config.exclude_memory_keys)?;
        let compress_above = config.compression_threshold_bytes;
        let reader = Reader::new(store.store(), id.clone());
        let folded = Folded::default();
        let (store, batch) = (store.clone(), Vec::new());
        Ok(Self { store, id, reader, folded, writer, batch, compress_above })
    }

    /// A session that runs a graph, as its log is now.
    pub(crate) async fn load(
        store: &GraphStore,
        id: SessionId,
        config: &CheckpointConfig,
    ) -> Result<(Self, Vec<Logged>)> {
        let mut log = Self::new(store, id, config)?;
        let (folded, events) = log.reader.load().await?;
        log.folded = folded;
        Ok((log, events))
    }

    /// Writes by these options from now on.
    pub(crate) fn configure(&mut self, config: &CheckpointConfig) -> Result<()> {
        self.writer = self.store.writer(&config.exclude_memory_keys)?;
        self.compress_above = config.compression_threshold_bytes;
        Ok(())
    }

    /// A content field of a record; `None` if it was taken out or is not there.
    pub(crate) async fn field(&self, seq: Seq, field: &str) -> Result<Option<Value>> {
        self.reader.field(seq, field).await
    }

    pub(crate) fn lineage(&self) -> u32 {
        self.folded.lineage()
    }

    fn holds_lease(&self) -> bool {
        self.folded.session.lease.owner.as_ref() == Some(self.store.boot())
    }

    pub(crate) fn context(&self) -> Context {
        Context { now: now(), boot: self.store.boot().clone(), limits: Limits::default() }
    }

    /// Adds a record to the batch, and folds it in.
    pub(crate) fn push(&mut self, record: NewRecord) {
        let seq = self.folded.session.last_seq + 1;
        self.folded.apply(seq, record.ts, &record.event);
        self.batch.push(record);
    }

    /// Whether the batch says that a checkpoint is damaged.
    pub(crate) fn has_damages(&self) -> bool {
        self.batch.iter().any(|record| matches!(record.event, Event::CheckpointDamaged(_)))
    }

    /// Whether the batch can take the largest completion beside what is in it.
    pub(crate) fn has_room(&self) -> bool {
        let bytes = |record: &NewRecord| record.payload.as_ref().map_or(0, |payload| payload.len());
        self.batch.len() < SHARED_RECORDS_MAX
            && self.batch.iter().map(bytes).sum::<usize>() < SHARED_BYTES_MAX
    }

    pub(crate) fn push_event(&mut self, event: impl Into<Event>) {
        self.push(NewRecord::new(now(), event));
    }

    /// Takes the lease with this batch, if this boot does not hold it.
    pub(crate) fn take_lease(&mut self) -> Result<()> {
        if self.holds_lease() {
            return Ok(());
        }
        let others = self.folded.session.lease.owner.as_ref();
        if let Some(owner) = others.filter(|owner| self.store.is_alive(owner)) {
            let (session, owner) = (self.id.clone(), owner.clone());
            return Err(piton_store::Error::SessionOwned { session, owner }.into());
        }
        let epoch = self.folded.session.lease.epoch + 1;
        let boot_id = self.store.boot().clone();
        self.push_event(SessionLeased { boot_id, epoch });
        Ok(())
    }

    /// Decides, and adds the records. No agent is to carry their effects out: the graph does, and they
    /// are done when the batch is durable.
    pub(crate) fn decide(&mut self, command: Command) -> Result<Verdict> {
        let decision = decide::decide(&self.folded.session, &self.context(), command)?;
        for record in decision.records {
            self.push(record);
        }
        let pending: Vec<Seq> = self.folded.session.pending.keys().copied().collect();
        for of_seq in pending {
            self.push_event(EffectDone { of_seq });
        }
        Ok(decision.outcome)
    }

    /// Masks by a value that must not be written: the writer knows it from now on.
    pub(crate) fn teach(&self, key: &str, value: &Value) -> Result<()> {
        let event =
            MemoryChanged { key: key.to_owned(), path: None, reducer: None, excluded: true };
        let object = Value::Object(Map::from_iter([(key.to_owned(), value.clone())]));
        let lesson = NewRecord::with_content(now(), event, "value", object);
        self.writer.mask(&self.id, self.folded.session.last_seq, vec![lesson])?;
        Ok(())
    }

    /// Makes the batch durable. That the disk is full is an error.
    pub(crate) async fn commit(&mut self) -> Result<()> {
        let (_gone, mut stop) = watch::channel(());
        self.commit_or_stop(&mut stop, true).await
    }

    /// Makes the batch durable. A full disk is waited for: nothing of the batch is written meanwhile,
    /// and nothing else happens. Until a caller stops the run: then there is one more try, and the
    /// error. What the log has is what a resume continues with.
    pub(crate) async fn commit_or_stop<S>(
        &mut self,
        stop: &mut watch::Receiver<S>,
        mut is_stopping: bool,
    ) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let records = std::mem::take(&mut self.batch);
        let expected = self.folded.session.last_seq - records.len() as u64;
        let records = self.marked(expected, records)?;
        let records = self.writer.mask(&self.id, expected, records)?.records;
        let records = records.compressing_above(self.compress_above);
        let at = Position { expected, epoch: self.folded.session.lease.epoch };
        let mut delay = FULL_DELAY_MIN;
        loop {
            let summary = self.folded.session.summary();
            let (batch, synced) = (records.clone(), Durability::Synced);
            match self.writer.append(&self.id, at, batch, synced, summary).await {
                Ok(_) => return Ok(()),
                Err(error) if error.code() == Code::DiskFull && !is_stopping => {
                    tracing::warn!(session = %self.id, "the disk is full; the graph waits for space");
                    tokio::select! {
                        () = tokio::time::sleep(delay) => {
                            delay = (delay * 2).min(FULL_DELAY_MAX);
                        }
                        Ok(()) = stop.changed() => is_stopping = true,
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A value that masking changes is not what was meant: its record says so.
    fn marked(&mut self, expected: Seq, mut records: Vec<NewRecord>) -> Result<Vec<NewRecord>> {
        let masked = self.writer.mask(&self.id, expected, records.clone())?;
        for at in masked.originals.into_keys() {
            let (before, after) = (&records[at].payload, &masked.records[at].payload);
            let (Some(before), Some(after)) = (before, after) else { continue };
            let Some(event) = marking::marked(&records[at].event, before, after) else { continue };
            self.folded.graph.mark_excluded(&event);
            let (ts, payload) = (records[at].ts, records[at].payload.take());
            records[at] = NewRecord { payload, ..NewRecord::new(ts, event) };
        }
        Ok(records)
    }

    /// Gives the lease back.
    pub(crate) fn release(&mut self) {
        if self.holds_lease() {
            let boot_id = self.store.boot().clone();
            let epoch = self.folded.session.lease.epoch;
            self.push_event(SessionReleased { boot_id, epoch });
        }
    }
}
