//! The data folder: made private, on a local disk, and flushed when names in it change.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use piton_core::Timestamp;
use piton_core::planted::{self, Bug};

use piton_core::file_permissions::{Exposure, Permissions};

use crate::error::{Cause, Error, Result};

/// What [`check_writable`] writes.
const CHECK_FILE: &str = "write-check";
const CHECK_BYTES: usize = 64 * 1024;

/// Makes the folder and those above it if they are not there, readable by their owner only. A
/// folder that was made is there after a power cut, too.
pub(crate) fn create(path: &Path) -> Result<()> {
    let is_missing = |path: &&Path| {
        let found = fs::symlink_metadata(path);
        !path.as_os_str().is_empty() && found.is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
    };
    let missing: Vec<&Path> = path.ancestors().take_while(is_missing).collect();
    match DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Ok(()) => {}
        Err(e) if path.is_dir() && e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(write_failed(path, e)),
    }
    for made in missing {
        match made.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => sync(parent)?,
            _ => sync(Path::new("."))?,
        }
    }
    Ok(())
}

/// The time of a record that the store itself writes.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Flushes the folder's names.
pub(crate) fn sync(path: &Path) -> Result<()> {
    let flushed = File::open(path).and_then(|folder| folder.sync_all());
    flushed.map_err(|e| write_failed(path, e))
}

/// Writes and flushes as much as an append may need, and removes it again.
pub(crate) fn check_writable(data: &Path) -> Result<()> {
    let path = data.join(CHECK_FILE);
    let write = || {
        let mut options = File::options();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        file.write_all(&vec![0; CHECK_BYTES])?;
        file.sync_data()
    };
    let written = write();
    // Left by a check that was killed, it is overwritten by the next one.
    let _ = fs::remove_file(&path);
    written.map_err(|e| write_failed(data, e))
}

/// What a failed write in the folder means for the store.
pub(crate) fn write_failed(path: &Path, e: io::Error) -> Error {
    let kind = e.kind();
    let source = Some(Arc::new(e) as Cause);
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::DiskFull(source),
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            Error::ReadOnly { path: path.to_owned(), source }
        }
        _ => Error::Unreadable { path: path.to_owned(), source },
    }
}

/// Who can get at a file or folder beside its owner.
pub(crate) fn exposure(found: &fs::Metadata) -> Exposure {
    let permissions = Permissions { owner_uid: found.uid(), mode: found.mode() };
    permissions.exposure(rustix::process::geteuid().as_raw())
}

/// Refuses a data folder that others own or can write to, and one in which they own or can write
/// to a name: Piton executes programs from it and believes its files. A folder that does not exist
/// is not refused.
pub fn refuse_exposed(data: &Path) -> Result<()> {
    let unreadable = |path: &Path, e: io::Error| Error::Unreadable {
        path: path.to_owned(),
        source: Some(Arc::new(e) as Cause),
    };
    let refuse = |path: &Path| match fs::metadata(path) {
        Ok(found) if exposure(&found) == Exposure::Writable && !planted::is(Bug::FolderExposed) => {
            Err(Error::FilePermissions { path: path.to_owned() })
        }
        // A name that leads nowhere is never used.
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(unreadable(path, e)),
        _ => Ok(()),
    };
    refuse(data)?;
    let names = match fs::read_dir(data) {
        Ok(names) => names,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        // Not a folder: what opens it says so.
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => return Ok(()),
        Err(e) => return Err(unreadable(data, e)),
    };
    for name in names {
        refuse(&name.map_err(|e| unreadable(data, e))?.path())?;
    }
    Ok(())
}

/// Refuses network file systems: neither their locks nor their flushes can be trusted.
pub fn refuse_network(path: &Path) -> Result<()> {
    let unreadable = |e: io::Error| Error::Unreadable {
        path: path.to_owned(),
        source: Some(Arc::new(e) as Cause),
    };
    // Asked of the real folder: a link may lead elsewhere.
    let real = fs::canonicalize(path).map_err(unreadable)?;
    let found = rustix::fs::statfs(&real).map_err(|e| unreadable(e.into()))?;
    match network_name(&found) {
        Some(filesystem) => Err(Error::NetworkFilesystem { path: path.to_owned(), filesystem }),
        None => Ok(()),
    }
}

#[cfg(target_os = "macos")]
fn network_name(found: &rustix::fs::StatFs) -> Option<&'static str> {
    /// `MNT_LOCAL` of `sys/mount.h`.
    const LOCAL: u32 = 0x1000;
    (found.f_flags & LOCAL == 0).then_some("network")
}

#[cfg(not(target_os = "macos"))]
fn network_name(found: &rustix::fs::StatFs) -> Option<&'static str> {
    // The kernel's numbers are 32 bits wide; some platforms extend their sign.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "only 32 bits count"
    )]
    network_filesystem(found.f_type as u32)
}

/// The name of a network file system by its `statfs` magic (`linux/magic.h` and the sources of
/// those that are not listed there); `None` for a local one.
#[cfg_attr(
    all(target_os = "macos", not(test)),
    expect(dead_code, reason = "asked differently there")
)]
pub(crate) fn network_filesystem(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x0000_6969 => "nfs",
        0x0000_517b => "smb",
        0xff53_4d42 => "cifs",
        0xfe53_4d42 => "smb2",
        0x0102_1997 => "9p",
        0x00c3_6400 => "ceph",
        0x5346_414f | 0x6b41_4653 => "afs",
        0x0bd0_0bd0 => "lustre",
        0x0116_1970 => "gfs2",
        0x7461_636f => "ocfs2",
        // sshfs and its like; a local one cannot be told from them.
        0x6573_5546 => "fuse",
        0x786f_4256 => "vboxsf",
        0xbacb_acbc => "vmhgfs",
        0x0000_564c => "ncp",
        0x7375_7245 => "coda",
        0x2003_0528 => "orangefs",
        0x4750_4653 => "gpfs",
        0xaad7_aaea => "panfs",
        0x6163_6673 => "acfs",
        0x013_111a8 => "ibrix",
        0x1983_0326 => "beegfs",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_filesystems_are_named_and_local_ones_pass() {
        for (magic, name) in [
            (0x6969, "nfs"),
            (0xff53_4d42, "cifs"),
            (0xfe53_4d42, "smb2"),
            (0x0102_1997, "9p"),
            (0x00c3_6400, "ceph"),
            (0x6573_5546, "fuse"),
            (0x786f_4256, "vboxsf"),
        ] {
            assert_eq!(network_filesystem(magic), Some(name));
        }
        // ext4, btrfs, xfs, tmpfs, overlayfs, zfs, f2fs.
        for magic in
            [0xef53, 0x9123_683e, 0x5846_5342, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1, 0xf2f5_2010]
        {
            assert_eq!(network_filesystem(magic), None, "{magic:x}");
        }
    }

    #[test]
    fn a_folder_below_a_file_cannot_be() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(matches!(create(&file.join("data")), Err(Error::Unreadable { .. })));
        assert!(matches!(create(&file), Err(Error::Unreadable { .. })));
        create(&temp.path().join("a/b")).unwrap();
        create(&temp.path().join("a/b")).unwrap();
    }
}
