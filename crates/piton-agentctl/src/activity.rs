//! Whether clients are connected: counts the requests and streams under way, and remembers when the
//! last one ended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

#[derive(Clone, Debug)]
pub(crate) struct Activity(Arc<Mutex<Seen>>);

#[derive(Debug)]
struct Seen {
    present: usize,
    last: Instant,
}

/// Counts as one request or stream under way until it is dropped.
#[derive(Debug)]
pub(crate) struct Present(Activity);

impl Activity {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Seen { present: 0, last: Instant::now() })))
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self) -> Present {
        self.seen().present += 1;
        Present(self.clone())
    }

    pub(crate) fn present(&self) -> usize {
        self.seen().present
    }

    /// How long there has been no request and no stream.
    pub(crate) fn alone_for(&self) -> Duration {
        let seen = self.seen();
        if seen.present > 0 { Duration::ZERO } else { seen.last.elapsed() }
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        let mut seen = self.0.seen();
        seen.present -= 1;
        seen.last = Instant::now();
    }
}
