//! What a session's log says: records, the conversation, and whether the log is whole.

use piton_core::Seq;
use piton_core::id::SessionId;
use piton_core::transcript::{Item, Outcome, Text};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::enums::{ToolState, ToolStatus};

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
pub enum Message {
    User {
        seq: Seq,
        message_id: String,
        text: Option<String>,
    },
    Agent {
        seq: Seq,
        message_id: String,
        text: Option<String>,
        complete: bool,
        /// A part of what the agent said is missing: it was over a limit.
        #[serde(default)]
        truncated: bool,
    },
    Tool {
        seq: Seq,
        call_id: String,
        name: Option<String>,
        #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
        arguments: Option<Value>,
        status: ToolStatus,
        #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
        result: Option<Value>,
    },
}

impl From<Item> for Message {
    fn from(item: Item) -> Self {
        let shown = |text: Text| match text {
            Text::Whole(text) => Some(text),
            Text::Redacted => None,
        };
        match item {
            Item::User { seq, message_id, text } => {
                Self::User { seq, message_id: message_id.to_string(), text: shown(text) }
            }
            Item::Agent { seq, message_id, text, complete, truncated } => {
                let message_id = message_id.to_string();
                Self::Agent { seq, message_id, text: shown(text), complete, truncated }
            }
            Item::Tool { seq, call_id, name, arguments, outcome } => {
                let (status, result) = match outcome {
                    Outcome::Known { status, result } => (status.into(), result),
                    Outcome::Pending => (ToolState::Pending, None),
                    Outcome::Unknown => (ToolState::Unknown, None),
                };
                let call_id = call_id.to_string();
                Self::Tool { seq, call_id, name, arguments, status: status.into(), result }
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MessagePage {
    /// In order. What began before the window shows its rest; a redacted text is null.
    pub messages: Vec<Message>,
    /// The last seq of this page; null at the end of the log.
    pub next: Option<Seq>,
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
