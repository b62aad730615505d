//! Pastes and unfinished lines, wherever something can be typed: none is dropped, put over another one,
//! or lost with the terminal.

use crate::server::drawn::{chat, drawn, let_keys_count};
use crate::server::drawn_graphs::{ASKING, FAILING, run};
use crate::server::pty::{Home, Terminal};

fn pasted(text: &str) -> String {
    format!("\x1b[200~{text}\x1b[201~")
}

/// On the dashboard: into a search, a value of a checkpoint, and the answer of a graph's question.
#[test]
fn a_paste_goes_into_every_line_of_the_dashboard() {
    let home = Home::new();
    run(&home, FAILING);
    run(&home, ASKING);
    let mut top = Terminal::run_sized(drawn(home.piton(&["top"])), 24, 100);
    top.sees("both graphs", |screen| screen.contains("✗ ship") && screen.contains("● approval"));
    // Nowhere to go: said, and nothing else happens.
    top.type_in(&pasted("q"));
    top.sees_text("Nothing was pasted");
    top.type_in("/");
    top.type_in(&pasted("approval\nanother line"));
    top.sees("the one that fits", |screen| {
        screen.contains("/approval") && !screen.contains("✗ ship")
    });
    top.type_in("\ra");
    top.sees_text("1 send");
    let_keys_count();
    top.type_in("1");
    top.sees("the next question in the preview", |screen| screen.contains("Which address?"));
    top.type_in("a");
    top.sees_text("│ Which address?");
    let_keys_count();
    top.type_in("t");
    top.sees_text("answer>");
    top.type_in(&pasted("the office"));
    top.sees_text("answer> the office");
    top.type_in("\r");
    top.sees_text("Answered: the office");
    top.type_in("/\x1b");
    top.sees_text("✗ ship");
    top.type_in("/ship\rt");
    top.sees_text("failed at check");
    top.type_in("j\r");
    top.sees_text("n = 0");
    top.type_in("e\x7f");
    top.type_in(&pasted("17"));
    top.type_in("\r");
    top.sees("the value", |screen| screen.contains("n = 17") && screen.contains("set by a resume"));
    top.type_in("\x03");
    assert!(top.ends().0);
}

/// On the dashboard: why a request is rejected.
#[test]
fn a_reason_is_pasted_on_the_dashboard() {
    let home = Home::new();
    let mut chat = chat(&home, 24, 80);
    chat.type_in("ask-run echo one\r");
    chat.sees_text("│ Run this command?");
    chat.kill();
    let mut top = Terminal::run_sized(drawn(home.piton(&["top"])), 24, 80);
    top.sees_text("1 need you");
    top.type_in("a");
    top.sees_text("│ Run this command?");
    let_keys_count();
    top.type_in("m");
    top.sees_text("why?");
    top.type_in(&pasted("say the reason"));
    top.sees_text("why? say the reason");
    top.type_in("\r");
    top.sees_text("Answered: rejected");
    top.type_in("\r");
    top.sees("the reason as a prompt", |screen| screen.contains("\n  the reason\n"));
    top.type_in("\x04");
    top.sees("the dashboard", |screen| screen.starts_with("Piton"));
    top.type_in("q");
    assert!(top.ends().0);
}

/// Into a search; and what was typed before a search is not lost by taking what was found.
#[test]
fn a_paste_is_searched() {
    let home = Home::new();
    let mut chat = chat(&home, 24, 80);
    chat.type_in("say the first\r");
    chat.sees("an answer", |screen| screen.contains("\n  the first\n"));
    chat.type_in("say the second\r");
    chat.sees("an answer", |screen| screen.contains("\n  the second\n"));
    chat.type_in("half typed\x12");
    chat.type_in(&pasted("the first\r\nmore"));
    chat.sees("what was found", |screen| screen.contains("search \"the first\": say the first"));
    chat.type_in("\x05!");
    chat.sees_text("> say the first!");
    chat.type_in("\x15\x1b[A");
    chat.sees_text("> half typed");
    chat.type_in("\x03\x03");
    assert!(chat.ends().0);
}

/// A reason and a change of the queue that were being typed when the terminal died are in the prompt of
/// the next one, behind what was typed before them.
#[test]
fn a_reason_and_an_edit_outlive_the_terminal() {
    let home = Home::new();
    let mut first = chat(&home, 24, 80);
    first.type_in("ask-run echo one\r");
    first.sees_text("│ Run this command?");
    first.type_in("draft");
    first.sees_text("> draft");
    first.type_in("\t");
    let_keys_count();
    first.type_in("m");
    first.sees_text("say why you reject it");
    first.type_in("because of the build");
    first.sees_text("why? because of the build");
    first.kill();
    let mut second = Terminal::run_sized(drawn(home.piton(&["chat", "--continue"])), 24, 80);
    second.sees("both texts", |screen| screen.contains("> draft\n  because of the build"));
    // Queued behind the request; then changed.
    second.type_in("\x1b>\x15\x7f\x15");
    second.sees("an empty prompt", |screen| !screen.contains("because of the build"));
    second.type_in("say queued\r");
    second.sees_text("queued say queued");
    second.type_in("\x1b[1;3A");
    second.sees_text("queued> say queued");
    second.kill();
    // As it was, the queue has it.
    let mut third = Terminal::run_sized(drawn(home.piton(&["chat", "--continue"])), 24, 80);
    third.sees_text("queued say queued");
    assert!(!third.screen().contains("> say queued"), "{}", third.screen());
    third.type_in("\x1b[1;3A and edited");
    third.sees_text("queued> say queued and edited");
    third.kill();
    let mut fourth = Terminal::run_sized(drawn(home.piton(&["chat", "--continue"])), 24, 80);
    fourth.sees_text("> say queued and edited");
    fourth.type_in("\x03");
    fourth.kill();
}
