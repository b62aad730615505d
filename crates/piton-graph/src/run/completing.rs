//! What a node's completion is: its writes, its outputs and the edges that are taken, in one batch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use piton_core::event::{
    CheckpointPruned, EdgeTaken, MemoryChanged, NodeCompleted, NodeSkipped, OutputAdded,
};
use piton_core::graph::{CheckpointType, NodePhase, NodeState, Reducer};
use piton_core::id::CheckpointId;
use piton_core::limits::BATCH_BYTES_MAX;
use piton_core::{Code, NewRecord};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::Progress;
use super::scheduler::Scheduler;
use crate::checkpoints::PRUNED_RECORD_MAX;
use crate::error::{Error, NodeError, Result};
use crate::expression;
use crate::node::{NodeContext, json_bytes};
use crate::policy::PolicyContext;
use crate::spec::{EdgeSpec, split, within};
use crate::store::now;

/// All that one node writes, in bytes: a completion is one batch.
const COMPLETION_BYTES_MAX: usize = BATCH_BYTES_MAX - 16 * 1024 * 1024;

impl Scheduler {
    /// Adds a node's completion to the batch. The inner error: what it wrote cannot be joined, or a
    /// condition behind it cannot be evaluated. Then nothing was added.
    pub(super) fn complete(
        &mut self,
        path: &str,
        (attempt, visit, began): (u32, u32, Instant),
        ctx: NodeContext,
    ) -> Result<Result<(), NodeError>> {
        let NodeContext { writes, outputs, .. } = ctx;
        self.complete_with(path, (attempt, visit, began), writes, outputs)
    }

    pub(super) fn complete_with(
        &mut self,
        path: &str,
        (attempt, visit, began): (u32, u32, Instant),
        writes: Map<String, Value>,
        outputs: Map<String, Value>,
    ) -> Result<Result<(), NodeError>> {
        let (scope, _) = split(path);
        if let Err(error) = self.check_writes(scope, &writes) {
            return Ok(Err(error));
        }
        let edges = match self.taken_edges(path, &writes, false) {
            Ok(edges) => edges,
            Err(error) => return Ok(Err(error)),
        };
        let took = began.elapsed();
        let latency_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let node = path.to_owned();
        self.log.push_event(NodeCompleted { path: node.clone(), visit, attempt, latency_ms });
        let changed_keys = writes.len();
        for (key, value) in writes {
            self.write(within(scope, &key), value, Some(path))?;
        }
        for (key, value) in outputs {
            let key = within(scope, &key);
            let event = OutputAdded { key: key.clone(), path: node.clone(), excluded: false };
            self.log.push(NewRecord::with_content(now(), event, "value", value.clone()));
            self.outputs.insert(key, value);
        }
        self.push_edges(&edges);
        self.push_completion_checkpoints(path, &edges, (attempt, took, changed_keys))?;
        self.push_pruned();
        self.report(Progress::NodeCompleted { node, latency_ms });
        Ok(Ok(()))
    }

    pub(super) fn push_edges(&mut self, edges: &[EdgeSpec]) {
        for edge in edges {
            let resets = match edge.max {
                Some(_) => self.graph.topology().resets(&edge.to),
                None => Vec::new(),
            };
            let (from, to) = (edge.from.clone(), edge.to.clone());
            self.log.push_event(EdgeTaken { from, to, resets });
        }
        self.push_skipped();
    }

    /// Whether what a node wrote fits into one batch and can be joined into the memory.
    fn check_writes(&self, scope: &str, writes: &Map<String, Value>) -> Result<(), NodeError> {
        let bytes: usize = writes.values().map(json_bytes).sum();
        if bytes > COMPLETION_BYTES_MAX {
            let message = format!(
                "What the node wrote has {bytes} bytes as JSON; {COMPLETION_BYTES_MAX} are the limit"
            );
            return Err(NodeError::new(message).with_code(Code::PayloadTooLarge).permanent());
        }
        for (key, value) in writes {
            let in_memory = within(scope, key);
            let Some(reducer) = self.graph.spec().reducer(&in_memory) else { continue };
            let old = self.memory.get(&in_memory).map_or(&Value::Null, |value| &**value);
            reducer.check(old, value).map_err(|error| {
                NodeError::new(format!("`{key}` cannot be written: {error}")).permanent()
            })?;
        }
        Ok(())
    }

    /// Sets a key of the memory, in the batch and here. An excluded value is nowhere in the batch.
    pub(super) fn write(&mut self, key: String, value: Value, path: Option<&str>) -> Result<()> {
        let reducer = self.graph.spec().reducer(&key).filter(|_| path.is_some());
        self.write_by(key, value, path, reducer)
    }

    /// Sets a key whatever it has: there is no reducer.
    pub(super) fn write_over(&mut self, key: String, value: Value, path: &str) -> Result<()> {
        self.write_by(key, value, Some(path), None)
    }

    fn write_by(
        &mut self,
        key: String,
        value: Value,
        path: Option<&str>,
        reducer: Option<Reducer>,
    ) -> Result<()> {
        let path = path.map(str::to_owned);
        let (_, name) = split(&key);
        let excluded = self.excluded.matches(name);
        let event = MemoryChanged { key: key.clone(), path, reducer, excluded };
        if excluded {
            self.log.teach(name, &value)?;
            self.log.push_event(event);
        } else {
            self.log.push(NewRecord::with_serialized(now(), event, "value", &value));
        }
        match reducer {
            Some(reducer) => {
                let old = self.memory.entry(key).or_insert_with(|| Arc::new(Value::Null));
                // It was checked before; a value that no running node holds is changed in place.
                let _ = reducer.join(Arc::make_mut(old), value);
            }
            None => {
                self.memory.insert(key, Arc::new(value));
            }
        }
        Ok(())
    }

    /// The edges that a completion or a failure takes: those of the highest priority that can be. One that leads
    /// back is taken alone.
    pub(super) fn taken_edges(
        &self,
        path: &str,
        writes: &Map<String, Value>,
        on_error: bool,
    ) -> Result<Vec<EdgeSpec>, NodeError> {
        let (scope, name) = split(path);
        let Some(checked) = self.graph.checked().scope(scope) else { return Ok(Vec::new()) };
        let mut open: Vec<EdgeSpec> = Vec::new();
        let is_meant = |edge: &EdgeSpec| edge.from == name && edge.on_error == on_error;
        let of_node = checked.spec.edges.iter().enumerate().filter(|(_, edge)| is_meant(edge));
        for (number, edge) in of_node {
            let (from, to) = (path.to_owned(), within(scope, &edge.to));
            let edge = EdgeSpec { from, to, ..edge.clone() };
            let taken = self.log.folded.graph.cycles_taken(&edge.from, &edge.to);
            if edge.max.is_some_and(|max| taken >= max) {
                continue;
            }
            let holds = match &edge.when {
                None => true,
                Some(when) => {
                    let keys = checked.conditions.get(&number).into_iter().flatten();
                    let values: BTreeMap<&str, Value> = keys
                        .map(|key| (key.as_str(), self.value_after(scope, key, writes)))
                        .collect();
                    let variables = values.iter().map(|(key, value)| (*key, value)).collect();
                    expression::holds(when, &variables).map_err(|error| {
                        let to = &edge.to;
                        let message = format!("The edge to `{to}`: {}", error.message);
                        NodeError { message, ..error }
                    })?
                }
            };
            if holds {
                open.push(edge);
            }
        }
        let highest = open.iter().map(|edge| edge.priority).max();
        open.retain(|edge| Some(edge.priority) == highest);
        if let Some(back) = open.iter().find(|edge| edge.max.is_some()) {
            return Ok(vec![back.clone()]);
        }
        Ok(open)
    }

    /// After the graph changed: where an edge that was taken led to a node that is gone, the edges that
    /// are there now are decided, with the memory as it is.
    pub(super) fn redecide_edges(&mut self) -> Result<()> {
        let topology = self.graph.topology();
        let is_cut = |node: &NodeState| node.taken.iter().any(|to| !topology.has_node(to));
        let nodes = self.log.folded.graph.nodes.iter();
        let cut: Vec<(String, Vec<String>)> = nodes
            .filter(|(_, node)| node.phase == NodePhase::Completed && is_cut(node))
            .map(|(path, node)| (path.clone(), node.taken.clone()))
            .collect();
        for (path, taken) in cut {
            let edges =
                self.taken_edges(&path, &Map::new(), false).map_err(|error| Error::Input {
                    message: error.message,
                    hint: Some(Code::ExpressionFailed.hint().to_owned()),
                })?;
            let is_new = |edge: &EdgeSpec| edge.max.is_none() && !taken.contains(&edge.to);
            for EdgeSpec { from, to, .. } in edges.into_iter().filter(is_new) {
                self.log.push_event(EdgeTaken { from, to, resets: Vec::new() });
            }
        }
        Ok(())
    }

    /// A key's value once these writes are made.
    fn value_after(&self, scope: &str, key: &str, writes: &Map<String, Value>) -> Value {
        let in_memory = within(scope, key);
        let old = self.memory.get(&in_memory).map_or(&Value::Null, |value| &**value);
        match (writes.get(key), self.graph.spec().reducer(&in_memory)) {
            (None, _) => old.clone(),
            (Some(new), None) => new.clone(),
            (Some(new), Some(reducer)) => {
                let mut joined = old.clone();
                let _ = reducer.join(&mut joined, new.clone());
                joined
            }
        }
    }

    /// Nodes that no edge leads to any more are skipped, and those behind them.
    pub(super) fn push_skipped(&mut self) {
        loop {
            let state = &self.log.folded.graph;
            let skipped = self.graph.topology().skipped(state);
            let skipped: Vec<(String, u32)> =
                skipped.into_iter().map(|path| (path.to_owned(), state.visit(path))).collect();
            if skipped.is_empty() {
                return;
            }
            for (path, visit) in skipped {
                self.report(Progress::NodeSkipped { node: path.clone() });
                self.log.push_event(NodeSkipped { path, visit });
            }
        }
    }

    fn push_completion_checkpoints(
        &mut self,
        path: &str,
        edges: &[EdgeSpec],
        (attempt, took, changed_keys): (u32, Duration, usize),
    ) -> Result<()> {
        let Some(node) = self.graph.node(path) else { return Ok(()) };
        let is_safe_point = node.safe_point;
        let wants = |boundary| {
            self.wants(&PolicyContext {
                boundary,
                node: path,
                tags: &node.tags,
                attempt,
                latency: Some(took),
                changed_keys,
                iteration: None,
            })
        };
        let is_completion = wants(CheckpointType::NodeComplete);
        let is_transition = wants(CheckpointType::EdgeTransition);
        let next = match edges {
            [edge] => Some(edge.to.clone()),
            _ => None,
        };
        if is_completion {
            let (kind, description) = (CheckpointType::NodeComplete, format!("`{path}` completed"));
            self.push_checkpoint(kind, path, next.as_deref(), &description)?;
        }
        if is_safe_point && self.config.wants(CheckpointType::SafePoint, 0) {
            let (kind, description) = (CheckpointType::SafePoint, format!("Safe point `{path}`"));
            self.push_checkpoint(kind, path, next.as_deref(), &description)?;
        }
        if is_transition {
            for edge in edges {
                let (kind, to) = (CheckpointType::EdgeTransition, &edge.to);
                self.push_checkpoint(kind, path, Some(to), &format!("From `{path}` to `{to}`"))?;
            }
        }
        Ok(())
    }

    fn push_pruned(&mut self) {
        let done = self.log.folded.graph.metrics.nodes_completed;
        let plan = self.log.folded.index.due_for_pruning(&self.config, done);
        self.prune(&plan);
    }

    /// Where no node completes, the maximum counts all the same.
    pub(super) fn push_pruned_over_maximum(&mut self) {
        let plan = self.log.folded.index.over_maximum(&self.config);
        self.prune(&plan);
    }

    fn prune(&mut self, plan: &[CheckpointId]) {
        for checkpoint_ids in plan.chunks(PRUNED_RECORD_MAX) {
            let checkpoint_ids = checkpoint_ids.to_vec();
            self.log.push_event(CheckpointPruned { checkpoint_ids });
        }
    }
}

impl Scheduler {
    /// The inputs, or what a user sets: in the batch and in the memory.
    pub(super) fn set_values(&mut self, values: Map<String, Value>) -> Result<()> {
        for (key, value) in values {
            crate::node::check_size(&key, &value).map_err(|error| Error::Input {
                message: error.message,
                hint: Some(Code::PayloadTooLarge.hint().to_owned()),
            })?;
            self.write(key, value, None)?;
        }
        Ok(())
    }
}
