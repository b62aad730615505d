//! What the store asks of a file system, as a trait: a modelled disk can lose, tear and refuse what
//! a real one does only on a bad day.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use piton_core::file_permissions::Exposure;

/// The files of one data folder. Paths lie in it.
pub trait Disk: Send + Sync + fmt::Debug + 'static {
    /// A file that is there.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// An empty file, whether or not there was one; readable by its owner only.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// An empty file under a name that nothing has; readable by its owner only.
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Replaces what has the new name. Durable after [`Disk::sync_folder`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove(&self, path: &Path) -> io::Result<()>;

    fn make_folder(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable. Of a folder that is held, only the flush can fail.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;

    /// Keeps a folder open, for its flushes.
    fn hold_folder(&self, path: &Path) -> io::Result<()>;

    fn release_folder(&self, path: &Path);

    /// The plain files in a folder, in the order of their names; and links, as exposed ones.
    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>>;

    /// What is known about one file.
    fn entry(&self, path: &Path) -> io::Result<Entry>;
}

/// An open file.
pub trait DiskFile: Send + Sync + fmt::Debug {
    fn bytes(&self) -> io::Result<u64>;

    /// Reads as much as there is, up to the buffer's length.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    fn truncate(&self, bytes: u64) -> io::Result<()>;

    /// Makes the file's content durable, not its name.
    fn sync(&self) -> io::Result<()>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub bytes: u64,
    pub exposure: Exposure,
}

/// The operating system's files.
#[derive(Debug, Default)]
pub struct RealDisk {
    /// Files are opened for reading only.
    read_only: bool,
    /// Folders that are kept open.
    held: Mutex<HashMap<PathBuf, Arc<File>>>,
}

/// Links are not followed: they may lead anywhere.
fn no_links() -> i32 {
    i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or_default()
}

impl RealDisk {
    pub fn new(read_only: bool) -> Self {
        Self { read_only, ..Self::default() }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<PathBuf, Arc<File>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct RealFile(File);

fn entry(name: String, found: &fs::Metadata) -> Entry {
    Entry { name, bytes: found.len(), exposure: crate::folder::exposure(found) }
}

impl Disk for RealDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(!self.read_only).custom_flags(no_links());
        Ok(Arc::new(RealFile(options.open(path)?)))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        options.custom_flags(no_links());
        Ok(Arc::new(RealFile(options.open(path)?)))
    }

    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        options.custom_flags(no_links());
        Ok(Arc::new(RealFile(options.open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        use std::os::unix::fs::DirBuilderExt as _;
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            other => other,
        }
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let held = self.held().get(path).cloned();
        match held {
            Some(folder) => folder.sync_all(),
            None => File::open(path)?.sync_all(),
        }
    }

    fn hold_folder(&self, path: &Path) -> io::Result<()> {
        let folder = Arc::new(File::open(path)?);
        self.held().insert(path.to_owned(), folder);
        Ok(())
    }

    fn release_folder(&self, path: &Path) {
        self.held().remove(path);
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>> {
        let mut found = Vec::new();
        for one in fs::read_dir(folder)? {
            let one = one?;
            // A link is not followed: it may lead anywhere.
            let metadata = match one.metadata() {
                // Removed since its name was read.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                found => found?,
            };
            let Ok(name) = one.file_name().into_string() else { continue };
            if metadata.is_file() {
                found.push(entry(name, &metadata));
            } else if metadata.is_symlink() {
                found.push(Entry { name, bytes: 0, exposure: Exposure::Writable });
            }
        }
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn entry(&self, path: &Path) -> io::Result<Entry> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        Ok(entry(name.to_owned(), &fs::metadata(path)?))
    }
}

impl DiskFile for RealFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let mut read = 0;
        while read < buffer.len() {
            match self.0.read_at(&mut buffer[read..], at + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

/// Reads a small file; `None` if it is not there. One that is larger than it may be is an error.
pub(crate) fn read(disk: &dyn Disk, path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let bytes = file.bytes()?;
    if bytes > bytes_max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "The file is too large"));
    }
    let mut read = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
    let length = file.read_at(&mut read, 0)?;
    read.truncate(length);
    Ok(Some(read))
}

/// Removes a file that may not be there.
pub(crate) fn remove(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
