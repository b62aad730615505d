//! Prompts that wait for the run to end. Each is in the queue from `prompt.queued` until a
//! `message.user` of the same id delivers it or a user removes it.

use crate::event::{Event, PromptMoved, PromptQueued, Seq};
use crate::id::{MessageId, RunId};
use crate::limits::PROMPTS_DEQUEUED_KEPT;
use crate::planted::{self, Bug};
use crate::state::{Phase, QueueCounts, QueuedPrompt, State};
use crate::time::Timestamp;

impl State {
    pub(super) fn apply_queue(&mut self, seq: Seq, ts: Timestamp, event: &Event) {
        match event {
            Event::PromptQueued(e) => self.enqueue(seq, ts, e),
            Event::PromptEdited(e) => {
                let queued = self.queue.iter_mut().find(|prompt| prompt.message_id == e.message_id);
                if let Some(prompt) = queued {
                    prompt.seq = seq;
                }
            }
            Event::PromptMoved(e) => self.reorder(e),
            Event::PromptRemoved(e) => {
                self.remove_queued(|prompt| prompt.message_id == e.message_id);
            }
            Event::QueueReleased(_) => self.release_queue(),
            _ => {}
        }
        self.count_queue();
    }

    fn enqueue(&mut self, seq: Seq, queued_at: Timestamp, e: &PromptQueued) {
        if self.queue.iter().any(|prompt| prompt.message_id == e.message_id) {
            return;
        }
        let (message_id, run_id) = (e.message_id.clone(), e.run_id.clone());
        let prompt = QueuedPrompt { message_id, run_id, seq, queued_at, held: false };
        let at = if e.first { 0 } else { self.queue.len() };
        self.queue.insert(at, prompt);
    }

    fn reorder(&mut self, e: &PromptMoved) {
        let from = self.queue.iter().position(|prompt| prompt.message_id == e.message_id);
        let Some(from) = from else { return };
        let prompt = self.queue.remove(from);
        let to = (e.position as usize).saturating_sub(1).min(self.queue.len());
        self.queue.insert(to, prompt);
    }

    /// A message was delivered: if it was queued, it is not any more.
    pub(super) fn mark_dequeued(&mut self, message_id: &MessageId) {
        let again = |run_id: &RunId| format!("{run_id}_again").parse().ok();
        let queued = self.queue.iter_mut().find(|prompt| prompt.message_id == *message_id);
        if planted::is(Bug::QueueDeliveredTwice)
            && let Some(prompt) = queued
            && !prompt.run_id.as_str().ends_with("_again")
            && let Some(run_id) = again(&prompt.run_id)
        {
            prompt.run_id = run_id;
            return;
        }
        self.remove_queued(|prompt| prompt.message_id == *message_id);
    }

    /// Whether there was such a prompt.
    pub(super) fn remove_queued(&mut self, is_meant: impl Fn(&QueuedPrompt) -> bool) -> bool {
        let before = self.queue.len();
        for prompt in self.queue.extract_if(.., |prompt| is_meant(prompt)) {
            self.dequeued.push_back(prompt.message_id);
        }
        let over = self.dequeued.len().saturating_sub(PROMPTS_DEQUEUED_KEPT);
        self.dequeued.drain(..over);
        self.count_queue();
        self.queue.len() < before
    }

    /// The run did not end well, or a user stopped it: what was to come after it may be of no use
    /// now. Only the end of the current run counts.
    pub(super) fn hold_queue(&mut self, run_id: &RunId, phase: Phase) {
        let has_ended = self.run_named(run_id).is_some_and(|run| run.phase == phase);
        if has_ended && !planted::is(Bug::HoldIgnored) {
            self.queue.iter_mut().for_each(|prompt| prompt.held = true);
            self.count_queue();
        }
    }

    pub(super) fn release_queue(&mut self) {
        self.queue.iter_mut().for_each(|prompt| prompt.held = false);
        self.count_queue();
    }

    fn count_queue(&mut self) {
        let held = self.queue.iter().filter(|prompt| prompt.held).count();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        self.facts.queue = QueueCounts { length: count(self.queue.len()), held: count(held) };
    }
}
