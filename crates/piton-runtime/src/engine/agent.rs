//! An agent's own features: what it offers and says about itself, and what users choose of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use piton_core::agent_view::{AgentView, Configure};
use piton_core::decide::{Command, Refusal};
use piton_core::id::SessionId;
use piton_core::mcp::McpServer;
use piton_core::{Seq, State};
use piton_store::{Detail, Store};
use serde_json::Value;

use super::requests::Request;
use super::{AffectedRun, Caller, Engine, Fulfilled};
use crate::error::Result;

/// The session's own MCP servers.
pub(crate) async fn session_mcp_servers(
    store: &Arc<dyn Store>,
    session: &SessionId,
    state: &State,
) -> Result<Vec<McpServer>> {
    let Some(seq) = state.features.mcp_servers else { return Ok(Vec::new()) };
    let records = store.read(session, seq - 1, 1, Detail::Full).await?;
    let servers = records.first().and_then(|record| record.content_field("servers"));
    // Redacted ones are given to nobody.
    Ok(servers.and_then(|servers| serde_json::from_value(servers).ok()).unwrap_or_default())
}

impl Engine {
    /// What the session's agent offers, and said about itself; also when it does not run.
    pub async fn agent_view(&self, session: &SessionId) -> Result<AgentView> {
        let state = self.view().state(session).await?;
        self.view_of(session, &state).await
    }

    async fn view_of(&self, session: &SessionId, state: &State) -> Result<AgentView> {
        let mut said = BTreeMap::new();
        for (feature, seq) in &state.features.latest {
            if let Some(update) = self.update_at(session, *seq).await? {
                said.insert(*feature, update);
            }
        }
        let mut view = AgentView::new(&said, state.features.choices.clone());
        let servers = session_mcp_servers(&self.0.store, session, state).await?;
        view.mcp_servers = servers.into_iter().map(|server| server.name).collect();
        Ok(view)
    }

    /// What an agent said; `None` if it was redacted.
    async fn update_at(&self, session: &SessionId, seq: Seq) -> Result<Option<Value>> {
        let records = self.0.store.read(session, seq - 1, 1, Detail::Full).await?;
        Ok(records.first().and_then(|record| record.content_field("update")))
    }

    /// Chooses how the session's agent works: a mode, a model, config options. A record keeps it, so
    /// that every later start of the agent applies it again. Refused if the agent has named what it
    /// offers, and not this.
    pub async fn configure_agent(
        &self,
        caller: &Caller,
        session: &SessionId,
        choice: Configure,
    ) -> Result<Fulfilled<AffectedRun>> {
        let running = self.running()?;
        if let Some(fault) = choice.fault() {
            return Err(Refusal::ChoiceInvalid(fault).into());
        }
        if choice.is_empty() {
            let fault = "Name what is chosen: mode, model or options".to_owned();
            return Err(Refusal::ChoiceInvalid(fault).into());
        }
        let request = Request::new(caller, "sessions.configure", session, &choice)?;
        let state = self.view().state(session).await?;
        if let Some(replayed) = self.find_replay(session, &state.requests, &request).await? {
            return Ok(replayed);
        }
        // Before an agent was heard it is not known what it offers.
        let is_heard = state.facts.agent.as_ref().is_some_and(|agent| agent.capabilities.is_some());
        if is_heard && state.facts.closed.is_none() {
            let view = self.view_of(session, &state).await?;
            if let Some(missing) = view.not_offered(&choice) {
                let (what, id, available) = (missing.what, missing.id, missing.available);
                return Err(Refusal::ChoiceNotOffered { what, id, available }.into());
            }
        }
        let chosen = AffectedRun { session_id: session.clone(), run_id: None };
        let chosen = self.execute(session, &request, chosen, Command::Configure(choice)).await?;
        if state.facts.hears() {
            running.executions.apply_choices(session).await?;
        }
        Ok(chosen)
    }
}
