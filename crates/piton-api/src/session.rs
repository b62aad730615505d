//! Sessions: created, listed, prompted, paused, resumed, closed, deleted.

use piton_core::id::SessionId;
use serde::{Deserialize, Serialize};

use crate::agent_view::{AgentChoice, McpServer};
use crate::enums::RunOutcome;
use crate::status::SessionSummary;

pub use crate::queue::{PromptAccepted, PromptRequest};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewSession {
    pub title: Option<String>,
    /// The task that the session belongs to.
    pub task_id: Option<String>,
    /// Which agent, of `GET /agents`. Without one: the setting `chat.agent`, else the first agent that
    /// is installed, else the test agent `echo`; unless it is set, the answer has a `notice`.
    pub agent_profile_id: Option<String>,
    /// An absolute path of a folder that exists; without one a folder of the session's own.
    pub working_dir: Option<String>,
    /// Instead of a folder: an absolute path of a git repository. The session works in a worktree
    /// of it, on a branch of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo: Option<String>,
    /// The branch, tag or commit of the repository at which the session's branch begins; without
    /// one the repository's HEAD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Whether the agent is started at once. The default is `true`.
    pub start: Option<bool>,
    /// How the agent is to work: applied whenever it starts. What it does not offer is dropped, and a
    /// record says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentChoice>,
    /// MCP servers that the agent is given with every conversation, beside those of its profile; at
    /// most 32. They are in the session's log: a secret is refused, name its variable instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<McpServer>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionCreated {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    /// The agent of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_profile_id: Option<String>,
    /// Which agent was chosen and why, if neither the request nor the setting `chat.agent` names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
}

impl SessionCreated {
    pub fn new(
        session_id: SessionId,
        agent_profile_id: Option<String>,
        notice: Option<String>,
    ) -> Self {
        Self { session_id, agent_profile_id, notice }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct SessionQuery {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// Only sessions with this status.
    #[cfg_attr(feature = "openapi", param(example = "running"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Where the last page ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 200))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionPage {
    pub sessions: Vec<SessionSummary>,
    /// Where the next page begins; null on the last one.
    pub next: Option<String>,
}

/// The session and run that a request affected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionRun {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    /// The run that the request was about, if it was about one.
    pub run_id: Option<String>,
    /// The agent still starts: what becomes of it is not known yet. The session's status and events say
    /// it.
    #[serde(default)]
    pub pending: bool,
}

/// What a started agent is to know of what was said before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ContextChoice {
    /// Its own conversation.
    Native,
    /// The history, given with its first prompt. It begins another conversation.
    Injected,
    /// Nothing. It begins another conversation.
    None,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResumeRequest {
    /// Continue an interrupted run; without it, the setting `resume.continue_run` decides.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub continue_run: Option<bool>,
    /// What the agent is to know; without it, its own conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextChoice>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StartRequest {
    /// Start the agent without its conversation, if the agent can neither load nor refuse it. Its
    /// first prompt carries the history if its profile allows that.
    #[serde(default)]
    pub fresh: bool,
    /// What the agent is to know; without it, its own conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextChoice>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunRequest {
    /// Refused if this is not the session's run any more; the default is the latest run.
    pub run_id: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CloseRequest {
    /// The default is `completed`.
    pub outcome: Option<RunOutcome>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct DeleteQuery {
    /// Also delete a session in which something still runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
    /// Why; the record of the deletion keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What happened to a deleted session's worktree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionDeleted {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    pub worktree_path: String,
    pub worktree_branch: String,
    /// The worktree was clean and was removed; otherwise it stays and belongs to no session any
    /// more.
    pub worktree_removed: bool,
    /// Why the worktree was kept.
    pub left_because: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RenameRequest {
    /// The new title; null removes the title.
    pub title: Option<String>,
}

/// The agent to assign to a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentRequest {
    /// An id from `GET /agents`.
    #[cfg_attr(feature = "openapi", schema(min_length = 1))]
    pub agent_profile_id: String,
}

/// Which contents of a session's log to redact: exactly one of `seqs`, `value` and `pattern`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RedactRequest {
    /// Redact the contents of these records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seqs: Option<Vec<u64>>,
    /// Redact every content with this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Redact every content that this regular expression matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Why; the record of the redaction keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Return what would be redacted and change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// What is looked for is secret.
impl std::fmt::Debug for RedactRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedactRequest").field("dry_run", &self.dry_run).finish_non_exhaustive()
    }
}

/// A record with content to redact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RedactionTarget {
    pub seq: u64,
    /// The record's kind.
    pub kind: String,
    /// How often the text or pattern was found; 0 for a record that was named.
    pub matches: usize,
}

/// What a redaction removed, or would remove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Redaction {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    /// False after a dry run.
    pub done: bool,
    /// Contents that were redacted.
    pub taken_out: usize,
    pub targets: Vec<RedactionTarget>,
    /// Found in headers, which stay: only deleting the session removes them.
    pub in_headers: Vec<RedactionTarget>,
    /// Named records without a content.
    pub empty: Vec<u64>,
    /// Named records whose content was redacted before.
    pub gone: Vec<u64>,
    /// Named records that the log does not have.
    pub missing: Vec<u64>,
}

#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ArchiveRequest {
    /// An absolute path of the folder for the bundle, on the server; without it the data folder's
    /// archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Encrypts the bundle; without it the bundle is in the clear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passphrase: Option<String>,
}

impl std::fmt::Debug for ArchiveRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArchiveRequest").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// A session that was moved from the store into a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionArchived {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    /// The path of the bundle on the server.
    pub bundle: String,
    pub last_seq: u64,
    pub encrypted: bool,
}

/// The executor to abandon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AbandonRequest {
    /// Refused if the session has another executor by now; the default is the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_execution_id: Option<String>,
}
