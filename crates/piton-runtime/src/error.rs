//! Why a request was not fulfilled.

use std::sync::Arc;

use piton_core::Code;
use piton_core::decide::Refusal;
use piton_exec::executor::Fault;
use piton_workspace::worktree;

use crate::supervisor::Obstacle;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The rules say no. Nothing was written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store says no, or cannot.
    #[error(transparent)]
    Store(#[from] piton_store::Error),
    /// The session's agentctl says no, or nothing.
    #[error(transparent)]
    Agentctl(#[from] Fault),
    /// The session's agent cannot be started; the log says so, too.
    #[error(transparent)]
    Obstacle(#[from] Obstacle),
    #[error("The agent has not started in time")]
    AgentLate,
    /// The session's worktree is not as it should be, or git says no.
    #[error(transparent)]
    Worktree(Arc<worktree::Error>),
    #[error("The session service is shutting down")]
    ShuttingDown,
}

impl Error {
    pub fn code(&self) -> Code {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Store(error) => error.code(),
            Self::Agentctl(Fault::Problem(_)) => Code::AgentctlRefused,
            Self::Agentctl(Fault::Unreachable { .. }) => Code::AgentctlUnreachable,
            Self::Obstacle(obstacle) => obstacle.code,
            Self::AgentLate => Code::AgentNotRunning,
            Self::Worktree(fault) => fault.code(),
            Self::ShuttingDown => Code::StoreClosed,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        self.code().hint()
    }
}
