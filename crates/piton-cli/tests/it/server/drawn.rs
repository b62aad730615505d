//! The terminal client, drawn: keys, pastes, sizes, requests, and deaths of everything around it, seen
//! through a terminal emulator.

use std::process::Command;

use rustix::process::{Signal, kill_process};

use crate::server::pty::{Home, Terminal};

/// As people have it, in a terminal that does not wrap its rows again, as the emulator.
pub(crate) fn drawn(mut command: Command) -> Command {
    command.env_remove("NO_COLOR").env("TERM", "xterm-256color").env_remove("COLUMNS");
    command.env("XTERM_VERSION", "emulated").env_remove("TMUX");
    command
}

pub(crate) fn chat(home: &Home, rows: u16, columns: u16) -> Terminal {
    let mut chat = Terminal::run_sized(drawn(home.piton(&["chat"])), rows, columns);
    chat.sees("a prompt", |screen| {
        screen.contains("Ask for something") && !screen.contains("starting")
    });
    chat
}

/// Longer than the delays before and behind a key that answers a request.
pub(crate) fn let_keys_count() {
    std::thread::sleep(std::time::Duration::from_millis(700));
}

/// Every key of the editor does what it says, on what is seen as one character.
#[test]
fn a_prompt_is_edited_before_it_is_sent() {
    let home = Home::new();
    let mut chat = chat(&home, 24, 80);
    // Left, word left, line start, line end, kill and yank, undo.
    chat.type_in("say 日本 twoo words");
    chat.type_in("\x1bb\x1b[D\x7f");
    chat.sees_text("> say 日本 two words");
    chat.type_in("\x01\x1b[C\x1b[C\x1b[C\x1b[C\x1b[3~\x05!");
    chat.sees_text("> say 本 two words!");
    chat.type_in("\x17\x1a");
    chat.sees_text("> say 本 two words!");
    // A new line by Alt-Enter, by a backslash, by Ctrl-J; nothing is sent yet.
    chat.type_in("\x1b\rsay b\\\rsay c\nsay d");
    chat.sees("four lines", |screen| {
        screen.contains("> say 本 two words!\n  say b\n  say c\n  say d")
    });
    chat.type_in("\r");
    chat.sees("an answer", |screen| {
        screen.contains("\n  d\n") && screen.contains("Ask for something")
    });
    let screen = chat.screen();
    for line in ["> say 本 two words!", "  say d", "  本 two words!"] {
        assert!(screen.contains(line), "{line} is not on\n{screen}");
    }
    // The prompt before, by its key and by a search.
    chat.type_in("\x1b[A");
    chat.sees("the prompt again", |screen| screen.matches("say c").count() == 2);
    chat.type_in("\x03");
    chat.sees_text("Cleared");
    chat.type_in("say other\r");
    chat.sees("an answer", |screen| screen.contains("\n  other\n"));
    chat.type_in("\x12two");
    chat.sees("what was found", |screen| {
        screen.contains("search \"two\"") && screen.matches("say c").count() == 2
    });
    chat.type_in("\x1b");
    chat.sees("no search", |screen| !screen.contains("search \""));
    chat.type_in("\x03\x03");
    let (good, screen) = chat.ends();
    assert!(good && screen.contains("Come back with: "), "{screen}");
}

/// The ways to continue without the agent's own conversation are shown as what is typed for them, and
/// typing one takes it; a word that is none goes nowhere.
#[test]
fn the_choices_of_a_lost_context_are_typed() {
    let home = Home::new();
    let mut chat = chat(&home, 24, 100);
    chat.type_in("remember colour blue\r");
    chat.sees("an answer", |screen| {
        screen.contains("remembered colour") && screen.contains("enter send")
    });
    chat.type_in("/resume histroy\r");
    chat.sees_text("/resume takes nothing");
    chat.type_in("/resume fresh\r");
    chat.sees("the choices", |screen| {
        screen.contains("The agent started without its conversation")
            && screen.contains("Continue with history: /resume history")
            && screen.contains("New session: /new")
    });
    chat.type_in("/resume history\r");
    chat.sees("the history", |screen| screen.contains("carries the"));
    chat.type_in("\x03\x03");
    chat.ends();
}

/// A paste of many lines is one prompt, and arrives whole; a mistyped command goes nowhere.
#[test]
fn a_paste_is_one_prompt_and_a_mistyped_command_is_none() {
    let home = Home::new();
    let mut chat = chat(&home, 24, 80);
    let lines: Vec<String> = (1..=40).map(|n| format!("say line {n}")).collect();
    chat.type_in(&format!("\x1b[200~{}\x1b[201~", lines.join("\r")));
    chat.sees_text("> [Pasted 40 lines]");
    chat.type_in("\r");
    chat.sees("the last answer", |screen| screen.contains("\n  line 40\n"));
    let all = chat.scrollback();
    for n in 1..=40 {
        assert_eq!(all.matches(&format!("\n  line {n}\n")).count(), 1, "line {n}\n{all}");
    }
    chat.type_in("/hlep\r");
    chat.sees_text("There is no command /hlep. Did you mean /help?");
    chat.type_in("\x15/sta\t\r");
    chat.sees_text("status   ");
    chat.type_in("!echo from the shell; exit 3\r");
    chat.sees("its output", |screen| screen.contains("    from the shell\n  exit 3"));
    chat.type_in("/quit\r");
    assert!(chat.ends().0);
}

/// A request shows all of its command; what is typed before keys count is typed, and answers nothing.
#[test]
fn a_request_is_answered_by_a_key_that_was_pressed_for_it() {
    let home = Home::new();
    let mut chat = chat(&home, 24, 80);
    // Typed at once behind the prompt: it is there before the request is.
    chat.type_in("ask-run echo done\rsay 1 typed early");
    chat.sees("the request and what was typed", |screen| {
        screen.contains("│ Run this command?") && screen.contains("> say 1 typed early")
    });
    assert!(chat.screen().contains("echo done"), "{}", chat.screen());
    chat.sees("keys that count", |screen| {
        screen.contains("1 Allow") || screen.contains("m reject")
    });
    // The prompt has the keys, until they are given to the request.
    chat.sees_text("tab, then a key answers");
    chat.type_in("\t");
    let_keys_count();
    chat.type_in("1");
    chat.sees("the answer", |screen| screen.contains("→ ") && !screen.contains("│ Run this"));
    chat.sees("what was typed", |screen| screen.contains("> say 1 typed early"));
    chat.type_in("\r");
    chat.sees("its answer", |screen| screen.contains("\n  1 typed early\n"));
    chat.type_in("\x04");
    assert!(chat.ends().0);
}

/// Any size at any moment: the prompt stays, and nothing that was said is lost.
#[test]
fn a_terminal_is_resized_while_an_answer_streams() {
    let home = Home::new();
    let mut chat = chat(&home, 24, 80);
    chat.type_in("stream 60 20\r");
    chat.sees_text("chunk 3 ");
    for (rows, columns) in [(24, 60), (10, 40), (6, 20), (30, 120), (24, 80)] {
        chat.resize(rows, columns);
        chat.type_in("x");
        chat.sees("the prompt", |screen| screen.contains("> x"));
    }
    chat.sees("the end of the turn", |screen| {
        screen.contains("Ask for something") || screen.contains("> xxxxx\n")
    });
    chat.sees_text("chunk 60");
    chat.type_in("\x03\x03");
    assert!(chat.ends().0);
}

/// `kill -9` of the terminal, then of the server: what was typed, queued and said is all there.
#[test]
fn a_draft_and_a_queue_outlive_the_terminal_and_the_server() {
    let home = Home::new();
    let mut first = chat(&home, 24, 80);
    first.type_in("say begun\x1b\rwait 6000\r");
    first.sees("a turn", |screen| {
        screen.contains("esc interrupts") && screen.contains("\n  begun\n")
    });
    first.type_in("say queued one\r");
    first.sees("a queue", |screen| screen.contains("queued say queued one"));
    first.type_in("half a sen");
    first.sees_text("> half a sen");
    first.kill();

    let mut second = Terminal::run_sized(drawn(home.piton(&["chat", "--continue"])), 24, 80);
    second.sees("all of it", |screen| {
        screen.contains("> half a sen") && screen.contains("queued say queued one")
    });
    kill_process(home.server_pid(), Signal::KILL).unwrap();
    second.sees_text("A new server took over. Nothing was lost.");
    second.sees("the queued prompt's answer", |screen| screen.contains("\n  queued one\n"));
    second.type_in("tence");
    second.sees_text("> half a sentence");
    second.type_in("\x03\x03");
    assert!(second.ends().0);
}

/// The transcript shows all; the dashboard has the session, and leads to it and back.
#[test]
fn the_transcript_and_the_dashboard_fill_the_screen() {
    let home = Home::new();
    let mut chat = chat(&home, 16, 100);
    chat.type_in("think first line\x1b\rsay the answer\r");
    chat.sees_text("  the answer");
    chat.type_in("\x14");
    chat.sees("the transcript", |screen| {
        screen.starts_with("Transcript") && screen.contains("q closes")
    });
    chat.type_in("q");
    chat.sees("the chat", |screen| {
        screen.contains("Ask for something") && !screen.contains("q closes")
    });
    chat.type_in("\x04");
    assert!(chat.ends().0);

    let mut top = Terminal::run_sized(drawn(home.piton(&["top"])), 16, 100);
    top.sees("the session and its preview", |screen| {
        screen.starts_with("Piton") && screen.contains("1 session") && screen.contains("the answer")
    });
    top.type_in("\r");
    top.sees_text("Ask for something");
    top.type_in("\x04");
    top.sees("the dashboard again", |screen| screen.starts_with("Piton"));
    top.type_in("q");
    assert!(top.ends().0);
}
