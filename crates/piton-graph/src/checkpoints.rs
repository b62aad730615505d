//! The checkpoints of a session: listed, looked into, deleted, pruned, forked from. And the answers
//! that a graph waits for.

use std::collections::{BTreeMap, BTreeSet};

use piton_core::decide::{self, Command, Refusal};
use piton_core::event::{
    CheckpointDeleted, CheckpointPruned, Event, GraphForked, SessionCreated, SessionLeased,
    SessionReleased,
};
use piton_core::graph::{
    CheckpointConfig, CheckpointEntry, CheckpointFilter, CheckpointType, ResumeRefusal,
};
use piton_core::id::{CheckpointId, SessionId, WaitId};
use piton_core::state::Phase;
use piton_core::token::NewToken;
use piton_core::{NewRecord, Seq, Timestamp};
use piton_store::{Detail, Durability, Position, WritableRecords};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::log::Log;
use crate::store::{GraphStore, new_session, new_token, now};

/// Records that a fork copies at a time.
const COPY_RECORDS: usize = 500;

/// A checkpoint in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckpointSummary {
    pub checkpoint_id: CheckpointId,
    #[serde(rename = "type")]
    pub checkpoint_type: CheckpointType,
    pub created_at: Timestamp,
    pub current_node: Option<String>,
    pub next_node: Option<String>,
    pub is_clean: bool,
    pub can_resume_from: bool,
    pub description: String,
    pub lineage: u32,
    /// Of the start of a node that failed: its error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_at_node: Option<String>,
}

/// The checkpoints of a session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckpointList {
    pub session_id: SessionId,
    /// Newest first.
    pub checkpoints: Vec<CheckpointSummary>,
    pub latest_checkpoint_id: Option<CheckpointId>,
    /// Of all, whatever the filter.
    pub total_checkpoints: usize,
    /// Where a resume without a checkpoint begins.
    pub resume_from_checkpoint_id: Option<CheckpointId>,
}

/// A checkpoint with all that it holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checkpoint {
    pub checkpoint_id: CheckpointId,
    pub session_id: SessionId,
    pub checkpoint_type: CheckpointType,
    pub created_at: Timestamp,
    pub current_node: Option<String>,
    pub next_node: Option<String>,
    pub execution_path: Vec<String>,
    /// `None`: `include_full_memory` was off when it was created. The log has it, and a resume restores
    /// it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_memory: Option<BTreeMap<String, Value>>,
    /// Keys whose values are never saved.
    pub excluded_keys: Vec<String>,
    /// How many messages each unfinished loop's conversation has, and at which record it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation_states: Option<BTreeMap<String, String>>,
    pub accumulated_outputs: BTreeMap<String, Value>,
    pub metrics_snapshot: MetricsSnapshot,
    pub is_clean: bool,
    pub can_resume_from: bool,
    pub description: String,
    /// The log's keyed hash at the checkpoint: it covers the record and all before it.
    pub signature: String,
    pub log_position: Seq,
    pub parent: Option<CheckpointId>,
    pub lineage: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_at_node: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricsSnapshot {
    pub total_retries: u64,
    pub nodes_with_failures: Vec<String>,
    pub nodes_completed: u64,
    pub total_latency_ms: u64,
}

async fn summary(log: &Log, entry: &CheckpointEntry) -> Result<CheckpointSummary> {
    let description = log.field(entry.seq, "description").await?;
    let error = match entry.failed_seq {
        Some(seq) => log.field(seq, "error").await?,
        None => None,
    };
    let text = |value: Option<Value>| value.and_then(|value| Some(value.as_str()?.to_owned()));
    Ok(CheckpointSummary {
        checkpoint_id: entry.checkpoint_id.clone(),
        checkpoint_type: entry.checkpoint_type,
        created_at: entry.created_at,
        current_node: entry.current_node.clone(),
        next_node: entry.next_node.clone(),
        is_clean: entry.is_clean,
        can_resume_from: entry.can_resume_from && !entry.is_damaged,
        description: text(description).unwrap_or_default(),
        lineage: entry.lineage,
        error: text(error),
        failed_at_node: entry.current_node.clone().filter(|_| entry.failed_seq.is_some()),
    })
}

/// Lists the checkpoints of a session, newest first.
pub async fn list(
    store: &GraphStore,
    session: &SessionId,
    filter: &CheckpointFilter,
    limit: usize,
) -> Result<CheckpointList> {
    let (log, _) = Log::load(store, session.clone(), &[]).await?;
    let index = &log.folded.index;
    let mut checkpoints = Vec::new();
    for entry in index.list(filter).take(limit) {
        checkpoints.push(summary(&log, entry).await?);
    }
    let lineage = log.lineage();
    let failed = log.folded.graph.failed().map(|(path, _)| path);
    let id = |entry: Option<&CheckpointEntry>| entry.map(|entry| entry.checkpoint_id.clone());
    Ok(CheckpointList {
        session_id: session.clone(),
        checkpoints,
        latest_checkpoint_id: id(index.latest(lineage)),
        total_checkpoints: index.len(),
        resume_from_checkpoint_id: id(index.resume_point(lineage, failed)),
    })
}

/// A checkpoint and all that it holds; `None`: the newest one.
pub async fn load(
    store: &GraphStore,
    session: &SessionId,
    checkpoint: Option<&CheckpointId>,
) -> Result<Checkpoint> {
    let (log, events) = Log::load(store, session.clone(), &[]).await?;
    let index = &log.folded.index;
    let entry = match checkpoint {
        Some(id) => index.get(id),
        None => index.latest(log.lineage()),
    };
    let Some(entry) = entry.cloned() else {
        return Err(match checkpoint {
            Some(id) => ResumeRefusal::NotFound { checkpoint: id.clone() }.into(),
            None => Error::NoneIntact { damages: vec!["the session has none".to_owned()] },
        });
    };
    let state = log.fold_at(&events, entry.lineage, entry.seq);
    let shared_memory = if entry.without_memory {
        None
    } else {
        let memory = log.memory(&state).await?;
        Some(memory.into_iter().map(|(key, value)| (key, (*value).clone())).collect())
    };
    let excluded = state.memory.iter().filter(|(_, value)| value.excluded);
    let mut accumulated_outputs = BTreeMap::new();
    for (key, seq) in &state.outputs {
        let value = log.field(*seq, "value").await?;
        accumulated_outputs.insert(key.clone(), value.unwrap_or(Value::Null));
    }
    let mut conversations = BTreeMap::new();
    for (path, node) in state.nodes.iter().filter(|(_, node)| !node.iterations.is_empty()) {
        for seq in &node.iterations.seqs {
            let step = log.field(*seq, "step").await?;
            if let Some(outputs) = step.as_ref().and_then(|step| step.get("outputs")?.as_object()) {
                let outputs = outputs.iter().map(|(key, value)| (key.clone(), value.clone()));
                accumulated_outputs.extend(outputs);
            }
        }
        let (at, messages) = (node.iterations.seqs.last().unwrap_or(&0), node.iterations.messages);
        conversations.insert(path.clone(), format!("{messages} messages at record {at}"));
    }
    let chain = store.store().chain_at(session, entry.seq).await?;
    let shown = summary(&log, &entry).await?;
    Ok(Checkpoint {
        checkpoint_id: entry.checkpoint_id,
        session_id: session.clone(),
        checkpoint_type: entry.checkpoint_type,
        created_at: entry.created_at,
        current_node: entry.current_node,
        next_node: entry.next_node,
        execution_path: state.execution_path.clone(),
        shared_memory,
        excluded_keys: excluded.map(|(key, _)| key.clone()).collect(),
        conversation_states: (!entry.without_conversations).then_some(conversations),
        accumulated_outputs,
        metrics_snapshot: MetricsSnapshot {
            total_retries: state.metrics.total_retries,
            nodes_with_failures: state.metrics.nodes_with_failures.iter().cloned().collect(),
            nodes_completed: state.metrics.nodes_completed,
            total_latency_ms: state.metrics.total_latency_ms,
        },
        is_clean: entry.is_clean,
        can_resume_from: shown.can_resume_from,
        description: shown.description,
        signature: chain.map(hex::encode).unwrap_or_default(),
        log_position: entry.seq,
        parent: entry.parent,
        lineage: entry.lineage,
        error: shown.error,
        failed_at_node: shown.failed_at_node,
    })
}

/// Changes a session that no living process owns: takes the lease, writes, gives it back.
async fn change<T>(
    store: &GraphStore,
    session: &SessionId,
    decide: impl AsyncFnOnce(&mut Log) -> Result<T>,
) -> Result<T> {
    let _claim = store.claim(session)?;
    let excluded = CheckpointConfig::default().exclude_memory_keys;
    let (mut log, _) = Log::load(store, session.clone(), &excluded).await?;
    log.take_lease()?;
    let decided = decide(&mut log).await?;
    log.release();
    log.commit().await?;
    Ok(decided)
}

/// Checkpoints that open waits belong to.
fn needed(log: &Log) -> BTreeSet<CheckpointId> {
    let is_waiting = log.folded.session.facts.is_graph_waiting();
    let kind = Some(CheckpointType::UserCheckpoint);
    let filter = CheckpointFilter { checkpoint_type: kind, ..CheckpointFilter::default() };
    let listed = log.folded.index.list(&filter).filter(|_| is_waiting);
    listed.map(|entry| entry.checkpoint_id.clone()).collect()
}

/// Deletes a checkpoint. False: there was none of this id.
pub async fn delete(
    store: &GraphStore,
    session: &SessionId,
    checkpoint: &CheckpointId,
) -> Result<bool> {
    let (log, _) = Log::load(store, session.clone(), &[]).await?;
    if log.folded.index.get(checkpoint).is_none() {
        return Ok(false);
    }
    // What may not be pruned may not be deleted.
    let all = log.folded.index.prune_plan(0, false, &needed(&log));
    if !all.contains(checkpoint) {
        let (checkpoint, why) =
            (checkpoint.clone(), "a lineage, a wait or a resume begins with it");
        return Err(Error::CheckpointInUse { checkpoint, why });
    }
    let checkpoint_id = checkpoint.clone();
    change(store, session, async |log| {
        log.push_event(CheckpointDeleted { checkpoint_id });
        Ok(true)
    })
    .await
}

/// Prunes old checkpoints so that `keep_count` remain; says which.
pub async fn prune(
    store: &GraphStore,
    session: &SessionId,
    keep_count: usize,
    keep_clean_only: bool,
) -> Result<Vec<CheckpointId>> {
    change(store, session, async |log| {
        let plan = log.folded.index.prune_plan(keep_count, keep_clean_only, &needed(log));
        for checkpoint_ids in plan.chunks(COPY_RECORDS) {
            let checkpoint_ids = checkpoint_ids.to_vec();
            log.push_event(CheckpointPruned { checkpoint_ids });
        }
        Ok(plan)
    })
    .await
}

/// Answers a wait of a graph that nothing runs. The graph continues when the session is resumed.
pub async fn answer(
    store: &GraphStore,
    session: &SessionId,
    wait_id: &WaitId,
    answer: Value,
) -> Result<()> {
    change(store, session, async |log| {
        let run = log.folded.session.facts.run.clone();
        let wait = run.as_ref().and_then(|run| run.waits.get(wait_id));
        let Some((run, wait)) = run.as_ref().zip(wait) else {
            return Err(Refusal::WaitNotFound { wait: wait_id.clone() }.into());
        };
        let question = log.field(wait.since_seq, "question").await?.unwrap_or(Value::Null);
        let answer = chosen(&question, answer);
        if !decide::fits(&question, &answer) {
            return Err(Refusal::AnswerInvalid { wait: wait_id.clone() }.into());
        }
        let fresh = NewToken::from(&new_token()?);
        log.decide(Command::AnswerByWait { wait_id: wait_id.clone(), fresh, answer })?;
        let other = run.waits.keys().find(|id| *id != wait_id).cloned();
        let run_id = run.run_id.clone();
        match other {
            // It still waits for the others.
            Some(wait_id) => log.decide(Command::Block { run_id, wait_id })?,
            None => log.decide(Command::Pause { run_id })?,
        };
        Ok(())
    })
    .await
}

/// An option can be named by its text alone.
fn chosen(question: &Value, answer: Value) -> Value {
    match answer {
        Value::String(option) if question.get("options").is_some() => {
            Value::Object(Map::from_iter([("option_id".to_owned(), option.into())]))
        }
        other => other,
    }
}

/// A new session with a copy of the graph's records up to a checkpoint. Contents that are blobs are
/// shared. It is paused: resume it.
pub async fn fork(
    store: &GraphStore,
    session: &SessionId,
    checkpoint: &CheckpointId,
) -> Result<SessionId> {
    let (log, events) = Log::load(store, session.clone(), &[]).await?;
    let entry = log.folded.index.may_resume(checkpoint)?.clone();
    let id = new_session()?;
    let mut copy = Copy::new(store, id.clone());
    let title = log.folded.session.info.as_ref().and_then(|info| info.title.clone());
    copy.push(NewRecord::new(
        now(),
        SessionCreated {
            session_id: id.clone(),
            title,
            task_id: None,
            working_dir: None,
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
    for segment in log.folded.lineages.segments(entry.lineage, entry.seq) {
        let first = events.partition_point(|(at, ..)| at < segment.start());
        for (seq, _, event) in events[first..].iter().take_while(|(at, ..)| at <= segment.end()) {
            if !is_copied(event) {
                continue;
            }
            let read = store.store().read(session, seq - 1, 1, Detail::Full).await?;
            let Some(record) = read.into_iter().next() else { continue };
            let payload = match &record.content {
                piton_core::Content::Json(json) => Some(json.as_bytes()),
                _ => None,
            };
            let header = record.header.as_bytes();
            let new = NewRecord::from_bytes(record.ts, &record.kind, header, payload);
            // The store read it as a record.
            if let Ok(new) = new {
                copy.push(renumbered(new));
            }
            if copy.batch.len() >= COPY_RECORDS {
                copy.commit().await?;
            }
        }
    }
    copy.finish().await?;
    Ok(id)
}

/// What a fork takes over: what the graph did, not who ran it or what was asked.
fn is_copied(event: &Event) -> bool {
    matches!(
        event,
        Event::GraphBound(_)
            | Event::NodeStarted(_)
            | Event::NodeCompleted(_)
            | Event::NodeFailed(_)
            | Event::NodeSkipped(_)
            | Event::NodeSafePoint(_)
            | Event::EdgeTaken(_)
            | Event::MemoryChanged(_)
            | Event::OutputAdded(_)
            | Event::LoopIterated(_)
            | Event::MapListed(_)
            | Event::MapItemCompleted(_)
            | Event::CheckpointCreated(_)
    )
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

/// How a graph's session stands, for people and programs.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionView {
    pub session_id: SessionId,
    pub graph: String,
    pub lineage: u32,
    pub phase: Option<Phase>,
    pub execution_path: Vec<String>,
    pub failed_at_node: Option<String>,
    pub waits: Vec<WaitId>,
}

/// Looks at a session that runs a graph.
pub async fn view(store: &GraphStore, session: &SessionId) -> Result<SessionView> {
    let (log, _) = Log::load(store, session.clone(), &[]).await?;
    let lineage = log.lineage();
    let run = log.folded.session.facts.run.as_ref();
    let waits = run.map(|run| run.waits.keys().cloned().collect());
    Ok(SessionView {
        session_id: session.clone(),
        graph: log.folded.graph.name.clone(),
        lineage,
        phase: run.map(|run| run.phase),
        failed_at_node: log.folded.graph.failed().map(|(path, _)| path.to_owned()),
        execution_path: log.folded.graph.execution_path.clone(),
        waits: waits.unwrap_or_default(),
    })
}
