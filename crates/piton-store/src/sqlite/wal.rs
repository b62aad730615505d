//! Space for the write-ahead log, made ahead of its end: overwriting a file is cheaper to flush
//! than growing it, which is a change of the file system's own records.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// How much is made at a time.
const CHUNK: usize = 1024 * 1024;
/// A log that is longer than this is one that could not be checkpointed; it grows as it must.
const AHEAD_MAX: u64 = 64 * CHUNK as u64;

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
    /// transaction, where nobody else appends to the log. What is written is never taken for a
    /// part of the log: zeros have no valid checksum.
    pub(crate) fn make(&mut self) {
        let Some(file) = &self.file else { return };
        let Ok(length) = length(file) else { return };
        if (length > 0 && length <= self.made) || length >= AHEAD_MAX {
            return;
        }
        // A disk without room for this says so to whoever writes what matters.
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
