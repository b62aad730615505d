//! The highest lease epoch that was ever seen. A client with a lower one has lost its lease and is
//! refused. That holds after a restart, too, so the number is on the disk before any command runs
//! under it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use piton_core::planted::{self, Bug};
use piton_exec::protocol::{Problem, files};
use tokio::sync::{Mutex, watch};

use crate::problem::problem;
use piton_core::Code;

#[derive(Debug)]
pub(crate) struct Epochs {
    folder: PathBuf,
    highest: watch::Sender<u64>,
    raising: Mutex<()>,
}

impl Epochs {
    /// Begins with the higher of `launched` and what the folder knows.
    pub(crate) fn open(folder: &Path, launched: u64) -> io::Result<Self> {
        let known = match fs::read_to_string(folder.join(files::EPOCH)) {
            Ok(text) => text.trim().parse().map_err(io::Error::other)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => 0,
            Err(e) => return Err(e),
        };
        if launched > known {
            keep(folder, launched)?;
        }
        let highest = watch::Sender::new(known.max(launched));
        Ok(Self { folder: folder.to_owned(), highest, raising: Mutex::new(()) })
    }

    pub(crate) fn highest(&self) -> u64 {
        *self.highest.borrow()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.highest.subscribe()
    }

    /// Refuses an epoch below the highest one. Saves a new highest epoch before it returns.
    pub(crate) async fn admit(&self, epoch: u64) -> Result<(), Problem> {
        if epoch > self.highest() {
            let _raising = self.raising.lock().await;
            if epoch > self.highest() {
                let folder = self.folder.clone();
                let kept = tokio::task::spawn_blocking(move || keep(&folder, epoch)).await;
                let kept = kept.unwrap_or_else(|e| Err(io::Error::other(e)));
                kept.map_err(|e| {
                    problem(
                        Code::EpochNotSaved,
                        format!("Epoch {epoch} cannot be written down: {e}"),
                    )
                })?;
                self.highest.send_replace(epoch);
            }
        }
        let highest = self.highest();
        if epoch < highest && !planted::is(Bug::LowerEpochHeard) {
            let message = format!("Epoch {epoch} is over: {highest} has been seen");
            return Err(problem(Code::EpochStale, message));
        }
        Ok(())
    }
}

fn keep(folder: &Path, epoch: u64) -> io::Result<()> {
    let new = folder.join("epoch.new");
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    writeln!(file, "{epoch}")?;
    file.sync_all()?;
    fs::rename(&new, folder.join(files::EPOCH))?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_highest_epoch_is_kept_over_a_restart() {
        let temp = tempfile::tempdir().unwrap();
        let epochs = Epochs::open(temp.path(), 3).unwrap();
        assert!(epochs.admit(3).await.is_ok());
        assert_eq!(epochs.admit(2).await.unwrap_err().code, Code::EpochStale);
        epochs.admit(7).await.unwrap();
        assert_eq!(epochs.admit(6).await.unwrap_err().code, Code::EpochStale);
        let epochs = Epochs::open(temp.path(), 3).unwrap();
        assert_eq!(epochs.highest(), 7);
    }

    /// An epoch that cannot be written down is not acted upon.
    #[tokio::test]
    async fn an_epoch_that_cannot_be_kept_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let epochs = Epochs::open(temp.path(), 3).unwrap();
        fs::create_dir(temp.path().join("epoch.new")).unwrap();
        assert_eq!(epochs.admit(4).await.unwrap_err().code, Code::EpochNotSaved);
        assert_eq!(epochs.highest(), 3);
        assert!(epochs.admit(3).await.is_ok());
    }
}
