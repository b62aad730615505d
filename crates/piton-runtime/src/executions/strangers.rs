//! Executions that are no session's any more: abandoned ones that came back, and what a session
//! that was deleted left. They are ended on first contact; what they said meanwhile is kept.

use std::collections::BTreeMap;
use std::time::Duration;

use piton_core::decide::{Command, Import};

use super::{Executions, Found};
use crate::error::Result;
use crate::service::Handle;

const LOOK_EVERY: Duration = Duration::from_secs(30);

impl Executions {
    pub(super) async fn watch_strangers(&self) {
        let Ok(handle) = self.handle().await else { return };
        loop {
            for found in self.0.agentctl.list().await {
                if let Err(error) = self.end_stranger(&handle, &found).await {
                    let Found { session, execution } = &found;
                    tracing::warn!(%session, %execution, code = %error.code(), %error, "stranger not ended");
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Ends an execution that is not its session's any more.
    pub(super) async fn end_stranger(&self, handle: &Handle, found: &Found) -> Result<()> {
        let Found { session, execution } = found;
        let Some(head) = self.0.store.head(session).await? else {
            // Its session was deleted, and with it the key to speak to it.
            return Ok(self.0.agentctl.purge(found).await?);
        };
        let theirs = head.lease.owner.filter(|owner| owner != handle.boot());
        if theirs.is_some_and(|owner| handle.env().is_alive(&owner)) {
            return Ok(());
        }
        let state = handle.state(session).await?;
        let executor = state.facts.executor.as_ref();
        if executor.is_some_and(|e| e.execution_id == *execution && e.may_live()) {
            self.follow(session, execution);
            return Ok(());
        }
        let at = self.at(session, execution, state.lease.epoch).await?;
        self.0.agentctl.stop(&at).await?;
        loop {
            let after = handle.state(session).await?.spools.get(execution).cloned();
            let drained = self.0.agentctl.drain(&at, after).await;
            if drained.entries.is_empty() {
                break;
            }
            let import = Import {
                execution_id: execution.clone(),
                spool_id: drained.spool_id,
                entries: drained.entries,
                lost: None,
                masked: BTreeMap::new(),
                fresh: Vec::new(),
            };
            handle.execute(session, Command::Import(import)).await?;
        }
        self.0.agentctl.forget(&at).await;
        Ok(())
    }
}
