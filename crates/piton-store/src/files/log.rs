//! One log as the store knows it: where it ends, what it folds into, and some places in its file.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use piton_core::id::{SessionId, TokenId};
use piton_core::state::{Lease, Phase};
use piton_core::{Event, Record, Seq, State, Timestamp, chain, token};

use super::scan::{Form, Mark};
use crate::contract::Snapshot;
use crate::error::Error;

/// Numbers for files that were ever opened under a name.
static GENERATIONS: AtomicU64 = AtomicU64::new(0);

/// A place is remembered every so many records.
pub(crate) const MARK_EVERY: Seq = 64;

/// Where a log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) seq: Seq,
    pub(crate) chain: chain::Hash,
    pub(crate) bytes: u64,
    /// Where the last line begins, and the link before it.
    pub(crate) last_at: u64,
    pub(crate) previous: chain::Hash,
}

impl End {
    /// Of a log without lines.
    pub(crate) fn empty(seq: Seq, chain: chain::Hash) -> Self {
        Self { seq, chain, bytes: 0, last_at: 0, previous: chain }
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark { seq: self.seq + 1, at: self.bytes, previous: self.chain }
    }

    /// The end after one more line.
    pub(crate) fn after(&self, seq: Seq, chain: chain::Hash, line_bytes: usize) -> Self {
        Self {
            seq,
            chain,
            bytes: self.bytes + line_bytes as u64,
            last_at: self.bytes,
            previous: self.chain,
        }
    }
}

/// What a log's records come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Folded {
    pub(crate) state: State,
    pub(crate) tokens: BTreeMap<TokenId, token::Entry>,
    /// When the current run ended, if it did.
    pub(crate) ended_at: Option<Timestamp>,
}

impl Folded {
    pub(crate) fn apply(&mut self, seq: Seq, ts: Timestamp, event: &Event) {
        self.state.apply(seq, ts, event);
        if let Some(id) = token::subject(event) {
            let entry = self.tokens.remove(id);
            if let Some(entry) = token::transition(entry, seq, event) {
                self.tokens.insert(id.clone(), entry);
            }
        }
        let phase = self.state.facts.run.as_ref().map(|run| run.phase);
        match phase {
            Some(Phase::Ended(_) | Phase::Dismissed) => {
                self.ended_at.get_or_insert(ts);
            }
            _ => self.ended_at = None,
        }
    }
}

/// Whether a log can be relied on.
#[derive(Clone, Debug)]
pub(crate) enum Health {
    Sound,
    /// A line was found damaged while reading: what the log folds into is known from before, and
    /// nothing more is written behind it.
    Damaged(Error),
    /// A line was found damaged while opening: only what is before it can be read.
    Broken(Error),
}

#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub(crate) session: SessionId,
    pub(crate) key: chain::Key,
    pub(crate) form: Form,
    /// The seq before the first line's.
    pub(crate) base: Seq,
    /// What stands for the records before the first line, in a log that began elsewhere and was not
    /// written to since.
    pub(crate) adopted: Option<(Record, chain::Hash)>,
    pub(crate) end: End,
    pub(crate) folded: Folded,
    pub(crate) marks: BTreeMap<Seq, Mark>,
    pub(crate) saved: Option<Snapshot>,
    /// The last position that is written down outside the log.
    pub(crate) anchor: Option<(Seq, chain::Hash)>,
    pub(crate) health: Health,
    /// Another one whenever the file is: places in the old one mean nothing in the new one.
    pub(crate) generation: u64,
}

impl Log {
    pub(crate) fn new(session: SessionId, key: chain::Key, form: Form, end: End) -> Self {
        let base = end.seq;
        let marks = BTreeMap::from([(base + 1, end.mark())]);
        Self {
            session,
            key,
            form,
            base,
            adopted: None,
            end,
            folded: Folded::default(),
            marks,
            saved: None,
            anchor: None,
            health: Health::Sound,
            generation: next_generation(),
        }
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.folded.state.lease
    }

    /// Why the log's state is not known.
    pub(crate) fn broken(&self) -> Option<&Error> {
        match &self.health {
            Health::Broken(e) => Some(e),
            Health::Sound | Health::Damaged(_) => None,
        }
    }

    /// Why nothing may be written behind the log's end.
    pub(crate) fn trouble(&self) -> Option<&Error> {
        match &self.health {
            Health::Broken(e) | Health::Damaged(e) => Some(e),
            Health::Sound => None,
        }
    }

    /// Where to begin reading, to come to a record.
    pub(crate) fn mark_before(&self, seq: Seq) -> Option<Mark> {
        let before = self.marks.range(..=seq).next_back();
        before.or_else(|| self.marks.first_key_value()).map(|(_, mark)| *mark)
    }

    /// The chain at a record, if it is known without reading.
    pub(crate) fn chain_known(&self, seq: Seq) -> Option<chain::Hash> {
        if seq == self.end.seq {
            return Some(self.end.chain);
        }
        if let Some((_, chain)) = self.adopted.as_ref().filter(|(record, _)| record.seq == seq) {
            return Some(*chain);
        }
        let next = self.marks.get(&(seq + 1))?;
        (seq > self.base).then_some(next.previous)
    }
}

pub(crate) fn next_generation() -> u64 {
    GENERATIONS.fetch_add(1, Ordering::Relaxed)
}

/// Whether a line's place is worth remembering.
pub(crate) fn is_marked(seq: Seq) -> bool {
    seq.is_multiple_of(MARK_EVERY)
}
