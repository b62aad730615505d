//! Executions that are no session's any more: of closed sessions, abandoned ones that came back, and
//! what a session that was deleted left. They are ended on first contact; what they said meanwhile is kept.

use std::time::Duration;

use piton_core::decide::Command;
use piton_core::id::SessionId;
use piton_core::state::Executor;

use piton_exec::executor::Found;

use super::{Executions, recover};
use crate::error::Result;
use crate::service::Handle;

const LOOK_EVERY: Duration = Duration::from_secs(30);

impl Executions {
    pub(super) async fn watch_strangers(&self) {
        let Ok(handle) = self.handle().await else { return };
        loop {
            let listed = self.0.executor.list().await;
            let listed =
                listed.inspect_err(|error| tracing::warn!(%error, "executions not listed"));
            for found in listed.unwrap_or_default() {
                self.launched(&found.execution).await;
                if let Err(error) = self.end_stranger(&handle, &found).await {
                    let Found { session, execution } = &found;
                    tracing::warn!(%session, %execution, code = %error.code(), %error, "stranger not ended");
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Ends the agent of a session that was just closed. What cannot be ended now is a stranger at
    /// the next look.
    pub(super) async fn end_closed(&self, session: &SessionId) {
        let ending = async {
            let handle = self.handle().await?;
            let executor = handle.state(session).await?.facts.executor.filter(Executor::may_live);
            let Some(Executor { execution_id: execution, .. }) = executor else { return Ok(()) };
            self.launched(&execution).await;
            self.end_stranger(&handle, &Found { session: session.clone(), execution }).await
        };
        if let Err(error) = ending.await {
            tracing::warn!(%session, code = %error.code(), %error, "a closed session's agent not ended");
        }
    }

    /// Ends an execution that is not its session's any more.
    pub(super) async fn end_stranger(&self, handle: &Handle, found: &Found) -> Result<()> {
        let Found { session, execution } = found;
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
        if is_current && state.facts.closed.is_none() {
            self.follow(session, execution);
            return Ok(());
        }
        let at = self.at(session, execution, state.lease.epoch).await?;
        self.0.executor.stop(execution, at.epoch).await?;
        if is_current {
            // A closed session needs no agent; its follower sees that it is gone.
            return handle.execute(session, recover()).await.map(drop);
        }
        // What the session itself settled says already what is damaged of it.
        let is_told = executor.is_some_and(|e| e.execution_id == *execution);
        let mut damaged = false;
        while !damaged {
            let after = handle.state(session).await?.spools.get(execution).cloned();
            let mut drained = self.0.executor.drain(&at, after).await;
            damaged = drained.damage.is_some();
            drained.damage.take_if(|_| is_told);
            if drained.is_empty() {
                break;
            }
            let import = Command::Import(drained.import(execution.clone()));
            handle.execute(session, import).await?;
        }
        if damaged {
            // What cannot be read now may be worth something to somebody.
            if let Err(error) = self.0.executor.set_aside(execution).await {
                tracing::warn!(%execution, %error, "a damaged spool is not set aside");
            }
            return Ok(());
        }
        if let Err(error) = self.0.executor.forget(execution).await {
            tracing::warn!(%execution, %error, "what an execution left is not cleared away");
        }
        Ok(())
    }
}
