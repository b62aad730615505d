//! What SQLite's errors mean for the store.

use std::path::Path;
use std::sync::Arc;

use rusqlite::{ErrorCode, ffi};

use crate::error::{Cause, Error};

/// An error of SQLite, told apart by what has to be done about it.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// No space: rolled back, and all is well once there is space again.
    Full(Error),
    /// The flush may or may not have happened: nothing may be written any more.
    Flush(Cause),
    /// Anything else; what was asked did not happen.
    Other(Error),
}

pub(crate) fn to_error(path: &Path, e: rusqlite::Error) -> Error {
    let code = e.sqlite_error_code();
    let extended = e.sqlite_error().map(|e| e.extended_code);
    let source = Some(Arc::new(e) as Cause);
    let path = path.to_owned();
    match code {
        // The shared memory file could not grow: the same as a full disk.
        _ if extended == Some(ffi::SQLITE_IOERR_SHMSIZE) => Error::DiskFull(source),
        Some(ErrorCode::DiskFull) => Error::DiskFull(source),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Busy(source),
        Some(ErrorCode::ReadOnly) => Error::ReadOnly { path, source },
        Some(
            ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::PermissionDenied
            | ErrorCode::OutOfMemory,
        ) => Error::Unreadable { path, source },
        _ => Error::Damaged { path, source },
    }
}

/// Whether it was a flush that failed, of whatever file.
pub(crate) fn is_flush(e: &rusqlite::Error) -> bool {
    let extended = e.sqlite_error().map(|e| e.extended_code);
    matches!(extended, Some(ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC))
}

/// An error before the commit: nothing was flushed and nothing is in doubt.
pub(crate) fn before_commit(path: &Path, e: rusqlite::Error) -> Failure {
    match to_error(path, e) {
        full @ Error::DiskFull(_) => Failure::Full(full),
        other => Failure::Other(other),
    }
}

/// An error of the commit itself.
pub(crate) fn at_commit(path: &Path, e: rusqlite::Error) -> Failure {
    match to_error(path, e) {
        full @ Error::DiskFull(_) => Failure::Full(full),
        busy @ Error::Busy(_) => Failure::Other(busy),
        Error::Unreadable { source: Some(cause), .. }
        | Error::Damaged { source: Some(cause), .. }
        | Error::ReadOnly { source: Some(cause), .. } => Failure::Flush(cause),
        other => Failure::Flush(Arc::new(other)),
    }
}
