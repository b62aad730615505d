//! Giving an agent what users chose: a mode, a model, config options.

use piton_core::agent_view::{Choice, Choices, ConfigValue};
use piton_core::id::SessionId;
use piton_core::state::AgentStatus;
use piton_exec::protocol::Act;
use serde_json::{Value, json};

use super::Executions;
use crate::error::Result;

/// One thing to ask of the agent, under an id that is the same however often it is asked.
struct Ask {
    id: String,
    method: &'static str,
    params: Value,
}

/// What no agent is known to have been given.
fn pending(session: &SessionId, choices: &Choices) -> Vec<Ask> {
    fn ask(session: &SessionId, seq: u64, what: &str, method: &'static str, params: Value) -> Ask {
        Ask { id: format!("{session}/{seq}/{what}"), method, params }
    }
    let is_pending = |choice: &&Choice<String>| choice.is_pending;
    let model = choices.model.as_ref().filter(is_pending).map(|choice| {
        ask(session, choice.seq, "model", "set_model", json!({ "modelId": choice.value }))
    });
    let options = choices.options.iter().filter(|(_, choice)| choice.is_pending);
    let options = options.map(|(id, choice)| {
        let params = match &choice.value {
            ConfigValue::Bool(on) => json!({ "configId": id, "type": "boolean", "value": on }),
            ConfigValue::Text(text) => json!({ "configId": id, "value": text }),
        };
        ask(session, choice.seq, &format!("option/{id}"), "set_config_option", params)
    });
    let mode = choices.mode.as_ref().filter(is_pending).map(|choice| {
        ask(session, choice.seq, "mode", "set_mode", json!({ "modeId": choice.value }))
    });
    model.into_iter().chain(options).chain(mode).collect()
}

impl Executions {
    /// Has the session's agent do something that is answered at once.
    pub(crate) async fn command_agent(
        &self,
        session: &SessionId,
        id: String,
        act: Act,
    ) -> Result<Value> {
        let handle = self.handle().await?;
        let (at, _) = self.current(&handle, session).await?;
        Ok(self.tell(&at, id, act).await?.result)
    }

    /// Gives the session's agent what users chose and no agent is known to have. Whether there is an
    /// agent that could be given it; one that is started later is started with it.
    pub(crate) async fn apply_choices(&self, session: &SessionId) -> Result<bool> {
        let handle = self.handle().await?;
        let state = handle.state(session).await?;
        let is_ready = state.facts.can_receive()
            && state.facts.agent.as_ref().is_some_and(|agent| agent.status == AgentStatus::Ready);
        let asks = pending(session, &state.features.choices);
        if !is_ready || asks.is_empty() {
            return Ok(is_ready);
        }
        let (at, _) = self.current(&handle, session).await?;
        for Ask { id, method, params } in asks {
            self.tell(&at, id, Act::Ask { method: method.to_owned(), params }).await?;
        }
        Ok(true)
    }
}
