//! Which repository a folder is in, on which branch and commit. Read from git's files as they lie on the
//! disk: git need not be installed, and no process is started.

use std::fs;
use std::path::{Path, PathBuf};

use piton_core::workspace_identity::WorkspaceIdentity;

/// More than a file of git's that holds one name.
const NAME_BYTES_MAX: u64 = 4 * 1024;
/// More than a list of branches should need; a longer one is not read.
const PACKED_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// `None`: what there is cannot be read, or is in a format that only git knows. A folder in no repository
/// has an empty identity.
pub fn identity(folder: &Path) -> Option<WorkspaceIdentity> {
    let folder = folder.canonicalize().ok()?;
    let Some(top) = folder.ancestors().find(|folder| folder.join(".git").exists()) else {
        return Some(WorkspaceIdentity::default());
    };
    let git = git_folder(top)?.canonicalize().ok()?;
    let common = match read(&git.join("commondir"), NAME_BYTES_MAX) {
        Some(named) => git.join(named.trim_end()).canonicalize().ok()?,
        None => git.clone(),
    };
    let head = read(&git.join("HEAD"), NAME_BYTES_MAX)?;
    let head = head.trim_end();
    let repository = Some(common.to_str()?.to_owned());
    let Some(reference) = head.strip_prefix("ref: ") else {
        let head = Some(head.to_owned());
        return Some(WorkspaceIdentity { repository, branch: None, head });
    };
    // So a repository looks whose references are in tables.
    if reference == "refs/heads/.invalid" {
        return None;
    }
    let branch = reference.strip_prefix("refs/heads/").unwrap_or(reference).to_owned();
    let head = commit(&common, reference);
    Some(WorkspaceIdentity { repository, branch: Some(branch), head })
}

/// `.git` is a folder, or a file that names one.
pub(crate) fn git_folder(top: &Path) -> Option<PathBuf> {
    let git = top.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    let text = read(&git, NAME_BYTES_MAX)?;
    let named = text.strip_prefix("gitdir:")?.trim();
    Some(top.join(named))
}

fn commit(common: &Path, reference: &str) -> Option<String> {
    if let Some(loose) = read(&common.join(reference), NAME_BYTES_MAX) {
        return Some(loose.trim_end().to_owned());
    }
    let packed = read(&common.join("packed-refs"), PACKED_BYTES_MAX)?;
    let mut named = packed.lines().filter_map(|line| line.split_once(' '));
    named.find(|(_, name)| *name == reference).map(|(id, _)| id.to_owned())
}

fn read(path: &Path, bytes_max: u64) -> Option<String> {
    let found = fs::metadata(path).ok()?;
    (found.is_file() && found.len() <= bytes_max).then(|| fs::read_to_string(path).ok())?
}
