//! Signals to one process and no other, and waiting for its end.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::Process;

/// Between looks at a process whose end the kernel does not tell.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

fn pid_of(process: &Process) -> Option<Pid> {
    // Never 0 or 1: a signal to 0 goes to our own group, and 1 keeps the machine or container.
    let raw = i32::try_from(process.pid).ok().filter(|pid| *pid > 1)?;
    (process.pid != std::process::id()).then(|| Pid::from_raw(raw)).flatten()
}

/// Best effort: a process that is gone, or not ours to signal, shows in the next scan.
pub(super) fn send(process: &Process, signal: Signal) {
    let Some(pid) = pid_of(process) else { return };
    #[cfg(target_os = "linux")]
    match handle(process) {
        // The handle is of this very process whatever becomes of the pid.
        Handle::Open(fd) => {
            let _ = rustix::process::pidfd_send_signal(fd, signal);
            return;
        }
        Handle::Gone => return,
        Handle::Unsupported => {}
    }
    if process.is_alive() {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

#[cfg(target_os = "linux")]
enum Handle {
    Open(std::os::fd::OwnedFd),
    Gone,
    Unsupported,
}

#[cfg(target_os = "linux")]
fn handle(process: &Process) -> Handle {
    use rustix::io::Errno;
    use rustix::process::{PidfdFlags, pidfd_open};
    let Some(pid) = pid_of(process) else { return Handle::Gone };
    match pidfd_open(pid, PidfdFlags::NONBLOCK) {
        // Looked at after the handle was opened: if it is the one we mean now, the handle is its.
        Ok(fd) if process.is_alive() => Handle::Open(fd),
        Ok(_) | Err(Errno::SRCH) => Handle::Gone,
        Err(_) => Handle::Unsupported,
    }
}

/// Waits until all have ended, at most `at_most`; whether they have. On a thread of its own, since
/// the kernel tells of an end through a descriptor that can be polled.
pub(super) async fn wait_for_all(processes: &[Process], at_most: Duration) -> bool {
    let processes = processes.to_vec();
    let waited = tokio::task::spawn_blocking(move || wait(&processes, Instant::now() + at_most));
    waited.await.unwrap_or(false)
}

fn wait(processes: &[Process], until: Instant) -> bool {
    for process in processes {
        while process.is_alive() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            wait_for(process, left);
        }
    }
    true
}

/// Until it ended, or `at_most`, or a moment where the kernel cannot tell.
fn wait_for(process: &Process, at_most: Duration) {
    #[cfg(target_os = "linux")]
    match handle(process) {
        Handle::Gone => return,
        Handle::Open(fd) => {
            use rustix::event::{PollFd, PollFlags, poll};
            let mut watched = [PollFd::new(&fd, PollFlags::IN)];
            // Readable means that the process ended; its parent may still have to reap it.
            let timeout = at_most.try_into().ok();
            if poll(&mut watched, timeout.as_ref()).is_ok() {
                return;
            }
        }
        Handle::Unsupported => {}
    }
    std::thread::sleep(POLL_INTERVAL.min(at_most));
}
