//! What was said and done, as an agent needs it: the conversation without what only a reader sees.

use serde_json::Value;

use crate::conversation;
use crate::event::{self, Seq, ToolStatus};
use crate::id::{CallId, MessageId, RunId};
use crate::record::Record;

#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    User {
        seq: Seq,
        message_id: MessageId,
        text: Text,
    },
    Agent {
        seq: Seq,
        message_id: MessageId,
        text: Text,
        complete: bool,
        /// A part of it was left out, because it was over a limit.
        truncated: bool,
    },
    Tool {
        seq: Seq,
        call_id: CallId,
        name: Option<String>,
        arguments: Option<Value>,
        outcome: Outcome,
    },
}

/// A message's text, or the fact that some of it was taken out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    Whole(String),
    Redacted,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Known {
        status: ToolStatus,
        result: Option<Value>,
    },
    /// It runs now.
    Pending,
    /// The outcome is not known.
    Unknown,
}

/// Builds the view. `live` is the run that an agent works on at this moment, if any: its calls
/// without outcome are pending, all others unknown.
pub fn build<'a>(
    records: impl IntoIterator<Item = &'a Record>,
    live: Option<&RunId>,
) -> Result<Vec<Item>, event::ParseError> {
    let items = conversation::build(records, live)?;
    Ok(items.into_iter().filter_map(Item::of).collect())
}

impl Item {
    /// `None` for what is not said or done by the user or the agent.
    pub fn of(item: conversation::Item) -> Option<Self> {
        match item {
            conversation::Item::User(user) => {
                let conversation::User { seq, message_id, text, .. } = user;
                Some(Self::User { seq, message_id, text })
            }
            conversation::Item::Agent(agent) => {
                let conversation::Agent { seq, message_id, text, complete, truncated, .. } = agent;
                Some(Self::Agent { seq, message_id, text, complete, truncated })
            }
            conversation::Item::Tool(tool) => {
                let conversation::Tool { seq, call_id, name, arguments, outcome, .. } = *tool;
                Some(Self::Tool { seq, call_id, name, arguments, outcome })
            }
            conversation::Item::Notice(_) => None,
        }
    }
}

impl Text {
    pub(crate) fn push(&mut self, piece: Self) {
        match (&mut *self, piece) {
            (Self::Whole(text), Self::Whole(piece)) => text.push_str(&piece),
            _ => *self = Self::Redacted,
        }
    }
}

impl Outcome {
    /// The first known outcome counts; `unknown` gives way to a late one.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self, Self::Known { status, .. } if *status != ToolStatus::Unknown)
    }
}
