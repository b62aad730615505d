//! Snapshots of a workspace: the whole tree, with untracked files and without ignored ones, in a
//! repository of Piton's own in the data folder. The user's git is never written to, and git need
//! not even be installed.
//!
//! - [`Repository::take`] reads the workspace; what did not change since the last snapshot is not
//!   read again.
//! - [`Repository::restore`] makes the workspace what a snapshot says: with a safety snapshot first,
//!   and a journal, so that a crash at any step is finished by [`Repository::recover`].
//! - [`tree`] has the values and the rules; they do no I/O.
//!
//! Contents are kept byte for byte: no filters, no line endings, no masking, since a restore must be
//! exact. They are encrypted where the store is. Nested repositories and submodules are left alone
//! and named.

mod apply;
mod codec;
mod ignored;
mod objects;
mod restore;
mod scan;
mod tracked;
pub mod tree;

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path as FsPath, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use codec::{Malformed, Reader, Writer};
use objects::Objects;
pub use objects::SnapshotKey;
pub use restore::{Force, Restored};
use scan::{Cache, Scan};
use tree::{FolderEntry, ObjectId, Path, Tree, decode_folder};

const SNAPSHOT_VERSION: u8 = 1;
/// How long another owner is waited for.
const LOCK_TIME_MAX: Duration = Duration::from_secs(1);
/// How long another session's restore of the same workspace is waited for.
const WORKSPACE_LOCK_TIME_MAX: Duration = Duration::from_mins(1);
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(5);

/// Why a snapshot or a restore did not happen. The workspace is as it was unless a variant says
/// otherwise.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("Cannot use {path:?}")]
    Io { path: PathBuf, source: io::Error },
    #[error("The workspace has more than {files_max} files or {tree_bytes_max} bytes")]
    TooManyFiles { files_max: usize, tree_bytes_max: u64 },
    #[error("The snapshot's object {id} is not there")]
    ObjectMissing { id: ObjectId },
    #[error("The snapshot's object {id} is damaged")]
    ObjectDamaged { id: ObjectId },
    #[error("Another process uses the snapshots of this session")]
    InUse,
    #[error("Another session restores files of this workspace, or looks at them")]
    WorkspaceInUse,
    /// The log has to say what became of it first.
    #[error("A restore of this session's files has not ended")]
    RestoreOpen,
    #[error("{} files changed that this session did not change", paths.len())]
    ForeignChanges { paths: Vec<Path> },
    #[error("{} files cannot be saved first, and would be lost", paths.len())]
    NotSaved { paths: Vec<Path> },
    #[error("Cannot write {path:?}: the workspace is as it was")]
    NotWritable { path: PathBuf, source: io::Error },
    #[error("{needed} bytes are needed, and {free} are free")]
    DiskFull { needed: u64, free: u64 },
    /// Neither the target nor the state before it could be reached; the journal stays.
    #[error("The restore stopped at {path:?}; it continues when that can be written")]
    Incomplete { path: PathBuf, source: io::Error },
    #[error("The system gives no random numbers")]
    NoRandomness,
}

impl Error {
    pub(crate) fn io(path: &FsPath, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }
}

/// How much a snapshot may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A larger file is left out and named.
    pub file_bytes_max: u64,
    pub files_max: usize,
    pub tree_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_bytes_max: 64 * 1024 * 1024,
            files_max: 500_000,
            tree_bytes_max: 8 * 1024 * 1024 * 1024,
        }
    }
}

/// Why something is not in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    TooLarge,
    NestedRepository,
    /// A socket, a pipe, a device.
    NotAFile,
    Unreadable,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    pub path: Path,
    pub reason: SkipReason,
}

/// A snapshot that can be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub tree: Tree,
    pub skipped: Vec<Skipped>,
}

/// A snapshot that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedSnapshot {
    pub id: ObjectId,
    /// The workspace is as the last snapshot has it.
    pub unchanged: bool,
    pub files: usize,
    pub skipped: Vec<Skipped>,
}

/// The snapshots of one session. All calls block; one process at a time writes.
#[derive(Debug)]
pub struct Repository {
    folder: PathBuf,
    objects: Objects,
    limits: Limits,
    key: Option<SnapshotKey>,
    /// What the last snapshot read, while the repository is open.
    cache: Option<Cache>,
    /// The cache's file is older than the cache.
    is_cache_unsaved: bool,
    /// Held as long as the repository is open.
    _lock: File,
}

impl Repository {
    pub fn open(folder: &FsPath, key: Option<SnapshotKey>, limits: Limits) -> Result<Self, Error> {
        let is_new = !folder.exists();
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        let made = made.and_then(|()| match folder.parent().filter(|_| is_new) {
            Some(above) => File::open(above)?.sync_all(),
            None => Ok(()),
        });
        made.map_err(|source| Error::io(folder, source))?;
        let lock = lock(&folder.join("lock"), Share::Alone, LOCK_TIME_MAX)?;
        let mut objects = Objects::open(folder, key.clone())?;
        objects.repair()?;
        Ok(Self {
            folder: folder.to_owned(),
            objects,
            limits,
            key,
            cache: None,
            is_cache_unsaved: false,
            _lock: lock,
        })
    }

    pub fn folder(&self) -> &FsPath {
        &self.folder
    }

    fn cache_path(&self) -> PathBuf {
        self.folder.join("stats")
    }

    /// Held while files of a workspace are restored, alone, or while they are looked at. Sessions may
    /// share a workspace; none sees what another one has restored by half.
    fn lock_workspace(&self, workspace: &FsPath, share: Share) -> Result<File, Error> {
        let path = workspace.canonicalize().map_err(|error| Error::io(workspace, error))?;
        let folder = self.folder.parent().unwrap_or(&self.folder).join("locks");
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(|source| Error::io(&folder, source))?;
        let name = blake3::hash(path.as_os_str().as_bytes()).to_hex();
        let locked = lock(&folder.join(name.as_str()), share, WORKSPACE_LOCK_TIME_MAX);
        locked.map_err(|error| match error {
            Error::InUse => Error::WorkspaceInUse,
            error => error,
        })
    }

    /// Takes a snapshot, which is on the disk when this returns. `also` are paths that are taken though
    /// ignore rules leave them out, beside the files that git tracks.
    pub fn take(
        &mut self,
        workspace: &FsPath,
        also: &BTreeSet<Path>,
    ) -> Result<SavedSnapshot, Error> {
        let _shared = self.lock_workspace(workspace, Share::WithOthers)?;
        self.take_with_tree(workspace, also).map(|(taken, _)| taken)
    }

    /// Takes a snapshot that a power failure may still take away: until [`Self::flush`] has returned,
    /// nothing may depend on it that cannot do without it. It survives the end of the process.
    pub fn take_unflushed(
        &mut self,
        workspace: &FsPath,
        also: &BTreeSet<Path>,
    ) -> Result<SavedSnapshot, Error> {
        let _shared = self.lock_workspace(workspace, Share::WithOthers)?;
        self.take_in_memory(workspace, also).map(|(taken, _)| taken)
    }

    /// Whether [`Self::flush`] has something to write through to the disk.
    pub fn has_unflushed(&self) -> bool {
        self.objects.has_unflushed()
    }

    /// All snapshots that were taken are on the disk when this returns. Those that it could not flush
    /// are gone.
    pub fn flush(&mut self) -> Result<(), Error> {
        if let Err(error) = self.objects.flush() {
            (self.cache, self.is_cache_unsaved) = (None, false);
            return Err(error);
        }
        self.save_cache();
        Ok(())
    }

    fn take_with_tree(
        &mut self,
        workspace: &FsPath,
        also: &BTreeSet<Path>,
    ) -> Result<(SavedSnapshot, Tree), Error> {
        let taken = self.take_in_memory(workspace, also)?;
        self.flush()?;
        Ok(taken)
    }

    fn take_in_memory(
        &mut self,
        workspace: &FsPath,
        also: &BTreeSet<Path>,
    ) -> Result<(SavedSnapshot, Tree), Error> {
        let cache = self.cache.take();
        let mut cache = cache.unwrap_or_else(|| Cache::load(&self.cache_path()));
        let last = cache.last;
        let tracked = tracked::tracked(workspace);
        let scan = Scan::new(workspace, self.limits, &mut self.objects, &mut cache);
        let found = scan.run([&*tracked, also])?;
        let files = found.tree.nodes.len();
        let is_last = |id: &ObjectId| found.unchanged && self.objects.contains(*id);
        let id = if let Some(id) = last.filter(is_last) {
            self.is_cache_unsaved |= found.was_read;
            id
        } else {
            let root = scan::store_tree(&found.tree, &mut self.objects)?;
            self.is_cache_unsaved = true;
            self.objects.put(&encode_snapshot(root, &found.skipped))?
        };
        cache.last = Some(id);
        self.cache = Some(cache);
        let unchanged = last == Some(id);
        Ok((SavedSnapshot { id, unchanged, files, skipped: found.skipped }, found.tree))
    }

    /// Only after what the cache speaks of is on the disk.
    fn save_cache(&mut self) {
        let Some(cache) = self.cache.as_ref().filter(|_| self.is_cache_unsaved) else { return };
        if let Err(error) = cache.save(&self.cache_path()) {
            tracing::debug!(%error, "The next snapshot reads every file");
        }
        self.is_cache_unsaved = false;
    }

    pub fn load(&self, id: ObjectId) -> Result<Snapshot, Error> {
        let damaged = |Malformed| Error::ObjectDamaged { id };
        let (root, skipped) = decode_snapshot(&self.objects.get(id)?).map_err(damaged)?;
        let mut tree = Tree::default();
        self.load_folder(root, &[], &mut tree)?;
        Ok(Snapshot { tree, skipped })
    }

    fn load_folder(&self, id: ObjectId, at: &[u8], tree: &mut Tree) -> Result<(), Error> {
        let entries = decode_folder(&self.objects.get(id)?);
        for (name, entry) in entries.map_err(|Malformed| Error::ObjectDamaged { id })? {
            let mut path = at.to_vec();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            match entry {
                FolderEntry::Node(node) => drop(tree.nodes.insert(path, node)),
                FolderEntry::Folder(id) => self.load_folder(id, &path, tree)?,
            }
        }
        Ok(())
    }

    pub fn read(&self, id: ObjectId) -> Result<Vec<u8>, Error> {
        self.objects.get(id)
    }

    /// Removes what no kept snapshot needs. Returns how many bytes that freed. Of a snapshot that is not
    /// whole any more, what is there is kept.
    pub fn prune(&mut self, keep: &[ObjectId]) -> Result<u64, Error> {
        let mut reachable = HashSet::new();
        for id in keep {
            match self.mark(*id, &mut reachable) {
                Err(Error::ObjectMissing { .. } | Error::ObjectDamaged { .. }) => {}
                marked => marked?,
            }
        }
        // A restore that was cut off is finished with these.
        for id in self.journal_snapshots()? {
            self.mark(id, &mut reachable)?;
        }
        let garbage: u64 = self
            .objects
            .ids()
            .filter(|(id, _)| !reachable.contains(id))
            .map(|(_, bytes)| bytes)
            .sum();
        if garbage == 0 {
            return Ok(0);
        }
        let (pack, next) = (self.folder.join("pack"), self.folder.join("next"));
        // What a crash left of an earlier try.
        match fs::remove_dir_all(&next) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io(&next, error));
            }
            _ => {}
        }
        DirBuilder::new().mode(0o700).create(&next).map_err(|error| Error::io(&next, error))?;
        let mut compacted = Objects::open(&next, self.key.clone())?;
        for id in &reachable {
            compacted.copy(*id, &self.objects)?;
        }
        compacted.flush()?;
        // The index first: one that does not fit the pack is made again.
        let replaced = fs::remove_file(self.folder.join("pack.index"))
            .or_else(
                |error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) },
            )
            .and_then(|()| fs::rename(next.join("pack"), &pack))
            .and_then(|()| File::open(&self.folder)?.sync_all());
        replaced.map_err(|error| Error::io(&pack, error))?;
        if let Err(error) = fs::rename(next.join("pack.index"), self.folder.join("pack.index")) {
            tracing::debug!(%error, "The next opening reads the whole pack");
        }
        fs::remove_dir_all(&next).map_err(|error| Error::io(&next, error))?;
        self.objects = Objects::open(&self.folder, self.key.clone())?;
        Ok(garbage)
    }

    /// Adds what a snapshot consists of. What is missing is not added, and is an error.
    fn mark(&self, id: ObjectId, reachable: &mut HashSet<ObjectId>) -> Result<(), Error> {
        if reachable.contains(&id) {
            return Ok(());
        }
        let malformed = |Malformed| Error::ObjectDamaged { id };
        let (root, _) = decode_snapshot(&self.objects.get(id)?).map_err(malformed)?;
        reachable.insert(id);
        let mut folders = vec![root];
        while let Some(id) = folders.pop() {
            if reachable.contains(&id) {
                continue;
            }
            let entries = decode_folder(&self.objects.get(id)?);
            reachable.insert(id);
            for (_, entry) in entries.map_err(|Malformed| Error::ObjectDamaged { id })? {
                match entry {
                    FolderEntry::Folder(id) => folders.push(id),
                    FolderEntry::Node(tree::Node::File { id, .. }) if self.contains(id) => {
                        reachable.insert(id);
                    }
                    FolderEntry::Node(tree::Node::File { id, .. }) => {
                        return Err(Error::ObjectMissing { id });
                    }
                    FolderEntry::Node(tree::Node::Link { .. }) => {}
                }
            }
        }
        Ok(())
    }

    /// Whether everything that a snapshot consists of is there.
    pub fn is_whole(&self, id: ObjectId) -> bool {
        self.mark(id, &mut HashSet::new()).is_ok()
    }

    pub fn contains(&self, id: ObjectId) -> bool {
        self.objects.contains(id)
    }

    /// How large it is on the disk.
    pub fn bytes(&self) -> u64 {
        self.objects.bytes()
    }
}

/// Whether a lock is held alone, or with others that hold it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    Alone,
    WithOthers,
}

fn lock(path: &FsPath, share: Share, time_max: Duration) -> Result<File, Error> {
    use rustix::fs::FlockOperation::{NonBlockingLockExclusive, NonBlockingLockShared};
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = file.map_err(|source| Error::io(path, source))?;
    let operation = match share {
        Share::Alone => NonBlockingLockExclusive,
        Share::WithOthers => NonBlockingLockShared,
    };
    let begin = Instant::now();
    loop {
        match rustix::fs::flock(&file, operation) {
            Ok(()) => return Ok(file),
            // A child of the last owner may hold it for the moment between its fork and its exec.
            Err(rustix::io::Errno::WOULDBLOCK) if begin.elapsed() < time_max => {
                std::thread::sleep(LOCK_RETRY_DELAY);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::InUse),
            Err(errno) => return Err(Error::io(path, errno.into())),
        }
    }
}

fn encode_snapshot(root: ObjectId, skipped: &[Skipped]) -> Vec<u8> {
    let mut out = Writer::default();
    out.byte(SNAPSHOT_VERSION);
    out.raw(&root.0);
    for Skipped { path, reason } in skipped {
        out.byte(match reason {
            SkipReason::TooLarge => 1,
            SkipReason::NestedRepository => 2,
            SkipReason::NotAFile => 3,
            SkipReason::Unreadable => 4,
        });
        out.bytes(path);
    }
    out.into_bytes()
}

fn decode_snapshot(bytes: &[u8]) -> Result<(ObjectId, Vec<Skipped>), Malformed> {
    let mut input = Reader::new(bytes);
    if input.byte()? != SNAPSHOT_VERSION {
        return Err(Malformed);
    }
    let root = ObjectId(input.array()?);
    let mut skipped = Vec::new();
    while !input.is_empty() {
        let reason = match input.byte()? {
            1 => SkipReason::TooLarge,
            2 => SkipReason::NestedRepository,
            3 => SkipReason::NotAFile,
            4 => SkipReason::Unreadable,
            _ => return Err(Malformed),
        };
        skipped.push(Skipped { path: input.bytes()?.to_vec(), reason });
    }
    Ok((root, skipped))
}
