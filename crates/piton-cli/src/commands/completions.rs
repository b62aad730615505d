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
    ui.raw(by_program(args.shell).as_bytes())?;
    Ok(Exit::Good)
}

/// What the program itself completes: ids of sessions, tasks and waits, names of agents.
fn by_program(shell: For) -> &'static str {
    match shell {
        For::Bash => {
            r#"
_piton_ids() {
    local word="${COMP_WORDS[COMP_CWORD]}" ids=""
    if [[ "$word" != -* ]]; then
        ids="$("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1)"
    fi
    if [[ -n "$ids" ]]; then
        COMPREPLY=($(compgen -W "$ids" -- "$word"))
    else
        _piton "$@"
    fi
}
complete -F _piton_ids -o nosort -o bashdefault -o default piton 2>/dev/null ||
    complete -F _piton_ids -o bashdefault -o default piton
"#
        }
        For::Zsh => {
            r#"
_piton_ids() {
    local line
    local -a ids
    if [[ "$words[CURRENT]" != -* ]]; then
        for line in "${(@f)$($words[1] complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
            [[ -n "$line" ]] && ids+=("${line/$'\t'/:}")
        done
    fi
    if (( $#ids )); then
        _describe -V piton ids
    else
        _piton "$@"
    fi
}
compdef _piton_ids piton
"#
        }
        For::Fish => {
            r#"
function __fish_piton_ids
    set -l words (commandline -opc) (commandline -ct)
    command $words[1] complete -- $words[2..-1] 2>/dev/null
end
complete -c piton -k -a "(__fish_piton_ids)"
"#
        }
    }
}
