//! The log broadcast: one cached tail of a log, shared by all of its readers. One task follows a
//! log for any number of readers and output formats. The cache also holds the rendered output, so
//! that each record is rendered once. A reader that falls behind the cache is served from the log,
//! together with all readers at the same position. No reader has a buffer of its own that could
//! grow.
//!
//! A redaction drops all cached text. The end of a log (it was deleted, or cannot be read) ends its
//! readers.

mod index;
mod kept;
mod tasks;

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use piton_core::id::{SessionId, TaskId};
use piton_core::status_cursor::{StatusCursor, Transition};
use piton_core::{Record, Seq, State};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::error::Result;
use crate::view::View;
use kept::Kept;

pub use index::{Index, IndexEvent, IndexReader};
pub use tasks::{TaskEvent, TaskSummary};

/// Records that are read at a time for a reader that fell behind.
const READ_RECORDS: usize = 256;

/// What readers make of a chunk, once: bytes, frames. Lives and dies with the chunk.
pub trait Rendered: Debug + Default + Send + Sync + 'static {}

impl<R: Debug + Default + Send + Sync + 'static> Rendered for R {}

/// Whose log it is: the same for all of its records, also for those that were written before the one
/// that names the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub session: SessionId,
    pub task: Option<TaskId>,
}

/// Records that follow each other, as they were committed or read.
#[derive(Debug)]
pub struct Chunk<R> {
    entries: Vec<Entry>,
    weight: usize,
    rendered: R,
}

/// A record, and the derived status around it.
#[derive(Debug)]
pub struct Entry {
    pub record: Record,
    pub transition: Transition,
}

impl<R: Rendered> Chunk<R> {
    /// `None` without records.
    fn new(trail: &mut StatusCursor, records: Vec<Record>) -> Option<Self> {
        if records.is_empty() {
            return None;
        }
        let weight = records.iter().map(kept::weight).sum();
        let entries = records.into_iter().map(|record| {
            let transition = trail.pass(&record);
            Entry { record, transition }
        });
        Some(Self { entries: entries.collect(), weight, rendered: R::default() })
    }

    fn first(&self) -> Seq {
        self.entries.first().map_or(0, |entry| entry.record.seq)
    }

    fn last(&self) -> Seq {
        self.entries.last().map_or(0, |entry| entry.record.seq)
    }
}

/// What a reader is given of a chunk: all of it, or its end.
#[derive(Debug)]
pub struct ChunkPart<R> {
    chunk: Arc<Chunk<R>>,
    skip: usize,
}

impl<R> ChunkPart<R> {
    pub fn entries(&self) -> &[Entry] {
        &self.chunk.entries[self.skip..]
    }

    /// What was rendered of these entries, to be looked into or filled; `None` if only the end of a
    /// chunk is given, which happens to readers that join in the middle of a batch.
    pub fn rendered(&self) -> Option<&R> {
        (self.skip == 0).then_some(&self.chunk.rendered)
    }
}

/// The broadcasts of all logs that have at least one reader.
#[derive(Debug)]
pub struct Broadcasts<R> {
    view: View,
    by_session: Mutex<HashMap<SessionId, Weak<Broadcast<R>>>>,
}

/// The end of one log, kept up to date for as long as it has a reader.
#[derive(Debug)]
struct Broadcast<R> {
    owner: Owner,
    kept: Arc<Mutex<Kept<R>>>,
    /// Held while the log is read: a reader that comes to the same position meanwhile finds it read.
    reading: tokio::sync::Mutex<()>,
    changed: watch::Receiver<()>,
    following: JoinHandle<()>,
}

impl<R> Drop for Broadcast<R> {
    fn drop(&mut self) {
        self.following.abort();
    }
}

/// One reader's position in a log.
#[derive(Debug)]
pub struct Reader<R> {
    view: View,
    after: Seq,
    broadcast: Arc<Broadcast<R>>,
    changed: watch::Receiver<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn not_found(session: &SessionId) -> piton_store::Error {
    piton_store::Error::SessionNotFound { session: session.clone() }
}

impl<R: Rendered> Broadcasts<R> {
    pub fn new(view: View) -> Self {
        Self { view, by_session: Mutex::default() }
    }

    /// A reader of a session's log from after a position, and where the log stands; `None` as the
    /// reader if it stands before that position.
    pub async fn read(&self, session: &SessionId, after: Seq) -> Result<(Option<Reader<R>>, Seq)> {
        let head = self.view.store().head(session).await?;
        let last = head.ok_or_else(|| not_found(session))?.last_seq;
        if after > last {
            return Ok((None, last));
        }
        let running = self.running(session);
        let broadcast = match running {
            Some(broadcast) => broadcast,
            None => self.begin(session, self.view.state(session).await?),
        };
        let changed = broadcast.changed.clone();
        Ok((Some(Reader { view: self.view.clone(), after, broadcast, changed }), last))
    }

    fn running(&self, session: &SessionId) -> Option<Arc<Broadcast<R>>> {
        let broadcast = lock(&self.by_session).get(session).and_then(Weak::upgrade)?;
        let is_over = lock(&broadcast.kept).over.is_some();
        (!is_over).then_some(broadcast)
    }

    fn begin(&self, session: &SessionId, state: State) -> Arc<Broadcast<R>> {
        let mut by_session = lock(&self.by_session);
        // Another reader may have been faster.
        if let Some(broadcast) = by_session.get(session).and_then(Weak::upgrade)
            && lock(&broadcast.kept).over.is_none()
        {
            return broadcast;
        }
        by_session.retain(|_, broadcast| broadcast.strong_count() > 0);
        let task = state.info.as_ref().and_then(|info| info.task_id.clone());
        let owner = Owner { session: session.clone(), task };
        let last = state.last_seq;
        let kept = Arc::new(Mutex::new(Kept::new(last)));
        let (sender, changed) = watch::channel(());
        let following = follow(self.view.tail(session, last), state, Arc::clone(&kept), sender);
        let broadcast = Arc::new(Broadcast {
            owner,
            kept,
            reading: tokio::sync::Mutex::default(),
            changed,
            following: tokio::spawn(following),
        });
        by_session.insert(session.clone(), Arc::downgrade(&broadcast));
        broadcast
    }
}

/// Keeps up with a log until it ends.
async fn follow<R: Rendered>(
    mut tail: piton_store::Tail,
    state: State,
    kept: Arc<Mutex<Kept<R>>>,
    changed: watch::Sender<()>,
) {
    let mut statuses = StatusCursor::new(state);
    loop {
        let over = match tail.next().await {
            Ok(records) => {
                if let Some(chunk) = Chunk::new(&mut statuses, records) {
                    lock(&kept).push(chunk);
                }
                false
            }
            Err(error) => {
                tracing::info!(code = %error.code(), "a log is not followed any more");
                lock(&kept).over = Some(error);
                true
            }
        };
        // Fails only if no reader is left.
        let _ = changed.send(());
        if over {
            return;
        }
    }
}

impl<R: Rendered> Reader<R> {
    pub fn owner(&self) -> &Owner {
        &self.broadcast.owner
    }

    /// The seq of the last record that was given.
    pub fn position(&self) -> Seq {
        self.after
    }

    /// The next records; waits until there are some. An error ends the reader: the log was deleted,
    /// or cannot be read. Safe to cancel.
    pub async fn next(&mut self) -> Result<Vec<ChunkPart<R>>> {
        loop {
            self.changed.borrow_and_update();
            let (parts, over) = {
                let kept = lock(&self.broadcast.kept);
                (kept.after(self.after), kept.over.clone())
            };
            match (parts, over) {
                (Some(parts), _) if !parts.is_empty() => return Ok(self.given(parts)),
                (Some(_), Some(error)) => return Err(error.into()),
                (Some(_), None) => {
                    let ended = |_| not_found(&self.broadcast.owner.session);
                    self.changed.changed().await.map_err(ended)?;
                }
                (None, _) => {
                    let chunk = self.read_behind().await?;
                    return Ok(self.given(vec![ChunkPart { chunk, skip: 0 }]));
                }
            }
        }
    }

    fn given(&mut self, parts: Vec<ChunkPart<R>>) -> Vec<ChunkPart<R>> {
        self.after = parts.last().map_or(self.after, |part| part.chunk.last());
        parts
    }

    /// What the log has after this reader's position.
    async fn read_behind(&self) -> Result<Arc<Chunk<R>>> {
        let Broadcast { owner, kept, reading, .. } = &*self.broadcast;
        let _alone = reading.lock().await;
        let (ticket, trail) = {
            let mut kept = lock(kept);
            if let Some(found) = kept.behind(self.after) {
                return Ok(found);
            }
            (kept.ticket(), kept.take_trail(self.after))
        };
        let mut trail = if let Some(trail) = trail {
            trail
        } else {
            let store = self.view.store();
            StatusCursor::new(piton_store::load_at(&**store, &owner.session, self.after).await?)
        };
        let records = self.view.records(&owner.session, self.after, READ_RECORDS).await?;
        let chunk = Chunk::new(&mut trail, records).ok_or_else(|| not_found(&owner.session))?;
        let chunk = Arc::new(chunk);
        lock(kept).keep_behind(ticket, self.after, &chunk, trail);
        Ok(chunk)
    }
}

#[cfg(test)]
mod tests;
