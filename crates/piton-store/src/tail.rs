//! Following a log: read after a position, then wait for a hint, then read again. A hint that is
//! contiguous with what was delivered saves the read; a lost one costs at most [`Hints::recheck`].

use std::sync::Arc;

use piton_core::id::SessionId;
use piton_core::planted::{self, Bug};
use piton_core::{Record, Seq};

use crate::contract::{Detail, Store};
use crate::error::{Error, Result};
use crate::hub::{Hint, Hints};

/// Records read at a time.
const READ_MAX: usize = 256;

/// One reader's place in one log. Delivers every record once, in order, without gaps.
#[derive(Debug)]
pub struct Tail {
    store: Arc<dyn Store>,
    session: SessionId,
    after: Seq,
    hints: Hints,
    caught_up: bool,
}

impl Tail {
    /// Follows a session from after a position. Costs only what was missed since.
    pub fn new(store: Arc<dyn Store>, session: SessionId, after: Seq) -> Self {
        // Subscribed before the first read, so that nothing falls between the two.
        let hints = store.subscribe(&session);
        Self { store, session, after, hints, caught_up: false }
    }

    /// Continues after another position, which must exist in the log.
    pub fn seek(&mut self, after: Seq) {
        self.after = after;
        self.caught_up = false;
    }

    /// The last seq that was delivered.
    pub fn position(&self) -> Seq {
        self.after
    }

    /// The next records; waits until there are some. Fails with `SessionNotFound` when a log that had
    /// records is deleted. Safe to cancel: what was not returned is returned by the next call.
    pub async fn next(&mut self) -> Result<Vec<Record>> {
        // A log may be gone if another look at it finds nothing new.
        let mut looked_again = false;
        loop {
            if !self.caught_up {
                let records =
                    self.store.read(&self.session, self.after, READ_MAX, Detail::Full).await?;
                if let Some(last) = records.last() {
                    self.after = last.seq;
                    return Ok(records);
                }
                if looked_again && self.after > 0 {
                    let head = self.store.head(&self.session).await?;
                    let unknown = || Error::SessionNotFound { session: self.session.clone() };
                    head.ok_or_else(unknown)?;
                }
                self.caught_up = true;
            }
            match tokio::time::timeout(self.hints.recheck(), self.hints.next()).await {
                Ok(Hint::Commit(commit)) => {
                    let last = commit.first + commit.records.len() as u64 - 1;
                    if commit.first == self.after + 1 || planted::is(Bug::WakeUpTrusted) {
                        self.after = last;
                        return Ok(commit.records.clone());
                    }
                    // An old hint says nothing new; one from further on means a gap to be read.
                    self.caught_up = last <= self.after;
                }
                Ok(Hint::Look) | Err(_) => (self.caught_up, looked_again) = (false, true),
            }
        }
    }
}
