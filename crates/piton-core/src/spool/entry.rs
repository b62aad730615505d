//! One entry of a spool.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::code::AnyCode;
use crate::content::PromptCapabilities;
use crate::event::{ToolStatus, WaitKind};
use crate::id::{CallId, MessageId, RunId, WaitId};
use crate::planted::{self, Bug};
use crate::time::Timestamp;

/// Why a turn ends of whose prompt the agent takes nothing into its conversation.
pub const REFUSAL: &str = "refusal";

/// Version of the entries that this program writes.
pub const ENTRY_VERSION: u32 = 2;

/// Position in a spool: 1, 2, 3, … without gaps; 0 is before the first entry.
pub type Pos = u64;

/// How far a spool was imported. Committed together with what was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spool {
    pub spool_id: String,
    pub pos: Pos,
}

/// What happened, before it has its place in a spool.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// The run whose turn it belongs to.
    pub run_id: Option<RunId>,
    pub fact: Fact,
    /// As the agent said it, where `fact` does not say all of it.
    pub raw: Option<Value>,
    /// When it happened, if that was not just now.
    pub at: Option<Timestamp>,
}

/// One entry of a spool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub v: u32,
    pub pos: Pos,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    #[serde(flatten, deserialize_with = "tolerant")]
    pub fact: Fact,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<Value>,
}

/// Which of the agent's voices a text is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    /// What it answers.
    #[default]
    Answer,
    /// What it thinks aloud.
    Thought,
}

impl Channel {
    pub fn is_answer(&self) -> bool {
        *self == Self::Answer
    }
}

/// How the agent came to its conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpenedAs {
    New,
    Loaded,
    Resumed,
    Forked,
}

/// Why a question is no longer open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The agent was given the answer.
    Answered,
    /// The agent was told that no answer will come.
    Cancelled,
    /// The agent took it back, or is gone.
    Withdrawn,
}

/// Who the agent says it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentInfo {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// A way to log in that the agent has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthMethod {
    pub id: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// What the agent says it can do with its sessions, and what its prompts may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "a list of capabilities is a list of yes and no")]
pub struct SessionCapabilities {
    pub load: bool,
    pub resume: bool,
    pub list: bool,
    pub close: bool,
    pub delete: bool,
    pub fork: bool,
    /// Which blocks a prompt may have beside text and links.
    #[serde(skip_serializing_if = "PromptCapabilities::is_empty")]
    pub prompt: PromptCapabilities,
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Fact {
    /// A command was accepted, before anything was done about it. Flushed first.
    CommandAccepted {
        command_id: String,
        command: String,
    },

    AgentStarting {},
    AgentReady {
        opened_as: OpenedAs,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent_session_id: Option<String>,
        /// The conversation that it was to continue or to fork, whatever came of that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        requested_session_id: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<AgentInfo>,
        #[serde(default)]
        capabilities: SessionCapabilities,
    },
    /// The agent calls its conversation by another id than it was asked for.
    AgentSessionAssigned {
        agent_session_id: String,
    },
    /// The agent said itself that it does not know the session id it was given.
    AgentSessionRefused {
        code: i64,
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent_session_id: Option<String>,
    },
    /// It could not be started, or cannot go on. `message` ends with what it last wrote to stderr.
    AgentError {
        code: AnyCode,
        message: String,
        /// How one could log in, if that is what it wants.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        auth_methods: Vec<AuthMethod>,
    },
    AgentExited {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// It was stopped on request.
        #[serde(default)]
        requested: bool,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        stderr: String,
    },

    /// The prompt is about to be written to the agent. Flushed first.
    TurnStarted {},
    /// `stop_reason` as the agent spelled it.
    TurnEnded {
        stop_reason: String,
    },
    TurnFailed {
        code: AnyCode,
        message: String,
    },

    /// A piece of a message; `offset` in UTF-8 bytes of the text as written here.
    Text {
        message_id: MessageId,
        #[serde(default, skip_serializing_if = "Channel::is_answer")]
        channel: Channel,
        offset: u64,
        text: String,
    },
    /// A message ended; `hash` is the BLAKE3 of its text as written here.
    TextEnd {
        message_id: MessageId,
        length: u64,
        hash: String,
    },

    ToolCall {
        call_id: CallId,
        name: String,
        arguments: Value,
    },
    /// Progress of a call; not its outcome.
    ToolUpdate {
        call_id: CallId,
        update: Value,
    },
    ToolResult {
        call_id: CallId,
        status: ToolStatus,
        result: Value,
    },

    /// The agent needs something from outside and waits for it.
    WaitOpened {
        wait_id: WaitId,
        wait_kind: WaitKind,
        question: Value,
    },
    WaitEnded {
        wait_id: WaitId,
        why: Ended,
    },

    /// Plans, modes, config options, commands, usage, and whatever else an agent tells.
    Update {
        what: String,
        update: Value,
    },
    /// What the agent replayed is not what the log has.
    HistoryDiverged {
        unseen: u64,
        rest: Value,
    },
    /// Something was left out, and why: a message over the limit, a line that is no JSON.
    Dropped {
        why: String,
        bytes: u64,
    },

    /// Written by a newer agentctl.
    #[serde(skip)]
    Unknown {
        name: String,
        fields: Value,
    },
}

impl Entry {
    /// About how many bytes a log makes of it.
    pub fn weight(&self) -> usize {
        const SMALL: usize = 256;
        SMALL
            + match &self.fact {
                Fact::Text { text, .. } => text.len(),
                Fact::ToolCall { arguments: value, .. }
                | Fact::ToolUpdate { update: value, .. }
                | Fact::ToolResult { result: value, .. }
                | Fact::WaitOpened { question: value, .. }
                | Fact::Update { update: value, .. }
                | Fact::HistoryDiverged { rest: value, .. }
                | Fact::Unknown { fields: value, .. } => value.to_string().len(),
                _ => 0,
            }
    }
}

impl Fact {
    /// A caller waits for it to be on the disk, and for nothing else: it is flushed at once, and need not
    /// be in a log as soon.
    pub fn is_urgent(&self) -> bool {
        matches!(self, Self::CommandAccepted { .. })
    }

    /// Must be on the disk before anybody acts on it. Text only has to be written; that a turn has begun
    /// follows from the command that was accepted.
    pub fn is_flushed(&self) -> bool {
        if planted::is(Bug::ToolCallUnflushed) && matches!(self, Self::ToolCall { .. }) {
            return false;
        }
        !matches!(
            self,
            Self::Text { .. }
                | Self::ToolUpdate { .. }
                | Self::Update { .. }
                | Self::Dropped { .. }
                | Self::AgentStarting {}
                | Self::TurnStarted {}
        )
    }
}

/// A kind that this program does not know is kept as it is.
fn tolerant<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Fact, D::Error> {
    let fields = Value::deserialize(deserializer)?;
    let kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    match Fact::deserialize(&fields) {
        Ok(fact) => Ok(fact),
        Err(error) if KINDS.contains(&kind.as_str()) => Err(serde::de::Error::custom(error)),
        Err(_) => Ok(Fact::Unknown { name: kind, fields }),
    }
}

const KINDS: &[&str] = &[
    "command_accepted",
    "agent_starting",
    "agent_ready",
    "agent_session_assigned",
    "agent_session_refused",
    "agent_error",
    "agent_exited",
    "turn_started",
    "turn_ended",
    "turn_failed",
    "text",
    "text_end",
    "tool_call",
    "tool_update",
    "tool_result",
    "wait_opened",
    "wait_ended",
    "update",
    "history_diverged",
    "dropped",
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A fixed table, so that a kind whose rule changes by accident is noticed: what a reader acts on
    /// is on the disk first, what can be told again or only informs need not be.
    #[test]
    fn what_must_be_on_the_disk_before_anybody_acts_on_it() {
        let table = [
            ("command_accepted", true, json!({"command_id": "c", "command": "stop"})),
            ("agent_starting", false, json!({})),
            ("agent_ready", true, json!({"opened_as": "new"})),
            ("agent_session_assigned", true, json!({"agent_session_id": "a"})),
            ("agent_session_refused", true, json!({"code": 1, "message": "m"})),
            ("agent_error", true, json!({"code": "c", "message": "m"})),
            ("agent_exited", true, json!({})),
            ("turn_started", false, json!({})),
            ("turn_ended", true, json!({"stop_reason": "end_turn"})),
            ("turn_failed", true, json!({"code": "c", "message": "m"})),
            ("text", false, json!({"message_id": "m", "offset": 0, "text": "t"})),
            ("text_end", true, json!({"message_id": "m", "length": 1, "hash": "h"})),
            ("tool_call", true, json!({"call_id": "c", "name": "n", "arguments": {}})),
            ("tool_update", false, json!({"call_id": "c", "update": {}})),
            ("tool_result", true, json!({"call_id": "c", "status": "succeeded", "result": {}})),
            (
                "wait_opened",
                true,
                json!({"wait_id": "w", "wait_kind": "permission", "question": {}}),
            ),
            ("wait_ended", true, json!({"wait_id": "w", "why": "answered"})),
            ("update", false, json!({"what": "plan", "update": {}})),
            ("history_diverged", true, json!({"unseen": 1, "rest": []})),
            ("dropped", false, json!({"why": "line_too_long", "bytes": 1})),
        ];
        let kinds: Vec<_> = table.iter().map(|(kind, ..)| *kind).collect();
        assert_eq!(kinds, KINDS);
        for (kind, is_flushed, mut fields) in table {
            fields["kind"] = kind.into();
            let fact: Fact = serde_json::from_value(fields).unwrap();
            assert_eq!(fact.is_flushed(), is_flushed, "{kind}");
        }
        let unknown = Fact::Unknown { name: "later".to_owned(), fields: json!({}) };
        assert!(unknown.is_flushed(), "of what is not known the worst is expected");
    }
}
