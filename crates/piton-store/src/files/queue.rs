//! The order of all writes. A batch takes its place when [`Queue::push`] is called; the writer takes
//! everything that waits and flushes it together.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use piton_core::id::SessionId;
use tokio::sync::oneshot;

use crate::admit::{Removal, batch_bytes};
use crate::contract::{Appended, Batch, CopyHead, Durability, LogCopy};
use crate::error::{Error, Result};

/// Most batches that wait for the writer; beyond it an append is refused as `Overloaded`.
const QUEUE_BATCHES_MAX: usize = 65_536;
/// Most bytes that wait for the writer.
const QUEUE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Most batches that are flushed together.
const GROUP_BATCHES_MAX: usize = 1_024;
/// A group takes no further batch once it has this many bytes.
const GROUP_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long a buffered batch waits for company.
const BUFFERED_WAIT: Duration = Duration::from_millis(50);

pub(super) type Reply<T> = oneshot::Sender<Result<T>>;

#[derive(Debug)]
pub(super) enum Work {
    Append {
        batch: Box<Batch>,
        reply: Reply<Appended>,
    },
    Delete {
        removal: Box<Removal>,
        reply: Reply<()>,
    },
    CopyIn {
        copy: Box<LogCopy>,
        reply: Reply<()>,
    },
    Rebuild {
        reply: Reply<()>,
    },
    /// Of a log that must be brought into this store's form first.
    CopyHead {
        session: SessionId,
        reply: Reply<Option<CopyHead>>,
    },
    /// List new sessions in the metadata log.
    Register,
}

impl Work {
    fn is_urgent(&self) -> bool {
        match self {
            Self::Append { batch, .. } => batch.durability == Durability::Synced,
            Self::Delete { .. }
            | Self::CopyIn { .. }
            | Self::Rebuild { .. }
            | Self::CopyHead { .. }
            | Self::Register => true,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Append { batch, .. } => batch_bytes(batch),
            Self::Delete { .. }
            | Self::CopyIn { .. }
            | Self::Rebuild { .. }
            | Self::CopyHead { .. }
            | Self::Register => 0,
        }
    }

    fn refuse(self, error: Error) {
        // Whoever dropped the future does not want to know.
        let _ = match self {
            Self::Append { reply, .. } => reply.send(Err(error)).is_ok(),
            Self::CopyHead { reply, .. } => reply.send(Err(error)).is_ok(),
            Self::Delete { reply, .. } | Self::CopyIn { reply, .. } | Self::Rebuild { reply } => {
                reply.send(Err(error)).is_ok()
            }
            Self::Register => true,
        };
    }
}

#[derive(Debug, Default)]
pub(super) struct Queue {
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

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, work: Work) {
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
        let due = urgent || batches == 0 || batches + 1 >= GROUP_BATCHES_MAX;
        drop(inner);
        if due {
            self.changed.notify_one();
        }
    }

    /// What waits is still written; nothing new is taken.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// The writer is gone: what waits is refused, and nothing new is taken.
    pub(super) fn abandon(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        let waiting = std::mem::take(&mut inner.waiting);
        (inner.bytes, inner.urgent) = (0, 0);
        drop(inner);
        for waiting in waiting {
            waiting.work.refuse(Error::Closed);
        }
    }

    /// Waits for work, in the order of the calls; `None` when closed and empty.
    pub(super) fn next(&self) -> Option<Vec<Work>> {
        let mut inner = self.lock();
        loop {
            let wait = match inner.waiting.front() {
                None if inner.closed => return None,
                None => None,
                Some(first) => {
                    let age = first.since.elapsed();
                    let full =
                        inner.waiting.len() >= GROUP_BATCHES_MAX || inner.bytes >= GROUP_BYTES_MAX;
                    if inner.urgent > 0 || full || inner.closed || age >= BUFFERED_WAIT {
                        return Some(inner.take_group());
                    }
                    Some(BUFFERED_WAIT.saturating_sub(age))
                }
            };
            inner = match wait {
                None => self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner),
                Some(span) => {
                    let waited = self.changed.wait_timeout(inner, span);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl Inner {
    fn take_group(&mut self) -> Vec<Work> {
        let mut group = Vec::new();
        let mut bytes = 0;
        while group.len() < GROUP_BATCHES_MAX && bytes < GROUP_BYTES_MAX {
            let Some(taken) = self.waiting.pop_front() else { break };
            bytes += taken.bytes;
            self.bytes -= taken.bytes;
            self.urgent -= usize::from(taken.work.is_urgent());
            group.push(taken.work);
        }
        group
    }
}
