//! Runs and their agents: resume, start, open, pause, cancel, dismiss.

use piton_core::decide::{Command, Refusal};
use piton_core::id::{ExecutionId, RunId, SessionId};
use piton_core::reason::Reason;
use piton_core::resume::{StartContext, StartTrigger, continuable, run_to_continue};
use piton_core::state::{Executor, Phase, Run};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::oneshot;

use super::graphs::{GraphResume, GraphStop};
use super::requests::Request;
use super::{Caller, Engine, Fulfilled, SessionReport};
use crate::error::{Error, Result};
use crate::supervisor::await_start;

/// A session that a client looks at.
#[derive(Debug)]
pub struct OpenedSession {
    pub report: SessionReport,
    /// Its agent still starts: what becomes of it is not known yet.
    pub pending: bool,
}

/// The session that a request changed, and the run that it was about, if it was about one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AffectedRun {
    pub session_id: SessionId,
    pub run_id: Option<RunId>,
    /// The agent still starts: what becomes of it is not known yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pending: bool,
}

impl AffectedRun {
    pub(super) fn new(session_id: &SessionId, run_id: Option<RunId>) -> Self {
        Self { session_id: session_id.clone(), run_id, pending: false }
    }
}

/// How a session is resumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ResumeSpec {
    /// Continue an interrupted run; `None`: as the setting says.
    #[serde(rename = "continue")]
    pub continue_run: Option<bool>,
    /// What the agent is to know of what was said before.
    pub context: StartContext,
}

impl Engine {
    /// Starts the session's agent if it does not run, and continues a paused run. An interrupted run is
    /// continued if the request or the setting `continue_run` asks for it. Answers when it is known
    /// what became of the start, or after a limit that it is pending; a failed start is an error.
    pub async fn resume(
        &self,
        caller: &Caller,
        session: &SessionId,
        how: ResumeSpec,
    ) -> Result<Fulfilled<AffectedRun>> {
        self.running()?;
        if self.view().state(session).await?.facts.graph.is_some() {
            let resuming = self.resume_graph(caller, session, GraphResume::default());
            let resumed = Box::pin(resuming).await?;
            return Ok(resumed.map(|resumed| AffectedRun::new(session, resumed.run_id)));
        }
        let request = Request::new(caller, "sessions.resume", session, &how)?;
        if let Some(replayed) = self.replay_if_open(session, &request).await? {
            return Ok(replayed);
        }
        let (engine, caller, of) = (self.clone(), caller.clone(), session.clone());
        let (answer, resumed) = oneshot::channel();
        self.running()?.handle.supervisors().spawn(async move {
            let resumed = engine.resume_when_started(&caller, &of, how).await;
            // Its caller was answered that the start takes longer, or has left.
            if let Err(Err(error)) = answer.send(resumed) {
                tracing::warn!(session = %of, code = %error.code(), %error, "not resumed");
            }
        });
        if let Ok(resumed) = tokio::time::timeout(self.start_wait(), resumed).await {
            return resumed.map_err(|_| Error::ShuttingDown)?;
        }
        Ok(Fulfilled::new(AffectedRun { pending: true, ..AffectedRun::new(session, None) }))
    }

    /// Carries a resume out once the agent runs, however long its start takes: what a caller asked for is
    /// not forgotten because the caller was answered that it takes longer.
    async fn resume_when_started(
        &self,
        caller: &Caller,
        session: &SessionId,
        how: ResumeSpec,
    ) -> Result<Fulfilled<AffectedRun>> {
        let request = Request::new(caller, "sessions.resume", session, &how)?;
        let supervisors = self.running()?.handle.supervisors();
        while let Err(error) = supervisors.start_with(session, how.context).await {
            if !matches!(error, Error::AgentLate) {
                return Err(error);
            }
            if await_start(self.view(), session).await? {
                break;
            }
        }
        // As it is now, and not as it was before the agent was started.
        let facts = self.view().state(session).await?.facts;
        let run_id = match how.continue_run {
            Some(true) => continuable(&facts),
            Some(false) => None,
            None => run_to_continue(&facts, self.policy().continue_run, StartTrigger::Manual),
        };
        let resumed = AffectedRun::new(session, run_id.clone());
        let command = match run_id {
            Some(run_id) => Command::Resume { run_id },
            None => Command::Nothing,
        };
        self.execute(session, &request, resumed, command).await
    }

    /// Starts the session's agent if it does not run; an interrupted run stays interrupted. Answers as
    /// [`Self::resume`] does.
    pub async fn start_agent(
        &self,
        caller: &Caller,
        session: &SessionId,
        context: StartContext,
    ) -> Result<Fulfilled<AffectedRun>> {
        self.running()?;
        let arguments = json!({"context": context});
        let request = Request::new(caller, "sessions.start", session, &arguments)?;
        if let Some(replayed) = self.replay_if_open(session, &request).await? {
            return Ok(replayed);
        }
        if !self.ensure_started(session, context).await? {
            let started = AffectedRun { pending: true, ..AffectedRun::new(session, None) };
            return Ok(Fulfilled::new(started));
        }
        let started = AffectedRun::new(session, None);
        self.execute(session, &request, started, Command::Nothing).await
    }

    /// Whether the agent runs now; `false`: it still starts. An agent that could not be started is an
    /// error.
    async fn ensure_started(&self, session: &SessionId, context: StartContext) -> Result<bool> {
        let supervisors = self.running()?.handle.supervisors();
        let starting = supervisors.start_with(session, context);
        match tokio::time::timeout(self.start_wait(), starting).await {
            Err(_) | Ok(Err(Error::AgentLate)) => Ok(false),
            Ok(started) => started.map(|_| true),
        }
    }

    /// Waits until the log says whether the run's prompt has an agent; `false`: not within the limit.
    /// A run that was interrupted because there is none is an error.
    pub(super) async fn await_delivery(&self, session: &SessionId, run_id: &RunId) -> Result<bool> {
        let waiting = async {
            let mut tail = self.view().tail(session, 0);
            loop {
                let state = self.view().state(session).await?;
                let run = state.facts.run.as_ref().filter(|run| run.run_id == *run_id);
                let is_open = run.is_some_and(Run::is_open);
                let is_failed = run.is_some_and(|run| {
                    let reason = Reason::AgentStartFailed;
                    matches!(run.phase, Phase::Interrupted { reason: why, .. } if why == reason)
                });
                if is_failed {
                    return Err(self.view().start_failure(session, &state).await.into());
                }
                if !is_open || state.facts.can_receive() || state.prompts(run_id).next().is_none() {
                    return Ok(true);
                }
                tail.seek(state.last_seq);
                tail.next().await?;
            }
        };
        match tokio::time::timeout(self.start_wait(), waiting).await {
            Ok(known) => known,
            Err(_) => Ok(false),
        }
    }

    /// A client looks at the session: its agent is started, and an interrupted run continued, if the
    /// policy says so. Answers how the session stands then; an agent that could not be started is an
    /// error.
    pub async fn open(&self, session: &SessionId) -> Result<OpenedSession> {
        let running = self.running()?;
        let state = self.view().state(session).await?;
        let mut pending = false;
        // A closed session can be looked at, too; a graph has no agent.
        if state.facts.closed.is_none() && state.facts.graph.is_none() {
            let supervisors = running.handle.supervisors();
            let opening = supervisors.ensure_running(session, StartTrigger::Open);
            let opened = tokio::time::timeout(self.start_wait(), opening).await;
            match opened.unwrap_or(Err(Error::AgentLate)) {
                Err(Error::AgentLate) => pending = true,
                opened => {
                    opened?;
                }
            }
        }
        Ok(OpenedSession { report: self.session(session).await?, pending })
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
        if let Some(done) = self.stop_graph(caller, session, run.as_ref(), GraphStop::Pause).await?
        {
            return Ok(done);
        }
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
        if let Some(done) =
            self.stop_graph(caller, session, run.as_ref(), GraphStop::Cancel).await?
        {
            return Ok(done);
        }
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
        let running = self.running()?;
        let request = Request::new(caller, "sessions.abandon", session, &arguments)?;
        let state = self.view().state(session).await?;
        if let Some(replayed) = self.find_replay(session, &state.requests, &request).await? {
            return Ok(replayed);
        }
        let facts = state.facts;
        let may_live = facts.executor.as_ref().is_some_and(Executor::may_live);
        let current = facts.executor.map(|executor| executor.execution_id);
        let is_current = execution.is_none() || execution == current;
        let current = execution.or(current).ok_or(Refusal::ExecutorNotFound)?;
        // Two agents in one workspace would be worse than waiting, so the executor is asked once more.
        if may_live && is_current && running.executions.responds(&current).await {
            return Err(Error::ExecutorInUse { execution: current });
        }
        let run_id = facts.run.filter(Run::is_open).map(|run| run.run_id);
        let abandoned = AffectedRun::new(session, run_id);
        let command = Command::Abandon { execution_id: current };
        self.execute(session, &request, abandoned, command).await
    }

    /// Ends the session's agent and its agentctl. The session stays: its next prompt starts the agent
    /// again. Refused while a run is open; nothing happens if no agent runs.
    pub async fn stop_agent(
        &self,
        caller: &Caller,
        session: &SessionId,
    ) -> Result<Fulfilled<AffectedRun>> {
        let running = self.running()?;
        let request = Request::new(caller, "sessions.stop", session, &serde_json::Value::Null)?;
        if let Some(replayed) = self.replay_if_open(session, &request).await? {
            return Ok(replayed);
        }
        let facts = self.view().state(session).await?.facts;
        if let Some(run) = facts.run.filter(Run::is_open) {
            return Err(Refusal::RunInProgress { run: run.run_id }.into());
        }
        if facts.executor.as_ref().is_some_and(Executor::may_live) {
            running.executions.stop_unless_busy(session).await?;
        }
        let stopped = AffectedRun::new(session, None);
        self.execute(session, &request, stopped, Command::Nothing).await
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
        let done = AffectedRun::new(session, Some(run_id.clone()));
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
