//! An agent for a session. Until agents are resumed in all their ways: the same agent is started
//! again and goes on natively with the session that it had.

use std::path::PathBuf;
use std::time::Duration;

use piton_core::decide::Refusal;
use piton_core::id::SessionId;
use piton_core::state::{AgentStatus, Executor, State};
use piton_core::{Code, Reason};
use piton_exec::client::Client;
use piton_exec::protocol::Start;

use super::status::agent_lives;
use crate::app::{App, SESSION};
use crate::problem::{Problem, Result};

/// How long an agent may take to be heard of.
const PATIENCE: Duration = Duration::from_secs(90);
/// The agent of sessions that name none.
const AGENT_DEFAULT: &str = "echo";

/// Which agent a session runs.
fn profile(state: &State) -> &str {
    let named = state.info.as_ref().and_then(|info| info.agent_profile_id.as_deref());
    named.unwrap_or(AGENT_DEFAULT)
}

/// Where a session works: there, and as its log says.
async fn workspace(app: &App, session: &SessionId, state: &State) -> Result<PathBuf> {
    if let Some(worktree) = app.worktrees().ready(session).await? {
        return Ok(worktree);
    }
    let named = state.info.as_ref().and_then(|info| info.working_dir.as_deref());
    let folder = named.map_or_else(|| app.options().scratch.join(session.as_str()), PathBuf::from);
    prepare(app, &folder).await?;
    Ok(folder)
}

/// Sees to it that a session's agent runs, or is about to. What becomes of it is in the log.
pub(crate) async fn ensure(app: &App, session: &SessionId) -> Result<()> {
    let state = app.handle().state(session).await?;
    if agent_lives(&state.facts) {
        return Ok(());
    }
    let agent = app.agent(profile(&state))?;
    launch(app, session, &state).await?;
    let known = state.facts.agent.as_ref().and_then(|agent| agent.session_id.clone());
    let start = Start {
        command: agent.command.iter().map(|part| part.replace(SESSION, session.as_str())).collect(),
        agent_session_id: known,
        ..Start::default()
    };
    match app.executions().start_agent(session, start).await {
        Err(piton_runtime::Error::Agentctl(piton_runtime::Fault::Problem(problem)))
            if problem.code == "agent_running" => {}
        started => started?,
    }
    heard_of(app, session).await
}

/// Sees to it that a session has an agentctl, with or without an agent.
async fn launch(app: &App, session: &SessionId, state: &State) -> Result<()> {
    if state.facts.executor.as_ref().is_some_and(Executor::may_live) {
        return Ok(());
    }
    let workspace = workspace(app, session, state).await?;
    match app.executions().launch(session, workspace).await {
        // Somebody else was faster: theirs is the one.
        Err(error) if error.code() == Code::ExecutorAlive => Ok(()),
        launched => Ok(launched.map(drop)?),
    }
}

/// The way to a session's workspace. It does not wait for an agent: where there is no agentctl, one
/// is launched without one.
pub(crate) async fn workspace_of(app: &App, session: &SessionId) -> Result<Client> {
    let state = app.handle().state(session).await?;
    if state.facts.closed.is_some() {
        return Err(Refusal::SessionClosed.into());
    }
    launch(app, session, &state).await?;
    Ok(app.executions().workspace(session).await?)
}

/// Waits until the log says what became of the agent: who is answered may prompt it.
async fn heard_of(app: &App, session: &SessionId) -> Result<()> {
    let waiting = async {
        let mut tail = app.handle().tail(session, 0);
        loop {
            let state = app.handle().state(session).await?;
            let failed = state.facts.agent.as_ref().is_some_and(|a| a.status == AgentStatus::Error);
            if failed || agent_lives(&state.facts) {
                return Ok(());
            }
            tail.seek(state.last_seq);
            tail.next().await?;
        }
    };
    match tokio::time::timeout(PATIENCE, waiting).await {
        Ok(heard) => heard,
        Err(_) => Err(Problem::new(Code::AgentNotRunning, "The agent has not started in time")),
    }
}

/// The same, without waiting for it: what becomes of it is in the log.
pub(crate) fn ensure_later(app: &App, session: &SessionId) {
    let (app, session) = (app.clone(), session.clone());
    tokio::spawn(async move {
        if let Err(problem) = ensure(&app, &session).await {
            tracing::warn!(%session, code = %problem.code, title = problem.title, "no agent");
        }
    });
}

/// A folder that was named must be there; one of our own is made.
async fn prepare(app: &App, workspace: &std::path::Path) -> Result<()> {
    let own = workspace.starts_with(&app.options().scratch);
    let (workspace, shown) = (workspace.to_owned(), workspace.display().to_string());
    let is_there = tokio::task::spawn_blocking(move || {
        if own {
            // That it cannot be made is seen below.
            let _ = std::fs::create_dir_all(&workspace);
        }
        workspace.is_dir()
    });
    if is_there.await.unwrap_or(false) {
        return Ok(());
    }
    let reason = Reason::WorkspaceMissing;
    let problem = Problem::new(Code::WorkspaceUnusable, reason.sentence());
    Err(problem.with_detail(shown).because_of(reason))
}
