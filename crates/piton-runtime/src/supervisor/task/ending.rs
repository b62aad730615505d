//! Ending what nothing needs: an agent that was idle for long, executions that are no session's any more.

use std::time::Duration;

use piton_core::State;
use piton_core::decide::{Command, Verdict};
use piton_core::id::ExecutionId;
use piton_core::resume::{self, AgentRestart};
use piton_core::supervise::{self, ExecutionContact};
use piton_exec::executor::ListedExecution;
use tokio::time::Instant;

use super::{JobDone, Next, RETRY_DELAY, Supervisor};
use crate::error::Result;
use crate::supervisor::starting::wait_until;

impl Supervisor {
    /// When to look whether the agent is idle: nothing wakes the supervisor when a run ends.
    pub(super) fn idle_look_at(&self, state: &State) -> Option<Instant> {
        let timeout = self.shared.0.settings.get().agent_idle_timeout?;
        let now = Instant::now();
        self.idle_until(state, now).or_else(|| Some(now + timeout))
    }

    /// When the agent will have had nothing to do for as long as it may; `None`: it has, it may for
    /// ever, or nothing would start it again.
    pub(super) fn idle_until(&self, state: &State, now: Instant) -> Option<Instant> {
        let timeout = self.shared.0.settings.get().agent_idle_timeout?;
        // Without a catalog it is not known how it would be started again.
        let agents = self.shared.agents()?;
        if agents.policy.agent_restart == AgentRestart::Manual {
            return None;
        }
        let idle_for = self.handle.view().now().since(supervise::idle_since(state)?);
        let until = now + timeout.saturating_sub(idle_for);
        Some(self.in_use_until.map_or(until, |in_use| until.max(in_use)))
    }

    /// Decides that the agent is to be ended, unless a user has a shell open beside it.
    pub(super) async fn end_idle_agent(&mut self, state: &State) -> Result<Next> {
        let idle_for = self.shared.0.settings.get().agent_idle_timeout;
        let (Some(executions), Some(execution_id), Some(idle_for)) =
            (self.executions().cloned(), self.execution.clone(), idle_for)
        else {
            return Ok(Next::Look);
        };
        let at = executions.at(&self.session, &execution_id, state.lease.epoch).await?;
        let in_use_for = match executions.has_shells(&at).await {
            Ok(false) => {
                let command = Command::EndIdleAgent { execution_id, idle_for };
                let ack = self.handle.execute_settled(&self.session, command).await?;
                // Something came up meanwhile: the log says since when it is idle now.
                if ack.verdict == Verdict::Already { RETRY_DELAY } else { Duration::ZERO }
            }
            Ok(true) => idle_for,
            Err(fault) => {
                tracing::debug!(session = %self.session, %fault, "agentctl did not say whether it is in use");
                RETRY_DELAY
            }
        };
        self.in_use_until = Some(Instant::now() + in_use_for);
        Ok(Next::Look)
    }

    /// Ends the agent as was decided. A start that is wanted meanwhile waits for the log to say that it
    /// is gone.
    pub(super) fn stop_agent(&mut self, state: &State) -> Next {
        let ending_seq = state.facts.agent.as_ref().and_then(|agent| agent.ending_seq);
        let (Some(executions), Some(execution), Some(ending_seq)) =
            (self.executions().cloned(), self.execution.clone(), ending_seq)
        else {
            return Next::Look;
        };
        let (handle, session) = (self.handle.clone(), self.session.clone());
        self.is_stopping = true;
        self.jobs.push(Box::pin(async move {
            let ended = executions.end_agent(&session, &execution, ending_seq).await;
            let gone = match ended {
                Ok(()) => wait_until(&handle, &session, |s| !resume::is_ending(&s.facts)).await,
                Err(error) => Err(error),
            };
            if let Err(error) = gone {
                tracing::warn!(%session, code = %error.code(), %error, "an idle agent was not ended");
                tokio::time::sleep(RETRY_DELAY).await;
            }
            JobDone::AgentStopped
        }));
        Next::Look
    }

    /// Ends the execution because a user asks for it. First the log says that its agent is to be ended:
    /// a prompt that is accepted from then on waits for the next agent. Until the end nothing is
    /// started and nothing of what the agent says is imported; that is read from its spool afterwards.
    pub(super) async fn stop_on_request(
        &mut self,
        state: &State,
        execution: &ExecutionId,
    ) -> Result<()> {
        let Some(executions) = self.executions().cloned() else { return Ok(()) };
        if self.execution.as_ref() != Some(execution) {
            // It has ended meanwhile.
            return Ok(());
        }
        let command = Command::EndAgent { execution_id: execution.clone() };
        self.handle.execute_settled(&self.session, command).await?;
        self.disconnect();
        self.link = ExecutionContact::Unknown;
        let at = executions.at(&self.session, execution, state.lease.epoch).await?;
        Ok(executions.stop_at(&at).await?)
    }

    /// Ends an execution that is not the session's any more.
    pub(super) fn end_leftover(&mut self, execution: ExecutionId) {
        let Some(executions) = self.executions().cloned() else { return };
        if self.execution.as_ref() == Some(&execution) || !self.ending.insert(execution.clone()) {
            return;
        }
        let (handle, session) = (self.handle.clone(), self.session.clone());
        self.jobs.push(Box::pin(async move {
            let found = ListedExecution { session, execution };
            executions.launched(&found.execution).await;
            if let Err(error) = executions.end_leftover(&handle, &found).await {
                let ListedExecution { session, execution } = &found;
                tracing::warn!(%session, %execution, code = %error.code(), %error, "a leftover execution was not ended");
            }
            JobDone::Leftover(found.execution)
        }));
    }
}
