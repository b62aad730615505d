//! Files of the workspace: read, written whole or not at all, listed.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid};

use crate::beneath::parent_of;
use crate::types::{FILE_BYTES_MAX, LIST_MAX, Listed, ListedKind, Listing};
use crate::workspace::{Error, Inner, Workspace};

/// Most names of a folder that are looked at before they are sorted and cut.
const NAMES_MAX: usize = 200_000;

/// How often a file may be replaced by others while we are about to.
const TRIES_MAX: u32 = 64;

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub offset: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    pub bytes: Vec<u8>,
    /// Of the whole file.
    pub bytes_total: u64,
}

impl Workspace {
    /// Reads a file, or at most [`FILE_BYTES_MAX`] of a range of it.
    pub async fn read(&self, path: &Path, range: Option<Range>) -> Result<Content, Error> {
        let path = path.to_owned();
        self.blocking(move |inner| inner.read(&path, range)).await
    }

    /// Reads a whole file that is UTF-8 without NUL.
    pub async fn read_text(&self, path: &Path) -> Result<String, Error> {
        let content = self.read(path, None).await?;
        let not_text = || Error::NotText { path: path.to_owned() };
        let text = String::from_utf8(content.bytes).map_err(|_| not_text())?;
        if text.contains('\0') { Err(not_text()) } else { Ok(text) }
    }

    /// Writes a file: another reader sees the old content or the new. Folders that it is to be in
    /// are made; mode and owner of an existing file stay.
    pub async fn write(&self, path: &Path, bytes: Vec<u8>) -> Result<(), Error> {
        let path = path.to_owned();
        self.blocking(move |inner| inner.write(&path, &bytes)).await
    }

    /// What is in a folder; folders first, then by name.
    pub async fn list(&self, path: &Path) -> Result<Listing, Error> {
        let path = path.to_owned();
        self.blocking(move |inner| inner.list(&path)).await
    }
}

/// The metadata of a plain file; anything else is refused.
fn plain(path: &Path, fd: impl AsFd) -> Result<Stat, Error> {
    let stat = rustix::fs::fstat(fd).map_err(|errno| Error::io(path, errno.into()))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(stat),
        FileType::Directory => Err(Error::IsFolder { path: path.to_owned() }),
        _ => Err(Error::NotFile { path: path.to_owned() }),
    }
}

fn too_large(path: &Path, bytes: u64) -> Error {
    Error::TooLarge { path: path.to_owned(), bytes, bytes_max: FILE_BYTES_MAX }
}

impl Inner {
    fn read(&self, path: &Path, range: Option<Range>) -> Result<Content, Error> {
        let relative = self.relative(path)?;
        // Without blocking: a FIFO would wait for a writer before we can see what it is.
        let fd = self.open_beneath(&relative, OFlags::RDONLY | OFlags::NONBLOCK)?;
        let bytes_total = u64::try_from(plain(path, &fd)?.st_size).unwrap_or(0);
        if range.is_none() && bytes_total > FILE_BYTES_MAX {
            return Err(too_large(path, bytes_total));
        }
        let mut file = File::from(fd);
        let Range { offset, bytes: wanted } =
            range.unwrap_or(Range { offset: 0, bytes: FILE_BYTES_MAX });
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(offset)).map_err(|error| Error::io(path, error))?;
        let mut part = file.take(wanted.min(FILE_BYTES_MAX));
        part.read_to_end(&mut bytes).map_err(|error| Error::io(path, error))?;
        Ok(Content { bytes, bytes_total })
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let length = bytes.len() as u64;
        if length > FILE_BYTES_MAX {
            return Err(too_large(path, length));
        }
        let relative = self.relative(path)?;
        let (relative, existing) = self.existing(path, relative)?;
        let Some(name) = relative.file_name() else {
            return Err(Error::IsFolder { path: path.to_owned() });
        };
        let folder = self.made(parent_of(&relative))?;
        let temporary = Temporary::create(path, &folder)?;
        temporary.fill(bytes, existing.as_ref()).map_err(|error| Error::io(path, error))?;
        let renamed = rustix::fs::renameat(&folder, &temporary.name, &folder, name);
        renamed.map_err(|errno| Error::io(path, errno.into()))?;
        temporary.renamed();
        Ok(())
    }

    /// The file that is to be replaced, if there is one, and where it really is: a link inside the
    /// workspace stays a link, and what it leads to is replaced.
    fn existing(&self, path: &Path, relative: PathBuf) -> Result<(PathBuf, Option<Stat>), Error> {
        for _ in 0..TRIES_MAX {
            let fd = match self.open_beneath(&relative, OFlags::RDONLY | OFlags::NONBLOCK) {
                Ok(fd) => fd,
                Err(Error::NotFound { .. }) if self.is_link(&relative) => {
                    // A link to nothing: we do not know where it is meant to lead.
                    return Err(Error::NotFile { path: path.to_owned() });
                }
                Err(Error::NotFound { .. }) => return Ok((relative, None)),
                Err(error) => return Err(error),
            };
            let stat = plain(path, &fd)?;
            if cfg!(not(target_os = "linux")) {
                // No link is followed there.
                return Ok((relative, Some(stat)));
            }
            // Replaced since we opened it, it is no longer where the kernel says it was.
            if let Some(real) = self.real(&fd)
                && let Ok(now) = rustix::fs::statat(&self.folder, &real, AtFlags::SYMLINK_NOFOLLOW)
                && (now.st_dev, now.st_ino) == (stat.st_dev, stat.st_ino)
            {
                return Ok((real, Some(stat)));
            }
        }
        Err(Error::Io { path: path.to_owned(), source: rustix::io::Errno::AGAIN.into() })
    }

    fn is_link(&self, relative: &Path) -> bool {
        let folder = self.open_beneath(parent_of(relative), OFlags::RDONLY | OFlags::DIRECTORY);
        let (Ok(folder), Some(name)) = (folder, relative.file_name()) else { return false };
        let stat = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_symlink())
    }

    fn real(&self, fd: &OwnedFd) -> Option<PathBuf> {
        let real = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()?;
        real.strip_prefix(&self.root).ok().map(Path::to_owned)
    }

    fn list(&self, path: &Path) -> Result<Listing, Error> {
        let failed = |errno: rustix::io::Errno| Error::io(path, errno.into());
        let relative = self.relative(path)?;
        let folder = self.open_beneath(&relative, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        let mut truncated = false;
        for entry in rustix::fs::Dir::read_from(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            if names.len() == NAMES_MAX {
                truncated = true;
                break;
            }
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                // Not every file system tells the kind with the name.
                let stat =
                    rustix::fs::statat(&folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
                kind = stat.map_or(kind, |stat| FileType::from_raw_mode(stat.st_mode));
            }
            names.push((kind_of(kind), entry.file_name().to_owned()));
        }
        // The order of the kinds has folders first; links and others are listed among the files.
        names.sort_by(|a, b| {
            let file = |kind: ListedKind| kind != ListedKind::Folder;
            (file(a.0), &a.1).cmp(&(file(b.0), &b.1))
        });
        truncated |= names.len() > LIST_MAX;
        names.truncate(LIST_MAX);
        let entries = names.into_iter().map(|(kind, name)| {
            let stat = rustix::fs::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW);
            let bytes = stat.map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
            let bytes = if kind == ListedKind::File { bytes } else { 0 };
            Listed { name: name.to_string_lossy().into_owned(), kind, bytes }
        });
        Ok(Listing { entries: entries.collect(), truncated })
    }
}

fn kind_of(kind: FileType) -> ListedKind {
    match kind {
        FileType::Directory => ListedKind::Folder,
        FileType::RegularFile => ListedKind::File,
        FileType::Symlink => ListedKind::Link,
        _ => ListedKind::Other,
    }
}

/// A file that becomes the one written; removed if it does not come to that.
struct Temporary<'a> {
    folder: &'a OwnedFd,
    name: String,
    file: OwnedFd,
    keep: bool,
}

impl<'a> Temporary<'a> {
    fn create(path: &Path, folder: &'a OwnedFd) -> Result<Self, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut random = [0; 4];
        let _ = getrandom::fill(&mut random);
        let name = format!(".piton-{number}-{}.tmp", hex::encode(random));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(folder, &name, flags, Mode::from_raw_mode(0o666));
        let file = file.map_err(|errno| Error::io(path, errno.into()))?;
        Ok(Self { folder, name, file, keep: false })
    }

    fn fill(&self, bytes: &[u8], existing: Option<&Stat>) -> std::io::Result<()> {
        let mut file = File::from(self.file.try_clone()?);
        file.write_all(bytes)?;
        if let Some(stat) = existing {
            // Only root may give files away; otherwise the file becomes ours, as with any editor.
            let (owner, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
            let _ = rustix::fs::fchown(&self.file, Some(owner), Some(group));
            rustix::fs::fchmod(&self.file, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
        }
        file.sync_data()
    }

    fn renamed(mut self) {
        self.keep = true;
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.keep {
            let _ = rustix::fs::unlinkat(self.folder, &self.name, AtFlags::empty());
        }
    }
}
