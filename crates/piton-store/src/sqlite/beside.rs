//! Contents that are checked beside the walk through a log: opening and hashing them is half of
//! the work of verifying, and another core can do it. Short logs are checked without a thread.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use piton_core::id::SessionId;
use piton_core::{Seq, chain};

use super::content::{self, Stored, Trouble};
use super::read::Raw;
use super::schema::Form;
use crate::crypto::Place;
use crate::error::Error;
use crate::keys::Keys;

/// Contents that are handed over at a time.
const CHUNK: usize = 256;
/// Chunks that may wait: the walk is not to run far ahead.
const CHUNKS_WAITING: usize = 4;

/// A sealed content, and what it should be.
struct Job {
    seq: Seq,
    kind: Box<str>,
    key_id: Option<Box<str>>,
    hash: Option<chain::Hash>,
    bytes: Vec<u8>,
}

/// What the contents are opened with.
#[derive(Clone, Copy)]
pub(super) struct With<'env> {
    pub(super) session: &'env SessionId,
    pub(super) keys: &'env Keys,
    pub(super) chain_key: &'env chain::Key,
}

impl With<'_> {
    /// The first content that is not what was written.
    fn check(self, jobs: &[Job]) -> Result<Option<Seq>, Error> {
        for job in jobs {
            let place = Place { session: self.session.as_str(), seq: job.seq, kind: &job.kind };
            let (key_id, bytes) = (job.key_id.as_deref(), Some(job.bytes.as_slice()));
            let stored = Stored { form: Form::Inline, key_id, hash: job.hash, bytes };
            match content::fetch_inline(self.keys, self.chain_key, place, stored) {
                Ok(_) => {}
                Err(Trouble::Store(e)) => return Err(e),
                Err(Trouble::Damaged | Trouble::BlobMissing | Trouble::Sql(_)) => {
                    return Ok(Some(job.seq));
                }
            }
        }
        Ok(None)
    }
}

type Found = Result<Option<Seq>, Error>;

pub(super) struct Beside<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    with: With<'env>,
    chunk: Vec<Job>,
    thread: Option<(SyncSender<Vec<Job>>, ScopedJoinHandle<'scope, Found>)>,
}

impl<'scope, 'env> Beside<'scope, 'env> {
    pub(super) fn new(scope: &'scope Scope<'scope, 'env>, with: With<'env>) -> Self {
        Self { scope, with, chunk: Vec::new(), thread: None }
    }

    /// Takes a content over; false if it is not one of those.
    pub(super) fn take(&mut self, raw: &Raw<'_>) -> bool {
        let (Form::Inline, Some(bytes)) = (raw.content.form, raw.content.bytes) else {
            return false;
        };
        self.chunk.push(Job {
            seq: raw.seq,
            kind: raw.kind.into(),
            key_id: raw.content.key_id.map(Into::into),
            hash: raw.content.hash,
            bytes: bytes.to_vec(),
        });
        if self.chunk.len() >= CHUNK {
            self.hand_over();
        }
        true
    }

    fn hand_over(&mut self) {
        let chunk = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK));
        let (scope, with) = (self.scope, self.with);
        let (jobs, _) = self.thread.get_or_insert_with(|| {
            let (send, jobs) = sync_channel::<Vec<Job>>(CHUNKS_WAITING);
            let check = move || {
                for chunk in jobs {
                    match with.check(&chunk) {
                        Ok(None) => {}
                        // The first one is all that is asked for.
                        found => return found,
                    }
                }
                Ok(None)
            };
            (send, scope.spawn(check))
        });
        // It has ended if it found something, which is told at the end.
        let _ = jobs.send(chunk);
    }

    /// The first content of all that is not what was written.
    pub(super) fn finish(self) -> Found {
        let rest = || self.with.check(&self.chunk);
        let Some((jobs, thread)) = self.thread else { return rest() };
        drop(jobs);
        match thread.join() {
            Ok(Ok(None)) => rest(),
            Ok(found) => found,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
