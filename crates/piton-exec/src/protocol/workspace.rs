//! The workspace without an agent: files, git, shells. Paths are relative to the workspace and
//! stay inside it.

use serde::{Deserialize, Serialize};

pub use piton_workspace::{
    DIFF_BYTES_MAX, FILE_BYTES_MAX, GitChange, GitCommit, GitDiff, GitStatus, LIST_MAX, LOG_MAX,
    Listed, ListedKind, Listing, TRUTH_PATHS_MAX, Truth, TruthRequest,
};

/// Most shells at the same time.
pub const SHELLS_MAX: usize = 16;

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

/// A shell of `GET /shells`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedShell {
    pub shell_id: String,
    pub pid: u32,
    /// It has ended, and its output is still kept.
    #[serde(default)]
    pub is_ended: bool,
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
