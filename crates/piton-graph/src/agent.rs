//! Agents that `agent` nodes talk to. The graph knows nothing of them: who runs agents implements
//! [`AgentHost`].

use std::fmt;

use async_trait::async_trait;
use piton_core::id::SessionId;

use crate::error::NodeError;

/// What an `agent` node wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentTask {
    /// The graph's session.
    pub graph_session: SessionId,
    pub node: String,
    /// Attempts of this visit that failed: each one more is another prompt. An attempt that a crash cut
    /// off is none of them.
    pub failures: u32,
    /// The same for all attempts of a visit, and another one in another lineage.
    pub idempotency_key: String,
    /// The agent profile; `None`: the host's default.
    pub profile: Option<String>,
    pub prompt: String,
    pub working_dir: Option<String>,
}

/// Runs agents for graphs, each node's in a session of its own.
#[async_trait]
pub trait AgentHost: fmt::Debug + Send + Sync {
    /// The session for a task: created, or found again under the same idempotency key. Sends nothing.
    async fn open(&self, task: &AgentTask) -> Result<SessionId, NodeError>;

    /// Gives the session the prompt unless an earlier attempt did, waits until the agent's run has
    /// ended, and returns its last message. If the future is dropped because the attempt ends, the
    /// agent's run ends, too.
    async fn finish(&self, session: &SessionId, task: &AgentTask) -> Result<String, NodeError>;
}
