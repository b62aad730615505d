//! The supervisor and the session's execution: whether it lives, the connection to it, what becomes of
//! it in the log.

use piton_core::State;
use piton_core::decide::{Command, Probe, Verdict};
use piton_core::id::ExecutionId;
use piton_core::planted::{self, Bug};
use piton_core::supervise::{self, ExecutionContact, LeaseHolder, LiveFacts};
use piton_exec::executor::Fault;
use tokio::time::Instant;

use super::{GOOD_CONNECTION, JobDone, Next, PROBE_TIMEOUT, REPEATED_STEPS_MAX, Supervisor};
use crate::error::{Error, Result};
use crate::executions::{Executions, Over, is_not_ours, pump};

impl Supervisor {
    pub(super) async fn probe(&mut self) -> Next {
        let Some(execution) = self.execution.clone() else { return Next::Look };
        let env = self.handle.env();
        let mut probe = tokio::select! {
            biased;
            probe = self.shared.0.executors.probe(&self.session, &execution) => probe,
            () = env.clock.sleep(PROBE_TIMEOUT) => Probe::Unreachable,
        };
        if planted::is(Bug::SilenceIsDeath) && probe == Probe::Unreachable {
            probe = Probe::Gone;
        }
        self.link = match probe {
            // Where there is nothing to connect to, that it lives is all there is to know.
            Probe::Alive if self.executions().is_none() => ExecutionContact::Connected,
            Probe::Alive => ExecutionContact::Alive { rests: false },
            Probe::Gone => ExecutionContact::Gone,
            Probe::Unreachable => {
                self.silent_since.get_or_insert_with(Instant::now);
                self.delay_retry();
                ExecutionContact::Silent { for_long: false }
            }
        };
        Next::Look
    }

    /// Records the fate of the execution with a complete command, so that the session's writer does
    /// not have to probe.
    pub(super) async fn settle(
        &mut self,
        state: &State,
        known: &LiveFacts,
        probe: Option<Probe>,
    ) -> Result<Next> {
        let execution = self.execution.clone();
        if let (Some(Probe::Gone), Some(execution)) = (probe, &execution) {
            // What it wrote down comes before its end.
            self.drain(execution).await?;
        }
        let dead = known.dead.clone();
        let takes_over = probe == Some(Probe::Alive) && known.owner != LeaseHolder::Ours;
        let command = match probe {
            None => supervise::orphaned_run(&state.facts, &dead),
            probe => Some(Command::Recover { dead, probe, takes_over }),
        };
        let Some(command) = command else { return Ok(Next::Look) };
        let ack = self.handle.execute_settled(&self.session, command).await?;
        if ack.verdict == Verdict::Already {
            self.repeated += 1;
            if self.repeated > REPEATED_STEPS_MAX {
                tracing::error!(session = %self.session, ?known, ?probe, "the state of the execution does not settle");
                self.repeated = 0;
                self.delay_retry();
                return Ok(Next::Wait(self.retry_at));
            }
        } else {
            self.written += 1;
        }
        Ok(Next::Look)
    }

    /// Imports what a dead execution wrote down.
    pub(super) async fn drain(&mut self, execution: &ExecutionId) -> Result<()> {
        let (handle, session) = (&self.handle, &self.session);
        loop {
            let after = handle.state(session).await?.spools.get(execution).cloned();
            let drained = self.shared.0.executors.drain(session, execution, after).await;
            if drained.is_empty() {
                return Ok(());
            }
            let is_last = drained.damage.is_some();
            let import = Command::Import(drained.import(execution.clone()));
            match handle.execute_settled(session, import).await {
                Ok(ack) if ack.verdict == Verdict::Already || is_last => return Ok(()),
                Ok(_) => {}
                Err(error @ Error::Refused(_)) => {
                    tracing::error!(%session, %execution, code = %error.code(), "a dead execution's spool was not imported");
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Shakes hands and follows. One that refuses lives, and the log must not say that all is well.
    pub(super) async fn connect(&mut self, state: &State) -> Result<Next> {
        let (Some(executions), Some(execution)) = (self.executions(), &self.execution) else {
            return Ok(Next::Look);
        };
        let (executions, handle) = (executions.clone(), self.handle.clone());
        let at = executions.at(&self.session, execution, state.lease.epoch).await?;
        match executions.follow(&at, state.spools.get(execution).cloned()).await {
            Ok(stream) => {
                executions.set_connected(&self.session, execution);
                executions.note_seen(&self.session, handle.view().now());
                (self.link, self.silent_since, self.retry_at) =
                    (ExecutionContact::Connected, None, None);
                self.connected_at = Instant::now();
                self.following = Some(Box::pin(pump(executions.clone(), handle, at, stream)));
                self.apply_choices(executions);
                return Ok(Next::Look);
            }
            Err(Fault::Problem(problem)) => {
                executions.refused(&handle, &at, state, &problem).await?;
            }
            Err(fault) => {
                tracing::debug!(session = %self.session, %execution, %fault, "agentctl is not connected");
            }
        }
        // Whether it lives decides what comes next.
        self.link = ExecutionContact::Unknown;
        self.delay_retry();
        Ok(Next::Look)
    }

    /// What was chosen and then not given to the agent, because the process that was to do it died.
    pub(super) fn apply_choices(&mut self, executions: Executions) {
        let session = self.session.clone();
        self.jobs.push(Box::pin(async move {
            if let Err(error) = executions.apply_choices(&session).await {
                tracing::warn!(%session, code = %error.code(), %error, "the agent was not configured as chosen");
            }
            JobDone::Choices
        }));
    }

    /// Gives the execution up. If it responds again later, it is ended.
    pub(super) async fn abandon(&mut self) -> Result<Next> {
        let Some(execution_id) = self.execution.clone() else { return Ok(Next::Look) };
        tracing::warn!(session = %self.session, %execution_id, "the executor was abandoned: it did not respond for too long");
        let command = Command::Abandon { execution_id };
        self.handle.execute_settled(&self.session, command).await?;
        Ok(Next::Look)
    }

    /// A closed session needs no agent. What it said is read from its spool when it is gone.
    pub(super) async fn stop_execution(&mut self, state: &State) -> Result<Next> {
        let (Some(executions), Some(execution)) = (self.executions(), &self.execution) else {
            return Ok(Next::Look);
        };
        let (executions, execution) = (executions.clone(), execution.clone());
        self.disconnect();
        let at = executions.at(&self.session, &execution, state.lease.epoch).await?;
        self.link = match executions.stop_at(&at).await {
            Ok(()) => ExecutionContact::Unknown,
            Err(fault) => {
                tracing::warn!(session = %self.session, %execution, %fault, "a closed session's agent was not ended");
                self.delay_retry();
                ExecutionContact::Alive { rests: true }
            }
        };
        Ok(Next::Look)
    }

    /// When silence has lasted too long.
    pub(super) fn silent_until(&self) -> Instant {
        let after = self.shared.0.settings.get().unreachable_after;
        self.silent_since.unwrap_or_else(Instant::now) + after
    }

    /// When silence has lasted so long that the execution is given up; `None`: never.
    pub(super) fn given_up_at(&self) -> Option<Instant> {
        let after = self.shared.0.settings.get().abandon_after?;
        Some(self.silent_since? + after)
    }

    /// Until the next try, or until silence has lasted too long.
    pub(super) fn wait_for_retry(&self, known: &LiveFacts) -> Next {
        let for_long = match known.link {
            ExecutionContact::Silent { for_long: false } => Some(self.silent_until()),
            ExecutionContact::Silent { for_long: true } => self.given_up_at(),
            _ => None,
        };
        let retry_at = self.retry_at.filter(|_| known.link != ExecutionContact::Launching);
        Next::Wait(retry_at.into_iter().chain(for_long).min())
    }

    pub(super) fn delay_retry(&mut self) {
        let mut random = [0; 4];
        // Without randomness the delay is only more regular.
        let _ = self.shared.0.entropy.fill(&mut random);
        let delay = supervise::reconnect_delay(self.failures, u32::from_le_bytes(random));
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(Instant::now() + delay);
    }

    pub(super) fn disconnect(&mut self) {
        self.following = None;
        if let (Some(executions), Some(execution)) = (self.executions(), &self.execution) {
            executions.set_disconnected(&self.session, execution);
        }
    }

    /// The connection is over, one way or the other.
    pub(super) fn lost(&mut self, over: &Result<Over>) {
        self.disconnect();
        self.link = ExecutionContact::Unknown;
        if self.connected_at.elapsed() >= GOOD_CONNECTION {
            self.failures = 0;
        }
        if let Err(error) = over
            && !is_not_ours(error)
        {
            let (session, execution) = (&self.session, self.execution.as_ref());
            tracing::error!(%session, ?execution, code = %error.code(), %error, "execution not followed");
        }
        self.delay_retry();
    }
}
