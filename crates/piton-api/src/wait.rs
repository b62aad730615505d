//! Waits: what runs need from outside, and the resume tokens that answer them without a login.

use piton_core::id::SessionId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::status::Wait;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WaitList {
    /// Open waits, those with the earliest deadline first.
    pub waits: Vec<Wait>,
    /// There are more than are listed.
    pub truncated: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AnswerRequest {
    /// What the wait asks for; for a permission `{"option_id": …}`.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub answer: Value,
    /// What to say to the agent, too: it is queued before all other prompts and delivered when the
    /// turn has ended. An agent gets nothing but the option as the answer itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AnswerAccepted {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    /// The same answer was accepted before.
    #[serde(default)]
    pub replayed: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewResumeToken {
    /// After how many seconds the token expires; without it, it does not expire.
    pub valid_for_s: Option<u64>,
}

/// A body without fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Empty {}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResumeTokenCreated {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
    pub token_id: String,
    /// The secret; it is returned only here.
    pub token: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenAnswerRequest {
    /// The token as it was shown: `rt_….SECRET`.
    pub token: String,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    #[serde(default)]
    pub answer: Value,
    /// The session that the token belongs to; a mismatch is refused.
    pub session_id: Option<String>,
}
