//! The turns of an agent's session: their checkpoints, the snapshot of the files that each checkpoint
//! has, and which records belong to the conversation as it is now.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::event::{CheckpointCreated, Event, LineageStarted, Seq, WorkspaceRestored};
use crate::graph::{CheckpointType, Lineages, Segment};
use crate::id::{CheckpointId, RunId};
use crate::time::Timestamp;

/// Why a snapshot was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotTrigger {
    TurnStart,
    TurnComplete,
    /// Before a restore.
    #[serde(other)]
    Safety,
}

/// What a checkpoint of a turn has beside its position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnCheckpoint {
    pub run_id: RunId,
    /// The files at this point; `None`: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// The files at the end of the turn before: what differs was changed by others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_snapshot: Option<String>,
    /// The snapshot was not taken before the turn began.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub snapshot_late: bool,
}

/// A checkpoint of a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnEntry {
    pub checkpoint_id: CheckpointId,
    pub checkpoint_type: CheckpointType,
    pub seq: Seq,
    pub created_at: Timestamp,
    pub lineage: u32,
    pub turn: TurnCheckpoint,
}

/// The last rewind, if no turn has begun since: it can be undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRewind {
    /// The newest record of it.
    pub seq: Seq,
    /// The files before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safety_snapshot: Option<String>,
    /// The files as a recovery found them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_snapshot: Option<String>,
    /// The conversation before it: a lineage, up to a record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<(u32, Seq)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<CheckpointId>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turns {
    /// Oldest first. Bounded: the oldest are pruned.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub checkpoints: VecDeque<TurnEntry>,
    /// The newest snapshot that the log knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_snapshot: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_rewind: Option<LastRewind>,
    #[serde(default)]
    pub lineages: Lineages,
}

impl Turns {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn apply(&mut self, seq: Seq, at: Timestamp, event: &Event) {
        match event {
            Event::CheckpointCreated(e) => self.apply_checkpoint(seq, at, e),
            Event::CheckpointPruned(e) => {
                self.checkpoints.retain(|entry| !e.checkpoint_ids.contains(&entry.checkpoint_id));
            }
            Event::CheckpointDeleted(e) => {
                self.checkpoints.retain(|entry| entry.checkpoint_id != e.checkpoint_id);
            }
            Event::WorkspaceSnapshotTaken(e) => self.last_snapshot = Some(e.snapshot.clone()),
            Event::WorkspaceRestored(e) => self.apply_restored(seq, e),
            Event::LineageStarted(e) => self.apply_lineage(seq, e),
            _ => {}
        }
    }

    fn apply_checkpoint(&mut self, seq: Seq, created_at: Timestamp, e: &CheckpointCreated) {
        let Some(turn) = &e.turn else { return };
        if e.checkpoint_type == CheckpointType::TurnStart {
            self.last_rewind = None;
        }
        self.checkpoints.push_back(TurnEntry {
            checkpoint_id: e.checkpoint_id.clone(),
            checkpoint_type: e.checkpoint_type,
            seq,
            created_at,
            lineage: e.lineage,
            turn: turn.clone(),
        });
    }

    fn apply_restored(&mut self, seq: Seq, e: &WorkspaceRestored) {
        self.last_snapshot = Some(e.snapshot_after.clone());
        self.last_rewind = Some(LastRewind {
            seq,
            safety_snapshot: Some(e.safety_snapshot.clone()),
            kept_snapshot: e.kept_snapshot.clone(),
            conversation: None,
            checkpoint_id: e.checkpoint_id.clone(),
        });
    }

    fn apply_lineage(&mut self, seq: Seq, e: &LineageStarted) {
        let before = (self.lineages.current(), seq - 1);
        self.lineages.apply(seq, &e.clone().into());
        // Of the same rewind if the record before says that files were restored.
        let files = self.last_rewind.take().filter(|last| last.seq + 1 == seq);
        self.last_rewind = Some(LastRewind {
            seq,
            safety_snapshot: files.and_then(|files| files.safety_snapshot),
            kept_snapshot: None,
            conversation: Some(before),
            checkpoint_id: Some(e.from_checkpoint_id.clone()),
        });
    }

    /// The parts of the log that the conversation consists of, up to a record; `None`: all of it.
    pub fn live_segments(&self, last_seq: Seq) -> Option<Vec<Segment>> {
        let current = self.lineages.current();
        (current > 1).then(|| self.lineages.segments(current, last_seq))
    }

    /// The checkpoints of the conversation as it is now, oldest first.
    pub fn live_checkpoints(&self, last_seq: Seq) -> impl Iterator<Item = &TurnEntry> {
        let segments = self.live_segments(last_seq);
        self.checkpoints.iter().filter(move |entry| is_live(segments.as_deref(), entry.seq))
    }

    /// The start of the turn that was begun so many turns ago; the newest turn is 1.
    pub fn turns_back(&self, last_seq: Seq, count: usize) -> Option<&TurnEntry> {
        let starts: Vec<&TurnEntry> = self
            .live_checkpoints(last_seq)
            .filter(|entry| entry.checkpoint_type == CheckpointType::TurnStart)
            .collect();
        starts.len().checked_sub(count.max(1)).map(|at| starts[at])
    }

    /// The checkpoints of an id's beginning or end; an id is often given in short.
    pub fn find(&self, text: &str) -> Vec<&TurnEntry> {
        let fits = |entry: &&TurnEntry| {
            let id = entry.checkpoint_id.as_str();
            id == text || !text.is_empty() && (id.ends_with(text) || id.starts_with(text))
        };
        self.checkpoints.iter().filter(fits).collect()
    }

    /// The newest checkpoint before a record that has a snapshot of the files.
    pub fn snapshot_before(&self, seq: Seq) -> Option<&TurnEntry> {
        let earlier = self.checkpoints.iter().rev().filter(|entry| entry.seq < seq);
        earlier.into_iter().find(|entry| entry.turn.snapshot.is_some())
    }

    /// Every snapshot that a checkpoint or an undo may need.
    pub fn needed_snapshots(&self) -> impl Iterator<Item = &str> {
        let turns = self.checkpoints.iter().map(|entry| &entry.turn);
        let rewind = self.last_rewind.iter();
        let rewind = rewind
            .flat_map(|last| [last.safety_snapshot.as_deref(), last.kept_snapshot.as_deref()])
            .flatten();
        turns
            .flat_map(|turn| [turn.snapshot.as_deref(), turn.since_snapshot.as_deref()])
            .flatten()
            .chain(rewind)
            .chain(self.last_snapshot.as_deref())
    }
}

/// Whether a record belongs to the conversation as it is now.
pub fn is_live(segments: Option<&[Segment]>, seq: Seq) -> bool {
    segments.is_none_or(|segments| segments.iter().any(|segment| segment.contains(&seq)))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
pub(crate) fn is_zero(count: &u64) -> bool {
    *count == 0
}
