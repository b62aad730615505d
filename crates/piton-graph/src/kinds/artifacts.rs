//! The files that a command leaves: what is in the folder that its variable names when it has ended well.

use std::fs::{DirBuilder, read_dir, remove_dir_all};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use piton_core::Code;

use crate::error::NodeError;
use crate::node::check_artifact;
use crate::store::random;

/// Names the folder of the attempt.
pub(super) const VARIABLE: &str = "PITON_ARTIFACTS";
/// Most files that one attempt can leave.
const FILES_MAX: usize = 100;

/// A folder for one attempt, which is removed with it.
pub(super) struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left in the folder for temporary files is the system's to remove.
        let _ = remove_dir_all(&self.0);
    }
}

impl Folder {
    pub(super) fn new() -> Result<Self, NodeError> {
        let name = random::<16>().map_err(|error| NodeError::new(error.to_string()))?;
        let path = std::env::temp_dir().join(format!("piton-artifacts-{}", hex::encode(name)));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &std::path::Path {
        &self.0
    }

    /// The names and paths of the files, all of which can be kept.
    pub(super) fn files(&self) -> Result<Vec<(String, PathBuf)>, NodeError> {
        let mut files = Vec::new();
        for entry in read_dir(&self.0)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // Not through a link: what is behind it is not the command's to give.
            let found = entry.path().symlink_metadata()?;
            if !found.is_file() {
                let message = format!("The artifact `{name}` is no plain file");
                return Err(invalid(message));
            }
            let bytes = usize::try_from(found.len()).unwrap_or(usize::MAX);
            check_artifact(&name, bytes)?;
            if files.len() == FILES_MAX {
                return Err(invalid(format!("The command left more than {FILES_MAX} artifacts")));
            }
            files.push((name, entry.path()));
        }
        files.sort();
        Ok(files)
    }
}

fn invalid(message: String) -> NodeError {
    NodeError::new(message).with_code(Code::NodeOutputInvalid).permanent()
}
