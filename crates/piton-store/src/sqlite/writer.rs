//! The one thread that writes. It takes everything that waits, appends it in one transaction,
//! commits, and only then answers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use piton_core::id::SessionId;
use piton_core::planted::{self as bugs, Bug};
use rusqlite::Connection;

use super::anchor::{Anchor, Anchors};
use super::append::{Appender, Inserts, Trouble};
use super::failure::{self, Failure};
use super::wal::{self, Ahead, Wal};
use super::work::Work;
use super::{rebuild, removal, rotate};
use crate::append_rules::{Removal, batch_bytes};
use crate::contract::{Appended, Latency, LogCopy, Stats};
use crate::error::{Cause, Error};
use crate::hub::Hub;
use crate::queue::{Ending, Next, Queue, Work as _};

/// Bytes of a page, and how many pages a record dirties at most times, for estimating.
const PAGE_BYTES: usize = 4_096;
const PAGES_PER_BATCH: usize = 2;

#[derive(Debug, Default)]
pub(crate) struct Counters {
    batches: AtomicU64,
    records: AtomicU64,
    flushes: AtomicU64,
    latency: Mutex<Latency>,
    /// Why nothing is written any more.
    poisoned: OnceLock<Cause>,
}

impl Counters {
    /// Refuses as an append is refused after a failed flush.
    pub(crate) fn check_writable(&self) -> crate::error::Result<()> {
        match self.poisoned.get() {
            Some(cause) => Err(Error::Poisoned(Some(cause.clone()))),
            None => Ok(()),
        }
    }

    pub(crate) fn read(&self) -> Stats {
        Stats {
            batches: self.batches.load(Ordering::Relaxed),
            records: self.records.load(Ordering::Relaxed),
            flushes: self.flushes.load(Ordering::Relaxed),
            latency: *self.latency.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    fn flushed(&self, took: Duration) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.latency.lock().unwrap_or_else(PoisonError::into_inner).add(took);
    }
}

#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) conn: Connection,
    pub(crate) appender: Appender,
    pub(crate) queue: Arc<Queue<Work>>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) anchors: Arc<Anchors>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) ahead: Ahead,
    pub(crate) state: State,
}

/// What the writer knows beside its database.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// After a failed flush: why.
    poisoned: Option<Cause>,
    /// SQLite's number for what other connections wrote.
    seen: Option<i64>,
    /// Others wrote, and our listeners were not told yet.
    others_wrote: bool,
    /// Our current key is the one that the store names.
    key_known: bool,
    pub(super) wal: Wal,
    /// `synchronous` is, or may be, less than FULL.
    relaxed: bool,
    #[cfg(test)]
    pub(crate) fault: Fault,
}

impl State {
    pub(super) fn is_writable(&self) -> bool {
        self.poisoned.is_none()
    }

    /// When something is tried again that could not be done.
    fn put_off(&self) -> Option<Duration> {
        self.wal.retry_in().filter(|_| self.is_writable())
    }
}

/// Failures planted by a test at places where no real disk can be made to fail.
#[cfg(test)]
#[derive(Clone, Debug, Default)]
pub(crate) struct Fault(pub(crate) Arc<Planted>);

/// SQLite's codes, or 0.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Planted {
    /// Of the next commit.
    pub(crate) commit: std::sync::atomic::AtomicI32,
    /// Of every transaction's beginning; -1 panics.
    pub(crate) begin: std::sync::atomic::AtomicI32,
    /// How many transactions were to begin.
    pub(crate) begins: AtomicU64,
    /// Of the next change of `synchronous` to FULL.
    pub(crate) full: std::sync::atomic::AtomicI32,
}

#[cfg(test)]
fn planted(code: i32) -> rusqlite::Result<()> {
    assert_ne!(code, -1, "a planted panic");
    match code {
        0 => Ok(()),
        code => Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None)),
    }
}

/// Why a group was not committed.
struct Uncommitted {
    /// Whether its transaction began. If not, no batch of the group caused the failure.
    begun: bool,
    failure: Failure,
}

/// What one piece of work of a group came to.
enum Done {
    Appended(Result<Appended, Error>),
    Saved(Result<(), Error>),
}

impl Writer {
    /// Until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        let _ending = Ending(self.queue.clone());
        loop {
            match self.queue.next(self.state.put_off()) {
                Next::Group(group) => self.work(group),
                Next::Look => {
                    // A read that fails here will fail for the next caller, too.
                    let _ = self.look();
                    self.tell_of_others();
                }
                Next::Closed => return,
            }
            self.checkpoint();
        }
    }

    fn work(&mut self, group: Vec<Work>) {
        if let Some(cause) = &self.state.poisoned {
            for work in group {
                work.refuse(Error::Poisoned(Some(cause.clone())));
            }
            return;
        }
        match <[Work; 1]>::try_from(group) {
            Ok([Work::Rebuild { reply }]) => {
                self.appender.forget();
                let path = self.appender.path.clone();
                let done = self.alone(|conn, _| rebuild::all(conn, &path));
                drop(reply.send(done));
            }
            Ok([Work::Rotate { reply }]) => drop(reply.send(self.rotate())),
            Ok([Work::Delete { removal, reply }]) => drop(reply.send(self.delete(&removal))),
            Ok([Work::CopyIn { copy, reply }]) => drop(reply.send(self.copy_in(*copy))),
            Ok([one]) => self.commit_group(vec![one]),
            Err(group) => self.commit_group(group),
        }
    }

    fn rotate(&mut self) -> Result<(), Error> {
        self.appender.forget();
        let next = self.alone(|conn, appender| rotate::rotate(conn, appender))?;
        self.appender.keys.make_current(next);
        Ok(())
    }

    fn delete(&mut self, removal: &Removal) -> Result<(), Error> {
        let anchors = self.anchors.clone();
        self.alone(|conn, appender| {
            appender.delete(conn, removal).map_err(Trouble::into_error)?;
            // Before the commit: an anchor without its log would look like a removed log; a
            // log without its anchor gets one with its next record.
            anchors.forget(&removal.session);
            Ok(())
        })?;
        self.appender.noted.clear();
        self.anchors.note(self.anchor(&SessionId::metadata_log()));
        self.hub.look();
        Ok(())
    }

    fn copy_in(&mut self, copy: LogCopy) -> Result<(), Error> {
        let session = copy.head.session.clone();
        self.alone(|conn, appender| appender.copy_in(conn, copy).map_err(Trouble::into_error))?;
        self.state.wal.much_was_written();
        self.appender.noted.clear();
        let metadata = SessionId::metadata_log();
        self.anchors.note([&session, &metadata].into_iter().filter_map(|id| self.anchor(id)));
        self.hub.look();
        Ok(())
    }

    /// A transaction of its own for something else than batches.
    pub(super) fn alone<T>(
        &mut self,
        work: impl FnOnce(&Connection, &mut Appender) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let begun = self.set_flushing(true).and_then(|()| self.begin());
        begun.map_err(|failure| self.settle(failure))?;
        let done = match work(&self.conn, &mut self.appender) {
            Ok(done) => done,
            Err(e) => {
                self.roll_back();
                return Err(e);
            }
        };
        self.commit().map_err(|failure| self.settle(failure))?;
        Ok(done)
    }

    /// Commits a group; if it cannot be committed as one, each by itself, so that one batch does
    /// not fail because of another.
    fn commit_group(&mut self, group: Vec<Work>) {
        let failed = match self.try_group(&group) {
            Ok(done) => return self.answer(group, done),
            Err(failed) => failed,
        };
        if group.len() == 1 || !failed.begun || matches!(failed.failure, Failure::Flush(_)) {
            let error = self.settle(failed.failure);
            return refuse(group, &error);
        }
        let mut left = group.into_iter();
        while let Some(work) = left.next() {
            let one = vec![work];
            let failed = match self.try_group(&one) {
                Ok(done) => {
                    self.answer(one, done);
                    continue;
                }
                Err(failed) => failed,
            };
            let begun = failed.begun;
            let error = self.settle(failed.failure);
            refuse(one, &error);
            if !begun || self.state.poisoned.is_some() {
                // Each of the others would wait as long, for the same answer.
                return refuse(left, &error);
            }
        }
    }

    fn try_group(&mut self, group: &[Work]) -> Result<Vec<Done>, Uncommitted> {
        // Snapshots are caches: a group of nothing else is not worth a flush. The next append's
        // flush covers it, because it flushes the same file.
        let flushed = group.iter().any(|work| matches!(work, Work::Append { .. }));
        self.set_flushing(flushed)
            .and_then(|()| self.begin())
            .map_err(|failure| Uncommitted { begun: false, failure })?;
        let inserted = self.try_insert(group);
        let done = inserted.map_err(|failure| Uncommitted { begun: true, failure })?;
        let begun = Instant::now();
        self.commit().map_err(|failure| Uncommitted { begun: true, failure })?;
        if flushed {
            self.counters.flushed(begun.elapsed());
        }
        Ok(done)
    }

    /// What is begun and not whole is taken back.
    fn try_insert(&mut self, group: &[Work]) -> Result<Vec<Done>, Failure> {
        let inserted = self.insert_all(group);
        if inserted.is_err() {
            self.roll_back();
        }
        inserted
    }

    fn insert_all(&mut self, group: &[Work]) -> Result<Vec<Done>, Failure> {
        let mut inserts =
            Inserts::new(&self.conn).map_err(|e| failure::before_commit(&self.appender.path, e))?;
        let mut done = Vec::with_capacity(group.len());
        for work in group {
            let one = match work {
                Work::Append { batch, prepared, .. } => {
                    self.state.wal.pages += PAGES_PER_BATCH + batch_bytes(batch) / PAGE_BYTES;
                    let appended = self.appender.append(&mut inserts, batch, prepared.as_ref());
                    appended.map(Ok).map(Done::Appended)
                }
                Work::Snapshot { session, snapshot, .. } => {
                    self.state.wal.pages += PAGES_PER_BATCH + snapshot.body.len() / PAGE_BYTES;
                    let saved = self.appender.save_snapshot(&self.conn, session, snapshot);
                    saved.map(Ok).map(Done::Saved)
                }
                // Taken from the queue alone, never in a group.
                Work::Rebuild { .. }
                | Work::Rotate { .. }
                | Work::Delete { .. }
                | Work::CopyIn { .. } => continue,
            };
            done.push(match one {
                Ok(one) => one,
                Err(Trouble::Refused(e)) => match work {
                    Work::Append { .. } => Done::Appended(Err(e)),
                    _ => Done::Saved(Err(e)),
                },
                Err(Trouble::Failed(failure)) => return Err(failure),
            });
        }
        Ok(done)
    }

    /// Opens the transaction. Inside it no other process writes: cached ends are checked here.
    fn begin(&mut self) -> Result<(), Failure> {
        self.try_begin().map_err(|e| failure::before_commit(&self.appender.path, e))?;
        self.appender.begun();
        self.ahead.make();
        let looked = self.look();
        if looked.is_err() {
            self.roll_back();
        }
        looked
    }

    fn try_begin(&self) -> rusqlite::Result<()> {
        #[cfg(test)]
        {
            self.state.fault.0.begins.fetch_add(1, Ordering::SeqCst);
            planted(self.state.fault.0.begin.load(Ordering::SeqCst))?;
        }
        self.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        Ok(())
    }

    /// Looks whether other processes wrote since the last look. The first look, before the thread
    /// starts, is what later ones are compared with.
    pub(crate) fn look(&mut self) -> Result<(), Failure> {
        let version = self
            .conn
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut pragma| pragma.query_row([], |row| row.get(0)))
            .map_err(|e| failure::before_commit(&self.appender.path, e))?;
        let seen = self.state.seen.replace(version);
        if seen != Some(version) {
            // Perhaps they took something out and could not finish.
            let removed = removal::is_unfinished(&self.conn)
                .map_err(|e| failure::before_commit(&self.appender.path, e))?;
            self.state.wal.found_removed(removed);
        }
        if seen.is_some_and(|seen| seen != version) {
            self.appender.forget();
            self.state.others_wrote = true;
            self.state.key_known = false;
        }
        if !self.state.key_known {
            // Perhaps it was a rotation. Tried again until it succeeds: nothing may be written
            // under a key that the store does not name any more.
            rotate::current(&self.conn, &self.appender.path)
                .and_then(|key_id| self.appender.keys.follow(&key_id))
                .map_err(Failure::Other)?;
            self.state.key_known = true;
        }
        Ok(())
    }

    fn tell_of_others(&mut self) {
        if std::mem::take(&mut self.state.others_wrote) {
            self.hub.look();
        }
    }

    fn commit(&mut self) -> Result<(), Failure> {
        let committed = self.try_commit();
        if let Err(e) = committed {
            self.roll_back();
            return Err(failure::at_commit(&self.appender.path, e));
        }
        if self.appender.committed() {
            self.empty_wal(wal::EMPTY_WAL_WAIT);
        }
        Ok(())
    }

    fn try_commit(&mut self) -> rusqlite::Result<()> {
        #[cfg(test)]
        planted(self.state.fault.0.commit.swap(0, Ordering::SeqCst))?;
        self.conn.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }

    fn roll_back(&mut self) {
        self.appender.rolled_back();
        // SQLite rolls back by itself after some errors.
        if !self.conn.is_autocommit()
            && let Err(e) = self.conn.execute_batch("ROLLBACK")
        {
            tracing::error!(error = %e, "The transaction could not be rolled back");
            self.poison(Arc::new(e));
        }
    }

    /// The end of all writing.
    fn poison(&mut self, cause: Cause) {
        let cause = self.state.poisoned.get_or_insert(cause);
        // Set before: the first cause counts.
        let _ = self.counters.poisoned.set(cause.clone());
    }

    /// The error for those who asked; after a failed flush, also the end of all writing.
    pub(super) fn settle(&mut self, failure: Failure) -> Error {
        match failure {
            Failure::Full(e) | Failure::Other(e) => e,
            Failure::Flush(cause) => {
                tracing::error!(error = %cause, "A flush failed: the store stops writing");
                self.poison(cause.clone());
                Error::Poisoned(Some(cause))
            }
        }
    }

    /// Sets whether the next commit is flushed. After an error the setting is unknown, and the
    /// caller must not commit anything that needs the flush.
    fn set_flushing(&mut self, flushing: bool) -> Result<(), Failure> {
        if flushing != self.state.relaxed {
            return Ok(());
        }
        self.state.relaxed = true;
        self.try_set_flushing(flushing)
            .map_err(|e| failure::before_commit(&self.appender.path, e))?;
        self.state.relaxed = !flushing;
        Ok(())
    }

    fn try_set_flushing(&self, flushing: bool) -> rusqlite::Result<()> {
        #[cfg(test)]
        if flushing {
            planted(self.state.fault.0.full.swap(0, Ordering::SeqCst))?;
        }
        let is_left_out = bugs::is(Bug::SqliteUnflushed);
        let level = if flushing && !is_left_out { "FULL" } else { "NORMAL" };
        self.conn.pragma_update(None, "synchronous", level)
    }

    /// Tells everybody what is durable now.
    fn answer(&mut self, group: Vec<Work>, done: Vec<Done>) {
        let mut committed = Vec::with_capacity(group.len());
        for (work, done) in group.into_iter().zip(done) {
            match (work, done) {
                (Work::Append { batch, reply, .. }, Done::Appended(result)) => {
                    if let Ok(appended) = &result {
                        let records = batch.records.len() as u64;
                        self.counters.batches.fetch_add(1, Ordering::Relaxed);
                        self.counters.records.fetch_add(records, Ordering::Relaxed);
                        committed.push((*appended, batch));
                    }
                    // Fails only if the caller dropped the future.
                    drop(reply.send(result));
                }
                (Work::Snapshot { reply, .. }, Done::Saved(result)) => drop(reply.send(result)),
                (work, _) => work.refuse(Error::Closed),
            }
        }
        let noted = std::mem::take(&mut self.appender.noted);
        let metadata = SessionId::metadata_log();
        let sessions = committed.iter().map(|(_, batch)| &batch.session);
        let moved = sessions.chain((!noted.is_empty()).then_some(&metadata));
        self.anchors.note(moved.filter_map(|session| self.anchor(session)));
        for record in noted {
            self.hub.committed(&metadata, record.seq, || vec![record.clone()]);
        }
        for (appended, batch) in committed {
            self.hub.committed(&batch.session, appended.first, || {
                let seqs = appended.first..;
                seqs.zip(&batch.records).map(|(seq, record)| record.at(seq)).collect()
            });
        }
        self.tell_of_others();
    }

    fn anchor(&self, session: &SessionId) -> Option<(SessionId, Anchor)> {
        let (seq, chain) = self.appender.end_of(session)?;
        Some((session.clone(), Anchor { seq, chain }))
    }
}

fn refuse(works: impl IntoIterator<Item = Work>, error: &Error) {
    for work in works {
        work.refuse(error.clone());
    }
}
