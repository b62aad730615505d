//! Runs and their agents: resume, start, open, pause, cancel, dismiss.

use piton_core::decide::{Command, Refusal};
use piton_core::id::{ExecutionId, RunId, SessionId};
use piton_core::reason::Reason;
use piton_core::resume::{StartTrigger, goes_on_with};
use piton_core::state::Run;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::requests::Request;
use super::{Caller, Engine, Fulfilled, SessionReport};
use crate::error::{Error, Result};

/// The session that a request changed, and the run that it was about, if it was about one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AffectedRun {
    pub session_id: SessionId,
    pub run_id: Option<RunId>,
}

impl Engine {
    /// Starts the session's agent if it does not run, and continues a paused or interrupted run.
    pub async fn resume(
        &self,
        caller: &Caller,
        session: &SessionId,
    ) -> Result<Fulfilled<AffectedRun>> {
        let running = self.running()?;
        let request = Request::new(caller, "sessions.resume", session, &Value::Null)?;
        if let Some(replayed) = self.replay_if_open(session, &request).await? {
            return Ok(replayed);
        }
        let supervisors = running.handle.supervisors();
        supervisors.ensure_running(session, StartTrigger::Manual).await?;
        // As it is now, and not as it was before the agent was started.
        let facts = self.view().state(session).await?.facts;
        let run_id = goes_on_with(&facts, self.policy().continue_run, StartTrigger::Manual);
        let resumed = AffectedRun { session_id: session.clone(), run_id: run_id.clone() };
        let command = match run_id {
            Some(run_id) => Command::Resume { run_id },
            None => Command::Nothing,
        };
        self.execute(session, &request, resumed, command).await
    }

    /// Starts the session's agent if it does not run; an interrupted run stays interrupted.
    /// `fresh`: without the conversation that the agent had.
    pub async fn start_agent(
        &self,
        caller: &Caller,
        session: &SessionId,
        fresh: bool,
    ) -> Result<Fulfilled<AffectedRun>> {
        let running = self.running()?;
        let request = Request::new(caller, "sessions.start", session, &json!({"fresh": fresh}))?;
        if let Some(replayed) = self.replay_if_open(session, &request).await? {
            return Ok(replayed);
        }
        let supervisors = running.handle.supervisors();
        if fresh {
            supervisors.start_fresh(session).await?;
        } else {
            supervisors.ensure_running(session, StartTrigger::Manual).await?;
        }
        let started = AffectedRun { session_id: session.clone(), run_id: None };
        self.execute(session, &request, started, Command::Nothing).await
    }

    /// A client looks at the session: its agent is started, and an interrupted run continued, if the
    /// policy says so. Answers how the session stands then.
    pub async fn open(&self, session: &SessionId) -> Result<SessionReport> {
        let running = self.running()?;
        let state = self.view().state(session).await?;
        // A closed session can be looked at, too.
        if state.facts.closed.is_none() {
            match running.handle.supervisors().ensure_running(session, StartTrigger::Open).await {
                // The log says why there is no agent, and so does the status.
                Err(Error::Obstacle(_)) => {}
                ensured => {
                    ensured?;
                }
            }
        }
        self.session(session).await
    }

    /// Stops the run's turn; the run continues when it is resumed. `run`: refused if it is not the
    /// session's run any more; without it, the latest is meant.
    pub async fn pause(
        &self,
        caller: &Caller,
        session: &SessionId,
        run: Option<RunId>,
    ) -> Result<Fulfilled<AffectedRun>> {
        self.running()?;
        self.change_run(caller, session, "sessions.pause", run, |run_id| Command::Pause { run_id })
            .await
    }

    /// Ends the run.
    pub async fn cancel(
        &self,
        caller: &Caller,
        session: &SessionId,
        run: Option<RunId>,
    ) -> Result<Fulfilled<AffectedRun>> {
        let command = |run_id| Command::Cancel { run_id, reason: Reason::UserRequest };
        self.change_run(caller, session, "sessions.cancel", run, command).await
    }

    /// Marks an interrupted run as handled without continuing it.
    pub async fn dismiss(
        &self,
        caller: &Caller,
        session: &SessionId,
        run: Option<RunId>,
    ) -> Result<Fulfilled<AffectedRun>> {
        let command = |run_id| Command::Dismiss { run_id };
        self.change_run(caller, session, "sessions.dismiss", run, command).await
    }

    /// Gives an executor up that will not come back: its run is interrupted, and another agent may be
    /// started. Should the executor return, its agent is ended. `execution`: refused if the session has
    /// another executor by now; without it, the current one is meant.
    pub async fn abandon(
        &self,
        caller: &Caller,
        session: &SessionId,
        execution: Option<ExecutionId>,
    ) -> Result<Fulfilled<AffectedRun>> {
        let arguments = json!({"agent_execution_id": execution});
        let request = Request::new(caller, "sessions.abandon", session, &arguments)?;
        let facts = self.view().state(session).await?.facts;
        let current = facts.executor.map(|executor| executor.execution_id);
        let current = execution.or(current).ok_or(Refusal::ExecutorNotFound)?;
        let run_id = facts.run.filter(Run::is_open).map(|run| run.run_id);
        let abandoned = AffectedRun { session_id: session.clone(), run_id };
        let command = Command::Abandon { execution_id: current };
        self.execute(session, &request, abandoned, command).await
    }

    async fn change_run(
        &self,
        caller: &Caller,
        session: &SessionId,
        action: &'static str,
        run: Option<RunId>,
        command: impl FnOnce(RunId) -> Command,
    ) -> Result<Fulfilled<AffectedRun>> {
        let request = Request::new(caller, action, session, &json!({"run_id": run}))?;
        let latest = self.view().state(session).await?.facts.run;
        let latest = latest.map(|run| run.run_id).ok_or(Refusal::NeverRun)?;
        let run_id = run.unwrap_or(latest);
        let done = AffectedRun { session_id: session.clone(), run_id: Some(run_id.clone()) };
        self.execute(session, &request, done, command(run_id)).await
    }

    /// What the same request was answered before; refused if the session is closed.
    async fn replay_if_open(
        &self,
        session: &SessionId,
        request: &Request<'_>,
    ) -> Result<Option<Fulfilled<AffectedRun>>> {
        let state = self.view().state(session).await?;
        if state.facts.closed.is_some() {
            return Err(Refusal::SessionClosed.into());
        }
        self.catalog().require_named(&state)?;
        self.find_replay(session, &state.requests, request).await
    }
}
