//! The store's own threads: one that writes, and one that writes caches behind it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::folder::Folder;
use super::work::Work;
use crate::contract::{Appended, Batch};
use crate::error::Result;
use crate::hub::Hub;
use crate::queue::{Ending, Next, Queue, Reply};
use piton_core::id::SessionId;

/// How long a change of a log may wait until its caches are written.
const BEHIND_WAIT: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) batches: AtomicU64,
    pub(super) records: AtomicU64,
}

/// The one thread that writes.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) folder: Arc<Folder>,
    pub(super) queue: Arc<Queue<Work>>,
    pub(super) hub: Arc<Hub>,
    pub(super) behind: Arc<Behind>,
    pub(super) counters: Arc<Counters>,
}

/// A batch that has its lines and waits for the flush.
struct Waiting {
    batch: Box<Batch>,
    reply: Reply<Appended>,
    appended: Appended,
}

/// Sends an answer. That fails only if the caller dropped the future.
fn answer<T>(reply: Reply<T>, answer: Result<T>) {
    drop(reply.send(answer));
}

impl Writer {
    /// Until the queue is closed and empty.
    pub(super) fn run(&self) {
        let _ending = Ending(self.queue.clone());
        while let Next::Group(group) = self.queue.next(None) {
            self.work(group);
            self.behind.wake();
        }
    }

    fn work(&self, group: Vec<Work>) {
        let mut waiting = Vec::new();
        for work in group {
            match work {
                Work::Append { batch, reply } if !self.folder.needs_rewrite(&batch) => {
                    match self.folder.stage(&batch) {
                        Ok(appended) => waiting.push(Waiting { batch, reply, appended }),
                        Err(e) => answer(reply, Err(e)),
                    }
                    if self.folder.is_crowded() {
                        self.commit(std::mem::take(&mut waiting));
                    }
                }
                other => {
                    // Done alone, after everything that was called for before it.
                    self.commit(std::mem::take(&mut waiting));
                    self.alone(other);
                }
            }
        }
        self.commit(waiting);
    }

    fn alone(&self, work: Work) {
        match work {
            Work::Append { batch, reply } => match self.folder.append_by_rewrite(&batch) {
                Ok(appended) => self.committed(Waiting { batch, reply, appended }),
                Err(e) => answer(reply, Err(e)),
            },
            Work::Delete { removal, reply } => {
                let deleted = self.folder.delete(&removal);
                self.hub.look();
                answer(reply, deleted);
            }
            Work::CopyIn { copy, reply } => {
                let copied = self.folder.copy_in(*copy);
                self.hub.look();
                answer(reply, copied);
            }
            Work::Rebuild { reply } => answer(reply, self.folder.rebuild()),
            Work::Register => {
                if let Err(error) = self.folder.register() {
                    // Tried again with the next change, or by the next life.
                    tracing::warn!(%error, "New sessions are not registered yet");
                }
            }
            Work::CopyHead { session, reply } => answer(reply, self.folder.copy_head(&session)),
        }
    }

    /// Writes and flushes a group. What cannot be written together is written one by one, so that
    /// one batch does not fail because of another.
    fn commit(&self, waiting: Vec<Waiting>) {
        if waiting.is_empty() {
            return;
        }
        let failed = self.folder.write_out();
        let failed: HashSet<SessionId> = failed.into_iter().map(|(session, _)| session).collect();
        let mut flushed = Vec::with_capacity(waiting.len());
        let mut again = Vec::new();
        for one in waiting {
            if failed.contains(&one.batch.session) {
                again.push(one);
            } else {
                flushed.push(one);
            }
        }
        for Waiting { batch, reply, .. } in again {
            let staged = self.folder.stage(&batch).and_then(|appended| {
                let failed = self.folder.write_out();
                failed.into_iter().next().map_or(Ok(appended), |(_, e)| Err(e))
            });
            match staged {
                Ok(appended) => flushed.push(Waiting { batch, reply, appended }),
                Err(e) => answer(reply, Err(e)),
            }
        }
        match self.folder.sync() {
            Ok(()) => flushed.into_iter().for_each(|one| self.committed(one)),
            Err(e) => flushed.into_iter().for_each(|one| answer(one.reply, Err(e.clone()))),
        }
    }

    /// Tells everybody what is durable now.
    fn committed(&self, done: Waiting) {
        let Waiting { batch, reply, appended } = done;
        self.counters.batches.fetch_add(1, Ordering::Relaxed);
        self.counters.records.fetch_add(batch.records.len() as u64, Ordering::Relaxed);
        answer(reply, Ok(appended));
        self.hub.committed(&batch.session, appended.first, || {
            let seqs = appended.first..;
            seqs.zip(&batch.records).map(|(seq, record)| record.at(seq)).collect()
        });
    }
}

/// Writes caches some time after their logs changed.
#[derive(Debug, Default)]
pub(super) struct Behind {
    state: Mutex<BehindState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct BehindState {
    woken: bool,
    closed: bool,
}

impl Behind {
    pub(super) fn wake(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut state.woken, true) {
            self.changed.notify_all();
        }
    }

    pub(super) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.changed.notify_all();
    }

    /// Until closed; then once more, so that the next life finds everything. The writer has ended
    /// by then.
    pub(super) fn run(&self, folder: &Folder, queue: &Queue<Work>) {
        loop {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            while !state.woken && !state.closed {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            // Changes come in crowds.
            let until = Instant::now() + BEHIND_WAIT;
            while !state.closed && Instant::now() < until {
                let span = until.saturating_duration_since(Instant::now());
                let waited = self.changed.wait_timeout(state, span);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            let closed = state.closed;
            state.woken = false;
            drop(state);
            folder.write_behind();
            if closed {
                if folder.has_unregistered() {
                    if let Err(error) = folder.register() {
                        tracing::warn!(%error, "New sessions are not registered yet");
                    }
                    folder.write_behind();
                }
                return;
            }
            if folder.has_unregistered() {
                queue.push(Work::Register);
            }
        }
    }
}
