//! Where processes cannot be listed (anywhere but on Linux), what we started is ended by its
//! process group; what left its group is not found.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use super::{ProcessRole, Scope};

pub(super) const NEEDED: bool = cfg!(not(target_os = "linux"));
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How long a killed group may take to be gone.
const SIGKILL_TIMEOUT: Duration = Duration::from_secs(1);

/// The groups that were started, each with its part.
#[derive(Debug, Default)]
pub(super) struct Groups(Mutex<Vec<(String, Pid)>>);

impl Groups {
    pub(super) fn add(&self, part: &ProcessRole, leader: Option<u32>) {
        let leader = leader.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let (true, Some(leader)) = (NEEDED, leader) {
            let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // A group that is gone may be another's tomorrow.
            groups.retain(|(_, group)| test_kill_process_group(*group).is_ok());
            groups.push((part.name(), leader));
        }
    }

    fn alive(&self, scope: &Scope) -> Vec<Pid> {
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|(_, group)| test_kill_process_group(*group).is_ok());
        groups.iter().filter(|(part, _)| scope.holds(Some(part))).map(|(_, group)| *group).collect()
    }

    pub(super) async fn end(&self, scope: &Scope, term: Duration) {
        for (signal, within) in [(Signal::TERM, term), (Signal::KILL, SIGKILL_TIMEOUT)] {
            for group in self.alive(scope) {
                let _ = kill_process_group(group, signal);
            }
            let until = Instant::now() + within;
            while !self.alive(scope).is_empty() && Instant::now() < until {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    }
}
