//! A session's workspace: files, git, shells.

use piton_core::id::SessionId;
use serde::{Deserialize, Serialize};

use crate::enums::FileKind;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct FolderQuery {
    /// Relative to the workspace; without it the workspace itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct FileQuery {
    /// Relative to the workspace.
    pub path: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileEntry {
    pub name: String,
    pub kind: FileKind,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileList {
    pub files: Vec<FileEntry>,
    /// There are more than are listed.
    pub truncated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GitChange {
    /// Git's two letters: index and work tree.
    pub status: String,
    pub path: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GitStatus {
    /// False if the workspace is no repository; all else is then empty.
    pub repository: bool,
    pub branch: Option<String>,
    pub head: Option<String>,
    pub changed: Vec<GitChange>,
    /// There are more than are listed.
    pub truncated: bool,
}

/// HEAD, branch and changes of a workspace, read in at most two seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkspaceTruth {
    /// False if the workspace is no repository; all else is then empty.
    pub repository: bool,
    /// Null on no branch.
    pub branch: Option<String>,
    /// Null before the first commit.
    pub head: Option<String>,
    /// The first changed files, untracked ones too.
    pub changed: Vec<GitChange>,
    /// The changed files that are not listed; at least so many if `truncated`.
    pub more: u64,
    /// How tracked files differ from HEAD, staged or not; null if git did not count it in time.
    pub stat: Option<DiffStat>,
    /// Something could not be read in time, or is too long to be listed.
    pub truncated: bool,
}

/// How much is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DiffStat {
    pub files: u64,
    /// Lines.
    pub added: u64,
    pub removed: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct DiffQuery {
    /// Show the staged changes instead of the unstaged ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged: Option<bool>,
    /// Only changes of this path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What the session's branch adds to its base: commits, and changes that are not committed. Not
    /// together with `staged`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GitDiff {
    pub diff: String,
    /// There is more than is shown.
    pub truncated: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct LogQuery {
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 200))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GitCommit {
    pub id: String,
    pub author: String,
    pub at: String,
    pub subject: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GitLog {
    /// The newest first.
    pub commits: Vec<GitCommit>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewShell {
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1000))]
    pub cols: Option<u16>,
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1000))]
    pub rows: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Shell {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    pub shell_id: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShellInfo {
    pub shell_id: String,
    /// The process id of its program.
    pub pid: u32,
    /// The shell has ended; its output is kept for a while.
    pub is_ended: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShellList {
    /// Oldest first.
    pub shells: Vec<ShellInfo>,
}

/// A session's branch compared with its base.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GitBranch {
    /// Null if the folder is on no branch, or in no repository.
    pub branch: Option<String>,
    /// The newest commit.
    pub head: Option<String>,
    /// The local branch that the session's branch started from; null if unknown or deleted.
    pub base: Option<String>,
    /// The newest commit that both have.
    pub merge_base: Option<String>,
    /// Commits that the base does not have.
    pub ahead: u64,
    /// Commits that only the base has.
    pub behind: u64,
    /// Files with changes that are not committed.
    pub uncommitted: usize,
    /// Names of remotes that the branch can be pushed to.
    pub remotes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CommitRequest {
    /// The commit's message.
    #[cfg_attr(feature = "openapi", schema(min_length = 1))]
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Committed {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    /// The new commit.
    pub commit: String,
}

/// How a branch is merged into its base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum MergeStrategy {
    #[default]
    Merge,
    /// All of its changes as one commit.
    Squash,
    /// Its commits again, behind those of the base. The session's branch moves to them.
    Rebase,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MergeRequest {
    /// The local branch to merge into; without it, the base branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
    #[serde(default)]
    pub strategy: MergeStrategy,
    /// The message of the merge, or of the one commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Merged {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    pub into: String,
    /// The commit that the branch points to now.
    pub commit: String,
    /// The branch had all commits already.
    pub was_up_to_date: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PushRequest {
    /// Without it `origin`, or the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Pushed {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    pub remote: String,
    pub branch: String,
}
