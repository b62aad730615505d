//! Which checkpoints are worth their record, in code of your own.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use piton_core::graph::{CheckpointConfig, CheckpointType};

/// Decides about the checkpoints that a run makes by itself: at the start and the end of nodes, at
/// edges, after iterations. It is asked about those that the options want. Safe points, and checkpoints
/// before a wait for a person, are always made.
///
/// It runs in the scheduler: it has to be quick, and must not block.
pub trait CheckpointPolicy: fmt::Debug + Send + Sync + 'static {
    fn should_checkpoint(&self, of: &PolicyContext<'_>) -> bool;
}

/// What a policy decides about.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PolicyContext<'a> {
    pub boundary: CheckpointType,
    /// The node's path: `outer/inner` in a subgraph.
    pub node: &'a str,
    pub tags: &'a BTreeSet<String>,
    pub attempt: u32,
    /// How long the attempt took, once it has completed.
    pub latency: Option<Duration>,
    /// How many keys of the memory it changed, once it has completed.
    pub changed_keys: usize,
    /// Of a loop, which counts from 0.
    pub iteration: Option<u32>,
}

/// The strategy of the option `smart`: checkpoints around nodes that are called or tagged `api_call` or
/// `external_tool`, and after those that took long or changed many keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct SmartPolicy;

impl CheckpointPolicy for SmartPolicy {
    fn should_checkpoint(&self, of: &PolicyContext<'_>) -> bool {
        if !matches!(of.boundary, CheckpointType::NodeStart | CheckpointType::NodeComplete) {
            return true;
        }
        let name = of.node.rsplit('/').next().unwrap_or(of.node);
        let names = of.tags.iter().map(String::as_str).chain([name]);
        CheckpointConfig::is_worth(names, of.latency.map(|took| (took, of.changed_keys)))
    }
}
