//! The conversations that agents have: listed, closed, deleted, and forked into sessions.

use std::path::PathBuf;

use piton_core::decide::{Command, Create, Refusal, Setup};
use piton_core::event::Fork;
use piton_core::id::SessionId;
use piton_core::resume::StartTrigger;
use piton_core::spool::{AgentSessions, SessionCapabilities};
use piton_core::state::Run;
use piton_exec::protocol::Act;
use piton_store::{Query, Select};
use serde::Serialize;
use serde_json::Value;

use super::requests::Request;
use super::sessions::{check_title, hex};
use super::{Caller, CreatedSession, Engine, Fulfilled};
use crate::error::{Error, Result};

const PAGE_ROWS: usize = 200;

/// How a fork is to be.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ForkSpec {
    /// `None`: that of the session.
    pub title: Option<String>,
    /// Start the agent at once, in the background.
    pub start: bool,
}

impl Engine {
    /// The conversations that an agent has, a page of them. A running agent of that profile is asked.
    pub async fn agent_sessions(
        &self,
        agent: &str,
        folder: Option<PathBuf>,
        cursor: Option<String>,
    ) -> Result<AgentSessions> {
        if folder.as_ref().is_some_and(|folder| !folder.is_absolute()) {
            return Err(Error::Invalid("folder is an absolute path".to_owned()));
        }
        let act = Act::ListSessions { cwd: folder, cursor };
        let listed = self.ask_any(agent, "a list of its sessions", |can| can.list, act).await?;
        serde_json::from_value(listed).map_err(|error| Error::Invalid(error.to_string()))
    }

    /// Has an agent close a conversation that no session of ours may continue.
    pub async fn close_agent_session(&self, caller: &Caller, agent: &str, id: &str) -> Result<()> {
        self.check_unused(agent, id).await?;
        let act = Act::CloseSession { agent_session_id: id.to_owned() };
        self.ask_any(agent, "closing sessions", |can| can.close, act).await?;
        self.audit(caller, "agents.sessions.close", format!("{agent} {id}")).await
    }

    /// Has an agent delete a conversation that no session of ours may continue.
    pub async fn delete_agent_session(&self, caller: &Caller, agent: &str, id: &str) -> Result<()> {
        self.check_unused(agent, id).await?;
        let act = Act::DeleteSession { agent_session_id: id.to_owned() };
        self.ask_any(agent, "deleting sessions", |can| can.delete, act).await?;
        self.audit(caller, "agents.sessions.delete", format!("{agent} {id}")).await
    }

    /// Asks a running agent of a profile, whichever session it works for.
    async fn ask_any(
        &self,
        agent: &str,
        what: &'static str,
        can: impl Fn(SessionCapabilities) -> bool,
        act: Act,
    ) -> Result<Value> {
        let running = self.running()?;
        self.catalog().get(agent)?;
        let (mut after, mut is_heard) = (None, false);
        loop {
            let query =
                Query { task_id: None, select: Select::NeedsRecovery, after, limit: PAGE_ROWS };
            let page = self.0.store.list(query).await?;
            for row in page.rows {
                let (info, facts) = (&row.summary.info, &row.summary.facts);
                let is_named = info.agent_profile_id.as_deref() == Some(agent);
                if !is_named || !facts.can_receive() || !self.contact(&row.session).is_connected {
                    continue;
                }
                is_heard = true;
                let capabilities = facts.agent.as_ref().and_then(|agent| agent.capabilities);
                if capabilities.is_some_and(&can) {
                    let id = format!("{}/ask/{}", row.session, self.ids().message()?);
                    return running.executions.command_agent(&row.session, id, act).await;
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None if is_heard => return Err(Refusal::AgentNotOffered { what }.into()),
                None => return Err(Error::AgentNotRunning),
            }
        }
    }

    /// The handle that a session has must stay good.
    async fn check_unused(&self, agent: &str, id: &str) -> Result<()> {
        self.catalog().get(agent)?;
        let mut after = None;
        loop {
            let query = Query { task_id: None, select: Select::Unclosed, after, limit: PAGE_ROWS };
            let page = self.0.store.list(query).await?;
            for row in page.rows {
                let is_named = row.summary.info.agent_profile_id.as_deref() == Some(agent);
                let theirs = row.summary.facts.agent.filter(|_| is_named);
                let has = theirs.is_some_and(|agent| {
                    agent.session_id.as_deref() == Some(id)
                        || agent.earlier_session_ids.iter().any(|earlier| earlier == id)
                });
                if has {
                    let (id, session) = (id.to_owned(), row.session);
                    return Err(Refusal::AgentSessionInUse { id, session }.into());
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Creates a session whose agent begins with a copy of this session's conversation, in the same
    /// folder. The agent makes the copy when it is first started; the session's own stays as it is.
    pub async fn fork(
        &self,
        caller: &Caller,
        session: &SessionId,
        spec: ForkSpec,
    ) -> Result<Fulfilled<CreatedSession>> {
        let running = self.running()?;
        check_title(spec.title.as_deref())?;
        let request = Request::new(caller, "sessions.fork", session, &spec)?;
        let state = self.view().state(session).await?;
        if let Some(run) = state.facts.run.as_ref().filter(|run| Run::is_open(run)) {
            return Err(Refusal::RunInProgress { run: run.run_id.clone() }.into());
        }
        let agent = state.facts.agent.as_ref();
        let can_fork = agent.and_then(|agent| agent.capabilities).is_some_and(|can| can.fork);
        let theirs = agent.and_then(|agent| agent.session_id.clone()).filter(|_| can_fork);
        let what = "a fork of this conversation";
        let from_agent_session_id = theirs.ok_or(Refusal::AgentNotOffered { what })?;
        let info = state.info.as_ref().ok_or(Refusal::SessionNotFound)?;
        let folder = running.plans.workspace(session, &state).await.map_err(Error::StartError)?;
        let task_id = match &info.task_id {
            Some(task) => self.find_task(task).await.ok().filter(|task| task.closed.is_none()),
            None => None,
        };
        let session_id: SessionId = match request.seed() {
            Some(seed) => format!("sess_{}", hex(&seed)).parse()?,
            None => self.ids().session()?,
        };
        let fork = Fork {
            from_session_id: session.clone(),
            from_seq: state.last_seq,
            from_agent_session_id,
        };
        let create = Create {
            session_id: session_id.clone(),
            title: spec.title.or_else(|| info.title.clone()),
            task_id: task_id.map(|task| task.task_id),
            working_dir: Some(folder.to_string_lossy().into_owned()),
            provider: info.provider.clone(),
            agent_profile_id: info.agent_profile_id.clone(),
            setup: Setup {
                choice: state.features.choices.all(),
                mcp_servers: self.view().mcp_servers(session, &state).await?,
                fork: Some(fork),
            },
        };
        let created = CreatedSession {
            session_id: session_id.clone(),
            agent_profile_id: info.agent_profile_id.clone(),
            notice: None,
        };
        let created = self.execute(&session_id, &request, created, Command::Create(create)).await?;
        if spec.start && !created.replayed {
            let supervisors = running.handle.supervisors();
            supervisors.ensure_running_later(&session_id, StartTrigger::Created);
        }
        Ok(created)
    }
}
