//! Whether the folder is still there. The kernel says when it goes; it is looked at now and then all
//! the same.

use std::time::Duration;
use std::{fs, io};

use piton_exec::protocol::files;
use tokio::net::unix::pipe::Receiver;

/// Between looks where the kernel says it.
const LOOK_EVERY: Duration = Duration::from_mins(1);
/// And where it does not.
const LOOK_OFTEN: Duration = Duration::from_secs(2);

/// Returns when the lock file of this identity is not at its place any more.
pub(crate) async fn until_lost(lock: (u64, u64)) {
    // Before the first look: what goes in between is seen by one of the two.
    let watch = watch();
    if let Err(error) = &watch {
        tracing::info!(%error, "the folder is looked at every {} s", LOOK_OFTEN.as_secs());
    }
    while !is_lost(lock) {
        match &watch {
            Ok(watch) => touched(watch).await,
            Err(_) => tokio::time::sleep(LOOK_OFTEN).await,
        }
    }
}

fn is_lost(lock: (u64, u64)) -> bool {
    match fs::metadata(files::LOCK) {
        Ok(found) => crate::life::identity(&found) != lock,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// To remove a folder one has to remove its lock file.
#[cfg(target_os = "linux")]
fn watch() -> io::Result<Receiver> {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    let watch = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    // It is open, so that only the number of its names changes.
    let flags = WatchFlags::ATTRIB | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
    add_watch(&watch, files::LOCK, flags)?;
    // Not a pipe, but read like one.
    Receiver::from_owned_fd_unchecked(watch)
}

#[cfg(not(target_os = "linux"))]
fn watch() -> io::Result<Receiver> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Something happened to the lock file, or enough time has passed.
async fn touched(watch: &Receiver) {
    if tokio::time::timeout(LOOK_EVERY, watch.readable()).await.is_ok() {
        // What it was is seen by looking.
        let mut events = [0; 4096];
        while watch.try_read(&mut events).is_ok_and(|read| read > 0) {}
    }
}
