//! What a session is, what was said in it and which tools were called.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::values::{AdoptedRun, Critical, Fork, Outcome, ToolStatus};
use crate::id::{BootId, CallId, MessageId, RunId, SessionId, TaskId};
use crate::reason::Reason;
use crate::spool::Channel;
use crate::time::Timestamp;

records! {
    /// The first record of a session's log.
    SessionCreated = "session.created" {
        session_id: SessionId,
        #[serde(default, skip_serializing_if = "Option::is_none")] title: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] task_id: Option<TaskId>,
        #[serde(default, skip_serializing_if = "Option::is_none")] working_dir: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] provider: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")] agent_profile_id: Option<String>,
    } content [];
    /// The first record of an adopted log, which another program began: it stands for the records
    /// before it, as the snapshot beside that log describes them. `run` is the run that they left
    /// open.
    SessionAdopted = "session.adopted" {
        session_id: SessionId,
        created_at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")] title: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] working_dir: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] provider: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")] run: Option<AdoptedRun>,
    } content [];
    /// The session has a new title, or none any more.
    SessionRenamed = "session.renamed" {
        #[serde(default, skip_serializing_if = "Option::is_none")] title: Option<String>,
    } content [];
    /// The only end of a session.
    SessionClosed = "session.closed" {
        outcome: Outcome,
        #[serde(default, skip_serializing_if = "Option::is_none")] reason: Option<Reason>,
    } content [];
    /// The session begins with a copy of another session's conversation: its agent makes the copy when
    /// it is first started.
    SessionForked = "session.forked" { #[serde(flatten)] fork: Fork, } content [];
    /// A boot became the session's one writer.
    SessionLeased = "session.leased" { boot_id: BootId, epoch: u64, } content [];
    /// The writer stepped back while it lives.
    SessionReleased = "session.released" { boot_id: BootId, epoch: u64, } content [];

    /// An agent was assigned to the session.
    SessionAgentAssigned = "session.agent_assigned" { agent_profile_id: String, } content [];

    /// A prompt, as the user sent it.
    MessageUser = "message.user" {
        message_id: MessageId,
        #[serde(default, skip_serializing_if = "Option::is_none")] run_id: Option<RunId>,
    } content ["content"];
    /// A piece of the agent's text; `offset` in UTF-8 bytes from the message's beginning.
    MessageDelta = "message.delta" {
        message_id: MessageId,
        #[serde(default, skip_serializing_if = "Option::is_none")] run_id: Option<RunId>,
        offset: u64,
        length: u64,
        #[serde(default, skip_serializing_if = "Channel::is_answer")] channel: Channel,
        /// How much the agent had sent with this piece, where masking made it another length or
        /// another text: its offsets are about what it sent.
        #[serde(default, skip_serializing_if = "Option::is_none")] sent: Option<u64>,
    } content ["text"];
    /// The end of a streamed message: its length in bytes and the BLAKE3 hash of its text.
    MessageCompleted = "message.completed" {
        message_id: MessageId,
        length: u64,
        hash: String,
    } content [];

    /// A prompt that waits until the run ends. Delivered, it is a `message.user` of the same id in
    /// the batch that starts its run.
    PromptQueued = "prompt.queued" {
        message_id: MessageId,
        /// The run that it will start.
        run_id: RunId,
        /// It stands before those that were there.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] first: bool,
        #[serde(default)] critical: Critical,
    } content ["content"];
    /// The text of a queued prompt was changed.
    PromptEdited = "prompt.edited" {
        message_id: MessageId,
        #[serde(default)] critical: Critical,
    } content ["content"];
    /// A queued prompt was moved; the first position is 1.
    PromptMoved = "prompt.moved" {
        message_id: MessageId,
        position: u32,
        #[serde(default)] critical: Critical,
    } content [];
    /// A queued prompt was removed and will not be delivered.
    PromptRemoved = "prompt.removed" {
        message_id: MessageId,
        #[serde(default)] critical: Critical,
    } content [];
    /// Held prompts are delivered again. An interruption, a failure or a cancellation of a run holds
    /// them.
    QueueReleased = "queue.released" { #[serde(default)] critical: Critical, } content [];

    /// A tool call, before it runs.
    ToolIntent = "tool.intent" { call_id: CallId, run_id: RunId, name: String, } content ["arguments"];
    /// What a tool call reported before its outcome.
    ToolUpdated = "tool.updated" {
        call_id: CallId,
        #[serde(default, skip_serializing_if = "Option::is_none")] run_id: Option<RunId>,
    } content ["update"];
    /// A tool call, after it ran.
    ToolOutcome = "tool.outcome" { call_id: CallId, run_id: RunId, status: ToolStatus, } content ["result"];
}
