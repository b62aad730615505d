//! The checkpoints of a graph's session: all of them, of all lineages. A checkpoint is a record and
//! its position; what it holds is the fold of its lineage up to there.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::config::{CheckpointConfig, CheckpointOptions};
use crate::event::{Event, Seq};
use crate::id::{CheckpointId, WaitId};
use crate::time::Timestamp;

/// The boundary that caused a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointType {
    NodeStart,
    NodeComplete,
    EdgeTransition,
    LoopIteration,
    /// A node, or its description in the graph, says that this is a safe point.
    SafePoint,
    /// Before a wait for a person.
    UserCheckpoint,
    /// Before an agent is given a prompt.
    TurnStart,
    /// After an agent's turn that changed files.
    TurnComplete,
}

impl CheckpointType {
    pub const ALL: &'static [Self] = &[
        Self::NodeStart,
        Self::NodeComplete,
        Self::EdgeTransition,
        Self::LoopIteration,
        Self::SafePoint,
        Self::UserCheckpoint,
        Self::TurnStart,
        Self::TurnComplete,
    ];

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == text)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::NodeStart => "node_start",
            Self::NodeComplete => "node_complete",
            Self::EdgeTransition => "edge_transition",
            Self::LoopIteration => "loop_iteration",
            Self::SafePoint => "safe_point",
            Self::UserCheckpoint => "user_checkpoint",
            Self::TurnStart => "turn_start",
            Self::TurnComplete => "turn_complete",
        }
    }
}

/// One checkpoint, without what it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is the answer to a question of its own")]
pub struct CheckpointEntry {
    pub checkpoint_id: CheckpointId,
    pub checkpoint_type: CheckpointType,
    /// The record; the checkpoint holds the fold up to it.
    pub seq: Seq,
    pub created_at: Timestamp,
    pub lineage: u32,
    pub parent: Option<CheckpointId>,
    pub current_node: Option<String>,
    pub next_node: Option<String>,
    pub is_clean: bool,
    pub can_resume_from: bool,
    pub without_memory: bool,
    pub without_conversations: bool,
    /// The record that has the error, if the node that starts here failed: this is its resume point.
    pub failed_seq: Option<Seq>,
    /// It could not be restored.
    pub is_damaged: bool,
}

/// Which checkpoints to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointFilter {
    pub checkpoint_type: Option<CheckpointType>,
    pub is_clean: Option<bool>,
    pub node: Option<String>,
    pub lineage: Option<u32>,
}

impl CheckpointFilter {
    pub fn matches(&self, entry: &CheckpointEntry) -> bool {
        self.checkpoint_type.is_none_or(|wanted| wanted == entry.checkpoint_type)
            && self.is_clean.is_none_or(|wanted| wanted == entry.is_clean)
            && self.lineage.is_none_or(|wanted| wanted == entry.lineage)
            && self.node.as_ref().is_none_or(|node| entry.current_node.as_ref() == Some(node))
    }
}

/// Why a graph cannot be resumed from a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResumeRefusal {
    #[error("The session has no checkpoint {checkpoint}")]
    NotFound { checkpoint: CheckpointId },
    #[error("Checkpoint {checkpoint} cannot be resumed from")]
    NotResumable { checkpoint: CheckpointId },
    #[error("Checkpoint {checkpoint} is damaged")]
    Damaged { checkpoint: CheckpointId },
}

/// All checkpoints that were neither pruned nor deleted, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointIndex {
    entries: BTreeMap<Seq, CheckpointEntry>,
    by_id: BTreeMap<CheckpointId, Seq>,
    /// Checkpoints that a lineage or a fork began with: never pruned.
    kept: BTreeSet<CheckpointId>,
    /// The newest start checkpoint of each node.
    starts: BTreeMap<String, Seq>,
    /// The checkpoint before each open wait: never pruned.
    #[serde(default)]
    waits: BTreeMap<WaitId, CheckpointId>,
    /// The newest checkpoint before a wait, until the record of the wait.
    #[serde(default)]
    asking: Option<CheckpointId>,
    /// What executions were given.
    #[serde(default)]
    options: CheckpointOptions,
}

impl CheckpointIndex {
    pub fn apply(&mut self, seq: Seq, ts: Timestamp, event: &Event) {
        match event {
            Event::CheckpointCreated(e) => {
                let entry = CheckpointEntry {
                    checkpoint_id: e.checkpoint_id.clone(),
                    checkpoint_type: e.checkpoint_type,
                    seq,
                    created_at: ts,
                    lineage: e.lineage,
                    parent: e.parent.clone(),
                    current_node: e.current_node.clone(),
                    next_node: e.next_node.clone(),
                    is_clean: e.is_clean,
                    can_resume_from: e.can_resume_from,
                    without_memory: e.without_memory,
                    without_conversations: e.without_conversations,
                    failed_seq: None,
                    is_damaged: false,
                };
                if e.checkpoint_type == CheckpointType::NodeStart
                    && let Some(node) = &e.current_node
                {
                    self.starts.insert(node.clone(), seq);
                }
                if e.checkpoint_type == CheckpointType::UserCheckpoint {
                    self.asking = Some(e.checkpoint_id.clone());
                }
                self.by_id.insert(e.checkpoint_id.clone(), seq);
                self.entries.insert(seq, entry);
            }
            Event::CheckpointPruned(e) => {
                for id in &e.checkpoint_ids {
                    self.remove(id);
                }
            }
            Event::CheckpointDeleted(e) => self.remove(&e.checkpoint_id),
            Event::CheckpointDamaged(e) => {
                if let Some(entry) = self.entry_mut(&e.checkpoint_id) {
                    entry.is_damaged = true;
                }
            }
            Event::GraphConfigured(e) => {
                // Once excluded, always excluded.
                let mut keys = std::mem::take(&mut self.options.exclude_memory_keys);
                let new = e.exclude_memory_keys.iter().filter(|key| !keys.contains(key));
                let new: Vec<String> = new.cloned().collect();
                keys.extend(new);
                self.options = CheckpointOptions::from_given(&e.options);
                self.options.exclude_memory_keys = keys;
            }
            Event::LineageStarted(e) => {
                self.kept.insert(e.from_checkpoint_id.clone());
            }
            Event::NodeFailed(e) => {
                let start = self.starts.get(&e.path).copied();
                if let Some(entry) = start.and_then(|start| self.entries.get_mut(&start)) {
                    entry.failed_seq = Some(seq);
                }
            }
            _ => self.apply_wait(event),
        }
    }

    fn apply_wait(&mut self, event: &Event) {
        match event {
            Event::RunWaiting(e) => {
                let Some(wait_id) = &e.wait_id else { return };
                if !self.waits.contains_key(wait_id) {
                    let asking = self.asking.take();
                    self.waits.extend(asking.map(|id| (wait_id.clone(), id)));
                }
            }
            Event::RunResumed(e) => {
                if let Some(wait_id) = &e.wait_id {
                    self.waits.remove(wait_id);
                }
            }
            Event::WaitCancelled(e) => {
                self.waits.remove(&e.wait_id);
            }
            // Waits end with their run.
            Event::RunStarted(_)
            | Event::RunCompleted(_)
            | Event::RunFailed(_)
            | Event::RunCancelled(_)
            | Event::RunInterrupted(_)
            | Event::RunDismissed(_) => self.waits.clear(),
            _ => {}
        }
    }

    fn remove(&mut self, id: &CheckpointId) {
        let Some(seq) = self.by_id.remove(id) else { return };
        self.entries.remove(&seq);
        self.starts.retain(|_, start| *start != seq);
    }

    fn entry_mut(&mut self, id: &CheckpointId) -> Option<&mut CheckpointEntry> {
        self.entries.get_mut(self.by_id.get(id)?)
    }

    /// The options that the session's executions were given, in the order of their records; excluded
    /// keys of all levels add up.
    pub fn options(&self) -> &CheckpointOptions {
        &self.options
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn get(&self, id: &CheckpointId) -> Option<&CheckpointEntry> {
        self.entries.get(self.by_id.get(id)?)
    }

    /// The checkpoints of an id's beginning or end; an id is often given in short.
    pub fn find(&self, text: &str) -> Vec<&CheckpointEntry> {
        let fits = |entry: &&CheckpointEntry| {
            let id = entry.checkpoint_id.as_str();
            id == text || id.ends_with(text) || id.starts_with(text)
        };
        self.entries.values().filter(fits).collect()
    }

    /// The checkpoints that a filter lets through, newest first.
    pub fn list<'a>(
        &'a self,
        filter: &'a CheckpointFilter,
    ) -> impl Iterator<Item = &'a CheckpointEntry> {
        self.entries.values().rev().filter(|entry| filter.matches(entry))
    }

    /// The newest checkpoint of the lineage.
    pub fn latest(&self, lineage: u32) -> Option<&CheckpointEntry> {
        self.entries.values().rev().find(|entry| entry.lineage == lineage)
    }

    /// The newest checkpoint of a node's start.
    pub fn start_of(&self, node: &str) -> Option<&CheckpointEntry> {
        self.entries.get(self.starts.get(node)?)
    }

    /// Where a resume without a checkpoint begins: the start of the node that failed, else the newest
    /// checkpoint that can be resumed from.
    pub fn resume_point(
        &self,
        lineage: u32,
        failed_node: Option<&str>,
    ) -> Option<&CheckpointEntry> {
        let usable = |entry: &&CheckpointEntry| {
            entry.can_resume_from && !entry.is_damaged && entry.lineage == lineage
        };
        let failed = failed_node.and_then(|node| self.start_of(node)).filter(usable);
        failed.or_else(|| self.entries.values().rev().find(usable))
    }

    /// The newest intact checkpoint before a position, for when the one there cannot be restored.
    pub fn before(&self, seq: Seq) -> Option<&CheckpointEntry> {
        let earlier = self.entries.range(..seq).rev();
        earlier.map(|(_, entry)| entry).find(|entry| entry.can_resume_from && !entry.is_damaged)
    }

    pub fn may_resume(&self, id: &CheckpointId) -> Result<&CheckpointEntry, ResumeRefusal> {
        let Some(entry) = self.get(id) else {
            return Err(ResumeRefusal::NotFound { checkpoint: id.clone() });
        };
        if entry.is_damaged {
            return Err(ResumeRefusal::Damaged { checkpoint: id.clone() });
        }
        if !entry.can_resume_from {
            return Err(ResumeRefusal::NotResumable { checkpoint: id.clone() });
        }
        Ok(entry)
    }

    /// What is pruned so that `keep` remain, oldest first. Never the newest intact one, never one that
    /// a lineage began with or that an open wait needs. With `clean_only` those that are not clean go first,
    /// all of them.
    pub fn prune_plan(&self, keep: usize, clean_only: bool) -> Vec<CheckpointId> {
        let needed: BTreeSet<&CheckpointId> = self.waits.values().collect();
        let is_good = |entry: &&CheckpointEntry| entry.can_resume_from && !entry.is_damaged;
        let newest = self.entries.values().rev().find(is_good).map(|entry| entry.seq);
        let may_go = |entry: &&CheckpointEntry| {
            Some(entry.seq) != newest
                && !self.kept.contains(&entry.checkpoint_id)
                && !needed.contains(&entry.checkpoint_id)
        };
        let mut plan: BTreeMap<Seq, &CheckpointEntry> = BTreeMap::new();
        if clean_only {
            let unclean = self.entries.values().filter(|entry| !entry.is_clean);
            plan.extend(unclean.filter(may_go).map(|entry| (entry.seq, entry)));
        }
        let over = (self.entries.len() - plan.len()).saturating_sub(keep);
        let oldest: Vec<&CheckpointEntry> = self
            .entries
            .values()
            .filter(|entry| !plan.contains_key(&entry.seq))
            .filter(may_go)
            .take(over)
            .collect();
        plan.extend(oldest.into_iter().map(|entry| (entry.seq, entry)));
        plan.into_values().map(|entry| entry.checkpoint_id.clone()).collect()
    }

    /// What is pruned by itself after so many nodes completed.
    pub fn due_for_pruning(
        &self,
        config: &CheckpointConfig,
        nodes_completed: u64,
    ) -> Vec<CheckpointId> {
        let every = config.prune_after_node_count;
        if every == 0 || nodes_completed == 0 || !nodes_completed.is_multiple_of(every) {
            return Vec::new();
        }
        let clean_only = config.keep_clean_checkpoints_only;
        self.prune_plan(config.max_checkpoints_per_session, clean_only)
    }

    /// What is over the maximum where no node completes: in the middle of one, and at a run's end.
    pub fn over_maximum(&self, config: &CheckpointConfig) -> Vec<CheckpointId> {
        let max = config.max_checkpoints_per_session;
        if config.prune_after_node_count == 0 || self.entries.len() <= max {
            return Vec::new();
        }
        self.prune_plan(max, config.keep_clean_checkpoints_only)
    }
}
