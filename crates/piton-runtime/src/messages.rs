//! Streamed messages on their way through the masker. What may be the beginning of a secret waits
//! here for the next piece; a sender's offsets are about what it sent, the log's about what is
//! written.
//!
//! What waits is lost with the process: the log's offset leads its sender back to it. If part of a
//! possible secret had to be written because another record had to follow it, this module remembers
//! that part and masks the rest of the secret, even after the run ended. A new process has no such
//! memory: it masks text that looks like the end of a secret as the rest of one, even at the start
//! of a message, since the log forgets a message with its run.

use std::collections::BTreeMap;
use std::sync::Arc;

use piton_core::decide::Refusal;
use piton_core::id::MessageId;
use piton_core::limits::MESSAGES_OPEN_MAX;
use piton_core::mask::{Masker, StreamMasker};
use piton_core::{Event, NewRecord, State};
use serde_json::Value;

/// A session's messages that stream.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    open: BTreeMap<MessageId, Message>,
    /// The log is older than what is known here.
    has_past: bool,
}

#[derive(Debug)]
struct Message {
    masker: StreamMasker,
    /// Bytes that were sent, those that wait included.
    sent: u64,
    /// It was masked in this life or in an earlier one.
    changed: bool,
    /// Of what is appended. `None` if some of it was before this was here.
    hasher: Option<blake3::Hasher>,
}

/// What can be written of a message now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) text: String,
    /// How much the sender had sent up to its end, if that does not follow from what is written.
    pub(crate) sent: Option<u64>,
}

/// What a message's hash is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Hash {
    /// What the sender says: nothing was masked.
    AsSent,
    Known(String),
    /// What an earlier life wrote has to be read.
    InTheLog,
}

impl Message {
    fn piece(&mut self, text: String) -> Piece {
        self.changed |= self.masker.has_changed();
        let sent = self.changed.then(|| self.sent - self.masker.held() as u64);
        Piece { text, sent }
    }
}

impl Messages {
    /// Of a session whose log has come so far.
    pub(crate) fn after(state: &State) -> Self {
        Self { open: BTreeMap::new(), has_past: state.last_seq > 0 }
    }

    /// Whether a message's text has to come through here.
    pub(crate) fn concerns(&self, state: &State, masker: &Masker, message: &MessageId) -> bool {
        !masker.knows_nothing()
            || self.open.contains_key(message)
            || state.messages_sent.contains_key(message)
    }

    /// The offset at which a message continues, as its sender counts.
    fn sent(&self, state: &State, message: &MessageId) -> u64 {
        let here = self.open.get(message).map(|message| message.sent);
        here.unwrap_or_else(|| sent_in_log(state, message))
    }

    /// Whether a piece continues its message.
    pub(crate) fn check(
        &self,
        state: &State,
        message: &MessageId,
        offset: Option<u64>,
    ) -> Result<(), Refusal> {
        let expected = self.sent(state, message);
        if let Some(offset) = offset.filter(|offset| *offset != expected) {
            return Err(Refusal::OffsetMismatch { message: message.clone(), expected, offset });
        }
        // Those of which nothing is written yet are not in the state.
        let waits = |id: &MessageId| self.held(id) > 0 && !state.messages.contains_key(id);
        let waiting = self.open.keys().filter(|id| waits(id)).count();
        let is_new = !waits(message) && !state.messages.contains_key(message);
        if is_new && state.messages.len() + waiting >= MESSAGES_OPEN_MAX {
            return Err(Refusal::LimitReached { what: "messages", max: MESSAGES_OPEN_MAX });
        }
        Ok(())
    }

    pub(crate) fn push(
        &mut self,
        state: &State,
        masker: &Arc<Masker>,
        message: &MessageId,
        text: &str,
    ) -> Piece {
        let sent = self.sent(state, message);
        let begins = sent == 0 && !state.messages.contains_key(message);
        let has_past = self.has_past;
        let entry = self.open.entry(message.clone()).or_insert_with(|| Message {
            masker: match (begins, has_past) {
                (true, false) => StreamMasker::new(Arc::clone(masker)),
                (true, true) => StreamMasker::perhaps_resumed(Arc::clone(masker)),
                (false, _) => StreamMasker::resumed(Arc::clone(masker)),
            },
            sent,
            changed: state.messages_sent.contains_key(message),
            hasher: begins.then(blake3::Hasher::new),
        });
        entry.masker.set_masker(masker);
        entry.sent += text.len() as u64;
        let text = entry.masker.push(text);
        entry.piece(text)
    }

    /// A record is appended as the gate left it.
    pub(crate) fn appended(&mut self, record: &NewRecord) {
        let Event::MessageDelta(delta) = &record.event else { return };
        let Some(message) = self.open.get_mut(&delta.message_id) else { return };
        message.changed |= delta.sent.is_some();
        if let Some(hasher) = &mut message.hasher {
            match text_of(record) {
                Some(text) => drop(hasher.update(text.as_bytes())),
                None => message.hasher = None,
            }
        }
    }

    /// What waits of each message, because something is to be written behind it.
    pub(crate) fn cut(&mut self, which: Cut) -> Vec<(MessageId, Piece)> {
        let waiting = self.open.iter_mut().filter(|(_, message)| match which {
            Cut::All => message.masker.held() > 0,
            Cut::Harmless => message.masker.may_show(),
        });
        let cut = waiting.map(|(id, message)| {
            let text = message.masker.cut();
            (id.clone(), message.piece(text))
        });
        cut.collect()
    }

    /// What waits of a message that is complete.
    pub(crate) fn finish(&mut self, message: &MessageId) -> Option<Piece> {
        let message = self.open.get_mut(message)?;
        let waits = message.masker.held() > 0;
        let text = message.masker.finish();
        waits.then(|| message.piece(text))
    }

    pub(crate) fn hash(&self, state: &State, message: &MessageId) -> Hash {
        let changed = state.messages_sent.contains_key(message);
        match self.open.get(message) {
            Some(here) if here.changed || changed => match &here.hasher {
                Some(hasher) => Hash::Known(hasher.finalize().to_hex().to_string()),
                None => Hash::InTheLog,
            },
            None if changed => Hash::InTheLog,
            _ => Hash::AsSent,
        }
    }

    /// How many bytes of a message wait.
    pub(crate) fn held(&self, message: &MessageId) -> u64 {
        self.open.get(message).map_or(0, |message| message.masker.held() as u64)
    }

    pub(crate) fn any_held(&self) -> bool {
        self.open.values().any(|message| message.masker.held() > 0)
    }

    /// Whether something waits that may be written as it is, should nothing follow.
    pub(crate) fn any_harmless(&self) -> bool {
        self.open.values().any(|message| message.masker.may_show())
    }

    /// Forgets messages that no longer stream. A message that ended with its run in the middle of a
    /// possible secret is kept: its sender may start again at offset 0, or send the rest of the
    /// secret, which must be masked.
    pub(crate) fn retain(&mut self, state: &State) {
        let mut ended = 0;
        self.open.retain(|id, message| {
            if state.messages.contains_key(id) || message.masker.held() > 0 {
                return true;
            }
            message.sent = 0;
            message.hasher = Some(blake3::Hasher::new());
            ended += 1;
            message.masker.has_released() && ended <= MESSAGES_OPEN_MAX
        });
    }
}

/// What is written of what waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    All,
    /// So little of any secret that it may be shown as it is.
    Harmless,
}

fn text_of(record: &NewRecord) -> Option<String> {
    let mut content: serde_json::Map<String, Value> =
        serde_json::from_str(record.payload.as_deref()?).ok()?;
    match content.remove("text") {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// How much of a message was sent, as the log knows it.
pub(crate) fn sent_in_log(state: &State, message: &MessageId) -> u64 {
    state.messages_sent.get(message).or(state.messages.get(message)).copied().unwrap_or(0)
}

/// The record of a piece, made from the record of what was sent.
pub(crate) fn with_piece(record: &NewRecord, piece: Piece) -> NewRecord {
    let Event::MessageDelta(delta) = &record.event else { return record.clone() };
    let mut delta = delta.clone();
    delta.length = piece.text.len() as u64;
    delta.sent = piece.sent;
    NewRecord::with_content(record.ts, delta, "text", piece.text.into())
}

/// The hash of what the log has of a message that streams. `None` if some of it was taken out.
#[derive(Debug, Default)]
pub(crate) struct LogHash {
    hasher: blake3::Hasher,
    length: u64,
    incomplete: bool,
}

impl LogHash {
    pub(crate) fn add(&mut self, message: &MessageId, record: &piton_core::Record) {
        let Ok(Event::MessageDelta(delta)) = record.event() else { return };
        if delta.message_id != *message {
            return;
        }
        if delta.offset == 0 {
            *self = Self::default();
        }
        self.length += delta.length;
        match record.content_field("text") {
            Some(Value::String(text)) => drop(self.hasher.update(text.as_bytes())),
            _ => self.incomplete = true,
        }
    }

    /// How much of it the log has.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Empty if some of the text was redacted: the hash cannot be known.
    pub(crate) fn finish(&self) -> String {
        if self.incomplete { String::new() } else { self.hasher.finalize().to_hex().to_string() }
    }
}
