//! Carrying out effects: each is one command to agentctl, under the effect's own key.

use std::time::Duration;

use piton_core::Code;
use piton_core::decide::{Command, Probe};
use piton_core::id::{ExecutionId, SessionId};
use piton_core::planted::{self, Bug};
use piton_core::spool::Spool;
use piton_core::state::{Effect, Phase};
use piton_exec::executor::{Drained, Fault};
use piton_exec::protocol::Act;
use piton_store::BoxFuture;
use serde_json::Value;

use super::Executions;
use crate::error::{Error, Result};
use crate::interfaces::{Driver, EffectJob, Executors};
use crate::supervisor::Wake;

/// The prompt for an agent that continues an interrupted run, or begins a run that has no prompt.
pub(super) const CONTINUE_PROMPT: &str = "Continue where you left off.";
/// How often, and after which delay, a command is repeated that a momentary state refused.
const REFUSED_TRIES_MAX: u32 = 10;
const REFUSED_RETRY_DELAY: Duration = Duration::from_millis(20);
/// How long an agentctl that does not answer is left alone.
const AGAIN: Duration = Duration::from_secs(5);

impl Driver for Executions {
    fn perform(&self, job: EffectJob) -> BoxFuture<bool> {
        let executions = self.clone();
        Box::pin(async move { executions.act(job).await })
    }

    fn is_live(&self, session: &SessionId) -> bool {
        self.links().connected.contains_key(session)
    }
}

impl Executors for Executions {
    fn probe(&self, _session: &SessionId, execution: &ExecutionId) -> BoxFuture<Probe> {
        let (executions, execution) = (self.clone(), execution.clone());
        Box::pin(async move { executions.0.executor.probe(&execution).await })
    }

    fn drain(
        &self,
        session: &SessionId,
        execution: &ExecutionId,
        after: Option<Spool>,
    ) -> BoxFuture<Drained> {
        let (executions, session) = (self.clone(), session.clone());
        let execution = execution.clone();
        Box::pin(async move {
            // A dead one knows no epoch.
            match executions.at(&session, &execution, 0).await {
                Ok(at) => executions.0.executor.drain(&at, after).await,
                Err(error) => {
                    tracing::error!(%session, %execution, code = %error.code(), "spool not read");
                    Drained::default()
                }
            }
        })
    }

    fn executions(&self) -> Option<Executions> {
        Some(self.clone())
    }
}

impl Executions {
    /// Whether it was carried out; if not, it is tried again when there is an agent.
    async fn act(&self, job: EffectJob) -> bool {
        let Ok(handle) = self.handle().await else { return false };
        let session = job.session.clone();
        let run_id = job.effect.run_id().clone();
        let begins = job.effect.is_prompt();
        // The spool says when a turn was begun or stopped, in its place between the ends of turns.
        let is_reported_by_spool = begins || matches!(job.effect, Effect::Stop { .. });
        let Some(act) = act(&job) else { return true };
        let mut tries = 0;
        let sent = loop {
            let Ok((at, state)) = self.current(&handle, &session).await else {
                if begins {
                    handle.supervisors().wake(&session, Wake::Undelivered);
                }
                return false;
            };
            let ready = state.facts.can_receive();
            let run = state.facts.run.as_ref();
            let paused = run.is_some_and(|r| r.run_id == run_id && r.phase == Phase::Paused);
            if begins && !ready {
                handle.supervisors().wake(&session, Wake::Undelivered);
            }
            if begins && (!ready || paused) || !state.pending.contains_key(&job.cause.seq) {
                return false;
            }
            let mut act = act.clone();
            if let Act::Prompt { content, .. } = &mut act {
                match self.prompt(&handle, &at, &state, &job).await {
                    Ok(prompt) => *content = prompt,
                    Err(Error::Agentctl(Fault::Unreachable { .. })) => {
                        tokio::time::sleep(AGAIN).await;
                        continue;
                    }
                    Err(error) => {
                        tracing::warn!(%session, code = %error.code(), %error, "prompt not prepared");
                        return false;
                    }
                }
            }
            match self.tell(&at, job.key.clone(), act).await {
                Err(Error::Agentctl(Fault::Unreachable { .. })) => tokio::time::sleep(AGAIN).await,
                Err(Error::Agentctl(Fault::Problem(problem)))
                    if begins
                        && problem.code.known().is_some_and(Code::is_momentary)
                        && tries < REFUSED_TRIES_MAX =>
                {
                    tries += 1;
                    tokio::time::sleep(REFUSED_RETRY_DELAY * tries).await;
                }
                sent => break sent,
            }
        };
        match sent {
            Ok(_) => !is_reported_by_spool,
            Err(Error::Agentctl(Fault::Problem(problem))) => {
                if problem.code.known().is_some_and(Code::is_transient) {
                    return false;
                }
                if is_reported_by_spool && problem.code.known().is_some_and(Code::is_journaled) {
                    return false;
                }
                if begins {
                    // Nothing will come of this run: that it was refused is its end.
                    let (code, error) = (Some(problem.code), problem.message);
                    let failed = handle.execute(&session, Command::Fail { run_id, code, error });
                    log_failure(&session, failed.await.map(drop));
                } else {
                    // What it was about is over already.
                    tracing::info!(%session, code = %problem.code, "agentctl had nothing to do for a command");
                }
                true
            }
            Err(error) => {
                tracing::warn!(%session, code = %error.code(), %error, "effect not carried out");
                false
            }
        }
    }
}

fn log_failure(session: &SessionId, result: Result<()>) {
    if let Err(error) = result {
        tracing::warn!(%session, code = %error.code(), "a refused prompt's run was not ended");
    }
}

/// The command that an effect is; `None` if there is nothing to be said.
fn act(job: &EffectJob) -> Option<Act> {
    let run_id = job.effect.run_id().clone();
    Some(match &job.effect {
        Effect::Begin { .. } | Effect::Continue { .. } => {
            let content = job.message.clone().unwrap_or_else(|| CONTINUE_PROMPT.into());
            Act::Prompt { run_id, content }
        }
        Effect::Answer { .. } if planted::is(Bug::AnswerKeptBack) => return None,
        Effect::Answer { wait_id, .. } => {
            let answer = job.cause.content_field("answer").unwrap_or(Value::Null);
            Act::Answer { wait_id: wait_id.clone(), answer: Some(answer) }
        }
        Effect::CancelWait { wait_id, .. } => {
            Act::Answer { wait_id: wait_id.clone(), answer: None }
        }
        Effect::Stop { .. } => Act::Cancel { run_id },
    })
}
