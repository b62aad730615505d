//! An agent for a session: what the runtime is told about how agents are started, and the workspace
//! that does not wait for one.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::time::Duration;

use piton_agent::profiles::Profile;
use piton_core::decide::Refusal;
use piton_core::id::SessionId;
use piton_core::reason::Reason;
use piton_core::resume::Abilities;
use piton_core::state::Executor;
use piton_core::{Code, State, Timestamp};
use piton_exec::client::Client;
use piton_exec::protocol::Start;
use piton_runtime::{Obstacle, Recipe, Recipes, Worktrees};
use piton_store::BoxFuture;

use crate::app::{App, SESSION};
use crate::problem::{Problem, Result};

/// The agent of sessions that name none.
pub(crate) const AGENT_DEFAULT: &str = "echo";

/// The agents that there are, and where their sessions work.
#[derive(Debug)]
pub(crate) struct Agents {
    pub(crate) by_id: BTreeMap<String, Profile>,
    pub(crate) scratch: PathBuf,
    pub(crate) worktrees: Worktrees,
}

impl Agents {
    /// Which agent a session runs.
    fn of(&self, state: &State) -> Result<&Profile, Obstacle> {
        let named = state.info.as_ref().and_then(|info| info.agent_profile_id.as_deref());
        let id = named.unwrap_or(AGENT_DEFAULT);
        self.by_id.get(id).ok_or_else(|| Obstacle {
            reason: Reason::AgentMissing,
            code: Code::AgentNotFound,
            message: format!("There is no agent {id:?}"),
        })
    }

    /// What an agent can do with its conversation, by its profile.
    pub(crate) fn abilities(&self, agent_profile_id: Option<&str>) -> Abilities {
        let agent = self.by_id.get(agent_profile_id.unwrap_or(AGENT_DEFAULT));
        agent.map(|agent| agent.abilities).unwrap_or_default()
    }

    /// Where a session works: there, and as its log says.
    async fn workspace(&self, session: &SessionId, state: &State) -> Result<PathBuf, Obstacle> {
        let worktree = self.worktrees.ready(session).await.map_err(|error| unusable(&error))?;
        if let Some(worktree) = worktree {
            return Ok(worktree);
        }
        let named = state.info.as_ref().and_then(|info| info.working_dir.as_deref());
        let own = self.scratch.join(session.as_str());
        let is_own = named.is_none();
        let folder = named.map_or(own, PathBuf::from);
        let looked_at = folder.clone();
        let is_there = tokio::task::spawn_blocking(move || {
            if is_own {
                // That it cannot be made is seen below.
                let mut builder = std::fs::DirBuilder::new();
                let _ = builder.recursive(true).mode(0o700).create(&looked_at);
            }
            looked_at.is_dir()
        });
        if is_there.await.unwrap_or(false) {
            return Ok(folder);
        }
        let (reason, code) = (Reason::WorkspaceMissing, Code::WorkspaceUnusable);
        let message = format!("{} {}", reason.sentence(), folder.display());
        Err(Obstacle { reason, code, message })
    }
}

fn unusable(error: &piton_runtime::Error) -> Obstacle {
    let reason = match error {
        piton_runtime::Error::Worktree(fault) => fault.reason(),
        _ => None,
    };
    let (code, message) = (error.code(), error.to_string());
    Obstacle { reason: reason.unwrap_or(Reason::ExecutorError), code, message }
}

/// [`Agents`], shared.
#[derive(Clone, Debug)]
pub(crate) struct Known(pub(crate) std::sync::Arc<Agents>);

impl Recipes for Known {
    fn abilities(&self, state: &State) -> Abilities {
        self.0.of(state).map(|agent| agent.abilities).unwrap_or_default()
    }

    fn settle(&self, state: &State, opened_at: Timestamp, now: Timestamp) -> Option<Duration> {
        self.0.of(state).ok()?.settle_before_load(opened_at, now)
    }

    fn recipe(&self, session: &SessionId, state: &State) -> BoxFuture<Result<Recipe, Obstacle>> {
        let (known, session, state) = (self.clone(), session.clone(), state.clone());
        Box::pin(async move {
            let workspace = known.0.workspace(&session, &state).await?;
            let agent = known.0.of(&state)?;
            let start = start(&session, agent);
            Ok(Recipe { start, abilities: agent.abilities, workspace })
        })
    }
}

/// How an agent is started, as its profile says.
fn start(session: &SessionId, agent: &Profile) -> Start {
    let part = |part: &String| part.replace(SESSION, session.as_str());
    let continuation = agent.continuation.as_ref().filter(|_| !agent.is_acp());
    let other = continuation.map(|continuation| &continuation.command);
    let command = other.filter(|command| !command.is_empty()).unwrap_or(&agent.command);
    let command_line = continuation.map(|continuation| continuation.line.clone());
    Start {
        command: command.iter().map(part).collect(),
        env: agent.env.clone(),
        env_remove: agent.env_remove.clone(),
        profile: Some(agent.id.clone()),
        install_hint: Some(agent.install.clone()).filter(|install| !install.is_empty()),
        command_line,
        ..Start::default()
    }
}

/// The way to a session's workspace. It does not wait for an agent: where there is no agentctl, one
/// is launched without one.
pub(crate) async fn workspace_of(app: &App, session: &SessionId) -> Result<Client> {
    let state = app.handle().state(session).await?;
    if state.facts.closed.is_some() {
        return Err(Refusal::SessionClosed.into());
    }
    if !state.facts.executor.as_ref().is_some_and(Executor::may_live) {
        let agents = app.agents_known();
        let workspace = agents.workspace(session, &state).await;
        let workspace = workspace.map_err(piton_runtime::Error::from)?;
        match app.executions().launch(session, workspace).await {
            // Somebody else was faster: theirs is the one.
            Err(error) if error.code() == Code::ExecutorAlive => {}
            launched => {
                launched.map_err(Problem::from)?;
            }
        }
    }
    Ok(app.executions().workspace(session).await?)
}
