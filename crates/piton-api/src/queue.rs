//! Prompts, and the queue that they wait in while a run is open.

use piton_core::id::SessionId;
use piton_core::{PromptContent, Seq, Timestamp};
use serde::{Deserialize, Serialize};

use crate::enums::IfBusy;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PromptRequest {
    /// A string, or a list of content blocks (`text`, `image`, `audio`, `resource_link`, `resource`)
    /// as the Agent Client Protocol has them.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::PromptContent))]
    pub content: PromptContent,
    /// What becomes of the prompt while a run is open. Without it: queued while the agent is at work;
    /// while the run only waits or is paused, the prompt takes the run's place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_busy: Option<IfBusy>,
}

impl PromptRequest {
    pub fn new(content: impl Into<PromptContent>) -> Self {
        Self { content: content.into(), if_busy: None }
    }

    /// Queued while a run is open, whatever the run does.
    pub fn queued(content: impl Into<PromptContent>) -> Self {
        Self { content: content.into(), if_busy: Some(piton_core::decide::IfBusy::Queue.into()) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PromptAccepted {
    /// The run that the prompt started, or will start when it is delivered.
    pub run_id: String,
    pub message_id: String,
    /// The agent still starts: whether the prompt is delivered is not known yet. The session's status
    /// and events say it.
    #[serde(default)]
    pub pending: bool,
    /// The prompt waits for the run to end.
    #[serde(default)]
    pub queued: bool,
    /// Its place in the queue; the first is 1.
    #[serde(default)]
    pub position: Option<u32>,
}

/// How many prompts wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueSummary {
    pub length: u32,
    /// Some of them are held: a run was interrupted, failed or was cancelled. Continuing the run or
    /// releasing the queue has them delivered.
    pub held: bool,
}

/// A prompt that waits for the run to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueuedPrompt {
    pub message_id: String,
    /// The run that it will start.
    pub run_id: String,
    /// The place in the queue; the first is 1.
    pub position: u32,
    /// Changes with each edit; an edit that names an older version is refused.
    pub version: Seq,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub queued_at: Timestamp,
    /// It is not delivered until the queue is released.
    pub held: bool,
    /// The prompt as text, for people: attachments are named. In a list, the first 4,000 characters. To edit
    /// a prompt, take the text of `content`.
    pub text: String,
    /// The whole content; in a list, null if it has more than 16 KiB.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::PromptContent>))]
    pub content: Option<PromptContent>,
}

/// The prompts that wait, in the order of their delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Queue {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    pub prompts: Vec<QueuedPrompt>,
    pub held: bool,
    /// Most prompts that can wait.
    pub max: usize,
}

/// A new prompt for the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueRequest {
    /// A string, or a list of content blocks.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::PromptContent))]
    pub content: PromptContent,
}

/// What to change of a queued prompt: `text`, `content` or `position`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueEdit {
    /// The new text of the prompt; its attachments stay. Empty: nothing but the attachments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The new content of the prompt, with all of its attachments: those that are not in it are removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::PromptContent>))]
    pub content: Option<PromptContent>,
    /// The prompt's new place; the first is 1, and what is behind the end is the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub position: Option<u32>,
    /// With `text` or `content`: refused if the prompt has another version now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Seq>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct QueueRemoval {
    /// Refused if the prompt has another version now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Seq>,
}

/// The queue that a request changed, and the prompt that the request was about, if it was about one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueChanged {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    pub message_id: Option<String>,
}

#[cfg(feature = "openapi")]
pub(crate) mod schema {
    use std::borrow::Cow;

    use utoipa::openapi::RefOr;
    use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
    use utoipa::{PartialSchema, ToSchema};

    /// A string, or a list of content blocks.
    #[derive(Debug)]
    pub(crate) struct PromptContent;

    impl PartialSchema for PromptContent {
        fn schema() -> RefOr<Schema> {
            let types = SchemaType::Array(vec![Type::String, Type::Array]);
            let what = "A string, or a list of content blocks: each has a `type` of `text`, `image`, \
                        `audio`, `resource_link` or `resource`, and the fields that the Agent Client \
                        Protocol gives it.";
            ObjectBuilder::new().schema_type(types).description(Some(what)).into()
        }
    }

    impl ToSchema for PromptContent {
        fn name() -> Cow<'static, str> {
            Cow::Borrowed("PromptContent")
        }
    }
}
