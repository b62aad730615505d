//! The write-ahead log: when it is copied into the database, when it is emptied, and space for it.
//! Space is made ahead of its end: overwriting a file is cheaper to flush than growing it, which is
//! a change of the file system's own records.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::failure::{self, Failure};
use super::writer::Writer;
use super::{removal, schema};

/// Pages of the write-ahead log after which it is copied into the database when no work waits.
const CHECKPOINT_PAGES: usize = 2_000;
/// How long the queue must be empty first: a caller that was just answered may append again.
const CHECKPOINT_REST: Duration = Duration::from_millis(5);
/// Pages after which it is copied even if callers wait.
const CHECKPOINT_PAGES_MAX: usize = 8 * CHECKPOINT_PAGES;
/// How long readers are waited for when the write-ahead log has to be emptied.
pub(super) const EMPTY_WAL_WAIT: Duration = Duration::from_millis(500);
/// How soon, and at least how often, emptying it is tried again while others read what was taken out.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// How much is made at a time.
const CHUNK: usize = 1024 * 1024;
/// A log that is longer than this is one that could not be checkpointed; it grows as it must.
const AHEAD_MAX: u64 = 64 * CHUNK as u64;

/// What the writer knows of it.
#[derive(Debug, Default)]
pub(crate) struct Wal {
    /// About how many pages wait to be copied.
    pub(super) pages: usize,
    /// Something that was taken out still lies in it, because others read it.
    has_removed: bool,
    /// How often emptying it has failed since.
    failed: u32,
}

impl Wal {
    /// When it is to be emptied again; `None`: nothing was taken out.
    pub(super) fn retry_in(&self) -> Option<Duration> {
        let span = RETRY_FIRST * 2_u32.saturating_pow(self.failed.min(16));
        self.has_removed.then_some(span.min(RETRY_MAX))
    }

    fn not_emptied(&mut self) {
        self.failed += u32::from(self.has_removed);
        self.has_removed = true;
    }

    /// What the database says about it.
    pub(super) fn found_removed(&mut self, has_removed: bool) {
        self.has_removed |= has_removed;
    }

    /// More than is counted.
    pub(super) fn much_was_written(&mut self) {
        self.pages = self.pages.max(CHECKPOINT_PAGES);
    }
}

impl Writer {
    /// Empties the write-ahead log, which still has content that was taken out. The database keeps
    /// a note until this is done, by this process or another.
    pub(super) fn empty_wal(&mut self, wait: Duration) {
        if let Err(e) = removal::overwrite(&self.conn, false) {
            tracing::warn!(error = %e, "secure_delete stays on: freed space is overwritten");
        }
        let emptied = self.conn.busy_timeout(wait).and_then(|()| {
            self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0))
        });
        let waits = Duration::from_millis(u64::from(schema::BUSY_MS));
        if let Err(e) = self.conn.busy_timeout(waits) {
            tracing::warn!(error = %e, "The busy timeout could not be set");
        }
        match emptied {
            Ok(true) => self.state.wal.not_emptied(),
            // In a transaction of its own, which anybody's next flush covers.
            Ok(false) => match removal::finished(&self.conn) {
                Ok(()) => (self.state.wal.has_removed, self.state.wal.failed) = (false, 0),
                Err(e) => {
                    tracing::warn!(error = %e, "The write-ahead log is emptied again later");
                    self.state.wal.not_emptied();
                }
            },
            Err(e) if failure::is_flush(&e) => {
                self.settle(Failure::Flush(Arc::new(e)));
            }
            Err(e) => {
                tracing::warn!(error = %e, "The write-ahead log could not be emptied yet");
                self.state.wal.not_emptied();
            }
        }
    }

    /// Copies the write-ahead log into the database, after everybody was answered.
    pub(super) fn checkpoint(&mut self) {
        if self.state.wal.has_removed
            && self.state.is_writable()
            && self.queue.rests_for(CHECKPOINT_REST)
        {
            self.empty_wal(Duration::ZERO);
        }
        let pages = self.state.wal.pages;
        if pages < CHECKPOINT_PAGES {
            return;
        }
        if pages < CHECKPOINT_PAGES_MAX && !self.queue.rests_for(CHECKPOINT_REST) {
            return;
        }
        let done = self.conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
            Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        });
        match done {
            Ok((log, copied)) => {
                self.state.wal.pages = usize::try_from(log - copied).unwrap_or(0);
            }
            // What waits to be flushed here may be gone for good; a later flush would not tell.
            Err(e) if failure::is_flush(&e) => {
                self.settle(Failure::Flush(Arc::new(e)));
            }
            // Nothing is lost: what was committed lies in the write-ahead log.
            Err(e) => {
                tracing::warn!(error = %e, "The write-ahead log could not be copied");
                self.state.wal.pages = 0;
            }
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Ahead {
    file: Option<File>,
    /// The length up to which nothing is to be done.
    made: u64,
}

impl Ahead {
    /// For the log of a database that is open.
    pub(crate) fn open(database: &Path) -> Self {
        let mut path = database.as_os_str().to_owned();
        path.push("-wal");
        // Without it everything works, and flushes cost a little more.
        let file = OpenOptions::new().write(true).open(path).ok();
        let made = file.as_ref().and_then(|file| length(file).ok()).unwrap_or(0);
        Self { file, made }
    }

    /// Makes more space if the log reached the end of what there was. Only inside a write
    /// transaction, where no other process appends to the log. What is written is never taken for a
    /// part of the log: zeros have no valid checksum.
    pub(crate) fn make(&mut self) {
        let Some(file) = &self.file else { return };
        let Ok(length) = length(file) else { return };
        if (length > 0 && length <= self.made) || length >= AHEAD_MAX {
            return;
        }
        // On a full disk the write of the records themselves reports the error.
        self.made = match file.write_all_at(&vec![0; CHUNK], length) {
            Ok(()) => length + CHUNK as u64,
            Err(_) => u64::MAX,
        };
    }
}

/// Asked without `stat`: after a look at a file's times Linux takes care that the next write
/// changes them, and the flush then has to write them, too.
fn length(mut file: &File) -> io::Result<u64> {
    file.seek(SeekFrom::End(0))
}
