//! Ids and names completed in a shell: what the program offers, and the scripts in the real shells.

use std::path::Path;
use std::process::{Command, Output};

use crate::cli::fixture::Fixture;
use crate::tools;

/// What a shell asks for while someone types.
#[test]
fn a_shell_completes_ids_and_agents() {
    let fixture = Fixture::new();
    let ids = fixture.run("complete -- sessions show sess_d");
    assert!(ids.contains("sess_done\t"), "{ids}");
    let agents = fixture.run("complete -- chat --agent cod");
    assert!(agents.contains("codex\t") && !agents.contains("gemini"), "{agents}");
    let waits = fixture.run("complete -- sessions answer wait_");
    assert!(waits.contains("wait_"), "{waits}");
    let nothing = fixture.run("complete -- sessions list --limit ''");
    assert_eq!(nothing.lines().count(), 2, "{nothing}");
}

/// The session that was active last is offered by its name, and waits have none.
#[test]
fn a_shell_completes_the_latest_session() {
    let fixture = Fixture::new();
    let offered = fixture.run("complete -- sessions show @");
    assert!(offered.contains("@last\tthe session that was active last\n"), "{offered}");
    assert!(!fixture.run("complete -- sessions list --agent @").contains("@last"));
}

/// Writes a shell's script into the home folder.
fn write_script(fixture: &Fixture, shell: &str, path: &str) {
    let script = fixture.home.command(["completions", shell]).output().unwrap();
    fixture.home.write(path, &String::from_utf8(script.stdout).unwrap());
}

/// Runs a program in a shell that finds `piton`; `None` where the shell is not installed.
fn in_shell(fixture: &Fixture, shell: &str, arguments: &[&str]) -> Option<Output> {
    let folder = Path::new(tools::piton()).parent().unwrap();
    let mut path = folder.as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    let mut command = Command::new(shell);
    command.args(arguments).env_clear().env("PATH", path).env("TERM", "xterm");
    command.env("HOME", fixture.home.path()).current_dir(fixture.home.path());
    match command.output() {
        Ok(output) => Some(output),
        Err(error) => {
            tools::left_out(&format!("the completion script of {shell}"), &error.to_string());
            None
        }
    }
}

/// Wants to show: the script for bash completes ids in a real bash, and leaves commands and options to
/// what clap generated.
#[test]
fn the_completion_script_completes_ids_in_bash() {
    let fixture = Fixture::new();
    write_script(&fixture, "bash", "completion.bash");
    let completed = |words: &[&str]| {
        let program = ". ~/completion.bash; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
                    _piton_ids \"$1\" \"${!#}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"; \
                    printf '%s\\n' \"${COMPREPLY[@]}\"";
        let mut bash = Command::new("bash");
        let piton = tools::piton();
        bash.args(["--norc", "-c", program, "bash", piton]).args(words);
        bash.env("HOME", fixture.home.path());
        let output = bash.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(completed(&["sessions", "show", "sess_don"]), ["sess_done"]);
    assert_eq!(completed(&["chat", "--agent", "code"]), ["codex"]);
    assert_eq!(completed(&["sessions", "artif"]), ["artifacts"]);
}

/// Presses Tab behind each argument, all in one shell, and prints what the line is then.
const ZSH_TABS: &str = r#"
zmodload zsh/zpty zsh/system
zpty inner zsh -i
fd=$REPLY
# Reads until the inner shell has printed the text.
await() {
    local chunk all=
    while [[ $all != *"$1"* ]]; do
        sysread -i $fd -t 60 chunk || { print -r -- "no $1 in: $all"; exit 1 }
        all+=$chunk
    done
}
await '<ready>'
for line in "$@"; do
    zpty -w -n inner "$line"$'\t'
    await '<done>'
done
cat ~/lines
"#;

const ZSH_RC: &str = r#"
fpath=(~/functions $fpath)
autoload -U compinit
compinit -u -D
press_tab() {
    zle expand-or-complete
    print -r -- "$BUFFER" >> ~/lines
    BUFFER=
    print '<done>'
}
zle -N press_tab
bindkey '^I' press_tab
PS1='<ready>'
"#;

/// Wants to show: in a real zsh that loads the script at the first Tab, that Tab completes ids already;
/// commands and options stay what clap generated.
#[test]
fn the_completion_script_completes_ids_in_zsh() {
    let fixture = Fixture::new();
    write_script(&fixture, "zsh", "functions/_piton");
    fixture.home.write(".zshrc", ZSH_RC);
    let lines = ["piton sessions show sess_don", "piton chat --agent code", "piton sessions artif"];
    let arguments = [&["-f", "-c", ZSH_TABS, "zsh"], lines.as_slice()].concat();
    let Some(output) = in_shell(&fixture, "zsh", &arguments) else { return };
    let text = String::from_utf8_lossy(&output.stdout);
    let completed: Vec<&str> = text.lines().map(str::trim_end).collect();
    let expected =
        ["piton sessions show sess_done", "piton chat --agent codex", "piton sessions artifacts"];
    assert_eq!(completed, expected, "{output:?}");
}

/// Wants to show: a real fish completes ids, also as the value of an option, without files between
/// them, and commands and options as clap generated.
#[test]
fn the_completion_script_completes_ids_in_fish() {
    let fixture = Fixture::new();
    write_script(&fixture, "fish", "piton.fish");
    let completed = |line: &str| {
        let program = format!("source ~/piton.fish; complete -C '{line}'");
        let output = in_shell(&fixture, "fish", &["--no-config", "-c", &program])?;
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let values = text.lines().map(|line| line.split('\t').next().unwrap_or("").to_owned());
        Some(values.collect::<Vec<_>>())
    };
    let Some(shown) = completed("piton sessions show sess_don") else { return };
    assert_eq!(shown, ["sess_done"]);
    assert_eq!(completed("piton chat --agent code").unwrap(), ["codex"]);
    assert_eq!(completed("piton sessions artif").unwrap(), ["artifacts"]);
    let all = completed("piton sessions show ").unwrap();
    assert!(all.contains(&"@last".to_owned()), "{all:?}");
    assert!(!all.contains(&"piton.fish".to_owned()), "{all:?}");
}
