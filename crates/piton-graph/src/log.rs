//! A graph's session: its log, what it folds into, and the one way to add to it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use piton_core::decide::{self, Command, Context, Verdict};
use piton_core::event::{EffectDone, Event, MemoryChanged, SessionLeased, SessionReleased};
use piton_core::graph::{CheckpointIndex, GraphState, Lineages};
use piton_core::id::SessionId;
use piton_core::limits::Limits;
use piton_core::{Code, Content, NewRecord, Record, Seq, State, Timestamp};
use piton_store::{Detail, Durability, Position, Writer};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::store::{GraphStore, now};

/// Headers that are read at a time.
const READ_RECORDS: usize = 1_000;
/// What may be in a batch before another node's completion joins it.
const SHARED_RECORDS_MAX: usize = 100;
const SHARED_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How long a full disk is waited for before the next try, at first and at most.
const FULL_DELAY_MIN: Duration = Duration::from_millis(250);
const FULL_DELAY_MAX: Duration = Duration::from_secs(30);

/// What a session's records come to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Folded {
    pub(crate) session: State,
    pub(crate) graph: GraphState,
    pub(crate) index: CheckpointIndex,
    pub(crate) lineages: Lineages,
}

impl Folded {
    fn apply(&mut self, seq: Seq, ts: Timestamp, event: &Event) {
        self.session.apply(seq, ts, event);
        self.graph.apply(seq, event);
        self.index.apply(seq, ts, event);
        self.lineages.apply(seq, event);
    }
}

/// One event of a log, where it stands.
pub(crate) type Logged = (Seq, Timestamp, Event);

/// A session's log that this process reads, and writes if it takes the lease.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) store: GraphStore,
    pub(crate) id: SessionId,
    pub(crate) folded: Folded,
    writer: Writer,
    /// What is decided and not appended yet.
    batch: Vec<NewRecord>,
}

impl Log {
    /// A log that does not exist yet.
    pub(crate) fn new(store: &GraphStore, id: SessionId, excluded: &[String]) -> Result<Self> {
        let writer = store.writer(excluded)?;
        Ok(Self { store: store.clone(), id, folded: Folded::default(), writer, batch: Vec::new() })
    }

    /// A session that runs a graph, as its log is now.
    pub(crate) async fn load(
        store: &GraphStore,
        id: SessionId,
        excluded: &[String],
    ) -> Result<(Self, Vec<Logged>)> {
        let loaded = piton_store::load(&**store.store(), &id).await?;
        let mut log = Self::new(store, id, excluded)?;
        let events = log.events(loaded.state.last_seq).await?;
        if loaded.state.facts.graph.is_none() {
            return Err(Error::NotGraph { session: log.id });
        }
        log.folded.session = loaded.state;
        for (seq, ts, event) in &events {
            log.folded.lineages.apply(*seq, event);
            log.folded.index.apply(*seq, *ts, event);
        }
        let lineage = log.folded.lineages.current();
        log.folded.graph = log.fold_at(&events, lineage, log.folded.session.last_seq);
        Ok((log, events))
    }

    /// All headers up to a record.
    async fn events(&self, last: Seq) -> Result<Vec<Logged>> {
        let mut events = Vec::new();
        let mut after = 0;
        while after < last {
            let read = self.store.store().read(&self.id, after, READ_RECORDS, Detail::Headers);
            let records = read.await?;
            let Some(end) = records.last().map(|record| record.seq) else { break };
            after = end;
            for record in records.iter().filter(|record| record.seq <= last) {
                // A record that cannot be read changes nothing, as in the session's own fold.
                if let Ok(event) = record.event() {
                    events.push((record.seq, record.ts, event));
                }
            }
        }
        Ok(events)
    }

    /// The graph as a lineage had it at a record.
    pub(crate) fn fold_at(&self, events: &[Logged], lineage: u32, seq: Seq) -> GraphState {
        let mut state = GraphState::default();
        for segment in self.folded.lineages.segments(lineage, seq) {
            let first = events.partition_point(|(at, ..)| at < segment.start());
            let inside = events[first..].iter().take_while(|(at, ..)| at <= segment.end());
            for (at, _, event) in inside {
                state.apply(*at, event);
            }
        }
        state
    }

    /// One record with its content.
    pub(crate) async fn record(&self, seq: Seq) -> Result<Record> {
        let records = self.store.store().read(&self.id, seq - 1, 1, Detail::Full).await?;
        records.into_iter().find(|record| record.seq == seq).ok_or_else(|| {
            let (session, source) = (self.id.clone(), None);
            piton_store::Error::RecordDamaged { session, seq, source }.into()
        })
    }

    /// A content field of a record; `None` if it was taken out or is not there.
    pub(crate) async fn field(&self, seq: Seq, field: &str) -> Result<Option<Value>> {
        Ok(self.record(seq).await?.content_field(field))
    }

    /// The content fields of a record.
    pub(crate) async fn fields(&self, seq: Seq) -> Result<Map<String, Value>> {
        match self.record(seq).await?.content {
            Content::Json(json) => serde_json::from_str(&json).map_err(|error| {
                let (session, source) =
                    (self.id.clone(), Some(Arc::new(error) as piton_store::Cause));
                piton_store::Error::RecordDamaged { session, seq, source }.into()
            }),
            Content::None | Content::Omitted | Content::Redacted => Ok(Map::new()),
        }
    }

    /// The memory's values at a state. Excluded keys have none.
    pub(crate) async fn memory(&self, state: &GraphState) -> Result<BTreeMap<String, Arc<Value>>> {
        let mut memory = BTreeMap::new();
        for (key, entry) in state.memory.iter().filter(|(_, entry)| !entry.excluded) {
            let mut value = Value::Null;
            for (seq, reducer) in &entry.parts {
                let part = self.field(*seq, "value").await?.unwrap_or(Value::Null);
                match reducer {
                    // They joined when they were written.
                    Some(reducer) => {
                        let _ = reducer.join(&mut value, part);
                    }
                    None => value = part,
                }
            }
            memory.insert(key.clone(), Arc::new(value));
        }
        Ok(memory)
    }

    pub(crate) fn lineage(&self) -> u32 {
        self.folded.lineages.current()
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

    /// Makes the batch durable. A full disk is waited for: nothing of the batch is written meanwhile,
    /// and nothing else happens.
    pub(crate) async fn commit(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let records = std::mem::take(&mut self.batch);
        let expected = self.folded.session.last_seq - records.len() as u64;
        let records = self.marked(expected, records)?;
        let records = self.writer.mask(&self.id, expected, records)?.records;
        let at = Position { expected, epoch: self.folded.session.lease.epoch };
        let mut delay = FULL_DELAY_MIN;
        loop {
            let summary = self.folded.session.summary();
            let (batch, synced) = (records.clone(), Durability::Synced);
            match self.writer.append(&self.id, at, batch, synced, summary).await {
                Ok(_) => return Ok(()),
                Err(error) if error.code() == Code::DiskFull => {
                    tracing::warn!(session = %self.id, "no space is left; the graph waits for it");
                    tokio::time::sleep(delay).await;
                    delay = (delay * 2).min(FULL_DELAY_MAX);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A value that masking changes is not what the node wrote: its record says so.
    fn marked(&mut self, expected: Seq, mut records: Vec<NewRecord>) -> Result<Vec<NewRecord>> {
        let masked = self.writer.mask(&self.id, expected, records.clone())?;
        for at in masked.originals.into_keys() {
            let Event::MemoryChanged(e) = &records[at].event else { continue };
            if e.excluded || masked.records[at].payload == records[at].payload {
                continue;
            }
            let event = MemoryChanged { excluded: true, ..e.clone() };
            let (ts, payload) = (records[at].ts, records[at].payload.take());
            let key = event.key.clone();
            records[at] = NewRecord { payload, ..NewRecord::new(ts, event) };
            if let Some(entry) = self.folded.graph.memory.get_mut(&key) {
                entry.excluded = true;
            }
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
