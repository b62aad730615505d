//! Snapshots of the workspace's files, and what was restored from them.

use serde::{Deserialize, Serialize};

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
    } content ["skipped"];
    /// The prompt was delivered before the snapshot of the files was taken: the files as they were
    /// before this turn are not known.
    WorkspaceSnapshotLate = "workspace.snapshot_late" { run_id: RunId, waited_ms: u64, } content [];
    /// No snapshot could be taken: a limit was reached, or the disk said no.
    WorkspaceSnapshotFailed = "workspace.snapshot_failed" {
        trigger: SnapshotTrigger,
        #[serde(default, skip_serializing_if = "Option::is_none")] code: Option<AnyCode>,
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
        /// Of a restore that was finished after a crash: the files as they were found then.
        #[serde(default, skip_serializing_if = "Option::is_none")] kept_snapshot: Option<String>,
        paths_count: u64,
        /// Changes were overwritten that the session did not make.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] forced: bool,
        /// A restore that a crash had cut off was finished.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] recovered: bool,
    } content ["paths"];
}
