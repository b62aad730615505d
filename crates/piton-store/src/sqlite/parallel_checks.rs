//! Records that are checked beside the walk through a log: that a link follows from the one before
//! it, and that a content is what was written, can be said about each record by itself. It is half
//! of the work of verifying, and another core can do it. Short logs are checked without a thread.

use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use piton_core::id::SessionId;
use piton_core::{Seq, Timestamp, chain};

use super::content::{self, Trouble};
use super::read::Raw;
use super::schema::Form;
use crate::contract::Problem;
use crate::crypto::ContentBinding;
use crate::error::Error;
use crate::keys::Keys;

/// Records that are handed over at a time, and the most bytes of them, but for the last one's.
const CHUNK: usize = 256;
const CHUNK_BYTES: usize = 512 * 1024;
/// Chunks that may wait: the walk is not to run far ahead.
const CHUNKS_WAITING: usize = 4;

/// A record with a sealed content, and the link before it.
struct Job {
    previous: chain::Hash,
    seq: Seq,
    ts: Timestamp,
    left: u32,
    hash: Option<chain::Hash>,
    chain: chain::Hash,
    kind_bytes: usize,
    header_bytes: usize,
    key_id_bytes: Option<usize>,
    content_bytes: usize,
}

/// Records one after the other: none has memory of its own.
#[derive(Default)]
struct Chunk {
    jobs: Vec<Job>,
    texts: String,
    contents: Vec<u8>,
}

impl Chunk {
    fn push(&mut self, previous: chain::Hash, raw: &Raw<'_>, content: &[u8]) {
        let key_id = raw.content.key_id;
        self.jobs.push(Job {
            previous,
            seq: raw.seq,
            ts: raw.ts,
            left: raw.left,
            hash: raw.content.hash,
            chain: raw.chain,
            kind_bytes: raw.kind.len(),
            header_bytes: raw.header.len(),
            key_id_bytes: key_id.map(str::len),
            content_bytes: content.len(),
        });
        for text in [raw.kind, raw.header, key_id.unwrap_or_default()] {
            self.texts.push_str(text);
        }
        self.contents.extend_from_slice(content);
    }

    fn is_full(&self) -> bool {
        self.jobs.len() >= CHUNK || self.contents.len() + self.texts.len() >= CHUNK_BYTES
    }
}

/// What the records are checked with.
#[derive(Clone, Copy)]
pub(super) struct With<'env> {
    pub(super) session: &'env SessionId,
    pub(super) keys: &'env Keys,
    pub(super) chain_key: &'env chain::Key,
}

impl With<'_> {
    /// The first record that is not what was written.
    fn check(self, chunk: &mut Chunk) -> Found {
        let mut texts = chunk.texts.as_str();
        let mut contents = chunk.contents.as_mut_slice();
        for job in &chunk.jobs {
            let kind = take(&mut texts, job.kind_bytes);
            let header = take(&mut texts, job.header_bytes);
            let key_id = job.key_id_bytes.map(|bytes| take(&mut texts, bytes));
            let content = contents.split_off_mut(..job.content_bytes).unwrap_or_default();
            let seq = job.seq;
            let link = chain::LinkInput {
                seq,
                ts: job.ts,
                kind,
                header,
                payload_hash: job.hash,
                batch_left: job.left,
            };
            if self.chain_key.link(&job.previous, link) != job.chain {
                return Some((seq, Ok(Problem::ChainBroken { seq })));
            }
            let binding = ContentBinding { session: self.session.as_str(), seq, kind };
            match content::check_inline(
                self.keys,
                self.chain_key,
                binding,
                key_id,
                job.hash,
                content,
            ) {
                Ok(()) => {}
                Err(Trouble::Store(e)) => return Some((seq, Err(e))),
                Err(Trouble::Damaged | Trouble::BlobMissing | Trouble::Sql(_)) => {
                    return Some((seq, Ok(Problem::PayloadDamaged { seq })));
                }
            }
        }
        None
    }
}

/// Takes what a text begins with.
fn take<'a>(text: &mut &'a str, bytes: usize) -> &'a str {
    let (taken, rest) = text.split_at(bytes);
    *text = rest;
    taken
}

/// The first record that is not what was written, or at which it could not be said.
type Found = Option<(Seq, Result<Problem, Error>)>;

pub(super) struct Beside<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    with: With<'env>,
    chunk: Chunk,
    thread: Option<(SyncSender<Chunk>, ScopedJoinHandle<'scope, Found>)>,
    /// The first that was found without the thread.
    found: Found,
}

impl<'scope, 'env> Beside<'scope, 'env> {
    pub(super) fn new(scope: &'scope Scope<'scope, 'env>, with: With<'env>) -> Self {
        Self { scope, with, chunk: Chunk::default(), thread: None, found: None }
    }

    /// Takes a record over, to check its link and its content; false if it is not one of those.
    pub(super) fn take(&mut self, previous: &chain::Hash, raw: &Raw<'_>) -> bool {
        let (Form::Inline, Some(content)) = (raw.content.form, raw.content.bytes) else {
            return false;
        };
        self.chunk.push(*previous, raw, content);
        if self.chunk.is_full() {
            self.hand_over();
        }
        true
    }

    fn hand_over(&mut self) {
        let chunk = std::mem::take(&mut self.chunk);
        let (scope, with) = (self.scope, self.with);
        let (jobs, _) = self.thread.get_or_insert_with(|| {
            let (send, chunks) = sync_channel::<Chunk>(CHUNKS_WAITING);
            // The first one is all that is asked for.
            let check = move || chunks.into_iter().find_map(|mut chunk| with.check(&mut chunk));
            (send, scope.spawn(check))
        });
        // To wait would be to leave a core idle. If the thread has ended, it found a problem, which
        // is reported at the end.
        if let Err(TrySendError::Full(chunk)) = jobs.try_send(chunk) {
            self.check_here(chunk);
        }
    }

    fn check_here(&mut self, mut chunk: Chunk) {
        if self.found.is_none() {
            self.found = self.with.check(&mut chunk);
        }
    }

    /// The first record of all that is not what was written.
    pub(super) fn finish(mut self) -> Result<Option<Problem>, Error> {
        let rest = std::mem::take(&mut self.chunk);
        self.check_here(rest);
        let beside = match self.thread {
            None => None,
            Some((jobs, thread)) => {
                drop(jobs);
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
        };
        let first = self.found.into_iter().chain(beside).min_by_key(|(seq, _)| *seq);
        first.map(|(_, found)| found).transpose()
    }
}
