//! Files and folders that are their owner's alone, whatever the umask is.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use piton_core::file_permissions::{Exposure, Permissions};

pub(crate) fn our_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

pub(crate) fn permissions(found: &fs::Metadata) -> Permissions {
    Permissions { owner_uid: found.uid(), mode: found.mode() }
}

/// Who can get at a file or folder beside its owner.
pub(crate) fn exposure(found: &fs::Metadata) -> Exposure {
    permissions(found).exposure(our_uid())
}

/// Writes a whole file, readable by its owner only.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600).open(path)?.write_all(bytes)
}
