//! The drawn client, key by key: the picker, the editor outside, files, the queue, model and mode, a
//! rejection with its reason, rules, two terminals at once, hostile text and huge pastes; and the
//! dashboard's answer.

use crate::server::drawn::{chat, drawn, let_keys_count};
use crate::server::pty::{Home, Terminal};

#[test]
fn a_session_is_picked_from_a_list_and_given_the_next_prompt() {
    let home = Home::new();
    let mut first = chat(&home, 24, 80);
    first.type_in("say the first session\r");
    first.sees("an answer", |screen| screen.contains("\n  the first session\n"));
    first.type_in("\x04");
    assert!(first.ends().0);
    let mut picker = Terminal::run_sized(drawn(home.piton(&["chat", "--resume"])), 24, 80);
    picker.sees("the picker with its title", |screen| {
        screen.starts_with("Resume a session") && screen.contains("say the first session")
    });
    picker.type_in("\r");
    picker.sees_text("Ask for something");
    picker.type_in("\x04");
    assert!(picker.ends().0);
    let mut picker = Terminal::run_sized(drawn(home.piton(&["chat", "--resume"])), 24, 80);
    picker.sees_text("n new");
    picker.type_in("n");
    picker.sees("a new session", |screen| screen.contains("New session"));
    picker.sees_text("Ask for something");
    picker.type_in("\x04");
    assert!(picker.ends().0);
    let command = home.piton(&["chat", "--continue", "say continued"]);
    let mut next = Terminal::run_sized(drawn(command), 24, 80);
    next.sees("its answer", |screen| screen.contains("\n  continued\n"));
    next.type_in("\x04");
    assert!(next.ends().0);
}

#[test]
fn the_prompt_is_edited_outside_and_files_are_completed() {
    let home = Home::new();
    let mut command = drawn(home.piton(&["chat"]));
    command.env("EDITOR", "sh -c 'printf \"say from the editor\" > \"$1\"' sh");
    let mut chat = Terminal::run_sized(command, 24, 80);
    chat.sees("a prompt", |screen| {
        screen.contains("Ask for something") && !screen.contains("starting")
    });
    chat.type_in("\x07");
    chat.sees_text("> say from the editor");
    // Shift-Enter, as terminals report it that report it.
    chat.type_in("\x1b[13;2usay below");
    chat.sees("two lines", |screen| screen.contains("> say from the editor\n  say below"));
    chat.type_in("\r");
    chat.sees("both answers", |screen| screen.contains("\n  below\n"));
    chat.type_in("!touch chosen-file.txt; echo made\r");
    chat.sees_text("    made");
    chat.type_in("say @chos");
    chat.sees("the choice", |screen| screen.matches("chosen-file.txt").count() == 2);
    chat.type_in("\x7f\t");
    chat.sees_text("> say @chosen-file.txt");
    // Tab at once behind the name: it is completed as soon as its files are known.
    chat.type_in("\x15");
    chat.sees_text("Ask for something");
    chat.type_in("say @chos\t");
    chat.sees_text("> say @chosen-file.txt");
    chat.type_in("\r");
    chat.sees("its answer", |screen| screen.contains("\n  @chosen-file.txt"));
    // A search that is given up brings back what was typed.
    chat.type_in("half typed\x12below");
    chat.sees("what was found", |screen| screen.contains("search \"below\""));
    chat.type_in("\x1b");
    chat.sees_text("> half typed");
    // A shell line without an end is stopped.
    chat.type_in("\x15!yes\r");
    chat.sees_text("esc stops it");
    chat.type_in("\x1b");
    chat.sees_text("(stopped)");
    chat.type_in("\x03\x03");
    assert!(chat.ends().0);
}

#[test]
fn the_queue_is_listed_and_changed() {
    let home = Home::new();
    let mut chat = chat(&home, 24, 80);
    chat.type_in("wait 60000\r");
    chat.sees_text("esc interrupts");
    chat.type_in("say queued\r");
    chat.sees_text("queued say queued");
    chat.type_in("/queue remove 1\r");
    chat.sees("an empty queue", |screen| !screen.contains("queued say queued"));
    chat.type_in("\x1b");
    chat.sees("the end of the turn", |screen| !screen.contains("esc interrupts"));
    chat.type_in("\x04");
    assert!(chat.ends().0);
}

#[test]
fn a_request_is_rejected_with_a_reason_and_a_rule_is_written() {
    let home = Home::new();
    let settings = tempfile::tempdir().unwrap();
    let file = settings.path().join("config.toml");
    std::fs::write(&file, "[chat]\nagent = \"echo\"\n").unwrap();
    let mut command = drawn(home.piton(&["chat"]));
    command.env("PITON_CONFIG", &file);
    let mut chat = Terminal::run_sized(command, 30, 80);
    chat.sees("a prompt", |screen| {
        screen.contains("Ask for something") && !screen.contains("starting")
    });
    chat.type_in("ask-run echo one\r");
    chat.sees_text("│ Run this command?");
    let_keys_count();
    chat.type_in("r");
    chat.sees("the rule", |screen| {
        screen.contains("[[permissions.rules]]") && screen.contains("ctrl-s adds the rule")
    });
    chat.type_in("\x13");
    chat.sees_text("and counts from");
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(
        written.starts_with("[chat]\n") && written.contains("command = \"echo one\""),
        "{written}"
    );
    chat.type_in("m");
    chat.sees("a line for the reason", |screen| !screen.contains("│ Run this command?"));
    chat.type_in("say use the other\r");
    chat.sees("the reason's answer", |screen| screen.contains("\n  use the other\n"));
    chat.type_in("ask-run echo one\r");
    chat.sees("what the rule allowed", |screen| {
        screen.matches("echo one").count() >= 3 && !screen.contains("│ Run this command?")
    });
    chat.type_in("\x04");
    assert!(chat.ends().0);
}

#[test]
fn two_terminals_see_the_same_and_lose_nothing() {
    let home = Home::new();
    let mut one = chat(&home, 24, 80);
    let mut two = Terminal::run_sized(drawn(home.piton(&["attach"])), 24, 80);
    two.sees_text("Ask for something");
    one.type_in("say from one\r");
    two.sees("the other's prompt", |screen| screen.contains("\n  from one\n"));
    two.type_in("say from two\r");
    one.sees("the other's prompt", |screen| screen.contains("\n  from two\n"));
    one.type_in("\x04");
    two.type_in("\x04");
    assert!(one.ends().0 && two.ends().0);
}

#[test]
fn hostile_text_and_a_huge_paste_harm_nothing() {
    let home = Home::new();
    let mut chat = chat(&home, 24, 80);
    chat.type_in("!printf '\\033]0;owned\\007\\033[2Jcleared\\033[31mred'\r");
    chat.sees_text("^[]0;owned^G^[[2Jclearedred");
    let line = format!("say {}\r", "x".repeat(95));
    let paste = line.repeat(10_000);
    chat.type_in(&format!("\x1b[200~{paste}\x1b[201~"));
    chat.sees_text("[Pasted 10000 lines");
    chat.type_in("\x03");
    chat.sees_text("Cleared");
    chat.type_in("say still here\r");
    chat.sees("an answer", |screen| screen.contains("\n  still here\n"));
    chat.type_in("\x04");
    assert!(chat.ends().0);
}

/// From the list, by keys alone: the whole command is shown, and early keys answer nothing.
#[test]
fn the_dashboard_answers_a_request() {
    let home = Home::new();
    let mut chat = chat(&home, 24, 80);
    chat.type_in("ask-run echo from the dashboard\r");
    chat.sees_text("│ Run this command?");
    chat.kill();
    let mut top = Terminal::run_sized(drawn(home.piton(&["top"])), 24, 80);
    top.sees_text("1 need you");
    top.type_in("?");
    top.sees("the keys", |screen| screen.contains("answer its permission request"));
    top.type_in("xa1");
    top.sees("the whole command", |screen| {
        screen.contains("│ Run this command?") && screen.contains("echo from the dashboard")
    });
    let_keys_count();
    top.type_in("1");
    top.sees_text("Answered: ");
    top.sees("a run that went on", |screen| !screen.contains("need you"));
    rustix::process::kill_process(home.server_pid(), rustix::process::Signal::KILL).unwrap();
    top.sees_text("A new server took over. Nothing was lost.");
    top.type_in("q");
    assert!(top.ends().0);
}
