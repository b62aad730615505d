//! `piton man`: the same texts as `--help`, as manual pages.

use clap::CommandFactory;

use crate::cli::Cli;
use crate::error::{Error, Exit, Result};
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton man | man -l -
  piton man sessions log | man -l -
  piton man > ~/.local/share/man/man1/piton.1";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The command whose page is wanted [default: piton itself]
    #[arg(value_name = "COMMAND")]
    path: Vec<String>,
}

pub(crate) fn run(ui: &mut Ui, args: &Args) -> Result<Exit> {
    let mut command = Cli::command();
    // Gives subcommands their full names and global options.
    command.build();
    for name in &args.path {
        let found = command.find_subcommand(name).cloned();
        let message = || format!("There is no command {:?}", args.path.join(" "));
        command = found.ok_or_else(|| Error::usage(&message()))?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    ui.raw(&page)?;
    Ok(Exit::Good)
}
