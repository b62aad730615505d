//! The checkpoints of a session: listed, looked into, compared, deleted, pruned, forked from. And the
//! answers that a graph waits for. Reading needs a store and no boot, so it works beside the process that
//! runs the graph.

mod artifacts;
mod change;
mod diff;
mod fork;
mod overview;
mod session;
mod timeline;

use std::collections::BTreeMap;
use std::sync::Arc;

use piton_core::graph::{
    CheckpointEntry, CheckpointFilter, CheckpointIndex, CheckpointType, GraphState, ResumeRefusal,
};
use piton_core::id::{CheckpointId, SessionId};
use piton_core::{Seq, Timestamp};
use piton_store::Store;
use serde::Serialize;
use serde_json::Value;

pub use artifacts::{ArtifactSummary, artifact, artifacts};
pub(crate) use change::{PRUNED_RECORD_MAX, chosen};
pub use change::{answer, delete, excluded_keys, prune, prune_plan};
pub use diff::{Changed, CheckpointDiff, KeyChanges, diff};
pub use fork::{fork, fork_as};
pub use overview::{EdgeOverview, GraphOverview, NodeOverview, overview};
pub use session::{Question, SessionView, graph_spec, question, view};
pub use timeline::{TimelineEntry, timeline};

use crate::error::{Error, Result};
use crate::log::{Folded, Logged, Reader};

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
    /// The files that nodes had left.
    pub artifacts: Vec<ArtifactSummary>,
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

async fn summary(log: &Reader, entry: &CheckpointEntry) -> Result<CheckpointSummary> {
    let description = log.shown_text(entry.seq, "description").await?;
    let error = match entry.failed_seq {
        Some(seq) => log.shown_text(seq, "error").await?,
        None => None,
    };
    Ok(CheckpointSummary {
        checkpoint_id: entry.checkpoint_id.clone(),
        checkpoint_type: entry.checkpoint_type,
        created_at: entry.created_at,
        current_node: entry.current_node.clone(),
        next_node: entry.next_node.clone(),
        is_clean: entry.is_clean,
        can_resume_from: entry.can_resume_from && !entry.is_damaged,
        description: description.unwrap_or_default(),
        lineage: entry.lineage,
        error,
        failed_at_node: entry.current_node.clone().filter(|_| entry.failed_seq.is_some()),
    })
}

/// Lists the checkpoints of a session, newest first.
pub async fn list(
    store: &Arc<dyn Store>,
    session: &SessionId,
    filter: &CheckpointFilter,
    limit: usize,
) -> Result<CheckpointList> {
    let log = Reader::new(store, session.clone());
    let (folded, _) = log.load_readable().await?;
    let index = &folded.index;
    let mut checkpoints = Vec::new();
    for entry in index.list(filter).take(limit) {
        checkpoints.push(summary(&log, entry).await?);
    }
    let lineage = folded.lineage();
    let failed = folded.graph.failed().map(|(path, _)| path);
    let id = |entry: Option<&CheckpointEntry>| entry.map(|entry| entry.checkpoint_id.clone());
    Ok(CheckpointList {
        session_id: session.clone(),
        checkpoints,
        latest_checkpoint_id: id(index.latest(lineage)),
        total_checkpoints: index.len(),
        resume_from_checkpoint_id: id(index.resume_point(lineage, failed)),
    })
}

/// The checkpoint that a text names: its id, or the beginning or the end of its id if no other one
/// begins or ends so.
pub async fn find(store: &Arc<dyn Store>, session: &SessionId, text: &str) -> Result<CheckpointId> {
    let (folded, _) = Reader::new(store, session.clone()).load_readable().await?;
    named(&folded.index, text)
}

fn named(index: &CheckpointIndex, text: &str) -> Result<CheckpointId> {
    let all = CheckpointFilter::default();
    let ids = || index.list(&all).map(|entry| &entry.checkpoint_id);
    if let Some(id) = ids().find(|id| id.as_str() == text) {
        return Ok(id.clone());
    }
    let fits = |id: &&CheckpointId| id.as_str().starts_with(text) || id.as_str().ends_with(text);
    let found: Vec<&CheckpointId> = ids().filter(fits).take(2).collect();
    match found[..] {
        [only] => Ok(only.clone()),
        [] => Err(Error::CheckpointUnknown { named: text.to_owned(), is_ambiguous: false }),
        _ => Err(Error::CheckpointUnknown { named: text.to_owned(), is_ambiguous: true }),
    }
}

/// The entry of a checkpoint; `None`: the newest one.
fn entry_of(folded: &Folded, checkpoint: Option<&CheckpointId>) -> Result<CheckpointEntry> {
    let entry = match checkpoint {
        Some(id) => folded.index.get(id),
        None => folded.index.latest(folded.lineage()),
    };
    entry.cloned().ok_or_else(|| match checkpoint {
        Some(id) => ResumeRefusal::NotFound { checkpoint: id.clone() }.into(),
        None => Error::NoneIntact { damages: vec!["the session has none".to_owned()] },
    })
}

/// A checkpoint and all that it holds; `None`: the newest one.
pub async fn load(
    store: &Arc<dyn Store>,
    session: &SessionId,
    checkpoint: Option<&CheckpointId>,
) -> Result<Checkpoint> {
    let log = Reader::new(store, session.clone());
    let (folded, events) = log.load_readable().await?;
    if checkpoint.is_none() {
        log.refuse_broken(&folded, &events).await?;
    }
    let entry = entry_of(&folded, checkpoint)?;
    held(&log, &folded, &events, entry).await
}

/// What a checkpoint holds.
async fn held(
    log: &Reader,
    folded: &Folded,
    events: &[Logged],
    entry: CheckpointEntry,
) -> Result<Checkpoint> {
    let state = folded.fold_at(events, entry.lineage, entry.seq);
    let shared_memory = if entry.without_memory {
        None
    } else {
        let memory = log.memory(&state).await?;
        Some(memory.into_iter().map(|(key, value)| (key, (*value).clone())).collect())
    };
    let excluded = state.memory.iter().filter(|(_, value)| value.excluded);
    let (accumulated_outputs, conversations) = accumulated(log, &state).await?;
    let chain = log.store.chain_at(&log.id, entry.seq).await?;
    let shown = summary(log, &entry).await?;
    Ok(Checkpoint {
        checkpoint_id: entry.checkpoint_id,
        session_id: log.id.clone(),
        checkpoint_type: entry.checkpoint_type,
        created_at: entry.created_at,
        current_node: entry.current_node,
        next_node: entry.next_node,
        execution_path: state.execution_path.clone(),
        shared_memory,
        excluded_keys: excluded.map(|(key, _)| key.clone()).collect(),
        conversation_states: (!entry.without_conversations).then_some(conversations),
        accumulated_outputs,
        artifacts: state.artifacts.iter().map(|(name, of)| ArtifactSummary::of(name, of)).collect(),
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

/// The outputs so far, those of unfinished loops among them, and where each loop's conversation ends.
async fn accumulated(
    log: &Reader,
    state: &GraphState,
) -> Result<(BTreeMap<String, Value>, BTreeMap<String, String>)> {
    let mut outputs = BTreeMap::new();
    for (key, seq) in &state.outputs {
        let value = log.field(*seq, "value").await?;
        outputs.insert(key.clone(), value.unwrap_or(Value::Null));
    }
    let mut conversations = BTreeMap::new();
    for (path, node) in state.nodes.iter().filter(|(_, node)| !node.iterations.is_empty()) {
        for seq in &node.iterations.seqs {
            let step = log.field(*seq, "step").await?;
            if let Some(set) = step.as_ref().and_then(|step| step.get("outputs")?.as_object()) {
                outputs.extend(set.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
        }
        let (at, messages) = (node.iterations.seqs.last().unwrap_or(&0), node.iterations.messages);
        conversations.insert(path.clone(), format!("{messages} messages at record {at}"));
    }
    Ok((outputs, conversations))
}
