//! What a session's log says: records, the conversation, and whether the log is whole.

use std::borrow::Borrow;
use std::ops::Deref;

use piton_core::conversation::{self, Item};
use piton_core::graph::LineageStart;
use piton_core::id::SessionId;
use piton_core::record::Error;
use piton_core::transcript::{Outcome, Text};
use piton_core::{Event, PromptContent, Record, Seq, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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
    pub records: Vec<FlatRecord>,
    /// The last seq of this page; null at the end of the log.
    pub next: Option<Seq>,
}

/// A record as people and other programs read it: `seq`, `ts`, `kind` and the kind's fields, each as
/// the log has it. Kinds and fields of a newer program pass through.
///
/// Its fields can be read as of any JSON object; [`Self::event`] is the typed view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Value", try_from = "Map<String, Value>")]
pub struct FlatRecord {
    seq: Seq,
    fields: Value,
}

impl FlatRecord {
    pub fn seq(&self) -> Seq {
        self.seq
    }

    pub fn kind(&self) -> &str {
        self.fields["kind"].as_str().unwrap_or_default()
    }

    /// What the record says. A kind that this program does not know is `Event::Unknown`; an error if a
    /// known kind lacks a field.
    pub fn event(&self) -> Result<Event, Error> {
        Ok(self.to_record()?.event()?)
    }

    /// The record as the core has it.
    pub fn to_record(&self) -> Result<Record, Error> {
        let Value::Object(fields) = &self.fields else { return Err(Error::Field("seq")) };
        Record::from_flat(fields.clone())
    }

    pub fn into_value(self) -> Value {
        self.fields
    }
}

impl Deref for FlatRecord {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.fields
    }
}

impl Borrow<Value> for FlatRecord {
    fn borrow(&self) -> &Value {
        &self.fields
    }
}

impl From<FlatRecord> for Value {
    fn from(record: FlatRecord) -> Self {
        record.fields
    }
}

impl TryFrom<&Record> for FlatRecord {
    type Error = Error;

    fn try_from(record: &Record) -> Result<Self, Error> {
        record.to_flat()?.try_into()
    }
}

impl TryFrom<Map<String, Value>> for FlatRecord {
    type Error = Error;

    fn try_from(fields: Map<String, Value>) -> Result<Self, Error> {
        let seq = fields.get("seq").and_then(Value::as_u64).ok_or(Error::Field("seq"))?;
        // In place of a record that is damaged a stream has these two alone.
        fields.get("kind").and_then(Value::as_str).ok_or(Error::Field("kind"))?;
        Ok(Self { seq, fields: Value::Object(fields) })
    }
}

#[cfg(feature = "openapi")]
mod schema {
    use std::borrow::Cow;

    use utoipa::openapi::RefOr;
    use utoipa::openapi::schema::{
        AdditionalProperties, KnownFormat, ObjectBuilder, Schema, SchemaFormat, SchemaType, Type,
    };
    use utoipa::{PartialSchema, ToSchema};

    use super::FlatRecord;

    impl PartialSchema for FlatRecord {
        fn schema() -> RefOr<Schema> {
            let one = |kind: Type, what: &str| {
                ObjectBuilder::new().schema_type(SchemaType::new(kind)).description(Some(what))
            };
            let seq = one(Type::Integer, "The position in the log.")
                .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
                .minimum(Some(0));
            let what = "A record as the log has it: `seq`, `ts`, `kind` and the fields of the kind. Kinds \
                        and fields that a client does not know are to be ignored.";
            ObjectBuilder::new()
                .property("seq", seq)
                .property("ts", one(Type::String, "When it was written."))
                .property("kind", one(Type::String, "The kind of record: `run.started`, …"))
                .required("seq")
                .required("ts")
                .required("kind")
                .additional_properties(Some(AdditionalProperties::FreeForm(true)))
                .description(Some(what))
                .into()
        }
    }

    impl ToSchema for FlatRecord {
        fn name() -> Cow<'static, str> {
            Cow::Borrowed("FlatRecord")
        }
    }
}

/// An entry of a conversation.
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
        /// A rewind left it behind: it is not a part of the conversation as it is now.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        abandoned: bool,
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
        /// A rewind left it behind: it is not a part of the conversation as it is now.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        abandoned: bool,
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
        /// A rewind left it behind: it is not a part of the conversation as it is now.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        abandoned: bool,
    },
    /// An event of the conversation.
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
        /// Of a rewind: where it went back to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        checkpoint_id: Option<String>,
        /// Of a rewind of the conversation: its last record that is still a part of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from_seq: Option<Seq>,
        /// Of a rewind of the files: how many were restored.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        files: Option<u64>,
        /// A rewind left it behind: it is not a part of the conversation as it is now.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        abandoned: bool,
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
            Item::User(user) => {
                let conversation::User { seq, ts, message_id, run_id, text, content, abandoned } =
                    user;
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
                    abandoned,
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
                abandoned: agent.abandoned,
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
                    abandoned: tool.abandoned,
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
                checkpoint_id: notice.checkpoint_id.map(|id| id.to_string()),
                from_seq: notice.from_seq,
                files: notice.files,
                abandoned: notice.abandoned,
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
    /// Also what rewinds left behind, marked `abandoned`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abandoned: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct BootstrapQuery {
    /// How many messages are shown, the last ones; 100 by default.
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Also what rewinds left behind, marked `abandoned`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abandoned: Option<bool>,
}

/// How a lineage of the conversation began: a rewind continues behind an older record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lineage {
    pub lineage: u32,
    pub from_lineage: u32,
    /// The last record of the older lineage that belongs to this one, too.
    pub from_seq: Seq,
    /// The record that started it.
    pub at: Seq,
}

impl From<&LineageStart> for Lineage {
    fn from(start: &LineageStart) -> Self {
        let LineageStart { lineage, from_lineage, from_seq, at } = *start;
        Self { lineage, from_lineage, from_seq, at }
    }
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
    /// How the lineages of the conversation began, except the first; of a graph's session none.
    #[serde(default)]
    pub lineages: Vec<Lineage>,
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
    /// The log is intact.
    pub good: bool,
    /// All records up to this seq are intact.
    pub good_to: Seq,
    /// The first problem.
    pub problem: Option<String>,
    pub anchored_to: Option<Seq>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What passes through this type does not change by a byte, also what no program knows yet.
    #[test]
    fn a_record_is_as_it_was() {
        for line in [
            r#"{"seq":7,"ts":"2026-02-21T10:01:10.000Z","kind":"of.tomorrow","z":{"b":1,"a":[null]},"a":1.50}"#,
            r#"{"kind":"message.user","seq":8,"content":"x","message_id":"m","ts":"2026-02-21T10:01:10Z"}"#,
        ] {
            let record: FlatRecord = serde_json::from_str(line).unwrap();
            let value: Value = serde_json::from_str(line).unwrap();
            assert_eq!(serde_json::to_string(&record).unwrap(), value.to_string());
        }
    }

    #[test]
    fn a_record_has_a_typed_view() {
        let read = |line: &str| serde_json::from_str::<FlatRecord>(line);
        let ts = r#""ts":"2026-02-21T10:01:10.000Z""#;
        let user =
            format!(r#"{{"seq":8,{ts},"kind":"message.user","message_id":"m","content":"x"}}"#);
        let user = read(&user).unwrap();
        let Event::MessageUser(event) = user.event().unwrap() else { panic!("{user:?}") };
        assert_eq!((user.seq(), user.kind(), event.message_id.as_str()), (8, "message.user", "m"));
        assert_eq!(user.to_record().unwrap().content_field("content"), Some("x".into()));
        let unknown = read(&format!(r#"{{"seq":8,{ts},"kind":"of.tomorrow"}}"#)).unwrap();
        assert!(matches!(unknown.event(), Ok(Event::Unknown(_))));
        let lacking = read(&format!(r#"{{"seq":8,{ts},"kind":"message.user"}}"#)).unwrap();
        assert!(lacking.event().is_err());
        for wrong in ["[]", "{}", r#"{"seq":8}"#, r#"{"seq":"8","kind":"x"}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    /// A stream goes over a record that is damaged: a reader that stopped there would never get on.
    #[test]
    fn a_damaged_record_has_its_place() {
        let damaged = r#"{"seq":8,"kind":"run.started"}"#;
        let record: FlatRecord = serde_json::from_str(damaged).unwrap();
        assert_eq!((record.seq(), record.kind()), (8, "run.started"));
        assert!(record.event().is_err());
    }
}
