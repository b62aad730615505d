//! Prompts while a run is open: what clients do with the queue, and what its records must show.

use std::collections::BTreeSet;

use piton_core::decide::{Command, IfBusy, Message, Prompt, QueuePosition};
use piton_core::event::{Event, RunCancelled};
use piton_core::id::{MessageId, RunId, SessionId};
use piton_core::{Reason, Record, State};
use piton_runtime::{Error, Handle};

use super::agentctl::PROMPT;
use super::client::settled;
use super::ledger::Property;
use super::log_checks::durable_states;
use super::world::World;

/// Few, so that clients meet the limit.
const QUEUE_MAX: usize = 6;

/// Queues, edits, moves, removes, releases; also what is not queued any more.
pub(super) async fn operate(
    world: &World,
    handle: &Handle,
    session: &SessionId,
    state: &State,
) -> Result<(), Error> {
    let queued = world.pick(&state.queue);
    let command = match (world.range(0, 9), queued) {
        (0..=4, _) | (_, None) => {
            let if_busy = match world.range(0, 9) {
                0 => IfBusy::Reject,
                1 => IfBusy::Supersede,
                2 | 3 => IfBusy::Default,
                _ => IfBusy::Queue,
            };
            let position =
                if world.chance(10) { QueuePosition::First } else { QueuePosition::Last };
            let content = format!("{PROMPT}it later {}", world.range(0, 99)).into();
            let message = Message { message_id: handle.ids().message()?, content };
            let run_id = handle.ids().run()?;
            Command::Prompt(Prompt { run_id, message, if_busy, position, queue_max: QUEUE_MAX })
        }
        (5, Some(prompt)) => {
            let version = world.chance(50).then_some(prompt.seq);
            let content = format!("{PROMPT}it otherwise {}", world.range(0, 99)).into();
            Command::EditQueued { message_id: prompt.message_id, version, content }
        }
        (6, Some(prompt)) => {
            let position = u32::try_from(world.range(1, 4)).unwrap_or(1);
            Command::MoveQueued { message_id: prompt.message_id, position }
        }
        (7, Some(prompt)) => Command::RemoveQueued { message_id: prompt.message_id, version: None },
        (_, Some(_)) => Command::ReleaseQueue,
    };
    // Now and then the client did not hear the answer and asks again.
    if world.chance(20) {
        let first = handle.execute(session, command.clone()).await?;
        settled(world, session, &first);
    }
    let ack = handle.execute(session, command).await?;
    settled(world, session, &ack);
    Ok(())
}

/// The queue as the records tell it, without the fold.
#[derive(Default)]
struct Model {
    queue: Vec<(MessageId, bool)>,
    ever: BTreeSet<MessageId>,
    delivered: BTreeSet<MessageId>,
    run: Option<(RunId, Phase)>,
    /// Times that it was held with something in it.
    holds: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Unfinished,
    Interrupted,
    Ended,
}

impl Model {
    fn hold(&mut self, run: &RunId, phase: Phase) {
        let Some((current, before)) = &mut self.run else { return };
        let is_possible = match phase {
            Phase::Interrupted => *before == Phase::Unfinished,
            _ => *before != Phase::Ended,
        };
        if current == run && is_possible {
            *before = phase;
            self.holds += u64::from(!self.queue.is_empty());
            self.queue.iter_mut().for_each(|(_, held)| *held = true);
        }
    }

    fn end(&mut self, run: &RunId) {
        if let Some((current, phase)) = &mut self.run
            && current == run
        {
            *phase = Phase::Ended;
        }
    }

    fn release(&mut self) {
        self.queue.iter_mut().for_each(|(_, held)| *held = false);
    }

    /// What is wrong with a record, if something is.
    fn apply(&mut self, event: &Event) -> Option<String> {
        let at = |queue: &[(MessageId, bool)], id: &MessageId| {
            queue.iter().position(|(queued, _)| queued == id)
        };
        match event {
            Event::PromptQueued(e) => {
                if !self.ever.insert(e.message_id.clone()) {
                    return Some(format!("{} is queued twice", e.message_id));
                }
                let position = if e.first { 0 } else { self.queue.len() };
                self.queue.insert(position, (e.message_id.clone(), false));
            }
            Event::PromptMoved(e) => {
                let Some(from) = at(&self.queue, &e.message_id) else {
                    return Some(format!("{} is moved and not queued", e.message_id));
                };
                let prompt = self.queue.remove(from);
                let to = (e.position as usize).saturating_sub(1).min(self.queue.len());
                self.queue.insert(to, prompt);
            }
            Event::PromptRemoved(e) => {
                let Some(from) = at(&self.queue, &e.message_id) else {
                    return Some(format!("{} is removed and not queued", e.message_id));
                };
                self.queue.remove(from);
            }
            Event::QueueReleased(_) => self.release(),
            Event::MessageUser(e) => {
                if !self.delivered.insert(e.message_id.clone()) {
                    return Some(format!("{} is delivered twice", e.message_id));
                }
                if self.ever.contains(&e.message_id) {
                    let next = self.queue.iter().find(|(_, held)| !held).map(|(id, _)| id);
                    if next != Some(&e.message_id) {
                        return Some(format!("{} is not the next: {next:?}", e.message_id));
                    }
                    self.queue.retain(|(id, _)| *id != e.message_id);
                }
            }
            Event::RunStarted(e) => self.run = Some((e.run_id.clone(), Phase::Unfinished)),
            Event::RunResumed(e) => {
                if let Some((current, phase)) = &mut self.run
                    && *current == e.run_id
                    && *phase != Phase::Ended
                {
                    let was_interrupted = *phase == Phase::Interrupted;
                    *phase = Phase::Unfinished;
                    if was_interrupted {
                        self.release();
                    }
                }
            }
            Event::RunInterrupted(e) => self.hold(&e.run_id, Phase::Interrupted),
            Event::RunFailed(e) => self.hold(&e.run_id, Phase::Ended),
            Event::RunCancelled(RunCancelled {
                run_id,
                reason: Some(Reason::Superseded | Reason::PermissionRejected),
            }) => {
                self.end(run_id);
            }
            Event::RunCancelled(e) => self.hold(&e.run_id, Phase::Ended),
            Event::RunCompleted(e) => self.end(&e.run_id),
            Event::RunDismissed(e) => self.end(&e.run_id),
            _ => {}
        }
        None
    }
}

pub(super) fn check(world: &World, session: &SessionId, records: &[Record]) {
    let mut model = Model::default();
    for record in records {
        let Ok(event) = record.event() else { continue };
        if let Some(detail) = model.apply(&event) {
            let detail = format!("{session}: {detail} at {}", record.seq);
            world.violated(Property::QueueKept, detail);
        }
    }
    let queued = model.queue.len() as u64;
    let delivered = model.ever.intersection(&model.delivered).count() as u64;
    world.note(format_args!("{session}: {delivered} prompts were delivered, {queued} wait"));
    let mut inner = world.inner();
    let stats = &mut inner.stats;
    stats.queue_deliveries = stats.queue_deliveries.max(delivered);
    stats.queue_holds = stats.queue_holds.max(model.holds);
}

/// With a boot that recovered, no prompt is left that is due.
pub(super) fn none_due(world: &World) {
    for (session, state) in durable_states(world) {
        if state.facts.has_due_prompt() {
            let detail = format!("{session}: a prompt is due and not delivered: {:?}", state.queue);
            world.violated(Property::QueueKept, detail);
        }
    }
}
