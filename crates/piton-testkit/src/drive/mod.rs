//! Servers that are killed while real agents work: [`serve`] is the server, [`Server`] the hand
//! that starts and kills it.

mod parent;
mod serve;

use std::process::ExitCode;

pub use parent::{Answered, Server, processes_of, wait_until};
pub use serve::serve;

/// The process beside the agent; its launch comes on the standard input.
pub fn agentctl() -> ExitCode {
    let Ok(launch) = serde_json::from_reader(std::io::stdin().lock()) else {
        return ExitCode::from(2);
    };
    match piton_agentctl::run(launch) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The built-in agent.
pub fn echo(arguments: impl Iterator<Item = String>) -> ExitCode {
    let Ok(options) = piton_echo::Options::parse(arguments) else {
        return ExitCode::from(2);
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return ExitCode::FAILURE };
    match runtime.block_on(piton_echo::stdio(options)) {
        Ok(end) => end.exit(),
        Err(_) => ExitCode::FAILURE,
    }
}
