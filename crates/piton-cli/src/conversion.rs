//! The lock on a data folder while a process converts its store. The kernel releases it when the
//! process ends, however it ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};

const LOCK: &str = "convert.lock";

/// Converting, until this is dropped.
#[derive(Debug)]
pub(crate) struct Converting {
    /// Held for its lock.
    _file: File,
}

/// Begins a conversion; refused while there is another.
pub(crate) fn begin(data: &Path) -> Result<Converting> {
    let path = data.join(LOCK);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&path).map_err(|e| failed(&path, e))?;
    match file.try_lock() {
        Ok(()) => Ok(Converting { _file: file }),
        Err(TryLockError::WouldBlock) => Err(under_way()),
        Err(TryLockError::Error(e)) => Err(failed(&path, e)),
    }
}

/// Refuses while a process converts the store: the new one might miss what is written now.
pub(crate) fn refuse(data: &Path) -> Result<()> {
    let path = data.join(LOCK);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(failed(&path, e)),
    };
    // Shared, so that two who ask at the same time do not take each other for the holder.
    match file.try_lock_shared() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(under_way()),
        Err(TryLockError::Error(e)) => Err(failed(&path, e)),
    }
}

fn under_way() -> Error {
    Error::new(piton_core::Code::StoreBusy, "The store is being converted by another process")
        .with_hint("Wait until it is done, and try again.")
}

fn failed(path: &Path, e: io::Error) -> Error {
    let source: piton_store::Cause = Arc::new(e);
    piton_store::Error::Unreadable { path: path.to_owned(), source: Some(source) }.into()
}
