//! How the drawn client ends: by an error, a signal, a terminal that is closed or read too slowly. What
//! was typed and said is there for the next one, and the terminal is as it was.

use std::time::Instant;

use rustix::process::Signal;

use crate::server::drawn::{chat, drawn};
use crate::server::pty::{Home, Terminal};
use crate::server::world::TEST_TIMEOUT;

/// The session is deleted elsewhere while the transcript is open: the terminal shows what was printed
/// before, and why the chat ended.
#[test]
fn an_error_leaves_the_terminal_as_it_was() {
    let home = Home::new();
    let mut chat = chat(&home, 24, 80);
    chat.type_in("say before the end\r");
    chat.sees("an answer", |screen| screen.contains("\n  before the end\n"));
    chat.type_in("\x14");
    chat.sees("the transcript", |screen| screen.starts_with("Transcript"));
    assert!(chat.is_full());
    let id = home.last_id();
    let closed = home.piton(&["sessions", "close", &id]).output().unwrap();
    assert!(closed.status.success(), "{closed:?}");
    // As soon as its agent has ended.
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        let deleted = home.piton(&["sessions", "delete", "--yes", &id]).output().unwrap();
        if deleted.status.success() {
            break;
        }
        assert!(Instant::now() < until, "{deleted:?}");
    }
    let (good, screen) = chat.ends();
    let entered = screen.rfind("\x1b[?1049h").unwrap();
    for restored in ["\x1b[?1049l", "\x1b[?1000l", "\x1b[?1006l", "\x1b[?2004l", "\x1b[?25h"] {
        let at = screen.rfind(restored);
        assert!(at.is_some_and(|at| at > entered), "{restored:?} is not in {screen:?}");
    }
    let left = screen.rfind("\x1b[?1049l").unwrap();
    assert!(!good && screen[left..].contains("There is no session"), "{screen:?}");
}

/// An editor that takes the file away: the prompt is as it was, and the chat continues.
#[test]
fn an_editor_that_fails_ends_nothing() {
    let home = Home::new();
    let mut command = drawn(home.piton(&["chat"]));
    command.env("EDITOR", "rm");
    let mut chat = Terminal::run_sized(command, 24, 120);
    chat.sees("a prompt", |screen| {
        screen.contains("Ask for something") && !screen.contains("starting")
    });
    chat.type_in("say kept\x07");
    chat.sees("why, and the prompt", |screen| {
        screen.contains("the prompt is as it was") && screen.contains("> say kept")
    });
    chat.type_in("\r");
    chat.sees("its answer", |screen| screen.contains("\n  kept\n"));
    chat.type_in("\x04");
    assert!(chat.ends().0);
}

/// SIGHUP, and a terminal that is closed: the turn continues, and what was typed is in the next terminal.
#[test]
fn a_terminal_that_goes_away_takes_nothing_with_it() {
    let home = Home::new();
    let mut first = chat(&home, 24, 80);
    first.type_in("wait 1500\x1b\rsay after the terminal\r");
    first.sees_text("esc interrupts");
    first.type_in("half a sen");
    first.sees_text("> half a sen");
    first.signal(Signal::HUP);
    let (good, screen) = first.ends();
    assert!(good && screen.ends_with("\r\n") && screen.contains("attach sess_"), "{screen:?}");
    let mut second = Terminal::run_sized(drawn(home.piton(&["chat", "--continue"])), 24, 80);
    second.sees("the draft and the answer", |screen| {
        screen.contains("> half a sen") && screen.contains("\n  after the terminal\n")
    });
    second.type_in("tence\x14");
    second.sees("the transcript", |screen| screen.starts_with("Transcript"));
    // It has nowhere to print to, and ends all the same.
    let _ = second.close();
    let mut third = Terminal::run_sized(drawn(home.piton(&["chat", "--continue"])), 24, 80);
    third.sees_text("> half a sentence");
    third.type_in("\x03\x03");
    assert!(third.ends().0);
}

/// A terminal that is not read for a while, as over a slow connection: the turn does not wait for it,
/// and all of the answer and all that was typed is there when it is read again.
#[test]
fn output_faster_than_the_terminal_is_not_lost() {
    const CHUNKS: usize = 5_000;
    let home = Home::new();
    let mut chat = chat(&home, 24, 80);
    chat.type_in(&format!("stream {CHUNKS}\r"));
    chat.sees_text("chunk 1 ");
    chat.pause_reading();
    chat.type_in("typed meanwhile");
    let until = Instant::now() + TEST_TIMEOUT;
    while home.last_session()["status"] != "idle" {
        assert!(Instant::now() < until, "the turn waits for the terminal");
    }
    chat.resume_reading();
    chat.sees("the end of the turn, and the prompt", |screen| {
        screen.contains("> typed meanwhile")
            && screen.contains(&format!("chunk {CHUNKS}"))
            && !screen.contains("esc interrupts")
    });
    let all = chat.scrollback();
    let words: Vec<&str> = all.split_whitespace().collect();
    let said =
        words.windows(2).filter(|pair| pair[0] == "chunk").map(|pair| pair[1].parse::<usize>());
    let said: Vec<usize> = said.map(Result::unwrap).collect();
    assert!(said.iter().copied().eq(1..=CHUNKS), "{said:?}");
    chat.type_in("\x03\x03");
    assert!(chat.ends().0);
}
