//! `piton completions`: a script that teaches a shell our commands.

use std::collections::BTreeSet;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::commands::complete;
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
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "piton", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if let Some(without) = script.strip_suffix(CLAP_ZSH_END) {
        script.truncate(without.len());
    }
    script.push_str(by_program(args.shell));
    if shell == Shell::Fish {
        script.push_str(&fish_options(&Cli::command()));
    }
    // Written at once: a reader that leaves is no reason to panic.
    ui.raw(script.as_bytes())?;
    Ok(Exit::Good)
}

/// How clap's script for zsh ends. zsh loads the script at the first Tab of a shell, and this end
/// completes that Tab without our ids; it is left out, and our own end does its work.
const CLAP_ZSH_END: &str = r#"
if [ "$funcstack[1]" = "_piton" ]; then
    _piton "$@"
else
    compdef _piton piton
fi
"#;

/// Fish asks only an option's own entry for the option's value.
fn fish_options(command: &clap::Command) -> String {
    let mut options = BTreeSet::new();
    let mut commands = vec![command];
    while let Some(command) = commands.pop() {
        let named = command.get_arguments().filter(|arg| complete::names_an_id(arg));
        options.extend(named.filter_map(clap::Arg::get_long));
        commands.extend(command.get_subcommands());
    }
    let line = |name: &str| {
        format!(
            "complete -c piton -n __fish_piton_offers -l {name} -x -k -a \"$__fish_piton_list\"\n"
        )
    };
    options.into_iter().map(line).collect()
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

# Later TABs of this shell, and this one if zsh has loaded the file for it.
compdef _piton_ids piton
if [ "$funcstack[1]" = "_piton" ]; then
    _piton_ids "$@"
fi
"#
        }
        For::Fish => {
            r#"
# Whether the program offers something at the cursor; the list below gives it.
function __fish_piton_offers
    set -l words (commandline -opc) (commandline -ct)
    set -g __fish_piton_offered
    if not string match -q -- '-*' $words[-1]
        set -g __fish_piton_offered (command $words[1] complete -- $words[2..-1] 2>/dev/null)
    end
    test (count $__fish_piton_offered) -gt 0
end
set -g __fish_piton_list '(printf "%s\n" $__fish_piton_offered)'
complete -c piton -n __fish_piton_offers -f -k -a "$__fish_piton_list"
"#
        }
    }
}
