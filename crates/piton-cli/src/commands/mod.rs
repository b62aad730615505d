//! The commands: a file for each, in folders that mirror the subcommands. A new one is a file with
//! `Args` and `run`, a line in its parent's enum, and a line in its `match`.

pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod man;
pub(crate) mod sessions;
pub(crate) mod verify;

use clap::Subcommand;

use crate::cli::Cli;
use crate::config::Settings;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::ui::Ui;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Look at sessions and change those that nobody runs
    #[command(subcommand, visible_alias = "s")]
    Sessions(sessions::Command),
    /// Check that the logs are what was written
    Verify(verify::Args),
    /// Look at the settings
    #[command(subcommand)]
    Config(config::Command),
    /// Print a completion script for a shell
    Completions(completions::Args),
    /// Print a manual page
    Man(man::Args),
}

pub(crate) fn run(ui: &mut Ui, cli: Cli) -> Result<Exit> {
    #[cfg(debug_assertions)]
    assert!(std::env::var_os("PITON_TEST_PANIC").is_none(), "a test asked for this");
    match &cli.command {
        Command::Completions(_) | Command::Man(_) if ui.json => {
            return Err(Error::usage("This prints a script or a page, not data: leave out --json"));
        }
        Command::Completions(args) => return completions::run(ui, args),
        Command::Man(args) => return man::run(ui, args),
        Command::Sessions(_) | Command::Verify(_) | Command::Config(_) => {}
    }
    let settings = Settings::load(&cli.global)?;
    ui.set_color(settings.color.value);
    let cx = Context::new(settings);
    if let Command::Config(command) = &cli.command {
        return config::run(ui, &cx, command);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match cli.command {
            Command::Sessions(command) => sessions::run(ui, &cx, command).await,
            Command::Verify(args) => verify::run(ui, &cx, args).await,
            Command::Config(_) | Command::Completions(_) | Command::Man(_) => Ok(Exit::Good),
        }
    })
}
