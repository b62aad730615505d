//! The life of a run.

use super::{Context, Decision, Message, Refusal, revoke_all, room_for_effects, run_named};
use crate::code::AnyCode;
use crate::event::{
    MessageUser, Outcome, RunCancelled, RunCompleted, RunDismissed, RunFailed, RunPaused,
    RunResumed, RunStarted, WaitCancelled,
};
use crate::id::RunId;
use crate::reason::Reason;
use crate::record::NewRecord;
use crate::state::{Phase, Run, State};

pub(super) fn has_ended(run: &Run) -> bool {
    matches!(run.phase, Phase::Ended(_) | Phase::Dismissed)
}

pub(super) fn cancelled(cx: &Context, run_id: &RunId, reason: Reason) -> NewRecord {
    NewRecord::new(cx.now, RunCancelled { run_id: run_id.clone(), reason: Some(reason) })
}

/// What a new run does to one whose agent is at work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AtWork {
    Refuse,
    Supersede,
}

pub(super) fn start(
    state: &State,
    cx: &Context,
    run_id: RunId,
    message: Option<Message>,
) -> Result<Decision, Refusal> {
    start_over(state, cx, run_id, message, AtWork::Refuse)
}

pub(super) fn start_over(
    state: &State,
    cx: &Context,
    run_id: RunId,
    message: Option<Message>,
    at_work: AtWork,
) -> Result<Decision, Refusal> {
    if state.recent_runs.contains(&run_id) {
        // The caller did not get the first answer.
        return Ok(Decision::already());
    }
    if state.facts.restore.is_some() {
        return Err(Refusal::RestoreInProgress);
    }
    let mut records = Vec::new();
    if let Some(run) = &state.facts.run {
        match run.phase {
            Phase::Open if !run.is_waiting() && at_work == AtWork::Refuse => {
                return Err(Refusal::RunInProgress { run: run.run_id.clone() });
            }
            Phase::Open | Phase::Paused => {
                revoke_all(state, cx, Reason::Superseded, &mut records);
                records.push(cancelled(cx, &run.run_id, Reason::Superseded));
            }
            // A new run is one of the ways in which an interruption ends.
            Phase::Interrupted { .. } => revoke_all(state, cx, Reason::Superseded, &mut records),
            Phase::Dismissed | Phase::Ended(_) => {}
        }
    }
    room_for_effects(state)?;
    let message_id = message.as_ref().map(|message| message.message_id.clone());
    if let Some(message) = message {
        let event = MessageUser { message_id: message.message_id, run_id: Some(run_id.clone()) };
        let content = &message.content;
        records.push(NewRecord::with_serialized(cx.now, event, "content", content));
    }
    let event = RunStarted { run_id, boot_id: cx.boot.clone(), message_id };
    records.push(NewRecord::new(cx.now, event));
    Ok(Decision::done(records))
}

pub(super) fn resume(state: &State, cx: &Context, run_id: RunId) -> Result<Decision, Refusal> {
    let run = run_named(state, &run_id)?;
    match run.phase {
        Phase::Open => return Ok(Decision::already()),
        Phase::Dismissed | Phase::Ended(_) => {
            return Err(Refusal::RunNotInterrupted { run: run_id });
        }
        Phase::Paused | Phase::Interrupted { .. } => {}
    }
    if state.facts.restore.is_some() {
        return Err(Refusal::RestoreInProgress);
    }
    room_for_effects(state)?;
    let mut records = Vec::new();
    // A token for the interruption has lost its purpose; a paused run has none.
    revoke_all(state, cx, Reason::UserRequest, &mut records);
    let boot_id = cx.boot.clone();
    let event =
        RunResumed { run_id, boot_id, wait_id: None, resume_token_id: None, rejected: false };
    records.push(NewRecord::new(cx.now, event));
    Ok(Decision::done(records))
}

pub(super) fn pause(state: &State, cx: &Context, run_id: RunId) -> Result<Decision, Refusal> {
    let run = run_named(state, &run_id)?;
    match run.phase {
        Phase::Paused => Ok(Decision::already()),
        Phase::Open => {
            // The turn ends, and with it what was asked in it; resumed, the agent asks again.
            let mut records = Vec::new();
            revoke_all(state, cx, Reason::Paused, &mut records);
            for wait_id in run.waits.keys() {
                let (run_id, wait_id) = (run_id.clone(), wait_id.clone());
                let event = WaitCancelled { run_id, wait_id, reason: Reason::Paused };
                records.push(NewRecord::new(cx.now, event));
            }
            records.push(NewRecord::new(cx.now, RunPaused { run_id }));
            Ok(Decision::done(records))
        }
        Phase::Interrupted { .. } | Phase::Dismissed | Phase::Ended(_) => {
            Err(Refusal::RunNotOpen { run: run_id })
        }
    }
}

pub(super) fn complete(state: &State, cx: &Context, run_id: &RunId) -> Result<Decision, Refusal> {
    completed(state, cx, run_id, None)
}

pub(super) fn completed(
    state: &State,
    cx: &Context,
    run_id: &RunId,
    stop_reason: Option<String>,
) -> Result<Decision, Refusal> {
    let truncated = run_named(state, run_id)?.truncated;
    let event = RunCompleted { run_id: run_id.clone(), stop_reason, truncated };
    end(state, cx, run_id, Outcome::Completed, NewRecord::new(cx.now, event))
}

pub(super) fn fail(
    state: &State,
    cx: &Context,
    run_id: &RunId,
    code: Option<AnyCode>,
    error: String,
) -> Result<Decision, Refusal> {
    let event = RunFailed { run_id: run_id.clone(), code };
    let record = NewRecord::with_content(cx.now, event, "error", error.into());
    end(state, cx, run_id, Outcome::Failed, record)
}

fn end(
    state: &State,
    cx: &Context,
    run_id: &RunId,
    outcome: Outcome,
    record: NewRecord,
) -> Result<Decision, Refusal> {
    let run = run_named(state, run_id)?;
    if run.phase == Phase::Ended(outcome) {
        return Ok(Decision::already());
    }
    if !run.is_unfinished() {
        return Err(Refusal::RunNotOpen { run: run_id.clone() });
    }
    let mut records = Vec::new();
    revoke_all(state, cx, Reason::RunEnded, &mut records);
    records.push(record);
    Ok(Decision::done(records))
}

pub(super) fn cancel(
    state: &State,
    cx: &Context,
    run_id: RunId,
    reason: Reason,
) -> Result<Decision, Refusal> {
    let run = run_named(state, &run_id)?;
    match run.phase {
        Phase::Ended(Outcome::Cancelled) => Ok(Decision::already()),
        Phase::Dismissed | Phase::Ended(_) => Err(Refusal::RunNotOpen { run: run_id }),
        Phase::Open | Phase::Paused | Phase::Interrupted { .. } => {
            let mut records = Vec::new();
            revoke_all(state, cx, Reason::RunEnded, &mut records);
            records.push(cancelled(cx, &run_id, reason));
            Ok(Decision::done(records))
        }
    }
}

pub(super) fn dismiss(state: &State, cx: &Context, run_id: RunId) -> Result<Decision, Refusal> {
    let run = run_named(state, &run_id)?;
    match run.phase {
        Phase::Dismissed => Ok(Decision::already()),
        Phase::Interrupted { .. } => {
            let mut records = Vec::new();
            revoke_all(state, cx, Reason::RunEnded, &mut records);
            records.push(NewRecord::new(cx.now, RunDismissed { run_id }));
            Ok(Decision::done(records))
        }
        Phase::Open | Phase::Paused | Phase::Ended(_) => {
            Err(Refusal::RunNotInterrupted { run: run_id })
        }
    }
}
