//! The one place where the engine asks for a session's agent.

use std::sync::Arc;

use piton_core::id::SessionId;
use piton_core::resume::{Plan, Policy, StartTrigger};

use super::start_plan::StartPlans;
use crate::error::Result;
use crate::executions::Executions;
use crate::resuming::Resumer;
use crate::service::Handle;

#[derive(Clone, Debug)]
pub(super) struct Agents {
    handle: Handle,
    resumer: Resumer,
}

impl Agents {
    pub(super) fn new(
        handle: &Handle,
        executions: &Executions,
        plans: &StartPlans,
        policy: Policy,
    ) -> Self {
        let (handle, executions) = (handle.clone(), executions.clone());
        let resumer = Resumer::new(handle.clone(), executions, Arc::new(plans.clone()), policy);
        Self { handle, resumer }
    }

    /// Finds out what became of a dead boot's executor, so that what follows is decided on what is.
    pub(super) async fn settle(&self, session: &SessionId) -> Result<()> {
        let state = self.handle.state(session).await?;
        let is_ours = state.lease.owner.as_ref() == Some(self.handle.boot());
        if is_ours || !state.facts.needs_recovery() {
            return Ok(());
        }
        self.handle.execute(session, crate::executions::recover()).await.map(drop)
    }

    /// Starts the session's agent if it does not run and this is a trigger for it. Returns when the
    /// log says what became of it.
    pub(super) async fn ensure(&self, session: &SessionId, trigger: StartTrigger) -> Result<Plan> {
        self.resumer.ensure(session, trigger).await
    }

    /// The same because of a caller's wish, without the conversation that the agent had.
    pub(super) async fn ensure_fresh(&self, session: &SessionId) -> Result<Plan> {
        self.resumer.ensure_afresh(session).await
    }

    /// The same as [`Self::ensure`], in the background.
    pub(super) fn ensure_later(&self, session: &SessionId, trigger: StartTrigger) {
        self.resumer.ensure_later(session, trigger);
    }

    /// Starts the agents that are to run after a boot, and then those that undelivered prompts wait
    /// for, for as long as the engine runs.
    pub(super) async fn run(&self) {
        let (booted, ()) = tokio::join!(self.resumer.on_boot(), self.resumer.watch());
        if let Err(error) = booted {
            tracing::error!(code = %error.code(), "agents were not started");
        }
    }
}
