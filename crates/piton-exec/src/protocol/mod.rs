//! What a server and an agentctl say to each other: HTTP and WebSocket over a Unix socket.
//!
//! | request | answer |
//! |---|---|
//! | `GET /alive` | [`Alive`] |
//! | `GET /health` | [`Health`] |
//! | `GET /capabilities` | [`Capabilities`] |
//! | `POST /commands` with a [`Command`] | [`Reply`], or a [`Problem`] |
//! | `GET /stream?spool_id=S&after=POS` (WebSocket) | [`Frame`]s; the other side sends [`Ack`]s |
//! | `GET`, `PUT /files?path=P`, `GET /list?path=P` | see [`workspace`] |
//! | `GET /git/status`, `/git/diff`, `/git/log` | see [`workspace`] |
//! | `POST /git/truth` with a [`workspace::TruthRequest`] | [`workspace::Truth`]; from version 8 on |
//! | `GET`, `POST /shells`, `GET /shells/{id}` (WebSocket), `DELETE /shells/{id}` | see [`workspace`] |
//!
//! Every request carries `authorization: Bearer …` ([`bearer`]), the header [`EPOCH`] with the
//! caller's lease epoch, and [`PROTOCOL_HEADER`] with the version it speaks. A lower epoch than one
//! seen before is refused with `epoch_stale`; a higher one ends the streams of the lower ones.
//! `/health` is answered in every version, since it says which there are. `/alive` needs none of
//! these headers: an executor, which has no secrets, uses it to see whether agentctl answers.

pub mod workspace;

use std::path::PathBuf;

use piton_core::PromptContent;
use piton_core::agent_view::Configure;
use piton_core::id::{ExecutionId, RunId, SessionId, WaitId};
use piton_core::spool::{Entry, Pos, SessionCapabilities};
use piton_core::{AnyCode, Code};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use piton_core::command_line::{CommandLine, ConversationTarget, Output, PromptBy};
pub use piton_core::state::AgentStatus;

/// The newest version of the protocol that this program speaks. Versions below [`PROTOCOL_MIN`] came
/// before the first release, with other entries and commands: they are not spoken any more.
pub const PROTOCOL: u32 = 8;
/// From this version on `/git/truth` is answered.
pub const PROTOCOL_TRUTH: u32 = 8;
/// The oldest version that it still understands.
pub const PROTOCOL_MIN: u32 = 6;

pub const EPOCH: &str = "piton-epoch";
pub const PROTOCOL_HEADER: &str = "piton-protocol";

/// In the environment of every process of an execution; how its leftovers are found.
pub const MARKER: &str = "PITON_EXECUTION";
/// Beside it: which folder the execution has, since a copy of that has the same id.
pub const MARKER_FOLDER: &str = "PITON_EXECUTION_FOLDER";

/// The files in an execution's folder.
pub mod files {
    /// Locked for as long as agentctl lives; holds its pid.
    pub const LOCK: &str = "lock";
    /// Marks the execution as gone: an agentctl that finds this file does not begin.
    pub const GONE: &str = "gone";
    /// The spool's segments.
    pub const SPOOL: &str = "spool";
    /// The highest lease epoch that was seen.
    pub const EPOCH: &str = "epoch";
    /// agentctl's own log (bounded).
    pub const LOG: &str = "agentctl.log";
}

/// What agentctl is started with; through a descriptor, never by argument or environment.
#[derive(Clone, Serialize, Deserialize)]
pub struct Launch {
    pub session_id: SessionId,
    pub execution_id: ExecutionId,
    pub epoch: u64,
    /// The execution's folder; agentctl makes it its working folder, so that it may be moved.
    pub folder: PathBuf,
    pub socket: PathBuf,
    /// Where the agent works.
    pub workspace: PathBuf,
    /// 32 bytes in hex, from which bearer token and spool key are derived.
    pub secret: String,
    /// Values that must not reach the disk.
    #[serde(default)]
    pub mask_values: Vec<String>,
    /// Keys whose values must not; `None`: the usual ones.
    #[serde(default)]
    pub mask_keys: Option<Vec<String>>,
    #[serde(default)]
    pub limits: Limits,
    /// The newest protocol it may speak; one that this program does not know is the only one then.
    /// For tests of an upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_max: Option<u32>,
}

impl std::fmt::Debug for Launch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Launch({} of {})", self.execution_id, self.session_id)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// What may wait to be imported; beyond it the agent is not read from.
    pub spool_bytes_max: u64,
    /// Alone and idle for so long, it ends itself.
    pub idle_s_max: u64,
    /// One message of the agent.
    pub message_bytes_max: u64,
    /// How long the agent may take to answer `initialize` and to open its session.
    pub start_ms_max: u64,
    /// Between SIGTERM and SIGKILL.
    pub term_ms: u64,
    /// How long the agent may take to end a turn that was cancelled; then it is ended itself.
    pub cancel_ms_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            spool_bytes_max: 64 * 1024 * 1024,
            idle_s_max: 24 * 60 * 60,
            message_bytes_max: 32 * 1024 * 1024,
            start_ms_max: 60_000,
            term_ms: 2_000,
            cancel_ms_max: 30_000,
        }
    }
}

/// Nothing but that it lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alive {
    pub execution_id: ExecutionId,
    /// Which folder it has ([`Mark::folder`](crate::leftovers::Mark::folder)): who serves a copy of
    /// it must not take the original for its own.
    pub folder: String,
    pub protocol: (u32, u32),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// Oldest and newest version of the protocol that are spoken.
    pub protocol: (u32, u32),
    pub version: String,
    pub session_id: SessionId,
    pub execution_id: ExecutionId,
    pub pid: u32,
    /// The highest lease epoch seen.
    pub epoch: u64,
    pub spool: SpoolHealth,
    pub agent: AgentHealth,
    /// The turn that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Questions of the agent that wait for an answer.
    #[serde(default)]
    pub asking: Vec<WaitId>,
    /// Shells that are open.
    #[serde(default)]
    pub shells: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpoolHealth {
    pub spool_id: String,
    /// The first entry that is still there; what came before was acknowledged.
    pub first: Pos,
    pub last: Pos,
    pub acked: Pos,
    pub bytes: u64,
    /// Why the agent is not read from: the spool is full, or the disk refuses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHealth {
    /// `None`, on the wire `none`: workspace only, no agent was started.
    #[serde(with = "status_or_none")]
    pub status: Option<AgentStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_session_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    pub supports_session_resume: bool,
    pub supports_workspace_only: bool,
    pub capabilities: SessionCapabilities,
}

mod status_or_none {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::AgentStatus;

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum NoAgent {
        None,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Text {
        None(NoAgent),
        Some(AgentStatus),
    }

    #[expect(clippy::trivially_copy_pass_by_ref, clippy::ref_option, reason = "serde's signature")]
    pub(super) fn serialize<S: Serializer>(
        status: &Option<AgentStatus>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        status.map_or(Text::None(NoAgent::None), Text::Some).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<AgentStatus>, D::Error> {
        Ok(match Text::deserialize(deserializer)? {
            Text::None(NoAgent::None) => None,
            Text::Some(status) => Some(status),
        })
    }
}

/// Something to be done. A repeat under the same id is answered as the first was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Command {
    pub id: String,
    #[serde(flatten)]
    pub act: Act,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and most are sent at once")]
pub enum Act {
    /// Starts the agent. Answered when it is accepted; what became of it is in the stream.
    Start(Start),
    /// Gives the agent a prompt; the turn's end is in the stream.
    Prompt { run_id: RunId, content: PromptContent },
    /// Takes back a command that was not accepted so far: it is refused from now on. Answered with
    /// [`Withdrawn`]. Since version 7.
    Withdraw { command_id: String },
    /// Cancels a turn: sends the agent `session/cancel`, and answers open questions `cancelled`.
    Cancel { run_id: RunId },
    /// Answers a question of the agent. `None`: there will be no answer.
    Answer { wait_id: WaitId, answer: Option<Value> },
    /// Something else that the agent's protocol has: `set_mode`, `set_model`, `set_config_option`,
    /// `authenticate`, `list_sessions`, `fork_session`, `close_session`, `delete_session`.
    /// Answered with what the agent answers.
    Ask { method: String, params: Value },
    /// The conversations that the agent has, a page of them. Answered with [`AgentSessions`].
    ///
    /// [`AgentSessions`]: piton_core::spool::AgentSessions
    ListSessions {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<PathBuf>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cursor: Option<String>,
    },
    /// Lets the agent put away a conversation; not the one that it has open.
    CloseSession { agent_session_id: String },
    /// Lets the agent forget a conversation; not the one that it has open.
    DeleteSession { agent_session_id: String },
    /// Ends the agent and all that it left running; the workspace stays.
    Stop {},
    /// Ends the agent, and agentctl behind it.
    Close {},
}

impl Act {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Start(_) => "start",
            Self::Prompt { .. } => "prompt",
            Self::Withdraw { .. } => "withdraw",
            Self::Cancel { .. } => "cancel",
            Self::Answer { .. } => "answer",
            Self::Ask { .. } => "ask",
            Self::ListSessions { .. } => "list_sessions",
            Self::CloseSession { .. } => "close_session",
            Self::DeleteSession { .. } => "delete_session",
            Self::Stop {} => "stop",
            Self::Close {} => "close",
        }
    }
}

/// What became of a command that was to be withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withdrawn {
    /// It was accepted before, and is in the spool; else it never will be.
    pub accepted: bool,
}

/// How to start an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Added to agentctl's own environment.
    #[serde(default)]
    pub env: Vec<(String, String)>,
    /// Removed from it.
    #[serde(default)]
    pub env_remove: Vec<String>,
    /// Where it works; `None`: the workspace.
    #[serde(default)]
    pub cwd: Option<PathBuf>,
    /// Sent to the agent with every new, loaded and resumed session.
    #[serde(default)]
    pub mcp_servers: Vec<Value>,
    /// The conversation to resume.
    #[serde(default)]
    pub agent_session_id: Option<String>,
    /// A copy of that conversation instead, where the agent offers that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fork: bool,
    /// The agent's id of the way to log in, before a conversation is opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_method: Option<String>,
    /// How the agent is to work: given to it as soon as its conversation is open.
    #[serde(default, skip_serializing_if = "Configure::is_empty")]
    pub choice: Configure,
    /// Message ids of the agent that the log knows: a replay of them is not news.
    #[serde(default)]
    pub seen_message_ids: Vec<String>,
    /// Which of the agents that are known it is: what is special about it is looked up there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// What to tell people who do not have this program.
    #[serde(default)]
    pub install_hint: Option<String>,
    /// It speaks no protocol: each turn is a process of its own, with these arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_line: Option<CommandLine>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    pub id: String,
    /// It was done before, and this is what came of it then.
    #[serde(default)]
    pub replayed: bool,
    #[serde(default)]
    pub result: Value,
}

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    pub code: AnyCode,
    pub message: String,
}

impl Problem {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}

/// One frame of a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<Entry>,
    /// Positions that were asked for and are no longer there, first and last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<(Pos, Pos)>,
}

/// Why agentctl ends a stream: codes of a WebSocket's close frame.
pub mod closing {
    /// agentctl ends; everything was sent.
    pub const OVER: u16 = 1000;
    /// A client with a higher epoch has connected.
    pub const EPOCH_STALE: u16 = 4001;
    /// A later stream took its place.
    pub const REPLACED: u16 = 4002;
    /// What was sent makes no sense.
    pub const MALFORMED: u16 = 4003;
    /// The spool cannot be read.
    pub const UNREADABLE: u16 = 4004;
}

/// All up to here is durable elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    pub ack: Pos,
}

/// The token that every request carries, derived from an execution's secret.
pub fn bearer(secret: &[u8; 32]) -> String {
    hex::encode(blake3::derive_key("piton 2026 agentctl bearer token", secret))
}

/// The key that seals an execution's spool.
pub fn spool_key(secret: &[u8; 32]) -> [u8; 32] {
    blake3::derive_key("piton 2026 agentctl spool key", secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No agent is a word on the wire, as every other status is.
    #[test]
    fn a_health_without_an_agent_says_none() {
        for (status, word) in [(None, "none"), (Some(AgentStatus::Ready), "ready")] {
            let health = AgentHealth { status, ..AgentHealth::default() };
            let text = format!(r#"{{"status":"{word}"}}"#);
            assert_eq!(serde_json::to_string(&health).unwrap(), text);
            assert_eq!(serde_json::from_str::<AgentHealth>(&text).unwrap(), health);
        }
        assert!(serde_json::from_str::<AgentHealth>(r#"{"status":"other"}"#).is_err());
    }
}
