//! Whether the folder is still there.

use std::time::Duration;
use std::{fs, io};

use piton_exec::protocol::files;

use crate::agentctl::Agentctl;

/// Between looks while it works; idle it is not woken for that often. Watches of the kernel's are few
/// for each user, and others need them.
const WORKING_CHECK_INTERVAL: Duration = Duration::from_secs(2);
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Returns when the lock file of this identity is not at its place any more.
pub(crate) async fn until_lost(agentctl: &Agentctl, lock: (u64, u64)) {
    while !is_lost(lock) {
        let pause =
            if agentctl.is_working().await { WORKING_CHECK_INTERVAL } else { IDLE_CHECK_INTERVAL };
        tokio::time::sleep(pause).await;
    }
}

fn is_lost(lock: (u64, u64)) -> bool {
    match fs::metadata(files::LOCK) {
        Ok(found) => crate::process::identity(&found) != lock,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}
