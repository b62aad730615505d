//! Makes a workspace what a snapshot says, wholly or not at all.
//!
//! 1. A *safety snapshot* of everything that could be overwritten.
//! 2. Checks: nothing that is not in it would be lost, every folder can be written to, there is room.
//! 3. The *journal*: from which snapshot to which one, on which paths. Flushed.
//! 4. The steps. They follow from the journal alone and can be repeated; a file is written beside its
//!    place and renamed into it.
//! 5. The file system is flushed, the journal is removed.
//!
//! After a crash between 3 and 5, [`Repository::recover`] repeats the steps. If a step fails, the
//! journal is turned around and the steps back to the safety snapshot are taken.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path as FsPath, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::tree::{Node, ObjectId, Path, Selection, Step, changes, plan};
use super::{Error, Repository, Snapshot};

const JOURNAL: &str = "restore.journal";
const TEMPORARY: &str = ".piton-restore.tmp";
/// Kept free beside what a restore needs.
const DISK_RESERVE_BYTES: u64 = 16 * 1024 * 1024;

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
        let target = self.load(target)?;
        let (safety, now) = self.take_safety(workspace, &target)?;
        Ok((safety, steps(&now, &target, selection)))
    }

    /// `is_foreign` says of a path whether it changed otherwise than by the session's turns.
    pub fn restore(
        &mut self,
        workspace: &FsPath,
        target_id: ObjectId,
        selection: &Selection,
        force: Force,
        is_foreign: impl Fn(&[u8], &Snapshot) -> bool,
    ) -> Result<Restored, Error> {
        let target = self.load(target_id)?;
        let (safety_id, now) = self.take_safety(workspace, &target)?;
        let steps = steps(&now, &target, selection);
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
        };
        self.write_journal(&journal)?;
        self.finish(workspace, &journal, restored, &steps)
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

    /// Finishes a restore that was cut off. `None`: there was none.
    pub fn recover(&mut self, workspace: &FsPath) -> Result<Option<Restored>, Error> {
        let Some((journal, safety, target)) = self.open_journal()? else { return Ok(None) };
        // What was changed since the crash is kept in a snapshot of its own.
        let snapshot = self.load(target)?;
        let (found, _) = self.take_safety(workspace, &snapshot)?;
        let (paths, rolled_back) = (Vec::new(), journal.back);
        let mut restored = Restored { safety, target, paths, rolled_back, found: Some(found) };
        let steps = self.journal_steps(&journal, &restored)?;
        restored.paths = steps.iter().map(|step| step.path().to_vec()).collect();
        self.finish(workspace, &journal, restored, &steps).map(Some)
    }

    fn finish(
        &mut self,
        workspace: &FsPath,
        journal: &Journal,
        restored: Restored,
        steps: &[Step],
    ) -> Result<Restored, Error> {
        let root = open_root(workspace)?;
        if let Err((path, source)) = self.apply(&root, steps) {
            if journal.back {
                return Err(Error::Incomplete { path, source });
            }
            let back = Journal { back: true, ..journal.clone() };
            self.write_journal(&back)?;
            let steps = self.journal_steps(&back, &restored)?;
            self.apply(&root, &steps)
                .map_err(|(path, source)| Error::Incomplete { path, source })?;
            self.end_journal(&root)?;
            return Err(Error::NotWritable { path, source });
        }
        self.end_journal(&root)?;
        Ok(restored)
    }

    fn journal_steps(&self, journal: &Journal, ids: &Restored) -> Result<Vec<Step>, Error> {
        let paths: Result<Vec<Path>, _> = journal.paths.iter().map(hex::decode).collect();
        let invalid = |_| Error::io(&self.journal_path(), io::ErrorKind::InvalidData.into());
        let selection = Selection { paths: paths.map_err(invalid)? };
        let (safety, target) = (self.load(ids.safety)?, self.load(ids.target)?);
        let forward = steps(&safety, &target, &selection);
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

    fn end_journal(&self, root: &OwnedFd) -> Result<(), Error> {
        let path = self.journal_path();
        let end = || -> io::Result<()> {
            sync_file_system(root)?;
            fs::remove_file(&path)?;
            File::open(&self.folder)?.sync_all()
        };
        end().map_err(|source| Error::io(&path, source))
    }

    fn apply(&self, root: &OwnedFd, steps: &[Step]) -> Result<(), (PathBuf, io::Error)> {
        for step in steps {
            let result = match step {
                Step::Remove { path } => remove(root, path),
                Step::Write { path, node } => self.write(root, path, node),
            };
            result.map_err(|source| (PathBuf::from(OsStr::from_bytes(step.path())), source))?;
        }
        Ok(())
    }

    fn write(&self, root: &OwnedFd, path: &[u8], node: &Node) -> io::Result<()> {
        let (folder, name) = folder_of(root, path, Missing::Make)?;
        // What an earlier try left.
        match rustix::fs::unlinkat(&folder, TEMPORARY, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        match node {
            Node::Link { target } => {
                rustix::fs::symlinkat(OsStr::from_bytes(target), &folder, TEMPORARY)?;
            }
            Node::File { id, executable, .. } => {
                let contents = self.read(*id).map_err(io::Error::other)?;
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                let before = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).ok();
                let before = before.filter(|s| FileType::from_raw_mode(s.st_mode).is_file());
                let opened = rustix::fs::openat(
                    &folder,
                    TEMPORARY,
                    flags | OFlags::CLOEXEC,
                    Mode::from_raw_mode(if *executable { 0o777 } else { 0o666 }),
                )?;
                let mut file = File::from(opened);
                file.write_all(&contents)?;
                if let Some(before) = before {
                    let bits = before.st_mode & 0o777;
                    // Grants execution to every class that may read the file, as git does.
                    let run = if *executable { (bits & 0o444) >> 2 } else { 0 };
                    rustix::fs::fchmod(&file, Mode::from_raw_mode((bits & !0o111) | run))?;
                }
            }
        }
        match rustix::fs::renameat(&folder, TEMPORARY, &folder, name) {
            // Empty folders are in no snapshot, so nothing is lost with one.
            Err(Errno::ISDIR | Errno::EXIST | Errno::NOTEMPTY) => {
                remove_empty(&folder, name)?;
                Ok(rustix::fs::renameat(&folder, TEMPORARY, &folder, name)?)
            }
            renamed => Ok(renamed?),
        }
    }
}

/// The steps from the safety snapshot to the target; what the target could not hold is left alone.
fn steps(now: &Snapshot, target: &Snapshot, selection: &Selection) -> Vec<Step> {
    let skipped: BTreeSet<&[u8]> = target.skipped.iter().map(|skip| &*skip.path).collect();
    let keep = |step: &Step| match step {
        Step::Remove { path } => !is_in_or_below(path, &skipped),
        Step::Write { .. } => true,
    };
    plan(&now.tree, &target.tree, selection).into_iter().filter(keep).collect()
}

fn is_in_or_below(path: &[u8], set: &BTreeSet<&[u8]>) -> bool {
    let mut ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    set.contains(path) || ends.any(|end| set.contains(&path[..end]))
}

fn open_root(workspace: &FsPath) -> Result<OwnedFd, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(workspace, flags, Mode::empty())
        .map_err(|errno| Error::io(workspace, errno.into()))
}

/// Everything that can be known to fail is found before the first change.
fn check(root: &OwnedFd, workspace: &FsPath, now: &Snapshot, steps: &[Step]) -> Result<(), Error> {
    let removed: BTreeSet<&[u8]> =
        steps.iter().filter(|step| matches!(step, Step::Remove { .. })).map(Step::path).collect();
    let (mut needed, mut unsaved) = (0, Vec::new());
    for step in steps {
        let relative = PathBuf::from(OsStr::from_bytes(step.path()));
        let full = workspace.join(&relative);
        if let Step::Write { path, node } = step {
            if let Node::File { bytes, .. } = node {
                needed += bytes;
            }
            match kind_at(root, path) {
                Some(FileType::Directory) => {
                    unsaved.extend(unsaved_below(&full, path, &removed));
                }
                // There, and not in the safety snapshot: too large, a socket, unreadable.
                Some(_) if !now.tree.nodes.contains_key(path) => unsaved.push(path.clone()),
                _ => {}
            }
        }
        writable(root, step.path())
            .map_err(|source| Error::NotWritable { path: relative, source })?;
    }
    if !unsaved.is_empty() {
        return Err(Error::NotSaved { paths: unsaved });
    }
    let disk = rustix::fs::fstatvfs(root).map_err(|errno| Error::io(workspace, errno.into()))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free < needed.saturating_add(DISK_RESERVE_BYTES) {
        return Err(Error::DiskFull { needed: needed.saturating_add(DISK_RESERVE_BYTES), free });
    }
    Ok(())
}

/// What lies at a path that leads through no link.
fn kind_at(root: &OwnedFd, path: &[u8]) -> Option<FileType> {
    let (folder, name) = folder_of(root, path, Missing::Report).ok()?;
    let stat = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileType::from_raw_mode(stat.st_mode))
}

/// What lies below a folder that must become a file, and is not removed by the plan.
fn unsaved_below(folder: &FsPath, path: &[u8], removed: &BTreeSet<&[u8]>) -> Vec<Path> {
    let mut left = Vec::new();
    let mut folders = vec![(folder.to_owned(), path.to_vec())];
    while let Some((folder, path)) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { return vec![path] };
        for entry in entries.flatten() {
            let mut below = path.clone();
            below.push(b'/');
            below.extend_from_slice(entry.file_name().as_bytes());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push((entry.path(), below));
            } else if !removed.contains(&*below) {
                left.push(below);
            }
        }
    }
    left
}

/// The nearest folder that exists can be written to.
fn writable(root: &OwnedFd, path: &[u8]) -> io::Result<()> {
    let mut folder = FsPath::new(OsStr::from_bytes(path)).parent();
    loop {
        let at = folder.filter(|at| !at.as_os_str().is_empty());
        let Some(at) = at else {
            return Ok(rustix::fs::accessat(
                root,
                ".",
                rustix::fs::Access::WRITE_OK,
                AtFlags::empty(),
            )?);
        };
        match rustix::fs::accessat(root, at, rustix::fs::Access::WRITE_OK, AtFlags::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR) => folder = at.parent(),
            result => return Ok(result?),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Make,
    Report,
}

/// The folder of a path, through no link, and the name in it.
fn folder_of<'a>(
    root: &OwnedFd,
    path: &'a [u8],
    missing: Missing,
) -> io::Result<(OwnedFd, &'a OsStr)> {
    let path = FsPath::new(OsStr::from_bytes(path));
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = rustix::fs::openat(root, ".", flags, Mode::empty())?;
    for part in path.parent().into_iter().flat_map(FsPath::components) {
        let part = part.as_os_str();
        at = match rustix::fs::openat(&at, part, flags, Mode::empty()) {
            Err(Errno::NOENT) if missing == Missing::Make => {
                rustix::fs::mkdirat(&at, part, Mode::from_raw_mode(0o777))?;
                rustix::fs::openat(&at, part, flags, Mode::empty())?
            }
            opened => opened?,
        };
    }
    Ok((at, name))
}

/// Removes a folder in which there are only empty folders; any file in it is an error.
fn remove_empty(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    for entry in rustix::fs::Dir::read_from(&folder)? {
        let entry = entry?;
        let below = entry.file_name().to_bytes();
        if below != b"." && below != b".." {
            remove_empty(&folder, OsStr::from_bytes(below))?;
        }
    }
    Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

/// Removes a file or a link, and the folders that it leaves empty.
fn remove(root: &OwnedFd, path: &[u8]) -> io::Result<()> {
    let (folder, name) = match folder_of(root, path, Missing::Report) {
        // Gone already, or a file lies where its folder was: nothing to remove.
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Ok(());
        }
        found => found?,
    };
    match rustix::fs::unlinkat(&folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        // A folder took its place since: not ours.
        Err(Errno::ISDIR) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    }
    let mut above = FsPath::new(OsStr::from_bytes(path)).parent();
    while let Some(folder) = above.filter(|folder| !folder.as_os_str().is_empty()) {
        let (parent, name) = folder_of(root, folder.as_os_str().as_bytes(), Missing::Report)?;
        match rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR) {
            Ok(()) => above = folder.parent(),
            Err(_) => break,
        }
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn sync_file_system(root: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::syncfs(root)?)
}

#[cfg(not(target_os = "linux"))]
fn sync_file_system(_root: impl AsFd) -> io::Result<()> {
    rustix::fs::sync();
    Ok(())
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
