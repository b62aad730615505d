//! A message on its way: masked as it comes, counted as it is written.

use std::sync::Arc;

use piton_core::id::MessageId;
use piton_core::mask::{Masker, StreamMasker};
use piton_core::spool::{Channel, Fact};

#[derive(Debug)]
pub(super) struct Message {
    id: MessageId,
    channel: Channel,
    /// The agent's own id of it.
    agent_id: Option<String>,
    stream: StreamMasker,
    /// UTF-8 bytes written.
    offset: u64,
    hasher: blake3::Hasher,
}

impl Message {
    pub(super) fn new(
        id: MessageId,
        channel: Channel,
        agent_id: Option<String>,
        masker: &Arc<Masker>,
    ) -> Self {
        let stream = StreamMasker::new(Arc::clone(masker));
        Self { id, channel, agent_id, stream, offset: 0, hasher: blake3::Hasher::new() }
    }

    pub(super) fn id(&self) -> &MessageId {
        &self.id
    }

    pub(super) fn is(&self, channel: Channel, agent_id: Option<&str>) -> bool {
        self.channel == channel && self.agent_id.as_deref() == agent_id
    }

    pub(super) fn set_masker(&mut self, masker: &Arc<Masker>) {
        self.stream.set_masker(masker);
    }

    pub(super) fn push(&mut self, text: &str) -> Option<Fact> {
        let text = self.stream.push(text);
        self.piece(text)
    }

    /// The rest of the text, without saying that the message is complete.
    pub(super) fn flush(&mut self) -> Option<Fact> {
        let text = self.stream.finish();
        self.piece(text)
    }

    /// The rest of the text, and that this was all.
    pub(super) fn end(mut self) -> impl Iterator<Item = Fact> {
        let rest = self.flush();
        let end = (self.offset > 0).then(|| Fact::TextEnd {
            message_id: self.id,
            length: self.offset,
            hash: self.hasher.finalize().to_hex().to_string(),
        });
        rest.into_iter().chain(end)
    }

    fn piece(&mut self, text: String) -> Option<Fact> {
        if text.is_empty() {
            return None;
        }
        let offset = self.offset;
        self.offset += text.len() as u64;
        self.hasher.update(text.as_bytes());
        Some(Fact::Text { message_id: self.id.clone(), channel: self.channel, offset, text })
    }
}
