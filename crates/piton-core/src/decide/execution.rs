//! What an executor and its agent were seen to do.

use std::time::Duration;

use super::{Context, Decision, Prepare, Refusal, facts_only, recovery, with_status};
use crate::code::AnyCode;
use crate::event::{
    AgentEnding, AgentError, AgentResuming, Event, ExecutorAbandoned, PromptPrepared,
};
use crate::id::ExecutionId;
use crate::planted::{self, Bug};
use crate::reason::Reason;
use crate::record::NewRecord;
use crate::resume;
use crate::state::State;
use crate::supervise;

/// Records a change; what is so already is not recorded again.
pub(super) fn observe(
    state: &State,
    cx: &Context,
    event: Event,
    message: Option<String>,
) -> Result<Decision, Refusal> {
    let event = match event {
        Event::AgentResuming(e) => {
            let (context, reason) = resume::expected_context(state, e.strategy, e.history);
            AgentResuming { context: Some(context), context_reason: reason, ..e }.into()
        }
        event => event,
    };
    let about = match &event {
        Event::ExecutorStarting(_) | Event::AgentWaiting(_) => None,
        Event::ExecutorReady(e) => Some(&e.execution_id),
        Event::ExecutorUnreachable(e) => Some(&e.execution_id),
        Event::ExecutorError(e) => Some(&e.execution_id),
        Event::ExecutorStopped(e) => Some(&e.execution_id),
        Event::AgentResuming(e) => Some(&e.execution_id),
        Event::AgentStarting(e) => Some(&e.execution_id),
        Event::AgentReady(e) => Some(&e.execution_id),
        Event::AgentError(e) => Some(&e.execution_id),
        Event::AgentExited(e) => Some(&e.execution_id),
        Event::AgentSessionCleared(e) => Some(&e.execution_id),
        Event::WorkspaceRecreated(e) => Some(&e.execution_id),
        _ => return Err(Refusal::ExecutorNotFound),
    };
    let executor = state.facts.executor.as_ref();
    if let (Event::ExecutorStarting(e), Some(old)) = (&event, executor)
        && old.execution_id != e.execution_id
        && old.may_live()
        && !planted::is(Bug::LaunchedBeside)
    {
        // Two live agents on one session lose each other's turns.
        return Err(Refusal::ExecutorAlive { execution: old.execution_id.clone() });
    }
    if about.is_some() && about != executor.map(|executor| &executor.execution_id) {
        return Err(Refusal::ExecutorNotFound);
    }
    let mut after = facts_only(state);
    after.apply(state.last_seq + 1, cx.now, &event);
    // Each start of an agent is recorded, also one that promises what was promised before: a start
    // that no record announces cannot be shown.
    if after.facts == state.facts && !matches!(event, Event::AgentResuming(_)) {
        return Ok(Decision::already());
    }
    let has_message = matches!(
        event,
        Event::ExecutorUnreachable(_) | Event::ExecutorError(_) | Event::AgentError(_)
    );
    let record = match message.filter(|_| has_message) {
        Some(text) => NewRecord::with_content(cx.now, event, "message", text.into()),
        None => NewRecord::new(cx.now, event),
    };
    Ok(Decision::done(vec![record]))
}

/// Records that an agent could not be started. An order whose answer was lost may have been carried
/// out: what the spool says of the agent counts for more.
pub(super) fn fail_start(
    state: &State,
    cx: &Context,
    execution_id: ExecutionId,
    code: AnyCode,
    message: String,
) -> Decision {
    let executor = state.facts.executor.as_ref();
    if !executor.is_some_and(|e| e.execution_id == execution_id && e.expects_agent) {
        return Decision::already();
    }
    let event = AgentError { execution_id, code: Some(code), auth_methods: Vec::new() };
    Decision::done(vec![NewRecord::with_content(cx.now, event, "message", message.into())])
}

/// Writes down what an agent will be given before it is. Once for each agent: what carries the
/// effect out again finds it.
pub(super) fn prepare(state: &State, cx: &Context, prepare: Prepare) -> Result<Decision, Refusal> {
    let Prepare { of_seq, execution_id, history, note, prompt } = prepare;
    let executor = state.facts.executor.as_ref();
    if !executor.is_some_and(|e| e.execution_id == execution_id && e.may_live()) {
        return Err(Refusal::ExecutorNotFound);
    }
    let is_prepared = state
        .prepared
        .as_ref()
        .is_some_and(|known| known.of_seq == of_seq && known.execution_id == execution_id);
    let effect = state.pending.get(&of_seq).filter(|effect| effect.is_prompt() && !is_prepared);
    let Some(run_id) = effect.map(|effect| effect.run_id().clone()) else {
        return Ok(Decision::already());
    };
    let event =
        PromptPrepared { of_seq, run_id, execution_id, history, interruption_summary: note };
    Ok(Decision::done(vec![NewRecord::with_content(cx.now, event, "prompt", prompt.into())]))
}

/// Ends an agent that nothing needs. Decided again here: a prompt may have come meanwhile.
pub(super) fn end_idle(
    state: &State,
    cx: &Context,
    execution_id: ExecutionId,
    idle_for: Duration,
) -> Decision {
    let is_current =
        state.facts.executor.as_ref().is_some_and(|executor| executor.execution_id == execution_id);
    let is_due = supervise::idle_since(state).is_some_and(|since| since.after(idle_for) <= cx.now);
    if !is_current || !is_due {
        return Decision::already();
    }
    let event = AgentEnding { execution_id, reason: Reason::IdleTimeout };
    Decision::done(vec![NewRecord::new(cx.now, event)])
}

/// Ends an agent because a user stops it. One that takes no prompts has nothing to be kept from.
pub(super) fn end_agent(
    state: &State,
    cx: &Context,
    execution_id: ExecutionId,
) -> Result<Decision, Refusal> {
    if let Some(run) = state.facts.run.as_ref().filter(|run| run.is_open()) {
        return Err(Refusal::RunInProgress { run: run.run_id.clone() });
    }
    let is_current =
        state.facts.executor.as_ref().is_some_and(|executor| executor.execution_id == execution_id);
    if !is_current || !state.facts.can_receive() {
        return Ok(Decision::already());
    }
    let event = AgentEnding { execution_id, reason: Reason::UserRequest };
    Ok(Decision::done(vec![NewRecord::new(cx.now, event)]))
}

/// The user decides that an executor will not come back; its run is interrupted.
pub(super) fn abandon(
    state: &State,
    cx: &Context,
    execution_id: &ExecutionId,
) -> Result<Decision, Refusal> {
    let executor = state.facts.executor.as_ref().filter(|e| e.execution_id == *execution_id);
    let executor = executor.ok_or(Refusal::ExecutorNotFound)?;
    if !executor.may_live() {
        return Ok(Decision::already());
    }
    let event = ExecutorAbandoned { execution_id: execution_id.clone() };
    let mut records = vec![NewRecord::new(cx.now, event)];
    if let Some(run) = state.facts.run.as_ref().filter(|run| run.is_open()) {
        records.extend(recovery::interrupted(state, cx, run, Reason::Abandoned));
    }
    Ok(Decision::done(with_status(state, cx, records)))
}
