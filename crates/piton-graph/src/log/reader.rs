//! Reading a graph's session: its records, and what they come to. Needs no lease and no boot, so it works
//! beside the process that writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use piton_core::event::Event;
use piton_core::graph::{CheckpointIndex, GraphState, Lineages};
use piton_core::id::SessionId;
use piton_core::{Content, Record, Seq, State, Timestamp};
use piton_store::{Detail, Store};
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Headers that are read at a time.
const READ_RECORDS: usize = 1_000;

/// What a session's records come to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Folded {
    pub(crate) session: State,
    pub(crate) graph: GraphState,
    pub(crate) index: CheckpointIndex,
    pub(crate) lineages: Lineages,
}

impl Folded {
    pub(super) fn apply(&mut self, seq: Seq, ts: Timestamp, event: &Event) {
        self.session.apply(seq, ts, event);
        self.graph.apply(seq, event);
        self.index.apply(seq, ts, event);
        self.lineages.apply(seq, event);
    }

    /// The lineage that the log's end belongs to.
    pub(crate) fn lineage(&self) -> u32 {
        self.lineages.current()
    }

    /// The graph as a lineage had it at a record.
    pub(crate) fn fold_at(&self, events: &[Logged], lineage: u32, seq: Seq) -> GraphState {
        let mut state = GraphState::default();
        for (at, _, event) in self.lineage_events(events, lineage, seq) {
            state.apply(*at, event);
        }
        state
    }

    /// The events of a lineage up to a record.
    pub(crate) fn lineage_events<'a>(
        &self,
        events: &'a [Logged],
        lineage: u32,
        seq: Seq,
    ) -> Vec<&'a Logged> {
        let mut found = Vec::new();
        for segment in self.lineages.segments(lineage, seq) {
            let first = events.partition_point(|(at, ..)| at < segment.start());
            found.extend(events[first..].iter().take_while(|(at, ..)| at <= segment.end()));
        }
        found
    }
}

/// One event of a log, where it stands.
pub(crate) type Logged = (Seq, Timestamp, Event);

/// A session's log, for reading.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) id: SessionId,
}

impl Reader {
    pub(crate) fn new(store: &Arc<dyn Store>, id: SessionId) -> Self {
        Self { store: Arc::clone(store), id }
    }

    /// What the log comes to now. An error if the session runs no graph.
    pub(crate) async fn load(&self) -> Result<(Folded, Vec<Logged>)> {
        let session = piton_store::load(&*self.store, &self.id).await?.state;
        if session.facts.graph.is_none() {
            return Err(Error::NotGraph { session: self.id.clone() });
        }
        let events = self.events(session.last_seq).await?;
        let mut folded = Folded { session, ..Folded::default() };
        for (seq, ts, event) in &events {
            folded.lineages.apply(*seq, event);
            folded.index.apply(*seq, *ts, event);
        }
        folded.graph = folded.fold_at(&events, folded.lineage(), folded.session.last_seq);
        Ok((folded, events))
    }

    /// All headers up to a record.
    async fn events(&self, last: Seq) -> Result<Vec<Logged>> {
        let mut events = Vec::new();
        let mut after = 0;
        while after < last {
            let records = self.store.read(&self.id, after, READ_RECORDS, Detail::Headers).await?;
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

    /// One record with its content.
    pub(crate) async fn record(&self, seq: Seq) -> Result<Record> {
        let records = self.store.read(&self.id, seq.saturating_sub(1), 1, Detail::Full).await?;
        records.into_iter().find(|record| record.seq == seq).ok_or_else(|| {
            let (session, source) = (self.id.clone(), None);
            piton_store::Error::RecordDamaged { session, seq, source }.into()
        })
    }

    /// A content field of a record; `None` if it was taken out or is not there.
    pub(crate) async fn field(&self, seq: Seq, field: &str) -> Result<Option<Value>> {
        Ok(self.record(seq).await?.content_field(field))
    }

    /// The same, if it is a text.
    pub(crate) async fn text(&self, seq: Seq, field: &str) -> Result<Option<String>> {
        let value = self.field(seq, field).await?;
        Ok(value.and_then(|value| Some(value.as_str()?.to_owned())))
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
}
