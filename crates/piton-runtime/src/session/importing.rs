//! What an execution's spool says comes into the log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use piton_core::decide::{Command, Decision, Import, asks};
use piton_core::id::{MessageId, RunId};
use piton_core::spool::{Entry, Fact};
use piton_core::token::NewToken;
use piton_store::Durability;

use super::Session;
use crate::error::Result;

impl Session {
    /// Masks what agentctl could not know to be secret, makes the tokens, and decides. agentctl
    /// masks whatever was configured; here comes what this session's records taught.
    pub(super) async fn import(&mut self, import: Import) -> Result<Decision> {
        let Import { execution_id, spool_id, entries, mut lost, damage, .. } = import;
        let masker = self.env.writer.masker(&self.id);
        let mut safer = BTreeMap::new();
        let mut batch: Vec<Entry> = Vec::with_capacity(entries.len());
        let before = self.state.last_seq;
        // Messages that begin with this import.
        let mut fresh: BTreeSet<MessageId> = BTreeSet::new();
        let known = self.state.spools.get(&execution_id).filter(|s| s.spool_id == spool_id);
        let cursor = known.map_or(0, |spool| spool.pos);
        for mut entry in entries.into_iter().filter(|entry| entry.pos > cursor) {
            match &mut entry.fact {
                Fact::Text { message_id, offset, text, .. } => {
                    let safe = masker.text(text);
                    if *offset == 0 {
                        fresh.insert(message_id.clone());
                    }
                    if *safe != **text || self.state.messages_sent.contains_key(message_id) {
                        safer.insert(entry.pos, *offset + text.len() as u64);
                        *text = safe.to_string();
                    }
                }
                Fact::TextEnd { message_id, length, hash } => {
                    let of = &*message_id;
                    let in_batch = |entry: &Entry| {
                        matches!(&entry.fact, Fact::Text { message_id, .. } if message_id == of)
                            && safer.contains_key(&entry.pos)
                    };
                    // The log does not count what is late; nor does it remember what it masked of it.
                    let is_late = !self.state.messages.contains_key(of) && !fresh.contains(of)
                        || !self.streams(entry.run_id.as_ref());
                    let is_masked = self.state.messages_sent.contains_key(of);
                    if is_late || is_masked || batch.iter().any(in_batch) {
                        // Length and hash are those of the text as the log has it: it has to be there.
                        let message_id = message_id.clone();
                        let so_far = Import {
                            execution_id: execution_id.clone(),
                            spool_id: spool_id.clone(),
                            entries: std::mem::take(&mut batch),
                            lost: lost.take(),
                            damage: None,
                            masked: std::mem::take(&mut safer),
                            fresh: Vec::new(),
                            rules: Arc::default(),
                        };
                        let decision = self.decide_import(so_far)?;
                        self.append(decision, Durability::Buffered, None);
                        let after = match &self.state.facts.run {
                            _ if fresh.contains(&message_id) => before,
                            Some(run) if !is_late => run.started_seq,
                            _ => 0,
                        };
                        let logged = self.logged(&message_id, after).await?;
                        (*length, *hash) = (logged.length(), logged.finish());
                    }
                }
                _ => {}
            }
            batch.push(entry);
        }
        let (entries, fresh) = (batch, Vec::new());
        self.decide_import(Import {
            execution_id,
            spool_id,
            entries,
            lost,
            damage,
            masked: safer,
            fresh,
            rules: Arc::default(),
        })
    }

    /// Whether a run is the current one and streams.
    fn streams(&self, run_id: Option<&RunId>) -> bool {
        let run = self.state.facts.run.as_ref().filter(|run| run.is_unfinished());
        run_id.is_none_or(|run_id| run.is_some_and(|run| run.run_id == *run_id))
    }

    fn decide_import(&mut self, mut import: Import) -> Result<Decision> {
        for _ in 0..asks(&import.entries) {
            import.fresh.push(NewToken::from(&self.env.ids.token()?));
        }
        import.rules = self.env.rules.get();
        self.decide(Command::Import(import))
    }
}
