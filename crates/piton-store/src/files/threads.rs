//! The store's threads: one that writes, one that writes caches behind it, a few that read, so that
//! no file is waited for on an async thread.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use piton_core::id::SessionId;
use tokio::sync::{Semaphore, oneshot};

use super::folder::Folder;
use super::queue::{Queue, Reply, Work};
use crate::contract::{Appended, Batch, BoxFuture};
use crate::error::{Error, Result};
use crate::hub::Hub;

const READERS: usize = 2;
/// Reads that may wait for a thread; further ones wait before they are queued.
const READS_QUEUED_MAX: usize = 1_024;
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
    pub(super) queue: Arc<Queue>,
    pub(super) hub: Arc<Hub>,
    pub(super) behind: Arc<Behind>,
    pub(super) counters: Arc<Counters>,
}

/// However the writer's thread ends, nobody waits for it afterwards.
struct Ending(Arc<Queue>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// A batch that has its lines and waits for the flush.
struct Waiting {
    batch: Box<Batch>,
    reply: Reply<Appended>,
    appended: Appended,
}

/// Whoever dropped the future does not want to know.
fn answer<T>(reply: Reply<T>, answer: Result<T>) {
    drop(reply.send(answer));
}

impl Writer {
    /// Until the queue is closed and empty.
    pub(super) fn run(&self) {
        let _ending = Ending(self.queue.clone());
        while let Some(group) = self.queue.next() {
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
            Work::Append { batch, reply } => match self.folder.append_anew(&batch) {
                Ok(appended) => self.committed(Waiting { batch, reply, appended }),
                Err(e) => answer(reply, Err(e)),
            },
            Work::Delete { removal, reply } => answer(reply, self.folder.delete(&removal)),
            Work::CopyIn { copy, reply } => answer(reply, self.folder.copy_in(*copy)),
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
    /// nobody suffers from a neighbour.
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
    pub(super) fn run(&self, folder: &Folder, queue: &Queue) {
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

type Job = Box<dyn FnOnce(&Folder) + Send>;

pub(super) struct Readers {
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    slots: Arc<Semaphore>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Readers")
    }
}

impl Readers {
    pub(super) fn start(folder: &Arc<Folder>) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        let mut threads = Vec::new();
        for _ in 0..READERS {
            let (queue, folder) = (queue.clone(), folder.clone());
            let run = move || {
                loop {
                    // The lock is let go before the job runs.
                    let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(job) = job else { return };
                    job(&folder);
                }
            };
            threads.push(thread::Builder::new().name("piton-read".into()).spawn(run)?);
        }
        let slots = Arc::new(Semaphore::new(READS_QUEUED_MAX));
        Ok(Self { jobs: Mutex::new(Some(jobs)), slots, threads: Mutex::new(threads) })
    }

    /// Runs something on a reader's thread.
    pub(super) fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        question: impl FnOnce(&Folder) -> Result<T> + Send + 'static,
    ) -> BoxFuture<Result<T>> {
        let this = self.clone();
        Box::pin(async move {
            let slot = this.slots.clone().acquire_owned().await.map_err(|_| Error::Closed)?;
            let (reply, answer) = oneshot::channel();
            let job: Job = Box::new(move |folder| {
                let _slot = slot;
                if !reply.is_closed() {
                    // Whoever dropped the future does not want to know.
                    drop(reply.send(question(folder)));
                }
            });
            this.send(job)?;
            answer.await.map_err(|_| Error::Closed)?
        })
    }

    fn send(&self, job: Job) -> Result<()> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.as_ref().and_then(|jobs| jobs.send(job).ok()).ok_or(Error::Closed)
    }

    /// Answers what was asked, then ends.
    pub(super) fn close(&self) {
        drop(self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take());
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // A reader that panicked has said so.
            let _ = thread.join();
        }
    }
}

pub(super) fn spawn(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(run)
}
