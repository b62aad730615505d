//! When the snapshot before a turn is flushed: after the prompt that begins the turn was delivered, so
//! that a prompt costs no flush but its own. The snapshot is whole before the prompt's record is
//! written, and has nothing of the turn; until it is flushed a power failure may take it away, and
//! then a rewind to it is refused.

use std::sync::Arc;
use std::time::Duration;

use piton_core::id::SessionId;
use piton_workspace::snapshot::Repository;
use tokio::sync::watch;

use super::snapshots::Held;

/// A prompt that is not delivered so soon has no agent yet, or was refused.
const DELIVERY_TIME_MAX: Duration = Duration::from_secs(5);
/// agentctl has taken the prompt; its way to the agent shares the disk.
const DELAY: Duration = Duration::from_millis(100);

/// What a session's snapshots are waited for.
#[derive(Debug, Default)]
pub(super) struct Demand {
    /// Tasks that wait for the repository.
    waiting: usize,
    /// The agent was given the prompt of the last snapshot.
    is_delivered: bool,
}

/// Tells the task that is to flush a snapshot when to do it.
#[derive(Clone, Debug, Default)]
pub(super) struct FlushSignal(Arc<watch::Sender<Demand>>);

/// A task waits for the repository while this lives.
pub(super) struct Waiting(FlushSignal);

impl FlushSignal {
    pub(super) fn wait(&self) -> Waiting {
        self.0.send_modify(|demand| demand.waiting += 1);
        Waiting(self.clone())
    }

    pub(super) fn set_delivered(&self, is_delivered: bool) {
        self.0.send_modify(|demand| demand.is_delivered = is_delivered);
    }

    /// Flushes as soon as the prompt was delivered, or a task waits for the repository.
    pub(super) async fn flush(self, session: SessionId, held: Held, mut repository: Repository) {
        let mut demand = self.0.subscribe();
        // The sender is our own: only the time can be over.
        let delivered = demand.wait_for(|demand| demand.is_delivered || demand.waiting > 0);
        let _ = tokio::time::timeout(DELIVERY_TIME_MAX, delivered).await;
        let wanted = demand.wait_for(|demand| demand.waiting > 0);
        let _ = tokio::time::timeout(DELAY, wanted).await;
        let flushing = tokio::task::spawn_blocking(move || {
            let flushed = repository.flush();
            drop((repository, held));
            flushed
        });
        if let Ok(Err(error)) = flushing.await {
            tracing::error!(%session, %error, "the snapshot before the turn is lost");
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.0.send_modify(|demand| demand.waiting -= 1);
    }
}
