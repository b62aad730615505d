//! `--help`, `--version`, completions and manual pages.

use std::io::Write;
use std::process::{Command, Stdio};

use insta::assert_snapshot;

use crate::cli::home::Home;
use crate::tools;

#[test]
fn help_teaches() {
    let home = Home::new();
    assert_snapshot!("help", home.run("--help"));
    assert_snapshot!("help_short", home.run("-h"));
    for name in [
        "new",
        "list",
        "show",
        "log",
        "waits",
        "answer",
        "prompt",
        "set",
        "login",
        "resume",
        "pause",
        "cancel",
        "dismiss",
        "close",
        "fork",
        "abandon",
        "resume-token",
        "redact",
        "cleanup",
        "repair",
        "delete",
        "archive",
        "prune",
        "export",
        "import",
    ] {
        let text = home.run(&format!("sessions {name} --help"));
        assert_snapshot!(format!("help_sessions_{name}"), text);
    }
    for name in [
        "chat",
        "serve",
        "open",
        "doctor",
        "agents",
        "agents list",
        "agents probe",
        "agents doctor",
        "agents login",
        "agents sessions",
        "sessions",
        "tasks new",
        "tasks edit",
        "tasks close",
        "tasks reopen",
        "tasks delete",
        "verify",
        "convert",
        "config show",
        "completions",
        "man",
    ] {
        let text = home.run(&format!("{name} --help"));
        assert_snapshot!(format!("help_{}", name.replace(' ', "_")), text);
    }
}

/// The built-in agent does what its prompt says, and its help says what that can be.
#[test]
fn every_word_of_the_built_in_agent_is_listed() {
    let help = Home::new().run("agent echo --help");
    for word in piton_echo::WORDS {
        let line = format!("  {:<18}  {}", word.usage, word.what);
        assert!(help.lines().any(|printed| printed == line), "{line:?} is not in\n{help}");
    }
}

/// A version is printed without looking at anything: not even a broken config file is in its way.
#[test]
fn the_version_needs_nothing() {
    let mut home = Home::new();
    home.write(".config/piton/config.toml", "this is not TOML");
    home.set("PITON_DATA", "/nowhere");
    assert_eq!(
        home.run("--version"),
        "$ piton --version\n--- stdout\npiton [VERSION]\n--- exit 0\n"
    );
    assert_eq!(home.run("completions fish").lines().last(), Some("--- exit 0"));
}

#[test]
fn a_manual_page_is_printed() {
    let home = Home::new();
    assert_snapshot!(home.run("man sessions waits"));
    assert_snapshot!("man_unknown", home.run("man sessions fly"));
    assert_snapshot!("man_json", home.run("man --json"));
}

/// The scripts name every command, and what a shell that is here can check is well formed.
#[test]
fn completions_name_every_command() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish"] {
        let output = home.command(["completions", shell]).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let script = String::from_utf8(output.stdout.clone()).unwrap();
        for word in [
            "agents",
            "probe",
            "sessions",
            "dismiss",
            "verify",
            "--follow",
            "completions",
            "man",
            "--color",
        ] {
            // Fish names long options without their dashes.
            assert!(script.contains(word.trim_start_matches('-')), "{shell}: {word}");
        }
        let check = Command::new(shell)
            .arg("-n")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut check = match check {
            Ok(check) => check,
            Err(error) => {
                let why = format!("it does not start; scripts/setup installs it: {error}");
                tools::left_out(shell, &why);
                continue;
            }
        };
        check.stdin.take().unwrap().write_all(&output.stdout).unwrap();
        let checked = check.wait_with_output().unwrap();
        assert!(checked.status.success(), "{shell}: {checked:?}");
    }
}
