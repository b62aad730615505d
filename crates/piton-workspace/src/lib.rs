//! Where an agent works. Knows no log, no agent and no protocol.
//!
//! - [`git`]: the one way in which Piton runs git
//! - [`Workspace`]: files below one folder, and what git says about them
//! - [`snapshot`]: the whole tree, kept in a repository of Piton's own, and brought back
//! - [`finish`]: commit, merge and push, as the user would
//! - [`worktree`]: git worktrees for sessions, made and removed

mod beneath;
mod branch;
mod files;
pub mod finish;
pub mod git;
mod identity;
pub mod snapshot;
mod status;
mod truth;
mod types;
mod workspace;
pub mod worktree;

pub use branch::BranchReport;
pub use files::{Content, Range};
pub use identity::identity;
pub use status::Staged;
pub use truth::{TRUTH_PATHS_MAX, TRUTH_TIME_MAX, Truth, TruthRequest};
pub use types::{
    DIFF_BYTES_MAX, FILE_BYTES_MAX, GitChange, GitCommit, GitDiff, GitStatus, LIST_MAX, LOG_MAX,
    Listed, ListedKind, Listing,
};
pub use workspace::{Error, Workspace};
