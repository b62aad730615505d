//! Starts that no caller waits for because their cause dates from before this boot: agents that ran
//! when the last process ended, and prompts that were acknowledged and given to no agent. Few of them
//! happen at the same time, whatever their cause. A start that a caller asks for now waits for none of
//! them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use piton_core::id::SessionId;
use tokio::sync::watch;

use crate::settings::LiveSettings;

#[derive(Debug)]
pub(super) struct BootStarts {
    settings: Arc<LiveSettings>,
    /// How many happen now.
    count: Arc<watch::Sender<usize>>,
    /// Sessions that a dead boot left, and whose agent was not started since.
    left: Mutex<BTreeSet<SessionId>>,
}

/// The right to start one agent.
#[derive(Debug)]
pub(super) struct Permit(Arc<watch::Sender<usize>>);

impl BootStarts {
    pub(super) fn new(settings: Arc<LiveSettings>) -> Self {
        Self { settings, count: Arc::default(), left: Mutex::default() }
    }

    fn left(&self) -> MutexGuard<'_, BTreeSet<SessionId>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A dead boot left the session: its prompts, if it has any, were not given to this boot.
    pub(super) fn add_left(&self, session: &SessionId) {
        self.left().insert(session.clone());
    }

    /// Whether a dead boot left the session. What is started from now on has another cause.
    pub(super) fn take_left(&self, session: &SessionId) -> bool {
        self.left().remove(session)
    }

    pub(super) async fn acquire(&self) -> Permit {
        let mut changed = self.count.subscribe();
        loop {
            changed.mark_unchanged();
            let max = self.settings.get().boot_parallel.max(1);
            let has_room = self.count.send_if_modified(|count| {
                let has_room = *count < max;
                *count += usize::from(has_room);
                has_room
            });
            if has_room {
                return Permit(Arc::clone(&self.count));
            }
            // The sender is our own: this does not fail.
            let _ = changed.changed().await;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
