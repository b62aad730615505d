//! What can go wrong between an agent and its client.

use std::time::Duration;

use piton_core::Code;
use piton_core::content::BlockKind;
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
    #[error("The agent takes no content of the kind {kind}")]
    ContentNotSupported { kind: BlockKind },
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
        self.code().is_login()
    }

    pub fn code(&self) -> Code {
        match self {
            Self::TimedOut { method, .. } if method == method::AUTHENTICATE => {
                Code::AgentAuthTimeout
            }
            Self::TimedOut { .. } => Code::AgentTimeout,
            Self::Closed | Self::Io { .. } => Code::AgentClosed,
            Self::Agent { method, .. } if method == method::AUTHENTICATE => Code::AgentAuthFailed,
            Self::Agent { code: AUTH_REQUIRED, .. } => Code::AgentAuthRequired,
            Self::Agent { .. } => Code::AgentError,
            Self::Protocol { .. } => Code::AgentProtocol,
            Self::Version { .. } => Code::AgentVersion,
            Self::TooLong { .. } => Code::AgentMessageTooLong,
            Self::NotOffered { .. } => Code::AgentNotOffered,
            Self::NoSession => Code::AgentNoSession,
            Self::Busy { .. } => Code::AgentBusy,
            Self::NoTurn { .. } => Code::TurnNotFound,
            Self::UnknownAsk { .. } => Code::RequestInvalid,
            Self::NotAsked { .. } => Code::WaitNotFound,
            Self::NotAnOption { .. } => Code::AnswerInvalid,
            Self::NothingToFork => Code::ForkSourceRequired,
            Self::OwnSession { .. } => Code::AgentSessionInUse,
            Self::AuthUnknown { .. } => Code::AgentAuthNotFound,
            Self::ContentNotSupported { .. } => Code::ContentNotSupported,
            Self::TooMany => Code::LimitReached,
            Self::Journal(_) => Code::SpoolClosed,
        }
    }
}
