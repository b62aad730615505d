//! Executions that are no session's any more: abandoned ones that came back, those that a later one
//! took the place of, and what a deleted session left. They are ended on first contact; what they said
//! meanwhile is kept.

use piton_core::decide::Command;

use piton_exec::executor::ListedExecution;

use super::Executions;
use crate::error::Result;
use crate::service::Handle;

impl Executions {
    /// Ends an execution that is not its session's any more.
    pub(crate) async fn end_leftover(
        &self,
        handle: &Handle,
        found: &ListedExecution,
    ) -> Result<()> {
        let ListedExecution { session, execution } = found;
        let Some(head) = self.0.store.head(session).await? else {
            // Its session was deleted, and with it the key to speak to it.
            return Ok(self.0.executor.purge(found).await?);
        };
        let theirs = head.lease.owner.filter(|owner| owner != handle.boot());
        if theirs.is_some_and(|owner| handle.env().is_alive(&owner)) {
            return Ok(());
        }
        let state = handle.state(session).await?;
        let executor = state.facts.executor.as_ref();
        let is_current = executor.is_some_and(|e| e.execution_id == *execution && e.may_live());
        if is_current {
            // The supervisor's own to follow, or to stop.
            return Ok(());
        }
        let at = self.at(session, execution, state.lease.epoch).await?;
        self.0.executor.stop(execution, at.epoch).await?;
        // What the supervisor settled says already what is damaged of it.
        let is_recorded = executor.is_some_and(|e| e.execution_id == *execution);
        let mut damaged = false;
        while !damaged {
            let after = handle.state(session).await?.spools.get(execution).cloned();
            let mut drained = self.0.executor.drain(&at, after).await;
            damaged = drained.damage.is_some();
            drained.damage.take_if(|_| is_recorded);
            if drained.is_empty() {
                break;
            }
            let import = Command::Import(drained.import(execution.clone()));
            handle.execute(session, import).await?;
        }
        if damaged {
            // What cannot be read now may be needed for a repair by hand.
            if let Err(error) = self.0.executor.set_aside(execution).await {
                tracing::warn!(%execution, %error, "a damaged spool is not set aside");
            }
            return Ok(());
        }
        if let Err(error) = self.0.executor.forget(execution).await {
            tracing::warn!(%execution, %error, "leftovers of an execution are not removed");
        }
        Ok(())
    }
}
