//! A disk in memory that does what real ones do on bad days: what was not flushed is lost, torn or
//! kept when the power fails, and so are names that were not flushed; a process dies between any two
//! calls, or within a write; there is no space; a flush fails.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use piton_core::file_permissions::Exposure;

use super::disk::{Disk, DiskFile, Entry};

/// What of an unflushed write reaches the disk is decided in pieces of this size.
const SECTOR_BYTES: usize = 512;

/// Decides what happens: a number below the given one.
pub type Crash<'a> = &'a mut dyn FnMut(usize) -> usize;

/// A modelled disk; clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct ModelDisk {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    files: Vec<Content>,
    names: BTreeMap<PathBuf, usize>,
    folders: BTreeSet<PathBuf>,
    /// What a power failure leaves of the names.
    flushed_names: BTreeMap<PathBuf, usize>,
    /// Changes of names since the last flush of their folder, in order.
    changes: BTreeMap<PathBuf, Vec<Change>>,
    /// Changing calls until the process dies.
    fuse: Option<u64>,
    dead: bool,
    /// Bytes that can still be written.
    space: Option<u64>,
    flush_fails: bool,
    /// Files that cannot be opened.
    refused: BTreeSet<PathBuf>,
    /// Nothing more can be opened.
    no_handles: bool,
    /// Folders that are kept open.
    held: BTreeSet<PathBuf>,
    /// Changing calls so far.
    calls: u64,
}

#[derive(Clone, Debug, Default)]
struct Content {
    now: Vec<u8>,
    flushed: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Change {
    Named(PathBuf, usize),
    Removed(PathBuf),
    Renamed(PathBuf, PathBuf, usize),
}

#[derive(Debug)]
struct ModelFile {
    inner: Arc<Mutex<Inner>>,
    file: usize,
}

fn dead() -> io::Error {
    io::Error::other("the process is dead")
}

fn apply(names: &mut BTreeMap<PathBuf, usize>, change: Change) {
    match change {
        Change::Named(path, file) => {
            names.insert(path, file);
        }
        Change::Removed(path) => {
            names.remove(&path);
        }
        Change::Renamed(from, to, file) => {
            names.remove(&from);
            names.insert(to, file);
        }
    }
}

impl Content {
    /// What the power failure leaves.
    fn lose(&mut self, dice: Crash<'_>) {
        if self.now == self.flushed {
            return;
        }
        let old = self.flushed.len();
        let grown = self.now.len() > old && self.now.starts_with(&self.flushed);
        let kinds = if grown { 5 } else { 2 };
        match dice(kinds) {
            0 => self.now.clone_from(&self.flushed),
            // It was written just in time.
            1 => {}
            2 => self.now.truncate(old + dice(self.now.len() - old + 1)),
            // The size was written, the content was not.
            3 => self.now[old..].fill(0),
            _ => {
                let sectors = (self.now.len() - old).div_ceil(SECTOR_BYTES);
                let lost = old + dice(sectors) * SECTOR_BYTES;
                let end = (lost + SECTOR_BYTES).min(self.now.len());
                self.now[lost..end].fill(0);
            }
        }
        self.flushed.clone_from(&self.now);
    }
}

impl Inner {
    /// One call that changes something. The last one before the process dies may be half done.
    fn call(&mut self) -> io::Result<()> {
        if self.dead {
            return Err(dead());
        }
        self.calls += 1;
        match &mut self.fuse {
            Some(0) => {
                self.dead = true;
                Err(dead())
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn change(&mut self, change: Change) {
        let path = match &change {
            Change::Named(path, _) | Change::Removed(path) | Change::Renamed(_, path, _) => path,
        };
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        self.changes.entry(folder).or_default().push(change.clone());
        apply(&mut self.names, change);
    }

    /// Whether one more file can be open.
    fn handle(&self) -> io::Result<()> {
        /// `EMFILE`.
        const TOO_MANY: i32 = 24;
        if self.no_handles { Err(io::Error::from_raw_os_error(TOO_MANY)) } else { Ok(()) }
    }

    fn make(&mut self, path: &Path) -> usize {
        self.files.push(Content::default());
        let file = self.files.len() - 1;
        self.change(Change::Named(path.to_owned(), file));
        file
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl ModelDisk {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process that uses the disk dies after so many changing calls. What it wrote stays.
    pub fn die_after(&self, calls: Option<u64>) {
        let mut inner = self.inner();
        inner.fuse = calls;
        inner.dead = false;
    }

    /// Whether the process died.
    pub fn is_dead(&self) -> bool {
        self.inner().dead
    }

    /// How many calls changed something so far.
    pub fn calls(&self) -> u64 {
        self.inner().calls
    }

    /// From now on so many bytes can be written; `None`: as many as wanted.
    pub fn set_space(&self, bytes: Option<u64>) {
        self.inner().space = bytes;
    }

    pub fn set_flush_fails(&self, fails: bool) {
        self.inner().flush_fails = fails;
    }

    /// A file cannot be opened any more.
    pub fn refuse(&self, path: &Path) {
        self.inner().refused.insert(path.to_owned());
    }

    /// Whether nothing more can be opened.
    pub fn set_no_handles(&self, none: bool) {
        self.inner().no_handles = none;
    }

    /// The power fails: what was not flushed is lost, torn or kept, as the dice say. Names come in
    /// the order in which they were changed, as far as the dice say.
    pub fn power_loss(&self, dice: Crash<'_>) {
        let mut inner = self.inner();
        let inner = &mut *inner;
        for changes in std::mem::take(&mut inner.changes).into_values() {
            let kept = dice(changes.len() + 1);
            for change in changes.into_iter().take(kept) {
                apply(&mut inner.flushed_names, change);
            }
        }
        inner.names = inner.flushed_names.clone();
        for file in &mut inner.files {
            file.lose(dice);
        }
        (inner.fuse, inner.dead) = (None, false);
    }

    /// An independent copy of the disk.
    pub fn copied(&self) -> Self {
        let inner = self.inner();
        let copy = Inner {
            files: inner.files.clone(),
            names: inner.names.clone(),
            folders: inner.folders.clone(),
            flushed_names: inner.flushed_names.clone(),
            changes: inner.changes.clone(),
            ..Inner::default()
        };
        Self { inner: Arc::new(Mutex::new(copy)) }
    }

    /// The names of all files.
    pub fn names(&self) -> Vec<PathBuf> {
        self.inner().names.keys().cloned().collect()
    }

    /// A file's bytes; `None` if it is not there.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let inner = self.inner();
        inner.names.get(path).map(|file| inner.files[*file].now.clone())
    }

    /// Replaces a file behind the store's back, durably.
    pub fn put(&self, path: &Path, bytes: &[u8]) {
        let mut inner = self.inner();
        inner.files.push(Content { now: bytes.to_vec(), flushed: bytes.to_vec() });
        let file = inner.files.len() - 1;
        inner.names.insert(path.to_owned(), file);
        inner.flushed_names.insert(path.to_owned(), file);
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        inner.folders.insert(folder);
    }

    /// Removes a file behind the store's back, durably.
    pub fn take(&self, path: &Path) {
        let mut inner = self.inner();
        inner.names.remove(path);
        inner.flushed_names.remove(path);
    }
}

impl Disk for ModelDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let inner = self.inner();
        inner.handle()?;
        let file = inner.find(path)?;
        if inner.refused.contains(path) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(Arc::new(ModelFile { inner: self.inner.clone(), file }))
    }

    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut inner = self.inner();
        inner.handle()?;
        inner.call()?;
        if inner.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = inner.make(path);
        Ok(Arc::new(ModelFile { inner: self.inner.clone(), file }))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut inner = self.inner();
        inner.handle()?;
        inner.call()?;
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        if !inner.folders.contains(&folder) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let file = if let Some(file) = inner.names.get(path).copied() {
            inner.files[file].now.clear();
            file
        } else {
            inner.make(path)
        };
        Ok(Arc::new(ModelFile { inner: self.inner.clone(), file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut inner = self.inner();
        inner.call()?;
        let file = inner.find(from)?;
        inner.change(Change::Renamed(from.to_owned(), to.to_owned(), file));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.inner();
        inner.call()?;
        inner.find(path)?;
        inner.change(Change::Removed(path.to_owned()));
        Ok(())
    }

    /// Folders are durable at once: only files are modelled.
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.inner();
        inner.call()?;
        inner.folders.insert(path.to_owned());
        if let Some(parent) = path.parent() {
            inner.folders.insert(parent.to_owned());
        }
        Ok(())
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.inner();
        inner.call()?;
        if !inner.held.contains(path) {
            inner.handle()?;
        }
        if inner.flush_fails {
            return Err(io::Error::other("the flush fails"));
        }
        for change in inner.changes.remove(path).unwrap_or_default() {
            apply(&mut inner.flushed_names, change);
        }
        Ok(())
    }

    fn hold_folder(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.inner();
        inner.handle()?;
        inner.held.insert(path.to_owned());
        Ok(())
    }

    fn release_folder(&self, path: &Path) {
        self.inner().held.remove(path);
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>> {
        let inner = self.inner();
        inner.handle()?;
        if !inner.folders.contains(folder) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inside = inner.names.iter().filter(|(path, _)| path.parent() == Some(folder));
        Ok(inside
            .filter_map(|(path, file)| {
                let name = path.file_name()?.to_str()?.to_owned();
                let bytes = inner.files[*file].now.len() as u64;
                Some(Entry { name, bytes, exposure: Exposure::Private })
            })
            .collect())
    }

    fn entry(&self, path: &Path) -> io::Result<Entry> {
        let inner = self.inner();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let bytes = match inner.find(path) {
            Ok(file) => inner.files[file].now.len() as u64,
            Err(_) if inner.folders.contains(path) => 0,
            Err(e) => return Err(e),
        };
        Ok(Entry { name, bytes, exposure: Exposure::Private })
    }
}

impl ModelFile {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskFile for ModelFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.inner().files[self.file].now.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let inner = self.inner();
        let bytes = &inner.files[self.file].now;
        let at = usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
        let count = buffer.len().min(bytes.len() - at);
        buffer[..count].copy_from_slice(&bytes[at..at + count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut inner = self.inner();
        let was_dead = inner.dead;
        let called = inner.call();
        // Killed within the write: a part of it was done.
        let mut part = match &called {
            Ok(()) => bytes.len(),
            Err(_) if was_dead => 0,
            Err(_) => bytes.len() / 2,
        };
        let mut full = false;
        if let Some(space) = &mut inner.space {
            let fits = usize::try_from(*space).unwrap_or(usize::MAX);
            full = fits < part;
            part = part.min(fits);
            *space -= part as u64;
        }
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let now = &mut inner.files[self.file].now;
        if now.len() < at + part {
            now.resize(at + part, 0);
        }
        now[at..at + part].copy_from_slice(&bytes[..part]);
        called?;
        if full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        let mut inner = self.inner();
        inner.call()?;
        inner.files[self.file].now.resize(usize::try_from(bytes).unwrap_or(usize::MAX), 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = self.inner();
        inner.call()?;
        if inner.flush_fails {
            return Err(io::Error::other("the flush fails"));
        }
        let file = &mut inner.files[self.file];
        file.flushed.clone_from(&file.now);
        Ok(())
    }
}
