//! The commands of the drawn client, each in a story; and its keys, one by one.

use std::time::Instant;

use serde_json::Value;

use crate::server::drawn::{chat, drawn};
use crate::server::pty::{Home, Terminal};
use crate::server::world::TEST_TIMEOUT;

/// Ours with their arguments, and one that the agent advertises.
#[test]
fn models_modes_and_the_agents_commands_are_chosen() {
    let home = Home::new();
    let mut chat = chat(&home, 30, 100);
    chat.sees("what the agent offers", |screen| screen.contains("Small"));
    chat.type_in("/model \r");
    chat.sees("the models", |screen| {
        screen.contains("● small  Small") && screen.contains("○ large  Large")
    });
    chat.type_in("/model large\r");
    chat.sees("it in the status line", |screen| screen.contains("echo · Large · Normal"));
    chat.type_in("/mode \r");
    chat.sees("the modes", |screen| screen.contains("● normal  Normal"));
    chat.type_in("/mode quiet\r");
    chat.sees("it in the status line", |screen| screen.contains("echo · Large · Quiet"));
    chat.type_in("/mode none\r");
    chat.sees_text("Error: ");
    chat.type_in("/status\r");
    chat.sees("where it stands", |screen| screen.contains("status   idle"));
    // What the agent has is completed, and goes to it.
    chat.type_in("commands\r");
    chat.sees("the end of the turn", |screen| !screen.contains("esc interrupts"));
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        chat.type_in("/rec");
        chat.sees_text("> /rec");
        if chat.screen().contains("Recall a value (agent)") {
            break;
        }
        assert!(Instant::now() < until, "{}", chat.screen());
        chat.type_in("\x15");
        chat.sees("an empty prompt", |screen| !screen.contains("> /rec"));
    }
    chat.type_in("\tkey");
    chat.sees_text("> /recall key");
    chat.type_in("\r");
    chat.sees("what the agent was given", |screen| screen.contains("\n  /recall key\n"));
    chat.type_in("\x04");
    assert!(chat.ends().0);
}

fn text(home: &Home, name: &str) -> Option<String> {
    std::fs::read_to_string(home.folder.path().join(name)).ok()
}

/// Waits until so many checkpoints have their files.
fn until_saved(home: &Home, count: usize) {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        let output = home.piton(&["--json", "sessions", "checkpoints", "@last"]).output().unwrap();
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let all = listed["checkpoints"].as_array().map(Vec::as_slice).unwrap_or_default();
        if all.iter().filter(|one| one["has_files"] == true).count() >= count {
            return;
        }
        assert!(Instant::now() < until, "{listed}");
    }
}

/// `/checkpoint`, `/rewind` and `/undo` with their options: what would happen, what others changed, and
/// a turn that runs.
#[test]
fn a_turn_is_taken_back_and_returned() {
    // Data and workspace apart: what the server writes is no change of the workspace.
    let home = Home::new();
    let work = home.folder.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let mut command = drawn(home.piton(&["chat"]));
    command.current_dir(&work);
    let mut chat = Terminal::run_sized(command, 30, 100);
    chat.sees("a prompt", |screen| {
        screen.contains("Ask for something") && !screen.contains("starting")
    });
    chat.type_in("run printf one > a.txt\r");
    chat.sees("a tool", |screen| screen.contains("run printf one") || screen.contains("✓"));
    until_saved(&home, 2);
    chat.type_in("run printf two > a.txt\r");
    until_saved(&home, 4);
    chat.type_in("/checkpoint\r");
    chat.sees("four of them", |screen| {
        screen.matches("before a turn").count() == 2 && screen.matches("after a turn").count() == 2
    });
    chat.type_in("/rewind --all\r");
    chat.sees_text("/rewind has no --all");
    chat.type_in("/rewind --dry-run\r");
    chat.sees("what would happen", |screen| {
        screen.contains("~ a.txt") && screen.contains("1 file would be restored.")
    });
    assert_eq!(text(&home, "work/a.txt").as_deref(), Some("two"));
    chat.type_in("/rewind 1\r");
    chat.sees_text("1 file is restored.");
    assert_eq!(text(&home, "work/a.txt").as_deref(), Some("one"));
    // Another client changes it: refused, unless it is forced.
    std::fs::write(work.join("a.txt"), "by hand").unwrap();
    chat.type_in("/undo\r");
    chat.sees_text("Error: ");
    assert_eq!(text(&home, "work/a.txt").as_deref(), Some("by hand"));
    chat.type_in("/undo --force\r");
    chat.sees("the second restore", |screen| screen.matches("1 file is restored.").count() == 2);
    assert_eq!(text(&home, "work/a.txt").as_deref(), Some("two"));
    // A turn that runs is cancelled if that is said. Its agent has to start first.
    chat.type_in("wait 60000\r");
    chat.sees("a turn", |screen| screen.contains(" working ") && !screen.contains("sending wait"));
    chat.type_in("/rewind --conversation\r");
    chat.sees("a refusal", |screen| screen.contains("is still at work"));
    assert!(chat.screen().contains(" working "), "{}", chat.screen());
    chat.type_in("/rewind --conversation --cancel\r");
    chat.sees("the end of the turn", |screen| {
        screen.contains("The conversation continues at") && !screen.contains("esc interrupts")
    });
    chat.type_in("\x04");
    assert!(chat.ends().0);
}

/// From session to session without leaving: a new one, one by its id, a copy; paused, continued, closed.
#[test]
fn sessions_are_begun_copied_paused_and_closed_by_lines() {
    let home = Home::new();
    let mut chat = chat(&home, 30, 100);
    chat.type_in("say in the first\r");
    chat.sees("an answer", |screen| screen.contains("\n  in the first\n"));
    let first = home.last_id();
    chat.type_in("/new\r");
    chat.sees("another session", |screen| {
        screen.matches("New session").count() == 2 && screen.contains("Ask for something")
    });
    chat.type_in("say in the second\r");
    chat.sees("an answer", |screen| screen.contains("\n  in the second\n"));
    chat.type_in("/attach\r");
    chat.sees_text("Name the session");
    chat.type_in(&format!("/attach {}\r", &first[first.len() - 8..]));
    chat.sees("the first again", |screen| screen.matches("\n  in the first\n").count() == 2);
    chat.sees("its prompt", |screen| {
        screen.contains("Ask for something") && !screen.contains("starting")
    });
    chat.type_in("/fork\r");
    chat.sees("a copy", |screen| {
        screen.matches("\n· say in the first · echo").count() == 2
            && screen.contains("Ask for something")
            && !screen.contains("starting")
    });
    chat.type_in("wait 60000\r");
    chat.sees_text("esc interrupts");
    let copy = home.last_id();
    assert_ne!(copy, first);
    chat.type_in("/pause\r");
    chat.sees("a paused turn", |screen| {
        screen.to_lowercase().contains("paused") && !screen.contains("esc interrupts")
    });
    assert_eq!(home.last_session()["status"], "paused");
    chat.type_in("/close\r");
    chat.sees_text("closed");
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        let output = home.piton(&["--json", "sessions", "show", &copy]).output().unwrap();
        let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
        if ["completed", "cancelled", "failed"].iter().any(|end| shown["status"] == *end) {
            break;
        }
        assert!(Instant::now() < until, "{shown}");
    }
    chat.type_in("/quit\r");
    let (good, screen) = chat.ends();
    assert!(good && screen.contains(&format!("attach {copy}")), "{screen:?}");
}

/// Ctrl-C stops the turn; in the same turn, it leaves: an agent that does not stop stays with its turn.
#[test]
fn a_second_ctrl_c_leaves_the_agent_to_its_turn() {
    let home = Home::new();
    let mut chat = chat(&home, 24, 80);
    chat.type_in("hang\r");
    chat.sees_text("esc interrupts");
    chat.type_in("\x03");
    chat.sees("that it is stopping", |screen| screen.contains("stopping"));
    chat.type_in("\x03");
    let (good, screen) = chat.ends();
    assert!(good && screen.contains("Come back with: "), "{screen:?}");
    let shown = home.piton(&["--json", "sessions", "show", &home.last_id()]).output().unwrap();
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["is_agent_running"], true, "{shown}");
    // And one that stops, stops: the next Ctrl-C is the first of its turn again.
    let mut chat = crate::server::drawn::chat(&home, 24, 80);
    for _ in 0..2 {
        chat.type_in("wait 60000\r");
        chat.sees_text("esc interrupts");
        chat.type_in("\x03");
        chat.sees("the end of the turn", |screen| {
            screen.contains("Ask for something") && !screen.contains("esc interrupts")
        });
    }
    chat.type_in("\x04");
    assert!(chat.ends().0);
}

/// Emacs and word keys, as terminals send them: each moves or cuts what it says.
#[test]
fn each_key_of_the_prompt_does_what_it_says() {
    let home = Home::new();
    let mut chat = chat(&home, 24, 80);
    chat.type_in("one two three");
    chat.sees_text("> one two three");
    for (keys, what, text) in [
        ("\x1bbX", "alt-b", "> one two Xthree"),
        ("\x08\x1bb\x1bb\x1bfX", "ctrl-h, alt-f", "> oneX two three"),
        ("\x7f\x01X", "ctrl-a", "> Xone two three"),
        ("\x7f\x06\x06X", "ctrl-f", "> onXe two three"),
        ("\x02\x04", "ctrl-b, ctrl-d", "> one two three"),
        ("\x05X", "ctrl-e", "> one two threeX"),
        ("\x7f\x1b[1;5D\x1b[1;5DX", "ctrl-left", "> one Xtwo three"),
        ("\x7f\x1b[1;5CX", "ctrl-right", "> one twoX three"),
        ("\x7f\x1b[HX", "home", "> Xone two three"),
        ("\x7f\x1b[FX", "end", "> one two threeX"),
        ("\x7f\x1b[D\x1b[CX", "left, right", "> one two threeX"),
        ("\x7f\x1b\x7f", "alt-backspace", "> one two"),
        ("\x19", "ctrl-y", "> one two three"),
        ("\x01\x1bd", "alt-d", ">  two three"),
        ("\x19", "ctrl-y again", "> one two three"),
        ("\x0b", "ctrl-k", "> one"),
        ("\x19", "ctrl-y a third time", "> one two three"),
        ("\x15\x19\x19", "ctrl-u", "> one two threeone two three"),
        ("\x1a\x1a", "ctrl-z", "> Ask for something"),
        ("\x18", "ctrl-x", "> one two three"),
        ("\x17", "ctrl-w", "> one two"),
        ("ab\x1bt", "alt-t", "> one two ba"),
        ("\x1b<X", "alt-<", "> Xone two ba"),
        ("\x7f\x1b>X", "alt->", "> one two baX"),
    ] {
        chat.type_in(keys);
        chat.sees(what, |screen| screen.lines().any(|line| line.trim_end() == text));
    }
    // The screen is cleared, and the prompt is there.
    chat.type_in("\x0c");
    chat.sees("the prompt on top", |screen| {
        screen.lines().next().is_some_and(|line| line.contains("one two baX") || line.is_empty())
            && screen.contains("> one two baX")
            && !screen.contains("New session")
    });
    chat.type_in("\x15say sent\r");
    chat.sees("an answer", |screen| screen.contains("\n  sent\n"));
    chat.type_in("say more\r");
    chat.sees("an answer", |screen| screen.contains("\n  more\n"));
    chat.type_in("half\x10\x10");
    chat.sees("ctrl-p twice", |screen| screen.matches("> say sent").count() == 2);
    chat.type_in("\x0e");
    chat.sees("ctrl-n", |screen| screen.matches("> say more").count() == 2);
    chat.type_in("\x0e");
    chat.sees_text("> half");
    chat.type_in("\x03\x03");
    assert!(chat.ends().0);
}
