//! From an agent profile to a start plan: the command to run, and the workspace to run it in.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use piton_agent::profiles::Profile;
use piton_core::id::SessionId;
use piton_core::reason::Reason;
use piton_core::resume::Abilities;
use piton_core::{Code, State, Timestamp};
use piton_exec::protocol::Start;
use piton_store::BoxFuture;

use super::catalog::{AgentCatalog, SESSION_PLACEHOLDER};
use crate::error::{Error, Result};
use crate::supervisor::{LaunchConfig, LaunchConfigs, StartError};
use crate::worktrees::Worktrees;

/// Makes start plans. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct StartPlans {
    catalog: Arc<AgentCatalog>,
    worktrees: Worktrees,
    scratch: Arc<Path>,
}

impl StartPlans {
    pub(super) fn new(catalog: Arc<AgentCatalog>, worktrees: Worktrees, scratch: PathBuf) -> Self {
        Self { catalog, worktrees, scratch: scratch.into() }
    }

    fn profile(&self, state: &State) -> Result<&Profile, StartError> {
        self.catalog.of(state).map_err(|error| StartError {
            reason: Reason::AgentMissing,
            code: error.code(),
            message: error.to_string(),
        })
    }

    /// Where git's private configurations lie while it runs.
    pub(super) fn private(&self) -> PathBuf {
        self.scratch.join(".private")
    }

    /// The folder that a session worked in, as it is; nothing is made.
    pub(super) fn folder(&self, session: &SessionId, state: &State) -> Result<PathBuf, StartError> {
        let worktree = state.facts.worktree.as_ref();
        let named = state.info.as_ref().and_then(|info| info.working_dir.as_deref());
        let (folder, reason) = match (worktree, named) {
            (Some(worktree), _) => (PathBuf::from(&worktree.plan.path), Reason::WorktreeMissing),
            (None, Some(named)) => (PathBuf::from(named), Reason::WorkspaceMissing),
            (None, None) => (self.scratch.join(session.as_str()), Reason::WorkspaceMissing),
        };
        if folder.is_dir() {
            return Ok(folder);
        }
        let message = format!("{} {}", reason.sentence(), folder.display());
        Err(StartError { reason, code: Code::WorkspaceUnusable, message })
    }

    /// The folder that a session works in: its worktree, the folder that it names, or one of its
    /// own, which is made.
    pub(super) async fn workspace(
        &self,
        session: &SessionId,
        state: &State,
    ) -> Result<PathBuf, StartError> {
        let worktree = self.worktrees.ready(session).await.map_err(|error| unusable(&error))?;
        if let Some(worktree) = worktree {
            return Ok(worktree);
        }
        let named = state.info.as_ref().and_then(|info| info.working_dir.as_deref());
        let is_own = named.is_none();
        let folder = named.map_or_else(|| self.scratch.join(session.as_str()), PathBuf::from);
        let checked = folder.clone();
        let is_there = tokio::task::spawn_blocking(move || {
            if is_own {
                // That it cannot be made is seen below.
                let _ = DirBuilder::new().recursive(true).mode(0o700).create(&checked);
            }
            checked.is_dir()
        });
        if is_there.await.unwrap_or(false) {
            return Ok(folder);
        }
        let (reason, code) = (Reason::WorkspaceMissing, Code::WorkspaceUnusable);
        let message = format!("{} {}", reason.sentence(), folder.display());
        Err(StartError { reason, code, message })
    }
}

fn unusable(error: &Error) -> StartError {
    let reason = match error {
        Error::Worktree(fault) => fault.reason(),
        _ => None,
    };
    let (code, message) = (error.code(), error.to_string());
    StartError { reason: reason.unwrap_or(Reason::ExecutorError), code, message }
}

impl LaunchConfigs for StartPlans {
    fn abilities(&self, state: &State) -> Abilities {
        let abilities = self.catalog.of(state).map(|profile| profile.abilities).unwrap_or_default();
        with_rewind(abilities, state)
    }

    fn settle(&self, state: &State, opened_at: Timestamp, now: Timestamp) -> Option<Duration> {
        self.catalog.of(state).ok()?.settle_before_load(opened_at, now)
    }

    fn is_workspace_gone(&self, session: &SessionId, state: &State) -> bool {
        let is_own = state.facts.worktree.is_none()
            && state.info.as_ref().is_some_and(|info| info.working_dir.is_none());
        let agent = state.facts.agent.as_ref();
        let had_agent = agent.is_some_and(|agent| agent.session_id.is_some());
        is_own && had_agent && !self.scratch.join(session.as_str()).exists()
    }

    fn launch_config(
        &self,
        session: &SessionId,
        state: &State,
    ) -> BoxFuture<Result<LaunchConfig, StartError>> {
        let (plans, session, state) = (self.clone(), session.clone(), state.clone());
        Box::pin(async move {
            let workspace = plans.workspace(&session, &state).await?;
            let profile = plans.profile(&state)?;
            let mut start = start(&session, profile);
            for server in &profile.mcp_servers {
                let resolved = server.resolve(|name| std::env::var(name).ok());
                let server = resolved.map_err(|message| StartError {
                    reason: Reason::ExecutorError,
                    code: Code::ConfigInvalid,
                    message: format!("Agent {}: {message}", profile.id),
                })?;
                start.mcp_servers.push(server);
            }
            let abilities = with_rewind(profile.abilities, &state);
            Ok(LaunchConfig { start, abilities, workspace })
        })
    }
}

/// After a rewind an agent that starts fresh is given the history, whatever its profile says: its own
/// conversation has what was left behind. So is one that was started fresh and has not heard it yet: an
/// undone rewind that is there again has that agent's conversation again, too.
pub(super) fn with_rewind(abilities: Abilities, state: &State) -> Abilities {
    let agent = state.facts.agent.as_ref();
    let has_heard = agent.is_some_and(|agent| agent.session_id.is_some() && !agent.lacks_history);
    let is_rewound = state.turns.lineages.current() > 1 && !has_heard;
    Abilities { history: abilities.history || is_rewound, ..abilities }
}

/// How an agent is started, as its profile says.
fn start(session: &SessionId, profile: &Profile) -> Start {
    let part = |part: &String| part.replace(SESSION_PLACEHOLDER, session.as_str());
    let continuation = profile.continuation.as_ref().filter(|_| !profile.is_acp());
    let other = continuation.map(|continuation| &continuation.command);
    let command = other.filter(|command| !command.is_empty()).unwrap_or(&profile.command);
    let command_line = continuation.map(|continuation| continuation.line.clone());
    Start {
        command: command.iter().map(part).collect(),
        env: profile.env.clone(),
        env_remove: profile.env_remove.clone(),
        profile: Some(profile.id.clone()),
        install_hint: Some(profile.install.clone()).filter(|install| !install.is_empty()),
        command_line,
        auth_method: profile.auth_method.clone(),
        ..Start::default()
    }
}
