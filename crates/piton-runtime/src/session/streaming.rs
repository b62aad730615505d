//! Streamed text: what is safe is written, what may be the beginning of a secret waits.

use piton_core::Seq;
use piton_core::decide::{Command, Decision};
use piton_core::event::Event;
use piton_core::id::MessageId;
use piton_store::{Detail, Durability};
use tokio::sync::oneshot;

use super::{Answer, READ_MAX, Session};
use crate::error::Result;
use crate::messages::{Cut, Hash, LogHash, Piece, sent_in_log, with_piece};

impl Session {
    pub(super) fn say(
        &mut self,
        message_id: MessageId,
        offset: Option<u64>,
        text: String,
        durability: Durability,
        reply: Option<oneshot::Sender<Answer>>,
    ) {
        let masker = self.env.writer.masker(&self.id);
        if !self.messages.concerns(&self.state, &masker, &message_id) {
            return match self.decide(Command::Say { message_id, offset, text }) {
                Ok(decision) => self.append(decision, durability, reply),
                Err(error) => self.refuse(reply, error),
            };
        }
        if let Err(refusal) = self.messages.check(&self.state, &message_id, offset) {
            return self.refuse(reply, refusal.into());
        }
        // Whether it may be said does not depend on how much of it is written now.
        let said =
            Command::Say { message_id: message_id.clone(), offset: None, text: text.clone() };
        let decision = match self.decide(said) {
            Ok(decision) => decision,
            Err(error) => return self.refuse(reply, error),
        };
        let before = sent_in_log(&self.state, &message_id);
        let piece = self.messages.push(&self.state, &masker, &message_id, &text);
        let decision = if text.is_empty() { decision } else { with(decision, piece, before) };
        let held = self.messages.held(&message_id);
        self.append_holding(decision, durability, reply, held);
    }

    /// The end of a message: its rest is written, and the hash is that of the text as written.
    pub(super) async fn said(&mut self, message_id: MessageId, hash: String) -> Result<Decision> {
        if let Some(piece) = self.messages.finish(&message_id) {
            self.write_piece(&message_id, piece);
        }
        let hash = match self.messages.hash(&self.state, &message_id) {
            Hash::AsSent => hash,
            Hash::Known(known) => known,
            Hash::InTheLog => {
                // The messages that stream began after the last run did.
                let after = self.state.facts.run.as_ref().map_or(0, |run| run.started_seq);
                self.logged(&message_id, after).await?.finish()
            }
        };
        self.decide(Command::EndMessage { message_id, hash })
    }

    /// Writes what waits, since something is to come after it.
    pub(super) fn write_held(&mut self, which: Cut) {
        for (message_id, piece) in self.messages.cut(which) {
            self.write_piece(&message_id, piece);
        }
    }

    fn write_piece(&mut self, message_id: &MessageId, piece: Piece) {
        let text = piece.text.clone();
        let before = sent_in_log(&self.state, message_id);
        let command = Command::Say { message_id: message_id.clone(), offset: None, text };
        match self.decide(command) {
            Ok(decision) => {
                self.append(with(decision, piece, before), Durability::Buffered, None);
            }
            // It was accepted when it was said. Nothing that could refuse it now is written before
            // what waits; and it was not acknowledged as durable.
            Err(error) => {
                tracing::error!(session = %self.id, message = %message_id, code = %error.code(), "held text not written");
            }
        }
    }

    /// A message as the log has it, which began after a record.
    pub(super) async fn logged(
        &mut self,
        message_id: &MessageId,
        mut after: Seq,
    ) -> Result<LogHash> {
        self.drain().await;
        if let Some(error) = &self.broken {
            return Err(error.clone().into());
        }
        let mut hash = LogHash::default();
        loop {
            let records = self.env.store.read(&self.id, after, READ_MAX, Detail::Full).await?;
            let Some(last) = records.last() else { return Ok(hash) };
            after = last.seq;
            for record in &records {
                hash.add(message_id, record);
            }
        }
    }
}

/// The same decision, about what can be written now. Nothing, if that is nothing and the log knows
/// that this much (`before`) was sent. (The rest of a secret that is masked already is nothing, and
/// its sender must not be led back to it.)
fn with(mut decision: Decision, piece: Piece, before: u64) -> Decision {
    let is_piece = |event: &Event| matches!(event, Event::MessageDelta(_));
    let Some(at) = decision.records.iter().position(|record| is_piece(&record.event)) else {
        return decision;
    };
    if piece.text.is_empty() && piece.sent.is_none_or(|sent| sent == before) {
        decision.records.remove(at);
    } else {
        decision.records[at] = with_piece(&decision.records[at], piece);
    }
    decision
}
