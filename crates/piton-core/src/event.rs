//! What a record can say. One declaration per kind names its header fields (whatever the fold
//! reads) and its content fields (text, arguments, results: encrypted, maskable, redactable).
//!
//! An event is the *typed view* of a record's header. The record itself keeps the bytes that were
//! written, so kinds and fields of a newer program pass through this one unchanged.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::access::Scope;
use crate::agent_view::Configure;
use crate::code::AnyCode;
use crate::graph::{CheckpointType, Reducer};
use crate::id::{
    AccessTokenId, BootId, CallId, CheckpointId, ExecutionId, MessageId, RunId, SessionId, TaskId,
    TokenId, WaitId,
};
use crate::interruption::Activity;
use crate::permission::Action;
use crate::reason::Reason;
use crate::resume::{Context, StartTrigger, Strategy};
use crate::spool::{AgentInfo, AuthMethod, Channel, OpenedAs, Pos, SessionCapabilities};
use crate::time::Timestamp;
use crate::worktree::WorktreePlan;

/// Version of the record schema that this program writes.
pub const SCHEMA_VERSION: u32 = 2;

/// Position in a session's log: 1, 2, 3, … without gaps; 0 is before the first record.
pub type Seq = u64;

/// How a run or a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Completed,
    Failed,
    Cancelled,
}

/// What a wait waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    Input,
    Permission,
    ToolResult,
    Human,
    /// Written by a newer program; its spelling stays in the record.
    #[serde(other)]
    Other,
}

/// What became of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    Succeeded,
    Failed,
    Cancelled,
    /// The outcome is not known: it may have happened, wholly or in part.
    #[serde(other)]
    Unknown,
}

/// What a token is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenPurpose {
    /// To answer one wait.
    Wait,
    /// To resume one interrupted run.
    Interruption,
}

/// A wait's new deadline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitDeadline {
    pub wait_id: WaitId,
    pub deadline_at: Timestamp,
}

/// The conversation that a session begins with a copy of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fork {
    pub from_session_id: SessionId,
    /// Where that session's log stood.
    pub from_seq: Seq,
    /// The agent's own id of that conversation.
    pub from_agent_session_id: String,
}

/// A run that was open before the first record that was adopted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdoptedRun {
    pub run_id: RunId,
    pub boot_id: BootId,
    pub started_at: Timestamp,
}

/// A header that could not be read as its kind demands.
#[derive(Debug, thiserror::Error)]
#[error("The header of a {kind} record is not readable")]
pub struct ParseError {
    pub kind: String,
    #[source]
    pub source: serde_json::Error,
}

/// A kind that this program does not know.
#[derive(Clone, Debug, PartialEq)]
pub struct Unknown {
    pub kind: String,
    /// A program that does not know a critical kind must not write behind it.
    pub critical: bool,
}

macro_rules! events {
    ($(
        $(#[$doc:meta])*
        $name:ident = $kind:literal {
            $($(#[$fmeta:meta])* $field:ident : $type:ty,)*
        } content [$($content:literal),*];
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
            pub struct $name {
                $($(#[$fmeta])* pub $field: $type,)*
            }

            impl From<$name> for Event {
                fn from(event: $name) -> Self {
                    Self::$name(event)
                }
            }
        )*

        /// The typed view of a record's header.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Event {
            $($(#[$doc])* $name($name),)*
            Unknown(Unknown),
        }

        /// Every kind this program knows, with its content fields.
        pub const KINDS: &[(&str, &[&str])] = &[$(($kind, &[$($content),*]),)*];

        impl Event {
            pub fn kind(&self) -> &str {
                match self {
                    $(Self::$name(_) => $kind,)*
                    Self::Unknown(unknown) => &unknown.kind,
                }
            }

            pub fn parse(kind: &str, header: &str) -> Result<Self, ParseError> {
                let parsed = match kind {
                    $($kind => serde_json::from_str(header).map(Self::$name),)*
                    _ => serde_json::from_str::<UnknownHeader>(header).map(|header| {
                        Self::Unknown(Unknown { kind: kind.to_owned(), critical: header.critical })
                    }),
                };
                parsed.map_err(|source| ParseError { kind: kind.to_owned(), source })
            }

            /// The header as it is written. An unknown event has none of its own to write.
            pub fn header_json(&self) -> Option<String> {
                match self {
                    $(Self::$name(event) => serde_json::to_string(event).ok(),)*
                    Self::Unknown(_) => None,
                }
            }
        }
    };
}

#[derive(Deserialize)]
struct UnknownHeader {
    #[serde(default)]
    critical: bool,
}

/// Marks a kind that a program which does not know it must not write behind: in the header
/// `"critical": true`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Critical;

impl Serialize for Critical {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(true)
    }
}

impl<'de> Deserialize<'de> for Critical {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        bool::deserialize(deserializer).map(|_| Self)
    }
}

/// The content fields of a kind; none for kinds that this program does not know.
pub fn content_fields(kind: &str) -> &'static [&'static str] {
    KINDS.iter().find(|(known, _)| *known == kind).map_or(&[], |(_, fields)| fields)
}

events! {
    /// The first record of a session's log.
    SessionCreated = "session.created" {
        session_id: SessionId,
        #[serde(default, skip_serializing_if = "Option::is_none")] title: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] task_id: Option<TaskId>,
        #[serde(default, skip_serializing_if = "Option::is_none")] working_dir: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] provider: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")] agent_profile_id: Option<String>,
    } content [];
    /// The first record of an adopted log, which another program began: it stands for the records
    /// before it, as the snapshot beside that log describes them. `run` is the run that they left
    /// open.
    SessionAdopted = "session.adopted" {
        session_id: SessionId,
        created_at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")] title: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] working_dir: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] provider: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")] run: Option<AdoptedRun>,
    } content [];
    /// The session has a new title, or none any more.
    SessionRenamed = "session.renamed" {
        #[serde(default, skip_serializing_if = "Option::is_none")] title: Option<String>,
    } content [];
    /// The only end of a session.
    SessionClosed = "session.closed" {
        outcome: Outcome,
        #[serde(default, skip_serializing_if = "Option::is_none")] reason: Option<Reason>,
    } content [];
    /// The session begins with a copy of another session's conversation: its agent makes the copy when
    /// it is first started.
    SessionForked = "session.forked" { #[serde(flatten)] fork: Fork, } content [];
    /// A boot became the session's one writer.
    SessionLeased = "session.leased" { boot_id: BootId, epoch: u64, } content [];
    /// The writer stepped back while it lives.
    SessionReleased = "session.released" { boot_id: BootId, epoch: u64, } content [];

    /// An agent was assigned to the session.
    SessionAgentAssigned = "session.agent_assigned" { agent_profile_id: String, } content [];

    /// A prompt, as the user sent it.
    MessageUser = "message.user" {
        message_id: MessageId,
        #[serde(default, skip_serializing_if = "Option::is_none")] run_id: Option<RunId>,
    } content ["content"];
    /// A piece of the agent's text; `offset` in UTF-8 bytes from the message's beginning.
    MessageDelta = "message.delta" {
        message_id: MessageId,
        #[serde(default, skip_serializing_if = "Option::is_none")] run_id: Option<RunId>,
        offset: u64,
        length: u64,
        #[serde(default, skip_serializing_if = "Channel::is_answer")] channel: Channel,
        /// How much the agent had sent with this piece, where masking made it another length or
        /// another text: its offsets are about what it sent.
        #[serde(default, skip_serializing_if = "Option::is_none")] sent: Option<u64>,
    } content ["text"];
    /// The end of a streamed message: its length in bytes and the BLAKE3 hash of its text.
    MessageCompleted = "message.completed" {
        message_id: MessageId,
        length: u64,
        hash: String,
    } content [];

    /// A prompt that waits until the run ends. Delivered, it is a `message.user` of the same id in
    /// the batch that starts its run.
    PromptQueued = "prompt.queued" {
        message_id: MessageId,
        /// The run that it will start.
        run_id: RunId,
        /// It stands before those that were there.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] first: bool,
        #[serde(default)] critical: Critical,
    } content ["content"];
    /// The text of a queued prompt was changed.
    PromptEdited = "prompt.edited" {
        message_id: MessageId,
        #[serde(default)] critical: Critical,
    } content ["content"];
    /// A queued prompt was moved; the first position is 1.
    PromptMoved = "prompt.moved" {
        message_id: MessageId,
        position: u32,
        #[serde(default)] critical: Critical,
    } content [];
    /// A queued prompt was removed and will not be delivered.
    PromptRemoved = "prompt.removed" {
        message_id: MessageId,
        #[serde(default)] critical: Critical,
    } content [];
    /// Held prompts are delivered again. An interruption, a failure or a cancellation of a run holds
    /// them.
    QueueReleased = "queue.released" { #[serde(default)] critical: Critical, } content [];

    /// A tool call, before it runs.
    ToolIntent = "tool.intent" { call_id: CallId, run_id: RunId, name: String, } content ["arguments"];
    /// What a tool call reported before its outcome.
    ToolUpdated = "tool.updated" {
        call_id: CallId,
        #[serde(default, skip_serializing_if = "Option::is_none")] run_id: Option<RunId>,
    } content ["update"];
    /// A tool call, after it ran.
    ToolOutcome = "tool.outcome" { call_id: CallId, run_id: RunId, status: ToolStatus, } content ["result"];

    /// A run begins; `boot_id` is the process that runs it.
    RunStarted = "run.started" {
        run_id: RunId,
        boot_id: BootId,
        #[serde(default, skip_serializing_if = "Option::is_none")] message_id: Option<MessageId>,
    } content [];
    /// The run needs something from outside. With an open `wait_id`: it is blocked on it again.
    RunWaiting = "run.waiting" {
        run_id: RunId,
        #[serde(default, skip_serializing_if = "Option::is_none")] wait_id: Option<WaitId>,
        wait_kind: WaitKind,
        #[serde(default, skip_serializing_if = "Option::is_none")] resume_token_id: Option<TokenId>,
        #[serde(default, skip_serializing_if = "Option::is_none")] deadline_at: Option<Timestamp>,
        /// The ids of the options that reject what is asked.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] reject_options: Vec<String>,
    } content ["question"];
    /// The run continues: with the answer to a wait, or after a pause or an interruption.
    RunResumed = "run.resumed" {
        run_id: RunId,
        boot_id: BootId,
        #[serde(default, skip_serializing_if = "Option::is_none")] wait_id: Option<WaitId>,
        #[serde(default, skip_serializing_if = "Option::is_none")] resume_token_id: Option<TokenId>,
        /// The answer rejects what was asked.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] rejected: bool,
    } content ["answer"];
    /// A new boot found the run's agent alive and took it over.
    RunReattached = "run.reattached" {
        run_id: RunId,
        boot_id: BootId,
        #[serde(default, skip_serializing_if = "Vec::is_empty")] deadlines: Vec<WaitDeadline>,
    } content [];
    /// A client paused the run.
    RunPaused = "run.paused" { run_id: RunId, } content [];
    /// The agent ended its turn.
    RunCompleted = "run.completed" {
        run_id: RunId,
        /// Why the agent stopped, as it spelled it.
        #[serde(default, skip_serializing_if = "Option::is_none")] stop_reason: Option<String>,
        /// A part of what the agent said was left out: it was over a limit.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] truncated: bool,
    } content [];
    /// The run ended with an error.
    RunFailed = "run.failed" {
        run_id: RunId,
        #[serde(default, skip_serializing_if = "Option::is_none")] code: Option<AnyCode>,
    } content ["error"];
    /// A client cancelled the run, or a new prompt took its place.
    RunCancelled = "run.cancelled" {
        run_id: RunId,
        #[serde(default, skip_serializing_if = "Option::is_none")] reason: Option<Reason>,
    } content [];
    /// The run stopped although no one asked for it.
    RunInterrupted = "run.interrupted" {
        run_id: RunId,
        reason: Reason,
        #[serde(default, skip_serializing_if = "Option::is_none")] boot_id: Option<BootId>,
        /// What the run was doing.
        #[serde(default, skip_serializing_if = "Option::is_none")] phase: Option<Activity>,
        /// How the agent said that its turn ended, where that is not believed: as cancelled though no
        /// cancel was requested, or just before it ended by a signal. With it a completed run is
        /// interrupted, too.
        #[serde(default, skip_serializing_if = "Option::is_none")] stop_reason: Option<String>,
    } content [];
    /// A client decided not to continue an interrupted run.
    RunDismissed = "run.dismissed" { run_id: RunId, } content [];
    /// A wait ended without an answer; the agent receives `cancelled` and continues.
    WaitCancelled = "wait.cancelled" { run_id: RunId, wait_id: WaitId, reason: Reason, } content [];

    /// A standing rule answers a permission request; the records after it, in the same batch, say so.
    PermissionDecided = "permission.decided" {
        run_id: RunId,
        wait_id: WaitId,
        action: Action,
        /// The rule's name, or its number.
        rule: String,
        option_id: String,
    } content [];

    /// A resume token was created.
    TokenMinted = "token.minted" {
        token_id: TokenId,
        run_id: RunId,
        purpose: TokenPurpose,
        #[serde(default, skip_serializing_if = "Option::is_none")] wait_id: Option<WaitId>,
        #[serde(default, skip_serializing_if = "Option::is_none")] wait_kind: Option<WaitKind>,
        /// BLAKE3 of the secret, in hex; the secret itself is never written.
        hash: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] expires_at: Option<Timestamp>,
    } content [];
    /// A resume token was used. Keeps what a retry needs to get the first result again.
    TokenConsumed = "token.consumed" {
        token_id: TokenId,
        run_id: RunId,
        answer_digest: String,
        result_seq: Seq,
    } content [];
    /// A resume token was revoked before it was used.
    TokenRevoked = "token.revoked" { token_id: TokenId, reason: Reason, } content [];
    /// A resume token was not used in time.
    TokenExpired = "token.expired" { token_id: TokenId, } content [];

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
        /// The conversation that it was to go on with, or to fork.
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
    /// The agent is about to be ended, because it was idle. `agent.exited` follows.
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
        /// BLAKE3 of principal, path and idempotency key, in hex, if the asker gave a key.
        #[serde(default, skip_serializing_if = "Option::is_none")] key: Option<String>,
        /// BLAKE3 of what was asked, in hex: the same key must not stand for something else.
        #[serde(default, skip_serializing_if = "Option::is_none")] digest: Option<String>,
    } content ["response"];

    /// The session runs this graph from now on. `spec_hash` is the digest of the content's canonical
    /// form. The only critical kind of a graph: every log that has the others has this one first.
    GraphBound = "graph.bound" {
        name: String,
        spec_hash: String,
        #[serde(default)] critical: Critical,
    } content ["spec"];
    /// The log begins with a copy of another session's graph records, up to a checkpoint of it.
    GraphForked = "graph.forked" {
        from_session_id: SessionId,
        from_checkpoint_id: CheckpointId,
        from_seq: Seq,
    } content [];
    /// A node begins an attempt. `visit` counts how often a cycle led to it.
    NodeStarted = "node.started" { path: String, visit: u32, attempt: u32, } content [];
    /// A node completed. In the same batch: what it wrote, its outputs and the edges that are taken.
    NodeCompleted = "node.completed" {
        path: String,
        visit: u32,
        attempt: u32,
        latency_ms: u64,
    } content [];
    /// An attempt failed. With `retry_at` another one follows.
    NodeFailed = "node.failed" {
        path: String,
        visit: u32,
        attempt: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")] code: Option<AnyCode>,
        #[serde(default, skip_serializing_if = "Option::is_none")] retry_at: Option<Timestamp>,
    } content ["error"];
    /// No edge to the node is taken in this visit.
    NodeSkipped = "node.skipped" { path: String, visit: u32, } content [];
    /// A node in its middle: what it wrote so far is kept for its next attempt, and private.
    NodeSafePoint = "node.safe_point" {
        path: String,
        visit: u32,
        attempt: u32,
    } content ["description", "writes"];
    /// An edge is taken. One that closes a cycle names the nodes that get another visit.
    EdgeTaken = "edge.taken" {
        from: String,
        to: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")] resets: Vec<String>,
    } content [];
    /// A key of the shared memory has another value: the content, or what a reducer makes of the old
    /// value and the content. Of an excluded key only that it was set.
    MemoryChanged = "memory.changed" {
        key: String,
        /// The node that wrote it; `None`: an input, or a user who set it.
        #[serde(default, skip_serializing_if = "Option::is_none")] path: Option<String>,
        /// How the content joins the old value; `None`: it takes its place.
        #[serde(default, skip_serializing_if = "Option::is_none")] reducer: Option<Reducer>,
        /// The value was not written, or masking changed it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] excluded: bool,
    } content ["value"];
    /// A node added an output of the graph.
    OutputAdded = "output.added" { key: String, path: String, } content ["value"];
    /// An iteration of a loop node is complete. `step` has the messages that it added to the
    /// conversation and the outputs that it set.
    LoopIterated = "loop.iterated" {
        path: String,
        visit: u32,
        iteration: u32,
        messages: u32,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] done: bool,
    } content ["step"];
    /// The list that a map node works on, before its first item.
    MapListed = "map.listed" { path: String, visit: u32, count: u32, } content ["items"];
    /// One item of a map node is complete.
    MapItemCompleted = "map.item_completed" {
        path: String,
        visit: u32,
        index: u32,
    } content ["value"];
    /// A position from which the graph can be resumed: right after this record.
    CheckpointCreated = "checkpoint.created" {
        checkpoint_id: CheckpointId,
        checkpoint_type: CheckpointType,
        lineage: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")] parent: Option<CheckpointId>,
        #[serde(default, skip_serializing_if = "Option::is_none")] current_node: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] next_node: Option<String>,
        is_clean: bool,
        can_resume_from: bool,
        /// It is shown without the memory, or without the conversations. Both are in the log.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] without_memory: bool,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] without_conversations: bool,
    } content ["description"];
    /// Checkpoints are listed no more: there were enough newer ones.
    CheckpointPruned = "checkpoint.pruned" { checkpoint_ids: Vec<CheckpointId>, } content [];
    /// A user deleted a checkpoint.
    CheckpointDeleted = "checkpoint.deleted" { checkpoint_id: CheckpointId, } content [];
    /// A checkpoint could not be restored; another one was taken.
    CheckpointDamaged = "checkpoint.damaged" {
        checkpoint_id: CheckpointId,
        #[serde(default, skip_serializing_if = "Option::is_none")] code: Option<AnyCode>,
    } content ["message"];
    /// The graph continues behind an older checkpoint. What came after that checkpoint stays in the
    /// log and counts no more.
    LineageStarted = "lineage.started" {
        lineage: u32,
        from_lineage: u32,
        from_seq: Seq,
        from_checkpoint_id: CheckpointId,
    } content [];

    /// In the metadata log: a task was created.
    TaskCreated = "task.created" { task_id: TaskId, title: String, } content [];
    /// In the metadata log: the task has another title.
    TaskUpdated = "task.updated" { task_id: TaskId, title: String, } content [];
    /// In the metadata log: a user says how the task ended, whatever its sessions say.
    TaskClosed = "task.closed" { task_id: TaskId, outcome: Outcome, } content [];
    /// In the metadata log: the task's state follows from its sessions again.
    TaskReopened = "task.reopened" { task_id: TaskId, } content [];
    /// In the metadata log: the task was deleted. Its sessions stay.
    TaskDeleted = "task.deleted" { task_id: TaskId, } content [];
    /// In the metadata log: an access token or a sign-in link was created.
    AccessTokenCreated = "access_token.created" {
        access_token_id: AccessTokenId,
        name: String,
        scopes: Vec<Scope>,
        /// BLAKE3 of the secret, in hex.
        hash: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] expires_at: Option<Timestamp>,
        /// Good once, to be exchanged for a lasting one.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] single_use: bool,
    } content [];
    /// In the metadata log: a sign-in link was used.
    AccessTokenUsed = "access_token.used" { access_token_id: AccessTokenId, } content [];
    /// In the metadata log: an access token was revoked.
    AccessTokenRevoked = "access_token.revoked" { access_token_id: AccessTokenId, } content [];
    /// In the metadata log: a refusal, or a change that no session's log contains.
    AuditRecorded = "audit.recorded" {
        #[serde(default, skip_serializing_if = "Option::is_none")] principal: Option<String>,
        action: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] target: Option<String>,
        outcome: String,
        /// How often, since the last one like it; once, if it is not said.
        #[serde(default, skip_serializing_if = "Option::is_none")] count: Option<u64>,
    } content [];
    /// In the metadata log: a session's log exists from here on, until a record says that it was
    /// deleted or archived. The store writes it by itself.
    SessionRegistered = "session.registered" { session_id: SessionId, } content [];
    /// In the metadata log: anchors were missing or damaged and were made again from the logs as
    /// they were then. A log that was cut before that does not show it.
    AnchorsRecreated = "anchors.recreated" {
        /// How many logs got a new anchor.
        logs: u64,
        reason: String,
    } content [];
    /// In the metadata log: a session's log was deleted.
    SessionDeleted = "session.deleted" {
        session_id: SessionId,
        last_seq: Seq,
        /// The log's last link, in hex: which log it was.
        #[serde(default, skip_serializing_if = "Option::is_none")] chain: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] reason: Option<String>,
    } content [];
    /// In the metadata log: a closed session's log was moved into a bundle.
    SessionArchived = "session.archived" {
        session_id: SessionId,
        last_seq: Seq,
        chain: String,
        /// The bundle's name in the archive folder.
        bundle: String,
        /// BLAKE3 of the bundle, in hex.
        digest: String,
    } content [];
    /// In the metadata log: a log was made from a bundle.
    SessionImported = "session.imported" {
        session_id: SessionId,
        last_seq: Seq,
        chain: String,
    } content [];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_kinds_parse_and_unknown_fields_do_not_disturb() {
        let header = r#"{"run_id":"run_9f5","boot_id":"boot_1","of_tomorrow":[1,2]}"#;
        let event = Event::parse("run.started", header).unwrap();
        assert_eq!(
            event,
            RunStarted {
                run_id: "run_9f5".parse().unwrap(),
                boot_id: "boot_1".parse().unwrap(),
                message_id: None
            }
            .into()
        );
    }

    #[test]
    fn unknown_kinds_say_whether_they_are_critical() {
        let event = Event::parse("graph.node", r#"{"critical":true,"x":1}"#).unwrap();
        assert_eq!(event, Event::Unknown(Unknown { kind: "graph.node".into(), critical: true }));
        assert!(Event::parse("graph.node", "[").is_err());
    }

    #[test]
    fn content_is_declared_per_kind() {
        assert_eq!(content_fields("tool.intent"), ["arguments"]);
        assert_eq!(content_fields("run.started"), [""; 0]);
        let mut kinds: Vec<_> = KINDS.iter().map(|(kind, _)| kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds.len(), KINDS.len(), "a kind is declared twice");
    }
}
