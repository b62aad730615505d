//! A graph's session drawn: its nodes and edges, and how far each came.

use std::collections::BTreeMap;
use std::sync::Arc;

use piton_core::event::Event;
use piton_core::graph::{CheckpointOptions, NodePhase, enclosing};
use piton_core::id::{CheckpointId, SessionId, WaitId};
use piton_core::{Seq, Timestamp};
use piton_store::Store;
use serde::Serialize;
use serde_json::Value;

use super::accumulated;
use crate::error::{Error, Result};
use crate::log::Reader;
use crate::spec::GraphSpec;

/// A graph and how far it came.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GraphOverview {
    pub session_id: SessionId,
    pub graph: String,
    pub goal: Option<String>,
    /// The file that it was read from.
    pub file: Option<String>,
    pub spec_hash: String,
    pub lineage: u32,
    /// A server runs it, and continues it after a restart.
    pub is_on_server: bool,
    pub nodes: Vec<NodeOverview>,
    pub edges: Vec<EdgeOverview>,
    /// The nodes that completed, in order.
    pub execution_path: Vec<String>,
    pub failed_at_node: Option<String>,
    pub error: Option<String>,
    /// Where a resume without a checkpoint begins.
    pub resume_from_checkpoint_id: Option<CheckpointId>,
    /// Open waits.
    pub waits: Vec<WaitId>,
    pub excluded_keys: Vec<String>,
    pub last_seq: Seq,
    /// Only if they are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<BTreeMap<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs: Option<BTreeMap<String, Value>>,
    /// The checkpoint options that the graph itself sets.
    #[serde(skip)]
    pub checkpoint: CheckpointOptions,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeOverview {
    pub node: String,
    /// `command`, `set`, `template`, `human`, `agent`, `subgraph`, `custom`.
    pub kind: &'static str,
    pub is_map: bool,
    pub is_loop: bool,
    /// `pending`, `running`, `failed`, `completed`, `skipped`.
    pub state: &'static str,
    /// How often a cycle led to it.
    pub visit: u32,
    pub attempts: u32,
    pub reads: Vec<String>,
    pub writes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// Of a map: items that are complete; of a loop: iterations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// The session that an `agent` node works through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_session_id: Option<SessionId>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EdgeOverview {
    pub from: String,
    pub to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    pub priority: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// The last completion of its source took it.
    pub is_taken: bool,
}

/// A session's graph and how far it came; with the memory and the outputs if they are asked for.
pub async fn overview(
    store: &Arc<dyn Store>,
    session: &SessionId,
    include_memory: bool,
) -> Result<GraphOverview> {
    let log = Reader::new(store, session.clone());
    let (folded, events) = log.load_readable().await?;
    let spec = log.field(folded.graph.spec_seq, "spec").await?.unwrap_or(Value::Null);
    let spec = GraphSpec::from_value(spec).map_err(|source| Error::SpecUnreadable { source })?;
    let state = &folded.graph;
    let mut latencies = BTreeMap::new();
    for (_, _, event) in folded.lineage_events(&events, folded.lineage(), folded.session.last_seq) {
        if let Event::NodeCompleted(e) = event {
            latencies.insert(e.path.as_str(), e.latency_ms);
        }
    }
    let mut nodes = Vec::new();
    for (name, node) in &spec.all_nodes() {
        let known = state.node(name);
        // What is in a subgraph that was skipped, is, too.
        let is_skipped = enclosing(name).any(|outer| state.phase(outer) == NodePhase::Skipped);
        let phase = if is_skipped { NodePhase::Skipped } else { state.phase(name) };
        let (state_name, error_seq, retry_at) = match phase {
            NodePhase::Pending => ("pending", None, None),
            NodePhase::Running => ("running", None, None),
            NodePhase::Failed { seq, retry_at } => ("failed", Some(seq), retry_at),
            NodePhase::Completed => ("completed", None, None),
            NodePhase::Skipped => ("skipped", None, None),
        };
        let error = match error_seq {
            Some(seq) => log.text(seq, "error").await?,
            None => None,
        };
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let map = known.and_then(|known| known.map.as_ref());
        let iterations = known.map(|known| known.iterations.seqs.len()).filter(|done| *done > 0);
        nodes.push(NodeOverview {
            node: name.clone(),
            kind: node.kind.as_str(),
            is_map: node.map.is_some(),
            is_loop: node.repeat.is_some(),
            state: state_name,
            visit: state.visit(name),
            attempts: known.map_or(0, |known| known.attempts),
            reads: node.reads.iter().cloned().collect(),
            writes: node.writes.iter().cloned().collect(),
            latency_ms: latencies
                .get(name.as_str())
                .copied()
                .filter(|_| phase == NodePhase::Completed),
            error,
            retry_at,
            done: map.map(|map| count(map.items.len())).or_else(|| iterations.map(count)),
            count: map.map(|map| map.count),
            child_session_id: known.and_then(|known| known.child_session_id.clone()),
        });
    }
    let is_taken = |from: &str, to: &str| {
        state.node(from).is_some_and(|node| node.taken.iter().any(|taken| taken == to))
    };
    let edges = spec.all_edges().into_iter().map(|edge| EdgeOverview {
        is_taken: is_taken(&edge.from, &edge.to),
        from: edge.from,
        to: edge.to,
        when: edge.when,
        priority: edge.priority,
        max: edge.max,
    });
    let failed = state.failed().map(|(path, seq)| (path.to_owned(), seq));
    let error = match &failed {
        Some((_, seq)) => log.text(*seq, "error").await?,
        None => None,
    };
    let failed_at_node = failed.map(|(path, _)| path);
    let point = folded.index.resume_point(folded.lineage(), failed_at_node.as_deref());
    let excluded = state.memory.iter().filter(|(_, value)| value.excluded);
    let run = folded.session.facts.run.as_ref().filter(|run| run.is_open());
    let (memory, outputs) = if include_memory {
        let memory = log.memory(state).await?;
        let memory = memory.into_iter().map(|(key, value)| (key, (*value).clone())).collect();
        (Some(memory), Some(accumulated(&log, state).await?.0))
    } else {
        (None, None)
    };
    Ok(GraphOverview {
        session_id: session.clone(),
        graph: state.name.clone(),
        goal: spec.goal.clone(),
        file: state.file.clone(),
        spec_hash: state.spec_hash.clone(),
        lineage: folded.lineage(),
        is_on_server: folded.session.facts.graph_on_server,
        nodes,
        edges: edges.collect(),
        execution_path: state.execution_path.clone(),
        failed_at_node,
        error,
        resume_from_checkpoint_id: point.map(|entry| entry.checkpoint_id.clone()),
        waits: run.map(|run| run.waits.keys().cloned().collect()).unwrap_or_default(),
        excluded_keys: excluded.map(|(key, _)| key.clone()).collect(),
        last_seq: folded.session.last_seq,
        memory,
        outputs,
        checkpoint: spec.checkpoint,
    })
}
