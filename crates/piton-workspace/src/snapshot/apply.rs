//! The steps of a restore on the disk. A file is written beside its place and renamed into it, and no
//! path is followed through a link.
//!
//! Just before a step it is looked whether there is still what the step was planned for: what a user
//! or a program saved in the meantime is in no snapshot, and is not overwritten.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path as FsPath, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::objects::read_at_most;
use super::tree::{FileMode, Node, Path, Step, Tree};
use super::{Error, Repository, Snapshot};

/// Kept free beside what a restore needs.
const DISK_RESERVE_BYTES: u64 = 16 * 1024 * 1024;

/// Why a step was not taken.
#[derive(Debug)]
pub(super) enum StepError {
    /// There is something else than the step was planned for.
    Changed {
        path: Path,
    },
    Io {
        path: PathBuf,
        source: io::Error,
    },
}

/// What has to lie at a path before its step.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expected<'a> {
    /// What this tree has; anything else ends the restore.
    Is(&'a Tree),
    /// What one of them has; anything else was saved by a user or program in the meantime and stays.
    IsOneOf(&'a Tree, &'a Tree),
}

/// Where a restore writes.
#[derive(Debug)]
pub(super) struct Site<'a> {
    pub(super) root: &'a OwnedFd,
    /// The name beside a file's place; of this restore alone.
    pub(super) temporary: &'a str,
}

impl Repository {
    pub(super) fn apply(
        &self,
        site: &Site<'_>,
        steps: &[Step],
        expected: Expected<'_>,
    ) -> Result<(), StepError> {
        for step in steps {
            let path = step.path();
            let failed =
                |source| StepError::Io { path: PathBuf::from(OsStr::from_bytes(path)), source };
            let found = self.node_at(site.root, path).map_err(failed)?;
            let is_in = |tree: &Tree| match (&found, tree.nodes.get(path)) {
                (Found::Nothing, None) => true,
                (Found::Node(found), Some(node)) => found == node,
                _ => false,
            };
            match expected {
                Expected::Is(tree) if !is_in(tree) => {
                    return Err(StepError::Changed { path: path.to_vec() });
                }
                Expected::IsOneOf(one, other) if !is_in(one) && !is_in(other) => continue,
                _ => {}
            }
            match step {
                Step::Remove { path } => remove(site.root, path),
                Step::Write { path, node } => self.write(site, path, node),
            }
            .map_err(failed)?;
        }
        Ok(())
    }

    /// What lies at a path that leads through no link. Folders are in no snapshot.
    fn node_at(&self, root: &OwnedFd, path: &[u8]) -> io::Result<Found> {
        let (folder, name) = match folder_of(root, path, Missing::Report) {
            Ok(found) => found,
            Err(error) if is_not_there(&error) => return Ok(Found::Nothing),
            Err(error) => return Err(error),
        };
        let stat = match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Found::Nothing),
            stat => stat?,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Ok(Found::Nothing),
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&folder, name, Vec::new())?.into_bytes();
                Ok(Found::Node(Node::Link { target }))
            }
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let file = match rustix::fs::openat(&folder, name, flags, Mode::empty()) {
                    Err(Errno::NOENT) => return Ok(Found::Nothing),
                    opened => File::from(opened?),
                };
                let metadata = file.metadata()?;
                let mode = FileMode::of(stat.st_mode);
                let known = self.cache.as_ref().and_then(|cache| cache.known(path, &metadata));
                let (id, bytes) = match known {
                    Some(id) => (id, metadata.len()),
                    None => match read_at_most(&file, self.limits.file_bytes_max)? {
                        Some(contents) => (self.objects.id_of(&contents), contents.len() as u64),
                        None => return Ok(Found::Other),
                    },
                };
                Ok(Found::Node(Node::File { id, bytes, mode }))
            }
            _ => Ok(Found::Other),
        }
    }

    fn write(&self, site: &Site<'_>, path: &[u8], node: &Node) -> io::Result<()> {
        let (folder, name) = folder_of(site.root, path, Missing::Make)?;
        let temporary = site.temporary;
        unlink(&folder, temporary)?;
        match node {
            Node::Link { target } => {
                rustix::fs::symlinkat(OsStr::from_bytes(target), &folder, temporary)?;
            }
            Node::File { id, mode, .. } => {
                let contents = self.read(*id).map_err(io::Error::other)?;
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                let before = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).ok();
                let before = before.filter(|s| FileType::from_raw_mode(s.st_mode).is_file());
                let created = match (mode.bits, mode.executable) {
                    // Readable by its owner alone before it has its bits.
                    (Some(_), _) => 0o600,
                    (None, true) => 0o777,
                    (None, false) => 0o666,
                };
                let opened = rustix::fs::openat(
                    &folder,
                    temporary,
                    flags | OFlags::CLOEXEC,
                    Mode::from_raw_mode(created),
                )?;
                let mut file = File::from(opened);
                file.write_all(&contents)?;
                let bits = match (mode.bits, before) {
                    (Some(bits), _) => Some(u32::from(bits)),
                    (None, Some(before)) => {
                        let bits = before.st_mode & 0o777;
                        // Grants execution to every class that may read the file, as git does.
                        let run = if mode.executable { (bits & 0o444) >> 2 } else { 0 };
                        Some((bits & !0o111) | run)
                    }
                    (None, None) => None,
                };
                if let Some(bits) = bits {
                    rustix::fs::fchmod(&file, Mode::from_raw_mode(bits))?;
                }
            }
        }
        match rustix::fs::renameat(&folder, temporary, &folder, name) {
            // Empty folders are in no snapshot, so nothing is lost with one.
            Err(Errno::ISDIR | Errno::EXIST | Errno::NOTEMPTY) => {
                remove_empty(&folder, name)?;
                Ok(rustix::fs::renameat(&folder, temporary, &folder, name)?)
            }
            renamed => Ok(renamed?),
        }
    }
}

/// What lies at a path.
enum Found {
    Nothing,
    Node(Node),
    /// It is in no snapshot: too large, a socket, a device.
    Other,
}

fn is_not_there(error: &io::Error) -> bool {
    let kind = error.kind();
    matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

fn unlink(folder: &OwnedFd, name: &str) -> io::Result<()> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Removes what a crash or an error left beside the places of files.
pub(super) fn remove_litter(site: &Site<'_>, steps: &[Step]) {
    let mut folders = BTreeSet::new();
    for step in steps {
        let path = step.path();
        let end = path.iter().rposition(|byte| *byte == b'/').map_or(0, |end| end + 1);
        if !folders.insert(&path[..end]) {
            continue;
        }
        let removed = folder_of(site.root, path, Missing::Report)
            .and_then(|(folder, _)| unlink(&folder, site.temporary));
        if let Err(error) = removed
            && !is_not_there(&error)
        {
            tracing::debug!(%error, "A temporary file of a restore stays");
        }
    }
}

pub(super) fn open_root(workspace: &FsPath) -> Result<OwnedFd, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(workspace, flags, Mode::empty())
        .map_err(|errno| Error::io(workspace, errno.into()))
}

/// Everything that can be known to fail is found before the first change.
pub(super) fn check(
    root: &OwnedFd,
    workspace: &FsPath,
    now: &Snapshot,
    steps: &[Step],
) -> Result<(), Error> {
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
pub(super) fn sync_file_system(root: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::syncfs(root)?)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn sync_file_system(_root: impl AsFd) -> io::Result<()> {
    rustix::fs::sync();
    Ok(())
}
