//! The workspace without an agent: files, git, shells. Paths are relative to the workspace and
//! stay inside it.

use serde::{Deserialize, Serialize};

/// Most bytes of a file that are read or written at once.
pub const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Most entries of a folder that are listed.
pub const LIST_MAX: usize = 5_000;
/// Most bytes of a diff.
pub const DIFF_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most commits of a log.
pub const LOG_MAX: usize = 200;
/// Most shells at the same time.
pub const SHELLS_MAX: usize = 16;

/// `GET /list?path=P`.
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

/// `GET /git/status`. `repository` is false where there is none; all else is then empty.
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

/// `GET /git/diff?staged=bool&path=P`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitDiff {
    pub diff: String,
    pub truncated: bool,
}

/// `GET /git/log?limit=N`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitCommit {
    pub id: String,
    pub author: String,
    pub at: String,
    pub subject: String,
}

/// `POST /shells`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewShell {
    /// Program and arguments; empty: the user's shell.
    #[serde(default)]
    pub command: Vec<String>,
    #[serde(default)]
    pub cols: Option<u16>,
    #[serde(default)]
    pub rows: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shell {
    pub shell_id: String,
    pub pid: u32,
}

/// What a client of `/shells/{id}` sends as text; typed bytes are binary frames. What the shell
/// writes comes as binary frames, beginning with what is kept of what it wrote before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum ShellControl {
    Resize { cols: u16, rows: u16 },
}

/// The last text frame of a shell's socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShellEnded {
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
}
