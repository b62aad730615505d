//! From arguments to a command and its exit code.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser};

use crate::commands::{self, Command};
use crate::error::{Error, Exit};
use crate::terminal;
use crate::ui::{self, ColorChoice, Ui};

const EXAMPLES: &str = "\
Examples:
  piton chat                       Talk to an agent in this folder; it keeps running when you leave
  piton attach                     Return to this folder's latest session
  piton top                        Watch and answer all sessions on the whole screen
  piton agents list                List agents and how to install them
  piton sessions list              List sessions, last active first
  piton sessions show SESSION      Show a session's status and what to do next
  piton sessions log SESSION -f    Follow a session's records
  piton doctor                     Check the installation
  piton verify                     Verify that no log was changed or cut
  piton config show                Show the settings and where they come from

Shorten an id to its beginning or end as long as that is unique; @last is the latest session.
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the reader of the output left, 255 a bug.";

const DATA_HELP: &str =
    "The data folder [default: $PITON_DATA, the config file, ~/.local/share/piton]";
const CONFIG_HELP: &str = "The config file [default: $PITON_CONFIG, ~/.config/piton/config.toml]";

/// Durable sessions for AI agents: whatever stops, the session resumes from its log.
#[derive(Debug, Parser)]
#[command(name = "piton", version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    /// The command [default on a terminal: top]
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// The data folder
    #[arg(long, global = true, value_name = "DIR", help = DATA_HELP)]
    pub(crate) data: Option<PathBuf>,
    /// The config file
    #[arg(long, global = true, value_name = "FILE", help = CONFIG_HELP)]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON: one object, or one per line for lists and logs
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to use colours [default: auto]
    #[arg(long, global = true, value_name = "WHEN")]
    pub(crate) color: Option<ColorChoice>,
}

/// Runs the command that the arguments name and reports what went wrong.
pub(crate) fn run() -> Exit {
    if asks_only_for_version(std::env::args_os().skip(1)) {
        return version();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let mut ui = Ui::new(cli.global.json, cli.global.color);
    if cli.command.is_none() && !terminal::is_possible(&ui) {
        let command = Cli::command().arg_required_else_help(true);
        if let Err(error) = command.try_get_matches_from(["piton"]) {
            return usage(&error);
        }
    }
    let done = commands::run(&mut ui, cli).and_then(|exit| ui.flush().map(|()| exit));
    done.unwrap_or_else(|error| ui.report(&error))
}

/// Scripts and prompts ask for it at every turn: the whole tree of commands need not be built to
/// answer.
fn asks_only_for_version(mut arguments: impl Iterator<Item = OsString>) -> bool {
    let first = arguments.next();
    let asks = first.is_some_and(|first| first == "--version" || first == "-V");
    asks && arguments.next().is_none()
}

fn version() -> Exit {
    let mut ui = Ui::new(false, None);
    let said = ui.line(concat!("piton ", env!("CARGO_PKG_VERSION"))).and_then(|()| ui.flush());
    said.map_or_else(|error| ui.report(&error), |()| Exit::Good)
}

/// Help and versions are data; all else that clap says is about wrong usage.
fn usage(error: &clap::Error) -> Exit {
    let asked_for = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let json = std::env::args_os().any(|argument| argument == "--json");
    if json && !asked_for {
        let mut ui = Ui::new(json, None);
        return ui.report(&Error::usage(&ui::plain(&error.render().to_string())));
    }
    match error.print() {
        Err(error) => Ui::new(false, None).report(&Error::from(error)),
        Ok(()) if asked_for => Exit::Good,
        Ok(()) => Exit::Usage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_way_says_what_the_long_one_says() {
        let text = concat!("piton ", env!("CARGO_PKG_VERSION"), "\n");
        assert_eq!(Cli::command().render_version(), text);
        let asks = |arguments: &[&str]| {
            asks_only_for_version(arguments.iter().map(|argument| (*argument).into()))
        };
        assert!(asks(&["--version"]) && asks(&["-V"]));
        assert!(!asks(&[]) && !asks(&["serve"]) && !asks(&["--version", "--json"]));
    }
}
