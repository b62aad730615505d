//! The state of one lineage of a graph run. Tolerant as the session's fold is: a record that makes no
//! sense in its place changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::memory::MemoryEntry;
use crate::event::{Event, MemoryChanged, Seq};
use crate::id::{SessionId, WaitId};
use crate::reason::Reason;
use crate::time::Timestamp;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GraphState {
    pub name: String,
    pub spec_hash: String,
    /// The record that has the spec.
    pub spec_seq: Seq,
    /// The file that the graph was read from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    pub nodes: BTreeMap<String, NodeState>,
    pub memory: BTreeMap<String, MemoryEntry>,
    /// The graph's outputs, by the record that has each.
    pub outputs: BTreeMap<String, Seq>,
    /// Outputs that masking changed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub masked_outputs: BTreeSet<String>,
    /// The files that nodes left, by name: the record that has each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub artifacts: BTreeMap<String, Artifact>,
    /// The nodes that completed, in order.
    pub execution_path: Vec<String>,
    /// How often each edge that closes a cycle was taken.
    pub cycles: BTreeMap<String, BTreeMap<String, u32>>,
    /// What became of the waits that ended.
    pub answers: BTreeMap<WaitId, Answer>,
    pub metrics: Metrics,
    /// The last record whose work a resume from an older checkpoint would drop. An attempt that began
    /// or failed is no work.
    pub progress_seq: Seq,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeState {
    /// How often a cycle led to the node; the first visit is 1.
    pub visit: u32,
    /// Attempts that began in this visit.
    pub attempts: u32,
    /// Attempts that failed in this visit.
    pub failures: u32,
    /// The record of the last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_seq: Option<Seq>,
    /// Failures since the node was last given up: those that its retries are counted by.
    #[serde(default)]
    pub retried: u32,
    pub phase: NodePhase,
    /// An edge that closes a cycle led to it: it does not wait for its other edges.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub triggered: bool,
    /// It failed, and an edge `on: error` led on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub handled: bool,
    /// A pause stopped its attempt at a safe point: the next attempt is no retry.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    /// The targets of the edges that its completion took.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<String>,
    /// What an attempt that did not end left behind. Gone when the node completes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safe_point: Option<SafePoint>,
    /// The session that it works through. Kept when the node completes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_session_id: Option<SessionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<MapProgress>,
    #[serde(default, skip_serializing_if = "LoopProgress::is_empty")]
    pub iterations: LoopProgress,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodePhase {
    #[default]
    Pending,
    /// An attempt began, and the log does not know its end.
    Running,
    /// The record that has the error. With `retry_at` another attempt follows in the same run.
    Failed {
        seq: Seq,
        retry_at: Option<Timestamp>,
    },
    Completed,
    Skipped,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SafePoint {
    /// The record that has the writes.
    pub seq: Seq,
    /// Keys that were written and whose values the record does not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded_keys: Vec<String>,
    /// A redaction took the writes out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redacted: bool,
}

/// A file that a node left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    pub seq: Seq,
    pub path: String,
    pub bytes: u64,
    pub is_hex: bool,
    pub excluded: bool,
}

/// How far a map node came: its list, and the record of each item that is complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MapProgress {
    pub list_seq: Seq,
    pub count: u32,
    pub items: BTreeMap<u32, Seq>,
    /// Masking changed the list.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_list_masked: bool,
    /// Items whose results masking changed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub masked: BTreeSet<u32>,
}

/// How far a loop node came: the record of each iteration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoopProgress {
    pub seqs: Vec<Seq>,
    pub messages: u64,
    /// The last iteration said that it was the last.
    pub done: bool,
    /// Iterations whose steps masking changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masked: Vec<u32>,
}

impl LoopProgress {
    pub fn is_empty(&self) -> bool {
        self.seqs.is_empty()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The record that has the answer.
    Given { seq: Seq },
    /// The wait ended without one: it was cancelled.
    Cancelled,
    /// Its deadline passed without one, as this record says.
    Expired { seq: Seq },
    /// It was given, and a redaction took it out.
    Redacted,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    pub total_retries: u64,
    pub nodes_with_failures: BTreeSet<String>,
    pub nodes_completed: u64,
    pub total_latency_ms: u64,
}

impl GraphState {
    /// No attempt failed and none was cut off so far.
    pub fn is_clean(&self) -> bool {
        self.metrics.total_retries == 0 && self.metrics.nodes_with_failures.is_empty()
    }

    pub fn node(&self, path: &str) -> Option<&NodeState> {
        self.nodes.get(path)
    }

    pub fn phase(&self, path: &str) -> NodePhase {
        self.nodes.get(path).map_or(NodePhase::Pending, |node| node.phase)
    }

    /// The visit that the node's next or current attempt belongs to.
    pub fn visit(&self, path: &str) -> u32 {
        self.nodes.get(path).map_or(1, |node| node.visit.max(1))
    }

    /// How often an edge that closes a cycle was taken.
    pub fn cycles_taken(&self, from: &str, to: &str) -> u32 {
        self.cycles.get(from).and_then(|edges| edges.get(to)).copied().unwrap_or(0)
    }

    /// Nodes whose attempt began and whose end the log does not know.
    pub fn running(&self) -> impl Iterator<Item = &str> {
        let nodes = self.nodes.iter();
        nodes.filter(|(_, node)| node.phase == NodePhase::Running).map(|(path, _)| path.as_str())
    }

    /// The node that failed last and is not tried again, with the record that has its error.
    pub fn failed(&self) -> Option<(&str, Seq)> {
        let failed = self.nodes.iter().filter_map(|(path, node)| match node.phase {
            NodePhase::Failed { seq, retry_at: None } if !node.handled => {
                Some((path.as_str(), seq))
            }
            _ => None,
        });
        failed.max_by_key(|(_, seq)| *seq)
    }

    /// Folds one record in. Costs what the record says, whatever the graph or its memory hold.
    pub fn apply(&mut self, seq: Seq, event: &Event) {
        match event {
            Event::GraphBound(e) => {
                self.name.clone_from(&e.name);
                self.spec_hash.clone_from(&e.spec_hash);
                self.spec_seq = seq;
                self.file.clone_from(&e.file);
            }
            Event::RunPaused(_) => {
                let running = self.nodes.values_mut();
                for node in running.filter(|node| node.phase == NodePhase::Running) {
                    node.held = true;
                }
                return;
            }
            Event::MemoryChanged(e) => self.apply_memory(seq, e),
            Event::OutputAdded(e) => {
                self.outputs.insert(e.key.clone(), seq);
                if e.excluded {
                    self.masked_outputs.insert(e.key.clone());
                } else {
                    self.masked_outputs.remove(&e.key);
                }
            }
            Event::ArtifactAdded(e) => {
                let (path, bytes) = (e.path.clone(), e.bytes);
                let (is_hex, excluded) = (e.is_hex, e.excluded);
                let artifact = Artifact { seq, path, bytes, is_hex, excluded };
                self.artifacts.insert(e.name.clone(), artifact);
            }
            Event::RunResumed(e) => {
                if let Some(wait_id) = &e.wait_id {
                    self.answers.insert(wait_id.clone(), Answer::Given { seq });
                }
                return;
            }
            Event::WaitCancelled(e) => {
                let answer = match e.reason {
                    Reason::WaitTimeout => Answer::Expired { seq },
                    _ => Answer::Cancelled,
                };
                self.answers.entry(e.wait_id.clone()).or_insert(answer);
                return;
            }
            Event::RecordRedacted(e) => return self.mark_redacted(e.target_seq),
            Event::EdgeTaken(e) => self.apply_edge(&e.from, &e.to, &e.resets),
            Event::NodeSessionAssigned(e) => {
                if let Some(node) = self.visited(&e.path, e.visit) {
                    node.child_session_id = Some(e.child_session_id.clone());
                }
                return;
            }
            Event::NodeStarted(_) | Event::NodeFailed(_) => {
                self.apply_attempt(seq, event);
                return;
            }
            _ => {
                if !self.apply_node(seq, event) {
                    return;
                }
            }
        }
        self.progress_seq = seq;
    }

    /// Masking changed the content of a record that was folded in already: what it set is not in the
    /// log as it was.
    pub fn mark_excluded(&mut self, event: &Event) {
        match event {
            Event::MemoryChanged(e) => {
                if let Some(entry) = self.memory.get_mut(&e.key) {
                    entry.excluded = true;
                }
            }
            Event::OutputAdded(e) => {
                self.masked_outputs.insert(e.key.clone());
            }
            Event::ArtifactAdded(e) => {
                if let Some(artifact) = self.artifacts.get_mut(&e.name) {
                    artifact.excluded = true;
                }
            }
            Event::LoopIterated(e) => {
                if let Some(node) = self.visited(&e.path, e.visit) {
                    node.iterations.masked.push(e.iteration);
                }
            }
            Event::MapListed(e) => {
                let node = self.visited(&e.path, e.visit);
                if let Some(map) = node.and_then(|node| node.map.as_mut()) {
                    map.is_list_masked = true;
                }
            }
            Event::MapItemCompleted(e) => {
                let node = self.visited(&e.path, e.visit);
                if let Some(map) = node.and_then(|node| node.map.as_mut()) {
                    map.masked.insert(e.index);
                }
            }
            Event::NodeSafePoint(e) => {
                let node = self.visited(&e.path, e.visit);
                if let Some(safe_point) = node.and_then(|node| node.safe_point.as_mut()) {
                    safe_point.excluded_keys.clone_from(&e.excluded_keys);
                }
            }
            _ => {}
        }
    }

    /// A redaction took a record's content out: what it set is known no more, wherever in the log the
    /// redaction stands.
    pub fn mark_redacted(&mut self, target: Seq) {
        for entry in self.memory.values_mut() {
            entry.excluded |= entry.parts.iter().any(|(seq, _)| *seq == target);
        }
        let outputs = self.outputs.iter().filter(|(_, seq)| **seq == target);
        self.masked_outputs.extend(outputs.map(|(key, _)| key.clone()));
        for artifact in self.artifacts.values_mut().filter(|artifact| artifact.seq == target) {
            artifact.excluded = true;
        }
        for answer in self.answers.values_mut() {
            if *answer == (Answer::Given { seq: target }) {
                *answer = Answer::Redacted;
            }
        }
        for node in self.nodes.values_mut() {
            if let Some(safe_point) = node.safe_point.as_mut().filter(|at| at.seq == target) {
                safe_point.redacted = true;
            }
            if let Some(map) = &mut node.map {
                map.is_list_masked |= map.list_seq == target;
                let items = map.items.iter().filter(|(_, seq)| **seq == target);
                map.masked.extend(items.map(|(index, _)| *index));
            }
            let iteration = node.iterations.seqs.iter().position(|seq| *seq == target);
            let iteration = iteration.and_then(|at| u32::try_from(at).ok());
            if let Some(at) = iteration.filter(|at| !node.iterations.masked.contains(at)) {
                node.iterations.masked.push(at);
            }
        }
    }

    fn apply_memory(&mut self, seq: Seq, e: &MemoryChanged) {
        let part = (seq, e.reducer);
        match self.memory.get_mut(&e.key) {
            Some(entry) if e.reducer.is_some() => {
                entry.parts.push(part);
                entry.excluded |= e.excluded;
            }
            Some(entry) => *entry = MemoryEntry { parts: vec![part], excluded: e.excluded },
            None => {
                let entry = MemoryEntry { parts: vec![part], excluded: e.excluded };
                self.memory.insert(e.key.clone(), entry);
            }
        }
    }

    fn apply_edge(&mut self, from: &str, to: &str, resets: &[String]) {
        if let Some(source) = self.nodes.get_mut(from) {
            source.taken.push(to.to_owned());
        }
        if resets.is_empty() {
            return;
        }
        let edges = self.cycles.entry(from.to_owned()).or_default();
        *edges.entry(to.to_owned()).or_default() += 1;
        for path in resets {
            let visit = self.visit(path);
            let is_known = self.nodes.contains_key(path);
            let next = if is_known { visit + 1 } else { visit };
            let triggered = path == to;
            self.nodes
                .insert(path.clone(), NodeState { visit: next, triggered, ..NodeState::default() });
        }
    }

    /// The node's entry, if the record is about its current visit.
    fn visited(&mut self, path: &str, visit: u32) -> Option<&mut NodeState> {
        let fresh = || NodeState { visit: 1, ..NodeState::default() };
        let node = self.nodes.entry(path.to_owned()).or_insert_with(fresh);
        (node.visit == visit).then_some(node)
    }

    /// False: the record changed nothing.
    fn apply_node(&mut self, seq: Seq, event: &Event) -> bool {
        match event {
            Event::NodeCompleted(e) => {
                let Some(node) = self.visited(&e.path, e.visit) else { return false };
                if matches!(node.phase, NodePhase::Completed | NodePhase::Skipped) {
                    return false;
                }
                let (visit, attempts, failures) = (node.visit, node.attempts, node.failures);
                let (phase, child_session_id) =
                    (NodePhase::Completed, node.child_session_id.take());
                *node = NodeState {
                    visit,
                    attempts,
                    failures,
                    phase,
                    child_session_id,
                    ..NodeState::default()
                };
                self.execution_path.push(e.path.clone());
                self.metrics.nodes_completed += 1;
                self.metrics.total_latency_ms += e.latency_ms;
            }
            Event::NodeSkipped(e) => {
                let Some(node) = self.visited(&e.path, e.visit) else { return false };
                if node.phase != NodePhase::Pending {
                    return false;
                }
                node.phase = NodePhase::Skipped;
            }
            Event::NodeSafePoint(e) => {
                let Some(node) = self.visited(&e.path, e.visit) else { return false };
                let excluded_keys = e.excluded_keys.clone();
                node.safe_point = Some(SafePoint { seq, excluded_keys, redacted: false });
            }
            Event::MapListed(e) => {
                let Some(node) = self.visited(&e.path, e.visit) else { return false };
                let items = BTreeMap::new();
                let masked = BTreeSet::new();
                let (count, is_list_masked) = (e.count, e.excluded);
                node.map =
                    Some(MapProgress { list_seq: seq, count, items, is_list_masked, masked });
            }
            Event::MapItemCompleted(e) => {
                let node = self.visited(&e.path, e.visit);
                let Some(map) = node.and_then(|node| node.map.as_mut()) else { return false };
                // The first completion of an item counts, unless it could not be restored.
                if map.masked.remove(&e.index) {
                    map.items.insert(e.index, seq);
                } else {
                    map.items.entry(e.index).or_insert(seq);
                }
                if e.excluded && map.items.get(&e.index) == Some(&seq) {
                    map.masked.insert(e.index);
                }
            }
            Event::LoopIterated(e) => {
                let Some(node) = self.visited(&e.path, e.visit) else { return false };
                let next = u32::try_from(node.iterations.seqs.len()).unwrap_or(u32::MAX);
                if e.iteration != next {
                    return false;
                }
                node.iterations.seqs.push(seq);
                // It was one of this iteration.
                node.safe_point = None;
                node.iterations.messages += u64::from(e.messages);
                node.iterations.done = e.done;
                if e.excluded {
                    node.iterations.masked.push(e.iteration);
                }
            }
            _ => return false,
        }
        true
    }

    fn apply_attempt(&mut self, seq: Seq, event: &Event) {
        let (path, visit) = match event {
            Event::NodeStarted(e) => (&e.path, e.visit),
            Event::NodeFailed(e) => (&e.path, e.visit),
            _ => return,
        };
        let Some(node) = self.visited(path, visit) else { return };
        if matches!(node.phase, NodePhase::Completed | NodePhase::Skipped) {
            return;
        }
        match event {
            Event::NodeStarted(e) => {
                let is_repeated = node.attempts > 0 && !node.held;
                node.held = false;
                node.handled = false;
                node.attempts = e.attempt;
                node.phase = NodePhase::Running;
                self.metrics.total_retries += u64::from(is_repeated);
            }
            Event::NodeFailed(e) => {
                node.attempts = node.attempts.max(e.attempt);
                node.failures += 1;
                node.failed_seq = Some(seq);
                node.retried = if e.retry_at.is_some() { node.retried + 1 } else { 0 };
                node.handled = e.handled;
                node.phase = NodePhase::Failed { seq, retry_at: e.retry_at };
                self.metrics.nodes_with_failures.insert(e.path.clone());
            }
            _ => {}
        }
    }
}
