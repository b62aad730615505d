//! Opening paths beneath the workspace's folder, and nowhere else.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use piton_core::planted::{self, Bug};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::workspace::{Error, Inner};

/// The kernel asks to try again when the tree changes while it resolves.
#[cfg(target_os = "linux")]
const TRIES_MAX: u32 = 64;

impl Inner {
    /// The path relative to the workspace, without `.`; `..` is refused even where it leads back.
    pub(crate) fn relative(&self, path: &Path) -> Result<PathBuf, Error> {
        let malformed = path.to_str().is_none() || path.as_os_str().as_bytes().contains(&0);
        if malformed {
            return Err(Error::PathMalformed { path: path.to_owned() });
        }
        let outside = || Error::PathOutside { path: path.to_owned() };
        let below = if path.is_absolute() {
            let stripped =
                path.strip_prefix(&self.root).or_else(|_| path.strip_prefix(&self.given));
            stripped.map_err(|_| outside())?
        } else {
            path
        };
        let mut relative = PathBuf::new();
        for component in below.components() {
            match component {
                Component::Normal(name) => relative.push(name),
                Component::CurDir => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(outside());
                }
            }
        }
        Ok(if relative.as_os_str().is_empty() { PathBuf::from(".") } else { relative })
    }

    pub(crate) fn open_beneath(&self, relative: &Path, flags: OFlags) -> Result<OwnedFd, Error> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        let opened = match resolve(self.folder.as_fd(), relative, flags) {
            // Not in this kernel, or kept from us by a filter that does not know it.
            Err(Errno::NOSYS | Errno::PERM) => by_steps(self.folder.as_fd(), relative, flags),
            opened => opened,
        };
        opened.map_err(|errno| match errno {
            Errno::XDEV | Errno::LOOP => Error::PathOutside { path: relative.to_owned() },
            // A FIFO without a reader, a socket, a device without a driver.
            Errno::NXIO | Errno::NODEV => Error::NotFile { path: relative.to_owned() },
            errno => Error::io(relative, errno.into()),
        })
    }

    /// An error if there is nothing at this path. What there is is not opened.
    pub(crate) fn look(&self, relative: &Path) -> Result<(), Error> {
        let Some(name) = relative.file_name() else { return Ok(()) };
        let folder = self.open_beneath(parent_of(relative), OFlags::RDONLY | OFlags::DIRECTORY)?;
        let looked = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW);
        looked.map(drop).map_err(|errno| Error::io(relative, errno.into()))
    }

    /// The folder that a file is in; made with its parents if it is not there.
    pub(crate) fn made(&self, folder: &Path) -> Result<OwnedFd, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        match self.open_beneath(folder, flags) {
            Err(Error::NotFound { .. }) => {}
            opened => return opened,
        }
        let not_found = || Error::NotFound { path: folder.to_owned() };
        let name = folder.file_name().ok_or_else(not_found)?;
        let parent = self.made(parent_of(folder))?;
        match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => self.open_beneath(folder, flags),
            Err(errno) => Err(Error::io(folder, errno.into())),
        }
    }
}

pub(crate) fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(target_os = "linux")]
fn resolve(root: impl AsFd, relative: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    use rustix::fs::{ResolveFlags, openat2};
    let beneath = if planted::is(Bug::LinkFollowed) {
        ResolveFlags::empty()
    } else {
        ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS
    };
    for _ in 0..TRIES_MAX {
        match openat2(&root, relative, flags, Mode::empty(), beneath) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened,
        }
    }
    Err(Errno::AGAIN)
}

#[cfg(not(target_os = "linux"))]
fn resolve(_root: impl AsFd, _relative: &Path, _flags: OFlags) -> Result<OwnedFd, Errno> {
    Err(Errno::NOSYS)
}

/// One step at a time, through no link at all: stricter than [`resolve`], but as safe.
fn by_steps(root: impl AsFd, relative: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let step = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = rustix::fs::openat(root, ".", step, Mode::empty())?;
    let mut names = relative.components().peekable();
    while let Some(name) = names.next() {
        let flags = if names.peek().is_some() { step } else { flags | OFlags::NOFOLLOW };
        let name = name.as_os_str();
        at = rustix::fs::openat(&at, name, flags, Mode::empty()).map_err(|errno| {
            // The kernel reports a link where a folder is expected as “not a folder”.
            let stat = rustix::fs::statat(&at, name, AtFlags::SYMLINK_NOFOLLOW);
            let link = stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_symlink());
            if link { Errno::LOOP } else { errno }
        })?;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the kernel cannot resolve beneath, links are refused wherever they lead.
    #[test]
    fn by_steps_follows_no_link() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("folder")).unwrap();
        std::fs::write(root.path().join("folder/file"), "text").unwrap();
        std::os::unix::fs::symlink("folder", root.path().join("link")).unwrap();
        std::os::unix::fs::symlink("/", root.path().join("folder/out")).unwrap();
        let folder = std::fs::File::open(root.path()).unwrap();
        let open = |path: &str| by_steps(&folder, Path::new(path), OFlags::RDONLY).map(drop);
        assert_eq!(open("folder/file"), Ok(()));
        assert_eq!(open("."), Ok(()));
        assert_eq!(open("link"), Err(Errno::LOOP));
        assert_eq!(open("link/file"), Err(Errno::LOOP));
        assert_eq!(open("folder/out/etc"), Err(Errno::LOOP));
        assert_eq!(open("folder/none"), Err(Errno::NOENT));
    }
}
