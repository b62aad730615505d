//! Whole screens of one story at three widths, as people see them; and text that means harm.

use std::process::Command;

use insta::assert_snapshot;

use crate::server::drawn::{drawn, let_keys_count};
use crate::server::pty::{Home, Terminal};

/// In a folder with a name, below a home folder of its own.
fn in_project(home: &Home, arguments: &[&str]) -> Command {
    let project = home.folder.path().canonicalize().unwrap().join("api");
    std::fs::create_dir_all(&project).unwrap();
    let mut command = drawn(home.piton(arguments));
    command.env("HOME", project.parent().unwrap()).current_dir(project);
    command
}

/// The screen, with ids and a home folder that are the same each time.
fn stable(home: &Home, terminal: &Terminal) -> String {
    let mut shown = String::new();
    let folder = home.folder.path().canonicalize().unwrap();
    let mut rest = terminal.screen().replace(folder.to_str().unwrap(), "/repo");
    while let Some(at) = rest.find("sess_") {
        let (before, id) = rest.split_at(at + "sess_".len());
        shown.push_str(before);
        let digits = id.len() - id.trim_start_matches(|c: char| c.is_ascii_hexdigit()).len();
        shown.push_str(&"0".repeat(digits));
        rest = id[digits..].to_owned();
    }
    shown.push_str(&rest);
    shown.lines().map(|line| without_seconds(line).trim_end()).collect::<Vec<_>>().join("\n")
}

/// A line without the time that a tool took: it is shown from a second on.
fn without_seconds(line: &str) -> &str {
    let is_time =
        |text: &str| text.strip_suffix(" s").is_some_and(|number| number.parse::<f64>().is_ok());
    match line.trim_end().rsplit_once("  ") {
        Some((before, time)) if is_time(time.trim()) => before,
        _ => line,
    }
}

const ANSWER: &str = "say # Result\x1b\r\
    say Two **bold** words, `code`, and a sentence that is long enough to need a second row on most screens.\x1b\r\
    usage 120\x1b\r\
    tool read tests/clock.rs\x1b\r\
    ask-write clock.txt today\\nutc";

#[test]
fn a_story_is_drawn_at_three_widths() {
    for columns in [60, 80, 200] {
        let home = Home::new();
        let mut chat = Terminal::run_sized(in_project(&home, &["chat"]), 30, columns);
        chat.sees("a prompt", |screen| {
            screen.contains("Ask for something") && !screen.contains("starting")
        });
        chat.sees_text("Small");
        assert_snapshot!(format!("begun_{columns}"), stable(&home, &chat));
        chat.type_in(ANSWER);
        chat.type_in("\r");
        chat.sees_text("│ Make this change?");
        let_keys_count();
        chat.sees("keys that count", |screen| screen.contains("1 Allow"));
        chat.sees_text("12 %");
        assert_snapshot!(format!("asked_{columns}"), stable(&home, &chat));
        chat.type_in("1");
        chat.sees("the end", |screen| {
            screen.contains("→ ") && screen.contains("Ask for something")
        });
        assert_snapshot!(format!("answered_{columns}"), stable(&home, &chat));
        chat.type_in("\x14");
        chat.sees("the transcript", |screen| screen.starts_with("Transcript"));
        assert_snapshot!(format!("transcript_{columns}"), stable(&home, &chat));
        chat.type_in("q\x04");
        assert!(chat.ends().0);
    }
}

/// What an agent says to a terminal is shown and obeyed nowhere: neither in an answer, a thought, a
/// tool's name, nor in a request.
#[test]
fn hostile_text_of_an_agent_is_drawn_harmlessly() {
    let home = Home::new();
    let mut chat = Terminal::run_sized(in_project(&home, &["chat"]), 40, 80);
    chat.sees("a prompt", |screen| {
        screen.contains("Ask for something") && !screen.contains("starting")
    });
    let evil = "a\x1b]0;owned\x07b\x1b[2Jc\x1b[31md\u{202e}e\u{9b}1Af\x1b[1Ag";
    let prompt = format!("think t{evil}\ntool n{evil}\nsay s{evil}\nask q{evil}");
    let sent = home.piton(&["sessions", "prompt", "--json", "@last", &prompt]).output().unwrap();
    assert!(sent.status.success(), "{sent:?}");
    chat.sees_text("│ Allow this?");
    let screen = chat.screen();
    for begin in ["ta", "na", "sa", "qa"] {
        assert!(screen.contains(begin), "{begin} is not on\n{screen}");
    }
    assert!(screen.contains("New session · echo"), "it was cleared:\n{screen}");
    chat.type_in("\x14");
    chat.sees("the transcript", |screen| screen.starts_with("Transcript"));
    chat.type_in("q");
    chat.sees_text("│ Allow this?");
    // Ctrl-C stops the turn, then leaves.
    chat.type_in("\x03\x03");
    let (good, printed) = chat.ends();
    assert!(good);
    for obeyed in ["\x1b]0;", "\x1b[2Jc", "\x1b[31md", "\u{9b}", "\u{202e}"] {
        assert!(!printed.contains(obeyed), "{obeyed:?} is in {printed:?}");
    }
}
