//! Whose processes are meant: an execution's, and of all folders with its name the one it began in.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use piton_core::id::ExecutionId;

use super::proc;
use crate::protocol::{MARKER, MARKER_FOLDER};

/// What the processes of one execution have in their environment, and its cgroup in its name.
///
/// The id alone is not enough: a copy of a data folder has the same ids, and a server of the copy
/// must not end the original's agents. The folder's device and inode stay with it when it is
/// renamed, and no copy, restored backup or snapshot beside it has them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    execution: ExecutionId,
    folder: String,
}

impl Mark {
    /// Of the execution in `folder`, which must be there.
    pub fn of(execution: &ExecutionId, folder: &Path) -> io::Result<Self> {
        let found = fs::metadata(folder)?;
        let folder = format!("{:x}-{:x}", found.dev(), found.ino());
        Ok(Self { execution: execution.clone(), folder })
    }

    pub fn execution(&self) -> &ExecutionId {
        &self.execution
    }

    /// Which folder it is, whatever it is called.
    pub fn folder(&self) -> &str {
        &self.folder
    }

    /// The variables that a process of the execution is started with.
    pub fn variables(&self) -> [(&'static str, String); 2] {
        [(MARKER, self.execution.to_string()), (MARKER_FOLDER, self.folder.clone())]
    }

    pub(super) fn is_on(&self, pid: u32) -> bool {
        proc::has_variable(pid, MARKER, self.execution.as_str())
            && proc::has_variable(pid, MARKER_FOLDER, &self.folder)
    }
}
