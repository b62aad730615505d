//! How an agent is spoken to: over the protocol, or by a process for each turn.

use piton_agent::acp::{self, Connection};
use piton_core::PromptContent;
use piton_core::id::{RunId, WaitId};

use super::one_shot::OneShot;

#[derive(Clone, Debug)]
pub(super) enum AgentLink {
    Acp(Connection),
    OneShot(OneShot),
}

impl AgentLink {
    /// Returns when the turn's beginning is kept; what comes of it is noted.
    pub(super) async fn prompt(
        &self,
        run_id: RunId,
        content: PromptContent,
    ) -> Result<(), acp::Error> {
        match self {
            Self::Acp(connection) => connection.prompt(run_id, content).await.map(drop),
            Self::OneShot(turns) => turns.prompt(run_id, &content).await,
        }
    }

    /// The turn that is under way.
    pub(super) async fn turn(&self) -> Option<RunId> {
        match self {
            Self::Acp(connection) => connection.turn().await,
            Self::OneShot(turns) => turns.turn().await,
        }
    }

    /// The questions that wait for an answer; without a protocol there are none.
    pub(super) async fn asking(&self) -> Vec<WaitId> {
        match self {
            Self::Acp(connection) => connection.asking().await,
            Self::OneShot(_) => Vec::new(),
        }
    }
}
