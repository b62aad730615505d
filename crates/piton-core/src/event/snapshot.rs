//! Snapshots of the workspace's files, and what was restored from them.

use serde::{Deserialize, Serialize};

use super::Critical;
use super::Seq;
use crate::code::AnyCode;
use crate::id::{CheckpointId, RunId};
use crate::turns::SnapshotTrigger;

records! {
    /// The workspace's files were saved, and they differ from the snapshot before. `skipped` names what
    /// a snapshot does not hold (too large, nested repositories, unreadable), the first of it.
    WorkspaceSnapshotTaken = "workspace.snapshot_taken" {
        /// The snapshot's id in the session's snapshot repository.
        snapshot: String,
        trigger: SnapshotTrigger,
        files: u64,
        #[serde(default, skip_serializing_if = "crate::turns::is_zero")] skipped_count: u64,
        /// The newest snapshot before it, if what differs was changed by others than the session.
        #[serde(default, skip_serializing_if = "Option::is_none")] since_snapshot: Option<String>,
    } content ["skipped"];
    /// A run has ended, and the workspace's files are as the newest snapshot has them.
    WorkspaceUnchanged = "workspace.unchanged" { run_id: RunId, } content [];
    /// The prompt was delivered before the snapshot of the files was taken: the files as they were
    /// before this turn are not known.
    WorkspaceSnapshotLate = "workspace.snapshot_late" { run_id: RunId, waited_ms: u64, } content [];
    /// No snapshot could be taken: a limit was reached, or the disk said no.
    WorkspaceSnapshotFailed = "workspace.snapshot_failed" {
        trigger: SnapshotTrigger,
        #[serde(default, skip_serializing_if = "Option::is_none")] code: Option<AnyCode>,
    } content ["message"];
    /// Files, the conversation or both are to go back to a checkpoint. Nothing has been touched yet;
    /// from now on it is done whatever crashes, and until it has ended no run begins. `paths` names
    /// the only paths that are meant; without it all are.
    WorkspaceRestoreStarted = "workspace.restore_started" {
        checkpoint_id: CheckpointId,
        /// The snapshot that files are restored from; none: the files stay.
        #[serde(default, skip_serializing_if = "Option::is_none")] snapshot: Option<String>,
        /// The files before it.
        #[serde(default, skip_serializing_if = "Option::is_none")] safety_snapshot: Option<String>,
        /// The lineage and the record that the conversation continues behind; none: it stays.
        #[serde(default, skip_serializing_if = "Option::is_none")] from_lineage: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")] from_seq: Option<Seq>,
        #[serde(default, skip_serializing_if = "crate::turns::is_zero")] paths_count: u64,
        /// Changes may be overwritten that the session did not make.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] forced: bool,
        /// The agent ran, and is to run again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] restarts_agent: bool,
        #[serde(default)] critical: Critical,
    } content ["paths"];
    /// A restore could not be carried out: the files are as they were before it, and so is the
    /// conversation.
    WorkspaceRestoreFailed = "workspace.restore_failed" {
        /// The record that it began with.
        restore_seq: Seq,
        #[serde(default, skip_serializing_if = "Option::is_none")] code: Option<AnyCode>,
        /// Some files had been restored already, and were brought back.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] rolled_back: bool,
    } content ["message"];
    /// Files of the workspace were brought back to a snapshot. `paths` names what was written or
    /// removed, the first of it.
    WorkspaceRestored = "workspace.restored" {
        /// The snapshot that they were restored from.
        snapshot: String,
        /// The files before it: restoring this snapshot undoes the restore.
        safety_snapshot: String,
        /// The files after it.
        snapshot_after: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] checkpoint_id: Option<CheckpointId>,
        /// The record that the restore began with.
        #[serde(default, skip_serializing_if = "Option::is_none")] restore_seq: Option<Seq>,
        /// Of a restore that was finished after a crash: the files as they were found then.
        #[serde(default, skip_serializing_if = "Option::is_none")] kept_snapshot: Option<String>,
        paths_count: u64,
        /// Changes were overwritten that the session did not make.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] forced: bool,
        /// A restore that a crash had cut off was finished.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] recovered: bool,
    } content ["paths"];
}
