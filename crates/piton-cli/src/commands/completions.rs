//! `piton completions`: a script that teaches a shell our commands.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::error::{Exit, Result};
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton completions bash > ~/.local/share/bash-completion/completions/piton
  piton completions zsh > ~/.zfunc/_piton
  piton completions fish > ~/.config/fish/completions/piton.fish";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    shell: For,
}

/// The shells that are looked after.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum For {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn run(ui: &mut Ui, args: &Args) -> Result<Exit> {
    let shell = match args.shell {
        For::Bash => Shell::Bash,
        For::Zsh => Shell::Zsh,
        For::Fish => Shell::Fish,
    };
    // Written to memory first: a reader that leaves is no reason to panic.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "piton", &mut script);
    ui.raw(&script)?;
    Ok(Exit::Good)
}
