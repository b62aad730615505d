//! The binary `piton`. Data goes to stdout, everything else to stderr; a command is a file in
//! `commands`. Nothing here knows how a session works: it asks the runtime and shows the answer.

mod agents;
mod attachment;
mod backend;
mod background;
mod call;
mod cli;
mod commands;
mod config;
mod context;
mod context_choices;
mod conversion;
mod echo_memory;
mod error;
mod examiner;
mod findings;
mod graphs;
mod ids;
mod lookup;
mod masking;
mod mcp_servers;
mod permission_text;
mod programs;
mod reloader;
mod secret;
mod server;
mod show;
mod stores;
mod table;
mod terminal;
mod text;
mod times;
mod ui;

use std::process::ExitCode;

fn main() -> ExitCode {
    error::report_panics();
    // A panic was reported by the hook; what is left is the exit code of a bug.
    let exit = std::panic::catch_unwind(cli::run).unwrap_or(error::Exit::Bug);
    ExitCode::from(exit.code())
}
