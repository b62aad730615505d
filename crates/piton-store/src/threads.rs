//! A store's threads. Reads run on a few of them, each with what it reads from (a connection, a
//! folder), so that no read blocks an async thread or waits for the writer.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use tokio::sync::{Semaphore, oneshot};

use crate::contract::BoxFuture;
use crate::error::{Error, Result};

pub(crate) const READERS: usize = 2;
/// Reads that may wait for a thread; further ones wait before they are queued.
const READS_QUEUED_MAX: usize = 1_024;

type Job<R> = Box<dyn FnOnce(&R) + Send>;

pub(crate) struct Readers<R> {
    jobs: Mutex<Option<mpsc::Sender<Job<R>>>>,
    slots: Arc<Semaphore>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<R> fmt::Debug for Readers<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Readers")
    }
}

impl<R: Send + 'static> Readers<R> {
    /// One thread for each of what is read from.
    pub(crate) fn start(readers: Vec<R>) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job<R>>();
        let queue = Arc::new(Mutex::new(queue));
        let mut threads = Vec::new();
        for reader in readers {
            let queue = queue.clone();
            let run = move || {
                loop {
                    // The lock is let go before the job runs.
                    let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(job) = job else { return };
                    job(&reader);
                }
            };
            threads.push(spawn("piton-read", run)?);
        }
        let slots = Arc::new(Semaphore::new(READS_QUEUED_MAX));
        Ok(Self { jobs: Mutex::new(Some(jobs)), slots, threads: Mutex::new(threads) })
    }

    /// Runs something on a reader's thread.
    pub(crate) fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        question: impl FnOnce(&R) -> Result<T> + Send + 'static,
    ) -> BoxFuture<Result<T>> {
        let this = self.clone();
        Box::pin(async move {
            let slot = this.slots.clone().acquire_owned().await.map_err(|_| Error::Closed)?;
            let (reply, answer) = oneshot::channel();
            let job: Job<R> = Box::new(move |reader: &R| {
                let _slot = slot;
                if !reply.is_closed() {
                    // Fails only if the caller dropped the future.
                    drop(reply.send(question(reader)));
                }
            });
            this.send(job)?;
            answer.await.map_err(|_| Error::Closed)?
        })
    }

    fn send(&self, job: Job<R>) -> Result<()> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.as_ref().and_then(|jobs| jobs.send(job).ok()).ok_or(Error::Closed)
    }

    /// Answers what was asked, then ends.
    pub(crate) fn close(&self) {
        drop(self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take());
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // A reader that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// A thread that can be told from others.
pub(crate) fn spawn(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(run)
}
