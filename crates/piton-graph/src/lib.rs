//! Durable graphs. A graph runs in a Piton session: what its nodes did is in the session's log, each
//! completion is durable before the next node starts, and a run that was cut off continues where it
//! stood. Needs a store and nothing else: no server, no agent.
//!
//! ```no_run
//! # async fn example() -> piton_graph::Result<()> {
//! use piton_graph::{Graph, Outcome, ValueType, command, template};
//!
//! let graph = Graph::builder("greeting")
//!     .input("name", ValueType::String)
//!     .node("greet", template("Hello {{ name }}").writes(["greeting"]))
//!     .node("print", command(["echo", "{{ greeting }}"]))
//!     .edge("greet", "print")
//!     .build()?;
//! let store = piton_graph::open("data")?;
//! let run = graph.runner(&store).start(piton_graph::inputs([("name", "Ada")])).await?;
//! let session = run.session().clone();
//! if let Outcome::Failed(failure) = run.finish().await? {
//!     eprintln!("{} failed: {}", failure.node, failure.error);
//!     graph.runner(&store).resume(&session, None, Default::default()).await?.finish().await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! `docs/guides/graphs.md` is the guide.
#![expect(
    clippy::single_match_else,
    clippy::struct_field_names,
    clippy::too_many_lines,
    reason = "to be rewritten one by one"
)]

mod agent;
pub mod checkpoints;
mod error;
mod expression;
mod graph;
mod kinds;
mod log;
mod node;
mod parts;
mod policy;
mod run;
mod spec;
mod store;

pub use agent::{AgentHost, AgentTask};
pub use checkpoints::answer;
pub use error::{Error, NodeError, Result, SourceLocation, SpecError};
pub use graph::{
    Builder, Graph, NodeDef, agent, command, custom, human, map, read_spec_file, repeat, set,
    subgraph, template,
};
pub use node::{ItemContext, LoopBody, LoopContext, LoopStep, MapBody, Node, NodeContext};
pub use policy::{CheckpointPolicy, PolicyContext, SmartPolicy};
pub use run::{Decided, Failure, Finished, OpenWait, Outcome, Progress, Run, RunHandle, Runner};
pub use spec::{
    AgentSpec, CommandSpec, EdgeSpec, Effects, FILE_BYTES_MAX, GraphSpec, HumanSpec, InputSpec,
    LoopSpec, MapSpec, MemorySpec, NodeKind, NodeSpec, OutputFormat, Retry, SCHEMA, SubgraphSpec,
    VERSION, ValueType, parse, parse_checkpoint_options,
};
pub use store::{GraphStore, StoreParts, files_features, open, sqlite_features};

pub use async_trait::async_trait;
pub use piton_core::graph::{
    CheckpointFilter, CheckpointOptions, CheckpointType, Reducer, StoreFeatures,
};

/// Inputs of a graph from pairs.
pub fn inputs<K: Into<String>, V: Into<serde_json::Value>>(
    pairs: impl IntoIterator<Item = (K, V)>,
) -> serde_json::Map<String, serde_json::Value> {
    pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect()
}
