//! The status of a session. The core derives it, the view gathers it, the caller formats it.

use std::collections::BTreeMap;

use piton_core::Timestamp;
use piton_core::id::{ExecutionId, SessionId};
use piton_core::overview::Overview;

use super::{Engine, Writer};
use crate::error::Result;
use crate::interfaces::Driver as _;

/// Everything about how a session stands.
#[derive(Clone, Debug)]
pub struct SessionReport {
    pub overview: Overview,
    pub contact: Contact,
}

/// What an engine knows of a session's agentctl beside the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contact {
    /// When it was asked for.
    pub at: Timestamp,
    pub is_connected: bool,
    /// When the agentctl responded last.
    pub last_seen_at: Option<Timestamp>,
}

impl Engine {
    pub async fn session(&self, session: &SessionId) -> Result<SessionReport> {
        let state = self.view().state(session).await?;
        let profile = self.catalog().of(&state).ok();
        let abilities = profile.map(|profile| profile.abilities).unwrap_or_default();
        let overview = self.view().overview(session, state, abilities).await?;
        Ok(SessionReport { overview, contact: self.contact(session) })
    }

    /// How much memory the processes of each execution use, in bytes: the agent, and everything that
    /// runs beside it. Executions of which that is not known are left out.
    pub async fn memory(&self) -> BTreeMap<ExecutionId, u64> {
        match &self.0.writer {
            Writer::Running(running) => running.executions.memory().await,
            Writer::Offline(_) => BTreeMap::new(),
        }
    }

    pub fn contact(&self, session: &SessionId) -> Contact {
        let at = self.view().now();
        match &self.0.writer {
            Writer::Running(running) => Contact {
                at,
                is_connected: running.executions.is_live(session),
                last_seen_at: running.executions.last_seen(session),
            },
            Writer::Offline(_) => Contact { at, is_connected: false, last_seen_at: None },
        }
    }
}
