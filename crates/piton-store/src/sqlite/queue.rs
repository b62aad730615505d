//! The order of all writes of one store. A batch takes its place when [`Queue::push`] is called;
//! the writer takes everything that waits and commits it together.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use piton_core::id::SessionId;
use tokio::sync::oneshot;

use crate::admit::batch_bytes;
use crate::contract::{Appended, Batch, Durability, Snapshot};
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
/// How often the writer looks for what other processes wrote, while somebody listens.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(crate) type Reply<T> = oneshot::Sender<Result<T>>;

#[derive(Debug)]
pub(crate) enum Work {
    Append { batch: Box<Batch>, reply: Reply<Appended> },
    Snapshot { session: SessionId, snapshot: Snapshot, reply: Reply<()> },
    Rebuild { reply: Reply<()> },
    Rotate { reply: Reply<()> },
}

impl Work {
    /// Done alone, in transactions of its own.
    fn is_alone(&self) -> bool {
        matches!(self, Self::Rebuild { .. } | Self::Rotate { .. })
    }

    fn is_urgent(&self) -> bool {
        match self {
            Self::Append { batch, .. } => batch.durability == Durability::Synced,
            Self::Snapshot { .. } => false,
            Self::Rebuild { .. } | Self::Rotate { .. } => true,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Append { batch, .. } => batch_bytes(batch),
            Self::Snapshot { snapshot, .. } => snapshot.body.len(),
            Self::Rebuild { .. } | Self::Rotate { .. } => 0,
        }
    }

    pub(crate) fn refuse(self, error: Error) {
        // Whoever dropped the future does not want to know.
        let _ = match self {
            Self::Append { reply, .. } => reply.send(Err(error)).is_ok(),
            Self::Snapshot { reply, .. } | Self::Rebuild { reply } | Self::Rotate { reply } => {
                reply.send(Err(error)).is_ok()
            }
        };
    }
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    urgent: usize,
    closed: bool,
}

#[derive(Debug)]
struct Waiting {
    work: Work,
    bytes: usize,
    since: Instant,
}

/// What the writer does next.
#[derive(Debug)]
pub(crate) enum Next {
    /// In the order of the calls; never empty.
    Group(Vec<Work>),
    /// Look whether other processes wrote.
    Look,
    Closed,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, work: Work) {
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
        if urgent || inner.waiting.len() == 1 || inner.waiting.len() >= GROUP_BATCHES_MAX {
            self.changed.notify_one();
        }
    }

    /// What waits is still written; nothing new is taken.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Somebody began to listen.
    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Waits for work. `watched` says whether anybody listens to what other processes write.
    pub(crate) fn next(&self, watched: impl Fn() -> bool) -> Next {
        let mut inner = self.lock();
        loop {
            let Some(first) = inner.waiting.front() else {
                if inner.closed {
                    return Next::Closed;
                }
                if !watched() {
                    inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                let waited = self.changed.wait_timeout(inner, LOOK_EVERY);
                let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                inner = guard;
                if timeout.timed_out() && inner.waiting.is_empty() && !inner.closed {
                    return Next::Look;
                }
                continue;
            };
            let age = first.since.elapsed();
            let full = inner.waiting.len() >= GROUP_BATCHES_MAX || inner.bytes >= GROUP_BYTES_MAX;
            if inner.urgent > 0 || full || inner.closed || age >= BUFFERED_WAIT {
                return Next::Group(inner.take_group());
            }
            let waited = self.changed.wait_timeout(inner, BUFFERED_WAIT.saturating_sub(age));
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().waiting.is_empty()
    }
}

impl Inner {
    fn take_group(&mut self) -> Vec<Work> {
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
