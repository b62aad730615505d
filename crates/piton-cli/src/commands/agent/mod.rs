//! `piton agent`: the agents that are built in.

pub(crate) mod echo;

use clap::Subcommand;

use crate::error::{Exit, Result};

/// Be an agent that is built in
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Echo(echo::Args),
}

pub(crate) async fn run(command: Command) -> Result<Exit> {
    match command {
        Command::Echo(args) => echo::run(args).await,
    }
}
