//! The binary `piton`. Data goes to stdout, everything else to stderr; each command is a file in
//! `commands`. The rules of sessions are elsewhere: a command calls `piton_runtime::Engine`, in this
//! process or through the server's API, and prints the answer.

// From arguments to a command: begin with `cli`; what each command does is in `commands`.
mod call;
mod cli;
mod commands;
mod context;
mod ids;
mod lookup;

// Settings and secrets.
mod config;
mod masking;
mod reloader;
mod secret;

// The data folder: its server, or its store.
mod backend;
mod background;
mod conversion;
mod server;
mod stores;

// Agents, what they are given, and graphs.
mod agents;
mod attachment;
mod echo_memory;
mod graphs;
mod mcp_servers;
mod programs;

// `piton doctor` and the other checks.
mod examiner;
mod findings;

// What is printed and drawn.
mod context_choices;
mod error;
mod permission_text;
mod show;
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
