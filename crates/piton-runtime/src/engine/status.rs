//! The status of a session. The core derives it, the view gathers it, the caller formats it.

use std::collections::BTreeMap;

use piton_core::id::{ExecutionId, SessionId};
use piton_core::overview::Overview;
use piton_core::state::Phase;
use piton_core::workspace_identity::{self, WorkspaceNow};
use piton_core::{Reason, State, Timestamp};

use super::snapshots::{IDENTITY_TIMEOUT, LOCAL_RUNTIME};
use super::{Engine, Writer};
use crate::error::Result;
use crate::interfaces::Driver as _;
use crate::supervisor::LaunchConfigs as _;

/// Everything about how a session stands.
#[derive(Clone, Debug)]
pub struct SessionReport {
    pub overview: Overview,
    pub contact: Contact,
    /// How the workspace of an interrupted run differs from what it was when its turn began.
    pub resume_notices: Vec<Reason>,
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
        let resume_notices = self.resume_notices(session, &state).await;
        let overview = self.view().overview(session, state, abilities).await?;
        Ok(SessionReport { overview, contact: self.contact(session), resume_notices })
    }

    /// What a user should know before an interrupted run is resumed. Where the workspace is not on this
    /// machine, or no engine runs, nothing is known.
    async fn resume_notices(&self, session: &SessionId, state: &State) -> Vec<Reason> {
        let run = state.facts.run.as_ref();
        let run = run.filter(|run| matches!(run.phase, Phase::Interrupted { .. }));
        let (Writer::Running(running), Some(run)) = (&self.0.writer, run) else {
            return Vec::new();
        };
        let runtime = state.facts.executor.as_ref().map(|executor| executor.runtime.as_str());
        let is_elsewhere = runtime.is_some_and(|runtime| runtime != LOCAL_RUNTIME);
        if is_elsewhere || state.facts.graph.is_some() {
            return Vec::new();
        }
        let now_in = match running.plans.folder(session, state) {
            Err(_) if running.plans.is_workspace_gone(session, state) => {
                WorkspaceNow::Missing(Reason::WorkspaceRecreated)
            }
            Err(missing) => WorkspaceNow::Missing(missing.reason),
            Ok(folder) => {
                let read = tokio::task::spawn_blocking(move || piton_workspace::identity(&folder));
                let read = tokio::time::timeout(IDENTITY_TIMEOUT, read).await;
                WorkspaceNow::There(read.ok().and_then(Result::ok).flatten())
            }
        };
        let began_in = state.turns.workspace(state.last_seq);
        workspace_identity::differences(began_in, &now_in, run.ended_at, self.view().now())
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
