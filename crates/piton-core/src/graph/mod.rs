//! Graphs: what a graph run has done, as a fold of its session's records, and what follows from it.
//!
//! The session's own [`State`](crate::State) knows the graph's name and nothing else. What happened in
//! the graph is folded here, by the process that runs it or shows it:
//!
//! - [`GraphState`]: nodes, memory (where its values stand, not the values), answers, metrics of *one
//!   lineage*. Which records belong to a lineage: [`Lineages`].
//! - [`CheckpointIndex`]: the checkpoints of all lineages.
//! - [`Topology`]: the shape of the graph; with a state it says what is ready, what is skipped and what
//!   a cycle resets.
//!
//! Nothing here knows what a node does.

mod checkpoint;
mod config;
mod lineage;
mod memory;
mod state;
#[cfg(test)]
mod tests;
mod topology;

pub use checkpoint::{
    CheckpointEntry, CheckpointFilter, CheckpointIndex, CheckpointType, ResumeRefusal,
};
pub use config::{
    CheckpointConfig, CheckpointOptions, ConfigConflict, KEEP_COUNT_DEFAULT, SMART_CHANGED_KEYS,
    SMART_LATENCY_MS, SMART_TAGS, StoreFeatures,
};
pub use lineage::{LineageStart, Lineages, Segment};
pub use memory::{MemoryEntry, ReduceError, Reducer};
pub use state::{
    Answer, Artifact, GraphState, LoopProgress, MapProgress, Metrics, NodePhase, NodeState,
    SafePoint,
};
pub use topology::{Edge, Topology, TopologyError};

/// Most nodes of a graph, its subgraphs' included.
pub const NODES_MAX: usize = 500;
/// Longest name of a node or a key, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Most edges of a graph.
pub const EDGES_MAX: usize = 2_000;
/// Most keys that one node can write: its completion is one batch.
pub const WRITES_MAX: usize = 800;

/// How deep graphs can be in graphs.
pub const SUBGRAPH_DEPTH_MAX: usize = 8;

/// The nodes that a node is in, innermost first: of `a/b/c` they are `a/b` and `a`. A key of a
/// subgraph's memory has the same form.
pub fn enclosing(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(path.rsplit_once('/'), |(outer, _)| outer.rsplit_once('/'))
        .map(|(outer, _)| outer)
}
