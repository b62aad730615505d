//! What the spool needs of a disk, so that a test can break it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

/// One folder.
pub(crate) trait Disk: Send {
    /// Makes a file, over one that is there.
    fn create(&mut self, name: &str) -> io::Result<Box<dyn SegmentFile>>;
    /// Over one that is there.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// Names are on the disk when this returns.
    fn sync_names(&mut self) -> io::Result<()>;
}

pub(crate) trait SegmentFile: Send {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;
    fn set_len(&mut self, bytes: u64) -> io::Result<()>;
    fn sync(&mut self) -> io::Result<()>;
}

/// A folder of the operating system.
#[derive(Debug)]
pub(crate) struct OsDisk(pub(crate) PathBuf);

impl Disk for OsDisk {
    fn create(&mut self, name: &str) -> io::Result<Box<dyn SegmentFile>> {
        let path = self.0.join(name);
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
        Ok(Box::new(file))
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }

    fn sync_names(&mut self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
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
