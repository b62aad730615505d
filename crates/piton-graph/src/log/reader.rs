//! Reading a graph's session: its records, and what they come to. Needs no lease and no boot, so it works
//! beside the process that writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use piton_core::event::Event;
use piton_core::graph::{Answer, CheckpointIndex, GraphState, Lineages};
use piton_core::id::{CheckpointId, SessionId};
use piton_core::{Content, Record, Seq, State, Timestamp};
use piton_store::{Detail, Store};
use serde_json::{Map, Value};

use crate::error::{Error, Result, is_damage};
use crate::node::{Restored, RestoredMap};

/// Headers that are read at a time.
const READ_RECORDS: usize = 1_000;

/// What a session's records come to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Folded {
    pub(crate) session: State,
    pub(crate) graph: GraphState,
    pub(crate) index: CheckpointIndex,
    pub(crate) lineages: Lineages,
    /// The first record that cannot be read: what is here is what was before it.
    pub(crate) broken_at: Option<Seq>,
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
        // What was redacted is known no more, whatever came first.
        for (_, _, event) in events {
            if let Event::RecordRedacted(e) = event {
                state.mark_redacted(e.target_seq);
            }
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

    /// What the log comes to now, to be added to. An error if the session runs no graph, or if the log is
    /// broken: nothing may be written behind what cannot be read.
    pub(crate) async fn load(&self) -> Result<(Folded, Vec<Logged>)> {
        let (folded, events) = self.load_readable().await?;
        self.refuse_broken(&folded, &events).await?;
        Ok((folded, events))
    }

    /// For what depends on the log's end.
    pub(crate) async fn refuse_broken(&self, folded: &Folded, events: &[Logged]) -> Result<()> {
        let Some(seq) = folded.broken_at else { return Ok(()) };
        let checkpoint = self.newest_intact(folded, events).await?;
        Err(Error::LogBroken { session: self.id.clone(), seq, checkpoint })
    }

    /// What the log comes to, to be read: of a broken one, what was before it broke.
    pub(crate) async fn load_readable(&self) -> Result<(Folded, Vec<Logged>)> {
        let loaded = match piton_store::load(&*self.store, &self.id).await {
            Ok(loaded) => Ok(loaded.state),
            Err(error) if is_damage(error.code()) => Err(error),
            Err(error) => return Err(error.into()),
        };
        let last = loaded.as_ref().map_or(Seq::MAX, |session| session.last_seq);
        let (events, broken) = self.events(last).await?;
        let end = events.last().map_or(0, |(seq, ..)| *seq);
        let (session, broken_at) = match (loaded, broken) {
            (Ok(session), None) => (session, None),
            (Err(error), _) | (Ok(_), Some(error)) if end == 0 => return Err(error.into()),
            _ => {
                let mut session = State::default();
                for (seq, ts, event) in &events {
                    session.apply(*seq, *ts, event);
                }
                (session, Some(end + 1))
            }
        };
        if session.facts.graph.is_none() {
            return Err(Error::NotGraph { session: self.id.clone() });
        }
        check_whole(&self.id, session.last_seq, &events)?;
        let mut folded = Folded { session, broken_at, ..Folded::default() };
        for (seq, ts, event) in &events {
            folded.lineages.apply(*seq, event);
            folded.index.apply(*seq, *ts, event);
        }
        folded.graph = folded.fold_at(&events, folded.lineage(), folded.session.last_seq);
        Ok((folded, events))
    }

    /// The newest checkpoint of the log's lineage that can be restored.
    async fn newest_intact(
        &self,
        folded: &Folded,
        events: &[Logged],
    ) -> Result<Option<CheckpointId>> {
        let mut before = folded.session.last_seq + 1;
        while let Some(entry) = folded.index.before(before) {
            before = entry.seq;
            let state = folded.fold_at(events, entry.lineage, entry.seq);
            match self.everything(&state).await {
                Ok(_) => return Ok(Some(entry.checkpoint_id.clone())),
                Err(error) if error.is_damage() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// All headers up to a record, or up to the one that cannot be read, with the reason.
    async fn events(&self, last: Seq) -> Result<(Vec<Logged>, Option<piton_store::Error>)> {
        let mut events = Vec::new();
        let (mut after, mut limit) = (0, READ_RECORDS);
        while after < last {
            let records = match self.store.read(&self.id, after, limit, Detail::Headers).await {
                Ok(records) => records,
                // Those before the damaged one can be read.
                Err(error) if is_damage(error.code()) && limit > 1 => {
                    limit /= 2;
                    continue;
                }
                Err(error) if is_damage(error.code()) => return Ok((events, Some(error))),
                Err(error) => return Err(error.into()),
            };
            let Some(end) = records.last().map(|record| record.seq) else { break };
            after = end;
            for record in records.iter().filter(|record| record.seq <= last) {
                // A record that cannot be read changes nothing, as in the session's own fold.
                if let Ok(event) = record.event() {
                    events.push((record.seq, record.ts, event));
                }
            }
        }
        Ok((events, None))
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

    /// The same, to be shown: a text that is damaged hides nothing else.
    pub(crate) async fn shown_text(&self, seq: Seq, field: &str) -> Result<Option<String>> {
        match self.text(seq, field).await {
            Err(error) if error.is_damage() => Ok(Some("(cannot be read)".to_owned())),
            other => other,
        }
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

    /// What earlier attempts of a node left in the log.
    pub(crate) async fn restored(&self, state: &GraphState, path: &str) -> Result<Restored> {
        let mut restored = Restored::default();
        let Some(node) = state.node(path) else { return Ok(restored) };
        restored.failures = node.failures;
        restored.child_session_id.clone_from(&node.child_session_id);
        if let Some(safe_point) = &node.safe_point {
            let mut fields = self.fields(safe_point.seq).await?;
            let why = fields.remove("description").and_then(|why| Some(why.as_str()?.to_owned()));
            let mut writes = match fields.remove("writes") {
                Some(Value::Object(writes)) => writes,
                _ => Map::new(),
            };
            writes.retain(|key, _| !safe_point.excluded_keys.contains(key));
            if let Some(Value::Array(messages)) = fields.remove("messages") {
                restored.messages = messages;
            }
            restored.safe_point = Some((why.unwrap_or_default(), writes));
        }
        if let Some(map) = &node.map {
            let items = match self.field(map.list_seq, "items").await? {
                Some(Value::Array(items)) if !map.is_list_masked => Some(items),
                _ => None,
            };
            let mut results = BTreeMap::new();
            // An item whose result masking changed runs again.
            let whole = map.items.iter().filter(|(index, _)| !map.masked.contains(index));
            for (index, seq) in whole {
                let value = self.field(*seq, "value").await?;
                results.extend(value.map(|value| (*index, value)));
            }
            restored.map = Some(RestoredMap { count: map.count, items, results });
        }
        for seq in &node.iterations.seqs {
            let Some(Value::Object(mut step)) = self.field(*seq, "step").await? else {
                continue;
            };
            if let Some(Value::Array(messages)) = step.remove("messages") {
                restored.conversation.extend(messages);
            }
            if let Some(Value::Object(outputs)) = step.remove("outputs") {
                restored.outputs.extend(outputs);
            }
        }
        restored.iterations = u32::try_from(node.iterations.seqs.len()).unwrap_or(u32::MAX);
        restored.is_done = node.iterations.done;
        Ok(restored)
    }

    /// The memory's values at a state, and a look at everything else that a resume would need: an error
    /// if some of it cannot be read.
    pub(crate) async fn everything(
        &self,
        state: &GraphState,
    ) -> Result<BTreeMap<String, Arc<Value>>> {
        for path in state.nodes.keys() {
            self.restored(state, path).await?;
        }
        for seq in state.outputs.values().chain(state.artifacts.values().map(|file| &file.seq)) {
            self.record(*seq).await?;
        }
        for answer in state.answers.values() {
            if let Answer::Given { seq } = answer {
                self.record(*seq).await?;
            }
        }
        self.memory(state).await
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

/// A fork that was cut off has no more than a part of what it was to have.
fn check_whole(session: &SessionId, last: Seq, events: &[Logged]) -> Result<()> {
    let forked = events.iter().find_map(|(_, _, event)| match event {
        Event::GraphForked(e) => e.through,
        _ => None,
    });
    match forked.filter(|through| last < *through) {
        Some(_) => Err(Error::ForkIncomplete { session: session.clone() }),
        None => Ok(()),
    }
}
