//! Prompts while a run is in their way, and the queue that they wait in.

use super::run::{self, AtWork};
use super::{Context, Decision, IfBusy, Message, Prompt, QueuePosition, Refusal, Verdict};
use crate::content::PromptContent;
use crate::event::{
    Critical, PromptEdited, PromptMoved, PromptQueued, PromptRemoved, QueueReleased, Seq,
};
use crate::id::{MessageId, RunId};
use crate::record::NewRecord;
use crate::state::{Phase, QueuedPrompt, State};

/// What is in the way of a prompt.
enum Busy {
    /// An agent is at a run, or a queued prompt is about to be given to it.
    AtWork(RunId),
    /// A run that only waits, or was paused.
    Resting(RunId),
}

fn busy(state: &State) -> Option<Busy> {
    if let Some(next) = state.due_prompt() {
        return Some(Busy::AtWork(next.run_id.clone()));
    }
    let run = state.facts.run.as_ref()?;
    match run.phase {
        Phase::Open if !run.is_waiting() => Some(Busy::AtWork(run.run_id.clone())),
        Phase::Open | Phase::Paused => Some(Busy::Resting(run.run_id.clone())),
        // A new prompt is one of the ways in which an interruption ends.
        Phase::Interrupted { .. } | Phase::Dismissed | Phase::Ended(_) => None,
    }
}

pub(super) fn prompt(state: &State, cx: &Context, prompt: Prompt) -> Result<Decision, Refusal> {
    let is_queued = |queued: &QueuedPrompt| queued.run_id == prompt.run_id;
    // One that was removed from the queue has started no run.
    let was_queued = state.dequeued.contains(&prompt.message.message_id);
    if was_queued || state.recent_runs.contains(&prompt.run_id) || state.queue.iter().any(is_queued)
    {
        // The caller did not get the first answer.
        return Ok(Decision::already());
    }
    if state.facts.restore.is_some() {
        // Its agent would see files that are restored by half.
        return match prompt.if_busy {
            IfBusy::Default | IfBusy::Queue => enqueue(state, cx, prompt),
            IfBusy::Reject | IfBusy::Supersede => Err(Refusal::RestoreInProgress),
        };
    }
    let Some(busy) = busy(state) else {
        // All of them are delivered with the next prompt that an agent can be given.
        if state.pending_context.undelivered.len() >= prompt.queue_max {
            let max = prompt.queue_max;
            return Err(Refusal::LimitReached { what: "undelivered prompts", max });
        }
        return run::start(state, cx, prompt.run_id, Some(prompt.message));
    };
    match (busy, prompt.if_busy) {
        (Busy::AtWork(run) | Busy::Resting(run), IfBusy::Reject) => {
            Err(Refusal::RunInProgress { run })
        }
        (Busy::AtWork(_), IfBusy::Default) | (_, IfBusy::Queue) => enqueue(state, cx, prompt),
        (Busy::AtWork(_), IfBusy::Supersede)
        | (Busy::Resting(_), IfBusy::Default | IfBusy::Supersede) => {
            let Prompt { run_id, message, .. } = prompt;
            run::start_over(state, cx, run_id, Some(message), AtWork::Supersede)
        }
    }
}

fn enqueue(state: &State, cx: &Context, prompt: Prompt) -> Result<Decision, Refusal> {
    let Prompt { run_id, message, position, queue_max, .. } = prompt;
    if state.queue.len() >= queue_max {
        return Err(Refusal::LimitReached { what: "queued prompts", max: queue_max });
    }
    let first = position == QueuePosition::First;
    let position = if first { 1 } else { position_of(state.queue.len()) };
    let Message { message_id, content } = message;
    let event = PromptQueued { message_id, run_id, first, critical: Critical };
    let record = NewRecord::with_serialized(cx.now, event, "content", &content);
    Ok(Decision { records: vec![record], outcome: Verdict::Queued { position } })
}

/// Queues a prompt in the batch of another decision, whatever is in its way.
pub(super) fn behind(
    state: &State,
    cx: &Context,
    mut decision: Decision,
    prompt: Prompt,
) -> Result<Decision, Refusal> {
    let mut after = state.clone();
    for record in &decision.records {
        after.apply(after.last_seq + 1, record.ts, &record.event);
    }
    decision.records.extend(enqueue(&after, cx, prompt)?.records);
    Ok(decision)
}

fn position_of(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1)
}

pub(super) fn deliver(
    state: &State,
    cx: &Context,
    seq: Seq,
    content: PromptContent,
) -> Result<Decision, Refusal> {
    let Some(next) = state.due_prompt().filter(|next| next.seq == seq) else {
        return Ok(Decision::already());
    };
    let message = Message { message_id: next.message_id.clone(), content };
    run::start(state, cx, next.run_id.clone(), Some(message))
}

fn queued<'a>(
    state: &'a State,
    message_id: &MessageId,
    version: Option<Seq>,
) -> Result<&'a QueuedPrompt, Refusal> {
    let found = state.queue.iter().find(|prompt| prompt.message_id == *message_id);
    let not_found = || Refusal::QueuedPromptNotFound { message: message_id.clone() };
    let found = found.ok_or_else(not_found)?;
    match version {
        Some(expected) if expected != found.seq => Err(Refusal::QueuedPromptConflict {
            message: message_id.clone(),
            expected,
            actual: found.seq,
        }),
        _ => Ok(found),
    }
}

pub(super) fn edit(
    state: &State,
    cx: &Context,
    message_id: MessageId,
    version: Option<Seq>,
    content: &PromptContent,
) -> Result<Decision, Refusal> {
    queued(state, &message_id, version)?;
    let event = PromptEdited { message_id, critical: Critical };
    Ok(Decision::done(vec![NewRecord::with_serialized(cx.now, event, "content", content)]))
}

pub(super) fn reorder(
    state: &State,
    cx: &Context,
    message_id: MessageId,
    position: u32,
) -> Result<Decision, Refusal> {
    let moved = queued(state, &message_id, None)?;
    let position = position.clamp(1, state.facts.queue.length);
    let current = state.queue.iter().position(|prompt| prompt.message_id == moved.message_id);
    if current.map(position_of) == Some(position) {
        return Ok(Decision::already());
    }
    let event = PromptMoved { message_id, position, critical: Critical };
    Ok(Decision::done(vec![NewRecord::new(cx.now, event)]))
}

pub(super) fn remove(
    state: &State,
    cx: &Context,
    message_id: MessageId,
    version: Option<Seq>,
) -> Result<Decision, Refusal> {
    queued(state, &message_id, version)?;
    let event = PromptRemoved { message_id, critical: Critical };
    Ok(Decision::done(vec![NewRecord::new(cx.now, event)]))
}

pub(super) fn release(state: &State, cx: &Context) -> Decision {
    if state.queue.iter().all(|prompt| !prompt.held) {
        return Decision::already();
    }
    Decision::done(vec![NewRecord::new(cx.now, QueueReleased { critical: Critical })])
}
