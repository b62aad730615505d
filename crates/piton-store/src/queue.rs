//! The order of all writes of one store. A batch takes its place when [`Queue::push`] is called;
//! the writer takes everything that waits and makes it durable together. Each store has its own
//! kinds of [`Work`].

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::error::{Error, Result};

/// Most batches that wait for the writer; beyond it an append is refused as `Overloaded`.
pub(crate) const QUEUE_BATCHES_MAX: usize = 65_536;
/// Most bytes that wait for the writer.
pub(crate) const QUEUE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Most batches in one commit.
const GROUP_BATCHES_MAX: usize = 1_024;
/// A group takes no further batch once it has this many bytes.
const GROUP_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long a buffered batch waits for company.
const BUFFERED_WAIT: Duration = Duration::from_millis(50);

/// Where an answer goes. The caller may have stopped waiting for it.
pub(crate) type Reply<T> = oneshot::Sender<Result<T>>;

/// Something for the writer to do.
pub(crate) trait Work: fmt::Debug {
    /// Taken from the queue by itself, not in a group.
    fn is_alone(&self) -> bool;

    /// Does not wait for company.
    fn is_urgent(&self) -> bool;

    fn bytes(&self) -> usize;

    /// Answers the waiting caller with an error.
    fn refuse(self, error: Error);
}

#[derive(Debug)]
pub(crate) struct Queue<W> {
    inner: Mutex<Inner<W>>,
    changed: Condvar,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        let waiting = VecDeque::new();
        let inner =
            Inner { waiting, bytes: 0, urgent: 0, closed: false, look: false, sleeps: false };
        Self { inner: Mutex::new(inner), changed: Condvar::new() }
    }
}

#[derive(Debug)]
struct Inner<W> {
    waiting: VecDeque<Waiting<W>>,
    bytes: usize,
    urgent: usize,
    closed: bool,
    /// Other processes may have written.
    look: bool,
    /// The writer waits for [`Queue::changed`] and has to be woken.
    sleeps: bool,
}

#[derive(Debug)]
struct Waiting<W> {
    work: W,
    bytes: usize,
    since: Instant,
}

/// What the writer does next.
#[derive(Debug)]
pub(crate) enum Next<W> {
    /// In the order of the calls; never empty.
    Group(Vec<W>),
    /// Look whether other processes wrote, and do what was put off.
    Look,
    Closed,
}

impl<W: Work> Queue<W> {
    fn lock(&self) -> MutexGuard<'_, Inner<W>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, work: W) {
        let bytes = work.bytes();
        let mut inner = self.lock();
        if inner.closed {
            drop(inner);
            return work.refuse(Error::Closed);
        }
        let batches = inner.waiting.len();
        if batches >= QUEUE_BATCHES_MAX || inner.bytes + bytes > QUEUE_BYTES_MAX {
            let bytes = inner.bytes;
            drop(inner);
            return work.refuse(Error::Overloaded { batches, bytes });
        }
        let urgent = work.is_urgent();
        inner.bytes += bytes;
        inner.urgent += usize::from(urgent);
        inner.waiting.push_back(Waiting { work, bytes, since: Instant::now() });
        // A buffered batch wakes the writer only if it is the first: its time starts to run.
        let due = urgent || inner.waiting.len() == 1 || inner.waiting.len() >= GROUP_BATCHES_MAX;
        let wakes = due && std::mem::take(&mut inner.sleeps);
        // Let go first, or the writer would wake up only to wait for the lock.
        drop(inner);
        if wakes {
            self.changed.notify_one();
        }
    }

    /// What waits is still written; nothing new is taken.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// The writer is gone: what waits is refused, and nothing new is taken.
    pub(crate) fn abandon(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        let waiting = std::mem::take(&mut inner.waiting);
        (inner.bytes, inner.urgent) = (0, 0);
        drop(inner);
        for waiting in waiting {
            waiting.work.refuse(Error::Closed);
        }
    }

    /// Has the writer look whether other processes wrote, once it has nothing else to do.
    pub(crate) fn look(&self) {
        self.lock().look = true;
        self.changed.notify_all();
    }

    /// Waits for work; with `put_off`, at most so long.
    pub(crate) fn next(&self, put_off: Option<Duration>) -> Next<W> {
        let until = put_off.map(|span| Instant::now() + span);
        let mut inner = self.lock();
        loop {
            let Some(first) = inner.waiting.front() else {
                if inner.closed {
                    return Next::Closed;
                }
                let left = until.map(|until| until.saturating_duration_since(Instant::now()));
                if std::mem::take(&mut inner.look) || left.is_some_and(|left| left.is_zero()) {
                    return Next::Look;
                }
                inner = self.sleep(inner, left);
                continue;
            };
            let age = first.since.elapsed();
            let full = inner.waiting.len() >= GROUP_BATCHES_MAX || inner.bytes >= GROUP_BYTES_MAX;
            if inner.urgent > 0 || full || inner.closed || age >= BUFFERED_WAIT {
                return Next::Group(inner.take_group());
            }
            inner = self.sleep(inner, Some(BUFFERED_WAIT.saturating_sub(age)));
        }
    }

    /// Waits for a change.
    fn sleep<'a>(
        &self,
        mut inner: MutexGuard<'a, Inner<W>>,
        span: Option<Duration>,
    ) -> MutexGuard<'a, Inner<W>> {
        inner.sleeps = true;
        let mut inner = match span {
            None => self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner),
            Some(span) => {
                let waited = self.changed.wait_timeout(inner, span);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        inner.sleeps = false;
        inner
    }

    /// Whether nothing comes for a while; returns at once when something does.
    pub(crate) fn rests_for(&self, span: Duration) -> bool {
        let until = Instant::now() + span;
        let mut inner = self.lock();
        while inner.waiting.is_empty() && !inner.closed {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            inner = self.sleep(inner, Some(left));
        }
        inner.waiting.is_empty()
    }
}

impl<W: Work> Inner<W> {
    fn take_group(&mut self) -> Vec<W> {
        let mut group = Vec::new();
        let mut bytes = 0;
        while let Some(next) = self.waiting.front() {
            let alone = next.work.is_alone();
            let full = group.len() >= GROUP_BATCHES_MAX || bytes >= GROUP_BYTES_MAX;
            if !group.is_empty() && (alone || full) {
                break;
            }
            let Some(taken) = self.waiting.pop_front() else { break };
            bytes += taken.bytes;
            self.bytes -= taken.bytes;
            self.urgent -= usize::from(taken.work.is_urgent());
            group.push(taken.work);
            if alone {
                break;
            }
        }
        group
    }
}

/// However the writer's thread ends, no caller waits for it afterwards.
pub(crate) struct Ending<W: Work>(pub(crate) Arc<Queue<W>>);

impl<W: Work> Drop for Ending<W> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
