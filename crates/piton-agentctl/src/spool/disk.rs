//! What the spool needs of a disk, so that a test can break it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use piton_core::spool::Pos;
use piton_exec::spool::format;

/// One folder.
pub(crate) trait Disk: Send {
    /// Makes a file, over one that is there.
    fn create(&mut self, name: &str) -> io::Result<Box<dyn SegmentFile>>;
    /// Over one that is there.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// Names are on the disk when this returns.
    fn sync_names(&mut self) -> io::Result<()>;
    /// Writes down up to where everything is flushed, without a flush. That it cannot is no failure.
    fn note_flushed(&mut self, _spool_id: &str, _pos: Pos) {}
}

pub(crate) trait SegmentFile: Send {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;
    fn set_len(&mut self, bytes: u64) -> io::Result<()>;
    fn sync(&mut self) -> io::Result<()>;
}

/// A folder of the operating system.
#[derive(Debug)]
pub(crate) struct OsDisk {
    folder: PathBuf,
    flushed: Option<File>,
}

impl OsDisk {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, flushed: None }
    }
}

impl Disk for OsDisk {
    fn create(&mut self, name: &str) -> io::Result<Box<dyn SegmentFile>> {
        let path = self.folder.join(name);
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
        Ok(Box::new(file))
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.folder.join(from), self.folder.join(to))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        fs::remove_file(self.folder.join(name))
    }

    fn sync_names(&mut self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }

    fn note_flushed(&mut self, spool_id: &str, pos: Pos) {
        let mut write = || -> io::Result<()> {
            let file = if let Some(file) = &self.flushed {
                file
            } else {
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(true).mode(0o600);
                self.flushed.insert(options.open(self.folder.join(format::FLUSHED_FILE))?)
            };
            file.write_all_at(format::flushed_line(spool_id, pos).as_bytes(), 0)
        };
        if let Err(error) = write() {
            tracing::debug!("The flushed position of the spool is not saved: {error}");
        }
    }
}

impl SegmentFile for File {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn set_len(&mut self, bytes: u64) -> io::Result<()> {
        File::set_len(self, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}
