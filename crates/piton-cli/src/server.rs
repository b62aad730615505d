//! The server of a data folder: the file in which it says where it is, and the lock that says that
//! it lives.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use piton_api::client::Client;
use piton_api::server::{SERVER_INFO_PATH, ServerInfo};
use piton_core::Code;
use piton_core::id::BootId;
use piton_store::{BootLocks, Liveness as _};

use crate::error::{Error, Result};

const LOCK_PATH: &str = "run/server.lock";

/// That this process is the data folder's server, until it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    data: PathBuf,
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
        let path = data.join(LOCK_PATH);
        let folder = path.parent().unwrap_or(data);
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(folder).map_err(|e| unusable(folder, &e))?;
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(&path).map_err(|e| unusable(&path, &e))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { data: data.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(running(data)),
            Err(TryLockError::Error(error)) => Err(unusable(&path, &error)),
        }
    }

    /// Says where the server is. All of it or nothing is seen.
    pub(crate) fn announce(&self, place: &ServerInfo) -> Result<()> {
        let path = self.data.join(SERVER_INFO_PATH);
        let new = self.data.join(format!("{SERVER_INFO_PATH}.new"));
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
        // The lock says whether the file counts; readers ignore one that stays.
        let _ = fs::remove_file(self.data.join(SERVER_INFO_PATH));
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

/// The data folder's server, if one lives. Ignores the file that a dead server left.
pub(crate) fn find(data: &Path) -> Option<ServerInfo> {
    let info = ServerInfo::read(data)?;
    let boot: BootId = info.boot.parse().ok()?;
    BootLocks::new(data).is_alive(&boot).then_some(info)
}

/// Whether the last server ran in the background and was killed: one that was stopped leaves nothing.
pub(crate) fn was_background_killed(data: &Path) -> bool {
    find(data).is_none() && ServerInfo::read(data).is_some_and(|info| info.background)
}

/// A client of the data folder's server, if one lives. If another one follows, it is asked.
pub(crate) fn connect(data: &Path) -> Option<Client> {
    find(data)?;
    let data = data.to_owned();
    Some(Client::located(move || find(&data).map(|info| info.endpoint())))
}

/// A client of the data folder's server, which must live.
pub(crate) fn required(data: &Path) -> Result<Client> {
    let message = format!("No server runs on {}", data.display());
    connect(data).ok_or_else(|| Error::new(Code::ServerNotRunning, message))
}

/// This machine's address in its network: the one that it would send from. Nothing is sent.
pub(crate) fn network_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // An address of a documentation network, which no host has: only the routes matter.
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified() && !ip.is_loopback()).then_some(ip)
}
