//! Hints: “something was committed”. Sent after the commit, per session, bounded; a slow or late
//! receiver loses them, and that is all right: a [`crate::Tail`] reads the log.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use piton_core::id::SessionId;
use piton_core::{Record, Seq};
use tokio::sync::broadcast;

/// How many commits a receiver may fall behind before it has to read the log.
const HINTS_MAX: usize = 64;

/// Fewer sessions than twice this are not worth looking through for listeners that left.
const PRUNE_MIN: usize = 64;

/// A committed batch.
#[derive(Debug, PartialEq)]
pub struct Commit {
    pub first: Seq,
    pub records: Vec<Record>,
}

#[derive(Debug, Default)]
pub struct Hub {
    sessions: Mutex<HashMap<SessionId, broadcast::Sender<Arc<Commit>>>>,
    /// How many sessions were left when those without listeners were last removed.
    pruned: AtomicUsize,
}

/// The receiving end.
#[derive(Debug)]
pub struct Hints {
    receiver: broadcast::Receiver<Arc<Commit>>,
}

/// What a wait for a hint came to.
#[derive(Debug)]
pub enum Hint {
    Commit(Arc<Commit>),
    /// Something may have happened: read the log.
    Look,
}

impl Hub {
    pub fn subscribe(&self, session: &SessionId) -> Hints {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        // Where nobody commits, nobody else notices that the listeners left.
        if sessions.len() >= 2 * self.pruned.load(Ordering::Relaxed).max(PRUNE_MIN) {
            sessions.retain(|_, sender| sender.receiver_count() > 0);
            self.pruned.store(sessions.len(), Ordering::Relaxed);
        }
        let sender =
            sessions.entry(session.clone()).or_insert_with(|| broadcast::channel(HINTS_MAX).0);
        Hints { receiver: sender.subscribe() }
    }

    /// Sends a hint if anybody listens; `records` is called only then.
    pub fn committed(
        &self,
        session: &SessionId,
        first: Seq,
        records: impl FnOnce() -> Vec<Record>,
    ) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = sessions.get(session) else { return };
        if sender.receiver_count() == 0 {
            sessions.remove(session);
            return;
        }
        // Fails only if the last receiver left meanwhile: then nobody misses the hint.
        let _ = sender.send(Arc::new(Commit { first, records: records() }));
    }

    /// Whether anybody listens.
    pub fn is_watched(&self) -> bool {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.values().any(|sender| sender.receiver_count() > 0)
    }

    /// Tells everybody to look: another process wrote to the store.
    pub fn look(&self) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|_, sender| {
            sender.receiver_count() > 0
                && sender.send(Arc::new(Commit { first: 0, records: Vec::new() })).is_ok()
        });
    }
}

impl Hints {
    pub async fn next(&mut self) -> Hint {
        match self.receiver.recv().await {
            Ok(commit) if commit.records.is_empty() => Hint::Look,
            Ok(commit) => Hint::Commit(commit),
            // It fell behind, or the store is gone; the next read says which.
            Err(broadcast::error::RecvError::Lagged(_) | broadcast::error::RecvError::Closed) => {
                Hint::Look
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_without_listeners_are_dropped() {
        let hub = Hub::default();
        let of = |i: usize| format!("s{i}").parse::<SessionId>().unwrap();
        let kept: Vec<_> = (0..100).map(|i| hub.subscribe(&of(i))).collect();
        for i in 100..10_000 {
            drop(hub.subscribe(&of(i)));
        }
        let sessions = hub.sessions.lock().unwrap().len();
        assert!(sessions <= 2 * kept.len(), "{sessions} channels for {} listeners", kept.len());
        assert!((0..100).all(|i| hub.sessions.lock().unwrap().contains_key(&of(i))));
    }
}
