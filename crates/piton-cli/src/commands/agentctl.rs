//! `piton agentctl`: the process beside an agent. Piton starts it; users do not.

use std::io::Read as _;

use piton_exec::protocol::Launch;

use crate::error::{Error, Exit, Result};

/// More than any launch needs.
const LAUNCH_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Be the process beside an agent; what is needed for that comes through standard input
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> Result<Exit> {
    // Through a pipe and not by argument: it holds secrets.
    let mut text = String::new();
    std::io::stdin().take(LAUNCH_BYTES_MAX).read_to_string(&mut text)?;
    let launch: Launch = serde_json::from_str(&text)
        .map_err(|e| Error::usage(&format!("The launch on standard input is none: {e}")))?;
    match piton_agentctl::run(launch) {
        Ok(()) => Ok(Exit::Good),
        // Its log has the reason; its output is not read.
        Err(_) => Ok(Exit::Failed),
    }
}
