//! How the drawn client begins: at once, whatever its agent does; each way to begin; and where it prints
//! lines instead.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::server::drawn::{chat, drawn};
use crate::server::pty::{Home, Terminal};

/// A chat with an agent that starts as soon as a file is gone; the file.
fn slow(home: &Home, arguments: &[&str]) -> (Command, PathBuf) {
    let folder = home.folder.path().canonicalize().unwrap();
    let (file, program) = (folder.join("hold"), env!("CARGO_BIN_EXE_piton"));
    let script = format!(
        "while [ -e {} ]; do sleep 0.02; done; exec {program} agent echo -- --memory {}/memory.json",
        file.display(),
        folder.display()
    );
    let config = folder.join("config.toml");
    std::fs::write(&config, format!("[agents.slow]\ncommand = ['/bin/sh', '-c', '{script}']\n"))
        .unwrap();
    let mut command = drawn(home.piton(arguments));
    command.env("PITON_CONFIG", config).env("PITON_CHAT_AGENT", "slow");
    (command, file)
}

/// Attaching shows what was said before the agent runs, takes what is typed, and says what it waits for.
/// A prompt that is refused then is put behind what is being typed, not over it.
#[test]
fn an_agent_that_starts_slowly_is_waited_for_on_the_screen() {
    let home = Home::new();
    let (mut command, hold) = slow(&home, &["chat", "--print", "say from before"]);
    // Its agent ends with its turn.
    let said = command.output().unwrap();
    assert!(said.status.success(), "{said:?}");
    std::fs::write(&hold, "").unwrap();
    let large = home.folder.path().join("large.png");
    std::fs::File::create(&large).unwrap().set_len(24 * 1024 * 1024).unwrap();
    let (command, _) = slow(&home, &["attach"]);
    let mut attached = Terminal::run_sized(command, 24, 80);
    attached.sees("all of it, before the agent runs", |screen| {
        screen.contains("\n  from before\n") && screen.contains("starting slow")
    });
    attached.type_in("say @large.png\r");
    attached.sees_text("sending say @large.png");
    attached.type_in("half typed");
    attached.sees_text("> half typed");
    attached.sees("the time that it takes", |screen| screen.contains("starting slow 0:01"));
    std::fs::remove_file(&hold).unwrap();
    attached.sees("what was refused, behind what is typed", |screen| {
        screen.contains("is too large") && screen.contains("> half typed\n  say @large.png")
    });
    attached.type_in("\x03");
    attached.sees_text("Cleared");
    attached.type_in("say after\r");
    attached.sees("an answer", |screen| screen.contains("\n  after\n"));
    attached.type_in("\x04");
    assert!(attached.ends().0);
}

/// `chat --resume ID`, `chat "prompt"`, `piton` alone.
#[test]
fn each_way_to_begin_is_drawn() {
    let home = Home::new();
    let mut first =
        Terminal::run_sized(drawn(home.piton(&["chat", "say the first prompt"])), 24, 80);
    first.sees("its answer", |screen| {
        screen.contains("> say the first prompt") && screen.contains("\n  the first prompt\n")
    });
    first.type_in("\x04");
    assert!(first.ends().0);
    let id = home.last_id();
    let mut other = chat(&home, 24, 80);
    other.type_in("say another session\r");
    other.sees("an answer", |screen| screen.contains("\n  another session\n"));
    other.type_in("\x04");
    assert!(other.ends().0);
    // By the end of its id.
    let end = &id[id.len() - 8..];
    let mut again = Terminal::run_sized(drawn(home.piton(&["chat", "--resume", end])), 24, 80);
    again.sees("that session", |screen| {
        screen.contains("the first prompt") && !screen.contains("another session")
    });
    again.type_in("\x04");
    assert!(again.ends().0);
    let mut bare = Terminal::run_sized(drawn(home.piton(&[])), 24, 80);
    bare.sees("the dashboard", |screen| {
        screen.starts_with("Piton")
            && screen.contains("2 sessions")
            && screen.contains("say the first prompt")
            && screen.contains("say another session")
    });
    assert!(bare.is_full());
    bare.type_in("q");
    assert!(bare.ends().0);
}

/// Without colours it is drawn all the same, with none; a simple terminal and a pipe get lines.
#[test]
fn simple_terminals_get_lines_and_no_colour_takes_colours_alone() {
    let home = Home::new();
    let mut command = drawn(home.piton(&["chat"]));
    command.env("NO_COLOR", "1");
    let mut plain = Terminal::run_sized(command, 24, 80);
    plain.sees_text("Ask for something");
    plain.type_in("say **strong** and `code`\r");
    plain.sees("an answer", |screen| screen.contains("\n  strong and code\n"));
    assert!(plain.looks("strong and").bold());
    plain.type_in("\x04");
    let (good, printed) = plain.ends();
    let colors = (30..=37).chain(90..=97).filter(|code| {
        printed.contains(&format!("\x1b[{code}m")) || printed.contains(&format!(";{code}m"))
    });
    assert_eq!((good, colors.collect::<Vec<u32>>()), (true, vec![]), "{printed:?}");

    let mut command = drawn(home.piton(&["chat"]));
    command.env("TERM", "dumb");
    let mut dumb = Terminal::run_sized(command, 24, 80);
    dumb.shows("Ctrl-C stops a turn, twice leaves.");
    dumb.type_in("say in lines\n");
    dumb.shows_line("in lines");
    dumb.type_in("/quit\n");
    let (good, printed) = dumb.ends();
    assert!(good && !printed.contains("\x1b[?1049h") && !printed.contains("╭"), "{printed:?}");

    let mut piped = home.piton(&["chat", "-"]);
    let mut piped = piped.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    piped.stdin.take().unwrap().write_all(b"say from\nsay stdin\n").unwrap();
    let out = String::from_utf8(piped.wait_with_output().unwrap().stdout).unwrap();
    assert!(out.contains("\nfrom") && out.contains("stdin\n"), "{out}");
}
