//! The line mode of the terminal client: what is typed and pasted there.

use serde_json::Value;

use crate::server::pty::{Home, Terminal};
use crate::server::terminal::colored;

/// A line has any length, a pasted block is one prompt, and Ctrl-C clears before it leaves.
#[test]
fn lines_are_long_and_a_paste_is_one_of_them() {
    let home = Home::new();
    let mut chat = Terminal::run(colored(home.piton(&["chat", "--plain"])));
    chat.await_prompt_below("Ctrl-C stops a turn, twice leaves.");
    chat.type_in(&format!("say {} end\n", "x".repeat(9_010)));
    chat.await_prompt_below("x end");
    chat.type_in("\x1b[200~say one\rsay two\x1b[201~");
    chat.type_in("\n");
    chat.await_prompt_below("two");
    chat.type_in("say gone");
    chat.shows_line("> say gone");
    chat.interrupt();
    chat.shows("cleared; Ctrl-C again leaves");
    chat.type_in("say 日本\x7f語\n");
    chat.shows_line("日語");
    // A turn that was stopped does not make the next Ctrl-C leave.
    chat.type_in("wait 60000\n");
    home.until_running();
    chat.interrupt();
    chat.await_prompt_below("-- cancelled");
    chat.interrupt();
    chat.shows("-- Ctrl-C again leaves");
    chat.interrupt();
    let (good, _) = chat.ends();
    let mut log = home.piton(&["--json", "sessions", "log", "@last", "--kind", "message.user"]);
    let log = String::from_utf8(log.output().unwrap().stdout).unwrap();
    let said: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["content"].clone())
        .collect();
    assert!(good && said.len() == 4, "{said:?}");
    assert_eq!(said[0].as_str().unwrap().len(), 9_018);
    assert_eq!(said[1], "say one\nsay two");
}
