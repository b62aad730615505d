//! Events of the WebSocket (`/api/v1/ws`): each is `{"event": NAME, "payload": {…}}`.

use piton_core::id::{ExecutionId, MessageId, RunId, SessionId, TaskId};
use piton_core::{Seq, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::agent_view::AgentChoice;
use crate::enums::{Channel, Code, Reason, SessionState, StatusName};
use crate::event::{DeletedSession, DeletedTask, Listing};
use crate::problem::Problem;
use crate::record::FlatRecord;
use crate::status::SessionSummary;
use crate::task::{TaskStateChanged, TaskSummary};

/// What a server pushes to a WebSocket: `session.*` after `session.subscribe`, the others after
/// `tasks.subscribe`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", content = "payload")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum SocketEvent {
    #[serde(rename = "session.state_changed")]
    StateChanged(Box<StateChanged>),
    #[serde(rename = "session.agentctl_starting")]
    AgentctlStarting(AgentctlStarting),
    #[serde(rename = "session.agentctl_ready")]
    AgentctlReady(AgentctlReady),
    #[serde(rename = "session.agentctl_error")]
    AgentctlError(Box<AgentctlError>),
    #[serde(rename = "session.agent_updated")]
    AgentUpdated(Box<AgentUpdated>),
    #[serde(rename = "session.agent_configured")]
    AgentConfigured(Box<AgentConfigured>),
    #[serde(rename = "session.message.added")]
    MessageAdded(Box<MessageAdded>),
    #[serde(rename = "session.message.updated")]
    MessageUpdated(Box<MessageUpdated>),
    #[serde(rename = "session.record")]
    Record(Box<RecordEvent>),
    #[serde(rename = "session.unsubscribed")]
    Unsubscribed(Box<Unsubscribed>),
    #[serde(rename = "listing")]
    Listing(Listing),
    #[serde(rename = "index")]
    Index(Box<SessionSummary>),
    #[serde(rename = "gone")]
    Gone(DeletedSession),
    /// A task of a listing.
    #[serde(rename = "task")]
    Task(Box<TaskSummary>),
    #[serde(rename = "task.updated")]
    TaskUpdated(Box<TaskSummary>),
    #[serde(rename = "task.state_changed")]
    TaskStateChanged(Box<TaskStateChanged>),
    #[serde(rename = "task.deleted")]
    TaskDeleted(DeletedTask),
    #[serde(rename = "task.listing")]
    TaskListing(TaskListing),
    #[serde(rename = "tasks.unsubscribed")]
    TasksUnsubscribed(TasksUnsubscribed),
    /// An event of a newer server. It is only received: serializing it is an error.
    #[serde(skip)]
    Other(OtherEvent),
}

/// An event that this program does not know, as it was received.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OtherEvent {
    pub event: String,
    pub payload: Map<String, Value>,
}

/// The record that an event is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventOrigin {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub task_id: Option<TaskId>,
    pub seq: Seq,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub ts: Timestamp,
}

/// The session's derived status changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StateChanged {
    #[serde(flatten)]
    pub origin: EventOrigin,
    pub old_state: SessionState,
    /// Null if a newer program wrote the status.
    pub new_state: Option<SessionState>,
    pub old_status: StatusName,
    pub status: StatusName,
    pub reason: Option<Reason>,
    /// The reason as one sentence for people.
    pub sentence: Option<String>,
    /// Another event of the same record follows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// The session's agentctl is being launched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentctlStarting {
    #[serde(flatten)]
    pub origin: EventOrigin,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub agent_execution_id: ExecutionId,
    /// The kind of executor: `standalone`, …
    pub runtime: String,
}

/// The session's agentctl responds, or was found again after a restart of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentctlReady {
    #[serde(flatten)]
    pub origin: EventOrigin,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub agent_execution_id: ExecutionId,
}

/// The session's executor failed, or does not respond.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentctlError {
    #[serde(flatten)]
    pub origin: EventOrigin,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub agent_execution_id: ExecutionId,
    pub code: Option<Code>,
    /// `executor_unreachable` if the executor does not respond.
    pub reason: Option<Reason>,
    pub message: Option<String>,
}

/// The agent reported a plan, its usage, its commands, …
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentUpdated {
    #[serde(flatten)]
    pub origin: EventOrigin,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub agent_execution_id: ExecutionId,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub run_id: Option<RunId>,
    /// The kind of update, as the agent spells it.
    pub what: String,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub update: Option<Value>,
    /// A part of the agent's output was over a limit and is missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// The mode, the model or an option of the agent was chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentConfigured {
    #[serde(flatten)]
    pub origin: EventOrigin,
    pub chosen: AgentChoice,
}

/// A message begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum MessageAdded {
    Agent(AgentText),
    User(UserMessage),
}

/// A message of the agent continues or ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum MessageUpdated {
    Agent(AgentText),
    Completed(MessageCompleted),
}

/// Whose message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum MessageRole {
    User,
    Agent,
}

/// A prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UserMessage {
    #[serde(flatten)]
    pub origin: EventOrigin,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub message_id: MessageId,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub run_id: Option<RunId>,
    pub role: MessageRole,
    pub offset: u64,
    /// Attachments are named in it; null if it was redacted.
    pub text: Option<String>,
    pub complete: bool,
    /// The content blocks of a prompt that is more than text.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<Object>>))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
}

/// A part of a message of the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentText {
    #[serde(flatten)]
    pub origin: EventOrigin,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub message_id: MessageId,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub run_id: Option<RunId>,
    pub role: MessageRole,
    pub channel: Channel,
    /// Where the text begins in the message, in bytes.
    pub offset: u64,
    /// Null if it was redacted.
    pub text: Option<String>,
    pub complete: bool,
}

/// A message of the agent is complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MessageCompleted {
    #[serde(flatten)]
    pub origin: EventOrigin,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub message_id: MessageId,
    pub role: MessageRole,
    pub offset: u64,
    /// Empty: the whole text was sent before.
    pub text: String,
    pub complete: bool,
    /// The length of the message in bytes.
    pub length: u64,
    pub hash: String,
}

/// A record that is no other event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RecordEvent {
    #[serde(flatten)]
    pub origin: EventOrigin,
    pub kind: String,
    /// Null if the record is damaged.
    pub record: Option<FlatRecord>,
}

/// The subscription to a session ended: its log cannot be read any more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Unsubscribed {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    pub error: Problem,
}

/// All tasks, in place of what was known: the reader fell behind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskListing {
    pub tasks: Vec<TaskSummary>,
}

/// The subscription to the tasks ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TasksUnsubscribed {}

impl SocketEvent {
    /// An event as it was received; one that this program cannot read is kept as it is.
    pub fn read(event: String, payload: Map<String, Value>) -> Self {
        let mut message = Map::new();
        message.insert("event".to_owned(), Value::String(event));
        message.insert("payload".to_owned(), Value::Object(payload));
        let message = Value::Object(message);
        match Self::deserialize(&message) {
            Ok(known) => known,
            Err(_) => Self::Other(OtherEvent::of(message)),
        }
    }

    /// The record that the event is made of; none of events that are no record's.
    pub fn origin(&self) -> Option<&EventOrigin> {
        match self {
            Self::StateChanged(event) => Some(&event.origin),
            Self::AgentctlStarting(event) => Some(&event.origin),
            Self::AgentctlReady(event) => Some(&event.origin),
            Self::AgentctlError(event) => Some(&event.origin),
            Self::AgentUpdated(event) => Some(&event.origin),
            Self::AgentConfigured(event) => Some(&event.origin),
            Self::MessageAdded(event) => Some(match &**event {
                MessageAdded::Agent(text) => &text.origin,
                MessageAdded::User(message) => &message.origin,
            }),
            Self::MessageUpdated(event) => Some(match &**event {
                MessageUpdated::Agent(text) => &text.origin,
                MessageUpdated::Completed(completed) => &completed.origin,
            }),
            Self::Record(event) => Some(&event.origin),
            Self::Unsubscribed(_)
            | Self::Listing(_)
            | Self::Index(_)
            | Self::Gone(_)
            | Self::Task(_)
            | Self::TaskUpdated(_)
            | Self::TaskStateChanged(_)
            | Self::TaskDeleted(_)
            | Self::TaskListing(_)
            | Self::TasksUnsubscribed(_)
            | Self::Other(_) => None,
        }
    }

    /// The session that the event is about.
    pub fn session_id(&self) -> Option<&str> {
        match self {
            Self::Unsubscribed(event) => Some(event.session_id.as_str()),
            Self::Index(summary) => Some(summary.session_id.as_str()),
            Self::Gone(gone) => Some(gone.session_id.as_str()),
            Self::Other(other) => other.payload.get("session_id")?.as_str(),
            _ => self.origin().map(|origin| origin.session_id.as_str()),
        }
    }

    /// The seq of the record that the event is made of.
    pub fn seq(&self) -> Option<Seq> {
        match self {
            Self::Other(other) => other.payload.get("seq")?.as_u64(),
            _ => self.origin().map(|origin| origin.seq),
        }
    }

    /// Another event of the same record follows.
    pub fn has_more(&self) -> bool {
        match self {
            Self::StateChanged(changed) => changed.more,
            Self::Other(other) => other.payload.get("more") == Some(&Value::Bool(true)),
            _ => false,
        }
    }
}

impl OtherEvent {
    fn of(message: Value) -> Self {
        let Value::Object(mut message) = message else { return Self::default() };
        let event = message.remove("event").and_then(|event| event.as_str().map(str::to_owned));
        let payload = match message.remove("payload") {
            Some(Value::Object(payload)) => payload,
            _ => Map::new(),
        };
        Self { event: event.unwrap_or_default(), payload }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(message: &Value) -> SocketEvent {
        let payload = message["payload"].as_object().unwrap().clone();
        SocketEvent::read(message["event"].as_str().unwrap().to_owned(), payload)
    }

    /// An older program keeps what a newer server sends, and finds its place in the log.
    #[test]
    fn an_event_of_a_newer_server_is_kept() {
        let payload = json!({"session_id": "s", "seq": 7, "more": true, "x": [1]});
        let event = read(&json!({"event": "session.of_tomorrow", "payload": payload}));
        assert_eq!((event.session_id(), event.seq(), event.has_more()), (Some("s"), Some(7), true));
        let SocketEvent::Other(other) = event else { panic!("{event:?}") };
        assert_eq!(other.event, "session.of_tomorrow");
        assert_eq!(Value::Object(other.payload), payload);
        // A known name whose payload is another.
        let changed = json!({"event": "session.state_changed", "payload": {"seq": 1}});
        assert!(matches!(read(&changed), SocketEvent::Other(_)));
    }

    #[test]
    fn a_message_is_the_users_or_the_agents() {
        let message = |fields: &Value| {
            let mut payload = json!({
                "session_id": "s", "task_id": null, "seq": 1, "ts": "2026-02-21T10:01:10.000Z",
                "message_id": "m", "offset": 0, "text": "x",
            });
            payload.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            payload
        };
        let user = message(&json!({"role": "user", "run_id": null, "complete": true}));
        let agent = message(
            &json!({"role": "agent", "run_id": "r", "channel": "answer", "complete": false}),
        );
        let done = message(&json!({"role": "agent", "complete": true, "length": 1, "hash": "h"}));
        let added = |payload| read(&json!({"event": "session.message.added", "payload": payload}));
        let updated =
            |payload| read(&json!({"event": "session.message.updated", "payload": payload}));
        let SocketEvent::MessageAdded(found) = added(user) else { panic!() };
        assert!(matches!(*found, MessageAdded::User(_)));
        let SocketEvent::MessageAdded(found) = added(agent.clone()) else { panic!() };
        assert!(matches!(*found, MessageAdded::Agent(_)));
        let SocketEvent::MessageUpdated(found) = updated(agent) else { panic!() };
        assert!(matches!(*found, MessageUpdated::Agent(_)));
        let SocketEvent::MessageUpdated(found) = updated(done) else { panic!() };
        assert!(matches!(*found, MessageUpdated::Completed(_)));
    }
}
