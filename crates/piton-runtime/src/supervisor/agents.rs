//! What the runtime has to know about agents: what they can do, and how they are started.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use piton_core::id::SessionId;
use piton_core::reason::Reason;
use piton_core::resume::Abilities;
use piton_core::{Code, State, Timestamp};
use piton_exec::protocol::Start;
use piton_store::BoxFuture;

/// What is needed to start a session's agent.
#[derive(Clone, Debug)]
pub struct LaunchConfig {
    /// Without the conversation: whether and which is decided by the supervisor.
    pub start: Start,
    pub abilities: Abilities,
    /// Where it works.
    pub workspace: PathBuf,
}

/// Why an agent cannot be started, before anything was.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct StartError {
    pub reason: Reason,
    pub code: Code,
    pub message: String,
}

/// Knows how agents are started.
pub trait LaunchConfigs: Send + Sync + fmt::Debug + 'static {
    /// What the session's agent can do, whether or not it can be started.
    fn abilities(&self, state: &State) -> Abilities;

    /// How long to wait before a conversation is continued that was opened at `opened_at`.
    fn settle(&self, _state: &State, _opened_at: Timestamp, _now: Timestamp) -> Option<Duration> {
        None
    }

    /// Whether the workspace that Piton made for the session is gone, so that it would be made again,
    /// empty.
    fn is_workspace_gone(&self, _session: &SessionId, _state: &State) -> bool {
        false
    }

    fn launch_config(
        &self,
        session: &SessionId,
        state: &State,
    ) -> BoxFuture<Result<LaunchConfig, StartError>>;
}

/// It is not known how agents are started.
pub(super) fn unknown() -> StartError {
    let message = "No agents are configured".to_owned();
    StartError { reason: Reason::AgentMissing, code: Code::AgentNotFound, message }
}
