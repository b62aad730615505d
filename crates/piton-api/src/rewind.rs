//! Checkpoints of agents' turns, and the way back to them.

use piton_core::Timestamp;
use piton_core::id::{CheckpointId, SessionId};
use serde::{Deserialize, Serialize};

use crate::enums::{CheckpointType, Context, FileChangeKind, SkipReason};

/// A checkpoint of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TurnCheckpoint {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub checkpoint_id: CheckpointId,
    /// `turn_start` or `turn_complete`.
    #[serde(rename = "type")]
    pub checkpoint_type: CheckpointType,
    /// The record; the checkpoint holds what the log says up to it.
    pub seq: u64,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub created_at: Timestamp,
    pub lineage: u32,
    /// The checkpoint belongs to the current conversation, not to an abandoned lineage.
    pub is_live: bool,
    /// The run of the turn.
    pub run_id: String,
    /// The files can be restored to this checkpoint.
    pub has_files: bool,
    /// The snapshot was not complete when the prompt was delivered.
    pub snapshot_late: bool,
}

/// The checkpoints of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TurnCheckpointList {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    /// Newest first.
    pub checkpoints: Vec<TurnCheckpoint>,
    /// The lineage of the conversation as it is now.
    pub lineage: u32,
    /// The last rewind can be undone.
    pub can_undo: bool,
    /// The checkpoint of the files that were edited after a crash in the middle of the last rewind,
    /// before it was finished; `null` if none were.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub kept_checkpoint: Option<CheckpointId>,
}

/// The checkpoint to rewind to, and what to rewind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RewindRequest {
    /// A checkpoint's id, or the beginning or end of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// Without a checkpoint: so many turns; 1 without a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// Restore the files; true without a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<bool>,
    /// Continue the conversation behind the checkpoint; true without a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<bool>,
    /// Only these files, and what is below these folders. For a rewind of files alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Report what would happen and change nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    /// Overwrite changes that the session did not make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
    /// Cancel a run that is open, instead of refusing with `run_in_progress`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UndoRequest {
    /// Report what would happen and change nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    /// Overwrite changes that were made since the rewind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
}

/// What a rewind did, or would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RewindResult {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub checkpoint_id: CheckpointId,
    pub dry_run: bool,
    /// `null`: the files stay as they are.
    pub files: Option<RewoundFiles>,
    /// `null`: the conversation stays as it is.
    pub conversation: Option<RewoundConversation>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RewoundFiles {
    /// The first 10,000 of them.
    pub changes: Vec<FileChange>,
    pub changes_total: u64,
    /// Those of them that the session did not change.
    pub foreign: Vec<String>,
    /// The snapshot of the files before; `null` for a dry run.
    pub safety_snapshot: Option<String>,
    /// What snapshots do not hold: files that are too large, nested repositories and submodules, and
    /// what cannot be read. They stay as they are. The first 100.
    #[serde(default)]
    pub skipped: Vec<SkippedPath>,
    #[serde(default)]
    pub skipped_total: u64,
    /// The checkpoint of the files that were edited after a crash in the middle of the rewind, before it
    /// was finished; `null` if none were. Of an undo: in the middle of the rewind that is undone.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub kept_checkpoint: Option<CheckpointId>,
}

/// What a snapshot does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SkippedPath {
    pub path: String,
    pub reason: SkipReason,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileChange {
    pub path: String,
    pub change: FileChangeKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RewoundConversation {
    /// The lineage that continues behind the checkpoint.
    pub lineage: u32,
    /// What the agent will know of what was said before: `injected`, `lost` or `none`.
    pub context: Context,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct FilesDiffQuery {
    /// The older checkpoint: its id, or the beginning or end of it.
    pub from: String,
    /// The newer one; the files as they are now without a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// How the files differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FilesDiff {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    pub changes: Vec<FileChange>,
    /// What one of the snapshots does not hold: it is not compared. The first 100.
    #[serde(default)]
    pub skipped: Vec<SkippedPath>,
    #[serde(default)]
    pub skipped_total: u64,
}
