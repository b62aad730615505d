//! The values that more than one record has.

use serde::{Deserialize, Serialize};

use super::Seq;
use crate::id::{BootId, RunId, SessionId, WaitId};
use crate::time::Timestamp;

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
