//! The process beside an agent. It owns the agent and everything the agent starts, keeps what the
//! agent says in a spool until a server has it, and serves the workspace whether or not there is
//! an agent. It outlives the server: see `docs/internals/agentctl.md`.

mod activity;
mod agent;
mod agentctl;
mod commands;
mod epoch;
mod folder_watch;
pub mod host;
mod log;
mod problem;
mod process;
mod server;
pub mod spool;
pub mod terminals;
pub mod tree;
pub mod workspace;

pub use process::{Error, run};
