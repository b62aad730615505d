//! `chat` and `attach` in a real terminal.

use std::process::Command;

use insta::assert_snapshot;
use rustix::process::{Signal, kill_process};

use crate::pty::{Home, Terminal};

/// A prompt, a question answered by a key, a server that is killed, a terminal that is left, and
/// everything still there for the next one.
#[test]
fn a_conversation_outlives_its_server_and_its_terminal() {
    let home = Home::new();
    let mut chat = Terminal::run(home.piton(&["chat"]));
    chat.shows("Ctrl-C stops a turn, twice leaves.");
    chat.type_in("hello dear world\n");
    chat.shows("> hello dear world");
    chat.type_in("ask May I?\n");
    chat.shows("? May I?");
    chat.type_in("1");
    chat.type_in("say thank you\n");
    chat.shows("\r\nthank you");
    // A turn that is under way when its server is killed.
    chat.type_in("say before\nwait 3000\n");
    chat.shows("\r\nbefore");
    kill_process(home.server_pid(), Signal::KILL).unwrap();
    chat.shows("the server is away");
    // Whoever comes next starts another one; this terminal finds it.
    let listed = home.piton(&["chat", "--print", "say from elsewhere"]).output().unwrap();
    assert_eq!(String::from_utf8(listed.stdout).unwrap(), "from elsewhere\n");
    chat.type_in("say back again\n");
    chat.shows("back again");
    chat.type_in("wait 60000\n");
    chat.shows("> wait 60000");
    chat.interrupt();
    chat.shows("stopping the turn");
    chat.shows("-- cancelled");
    chat.interrupt();
    let (good, screen) = chat.ends();
    assert!(good && screen.contains("Come back with: piton attach"), "{screen}");

    let session = screen.split("piton attach ").nth(1).unwrap().trim().to_owned();
    let mut attached = Terminal::run(home.piton(&["attach", &session]));
    attached.shows("hello dear world");
    attached.shows("-- cancelled");
    attached.type_in("say still here\n");
    attached.shows("still here");
    attached.type_in("/quit\n");
    assert!(attached.ends().0);
}

#[test]
fn a_script_gets_the_answer_and_the_outcome() {
    let home = Home::new();
    let output = home.piton(&["chat", "--print", "think hm\nsay 42"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "42\n");
    // Into a pipe it goes as it was said.
    let output = home.piton(&["chat", "--print", "say **4** `2`"]).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "**4** `2`\n");
    let output = home.piton(&["chat", "--print", "crash"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let output = home.piton(&["--json", "status"]).output().unwrap();
    assert!(output.status.success());
    let output = home.piton(&["--json", "stop"]).output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().contains("\"stopped\":true"));
    assert_eq!(home.piton(&["status"]).output().unwrap().status.code(), Some(1));
    let output = home.piton(&["--json", "token", "list"]).output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("server_not_running"));
}

/// As `make run` names it: what it is relative to is not where servers and agents work.
#[test]
fn a_data_folder_may_be_named_from_here() {
    let home = Home::new();
    std::fs::create_dir(home.folder.path().join("work")).unwrap();
    let here = |arguments: &[&str]| {
        let mut command = crate::world::piton();
        command.current_dir(home.folder.path()).args(["--data", "data"]).args(arguments);
        command.stdin(std::process::Stdio::null()).output().unwrap()
    };
    for _ in 0..2 {
        let output = here(&["chat", "--print", "say 42", "work"]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "42\n", "{output:?}");
    }
    let made = here(&["--json", "sessions", "new"]);
    assert!(made.status.success(), "{made:?}");
    assert!(!home.folder.path().join("work/data").exists(), "nothing lies beside it");
    assert!(here(&["stop"]).status.success());
}

/// In colours, as people have it.
fn colored(mut command: Command) -> Command {
    command.env_remove("NO_COLOR").env("TERM", "xterm-256color").env_remove("COLUMNS");
    command
}

/// The whole screen: a prompt with markdown, a permission, a server that is killed in the middle of a
/// turn, another one that takes over, a crash and a resume; then the same session in another terminal.
#[test]
fn the_screen_tells_the_whole_story() {
    let home = Home::new();
    let mut chat = Terminal::run(colored(home.piton(&["chat"])));
    chat.is_ready_below("Ctrl-C stops a turn, twice leaves.");
    chat.type_in("say # A **bold** `plan`: [look](http://x.y)\n");
    chat.is_ready_below("A bold plan: look (http://x.y)");
    assert!(chat.looks("A bold").bold() && !chat.looks("> say").bold());
    assert!(chat.looks("look (http").underline());
    chat.type_in("ask May I?\n");
    chat.shows("  2  ");
    chat.type_in("1");
    chat.is_ready_below("chosen: allow_once");
    chat.type_in("say before\n");
    chat.is_ready_below("before");
    assert_snapshot!("chat_first", chat.screen());

    // A turn is under way when its server is killed; whoever comes next starts another one.
    chat.type_in("wait 8000\n");
    chat.shows("> wait 8000\r\n");
    home.until_running();
    kill_process(home.server_pid(), Signal::KILL).unwrap();
    chat.shows("the server is away");
    assert!(home.piton(&["sessions", "list"]).output().unwrap().status.success());
    let other = home.piton(&["chat", "--print", "say from elsewhere"]).output().unwrap();
    assert_eq!(String::from_utf8(other.stdout).unwrap(), "from elsewhere\n");
    chat.is_ready_below(
        "-- the server is away; the agent goes on, and this waits; a new one took over",
    );
    chat.type_in("crash\n");
    chat.is_ready_below("   What it had done is in the log; say `/resume` to go on.");
    chat.type_in("/resume\n");
    // The agent is asked to go on, and this one says what it is asked.
    chat.is_ready_below("Continue where you left off.");
    chat.type_in("say the end\n");
    chat.is_ready_below("the end");
    assert_snapshot!("chat_second", chat.screen());
    chat.type_in("/quit\n");
    let (good, screen) = chat.ends();
    assert!(good, "{screen}");

    // Looked back at, the interruption and its resume are one line.
    let session = screen.rsplit("piton attach ").next().unwrap();
    let session = session.trim_end_matches(|c: char| !c.is_ascii_hexdigit());
    let session = session.split('\x1b').next().unwrap().trim().to_owned();
    let mut attached = Terminal::run(colored(home.piton(&["attach", &session])));
    attached.is_ready_below("the end");
    assert_snapshot!("chat_attached", attached.screen());
    attached.type_in("/quit\n");
    assert!(attached.ends().0);
}
