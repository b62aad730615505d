//! Hints: “something was committed”. Sent after the commit, per session, bounded; a slow or late
//! receiver loses them, and that is all right: a [`crate::Tail`] reads the log.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use piton_core::id::SessionId;
use piton_core::{Record, Seq};
use tokio::sync::broadcast;

/// How many commits a receiver may fall behind before it has to read the log.
const HINTS_MAX: usize = 64;

/// How many commits of all sessions together a receiver may fall behind before it has to look.
const CHANGES_MAX: usize = 1_024;

/// How long a lost hint can delay a reader.
const RECHECK: Duration = Duration::from_mins(5);

/// The same where there are no hints of what other processes write.
const RECHECK_ALONE: Duration = Duration::from_secs(1);

/// Fewer sessions than twice this are not worth looking through for listeners that left.
const PRUNE_MIN: usize = 64;

/// A committed batch.
#[derive(Debug, PartialEq)]
pub struct Commit {
    pub first: Seq,
    pub records: Vec<Record>,
}

#[derive(Debug)]
pub struct Hub {
    sessions: Mutex<HashMap<SessionId, broadcast::Sender<Arc<Commit>>>>,
    /// How many sessions were left when those without listeners were last removed.
    pruned: AtomicUsize,
    /// Created by the first call of [`Hub::changes`]; `None`: look at all sessions.
    all: OnceLock<broadcast::Sender<Option<SessionId>>>,
    /// How often everybody was told to look.
    looks: AtomicU64,
    recheck: Duration,
}

impl Default for Hub {
    fn default() -> Self {
        Self {
            sessions: Mutex::default(),
            pruned: AtomicUsize::default(),
            all: OnceLock::new(),
            looks: AtomicU64::default(),
            recheck: RECHECK,
        }
    }
}

/// The receiving end.
#[derive(Debug)]
pub struct Hints {
    receiver: broadcast::Receiver<Arc<Commit>>,
    recheck: Duration,
}

/// The receiving end of hints about all sessions.
#[derive(Debug)]
pub struct Changes {
    receiver: broadcast::Receiver<Option<SessionId>>,
}

/// What a wait for a hint about any session came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Something was appended to this one's log.
    Of(SessionId),
    /// Something may have happened anywhere: look at the index.
    Look,
}

/// What a wait for a hint came to.
#[derive(Debug)]
pub enum Hint {
    Commit(Arc<Commit>),
    /// Something may have happened: read the log.
    Look,
}

impl Hub {
    /// For a reader of what other processes write, where nothing hints at it.
    pub fn without_hints() -> Self {
        Self { recheck: RECHECK_ALONE, ..Self::default() }
    }

    pub fn subscribe(&self, session: &SessionId) -> Hints {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        // `committed` drops channels without listeners, but only of sessions that commit.
        if sessions.len() >= 2 * self.pruned.load(Ordering::Relaxed).max(PRUNE_MIN) {
            sessions.retain(|_, sender| sender.receiver_count() > 0);
            self.pruned.store(sessions.len(), Ordering::Relaxed);
        }
        let sender =
            sessions.entry(session.clone()).or_insert_with(|| broadcast::channel(HINTS_MAX).0);
        Hints { receiver: sender.subscribe(), recheck: self.recheck }
    }

    /// Hints about all sessions, without their records.
    pub fn changes(&self) -> Changes {
        let all = self.all.get_or_init(|| broadcast::channel(CHANGES_MAX).0);
        Changes { receiver: all.subscribe() }
    }

    fn changed(&self, session: Option<&SessionId>) {
        if let Some(all) = self.all.get().filter(|all| all.receiver_count() > 0) {
            // Fails only if the last receiver left meanwhile.
            let _ = all.send(session.cloned());
        }
    }

    /// Sends a hint if anybody listens; `records` is called only then.
    pub fn committed(
        &self,
        session: &SessionId,
        first: Seq,
        records: impl FnOnce() -> Vec<Record>,
    ) {
        self.changed(Some(session));
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = sessions.get(session) else { return };
        if sender.receiver_count() == 0 {
            sessions.remove(session);
            return;
        }
        // Fails only if the last receiver left meanwhile: then no receiver misses the hint.
        let _ = sender.send(Arc::new(Commit { first, records: records() }));
    }

    /// Whether anybody listens.
    pub fn is_watched(&self) -> bool {
        if self.all.get().is_some_and(|all| all.receiver_count() > 0) {
            return true;
        }
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.values().any(|sender| sender.receiver_count() > 0)
    }

    /// How often [`Hub::look`] was called.
    pub(crate) fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    /// Tells everybody to look: another process wrote to the store.
    pub fn look(&self) {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.changed(None);
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|_, sender| {
            sender.receiver_count() > 0
                && sender.send(Arc::new(Commit { first: 0, records: Vec::new() })).is_ok()
        });
    }
}

impl Hints {
    /// After how long without a hint the log is to be read all the same: one may have been lost.
    pub fn recheck(&self) -> Duration {
        self.recheck
    }

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

impl Changes {
    pub async fn next(&mut self) -> Change {
        match self.receiver.recv().await {
            Ok(Some(session)) => Change::Of(session),
            // It fell behind, or the store is gone; the caller's next read says which.
            Ok(None) | Err(_) => Change::Look,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_listens_to_all_hears_of_each_or_is_asked_to_look() {
        let hub = Hub::default();
        assert!(!hub.is_watched());
        let mut changes = hub.changes();
        assert!(hub.is_watched());
        let of = |i: usize| format!("s{i}").parse::<SessionId>().unwrap();
        hub.committed(&of(1), 1, Vec::new);
        hub.look();
        assert_eq!(changes.next().await, Change::Of(of(1)));
        assert_eq!(changes.next().await, Change::Look);
        for i in 0..2 * CHANGES_MAX {
            hub.committed(&of(i), 1, Vec::new);
        }
        assert_eq!(changes.next().await, Change::Look);
        drop(changes);
        assert!(!hub.is_watched());
    }

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
