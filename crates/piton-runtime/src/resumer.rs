//! The former name of [`Supervisors::ensure_running`], until its callers have moved.

use std::sync::Arc;

use piton_core::State;
use piton_core::id::SessionId;
use piton_core::resume::{Abilities, Plan, Policy, StartTrigger};

use crate::error::Result;
use crate::executions::Executions;
use crate::service::Handle;
use crate::supervisor::{Recipes, Supervisors};

#[derive(Clone, Debug)]
pub struct Resumer(Supervisors);

impl Resumer {
    #[expect(clippy::needless_pass_by_value, reason = "as its callers have it")]
    pub fn new(
        handle: Handle,
        _executions: Executions,
        recipes: Arc<dyn Recipes>,
        policy: Policy,
    ) -> Self {
        handle.supervisors().set_agents(recipes, policy);
        Self(handle.supervisors().clone())
    }

    pub fn policy(&self) -> Policy {
        self.0.policy()
    }

    pub fn abilities(&self, state: &State) -> Abilities {
        self.0.abilities(state)
    }

    pub async fn ensure(&self, session: &SessionId, trigger: StartTrigger) -> Result<Plan> {
        self.0.ensure_running(session, trigger).await
    }

    pub async fn ensure_afresh(&self, session: &SessionId) -> Result<Plan> {
        self.0.start_fresh(session).await
    }

    pub fn ensure_later(&self, session: &SessionId, trigger: StartTrigger) {
        self.0.ensure_running_later(session, trigger);
    }

    /// The supervisors do it.
    pub async fn watch(&self) {
        std::future::pending::<()>().await;
    }

    /// The supervisors do it.
    pub async fn on_boot(&self) -> Result<()> {
        std::future::ready(Ok(())).await
    }
}
