//! Workspaces: the way to a session's files, git and shells, and its git worktree.

use std::path::Path;
use std::sync::Arc;

use piton_core::Code;
use piton_core::decide::{Command, Refusal};
use piton_core::id::SessionId;
use piton_core::registry;
use piton_core::state::Executor;
use piton_core::worktree::WorktreePlan;
use piton_exec::client::{Client, ClientError};
use piton_exec::protocol::workspace::{ListedShell, NewShell};
use piton_workspace::git::Runner;
use piton_workspace::worktree::Force;
use piton_workspace::{
    GitCommit, GitDiff, GitStatus, Listing, Staged, Truth, TruthRequest, Workspace,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::requests::{Request, audited};
use super::{AffectedRun, Caller, Engine, Fulfilled};
use crate::error::{Error, Result};
use crate::supervisor::workspace_gone;
use crate::worktrees::CleanupResult;

/// Columns and rows that a terminal may have.
const TERMINAL_SIDE_MAX: u16 = 1_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedShell {
    pub session_id: SessionId,
    pub shell_id: String,
}

/// Reads a session's files and git.
#[derive(Clone, Debug)]
pub enum WorkspaceReader {
    Agentctl(Client),
    /// Of a closed session, without an agentctl.
    Folder(Workspace),
}

fn folder_error(error: piton_workspace::Error) -> Error {
    Error::Folder(Arc::new(error))
}

impl WorkspaceReader {
    pub async fn list(&self, path: &str) -> Result<Listing> {
        match self {
            Self::Agentctl(client) => Ok(client.list(path).await?),
            Self::Folder(folder) => folder.list(Path::new(path)).await.map_err(folder_error),
        }
    }

    pub async fn read_file(&self, path: &str) -> Result<bytes::Bytes> {
        match self {
            Self::Agentctl(client) => Ok(client.read_file(path).await?),
            Self::Folder(folder) => {
                let content = folder.read(Path::new(path), None).await.map_err(folder_error)?;
                Ok(content.bytes.into())
            }
        }
    }

    pub async fn git_status(&self) -> Result<GitStatus> {
        match self {
            Self::Agentctl(client) => Ok(client.git_status().await?),
            Self::Folder(folder) => folder.git_status().await.map_err(folder_error),
        }
    }

    /// Of what is staged, or of what is not; of one path, or of all.
    pub async fn git_diff(&self, staged: bool, path: Option<&str>) -> Result<GitDiff> {
        match self {
            Self::Agentctl(client) => Ok(client.git_diff(staged, path).await?),
            Self::Folder(folder) => {
                let staged = if staged { Staged::Yes } else { Staged::No };
                folder.git_diff(staged, path.map(Path::new)).await.map_err(folder_error)
            }
        }
    }

    /// HEAD, branch and changes, in one round trip and in a bounded time.
    pub async fn truth(&self, request: &TruthRequest) -> Result<Truth> {
        match self {
            Self::Agentctl(client) => Ok(client.truth(request).await?),
            Self::Folder(folder) => folder.truth(request).await.map_err(folder_error),
        }
    }

    pub async fn git_log(&self, limit: usize) -> Result<Vec<GitCommit>> {
        match self {
            Self::Agentctl(client) => Ok(client.git_log(limit).await?),
            Self::Folder(folder) => folder.git_log(limit).await.map_err(folder_error),
        }
    }
}

impl From<ClientError> for Error {
    fn from(error: ClientError) -> Self {
        Self::Workspace(Arc::new(error))
    }
}

impl Engine {
    /// The way to a session's workspace. It does not wait for an agent: where there is no agentctl,
    /// one is launched alone.
    pub async fn workspace(&self, session: &SessionId) -> Result<Client> {
        let running = self.running()?;
        let state = self.view().state(session).await?;
        if state.facts.closed.is_some() {
            return Err(Refusal::SessionClosed.into());
        }
        if !state.facts.executor.as_ref().is_some_and(Executor::may_live) {
            if let Some(event) = workspace_gone(&running.plans, session, &state) {
                let command = Command::Observe { event, message: None };
                running.handle.execute(session, command).await?;
            }
            let workspace = running.plans.workspace(session, &state).await?;
            match running.executions.launch(session, workspace).await {
                // Another request was faster: its agentctl is the one.
                Err(error) if error.code() == Code::ExecutorAlive => {}
                launched => {
                    launched?;
                }
            }
        }
        running.executions.workspace(session).await
    }

    /// The way to read a session's files and git. Of a closed session they are read where they are,
    /// and nothing is launched.
    pub async fn workspace_reader(&self, session: &SessionId) -> Result<WorkspaceReader> {
        let running = self.running()?;
        let state = self.view().state(session).await?;
        if state.facts.closed.is_none() {
            return self.workspace(session).await.map(WorkspaceReader::Agentctl);
        }
        let folder = running.plans.folder(session, &state)?;
        let git = Runner::new(running.plans.private());
        let opened = tokio::task::spawn_blocking(move || Workspace::open(&folder, git)).await;
        let opened = opened.unwrap_or(Err(piton_workspace::Error::Interrupted));
        Ok(WorkspaceReader::Folder(opened.map_err(folder_error)?))
    }

    /// Gives a session an agent whose log names none.
    pub async fn assign_agent(
        &self,
        caller: &Caller,
        session: &SessionId,
        agent_profile_id: String,
    ) -> Result<Fulfilled<AffectedRun>> {
        self.catalog().get(&agent_profile_id)?;
        let arguments = json!({"agent_profile_id": agent_profile_id});
        let request = Request::new(caller, "sessions.assign_agent", session, &arguments)?;
        let assigned = AffectedRun::new(session, None);
        self.execute(session, &request, assigned, Command::AssignAgent { agent_profile_id }).await
    }

    /// The way to the agentctl that has a shell. None is launched: one that does not run has no
    /// shells.
    pub async fn shell(&self, session: &SessionId, shell_id: &str) -> Result<Client> {
        // It becomes part of a path.
        if shell_id.is_empty() || !shell_id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(Error::ShellNotFound);
        }
        self.agentctl(session).await
    }

    /// The way to the agentctl of a session; none is launched.
    pub async fn agentctl(&self, session: &SessionId) -> Result<Client> {
        self.running()?.executions.workspace(session).await
    }

    /// The shells of a session's workspace. No agentctl is launched: one that does not run has none. Those
    /// of a closed session are ended with it.
    pub async fn shells(&self, session: &SessionId) -> Result<Vec<ListedShell>> {
        let facts = self.view().state(session).await?.facts;
        if facts.closed.is_some() || !facts.executor.as_ref().is_some_and(Executor::may_live) {
            return Ok(Vec::new());
        }
        Ok(self.agentctl(session).await?.shells().await?)
    }

    /// Opens a shell in the workspace, once for each key.
    pub async fn open_shell(
        &self,
        caller: &Caller,
        session: &SessionId,
        cols: Option<u16>,
        rows: Option<u16>,
    ) -> Result<Fulfilled<OpenedShell>> {
        [cols, rows].into_iter().flatten().try_for_each(check_terminal_side)?;
        let arguments = json!({"cols": cols, "rows": rows});
        let request = Request::new(caller, "shells.open", session, &arguments)?;
        let requests = self.metadata().await?.read(|known| known.requests.clone());
        let metadata_log = SessionId::metadata_log();
        if let Some(replayed) = self.find_replay(&metadata_log, &requests, &request).await? {
            return Ok(replayed);
        }
        let client = self.workspace(session).await?;
        let new = NewShell { command: Vec::new(), cols, rows };
        let shell_id = client.new_shell(&new).await?.shell_id;
        let note = audited(caller, "shells.open", format!("{session}/{shell_id}"));
        let shell = OpenedShell { session_id: session.clone(), shell_id: shell_id.clone() };
        let opened = self.register(&request, shell, registry::Command::Note(note)).await;
        if !opened.as_ref().is_ok_and(|opened| !opened.replayed)
            && let Err(error) = client.end_shell(&shell_id).await
        {
            // No client knows of it, or one made the same request at the same time.
            tracing::warn!(%session, code = %error.code(), %error, "an unrecorded shell was not ended");
        }
        opened
    }

    /// Ends a shell and what was started in it.
    pub async fn end_shell(
        &self,
        caller: &Caller,
        session: &SessionId,
        shell_id: &str,
    ) -> Result<()> {
        let client = self.shell(session, shell_id).await?;
        client.end_shell(shell_id).await?;
        self.audit(caller, "shells.end", format!("{session}/{shell_id}")).await
    }

    /// Writes a file of the workspace, and the folders above it.
    pub async fn write_file(
        &self,
        caller: &Caller,
        session: &SessionId,
        path: &str,
        content: bytes::Bytes,
    ) -> Result<()> {
        self.workspace(session).await?.write_file(path, content).await?;
        self.audit(caller, "files.write", format!("{session}/{path}")).await
    }

    /// Removes a session's worktree, and its branch if everything on it is elsewhere, too. What is
    /// nowhere else is lost only if that is forced.
    pub async fn clean_up_worktree(
        &self,
        caller: &Caller,
        session: &SessionId,
        force: Force,
    ) -> Result<CleanupResult> {
        let cleaned = self.running()?.worktrees.clean_up(session, force).await?;
        if force == Force::Yes && cleaned.changed {
            self.audit(caller, "worktrees.force", cleaned.plan.path.clone()).await?;
        }
        Ok(cleaned)
    }

    /// Makes a worktree again that was removed, from its branch; one that is there stays as it is.
    pub async fn repair_worktree(&self, session: &SessionId) -> Result<WorktreePlan> {
        Ok(self.running()?.worktrees.repair(session).await?.plan)
    }
}

/// Refuses a terminal that no program could draw in.
pub fn check_terminal_side(side: u16) -> Result<()> {
    if (1..=TERMINAL_SIDE_MAX).contains(&side) {
        return Ok(());
    }
    Err(Error::Invalid(format!("A terminal has 1 to {TERMINAL_SIDE_MAX} columns and rows")))
}
