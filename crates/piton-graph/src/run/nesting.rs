//! Nodes that run a graph. Such a node has no task: it begins when its inputs are set, its graph's nodes
//! run as all others do, and it completes with the last of them, in the same batch.

use std::collections::BTreeMap;

use piton_core::Code;
use piton_core::NewRecord;
use piton_core::event::NodeFailed;
use piton_core::graph::{NodePhase, enclosing};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::Progress;
use super::scheduler::Scheduler;
use crate::error::{NodeError, Result};
use crate::expression;
use crate::node::check_size;
use crate::spec::{EdgeSpec, NodeKind, SubgraphSpec, split, within};
use crate::store::now;

impl Scheduler {
    /// Begins a subgraph: it has its inputs and nothing else in its memory. One that has begun already
    /// keeps what it has.
    pub(super) fn enter(&mut self, path: &str, attempt: u32, visit: u32) -> Result<()> {
        let began = Instant::now();
        self.entered.insert(path.to_owned(), began);
        self.report(Progress::NodeStarted { node: path.to_owned(), attempt });
        let state = &self.log.folded.graph;
        let is_begun = |node: &str| state.phase(node) != NodePhase::Pending;
        if self.graph.topology().within(path).any(is_begun) {
            return Ok(());
        }
        let Some(NodeKind::Subgraph(subgraph)) = self.graph.node(path).map(|node| &node.kind)
        else {
            return Ok(());
        };
        let inputs = match self.inputs(path, subgraph) {
            Ok(inputs) => inputs,
            Err(error) => {
                self.fail(path, (attempt, visit, began), error);
                return Ok(());
            }
        };
        // What an earlier visit left.
        let prefix = format!("{path}/");
        let left = self.memory.range(prefix.clone()..).map(|(key, _)| key.clone());
        let left: Vec<String> = left.take_while(|key| key.starts_with(&prefix)).collect();
        for key in left.into_iter().filter(|key| !inputs.contains_key(split(key).1)) {
            self.write_over(key, Value::Null, path)?;
        }
        for (key, value) in inputs {
            self.write_over(within(path, &key), value, path)?;
        }
        Ok(())
    }

    /// The inputs of a subgraph, from the memory around it.
    fn inputs(&self, path: &str, of: &SubgraphSpec) -> Result<BTreeMap<String, Value>, NodeError> {
        let (scope, _) = split(path);
        let reads: Vec<(&str, Value)> = self
            .graph
            .node(path)
            .into_iter()
            .flat_map(|node| &node.reads)
            .map(|key| (key.as_str(), self.value(&within(scope, key))))
            .collect();
        let variables = reads.iter().map(|(key, value)| (*key, value)).collect();
        let mut inputs = BTreeMap::new();
        for (key, input) in &of.graph.inputs {
            let given = of.inputs.get(key).map(|value| expression::fill(value, &variables));
            let given = given.transpose()?.filter(|value| !value.is_null());
            let Some(value) = given.or_else(|| input.default.clone()) else {
                if input.required {
                    return Err(invalid(format!("The input `{key}` of `{path}` has no value")));
                }
                continue;
            };
            if let Some(of_type) = input.of_type.filter(|of_type| !of_type.fits(&value)) {
                let message = format!(
                    "The input `{key}` of `{path}` has to be of the type `{}`",
                    of_type.as_str()
                );
                return Err(invalid(message));
            }
            check_size(key, &value)?;
            inputs.insert(key.clone(), value);
        }
        Ok(inputs)
    }

    /// After a resume: an input of a subgraph that runs, whose value is never saved, is set again from
    /// the key that it came from.
    pub(super) fn restore_inputs(&mut self) -> Result<()> {
        let state = &self.log.folded.graph;
        let lost = state.memory.iter().filter(|(_, entry)| entry.excluded);
        let mut lost: Vec<String> = lost.map(|(key, _)| key.clone()).collect();
        // Those further out first: others come from them.
        lost.sort_by_key(|key| key.matches('/').count());
        for key in lost {
            let (scope, _) = split(&key);
            let Some(source) = self.graph.spec().source_of(&key) else { continue };
            let runs = self.log.folded.graph.phase(scope) == NodePhase::Running;
            if !runs || self.memory.contains_key(&key) {
                continue;
            }
            if let Some(value) = self.memory.get(&source).map(|value| (**value).clone()) {
                self.write_over(key.clone(), value, scope)?;
            }
        }
        Ok(())
    }

    /// Completes the subgraphs whose nodes have all come to an end. False: there was none.
    pub(super) fn close_subgraphs(&mut self) -> Result<bool> {
        let mut has_closed = false;
        loop {
            let state = &self.log.folded.graph;
            let closable = self.graph.topology().closable(state);
            let Some(path) = closable.first().map(|path| (*path).to_owned()) else {
                return Ok(has_closed);
            };
            has_closed = true;
            let visit = state.visit(&path);
            let attempt = state.node(&path).map_or(1, |node| node.attempts);
            let began = self.entered.remove(&path).unwrap_or_else(Instant::now);
            let of = (attempt, visit, began);
            let completed = match self.outputs_of(&path) {
                Ok(writes) => self.complete_with(&path, of, writes, Map::new())?,
                Err(error) => Err(error),
            };
            if let Err(error) = completed {
                self.fail(&path, of, error);
            }
        }
    }

    /// What a subgraph leaves in the memory around it.
    fn outputs_of(&self, path: &str) -> Result<Map<String, Value>, NodeError> {
        let Some(NodeKind::Subgraph(subgraph)) = self.graph.node(path).map(|node| &node.kind)
        else {
            return Ok(Map::new());
        };
        let mut writes = Map::new();
        for (key, from) in &subgraph.outputs {
            let from = within(path, from);
            let state = self.log.folded.graph.memory.get(&from);
            if state.is_some_and(|entry| entry.excluded) && !self.memory.contains_key(&from) {
                let message = format!("The value of `{from}` is never saved; set it");
                let error = NodeError::new(message).with_code(Code::MemoryValueRequired);
                return Err(error.permanent());
            }
            writes.insert(key.clone(), self.value(&from));
        }
        Ok(writes)
    }

    /// A node has failed for good and no edge leads on from it: the edges `on: error` of the innermost
    /// graph around it that has one. That graph ends here.
    pub(super) fn edges_of_enclosing(&self, path: &str) -> Option<(String, Vec<EdgeSpec>)> {
        enclosing(path).find_map(|outer| {
            // A condition that cannot be evaluated leads nowhere.
            let edges = self.taken_edges(outer, &Map::new(), true).unwrap_or_default();
            (!edges.is_empty()).then(|| (outer.to_owned(), edges))
        })
    }

    /// Ends a subgraph in which a node failed, with all that runs in it.
    pub(super) fn fail_subgraph(&mut self, path: &str, error: &NodeError) {
        let inner: Vec<String> = self.graph.topology().within(path).map(str::to_owned).collect();
        let mut ended = vec![path.to_owned()];
        for node in inner {
            self.retries.remove(&node);
            if let Some(live) = self.live.remove(&node) {
                live.task.abort();
            }
            self.entered.remove(&node);
            let state = &self.log.folded.graph;
            if matches!(state.phase(&node), NodePhase::Running | NodePhase::Failed { .. })
                && !state.node(&node).is_some_and(|node| node.handled)
            {
                ended.push(node);
            }
        }
        self.entered.remove(path);
        for path in ended.into_iter().rev() {
            let state = &self.log.folded.graph;
            let visit = state.visit(&path);
            let attempt = state.node(&path).map_or(1, |node| node.attempts);
            let code = Some(error.code.clone());
            let node = path.clone();
            let event = NodeFailed { path, visit, attempt, code, retry_at: None, handled: true };
            let message = error.message.clone();
            self.log.push(NewRecord::with_content(now(), event, "error", message.clone().into()));
            self.report(Progress::NodeFailed { node, error: message, retry_at: None });
        }
    }

    /// A value of the memory; nothing if there is none.
    fn value(&self, key: &str) -> Value {
        self.memory.get(key).map_or(Value::Null, |value| (**value).clone())
    }
}

fn invalid(message: String) -> NodeError {
    NodeError::new(message).with_code(Code::GraphInputInvalid).permanent()
}
