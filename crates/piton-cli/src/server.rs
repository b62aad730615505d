//! The server of a data folder: the file in which it says where it is, and the lock that says that
//! it lives.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use piton_core::Code;
use piton_core::id::BootId;
use piton_store::{BootLocks, Liveness as _};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

const FOLDER: &str = "run";
const FILE: &str = "server.json";
const LOCK: &str = "server.lock";

/// Where a server is, and how it is spoken to. Readable by the data folder's owner alone.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ServerInfo {
    /// `http://127.0.0.1:7411`: for this machine's own programs.
    pub(crate) address: String,
    /// Where others find it, if that is elsewhere: `https://piton.example:7411`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) public: Option<String>,
    pub(crate) pid: u32,
    pub(crate) boot: String,
    pub(crate) version: String,
    /// Good for this life of the server.
    pub(crate) token: String,
}

impl std::fmt::Debug for ServerInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ServerInfo({}, pid {})", self.address, self.pid)
    }
}

/// That this process is the data folder's server, until it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    folder: PathBuf,
    /// Released by the operating system however this process ends.
    _lock: File,
}

fn unusable(path: &Path, error: &io::Error) -> Error {
    let message = format!("{} cannot be written", path.display());
    Error::new(Code::StoreReadOnly, message).because(error)
}

impl Held {
    /// Becomes the data folder's server; refused while another one lives.
    pub(crate) fn take(data: &Path) -> Result<Self> {
        let folder = data.join(FOLDER);
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(&folder).map_err(|e| unusable(&folder, &e))?;
        let path = folder.join(LOCK);
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(&path).map_err(|e| unusable(&path, &e))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { folder, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(running(data)),
            Err(TryLockError::Error(error)) => Err(unusable(&path, &error)),
        }
    }

    /// Says where the server is. All of it or nothing is seen.
    pub(crate) fn announce(&self, place: &ServerInfo) -> Result<()> {
        let (path, new) = (self.folder.join(FILE), self.folder.join(format!("{FILE}.new")));
        let write = || {
            let mut options = File::options();
            options.write(true).create(true).truncate(true).mode(0o600);
            let mut file = options.open(&new)?;
            serde_json::to_writer(&mut file, place)?;
            file.flush()?;
            fs::rename(&new, &path)
        };
        write().map_err(|e| unusable(&path, &e))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // The lock says whether it counts; a file that stays is read by nobody.
        let _ = fs::remove_file(self.folder.join(FILE));
    }
}

fn running(data: &Path) -> Error {
    let error = |who: String| Error::new(Code::ServerRunning, who);
    match find(data) {
        Some(place) => {
            let ServerInfo { address, pid, .. } = place;
            error(format!("A server runs on this data folder already: {address} (pid {pid})"))
        }
        None => error("A server runs on this data folder already, and has not said where".into()),
    }
}

fn read(data: &Path) -> Option<ServerInfo> {
    let text = fs::read(data.join(FOLDER).join(FILE)).ok()?;
    serde_json::from_slice(&text).ok()
}

/// The data folder's server, if one lives. What a dead one left says where nobody is any more.
pub(crate) fn find(data: &Path) -> Option<ServerInfo> {
    let place = read(data)?;
    let boot: BootId = place.boot.parse().ok()?;
    BootLocks::new(data).is_alive(&boot).then_some(place)
}
