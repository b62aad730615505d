//! Executors, agents and workspaces, and what the runtime did about them.

use serde::{Deserialize, Serialize};

use super::Seq;
use crate::agent_view::Configure;
use crate::code::AnyCode;
use crate::id::{ExecutionId, RunId};
use crate::reason::Reason;
use crate::resume::{Context, StartTrigger, Strategy};
use crate::spool::{AgentInfo, AuthMethod, OpenedAs, Pos, SessionCapabilities};
use crate::time::Timestamp;
use crate::worktree::WorktreePlan;

records! {
    /// An agentctl is being launched.
    ExecutorStarting = "executor.starting" {
        execution_id: ExecutionId,
        runtime: String,
    } content [];
    /// agentctl responds, or was found again after a restart of the server.
    ExecutorReady = "executor.ready" { execution_id: ExecutionId, } content [];
    /// agentctl may be alive and does not respond.
    ExecutorUnreachable = "executor.unreachable" {
        execution_id: ExecutionId,
        /// Why it is known to be alive and cannot be spoken to; none if it does not answer.
        #[serde(default, skip_serializing_if = "Option::is_none")] code: Option<AnyCode>,
    } content ["message"];
    /// The executor could not be launched, or failed.
    ExecutorError = "executor.error" {
        execution_id: ExecutionId,
        #[serde(default, skip_serializing_if = "Option::is_none")] reason: Option<Reason>,
        #[serde(default, skip_serializing_if = "Option::is_none")] code: Option<AnyCode>,
    } content ["message"];
    /// The executor is proven dead, or was ended on request.
    ExecutorStopped = "executor.stopped" { execution_id: ExecutionId, } content [];
    /// A user gave the executor up; if it returns, its agent is ended.
    ExecutorAbandoned = "executor.abandoned" { execution_id: ExecutionId, } content [];

    /// A worktree is about to be created for the session. Until it is prepared, nothing at its path
    /// counts as work.
    WorkspacePlanned = "workspace.planned" { #[serde(flatten)] plan: WorktreePlan, } content [];
    /// The worktree exists; from now on its contents count as work.
    WorkspacePrepared = "workspace.prepared" { #[serde(flatten)] plan: WorktreePlan, } content [];
    /// The worktree no longer exists: it was cleaned up, or removed by hand.
    WorkspaceRemoved = "workspace.removed" {
        path: String,
        /// Its branch is still in the repository.
        kept_branch: bool,
    } content [];

    /// An agent is about to be started, and this is how it gets its conversation back. Precedes
    /// every start.
    AgentResuming = "agent.resuming" {
        execution_id: ExecutionId,
        trigger: StartTrigger,
        strategy: Strategy,
        /// If it starts without its conversation, its first prompt carries the history.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] history: bool,
        /// Its first prompt is to say what an interruption cost.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] interruption_summary: bool,
        /// What it will know of what was said before, if its start goes as planned.
        #[serde(default, skip_serializing_if = "Option::is_none")] context: Option<Context>,
        /// Why that is not its own conversation.
        #[serde(default, skip_serializing_if = "Option::is_none")] context_reason: Option<Reason>,
    } content [];
    /// The agent's process is being started.
    AgentStarting = "agent.starting" { execution_id: ExecutionId, } content [];
    /// The agent has a conversation and accepts prompts.
    AgentReady = "agent.ready" {
        execution_id: ExecutionId,
        /// The agent's own handle on its conversation.
        #[serde(default, skip_serializing_if = "Option::is_none")] agent_session_id: Option<String>,
    } content [];
    /// The agent has a new id for its conversation.
    AgentSessionAssigned = "agent.session_assigned" {
        execution_id: ExecutionId,
        agent_session_id: String,
    } content [];
    /// Who the agent says it is, what it offers, and how it came to its conversation.
    AgentInitialized = "agent.initialized" {
        execution_id: ExecutionId,
        opened_as: OpenedAs,
        #[serde(default, skip_serializing_if = "Option::is_none")] agent: Option<AgentInfo>,
        capabilities: SessionCapabilities,
        /// The conversation that it was to continue or to fork.
        #[serde(default, skip_serializing_if = "Option::is_none")] requested_session_id: Option<String>,
        /// Whether it has the conversation that it was to have; absent: it was to have none.
        #[serde(default, skip_serializing_if = "Option::is_none")] context_restored: Option<bool>,
    } content [];
    /// The agent could not be started, or reported an error.
    AgentError = "agent.error" {
        execution_id: ExecutionId,
        #[serde(default, skip_serializing_if = "Option::is_none")] code: Option<AnyCode>,
        /// How one could log in, if that is what the agent wants.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] auth_methods: Vec<AuthMethod>,
    } content ["message"];
    /// The agent's process ended.
    AgentExited = "agent.exited" {
        execution_id: ExecutionId,
        #[serde(default, skip_serializing_if = "Option::is_none")] exit_code: Option<i32>,
        #[serde(default, skip_serializing_if = "Option::is_none")] signal: Option<i32>,
    } content ["stderr"];
    /// The agent reports about itself: plan, modes, commands, usage, and more.
    AgentUpdated = "agent.updated" {
        execution_id: ExecutionId,
        what: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] run_id: Option<RunId>,
        /// A part of what the agent said in the run was left out.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] truncated: bool,
    } content ["update"];
    /// The conversation that the agent replayed differs from the log.
    AgentHistoryDiverged = "agent.history_diverged" {
        execution_id: ExecutionId,
        unseen: u64,
    } content ["rest"];
    /// How far an execution's spool was imported. In the same batch as the imported records.
    SpoolImported = "spool.imported" {
        execution_id: ExecutionId,
        spool_id: String,
        pos: Pos,
        /// Entries that were gone before they were imported, first and last.
        #[serde(default, skip_serializing_if = "Option::is_none")] lost: Option<(Pos, Pos)>,
    } content [];
    /// The workspace that Piton made for the session is gone, and an empty one takes its place. The agent
    /// starts fresh: its conversation, whose id is kept, is about files that are not there.
    WorkspaceRecreated = "workspace.recreated" { execution_id: ExecutionId, } content [];
    /// The agent itself said that it does not know its session id.
    AgentSessionCleared = "agent.session_cleared" {
        execution_id: ExecutionId,
        /// The id that it does not know; absent: the one that the session had.
        #[serde(default, skip_serializing_if = "Option::is_none")] agent_session_id: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] reason: Option<Reason>,
    } content [];
    /// A user chose a mode, a model or config options. Applied to the running agent and at every
    /// later start.
    AgentConfigured = "agent.configured" { #[serde(flatten)] choice: Configure, } content [];

    /// The session's agent gets these MCP servers with every conversation that it opens.
    AgentMcpServersSet = "agent.mcp_servers_set" { count: u64, } content ["servers"];
    /// The agent is about to be ended, because it was idle or a user stopped it. `agent.exited` follows.
    AgentEnding = "agent.ending" { execution_id: ExecutionId, reason: Reason, } content [];

    /// The agent is not started before this time, for this reason: some agents cannot load their
    /// conversation at once.
    AgentWaiting = "agent.waiting" { until: Timestamp, reason: Reason, } content [];

    /// The status after a recovery or a sweep, for readers of the log. It is no authority.
    StatusDerived = "status.derived" {
        status: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] reason: Option<Reason>,
    } content [];
    /// The prompt as the agent receives it: the user's text, and what the agent does not know any
    /// more (history, interruption summary).
    PromptPrepared = "prompt.prepared" {
        of_seq: Seq,
        run_id: RunId,
        execution_id: ExecutionId,
        /// It tells the history.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] history: bool,
        /// It says what an interruption cost.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] interruption_summary: bool,
    } content ["prompt"];
    /// An effect that followed from the log was carried out.
    EffectDone = "effect.done" { of_seq: Seq, } content [];
    /// The content of another record was redacted; this says when and why.
    RecordRedacted = "record.redacted" {
        target_seq: Seq,
        #[serde(default, skip_serializing_if = "Option::is_none")] reason: Option<String>,
    } content [];

    /// A client requested what the records before it, in the same batch, say. In a session's log or
    /// the metadata log.
    RequestAccepted = "request.accepted" {
        /// Who asked.
        principal: String,
        /// What was asked, as the API names it.
        action: String,
        /// BLAKE3 of principal, path and idempotency key, in hex, if the caller gave a key.
        #[serde(default, skip_serializing_if = "Option::is_none")] key: Option<String>,
        /// BLAKE3 of what was asked, in hex: the same key must not stand for something else.
        #[serde(default, skip_serializing_if = "Option::is_none")] digest: Option<String>,
    } content ["response"];
}
