//! The sessions that need a supervisor, found by looking: at the start what dead boots left, later what
//! other boots left when they died, and executions that are no session's any more. Cost follows the
//! number of those sessions.

use std::collections::{BTreeSet, HashMap};
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use piton_core::decide::Verdict;
use piton_core::id::SessionId;
use piton_core::resume::{AgentRestart, Policy, StartTrigger};
use piton_core::state::{Executor, ExecutorStatus, Facts};
use piton_core::{Code, Timestamp, supervise};
use piton_store::{Query, Row, Select};

use super::{Supervisors, Wake};
use crate::error::Result;
use crate::executions::{Executions, is_not_ours};
use crate::service::Handle;
use crate::settings::Settings;

/// Sessions settled at the same time: enough to share flushes, few enough to finish the first
/// long before the last.
const SETTLED_AT_ONCE: usize = 256;
const PAGE_ROWS: usize = 256;
const LEFTOVERS_EVERY: Duration = Duration::from_secs(30);

/// What became of one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    pub session: SessionId,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Interrupted, reattached, or found unreachable: its log says which.
    Settled,
    /// There was nothing to do.
    Unchanged,
    /// Another boot lives and owns it.
    Owned,
    /// It could not be recovered and is left as it is; the others are not held up.
    Failed(Code),
}

impl Supervisors {
    /// Wakes the supervisor of every session that may have been left by a dead boot, or whose execution
    /// is not followed; `each` is called as soon as one is settled.
    pub(crate) async fn recover(
        &self,
        handle: &Handle,
        cause: Wake,
        mut each: impl FnMut(Recovered),
    ) -> Result<()> {
        let mut after = None;
        loop {
            let select = Select::NeedsRecovery;
            let query = Query { task_id: None, select, after, limit: PAGE_ROWS };
            let page = handle.view().store().list(query).await?;
            if cause == Wake::Boot {
                let active = |row: &Row| (row.session.clone(), row.summary.info.active_at);
                self.active_before().extend(page.rows.iter().map(active));
            }
            let recover_one = |row| self.recover_one(handle, row, cause.clone());
            let mut recovering =
                stream::iter(page.rows).map(recover_one).buffer_unordered(SETTLED_AT_ONCE);
            while let Some(recovered) = recovering.next().await {
                each(recovered);
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    fn active_before(&self) -> MutexGuard<'_, HashMap<SessionId, Timestamp>> {
        self.0.active_before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn recover_one(&self, handle: &Handle, row: Row, cause: Wake) -> Recovered {
        let session = row.session;
        let facts = row.summary.facts;
        let executor = facts.executor.as_ref().filter(|executor| executor.may_live());
        let is_ours = row.lease.owner.as_ref() == Some(handle.boot());
        if !is_ours {
            self.0.boot_starts.add_left(&session);
        }
        let outcome = match row.lease.owner {
            // Our own need no recovery, but for an executor that may have come back.
            Some(owner) if owner == *handle.boot() => match executor {
                Some(executor) if executor.status == ExecutorStatus::Unreachable => {
                    self.settle_one(&session, cause).await
                }
                Some(executor) if !self.is_followed(&session, executor) => {
                    self.wake(&session, cause);
                    Outcome::Unchanged
                }
                _ => Outcome::Unchanged,
            },
            Some(owner) if handle.env().is_alive(&owner) => {
                self.0.boot_starts.take_left(&session);
                Outcome::Owned
            }
            // Nothing can be asked: the writer needs no supervisor for that.
            _ if executor.is_none() => interrupt_orphan(handle, &session, &facts).await,
            _ => self.settle_one(&session, cause).await,
        };
        if facts.restore.is_some() && matches!(outcome, Outcome::Settled | Outcome::Unchanged) {
            handle.env().turns.restore_open(&session);
        }
        if facts.has_due_prompt() && matches!(outcome, Outcome::Settled | Outcome::Unchanged) {
            return deliver_due(handle, session, outcome).await;
        }
        Recovered { session, outcome }
    }

    fn is_followed(&self, session: &SessionId, executor: &Executor) -> bool {
        let executions = self.0.executions.as_ref();
        executions.is_none_or(|all| all.is_connected(session, &executor.execution_id))
    }

    async fn settle_one(&self, session: &SessionId, cause: Wake) -> Outcome {
        match self.settle(session, cause).await {
            Ok(outcome) => outcome,
            Err(error) => {
                tracing::error!(%session, code = %error.code(), "session not recovered");
                Outcome::Failed(error.code())
            }
        }
    }

    /// Looks for leftovers now and then, for as long as the service runs.
    pub(crate) async fn watch_leftovers(&self) {
        let Some(executions) = &self.0.executions else { return };
        executions.tidy().await;
        loop {
            self.find_leftovers(executions).await;
            tokio::time::sleep(LEFTOVERS_EVERY).await;
        }
    }

    /// Looks at every execution that is there, and wakes the supervisors of those that are not
    /// followed: one that is no session's any more is ended.
    async fn find_leftovers(&self, executions: &Executions) {
        for found in executions.list().await {
            if !executions.is_connected(&found.session, &found.execution) {
                self.wake(&found.session, Wake::Leftover(found.execution));
            }
        }
    }

    /// Starts the agents that ran when the last process ended, if that is wanted: a few at a time.
    pub(super) async fn start_at_boot(&self, handle: &Handle, policy: Policy) -> Result<()> {
        if policy.agent_restart != AgentRestart::OnBoot {
            self.active_before().clear();
            return Ok(());
        }
        let Settings { boot_parallel, boot_active_within, .. } = self.0.settings.get();
        let now = handle.view().now();
        let (mut after, mut starting) = (None, tokio::task::JoinSet::new());
        loop {
            let query = Query { task_id: None, select: Select::Unclosed, after, limit: PAGE_ROWS };
            let page = handle.view().store().list(query).await?;
            for row in page.rows {
                let before = self.active_before().get(&row.session).copied();
                let active_at = before.unwrap_or(row.summary.info.active_at);
                let is_recent = now.since(active_at) <= boot_active_within;
                if row.summary.facts.executor.is_none() || !is_recent {
                    continue;
                }
                if starting.len() >= boot_parallel.max(1) {
                    starting.join_next().await;
                }
                let (supervisors, session) = (self.clone(), row.session);
                starting.spawn(async move {
                    let ensured = supervisors.ensure_running(&session, StartTrigger::Boot).await;
                    if let Err(error) = ensured {
                        tracing::warn!(%session, code = %error.code(), %error, "the agent was not started");
                    }
                });
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        self.active_before().clear();
        while starting.join_next().await.is_some() {}
        Ok(())
    }
}

/// Delivers a queued prompt that a dead boot left, or that could not be written before.
async fn deliver_due(handle: &Handle, session: SessionId, outcome: Outcome) -> Recovered {
    let outcome = match handle.deliver_due(&session).await {
        Ok(ack) if ack.verdict == Verdict::Already => outcome,
        Ok(_) => Outcome::Settled,
        Err(error) if is_not_ours(&error) => Outcome::Owned,
        Err(error) => {
            tracing::error!(%session, code = %error.code(), "queued prompt not delivered");
            Outcome::Failed(error.code())
        }
    };
    Recovered { session, outcome }
}

/// Interrupts a run that a dead boot left, and that no executor can be asked about.
async fn interrupt_orphan(handle: &Handle, session: &SessionId, facts: &Facts) -> Outcome {
    let boot = facts.run.iter().map(|run| run.boot_id.clone());
    let dead: BTreeSet<_> = boot.filter(|boot| !handle.env().is_alive(boot)).collect();
    let Some(command) = supervise::orphaned_run(facts, &dead) else { return Outcome::Unchanged };
    match handle.execute_settled(session, command).await {
        Ok(ack) if ack.verdict == Verdict::Already => Outcome::Unchanged,
        Ok(_) => Outcome::Settled,
        Err(error) if is_not_ours(&error) => Outcome::Owned,
        Err(error) => {
            tracing::error!(%session, code = %error.code(), "session not recovered");
            Outcome::Failed(error.code())
        }
    }
}
