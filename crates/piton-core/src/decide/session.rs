//! The beginning and the end of a session.

use super::{Context, Create, Decision, Refusal, Removal, Setup, revoke_all, run};
use crate::agent_view::Configure;
use crate::event::{
    AgentConfigured, AgentMcpServersSet, Outcome, SessionAgentAssigned, SessionClosed,
    SessionCreated, SessionForked, SessionRenamed,
};
use crate::mcp;
use crate::reason::Reason;
use crate::record::NewRecord;
use crate::state::State;

pub(super) fn create(state: &State, cx: &Context, create: Create) -> Result<Decision, Refusal> {
    if state.info.is_some() {
        return Err(Refusal::SessionExists { session: create.session_id });
    }
    let event = SessionCreated {
        session_id: create.session_id,
        title: create.title,
        task_id: create.task_id,
        working_dir: create.working_dir,
        // In the log `null` is the absence of a field.
        provider: create.provider.filter(|provider| !provider.is_null()),
        agent_profile_id: create.agent_profile_id,
    };
    let mut records = vec![NewRecord::new(cx.now, event)];
    let Setup { choice, mcp_servers, fork } = create.setup;
    records.extend(fork.map(|fork| NewRecord::new(cx.now, SessionForked { fork })));
    if !choice.is_empty() {
        records.extend(configure(cx, choice)?.records);
    }
    if let Some(fault) = mcp::fault(&mcp_servers) {
        return Err(Refusal::ChoiceInvalid(fault));
    }
    if !mcp_servers.is_empty() {
        let event = AgentMcpServersSet { count: mcp_servers.len() as u64 };
        // Plain structures: that they can be written is certain.
        let servers = serde_json::to_value(&mcp_servers).unwrap_or_default();
        records.push(NewRecord::with_content(cx.now, event, "servers", servers));
    }
    Ok(Decision::done(records))
}

/// What a user chooses is written each time: the agent may have changed it by itself meanwhile.
pub(super) fn configure(cx: &Context, choice: Configure) -> Result<Decision, Refusal> {
    if let Some(fault) = choice.fault() {
        return Err(Refusal::ChoiceInvalid(fault));
    }
    if choice.is_empty() {
        return Ok(Decision::already());
    }
    Ok(Decision::done(vec![NewRecord::new(cx.now, AgentConfigured { choice })]))
}

pub(super) fn rename(state: &State, cx: &Context, title: Option<String>) -> Decision {
    if state.info.as_ref().is_some_and(|info| info.title == title) {
        return Decision::already();
    }
    Decision::done(vec![NewRecord::new(cx.now, SessionRenamed { title })])
}

/// Another agent would not have the conversation that the first one had.
pub(super) fn assign_agent(
    state: &State,
    cx: &Context,
    agent_profile_id: String,
) -> Result<Decision, Refusal> {
    let known = state.info.as_ref().and_then(|info| info.agent_profile_id.as_ref());
    if known == Some(&agent_profile_id) {
        return Ok(Decision::already());
    }
    if known.is_some() && state.facts.agent.is_some() {
        return Err(Refusal::AgentAssigned);
    }
    Ok(Decision::done(vec![NewRecord::new(cx.now, SessionAgentAssigned { agent_profile_id })]))
}

/// An open run is cancelled first: nothing continues in a closed session.
pub(super) fn close(state: &State, cx: &Context, outcome: Outcome) -> Result<Decision, Refusal> {
    match state.facts.closed {
        Some(closed) if closed == outcome => return Ok(Decision::already()),
        Some(_) => return Err(Refusal::SessionClosed),
        None => {}
    }
    let mut records = Vec::new();
    revoke_all(state, cx, Reason::RunEnded, &mut records);
    if let Some(run) = &state.facts.run
        && !run::has_ended(run)
    {
        records.push(run::cancelled(cx, &run.run_id, Reason::UserRequest));
    }
    records.push(NewRecord::new(cx.now, SessionClosed { outcome, reason: None }));
    Ok(Decision::done(records))
}

/// An agent that lives would go on in a workspace that no session knows of.
pub(super) fn may_remove(state: &State, removal: Removal) -> Result<(), Refusal> {
    if state.info.is_none() {
        return Err(Refusal::SessionNotFound);
    }
    if removal == Removal::DeleteForced {
        return Ok(());
    }
    let facts = &state.facts;
    if removal == Removal::Archive && facts.closed.is_none() {
        return Err(Refusal::SessionNotClosed);
    }
    if let Some(run) = facts.run.as_ref().filter(|run| run.is_open() && facts.closed.is_none()) {
        return Err(Refusal::RunInProgress { run: run.run_id.clone() });
    }
    match facts.executor.as_ref().filter(|executor| executor.may_live()) {
        Some(executor) => Err(Refusal::ExecutorAlive { execution: executor.execution_id.clone() }),
        None => Ok(()),
    }
}
