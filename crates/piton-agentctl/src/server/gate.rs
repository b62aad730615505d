//! The socket: who may connect, and how it comes back when its file is gone.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::serve::Listener;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

/// Out of descriptors, or whatever keeps the kernel from accepting.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Accepts connections of our own user and of root.
#[derive(Debug)]
pub(crate) struct Gate {
    path: PathBuf,
    /// `None` while it cannot be bound.
    listener: Option<UnixListener>,
    rebind: mpsc::Receiver<()>,
}

impl Gate {
    /// Each message on `rebind` recreates the socket at its path.
    pub(crate) fn bind(path: &Path, rebind: mpsc::Receiver<()>) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), listener: Some(bind(path)?), rebind })
    }

    fn bind_again(&mut self) {
        match bind(&self.path) {
            Ok(listener) => self.listener = Some(listener),
            Err(error) => tracing::error!("Cannot recreate the socket: {error}"),
        }
    }
}

async fn connection(listener: Option<&UnixListener>) -> io::Result<UnixStream> {
    let Some(listener) = listener else { return std::future::pending().await };
    Ok(listener.accept().await?.0)
}

/// Binds a temporary path and renames it in one step: no client finds a socket without a listener,
/// and a socket that a dead process left is replaced.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    match fs::remove_file(&new) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(&new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
    fs::rename(&new, path)?;
    Ok(listener)
}

fn may_enter(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == own || peer.uid() == 0 => true,
        Ok(peer) => {
            tracing::warn!("Refused a connection of user {}", peer.uid());
            false
        }
        Err(error) => {
            tracing::warn!("Refused a connection of an unknown user: {error}");
            false
        }
    }
}

impl Listener for Gate {
    type Io = UnixStream;
    type Addr = ();

    async fn accept(&mut self) -> (UnixStream, ()) {
        loop {
            let connection = tokio::select! {
                connection = connection(self.listener.as_ref()) => connection,
                asked = self.rebind.recv() => {
                    match asked {
                        Some(()) => self.bind_again(),
                        None => std::future::pending().await,
                    }
                    continue;
                }
            };
            match connection {
                Ok(stream) if may_enter(&stream) => return (stream, ()),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!("A connection cannot be accepted: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}
