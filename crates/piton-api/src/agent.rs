//! Agents that sessions can have, and the executions that run them.

use piton_core::Timestamp;
use piton_core::id::{ExecutionId, SessionId, TaskId};
use piton_core::overview::ErrorCause;
use piton_core::resume::{self, Abilities};
use serde::{Deserialize, Serialize};

use crate::enums::{AgentOrigin, AgentStatus, Code, ExecutorStatus, ResumeStrategy};
use crate::status::{Live, SessionSummary};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Agent {
    pub agent_profile_id: String,
    pub name: String,
    pub origin: AgentOrigin,
    /// The server found the agent's program.
    pub is_installed: bool,
    /// How to install it, for people; null if nothing is known.
    pub install: Option<String>,
    /// How the agent is expected to restore a conversation. What it advertises when it starts takes
    /// precedence.
    pub resume_strategy: ResumeStrategy,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentList {
    pub agents: Vec<Agent>,
}

/// One agentctl's life for one session, with the agent that it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Execution {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub task_id: Option<TaskId>,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub agent_execution_id: ExecutionId,
    /// Which executor runs it.
    pub executor_id: String,
    /// The kind of executor: `standalone`, …
    pub runtime: String,
    pub status: ExecutorStatus,
    /// Null until an agent was started.
    pub agent_status: Option<AgentStatus>,
    /// The agent's own id of its conversation.
    pub agent_session_id: Option<String>,
    /// Deprecated: the same as `agent_session_id`. Not a resume token of a wait.
    #[cfg_attr(feature = "openapi", schema(deprecated))]
    pub resume_token: Option<String>,
    /// Whether the agent reports that it can resume its conversation after a restart.
    pub supports_session_resume: bool,
    /// Files, git and shells can be used without an agent.
    pub supports_workspace_only: bool,
    /// The folder that it works in; null if the executor chose it.
    pub workspace: Option<String>,
    /// The worktree's id; null without a worktree.
    pub worktree_id: Option<String>,
    pub worktree_path: Option<String>,
    pub worktree_branch: Option<String>,
    /// Why the executor or its agent is in error.
    pub error_message: Option<String>,
    /// The code of that error.
    pub error_code: Option<Code>,
    /// Where its agentctl is reached; null if the server does not know.
    pub address: Option<String>,
    /// The process id of its agentctl, where it runs on the server's machine.
    pub pid: Option<u32>,
    /// When its agentctl last responded, since the server started; null if it did not.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub last_seen_at: Option<Timestamp>,
    /// What the agent and everything that runs beside it have in memory; null if that is not known.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExecutionList {
    /// Those that run, or may run, first; then those that failed or were stopped.
    pub executions: Vec<Execution>,
    /// There are more than are listed.
    pub truncated: bool,
}

impl Execution {
    /// What is known of a session's executor; `None` if it has none.
    pub fn new(
        summary: &SessionSummary,
        facts: &piton_core::state::Facts,
        abilities: Abilities,
    ) -> Option<Self> {
        let executor = facts.executor.as_ref()?;
        let agent = facts.agent.as_ref();
        let agent_session_id = agent.and_then(|agent| agent.session_id.clone());
        Some(Self {
            session_id: summary.session_id.clone(),
            task_id: summary.task_id.clone(),
            agent_execution_id: executor.execution_id.clone(),
            executor_id: executor.runtime.clone(),
            runtime: executor.runtime.clone(),
            status: executor.status.into(),
            agent_status: agent.map(|agent| agent.status.into()),
            resume_token: agent_session_id.clone(),
            agent_session_id,
            supports_session_resume: resume::can_restore(facts, abilities),
            supports_workspace_only: true,
            workspace: summary.working_dir.clone(),
            worktree_id: summary.worktree_id.clone(),
            worktree_path: summary.worktree_path.clone(),
            worktree_branch: summary.worktree_branch.clone(),
            error_message: None,
            error_code: None,
            address: None,
            pid: None,
            last_seen_at: None,
            memory_bytes: None,
        })
    }

    /// The same, with the cause of its error.
    #[must_use]
    pub fn with_error(self, error: Option<&ErrorCause>) -> Self {
        let Some(error) = error else { return self };
        Self {
            error_message: error.message.clone(),
            error_code: error.code.clone().map(Into::into),
            ..self
        }
    }

    /// The same, with what a server knows of it now.
    #[must_use]
    pub fn with_last_seen(self, live: Option<&Live>) -> Self {
        Self { last_seen_at: live.and_then(|live| live.last_seen_at), ..self }
    }
}
