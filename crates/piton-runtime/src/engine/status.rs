//! How a session stands: derived by the core, gathered by the view, spelled by whoever asks.

use piton_core::Timestamp;
use piton_core::id::SessionId;
use piton_core::overview::Overview;

use super::{Engine, Writer};
use crate::error::Result;
use crate::world::Driver as _;

/// Everything about how a session stands.
#[derive(Clone, Debug)]
pub struct SessionReport {
    pub overview: Overview,
    /// The engine is connected to the session's agentctl.
    pub is_connected: bool,
    pub at: Timestamp,
}

impl Engine {
    pub async fn session(&self, session: &SessionId) -> Result<SessionReport> {
        let state = self.view().state(session).await?;
        let profile = self.catalog().of(&state).ok();
        let abilities = profile.map(|profile| profile.abilities).unwrap_or_default();
        let overview = self.view().overview(session, state, abilities).await?;
        let is_connected = match &self.0.writer {
            Writer::Running(running) => running.executions.is_live(session),
            Writer::Offline(_) => false,
        };
        Ok(SessionReport { overview, is_connected, at: self.view().now() })
    }
}
