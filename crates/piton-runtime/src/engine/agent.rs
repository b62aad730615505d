//! An agent's own features: what it offers and says about itself, and what users choose of it.

use piton_core::agent_view::{AgentView, Configure};
use piton_core::decide::{Command, Refusal};
use piton_core::id::SessionId;
use piton_core::{Code, Event, Record, State};
use piton_exec::executor::Fault;
use piton_exec::protocol::Problem;
use piton_store::Detail;
use serde_json::json;

use super::requests::Request;
use super::{AffectedRun, Caller, Engine, Fulfilled};
use crate::error::{Error, Result};

impl Engine {
    /// What the session's agent offers, and said about itself; also when it does not run.
    pub async fn agent_view(&self, session: &SessionId) -> Result<AgentView> {
        let state = self.view().state(session).await?;
        self.view().agent_view(session, &state).await
    }

    /// Logs the session's agent in: one that runs is asked to, one that does not is started and logs in
    /// before it opens its conversation. `method`: its id of the way to log in; without it, the only
    /// one that the agent names.
    pub async fn log_in(
        &self,
        caller: &Caller,
        session: &SessionId,
        method: Option<String>,
    ) -> Result<Fulfilled<AffectedRun>> {
        let running = self.running()?;
        let arguments = json!({"auth_method": method});
        let request = Request::new(caller, "sessions.login", session, &arguments)?;
        let state = self.view().state(session).await?;
        if state.facts.closed.is_some() {
            return Err(Refusal::SessionClosed.into());
        }
        if let Some(replayed) = self.find_replay(session, &state.requests, &request).await? {
            return Ok(replayed);
        }
        let method = match method {
            Some(method) => method,
            None => self.only_method(session, &state).await?,
        };
        if state.facts.can_receive() {
            let id = format!("{session}/login/{}", state.last_seq);
            let params = json!({ "methodId": method });
            let ask = running.executions.ask_agent(session, id, "authenticate".to_owned(), params);
            ask.await?;
        } else {
            running.handle.supervisors().start_logged_in(session, method).await?;
            self.check_started(session).await?;
        }
        let done = AffectedRun::new(session, None);
        self.execute(session, &request, done, Command::Nothing).await
    }

    /// The only way to log in that the agent named when it failed to start.
    async fn only_method(&self, session: &SessionId, state: &State) -> Result<String> {
        let seq = state.facts.agent.as_ref().and_then(|agent| agent.error_seq);
        let mut named = Vec::new();
        if let Some(seq) = seq {
            let records = self.0.store.read(session, seq - 1, 1, Detail::Headers).await?;
            if let Some(Ok(Event::AgentError(e))) = records.first().map(Record::event) {
                named = e.auth_methods;
            }
        }
        let ids: Vec<String> = named.into_iter().map(|method| method.id).collect();
        match ids.as_slice() {
            [only] => Ok(only.clone()),
            [] => {
                let detail = "auth_method is missing, and the agent names no way to log in";
                Err(Error::Invalid(detail.to_owned()))
            }
            ids => {
                let detail = format!("auth_method is missing; the agent names {}", ids.join(", "));
                Err(Error::Invalid(detail))
            }
        }
    }

    /// The agent runs; otherwise why it does not.
    async fn check_started(&self, session: &SessionId) -> Result<()> {
        let facts = self.view().state(session).await?.facts;
        if facts.can_receive() {
            return Ok(());
        }
        let cause = self.view().error_cause(session, &facts).await.unwrap_or_default();
        let code = cause.code.unwrap_or(Code::AgentNotRunning.into());
        let message = cause.message.unwrap_or_else(|| "The agent does not run".to_owned());
        Err(Error::Agentctl(Fault::Problem(Problem { code, message })))
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
            let view = self.view().agent_view(session, &state).await?;
            if let Some(missing) = view.not_offered(&choice) {
                let (what, id, available) = (missing.what, missing.id, missing.available);
                return Err(Refusal::ChoiceNotOffered { what, id, available }.into());
            }
        }
        let chosen = AffectedRun::new(session, None);
        let chosen = self.execute(session, &request, chosen, Command::Configure(choice)).await?;
        if state.facts.can_receive() {
            running.executions.apply_choices(session).await?;
        }
        Ok(chosen)
    }
}
