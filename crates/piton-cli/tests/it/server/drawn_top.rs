//! The dashboard by keys: what each does to a session; and screens of 20 columns.

use std::time::{Duration, Instant};

use crate::server::drawn::{chat, drawn};
use crate::server::pty::{Home, Terminal};
use crate::server::world::TEST_TIMEOUT;

/// A run that is interrupted because its agent dies.
fn interrupted(home: &Home, prompt: &str) {
    let output =
        home.piton(&["chat", "--print", &format!("say {prompt}\ncrash")]).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
}

/// `d`, `r`, `f`, `n` and `/`.
#[test]
fn each_key_of_the_dashboard_does_what_it_says() {
    let home = Home::new();
    interrupted(&home, "to dismiss");
    let mut top = Terminal::run_sized(drawn(home.piton(&["top"])), 30, 100);
    top.sees("what needs somebody", |screen| {
        screen.contains("1 need you") && screen.contains("Interrupted.")
    });
    top.type_in("d");
    top.sees("that it is dismissed", |screen| {
        screen.contains("The interruption is dismissed.") && !screen.contains("need you")
    });
    interrupted(&home, "to resume");
    top.sees_text("1 need you");
    // It stands first; the one before stays chosen.
    top.type_in("k");
    top.sees("it in the preview", |screen| screen.contains("│ > say to resume"));
    top.type_in("r");
    top.sees_text("The session is resumed.");
    // Its agent tells what it knows, and the run ends.
    top.sees("a run that went on", |screen| !screen.contains("need you"));
    top.type_in("/to dis");
    top.sees("what fits", |screen| screen.contains("/to dis") && !screen.contains("say to resume"));
    top.type_in("\rf");
    top.sees("a copy", |screen| {
        screen.contains("· New session · echo")
            && screen.contains("Ask for something")
            && !screen.contains("starting")
    });
    top.type_in("say in the copy\r");
    top.sees("an answer", |screen| screen.contains("\n  in the copy\n"));
    top.type_in("\x04");
    top.sees("the dashboard", |screen| {
        screen.starts_with("Piton") && screen.contains("3 sessions")
    });
    top.type_in("n");
    top.sees("a new session", |screen| {
        screen.matches("· New session · echo").count() == 2
            && screen.contains("Ask for something")
            && !screen.contains("starting")
    });
    top.type_in("\x04");
    top.sees_text("4 sessions");
    top.type_in("q");
    assert!(top.ends().0);
}

/// The narrowest screen: everything that leads on is there, and a resize to it harms nothing.
#[test]
fn twenty_columns_are_enough() {
    let home = Home::new();
    let mut chat = chat(&home, 14, 80);
    chat.type_in("say a few words that are wider than the screen\r");
    chat.sees_text("\n  a few words");
    chat.resize(14, 20);
    chat.type_in("x");
    chat.sees_text("> x");
    chat.type_in("\x14");
    chat.sees("the transcript", |screen| {
        screen.starts_with("Transcript") && screen.contains("  the screen")
    });
    chat.type_in("q");
    chat.sees("the prompt", |screen| screen.contains("> x") && !screen.contains("answering"));
    chat.type_in("\x7f\x04");
    assert!(chat.ends().0);
    let mut top = Terminal::run_sized(drawn(home.piton(&["top"])), 14, 20);
    top.sees("the session", |screen| screen.starts_with("Piton") && screen.contains("say a few"));
    top.type_in("?");
    top.sees("the keys", |screen| screen.starts_with("Keys") && screen.contains("  q  esc"));
    top.type_in("xt");
    top.sees("the timeline", |screen| screen.starts_with("Timeline") && screen.contains("before"));
    for (rows, columns) in [(6, 20), (14, 60), (14, 20)] {
        top.resize(rows, columns);
        top.sees("the timeline", |screen| screen.starts_with("Timeline"));
    }
    top.type_in("q");
    top.sees("the list", |screen| screen.starts_with("Piton"));
    top.type_in("q");
    assert!(top.ends().0);
}

/// A dashboard that rests asks nothing: what wakes it is counted by the kernel.
#[test]
fn an_idle_dashboard_sleeps() {
    let home = Home::new();
    let mut chat = chat(&home, 24, 80);
    chat.type_in("say something\r");
    chat.sees_text("\n  something\n");
    chat.type_in("\x04");
    assert!(chat.ends().0);
    let mut top = Terminal::run_sized(drawn(home.piton(&["top"])), 24, 80);
    top.sees_text("1 session");
    let until = Instant::now() + TEST_TIMEOUT;
    let mut woken = u64::MAX;
    // The first seconds are the start's.
    while woken > 1 {
        let before = top.wake_ups();
        std::thread::sleep(Duration::from_secs(4));
        woken = top.wake_ups() - before;
        assert!(Instant::now() < until, "{woken} wake-ups in 4 seconds");
    }
    top.type_in("q");
    assert!(top.ends().0);
}
