//! Graphs: run, resumed, drawn; their checkpoints, listed, inspected, compared, deleted, pruned.

use std::collections::BTreeMap;

use piton_core::id::SessionId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::enums::{CheckpointType, GraphNodeState};

/// A graph to run. One of `graph` and `file`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunGraphRequest {
    /// The graph: its text, YAML or JSON, or the same as an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub graph: Option<Value>,
    /// An absolute path of a graph file on the server's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The graph's inputs, by name.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub inputs: Map<String, Value>,
    /// An absolute path of the folder in which commands and agents run; without one, the server's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// Checkpoint options; they take precedence over the graph's and the settings'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub checkpoint: Option<Value>,
}

/// How to resume a graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResumeGraphRequest {
    /// The checkpoint's id, or the beginning or end of it; without one, the graph continues where it
    /// stood.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<String>,
    /// Keys of the memory that are set first. The value of an excluded key is never written to disk.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub set: Map<String, Value>,
    /// Resume with another graph than the one that ran: its text, or an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub graph: Option<Value>,
    /// The same, as an absolute path of a file on the server's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Resume with the graph as it ran, though its file changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recorded_graph: bool,
    /// Options of checkpoints for this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub checkpoint: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GraphResumed {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    pub run_id: Option<String>,
    /// The checkpoint that it was resumed from.
    pub resumed_from: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct GraphQuery {
    /// Include the memory and the outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_memory: Option<bool>,
}

/// A graph and its progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GraphView {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    /// The graph's name.
    pub graph: String,
    pub goal: Option<String>,
    /// The file that the graph was read from.
    pub file: Option<String>,
    /// BLAKE3 of the graph, in hex.
    pub spec_hash: String,
    /// Counts how often it was resumed from an older checkpoint; begins with 1.
    pub lineage: u32,
    /// A server runs it, and continues it after a restart.
    pub is_on_server: bool,
    pub nodes: Vec<GraphNodeView>,
    pub edges: Vec<GraphEdgeView>,
    /// The nodes that completed, in order.
    pub execution_path: Vec<String>,
    pub failed_at_node: Option<String>,
    pub error: Option<String>,
    /// The checkpoint that a resume without a checkpoint starts from.
    pub resume_from_checkpoint_id: Option<String>,
    /// The ids of the open waits.
    pub waits: Vec<String>,
    /// Keys whose values are never saved.
    pub excluded_keys: Vec<String>,
    pub last_seq: u64,
    /// With `include_memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub memory: Option<BTreeMap<String, Value>>,
    /// With `include_memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub outputs: Option<BTreeMap<String, Value>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GraphNodeView {
    pub node: String,
    /// `command`, `set`, `template`, `human`, `agent`, `subgraph`, `custom`; others may follow.
    pub kind: String,
    pub is_map: bool,
    pub is_loop: bool,
    pub state: GraphNodeState,
    /// How often a cycle led to the node; begins with 1.
    pub visit: u32,
    pub attempts: u32,
    pub reads: Vec<String>,
    pub writes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<String>,
    /// Of a map: items that are complete; of a loop: iterations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<u32>,
    /// Of a map: all items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// The session that an `agent` node works through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_session_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GraphEdgeView {
    pub from: String,
    pub to: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    pub priority: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// The last completion of its source took it.
    pub is_taken: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GraphTimeline {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    /// Oldest first.
    pub entries: Vec<GraphTimelineEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GraphTimelineEntry {
    pub seq: u64,
    pub ts: String,
    pub lineage: u32,
    /// False if it belongs to an abandoned lineage.
    pub is_current: bool,
    /// The record's kind.
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct CheckpointQuery {
    /// Only of this type: `node_start`, `node_complete`, `edge_transition`, `loop_iteration`,
    /// `safe_point`, `user_checkpoint`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_type: Option<String>,
    /// `true`: only checkpoints before which no attempt failed or was interrupted; `false`: only the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clean: Option<bool>,
    /// Only checkpoints of this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<u32>,
    /// 100 by default.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CheckpointPage {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    /// Newest first.
    pub checkpoints: Vec<CheckpointSummary>,
    pub latest_checkpoint_id: Option<String>,
    /// The number of all checkpoints, without the filters.
    pub total_checkpoints: usize,
    /// The checkpoint that a resume without a checkpoint starts from.
    pub resume_from_checkpoint_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CheckpointSummary {
    pub checkpoint_id: String,
    #[serde(rename = "type")]
    pub checkpoint_type: CheckpointType,
    pub created_at: String,
    pub current_node: Option<String>,
    pub next_node: Option<String>,
    /// No attempt failed and none was cut off before it.
    pub is_clean: bool,
    pub can_resume_from: bool,
    pub description: String,
    pub lineage: u32,
    /// Of the start of a node that failed: its error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_at_node: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct InspectQuery {
    /// Include the values of the memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_memory: Option<bool>,
}

/// A checkpoint with its contents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CheckpointView {
    pub checkpoint_id: String,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    pub checkpoint_type: CheckpointType,
    pub created_at: String,
    pub current_node: Option<String>,
    pub next_node: Option<String>,
    pub execution_path: Vec<String>,
    /// With `include_memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub shared_memory: Option<BTreeMap<String, Value>>,
    /// Keys whose values are never saved.
    pub excluded_keys: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_states: Option<BTreeMap<String, String>>,
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub accumulated_outputs: BTreeMap<String, Value>,
    /// The files that nodes had left.
    #[serde(default)]
    pub artifacts: Vec<Artifact>,
    pub metrics_snapshot: GraphMetrics,
    pub is_clean: bool,
    pub can_resume_from: bool,
    pub description: String,
    /// The log's keyed hash at the checkpoint.
    pub signature: String,
    /// The position of the checkpoint in the log.
    pub log_position: u64,
    pub parent: Option<String>,
    pub lineage: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_at_node: Option<String>,
}

/// A file that a node left with its session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Artifact {
    /// A file's name, without folders.
    pub name: String,
    /// The node that left it.
    pub node: String,
    pub bytes: u64,
    /// Parts of it are masked.
    pub is_masked: bool,
    /// The record that has it.
    pub seq: u64,
}

/// The files that nodes left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ArtifactList {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    /// By name.
    pub artifacts: Vec<Artifact>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct ArtifactQuery {
    /// Only those of this node, or of the nodes in its subgraph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GraphMetrics {
    pub total_retries: u64,
    pub nodes_with_failures: Vec<String>,
    pub nodes_completed: u64,
    pub total_latency_ms: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct DiffQuery {
    /// A checkpoint's id, or the beginning or end of it.
    pub from: String,
    /// The same; without one, the newest checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// What changed from one checkpoint to another. The two may be of different lineages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CheckpointDiff {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    pub from_checkpoint_id: String,
    pub to_checkpoint_id: String,
    /// Nodes that completed in between.
    pub nodes_completed: Vec<String>,
    /// Completed nodes that belong to an abandoned branch.
    pub nodes_undone: Vec<String>,
    pub memory: KeyChanges,
    pub outputs: KeyChanges,
    /// Keys that were set in between and whose values are never saved.
    pub excluded_keys: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeyChanges {
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub added: BTreeMap<String, Value>,
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub changed: BTreeMap<String, Value>,
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub removed: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PruneCheckpointsRequest {
    /// How many remain; 10 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_count: Option<usize>,
    /// Of the others, only clean ones remain.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_clean_only: bool,
    /// Say what would be pruned, and change nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CheckpointsPruned {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    /// The checkpoints that were pruned, or would be.
    pub pruned: Vec<String>,
    pub dry_run: bool,
}
