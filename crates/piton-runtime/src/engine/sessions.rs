//! Sessions: created, listed, renamed, closed.

use std::path::{Path, PathBuf};

use piton_core::agent_view::Configure;
use piton_core::decide::{Command, Create, Refusal, Setup};
use piton_core::event::Outcome;
use piton_core::id::{SessionId, TaskId};
use piton_core::mcp::{self, McpServer};
use piton_core::resume::StartTrigger;
use piton_core::status::Name;
use piton_core::worktree::{Stage, WorktreePlan};
use piton_store::Cursor;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::requests::Request;
use super::{AffectedRun, Caller, DefaultAgent, Engine, Fulfilled};
use crate::error::{Error, Result};
use crate::view::Listed;

const TITLE_BYTES_MAX: usize = 1_024;
const PAGE_SESSIONS: usize = 50;
const PAGE_SESSIONS_MAX: usize = 200;

/// What a new session is to be.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SessionSpec {
    pub title: Option<String>,
    pub task_id: Option<TaskId>,
    /// `None`: the catalog's default agent.
    pub agent_profile_id: Option<String>,
    /// An absolute path of a folder that exists; without it and a repository the session gets a
    /// folder of its own.
    pub working_dir: Option<String>,
    /// Instead of a folder: a git repository. The session works in a worktree of it.
    pub repo: Option<PathBuf>,
    /// The branch, tag or commit that the worktree's branch begins at.
    pub base: Option<String>,
    /// Start the agent at once, in the background.
    pub start: bool,
    /// How the agent is to work, from its first start on.
    #[serde(skip_serializing_if = "Configure::is_empty")]
    pub choice: Configure,
    /// MCP servers that its agent is given, beside those of its profile.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<McpServer>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedSession {
    pub session_id: SessionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_profile_id: Option<String>,
    /// Which agent was chosen, if the request named none and no setting does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
}

/// Which sessions to list.
#[derive(Clone, Debug, Default)]
pub struct SessionFilter {
    pub task_id: Option<TaskId>,
    pub status: Option<Name>,
    /// Where the last page ended.
    pub after: Option<Cursor>,
    /// `None`: 50.
    pub limit: Option<usize>,
}

impl Engine {
    /// Creates a session, and starts its agent in the background if that is asked for. Under a key
    /// the session's id follows from the key: a repetition finds what the first request made.
    pub async fn create(
        &self,
        caller: &Caller,
        spec: SessionSpec,
    ) -> Result<Fulfilled<CreatedSession>> {
        let running = self.running()?;
        check_title(spec.title.as_deref())?;
        self.check_mcp_servers(&spec.mcp_servers)?;
        let request = Request::new(caller, "sessions.create", "", &spec)?;
        if let Some(task_id) = &spec.task_id {
            let task = self.find_task(task_id).await?;
            if task.closed.is_some() {
                return Err(Refusal::TaskClosed { task: task.task_id }.into());
            }
        }
        let (agent, notice) = if let Some(agent) = &spec.agent_profile_id {
            self.catalog().get(agent)?;
            (Some(agent.clone()), None)
        } else {
            let engine = self.clone();
            // Folders on slow disks are looked into.
            let looking = tokio::task::spawn_blocking(move || {
                let path = std::env::var_os("PATH");
                engine.catalog().default_agent(path.as_deref())
            });
            let default = looking.await.unwrap_or(DefaultAgent::Echo);
            match (self.catalog().get(default.id()), &default) {
                (Ok(_), _) => (Some(default.id().to_owned()), default.notice()),
                // An embedded engine may have no agents at all; a session that wants one names it later.
                (Err(_), DefaultAgent::Echo) => (None, None),
                (Err(error), _) => return Err(error),
            }
        };
        if let Some(folder) = &spec.working_dir {
            check_folder(folder).await?;
        }
        let session_id: SessionId = match request.seed() {
            Some(seed) => format!("sess_{}", hex(&seed)).parse()?,
            None => self.ids().session()?,
        };
        let plan = self.plan_worktree(&session_id, &spec).await?;
        let (is_in_worktree, start) = (plan.is_some(), spec.start);
        let created = CreatedSession {
            session_id: session_id.clone(),
            agent_profile_id: agent.clone(),
            notice,
        };
        let create = Create {
            session_id: session_id.clone(),
            title: spec.title,
            task_id: spec.task_id,
            working_dir: spec.working_dir,
            provider: None,
            // Named, since another may be the default tomorrow.
            agent_profile_id: agent,
            setup: Setup { choice: spec.choice, mcp_servers: spec.mcp_servers, fork: None },
        };
        let command = match plan {
            Some(plan) => Command::CreateInWorktree(create, Box::new(plan)),
            None => Command::Create(create),
        };
        let created = self.execute(&session_id, &request, created, command).await?;
        if is_in_worktree {
            self.prepare_worktree(&session_id).await?;
        }
        if start && !created.replayed {
            let supervisors = running.handle.supervisors();
            supervisors.ensure_running_later(&session_id, StartTrigger::Created);
        }
        Ok(created)
    }

    /// What is written must be what the agent is given later: a secret, which is masked in the log,
    /// would be lost.
    fn check_mcp_servers(&self, servers: &[McpServer]) -> Result<()> {
        if let Some(fault) = mcp::fault(servers) {
            return Err(Error::Invalid(fault));
        }
        let masker = self.running()?.handle.env().writer.masker(&SessionId::metadata_log());
        for server in servers {
            let written =
                serde_json::to_value(server).map_err(|error| Error::Invalid(error.to_string()))?;
            let mut kept = written.clone();
            masker.json(&mut kept);
            if kept != written || server.has_credentials() {
                let detail = format!(
                    "MCP server {} holds a secret, which the log does not keep: name the variable \
                     that has it in env_from or headers_from",
                    server.name
                );
                return Err(Error::Invalid(detail));
            }
        }
        Ok(())
    }

    /// The worktree of a new session that names a repository.
    async fn plan_worktree(
        &self,
        session: &SessionId,
        spec: &SessionSpec,
    ) -> Result<Option<WorktreePlan>> {
        let Some(repo) = &spec.repo else {
            return match spec.base {
                Some(_) => Err(Error::Invalid("base needs repo beside it".to_owned())),
                None => Ok(None),
            };
        };
        if spec.working_dir.is_some() {
            let detail = "A session has a working_dir or a repo, not both";
            return Err(Error::Invalid(detail.to_owned()));
        }
        // The plan of a repeated request is in the log.
        if let Ok(state) = self.view().state(session).await
            && let Some(known) = state.facts.worktree
        {
            return Ok(Some(known.plan));
        }
        let worktrees = &self.running()?.worktrees;
        Ok(Some(worktrees.plan(session, repo, spec.base.as_deref()).await?))
    }

    /// Also after a repetition: the first request may have been cut off before it. The session
    /// exists whatever becomes of its worktree, so the error names it.
    async fn prepare_worktree(&self, session: &SessionId) -> Result<()> {
        let worktree = self.view().state(session).await?.facts.worktree;
        if worktree.is_none_or(|worktree| worktree.stage != Stage::Planned) {
            return Ok(());
        }
        let prepared = self.running()?.worktrees.ready(session).await;
        prepared.map(drop).map_err(|error| Error::WorktreePending {
            session: session.clone(),
            error: Box::new(error),
        })
    }

    /// Refuses a session that does not belong to the task which a request names.
    pub async fn check_task(&self, session: &SessionId, task: &TaskId) -> Result<()> {
        let info = self.view().state(session).await?.info;
        if info.and_then(|info| info.task_id).as_ref() == Some(task) {
            return Ok(());
        }
        Err(piton_store::Error::SessionNotFound { session: session.clone() }.into())
    }

    /// A page of sessions with their statuses, last active first.
    pub async fn sessions(&self, filter: SessionFilter) -> Result<(Vec<Listed>, Option<Cursor>)> {
        let limit = page_limit(filter.limit)?;
        let wanted = |name| filter.status.is_none_or(|status| status == name);
        self.view().list(filter.task_id, wanted, filter.after, limit).await
    }

    /// Gives a session another title; `None` removes it. Also a closed one.
    pub async fn rename(
        &self,
        caller: &Caller,
        session: &SessionId,
        title: Option<String>,
    ) -> Result<Fulfilled<AffectedRun>> {
        check_title(title.as_deref())?;
        let request = Request::new(caller, "sessions.rename", session, &json!({"title": title}))?;
        let renamed = AffectedRun::new(session, None);
        self.execute(session, &request, renamed, Command::Rename { title }).await
    }

    /// Closes a session: it can be read, and not be continued. Its agent ends.
    pub async fn close(
        &self,
        caller: &Caller,
        session: &SessionId,
        outcome: Outcome,
    ) -> Result<Fulfilled<AffectedRun>> {
        self.running()?;
        let request =
            Request::new(caller, "sessions.close", session, &json!({"outcome": outcome}))?;
        let closed = AffectedRun::new(session, None);
        self.execute(session, &request, closed, Command::Close { outcome }).await
    }
}

pub(super) fn page_limit(limit: Option<usize>) -> Result<usize> {
    let limit = limit.unwrap_or(PAGE_SESSIONS);
    if (1..=PAGE_SESSIONS_MAX).contains(&limit) {
        return Ok(limit);
    }
    Err(Error::Invalid(format!("limit is 1 to {PAGE_SESSIONS_MAX}")))
}

pub(super) fn check_title(title: Option<&str>) -> Result<()> {
    if title.is_some_and(|title| title.len() > TITLE_BYTES_MAX) {
        return Err(Error::Invalid(format!("A title has at most {TITLE_BYTES_MAX} bytes")));
    }
    Ok(())
}

pub(super) async fn check_folder(folder: &str) -> Result<()> {
    let path = Path::new(folder).to_owned();
    if !path.is_absolute() || folder.contains('\0') {
        return Err(Error::Invalid("working_dir is an absolute path".to_owned()));
    }
    let is_dir = tokio::task::spawn_blocking(move || path.is_dir()).await;
    if !is_dir.unwrap_or(false) {
        return Err(Error::Invalid("working_dir is not a folder".to_owned()));
    }
    Ok(())
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
