//! The files of a rewind: what would change, and what of it others changed.
//!
//! A snapshot that the log names may be gone: the one before a turn is flushed after the prompt's
//! delivery, and a power failure between the two takes it away. A rewind to it is refused and names an
//! older one; where it was to tell the changes of others from the session's own, all changes that may
//! be of others count as theirs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use piton_core::State;
use piton_core::decide::{FilesToRestore, TakenSnapshot};
use piton_core::id::{CheckpointId, SessionId};
use piton_core::turns::TurnEntry;
use piton_workspace::snapshot::tree::{ChangeKind, ObjectId, Selection, Step};
use piton_workspace::snapshot::{self, Repository, Snapshot};

use super::rewind::{FileChange, RewindSpec, SkippedPath, snapshot_of, workspace_of};
use super::snapshots::{Held, PATHS_NAMED_MAX, Snapshots, described, skip_reason};
use crate::error::{Error, Result};

/// What files a rewind is about.
#[derive(Clone, Debug)]
pub(super) struct FilesPlan {
    pub(super) checkpoint_id: CheckpointId,
    pub(super) workspace: PathBuf,
    pub(super) target: ObjectId,
    /// Older checkpoints with a snapshot, the newest first.
    pub(super) earlier: Vec<(CheckpointId, ObjectId)>,
    pub(super) selection: Selection,
    /// Pairs of snapshots between which others changed files, oldest first.
    pub(super) gaps: Vec<(ObjectId, ObjectId)>,
    pub(super) last: Option<ObjectId>,
    pub(super) force: bool,
}

impl FilesPlan {
    pub(super) fn order(&self, safety: TakenSnapshot) -> FilesToRestore {
        let text = |path: &Vec<u8>| String::from_utf8_lossy(path).into_owned();
        FilesToRestore {
            snapshot: self.target.to_string(),
            safety,
            paths: self.selection.paths.iter().map(text).collect(),
            forced: self.force,
        }
    }
}

/// What a restore would do.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) held: Held,
    pub(super) safety: TakenSnapshot,
    pub(super) changes: Vec<FileChange>,
    pub(super) foreign: Vec<String>,
    pub(super) skipped: Vec<SkippedPath>,
    pub(super) skipped_total: u64,
}

/// What these snapshots do not hold: the first of it, and how much in all.
pub(super) fn skipped_paths<'a>(
    snapshots: impl IntoIterator<Item = &'a Snapshot>,
) -> (Vec<SkippedPath>, u64) {
    let skipped = snapshots.into_iter().flat_map(|snapshot| &snapshot.skipped);
    let skipped: BTreeSet<SkippedPath> = skipped
        .map(|skipped| SkippedPath {
            path: String::from_utf8_lossy(&skipped.path).into_owned(),
            reason: skip_reason(skipped.reason).to_owned(),
        })
        .collect();
    let total = skipped.len() as u64;
    (skipped.into_iter().take(PATHS_NAMED_MAX).collect(), total)
}

pub(super) fn files_plan(
    snapshots: &Snapshots,
    session: &SessionId,
    state: &State,
    entry: &TurnEntry,
    spec: &RewindSpec,
) -> Result<FilesPlan> {
    let workspace = workspace_of(snapshots, session, state)?;
    let target = snapshot_of(state, entry)?;
    let id = |text: &Option<String>| text.as_ref().and_then(|text| text.parse().ok());
    let later = state.turns.checkpoints.iter().filter(|later| later.seq > entry.seq);
    let between = later.filter_map(|later| {
        Some((later.seq, id(&later.turn.since_snapshot)?, id(&later.turn.snapshot)?))
    });
    let spans = state.turns.foreign_spans.iter().filter(|span| span.seq > entry.seq);
    let spans =
        spans.filter_map(|span| Some((span.seq, span.before.parse().ok()?, id(&span.after)?)));
    let mut gaps: Vec<_> = between.chain(spans).collect();
    gaps.sort_by_key(|(seq, ..)| *seq);
    let paths = spec.paths.iter().map(|path| relative(&workspace, path));
    let earlier = state.turns.checkpoints.iter().rev().filter(|earlier| earlier.seq < entry.seq);
    let earlier = earlier
        .filter_map(|earlier| Some((earlier.checkpoint_id.clone(), id(&earlier.turn.snapshot)?)));
    Ok(FilesPlan {
        checkpoint_id: entry.checkpoint_id.clone(),
        target,
        earlier: earlier.collect(),
        selection: Selection { paths: paths.collect::<Result<_>>()? },
        gaps: gaps.into_iter().map(|(_, before, after)| (before, after)).collect(),
        last: id(&state.turns.last_snapshot),
        force: spec.force,
        workspace,
    })
}

/// A path as snapshots have it.
fn relative(workspace: &Path, path: &str) -> Result<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt as _;
    let path = Path::new(path);
    let path = path.strip_prefix(workspace).unwrap_or(path);
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            std::path::Component::Normal(part) => parts.push(part.as_bytes()),
            std::path::Component::CurDir => {}
            _ => {
                let path = path.to_owned();
                let error = piton_workspace::Error::PathOutside { path };
                return Err(Error::Folder(std::sync::Arc::new(error)));
            }
        }
    }
    if parts.is_empty() {
        return Err(Error::Invalid("Name a path in the workspace".to_owned()));
    }
    Ok(parts.join(&b'/'))
}

/// Paths that others changed between the turns. `now` is the newest snapshot.
fn foreign_paths(
    repository: &Repository,
    plan: &FilesPlan,
    now: ObjectId,
) -> Result<BTreeSet<Vec<u8>>, snapshot::Error> {
    let mut gaps = plan.gaps.clone();
    // One that is there is compared with the files as the restore finds them.
    gaps.extend(plan.last.filter(|last| !repository.is_whole(*last)).map(|last| (last, now)));
    let mut points = vec![plan.target];
    points.extend(gaps.into_iter().flat_map(|(before, after)| [before, after]));
    points.push(now);
    let is_there: Vec<bool> = points.iter().map(|id| repository.is_whole(*id)).collect();
    let mut paths = BTreeSet::new();
    for gap in (1..points.len() - 1).step_by(2) {
        // Where one is gone, the nearest one on its side: the first and the last are there.
        let before = (0..=gap).rev().find(|at| is_there[*at]);
        let after = (gap + 1..points.len()).find(|at| is_there[*at]);
        if let (Some(before), Some(after)) = (before, after) {
            paths.extend(repository.changed_paths(points[before], points[after])?);
        }
    }
    Ok(paths)
}

/// Whether a path changed otherwise than in the session's turns.
fn is_foreign(
    path: &[u8],
    now: &Snapshot,
    between: &BTreeSet<Vec<u8>>,
    last: Option<&Snapshot>,
) -> bool {
    let is_changed = last.is_some_and(|last| last.tree.nodes.get(path) != now.tree.nodes.get(path));
    is_changed || between.contains(path)
}

fn load_last(
    repository: &Repository,
    plan: &FilesPlan,
) -> Result<Option<Snapshot>, snapshot::Error> {
    let last = plan.last.filter(|last| repository.is_whole(*last));
    last.map(|last| repository.load(last)).transpose()
}

pub(super) async fn look(
    snapshots: &Snapshots,
    held: Held,
    session: &SessionId,
    plan: FilesPlan,
) -> Result<Looked> {
    let workspace = plan.workspace.clone();
    let work = move |repository: &mut Repository, workspace: &Path| {
        if !repository.is_whole(plan.target) {
            let mut earlier = plan.earlier.iter();
            let previous = earlier.find(|(_, snapshot)| repository.is_whole(*snapshot));
            return Ok(Err(Error::SnapshotNotFound {
                checkpoint: plan.checkpoint_id,
                previous: previous.map(|(checkpoint, _)| checkpoint.clone()),
            }));
        }
        let target = repository.load(plan.target)?;
        let (safety, steps) = repository.plan(workspace, plan.target, &plan.selection)?;
        let now = repository.load(safety)?;
        let last = load_last(repository, &plan)?;
        let between = foreign_paths(repository, &plan, safety)?;
        let foreign = steps.iter().map(Step::path);
        let foreign = foreign.filter(|path| is_foreign(path, &now, &between, last.as_ref()));
        let foreign = foreign.map(|path| String::from_utf8_lossy(path).into_owned()).collect();
        let change = |step: &Step| {
            let kind = match step {
                Step::Remove { .. } => ChangeKind::Removed,
                Step::Write { path, .. } if now.tree.nodes.contains_key(path) => {
                    ChangeKind::Modified
                }
                Step::Write { .. } => ChangeKind::Added,
            };
            file_change(step.path(), kind)
        };
        let changes: Vec<FileChange> = steps.iter().map(change).collect();
        let skipped = skipped_paths([&target, &now]);
        let taken = snapshot::SavedSnapshot {
            id: safety,
            unchanged: false,
            files: now.tree.nodes.len(),
            skipped: now.skipped,
        };
        Ok(Ok((taken, changes, foreign, skipped)))
    };
    let (held, looked) = snapshots.with_repository(held, session, &workspace, work).await;
    let (safety, changes, foreign, (skipped, skipped_total)) = looked??;
    let safety = described(&safety);
    Ok(Looked { held, safety, changes, foreign, skipped, skipped_total })
}

pub(super) fn file_change(path: &[u8], kind: ChangeKind) -> FileChange {
    let change = match kind {
        ChangeKind::Added => "added",
        ChangeKind::Modified => "modified",
        ChangeKind::Removed => "removed",
    };
    FileChange { path: String::from_utf8_lossy(path).into_owned(), change: change.to_owned() }
}
