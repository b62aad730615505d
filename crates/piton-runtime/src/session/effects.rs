//! Carrying out what durable records demand.

use piton_core::event::Event;
use piton_core::id::SessionId;
use piton_core::state::Effect;
use piton_core::{NewRecord, PromptContent, Record, Seq};
use piton_store::Detail;

use super::Session;
use crate::env::Env;
use crate::interfaces::EffectJob;

/// A run's first message stands at most so many records before its beginning.
const MESSAGE_BEFORE_MAX: u64 = 128;

impl Session {
    pub(super) fn job(
        &self,
        effect: Effect,
        cause: Record,
        message: Option<PromptContent>,
    ) -> EffectJob {
        let key = Effect::key(&self.id, cause.seq);
        EffectJob { session: self.id.clone(), key, effect, cause, message }
    }

    /// Starts the next effect if none is running. One that was taken back meanwhile is dropped.
    pub(super) fn act_next(&mut self) {
        if self.state.facts.graph.is_some() {
            // No agent is given anything: the graph carries out what its records demand.
            self.jobs.clear();
            return;
        }
        while self.effects.is_empty() {
            let Some(job) = self.jobs.pop_front() else { return };
            let seq = job.cause.seq;
            if !self.state.pending.contains_key(&seq) {
                continue;
            }
            let performing = self.env.driver.perform(job);
            self.running_effect = Some(seq);
            self.effects.push_back(Box::pin(async move { (seq, performing.await) }));
        }
    }

    /// Queues what was left undone, by a former life or for want of an agent; keys make a
    /// repetition recognisable.
    pub(super) async fn queue_pending(&mut self) {
        let queued = |seq: &Seq| {
            self.running_effect == Some(*seq) || self.jobs.iter().any(|job| job.cause.seq == *seq)
        };
        let pending = self.state.pending.iter().filter(|(seq, _)| !queued(seq));
        let pending: Vec<_> = pending.map(|(seq, effect)| (*seq, effect.clone())).collect();
        for (seq, effect) in pending {
            match cause_of(&self.env, &self.id, seq, &effect).await {
                Ok(Some((cause, message))) => {
                    let job = self.job(effect, cause, message);
                    self.jobs.push_back(job);
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(session = %self.id, seq, code = %error.code(), "effect's record is unreadable");
                }
            }
        }
    }
}

/// The record that an effect follows from, and the message that a run begins with.
async fn cause_of(
    env: &Env,
    id: &SessionId,
    seq: Seq,
    effect: &Effect,
) -> piton_store::Result<Option<(Record, Option<PromptContent>)>> {
    let mut message = None;
    let before = match effect {
        Effect::Begin { message_seq: Some(at), .. } => {
            let said = env.store.read(id, at - 1, 1, Detail::Full).await?;
            message = said.first().and_then(|record| said_in(effect, record));
            0
        }
        // Written by a program that did not say where it stands.
        Effect::Begin { message_id: Some(_), .. } => MESSAGE_BEFORE_MAX.min(seq - 1),
        _ => 0,
    };
    let mut after = seq - 1 - before;
    loop {
        let limit = usize::try_from(seq - after).unwrap_or(usize::MAX);
        let records = env.store.read(id, after, limit, Detail::Full).await?;
        let Some(last) = records.last() else { return Ok(None) };
        after = last.seq;
        for record in records {
            if record.seq == seq {
                return Ok(Some((record, message)));
            }
            message = said_in(effect, &record).or(message);
        }
    }
}

/// What a run begins with, as a new record has it.
pub(super) fn message_of(effect: &Effect, new: &NewRecord) -> Option<PromptContent> {
    said_in(effect, &new.at(0))
}

fn said_in(effect: &Effect, record: &Record) -> Option<PromptContent> {
    let Effect::Begin { message_id: Some(wanted), .. } = effect else { return None };
    match record.event() {
        Ok(Event::MessageUser(e)) if e.message_id == *wanted => {
            PromptContent::of(record, "content")
        }
        _ => None,
    }
}
