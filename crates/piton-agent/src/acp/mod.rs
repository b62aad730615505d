//! The client's side of the Agent Client Protocol, version 1, over any pair of byte streams. Spawns
//! nothing, touches no disk, and has no clock but time-outs.
//!
//! The loop over JSON-RPC lines is our own, though there is an SDK: what the agent says must be kept
//! in the order in which it said it, before more is read (that is how a full spool holds the agent
//! back); a line must never take more memory than we allow; and what no type knows must be kept
//! rather than refused. Only the protocol's types are taken from elsewhere (`wire`).
//!
//! - `crate::lines`, `crate::envelope`: bytes to messages, within limits
//! - `driver`: reads, and sees that what was read is kept
//! - `recorder`, `message`, `calls`, `replay`, `drops`: what was said, in Piton's own words
//! - `link`: what is on its way to the agent, and who waits for an answer
//! - `serve`: what the agent asks of us
//! - `connection`: what can be asked of the agent; `sessions`: of its conversations and logins
//!
//! In [`Fact::Update`] the field `what` is one of `plan`, `commands`, `mode`, `modes`, `config`,
//! `session_info`, `usage`, `notice`, `compaction`, `content` (a message's part that is no text),
//! `user_message`, `message_id` (which message of the agent's own is which of ours), `other_session`,
//! `asked_outside_turn` (a question that was answered `cancelled` at once), `notification:…` and `unknown:…`; the rest is as the agent said it, masked.
//!
//! [`Fact::Update`]: piton_core::spool::Fact::Update

mod calls;
mod connection;
mod driver;
mod drops;
mod error;
mod link;
mod message;
pub(crate) mod recorder;
mod refusal;
mod replay;
mod serve;
mod sessions;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use piton_core::id::{CallId, MessageId, WaitId};
use piton_core::mask::Masker;

use crate::{Journal, ToolHost};

pub use connection::{Begin, Connection, Opened, Turn};
pub use error::Error;
pub use refusal::{ErrorPattern, Refusal, RefusalPatterns, refusal};
pub use wire::Hello;

/// Makes unique ids.
pub trait MakeIds: Send + Sync + fmt::Debug {
    fn message(&self) -> MessageId;
    fn wait(&self) -> WaitId;
    fn call(&self) -> CallId;
}

#[derive(Clone, Debug)]
pub struct Options {
    pub masker: Arc<Masker>,
    pub journal: Arc<dyn Journal>,
    pub host: Arc<dyn ToolHost>,
    pub ids: Arc<dyn MakeIds>,
    pub limits: Limits,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// One message of the agent's.
    pub line_bytes_max: usize,
    /// Requests that wait for the agent's answer.
    pub requests_max: usize,
    /// Requests of the agent's that wait to be served; beyond it they are refused.
    pub host_requests_max: usize,
    pub terminals_max: usize,
    /// Questions of the agent that wait for an answer.
    pub asks_max: usize,
    /// Most bytes held of a history that the agent replays.
    pub replay_bytes_max: usize,
    /// Of each reason to leave something out; beyond it they are summed.
    pub drops_noted_max: u64,
    /// For the answers to `initialize`, `authenticate` and what opens a session.
    pub start_wait: Duration,
    /// For all other answers but that to a prompt.
    pub request_wait: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            line_bytes_max: 32 * 1024 * 1024,
            requests_max: 64,
            host_requests_max: 128,
            terminals_max: 64,
            asks_max: 64,
            replay_bytes_max: 1024 * 1024,
            drops_noted_max: 20,
            start_wait: Duration::from_mins(1),
            request_wait: Duration::from_mins(1),
        }
    }
}
