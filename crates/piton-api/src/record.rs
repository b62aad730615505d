//! What a session's log says: records, the conversation, and whether the log is whole.

use piton_core::conversation::{self, Item};
use piton_core::id::SessionId;
use piton_core::transcript::{Outcome, Text};
use piton_core::{PromptContent, Seq, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agent_view::AgentView;
use crate::enums::{Channel, Code, Reason, ToolState, ToolStatus};
use crate::queue::Queue;
use crate::status::SessionStatus;
use crate::task::Task;

/// A larger prompt is shown without its content, which its record has.
const CONTENT_BYTES_MAX: usize = 16 * 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct RecordQuery {
    /// The last seq that is known; without one the log is read from its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Seq>,
    /// How many records are read.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Where a stream of records begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct StreamQuery {
    /// The last seq that is known: the stream begins after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Seq>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RecordPage {
    /// As the log has them: `seq`, `ts`, `kind` and the kind's fields.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub records: Vec<Value>,
    /// The last seq of this page; null at the end of the log.
    pub next: Option<Seq>,
}

/// Something in a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[expect(clippy::large_enum_variant, reason = "most of a page are the large ones")]
pub enum Message {
    User {
        seq: Seq,
        #[cfg_attr(feature = "openapi", schema(value_type = String))]
        ts: Timestamp,
        message_id: String,
        run_id: Option<String>,
        /// Attachments are named in it.
        text: Option<String>,
        /// Null if it was redacted or has more than 16 KiB: the record of `seq` has it.
        #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::queue::schema::PromptContent>))]
        content: Option<PromptContent>,
    },
    Agent {
        seq: Seq,
        #[cfg_attr(feature = "openapi", schema(value_type = String))]
        ts: Timestamp,
        message_id: String,
        run_id: Option<String>,
        channel: Channel,
        text: Option<String>,
        complete: bool,
        /// A part of what the agent said is missing: it was over a limit.
        #[serde(default)]
        truncated: bool,
    },
    Tool {
        seq: Seq,
        #[cfg_attr(feature = "openapi", schema(value_type = String))]
        ts: Timestamp,
        /// When its outcome was known.
        #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
        ended_at: Option<Timestamp>,
        call_id: String,
        run_id: String,
        name: Option<String>,
        /// One line for people, if the agent said one.
        title: Option<String>,
        /// The kind of tool, as the agent spells it: `read`, `edit`, `execute`, …
        kind: Option<String>,
        #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
        arguments: Option<Value>,
        /// What the call shows, as the Agent Client Protocol has it: text, diffs, terminals.
        #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<Object>>))]
        content: Option<Value>,
        #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<Object>>))]
        locations: Option<Value>,
        status: ToolStatus,
        #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
        result: Option<Value>,
    },
    /// Something that happened to the conversation.
    Notice {
        seq: Seq,
        #[cfg_attr(feature = "openapi", schema(value_type = String))]
        ts: Timestamp,
        /// The kind of its record: `run.interrupted`, `run.failed`, `agent.error`, …
        kind: String,
        run_id: Option<String>,
        reason: Option<Reason>,
        code: Option<Code>,
        /// Of an error: what it says.
        text: Option<String>,
    },
}

fn shown(text: Text) -> Option<String> {
    match text {
        Text::Whole(text) => Some(text),
        Text::Redacted => None,
    }
}

impl From<Item> for Message {
    fn from(item: Item) -> Self {
        match item {
            Item::User(conversation::User { seq, ts, message_id, run_id, text, content }) => {
                let is_small = |content: &PromptContent| {
                    let bytes: usize =
                        content.blocks().iter().map(piton_core::content::Block::bytes).sum();
                    bytes <= CONTENT_BYTES_MAX
                };
                Self::User {
                    seq,
                    ts,
                    message_id: message_id.to_string(),
                    run_id: run_id.map(|id| id.to_string()),
                    text: shown(text),
                    content: content.filter(is_small),
                }
            }
            Item::Agent(agent) => Self::Agent {
                seq: agent.seq,
                ts: agent.ts,
                message_id: agent.message_id.to_string(),
                run_id: agent.run_id.map(|id| id.to_string()),
                channel: agent.channel.into(),
                text: shown(agent.text),
                complete: agent.complete,
                truncated: agent.truncated,
            },
            Item::Tool(tool) => {
                let (status, result) = match tool.outcome {
                    Outcome::Known { status, result } => (status.into(), result),
                    Outcome::Pending => (ToolState::Pending, None),
                    Outcome::Unknown => (ToolState::Unknown, None),
                };
                Self::Tool {
                    seq: tool.seq,
                    ts: tool.ts,
                    ended_at: tool.ended_at,
                    call_id: tool.call_id.to_string(),
                    run_id: tool.run_id.to_string(),
                    name: tool.name,
                    title: tool.title,
                    kind: tool.kind,
                    arguments: tool.arguments,
                    content: tool.content,
                    locations: tool.locations,
                    status: status.into(),
                    result,
                }
            }
            Item::Notice(notice) => Self::Notice {
                seq: notice.seq,
                ts: notice.ts,
                kind: notice.kind.to_owned(),
                run_id: notice.run_id.map(|id| id.to_string()),
                reason: notice.reason.map(Into::into),
                code: notice.code.map(Into::into),
                text: notice.text,
            },
        }
    }
}

/// Which messages are shown: those after a record, or the last ones before one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct MessageQuery {
    /// The last seq that is known; without `after` and `before` the log is read from its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Seq>,
    /// The last messages that begin before this seq, whole: to page back. Not together with `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Seq>,
    /// How many records are read; with `before`, how many messages are shown.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct BootstrapQuery {
    /// How many messages are shown, the last ones; 100 by default.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// All that a screen needs to show a session, as of one record of its log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionBootstrap {
    pub status: SessionStatus,
    /// Null if the session belongs to none, or to one that was deleted.
    pub task: Option<Task>,
    /// The last messages, whole.
    pub messages: Vec<Message>,
    /// Where older messages are: the `before` of `GET …/messages`; null if there are none.
    pub before: Option<Seq>,
    pub queue: Queue,
    pub agent: AgentView,
    /// Everything here is as of this record: the session's events continue after it.
    pub last_seq: Seq,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MessagePage {
    /// In order. What began before the window shows its rest, except with `before`; a redacted text is
    /// null.
    pub messages: Vec<Message>,
    /// The last seq of this page; null at the end of the log, and with `before`.
    pub next: Option<Seq>,
    /// With `before`: where still older messages are; null if there are none.
    #[serde(default)]
    pub before: Option<Seq>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Verification {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    /// Whether everything is as it was written.
    pub good: bool,
    /// Records that are good, from the first on.
    pub good_to: Seq,
    /// The first thing that is wrong.
    pub problem: Option<String>,
    pub anchored_to: Option<Seq>,
}
