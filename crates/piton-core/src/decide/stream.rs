//! What an agent says and does while it runs.

use serde_json::Value;

use super::{Context, Decision, Refusal, open_run, run_named};
use crate::event::{
    EffectDone, MessageCompleted, MessageDelta, Seq, ToolIntent, ToolOutcome, ToolStatus,
};
use crate::id::{CallId, MessageId, RunId};
use crate::limits::{CALLS_OPEN_MAX, MESSAGES_OPEN_MAX};
use crate::record::NewRecord;
use crate::state::State;

pub(super) fn say(
    state: &State,
    cx: &Context,
    message_id: MessageId,
    offset: Option<u64>,
    text: String,
) -> Result<Decision, Refusal> {
    let expected = state.messages.get(&message_id).copied();
    if expected.is_none() && state.messages.len() >= MESSAGES_OPEN_MAX {
        return Err(Refusal::LimitReached { what: "messages", max: MESSAGES_OPEN_MAX });
    }
    let written = expected.unwrap_or(0);
    // The sender counts what it sent, which masking may have made another length.
    let expected = state.messages_sent.get(&message_id).copied().unwrap_or(written);
    if let Some(offset) = offset.filter(|offset| *offset != expected) {
        return Err(Refusal::OffsetMismatch { message: message_id, expected, offset });
    }
    let run = state.facts.run.as_ref().filter(|run| run.is_open());
    let event = MessageDelta {
        message_id,
        run_id: run.map(|run| run.run_id.clone()),
        offset: written,
        length: text.len() as u64,
        channel: crate::spool::Channel::Answer,
        sent: None,
    };
    Ok(Decision::done(vec![NewRecord::with_content(cx.now, event, "text", text.into())]))
}

pub(super) fn said(
    state: &State,
    cx: &Context,
    message_id: MessageId,
    hash: String,
) -> Result<Decision, Refusal> {
    let Some(length) = state.messages.get(&message_id).copied() else {
        return Err(Refusal::MessageNotOpen { message: message_id });
    };
    let event = MessageCompleted { message_id, length, hash };
    Ok(Decision::done(vec![NewRecord::new(cx.now, event)]))
}

pub(super) fn intend(
    state: &State,
    cx: &Context,
    run_id: RunId,
    call_id: CallId,
    name: String,
    arguments: Value,
) -> Result<Decision, Refusal> {
    open_run(state, &run_id)?;
    if state.calls.contains_key(&call_id) {
        return Ok(Decision::already());
    }
    if state.calls.len() >= CALLS_OPEN_MAX {
        return Err(Refusal::LimitReached { what: "tool calls", max: CALLS_OPEN_MAX });
    }
    let event = ToolIntent { call_id, run_id, name };
    Ok(Decision::done(vec![NewRecord::with_content(cx.now, event, "arguments", arguments)]))
}

/// An outcome may come late, after its run was interrupted; it reopens nothing.
pub(super) fn conclude(
    state: &State,
    cx: &Context,
    run_id: RunId,
    call_id: CallId,
    status: ToolStatus,
    result: Value,
) -> Result<Decision, Refusal> {
    run_named(state, &run_id)?;
    if state.calls.get(&call_id).is_none_or(|call| call.run_id != run_id) {
        return Err(Refusal::CallNotOpen { call: call_id });
    }
    let event = ToolOutcome { call_id, run_id, status };
    Ok(Decision::done(vec![NewRecord::with_content(cx.now, event, "result", result)]))
}

pub(super) fn done(state: &State, cx: &Context, of_seq: Seq) -> Decision {
    if !state.awaits_delivery(of_seq) {
        return Decision::already();
    }
    Decision::done(vec![NewRecord::new(cx.now, EffectDone { of_seq })])
}
