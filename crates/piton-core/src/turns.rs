//! The turns of an agent's session: their checkpoints, the snapshot of the files that each checkpoint
//! has, and which records belong to the conversation as it is now.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::event::{
    CheckpointCreated, Event, LineageStarted, RunResumed, Seq, WorkspaceRestored,
    WorkspaceSnapshotTaken,
};
use crate::graph::{CheckpointType, Lineages, Segment};
use crate::id::{CheckpointId, RunId};
use crate::limits::FOREIGN_SPANS_KEPT;
use crate::reason::Reason;
use crate::state::{Facts, PendingContext};
use crate::time::Timestamp;
use crate::workspace_identity::WorkspaceIdentity;

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
    /// Of a turn's start: where in which repository the agent worked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceIdentity>,
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
    /// The files as a recovery found them. A checkpoint holds them if others had changed some since the
    /// crash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_snapshot: Option<String>,
    /// The conversation before it: a lineage, up to a record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<(u32, Seq)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<CheckpointId>,
}

/// A rewind that has begun and has not ended. It follows from the log: the process that runs the session
/// carries it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenRestore {
    /// The record that it began with; that record has the paths.
    pub seq: Seq,
    pub checkpoint_id: CheckpointId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safety_snapshot: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<(u32, Seq)>,
    #[serde(default)]
    pub paths_count: u64,
    #[serde(default)]
    pub forced: bool,
    #[serde(default)]
    pub restarts_agent: bool,
}

impl Facts {
    pub(crate) fn apply_restore(&mut self, seq: Seq, event: &Event) {
        let is_open = |of: Seq, restore: &OpenRestore| restore.seq == of;
        match event {
            Event::WorkspaceRestoreStarted(e) => {
                self.restore = Some(OpenRestore {
                    seq,
                    checkpoint_id: e.checkpoint_id.clone(),
                    snapshot: e.snapshot.clone(),
                    safety_snapshot: e.safety_snapshot.clone(),
                    conversation: e.from_lineage.zip(e.from_seq),
                    paths_count: e.paths_count,
                    forced: e.forced,
                    restarts_agent: e.restarts_agent,
                });
            }
            // The conversation's record ends what is about both.
            Event::WorkspaceRestored(e) => {
                self.restore.take_if(|restore| {
                    restore.conversation.is_none()
                        && e.restore_seq.is_some_and(|of| is_open(of, restore))
                });
            }
            Event::WorkspaceRestoreFailed(e) => {
                self.restore.take_if(|restore| is_open(e.restore_seq, restore));
            }
            Event::LineageStarted(_) => self.restore = None,
            _ => {}
        }
    }
}

/// What an agent knew of a conversation that was left behind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptConversation {
    /// The last record of it: the agent's own conversation goes so far.
    pub seq: Seq,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_session_id: Option<String>,
    #[serde(default)]
    pub lacks_history: bool,
    #[serde(default)]
    pub is_history_unconfirmed: bool,
    #[serde(default)]
    pub is_injected: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_reason: Option<Reason>,
    #[serde(default, skip_serializing_if = "PendingContext::is_empty")]
    pub pending_context: PendingContext,
}

/// Between these snapshots others than the session changed files, or may have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignSpan {
    /// The record that says so.
    pub seq: Seq,
    pub before: String,
    /// `None`: no snapshot has been taken since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
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
    /// When others may have changed files, oldest first.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub foreign_spans: VecDeque<ForeignSpan>,
    /// The last run of which the log knows what its files were at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_run: Option<RunId>,
    #[serde(default)]
    pub lineages: Lineages,
}

impl Turns {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// `run`: the session's current run.
    pub(crate) fn apply(&mut self, seq: Seq, at: Timestamp, event: &Event, run: Option<&RunId>) {
        match event {
            Event::CheckpointCreated(e) => self.apply_checkpoint(seq, at, e),
            Event::CheckpointPruned(e) => {
                self.checkpoints.retain(|entry| !e.checkpoint_ids.contains(&entry.checkpoint_id));
            }
            Event::CheckpointDeleted(e) => {
                self.checkpoints.retain(|entry| entry.checkpoint_id != e.checkpoint_id);
            }
            Event::WorkspaceSnapshotTaken(e) => self.apply_taken(seq, e),
            Event::WorkspaceSnapshotLate(_) => self.begin_foreign_span(seq),
            Event::WorkspaceSnapshotFailed(e) => {
                self.begin_foreign_span(seq);
                if e.trigger == SnapshotTrigger::TurnComplete {
                    self.saved_run = run.cloned();
                }
            }
            Event::WorkspaceUnchanged(e) => {
                self.saved_run = Some(e.run_id.clone());
                self.end_foreign_span(self.last_snapshot.clone());
            }
            Event::WorkspaceRestored(e) => self.apply_restored(seq, e),
            Event::LineageStarted(e) => self.apply_lineage(seq, e),
            _ => {}
        }
    }

    fn apply_taken(&mut self, seq: Seq, e: &WorkspaceSnapshotTaken) {
        if let Some(before) = &e.since_snapshot {
            let (before, after) = (before.clone(), Some(e.snapshot.clone()));
            self.add_foreign_span(ForeignSpan { seq, before, after });
        }
        // A safety snapshot has what others changed: what comes next is compared with what is known
        // to be the session's.
        if e.trigger != SnapshotTrigger::Safety {
            self.end_foreign_span(Some(e.snapshot.clone()));
            self.last_snapshot = Some(e.snapshot.clone());
        }
    }

    /// It is unknown what changes from the newest snapshot to the next one.
    fn begin_foreign_span(&mut self, seq: Seq) {
        let is_open = self.foreign_spans.back().is_some_and(|span| span.after.is_none());
        if let (Some(before), false) = (&self.last_snapshot, is_open) {
            let (before, after) = (before.clone(), None);
            self.add_foreign_span(ForeignSpan { seq, before, after });
        }
    }

    fn add_foreign_span(&mut self, span: ForeignSpan) {
        // What is before the oldest checkpoint is needed for no rewind.
        let oldest = self.checkpoints.front().map_or(0, |entry| entry.seq);
        self.foreign_spans.retain(|span| span.seq >= oldest);
        self.foreign_spans.push_back(span);
        let over = self.foreign_spans.len().saturating_sub(FOREIGN_SPANS_KEPT);
        self.foreign_spans.drain(..over);
    }

    fn end_foreign_span(&mut self, snapshot: Option<String>) {
        if let Some(span) = self.foreign_spans.back_mut().filter(|span| span.after.is_none()) {
            span.after = snapshot;
        }
    }

    /// A run that was resumed has not ended.
    pub(crate) fn apply_resumed(&mut self, e: &RunResumed) {
        self.saved_run.take_if(|run| *run == e.run_id);
    }

    fn apply_checkpoint(&mut self, seq: Seq, created_at: Timestamp, e: &CheckpointCreated) {
        let Some(turn) = &e.turn else { return };
        if e.checkpoint_type == CheckpointType::TurnStart {
            self.last_rewind = None;
            // Snapshots were off, or failed: what others did before this turn is not known.
            if turn.snapshot.is_none() {
                self.begin_foreign_span(seq);
            }
        }
        if e.checkpoint_type == CheckpointType::TurnComplete {
            self.saved_run = Some(turn.run_id.clone());
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
        self.end_foreign_span(Some(e.safety_snapshot.clone()));
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
        let (safety_snapshot, kept_snapshot) =
            files.map(|files| (files.safety_snapshot, files.kept_snapshot)).unwrap_or_default();
        self.last_rewind = Some(LastRewind {
            seq,
            safety_snapshot,
            kept_snapshot,
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

    /// The checkpoint of the files as a recovery found them, with what others had changed since the
    /// crash.
    pub fn checkpoint_of_kept(&self, kept_snapshot: &str) -> Option<&TurnEntry> {
        let mut newest = self.checkpoints.iter().rev();
        newest.find(|entry| entry.turn.snapshot.as_deref() == Some(kept_snapshot))
    }

    /// The same of the last rewind, while it can be undone.
    pub fn kept_checkpoint(&self) -> Option<&TurnEntry> {
        self.checkpoint_of_kept(self.last_rewind.as_ref()?.kept_snapshot.as_deref()?)
    }

    /// Where the newest turn of the conversation was begun.
    pub fn workspace(&self, last_seq: Seq) -> Option<&WorkspaceIdentity> {
        let start = self.turns_back(last_seq, 1)?;
        start.turn.workspace.as_ref()
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
            .chain(self.foreign_spans.iter().map(|span| span.before.as_str()))
            .chain(self.foreign_spans.iter().filter_map(|span| span.after.as_deref()))
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
