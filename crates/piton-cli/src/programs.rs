//! Other programs: where they are, and what they say.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use piton_exec::{environment, programs};

/// How long another program may take to say something.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Where a program is that is named by its path or found in `PATH`.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    programs::find(name, std::env::var_os("PATH").as_deref())
}

/// What a program of ours says; `None` if it is not there, fails, or takes too long.
pub(crate) fn said(name: &str, arguments: &[&str]) -> Option<String> {
    said_in(std::env::var_os("PATH").as_deref(), name, arguments)
}

/// The same of one that is found elsewhere.
pub(crate) fn said_in(path: Option<&OsStr>, name: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(programs::find(name, path)?);
    for name in environment::private_variables() {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let until = Instant::now() + OUTPUT_TIMEOUT;
    loop {
        match child.try_wait().ok()? {
            Some(status) if status.success() => break,
            Some(_) => return None,
            None if Instant::now() >= until => {
                // One that is stuck is asked for nothing; it is ours to end.
                child.kill().ok()?;
                child.wait().ok()?;
                return None;
            }
            None => std::thread::sleep(POLL_INTERVAL),
        }
    }
    // A line or two, which fit into the pipe.
    let output = child.wait_with_output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (!text.is_empty()).then_some(text)
}
