//! What can go wrong between an agent and its client.

use std::time::Duration;

use piton_core::id::{RunId, WaitId};

use super::wire::method;
use crate::JournalClosed;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("The agent did not answer {method} within {} ms", after.as_millis())]
    TimedOut { method: String, after: Duration },
    #[error("The agent closed the connection")]
    Closed,
    #[error("The agent cannot be read from: {kind}")]
    Io { kind: std::io::ErrorKind },
    /// As the agent said it, masked.
    #[error("The agent refused {method}: {message} ({code})")]
    Agent { method: String, code: i64, message: String },
    #[error("The agent's answer to {method} is not what the protocol says: {why}")]
    Protocol { method: String, why: String },
    #[error("The agent speaks version {spoken} of the protocol, this program version 1")]
    Version { spoken: u64 },
    #[error("The agent's answer to {method} was longer than a message may be")]
    TooLong { method: String },
    #[error("The agent does not offer {method}")]
    NotOffered { method: String },
    #[error("Nothing that can be asked of an agent is called {name}")]
    UnknownAsk { name: String },
    #[error("The agent was not initialised, or has no session yet")]
    NoSession,
    #[error("The agent is busy with {run_id}")]
    Busy { run_id: RunId },
    #[error("No turn of {run_id} is under way")]
    NoTurn { run_id: RunId },
    #[error("Nothing waits for an answer under {wait_id}")]
    NotAsked { wait_id: WaitId },
    #[error("The answer to {wait_id} is none of those that were offered")]
    NotAnOption { wait_id: WaitId },
    #[error("There is no conversation to fork: its id was not given")]
    NothingToFork,
    #[error("{id} is the conversation that the agent has open; end the agent instead")]
    OwnSession { id: String },
    #[error("The agent knows no way to log in that is called {id:?}; it names {known}")]
    AuthUnknown { id: String, known: String },
    #[error("Too many requests wait for the agent's answer")]
    TooMany,
    #[error(transparent)]
    Journal(#[from] JournalClosed),
}

/// JSON-RPC's code for “log in first”.
const AUTH_REQUIRED: i64 = -32000;

impl Error {
    /// Whether logging in, or not being so, is what it is about.
    pub fn is_auth(&self) -> bool {
        self.code().starts_with("agent_auth_")
    }

    pub fn code(&self) -> &'static str {
        match self {
            Self::TimedOut { method, .. } if method == method::AUTHENTICATE => "agent_auth_timeout",
            Self::TimedOut { .. } => "agent_timeout",
            Self::Closed | Self::Io { .. } => "agent_closed",
            Self::Agent { method, .. } if method == method::AUTHENTICATE => "agent_auth_failed",
            Self::Agent { code: AUTH_REQUIRED, .. } => "agent_auth_required",
            Self::Agent { .. } => "agent_error",
            Self::Protocol { .. } => "agent_protocol",
            Self::Version { .. } => "agent_version",
            Self::TooLong { .. } => "agent_message_too_long",
            Self::NotOffered { .. } => "agent_not_offered",
            Self::NoSession => "agent_no_session",
            Self::Busy { .. } => "agent_busy",
            Self::NoTurn { .. } => "turn_not_found",
            Self::UnknownAsk { .. } | Self::NotAsked { .. } => "wait_not_found",
            Self::NotAnOption { .. } => "answer_not_an_option",
            Self::NothingToFork => "fork_of_nothing",
            Self::OwnSession { .. } => "agent_session_in_use",
            Self::AuthUnknown { .. } => "agent_auth_unknown",
            Self::TooMany => "agent_requests_too_many",
            Self::Journal(_) => "spool_closed",
        }
    }
}
