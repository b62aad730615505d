//! For a store that was opened for reading: notices what the writers in other processes commit.
//! (A store that writes notices it on its writer's connection, which alone can tell its own
//! commits from those of others.)

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;

use crate::hub::Hub;

const EVERY: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(crate) struct Watch {
    closed: Mutex<bool>,
    changed: Condvar,
}

impl Watch {
    pub(crate) fn close(&self) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Somebody began to listen.
    pub(crate) fn wake(&self) {
        // With the lock: the thread either asks who listens after this, or sleeps already.
        let _closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        self.changed.notify_all();
    }

    /// Until [`Watch::close`]. `seen` is the [`version`] as of the opening.
    pub(crate) fn run(&self, conn: &Connection, hub: &Hub, mut seen: Option<i64>) {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        while !*closed {
            if hub.is_watched() {
                let waited = self.changed.wait_timeout(closed, EVERY);
                closed = waited.unwrap_or_else(PoisonError::into_inner).0;
                let now = version(conn);
                if now != seen {
                    seen = now;
                    hub.look();
                }
            } else {
                closed = self.changed.wait(closed).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// SQLite's number for what others wrote; `None` if it cannot be had just now.
pub(crate) fn version(conn: &Connection) -> Option<i64> {
    conn.prepare_cached("PRAGMA data_version").ok()?.query_row([], |row| row.get(0)).ok()
}
