//! Makes a workspace what a snapshot says, wholly or not at all.
//!
//! 1. A *safety snapshot* of everything that could be overwritten.
//! 2. Checks: nothing that is not in it would be lost, every folder can be written to, there is room.
//! 3. The *journal*: from which snapshot to which one, on which paths. Flushed.
//! 4. The steps. They follow from the journal alone and can be repeated.
//! 5. The file system is flushed, and the journal says that the steps were taken.
//! 6. The caller records what happened, and [`Repository::settle`] removes the journal.
//!
//! After a crash between 3 and 5, [`Repository::recover`] repeats the steps; after one between 5 and 6
//! it says again what was done, and touches no file. If a step fails, the journal is turned around and
//! the steps back to the safety snapshot are taken.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path as FsPath, PathBuf};

use serde::{Deserialize, Serialize};

use super::apply::{Expected, Site, StepError, check, open_root, remove_litter, sync_file_system};
use super::ignored::IgnoreRules;
use super::scan::{TEMPORARY_PREFIX, TEMPORARY_SUFFIX};
use super::tree::{Node, ObjectId, Path, Selection, Step, changes, plan};
use super::{Error, Repository, Share, Snapshot};

const JOURNAL: &str = "restore.journal";

/// Whether changes that the session did not make are overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    Refuse,
    Overwrite,
}

/// What a restore did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The state before it: restoring this one undoes the restore.
    pub safety: ObjectId,
    pub target: ObjectId,
    /// What was written or removed.
    pub paths: Vec<Path>,
    /// A step failed, and the workspace is as the safety snapshot has it.
    pub rolled_back: bool,
    /// Of a restore that was finished after a crash: the files as they were found, with what was
    /// changed since the crash.
    pub found: Option<ObjectId>,
    /// Of that: something was changed since the crash, so that neither the state before the restore nor
    /// its target has it.
    pub is_edited: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Journal {
    version: u8,
    safety: String,
    target: String,
    /// In hexadecimal digits: a path need not be text.
    paths: Vec<String>,
    /// Back to the safety snapshot.
    back: bool,
    /// All steps were taken, and are on the disk.
    #[serde(default)]
    applied: bool,
    /// The name beside a file's place, until it is renamed into it.
    #[serde(default = "temporary_of_old")]
    temporary: String,
}

fn temporary_of_old() -> String {
    ".piton-restore.tmp".to_owned()
}

/// No two restores have the same, also of two sessions in one folder.
fn fresh_temporary() -> Result<String, Error> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|_| Error::NoRandomness)?;
    Ok(format!("{TEMPORARY_PREFIX}{}{TEMPORARY_SUFFIX}", hex::encode(random)))
}

impl Repository {
    fn journal_path(&self) -> PathBuf {
        self.folder.join(JOURNAL)
    }

    /// What a restore would do, without doing it.
    pub fn plan(
        &mut self,
        workspace: &FsPath,
        target: ObjectId,
        selection: &Selection,
    ) -> Result<(ObjectId, Vec<Step>), Error> {
        let _shared = self.lock_workspace(workspace, Share::WithOthers)?;
        let target = self.load(target)?;
        let (safety, now) = self.take_safety(workspace, &target)?;
        Ok((safety, self.steps(&now, &target, selection)?))
    }

    /// `is_foreign` says of a path whether it changed otherwise than by the session's turns. The
    /// journal stays until [`Self::settle`].
    pub fn restore(
        &mut self,
        workspace: &FsPath,
        target_id: ObjectId,
        selection: &Selection,
        force: Force,
        is_foreign: impl Fn(&[u8], &Snapshot) -> bool,
    ) -> Result<Restored, Error> {
        let _alone = self.lock_workspace(workspace, Share::Alone)?;
        if self.open_journal()?.is_some() {
            return Err(Error::RestoreOpen);
        }
        let target = self.load(target_id)?;
        let (safety_id, now) = self.take_safety(workspace, &target)?;
        let steps = self.steps(&now, &target, selection)?;
        if force == Force::Refuse {
            let foreign = steps.iter().map(Step::path).filter(|path| is_foreign(path, &now));
            let paths: Vec<Path> = foreign.map(<[u8]>::to_vec).collect();
            if !paths.is_empty() {
                return Err(Error::ForeignChanges { paths });
            }
        }
        let paths = steps.iter().map(|step| step.path().to_vec()).collect();
        let restored = Restored {
            safety: safety_id,
            target: target_id,
            paths,
            rolled_back: false,
            found: None,
            is_edited: false,
        };
        if steps.is_empty() {
            return Ok(restored);
        }
        let root = open_root(workspace)?;
        check(&root, workspace, &now, &steps)?;
        // Every content is there and intact before the first file is touched.
        for step in &steps {
            if let Step::Write { node: Node::File { id, .. }, .. } = step {
                self.read(*id)?;
            }
        }
        let journal = Journal {
            version: 1,
            safety: safety_id.to_string(),
            target: target_id.to_string(),
            paths: selection.paths.iter().map(hex::encode).collect(),
            back: false,
            applied: false,
            temporary: fresh_temporary()?,
        };
        self.write_journal(&journal)?;
        self.finish(workspace, &journal, restored, &steps, &now)
    }

    /// What a restore did is recorded: its journal is needed no more.
    pub fn settle(&self) -> Result<(), Error> {
        let path = self.journal_path();
        let settled = match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            removed => removed.and_then(|()| File::open(&self.folder)?.sync_all()),
        };
        settled.map_err(|source| Error::io(&path, source))
    }

    /// Whether all steps of the restore were taken that the journal speaks of.
    pub fn is_applied(&self) -> Result<bool, Error> {
        Ok(self.open_journal()?.is_some_and(|(journal, ..)| journal.applied))
    }

    /// The journal of a restore that was cut off, with its safety snapshot and its target.
    fn open_journal(&self) -> Result<Option<(Journal, ObjectId, ObjectId)>, Error> {
        let path = self.journal_path();
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|source| Error::io(&path, source))?,
        };
        let invalid = || Error::io(&path, io::ErrorKind::InvalidData.into());
        let journal: Journal = serde_json::from_str(&text).map_err(|_| invalid())?;
        let safety = journal.safety.parse().map_err(|_| invalid())?;
        let target = journal.target.parse().map_err(|_| invalid())?;
        Ok(Some((journal, safety, target)))
    }

    /// The snapshots that a restore which was cut off needs.
    pub(super) fn journal_snapshots(&self) -> Result<Vec<ObjectId>, Error> {
        let journal = self.open_journal()?;
        Ok(journal.map_or_else(Vec::new, |(_, safety, target)| vec![safety, target]))
    }

    /// Whether a restore was cut off in a repository's folder; nothing is opened.
    pub fn has_journal(folder: &FsPath) -> bool {
        folder.join(JOURNAL).exists()
    }

    /// Finishes a restore that was cut off. `None`: there was none. The journal stays until
    /// [`Self::settle`].
    pub fn recover(&mut self, workspace: &FsPath) -> Result<Option<Restored>, Error> {
        let Some((journal, safety, target)) = self.open_journal()? else { return Ok(None) };
        let _alone = self.lock_workspace(workspace, Share::Alone)?;
        // What was changed since the crash is kept in a snapshot of its own.
        let snapshot = self.load(target)?;
        let (found, now) = self.take_safety(workspace, &snapshot)?;
        let (paths, rolled_back) = (Vec::new(), journal.back);
        let found = Some(found).filter(|_| !journal.applied);
        let is_edited = found.is_some() && self.is_edited(&now, safety, &snapshot)?;
        let mut restored = Restored { safety, target, paths, rolled_back, found, is_edited };
        let steps = self.journal_steps(&journal, &restored)?;
        restored.paths = steps.iter().map(|step| step.path().to_vec()).collect();
        self.finish(workspace, &journal, restored, &steps, &now).map(Some)
    }

    /// Whether a path is neither what it was before the restore nor what it was to be after it.
    fn is_edited(
        &self,
        now: &Snapshot,
        safety: ObjectId,
        target: &Snapshot,
    ) -> Result<bool, Error> {
        let safety = self.load(safety)?;
        let changed = changes(&safety.tree, &now.tree);
        let is_step = |path: &Path| now.tree.nodes.get(path) == target.tree.nodes.get(path);
        Ok(!changed.iter().all(|change| is_step(&change.path)))
    }

    /// Takes the steps that the journal speaks of; `now` is what they were planned for.
    fn finish(
        &mut self,
        workspace: &FsPath,
        journal: &Journal,
        restored: Restored,
        steps: &[Step],
        now: &Snapshot,
    ) -> Result<Restored, Error> {
        if journal.applied {
            return Ok(restored);
        }
        let root = open_root(workspace)?;
        let site = Site { root: &root, temporary: &journal.temporary };
        let applied = self.apply(&site, steps, Expected::Is(&now.tree));
        remove_litter(&site, steps);
        let Err(failed) = applied else {
            self.mark_applied(&root, journal)?;
            return Ok(restored);
        };
        let incomplete = |failed| match failed {
            StepError::Changed { path } => Error::ForeignChanges { paths: vec![path] },
            StepError::Io { path, source } => Error::Incomplete { path, source },
        };
        if journal.back {
            return Err(incomplete(failed));
        }
        let back = Journal { back: true, ..journal.clone() };
        self.write_journal(&back)?;
        let steps = self.journal_steps(&back, &restored)?;
        let (safety, target) = (self.load(restored.safety)?, self.load(restored.target)?);
        let either = Expected::IsOneOf(&safety.tree, &target.tree);
        let rolled_back = self.apply(&site, &steps, either);
        remove_litter(&site, &steps);
        rolled_back.map_err(incomplete)?;
        self.mark_applied(&root, &back)?;
        Err(match failed {
            StepError::Changed { path } => Error::ForeignChanges { paths: vec![path] },
            StepError::Io { path, source } => Error::NotWritable { path, source },
        })
    }

    fn journal_steps(&self, journal: &Journal, ids: &Restored) -> Result<Vec<Step>, Error> {
        let paths: Result<Vec<Path>, _> = journal.paths.iter().map(hex::decode).collect();
        let invalid = |_| Error::io(&self.journal_path(), io::ErrorKind::InvalidData.into());
        let selection = Selection { paths: paths.map_err(invalid)? };
        let (safety, target) = (self.load(ids.safety)?, self.load(ids.target)?);
        let forward = self.steps(&safety, &target, &selection)?;
        if !journal.back {
            return Ok(forward);
        }
        // Back on exactly those paths that the way forward touched.
        let touched: BTreeSet<&[u8]> = forward.iter().map(Step::path).collect();
        let back = plan(&target.tree, &safety.tree, &selection);
        Ok(back.into_iter().filter(|step| touched.contains(step.path())).collect())
    }

    /// A snapshot of the workspace that also has what the target would overwrite, ignored or not.
    fn take_safety(
        &mut self,
        workspace: &FsPath,
        target: &Snapshot,
    ) -> Result<(ObjectId, Snapshot), Error> {
        let also: BTreeSet<Path> = target.tree.nodes.keys().cloned().collect();
        let (taken, tree) = self.take_with_tree(workspace, &also)?;
        Ok((taken.id, Snapshot { tree, skipped: taken.skipped }))
    }

    fn write_journal(&self, journal: &Journal) -> Result<(), Error> {
        let path = self.journal_path();
        let next = path.with_extension("next");
        let write = || -> io::Result<()> {
            let mut options = File::options();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o600).open(&next)?;
            file.write_all(&serde_json::to_vec(journal)?)?;
            file.sync_all()?;
            fs::rename(&next, &path)?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(|source| Error::io(&path, source))
    }

    fn mark_applied(&self, root: &OwnedFd, journal: &Journal) -> Result<(), Error> {
        sync_file_system(root).map_err(|source| Error::io(&self.journal_path(), source))?;
        self.write_journal(&Journal { applied: true, ..journal.clone() })
    }

    /// The steps from the safety snapshot to the target. What the target could not hold is left alone:
    /// what it names, and what its own ignore rules left out.
    fn steps(
        &self,
        now: &Snapshot,
        target: &Snapshot,
        selection: &Selection,
    ) -> Result<Vec<Step>, Error> {
        let skipped: BTreeSet<&[u8]> = target.skipped.iter().map(|skip| &*skip.path).collect();
        let rules = IgnoreRules::of(&target.tree, |id| self.read(id))?;
        let keep = |step: &Step| match step {
            Step::Remove { path } => !is_in_or_below(path, &skipped) && !rules.ignores(path),
            Step::Write { .. } => true,
        };
        Ok(plan(&now.tree, &target.tree, selection).into_iter().filter(keep).collect())
    }
}

fn is_in_or_below(path: &[u8], set: &BTreeSet<&[u8]>) -> bool {
    let mut ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    set.contains(path) || ends.any(|end| set.contains(&path[..end]))
}

impl Repository {
    /// Paths that changed between two snapshots.
    pub fn changed_paths(
        &self,
        before: ObjectId,
        after: ObjectId,
    ) -> Result<BTreeSet<Path>, Error> {
        if before == after {
            return Ok(BTreeSet::new());
        }
        let (before, after) = (self.load(before)?, self.load(after)?);
        Ok(changes(&before.tree, &after.tree).into_iter().map(|change| change.path).collect())
    }
}
