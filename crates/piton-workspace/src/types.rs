//! The types that describe a workspace's files and its git state. The protocol carries them
//! unchanged.

use serde::{Deserialize, Serialize};

/// Most bytes of a file that are read or written at once.
pub const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Most entries of a folder that are listed.
pub const LIST_MAX: usize = 5_000;
/// Most bytes of a diff.
pub const DIFF_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most commits of a log.
pub const LOG_MAX: usize = 200;

/// What is in a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    pub entries: Vec<Listed>,
    /// There are more than are listed.
    pub truncated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    pub name: String,
    pub kind: ListedKind,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListedKind {
    Folder,
    File,
    Link,
    Other,
}

/// `repository` is false where there is none; all else is then empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitStatus {
    pub repository: bool,
    pub branch: Option<String>,
    pub head: Option<String>,
    pub changed: Vec<GitChange>,
    pub truncated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitChange {
    /// Git's two letters: index and work tree.
    pub status: String,
    pub path: String,
}

/// What has changed, as a patch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitDiff {
    pub diff: String,
    pub truncated: bool,
}

/// One commit of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitCommit {
    pub id: String,
    pub author: String,
    pub at: String,
    pub subject: String,
}
