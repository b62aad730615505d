//! Graphs: nodes, memory, checkpoints, lineages.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Seq;
use super::values::Critical;
use crate::code::AnyCode;
use crate::graph::{CheckpointType, Reducer};
use crate::id::{CheckpointId, SessionId};
use crate::time::Timestamp;
use crate::turns::TurnCheckpoint;

records! {
    /// The session runs this graph from now on. `spec_hash` is the digest of the content's canonical
    /// form. The only critical kind of a graph: every log that has the others has this one first.
    GraphBound = "graph.bound" {
        name: String,
        spec_hash: String,
        /// The file that it was read from.
        #[serde(default, skip_serializing_if = "Option::is_none")] file: Option<String>,
        #[serde(default)] critical: Critical,
    } content ["spec"];
    /// A server runs the graph from now on, and continues it after a restart; or another process does.
    GraphHosted = "graph.hosted" { by_server: bool, } content [];
    /// How this execution of the graph is checkpointed. It counts until the next record of this kind, and
    /// a key that was excluded once stays excluded.
    GraphConfigured = "graph.configured" {
        /// The excluded keys beyond those that are always excluded.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] exclude_memory_keys: Vec<String>,
        /// The other options that were given for executions, by name.
        #[serde(default, skip_serializing_if = "Map::is_empty")] options: Map<String, Value>,
    } content [];
    /// The log begins with a copy of another session's graph records, up to a checkpoint of it.
    GraphForked = "graph.forked" {
        from_session_id: SessionId,
        from_checkpoint_id: CheckpointId,
        from_seq: Seq,
        /// The record of this log with which the copy is whole. A log that ends before it is of a fork
        /// that was cut off.
        #[serde(default, skip_serializing_if = "Option::is_none")] through: Option<Seq>,
    } content [];
    /// A node begins an attempt. `visit` counts how often a cycle led to it.
    NodeStarted = "node.started" { path: String, visit: u32, attempt: u32, } content [];
    /// A node completed. In the same batch: what it wrote, its outputs and the edges that are taken.
    NodeCompleted = "node.completed" {
        path: String,
        visit: u32,
        attempt: u32,
        latency_ms: u64,
    } content [];
    /// An attempt failed. With `retry_at` another one follows; `handled`: an edge `on: error` leads on.
    NodeFailed = "node.failed" {
        path: String,
        visit: u32,
        attempt: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")] code: Option<AnyCode>,
        #[serde(default, skip_serializing_if = "Option::is_none")] retry_at: Option<Timestamp>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] handled: bool,
    } content ["error"];
    /// No edge to the node is taken in this visit.
    NodeSkipped = "node.skipped" { path: String, visit: u32, } content [];
    /// A node in its middle: what it wrote so far is kept for its next attempt, and private.
    NodeSafePoint = "node.safe_point" {
        path: String,
        visit: u32,
        attempt: u32,
        /// Keys that were written and whose values are not here, or not as they were.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] excluded_keys: Vec<String>,
    } content ["description", "writes", "messages"];
    /// A node tells readers of the log something.
    NodeEvent = "node.event" { path: String, visit: u32, attempt: u32, } content ["event"];
    /// A node streams text to readers of the log. `offset` counts the bytes of the attempt before it.
    NodeText = "node.text" { path: String, visit: u32, attempt: u32, offset: u64, } content ["text"];
    /// A node left a file. `is_hex`: it is not text, and its content is in hex.
    ArtifactAdded = "artifact.added" {
        path: String,
        name: String,
        bytes: u64,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] is_hex: bool,
        /// Masking changed it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] excluded: bool,
    } content ["data"];
    /// A node works through a session of its own: an agent's. Written before anything is sent to it, so
    /// that a later attempt finds it again.
    NodeSessionAssigned = "node.session_assigned" {
        path: String,
        visit: u32,
        child_session_id: SessionId,
    } content [];
    /// An edge is taken. One that closes a cycle names the nodes that get another visit.
    EdgeTaken = "edge.taken" {
        from: String,
        to: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")] resets: Vec<String>,
    } content [];
    /// A key of the shared memory has another value: the content, or what a reducer makes of the old
    /// value and the content. Of an excluded key only that it was set.
    MemoryChanged = "memory.changed" {
        key: String,
        /// The node that wrote it; `None`: an input, or a user who set it.
        #[serde(default, skip_serializing_if = "Option::is_none")] path: Option<String>,
        /// How the content joins the old value; `None`: it takes its place.
        #[serde(default, skip_serializing_if = "Option::is_none")] reducer: Option<Reducer>,
        /// The value was not written, or masking changed it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] excluded: bool,
    } content ["value"];
    /// A node added an output of the graph.
    OutputAdded = "output.added" {
        key: String,
        path: String,
        /// Masking changed it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] excluded: bool,
    } content ["value"];
    /// An iteration of a loop node is complete. `step` has the messages that it added to the
    /// conversation and the outputs that it set.
    LoopIterated = "loop.iterated" {
        path: String,
        visit: u32,
        iteration: u32,
        messages: u32,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] done: bool,
        /// Masking changed the step.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] excluded: bool,
    } content ["step"];
    /// The list that a map node works on, before its first item.
    MapListed = "map.listed" {
        path: String,
        visit: u32,
        count: u32,
        /// Masking changed the list.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] excluded: bool,
    } content ["items"];
    /// One item of a map node is complete.
    MapItemCompleted = "map.item_completed" {
        path: String,
        visit: u32,
        index: u32,
        /// Masking changed the result: after a crash the item runs again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] excluded: bool,
    } content ["value"];
    /// A position from which the session can be continued: right after this record. Of a graph, or of
    /// an agent's turn (`turn_start`, `turn_complete`).
    CheckpointCreated = "checkpoint.created" {
        checkpoint_id: CheckpointId,
        checkpoint_type: CheckpointType,
        lineage: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")] parent: Option<CheckpointId>,
        #[serde(default, skip_serializing_if = "Option::is_none")] current_node: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] next_node: Option<String>,
        is_clean: bool,
        can_resume_from: bool,
        /// It is shown without the memory, or without the conversations. Both are in the log.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] without_memory: bool,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] without_conversations: bool,
        /// Of an agent's session: the turn, and the snapshot of its files.
        #[serde(default, skip_serializing_if = "Option::is_none")] turn: Option<TurnCheckpoint>,
    } content ["description"];
    /// Checkpoints are listed no more: there were enough newer ones.
    CheckpointPruned = "checkpoint.pruned" { checkpoint_ids: Vec<CheckpointId>, } content [];
    /// A user deleted a checkpoint.
    CheckpointDeleted = "checkpoint.deleted" { checkpoint_id: CheckpointId, } content [];
    /// A checkpoint could not be restored; another one was taken.
    CheckpointDamaged = "checkpoint.damaged" {
        checkpoint_id: CheckpointId,
        #[serde(default, skip_serializing_if = "Option::is_none")] code: Option<AnyCode>,
    } content ["message"];
    /// The graph, or the conversation, continues behind an older checkpoint. What came after that checkpoint stays in the
    /// log and counts no more.
    LineageStarted = "lineage.started" {
        lineage: u32,
        from_lineage: u32,
        from_seq: Seq,
        from_checkpoint_id: CheckpointId,
    } content [];
}
