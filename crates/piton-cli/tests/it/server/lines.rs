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
    // Its turn has ended: the next one is not queued.
    chat.await_prompt_below("日語");
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

/// A script gets the answer alone, or every record of the turn and how it ended.
#[test]
fn a_script_chooses_what_is_printed() {
    let home = Home::new();
    let printed = |format: &str| {
        let arguments = ["chat", "--print", "think hm\nsay 42", "--output-format", format];
        let output = home.piton(&arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(printed("text"), "42\n");
    let printed = printed("stream-json");
    let lines: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = lines.iter().filter_map(|line| line["kind"].as_str()).collect();
    for kind in ["run.started", "message.user", "message.completed", "run.completed"] {
        assert!(kinds.contains(&kind), "{kind} is not in {kinds:?}");
    }
    assert_eq!(lines.last().unwrap()["outcome"], "completed", "{printed}");
}
