//! `chat` and `attach` in a real terminal.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use insta::assert_snapshot;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::server::pty::{Home, Terminal};
use crate::server::world::World;
use crate::tools;

/// A prompt, a question answered by a key, a server that is killed, a terminal that is left, and
/// everything still there for the next one.
#[test]
fn a_conversation_outlives_its_server_and_its_terminal() {
    let home = Home::new();
    let mut chat = Terminal::run(home.piton(&["chat", "--plain"]));
    chat.shows("Ctrl-C stops a turn, twice leaves.");
    chat.type_in("hello dear world\n");
    chat.shows("> hello dear world");
    chat.type_in("ask May I?\n");
    chat.shows("-- press 1 to 2 to answer, m to reject and say why, or Ctrl-C to stop the turn");
    // Prose answers nothing; Tab gives the keys back.
    chat.type_in("say 1 more");
    chat.shows("Tab gives the keys back to the request");
    chat.type_in("\t");
    crate::server::drawn::let_keys_count();
    chat.type_in("1");
    chat.shows("  -> Allow");
    chat.shows("> say 1 more");
    chat.type_in("\x15say thank you\n");
    chat.shows_line("thank you");
    // A turn that is under way when its server is killed.
    chat.type_in("\x1b[200~say before\nwait 3000\x1b[201~\n");
    chat.shows("\r\nbefore");
    kill_process(home.server_pid(), Signal::KILL).unwrap();
    // It ran in the background: this terminal starts another one, which all others find.
    chat.shows("the server was killed; the agent keeps running, and a new server is started");
    chat.shows("-- a new server took over; nothing was lost");
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
    chat.shows("-- Ctrl-C again leaves");
    chat.interrupt();
    let (good, screen) = chat.ends();
    // Another folder's command names it, and can be pasted.
    let data = home.folder.path().join("data");
    let command = format!("piton --data {} attach ", data.display());
    assert!(good && screen.contains("Come back with: ") && screen.contains(&command), "{screen}");

    let session = screen.split(" attach ").nth(1).unwrap().trim().to_owned();
    let mut attached = Terminal::run(home.piton(&["attach", "--plain", &session]));
    attached.shows("hello dear world");
    attached.shows("  -> Allow");
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
    let output = home.piton(&["--json", "status"]).output().unwrap();
    assert!(output.status.success());
    let output = home.piton(&["--json", "stop"]).output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().contains("\"stopped\":true"));
    assert_eq!(home.piton(&["status"]).output().unwrap().status.code(), Some(1));
    let output = home.piton(&["--json", "tokens", "list"]).output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("server_not_running"));
}

/// What a script gets: the exit code, the answer on stdout, and the messages on stderr.
fn printed(home: &Home, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = home.piton(&["chat", "--print"]);
    let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The first session of the list, as `sessions show` has it.
fn last_session(home: &Home) -> Value {
    let output = home.piton(&["--json", "sessions", "list", "-n", "1"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A script cannot answer: `--print` reports the question, and the agent keeps waiting for a client
/// that can.
#[test]
fn a_script_gets_what_is_asked_and_how_to_answer() {
    let home = Home::new();
    let (code, out, err) = printed(&home, &["say so far\nask May I?\nsay thanks"]);
    assert_eq!((code, out.as_str()), (Some(5), "so far\n"), "{err}");
    let asked = "Error: The run waits for an answer: May I? (allow_once, reject_once)\n";
    assert!(err.starts_with(asked), "{err}");
    let listed = last_session(&home);
    assert_eq!(listed["status"], "waiting");

    // The hint's command does what it says.
    let command = err.split('`').nth(1).unwrap().replace("OPTION", "allow_once");
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(&command).current_dir(home.folder.path());
    shell.env_remove("PITON_DATA").env_remove("PITON_CONFIG");
    let answered = shell.output().unwrap();
    assert!(answered.status.success(), "{command}: {answered:?}");

    // The same for a script that is typed into a chat, and ends before the question comes.
    let mut chat = home.piton(&["chat"]);
    chat.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut chat = chat.spawn().unwrap();
    chat.stdin.take().unwrap().write_all(b"ask And now?\n").unwrap();
    let output = chat.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("And now? (allow_once"));
}

#[test]
fn a_script_learns_why_it_failed() {
    let home = Home::new();
    for prompt in ["crash", "exit 3"] {
        let (code, out, err) = printed(&home, &[prompt]);
        assert_eq!((code, out.as_str()), (Some(4), ""), "{err}");
        let interrupted = "Error: The run was interrupted. The process that ran it ended while the agent was answering.\n";
        let session = last_session(&home)["session_id"].as_str().unwrap().to_owned();
        let resume = format!(" sessions resume {session} --continue` continues it.");
        assert!(err.starts_with(interrupted) && err.contains(&resume), "{err}");
    }
    let (code, out, err) = printed(&home, &["crash", "--json"]);
    let last: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    let reported: Value = serde_json::from_str(&err).unwrap();
    assert_eq!((code, &last["exit_code"]), (Some(4), &json!(4)));
    assert_eq!(last["outcome"], "interrupted");
    assert!(reported["error"]["hint"].as_str().unwrap().contains("sessions resume"), "{reported}");
    let (_, out, _) = printed(&home, &["say 1", "--json"]);
    let last: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!((&last["outcome"], &last["exit_code"]), (&json!("completed"), &json!(0)));
}

/// The script gets the error of the process that looked for the missing agent.
#[test]
fn a_script_learns_which_agent_is_missing() {
    let home = Home::new();
    let config = home.folder.path().join("config.toml");
    std::fs::write(&config, "[agents.lost]\ncommand = ['./nowhere/agent']\n").unwrap();
    let config = config.to_str().unwrap();
    let (code, out, err) = printed(&home, &["hi", "--agent", "lost", "--config", config]);
    assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
    assert!(
        err.starts_with("Error: The agent's program ") && err.contains("nowhere/agent"),
        "{err}"
    );
    assert!(err.contains(&format!(" --config {config} --data ")), "the same settings: {err}");
}

/// The exit code distinguishes the script's own Ctrl-C from a cancellation by another client.
#[test]
fn a_script_learns_who_stopped_it() {
    let home = Home::new();
    // What it says first shows that it listens to signals.
    let begin = || {
        let mut command = home.piton(&["chat", "--print", "say begun\nwait 60000"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut begun = [0; 5];
        child.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
        assert_eq!(&begun, b"begun");
        child
    };
    let stopped = begin();
    let pid = Pid::from_raw(i32::try_from(stopped.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let output = stopped.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(130), &b"\n"[..]), "{output:?}");

    let cancelled = begin();
    let session = last_session(&home)["session_id"].as_str().unwrap().to_owned();
    assert!(home.piton(&["sessions", "cancel", &session]).output().unwrap().status.success());
    let output = cancelled.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("The run was cancelled. A user asked for it."), "{err}");
}

/// The chat keeps its own commands, sends those that the agent names, and refuses a mistyped one.
#[test]
fn help_is_the_chats_and_other_slashes_are_the_agents() {
    let home = Home::new();
    let mut chat = Terminal::run(colored(home.piton(&["chat", "--plain"])));
    chat.await_prompt_below("Ctrl-C stops a turn, twice leaves.");
    chat.type_in("/help\n");
    chat.await_prompt_below("  All else goes to the agent, its own /commands too.");
    chat.type_in("/recal x\n");
    chat.await_prompt_below("there is no command /recal");
    chat.type_in("commands\n");
    chat.await_prompt_below("> commands");
    chat.type_in("/recall x\n");
    chat.await_prompt_below("/recall x");
    let screen = chat.screen();
    assert!(
        screen.contains("\n  /pause           Pause the turn; /resume continues it\n"),
        "{screen}"
    );
    // The agent says back what it gets.
    assert!(screen.contains("\n/recall x\n") && !screen.contains("\n/help\n"), "{screen}");
    assert!(!screen.contains("\n/recal x\n"), "{screen}");
    chat.type_in("/quit\n");
    assert!(chat.ends().0);
}

/// As `make run` names it: what it is relative to is not where servers and agents work.
#[test]
fn a_data_folder_may_be_named_from_here() {
    let home = Home::new();
    std::fs::create_dir(home.folder.path().join("work")).unwrap();
    let here = |arguments: &[&str]| {
        let mut command = crate::server::world::piton();
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
pub(crate) fn colored(mut command: Command) -> Command {
    command.env_remove("NO_COLOR").env("TERM", "xterm-256color").env_remove("COLUMNS");
    command
}

/// The whole screen: a prompt with markdown, a permission, a server that is killed in the middle of a
/// turn, another one that takes over, a crash and a resume; then the same session in another terminal.
#[test]
fn the_screen_tells_the_whole_story() {
    let home = Home::new();
    let mut chat = Terminal::run(colored(home.piton(&["chat", "--plain"])));
    chat.await_prompt_below("Ctrl-C stops a turn, twice leaves.");
    chat.type_in("say # A **bold** `plan`: [look](http://x.y)\n");
    chat.await_prompt_below("A bold plan: look (http://x.y)");
    assert!(chat.looks("A bold").bold() && !chat.looks("> say").bold());
    assert!(chat.looks("look (http").underline());
    chat.type_in("ask May I?\n");
    chat.shows("press 1 to 2 to answer");
    chat.type_in("1");
    chat.await_prompt_below("chosen: allow_once");
    chat.type_in("say before\n");
    chat.await_prompt_below("before");
    assert_snapshot!("chat_first", chat.screen());

    // A turn is under way when its server is killed, and continues under the next server.
    chat.type_in("wait 8000\n");
    chat.shows("> wait 8000\r\n");
    home.until_running();
    kill_process(home.server_pid(), Signal::KILL).unwrap();
    chat.shows("a new server is started");
    assert!(home.piton(&["sessions", "list"]).output().unwrap().status.success());
    let other = home.piton(&["chat", "--print", "say from elsewhere"]).output().unwrap();
    assert_eq!(String::from_utf8(other.stdout).unwrap(), "from elsewhere\n");
    chat.await_prompt_below("-- a new server took over; nothing was lost");
    chat.type_in("crash\n");
    chat.await_prompt_below("   What it had done is in the log; say `/resume` to continue it.");
    chat.type_in("/resume\n");
    // The agent is asked to go on, and this one says what it is asked.
    chat.await_prompt_below("Continue where you left off.");
    chat.type_in("say the end\n");
    chat.await_prompt_below("the end");
    assert_snapshot!("chat_second", chat.screen());
    chat.type_in("/quit\n");
    let (good, screen) = chat.ends();
    assert!(good, "{screen}");

    // Looked back at, the interruption and its resume are one line.
    let session = screen.rsplit(" attach ").next().unwrap();
    let session = session.trim_end_matches(|c: char| !c.is_ascii_hexdigit());
    let session = session.split('\x1b').next().unwrap().trim().to_owned();
    let mut attached = Terminal::run(colored(home.piton(&["attach", "--plain", &session])));
    attached.await_prompt_below("the end");
    assert_snapshot!("chat_attached", attached.screen());
    attached.type_in("/quit\n");
    assert!(attached.ends().0);
}

/// Without a server each of several starts one; all use the one that was first.
#[test]
pub(crate) fn several_chats_at_once_share_the_server_that_was_first() {
    let home = Home::new();
    let chats: Vec<_> = (0..4)
        .map(|n| {
            let mut command = home.piton(&["chat", "--print", &format!("say {n}")]);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    for (n, chat) in chats.into_iter().enumerate() {
        let output = chat.wait_with_output().unwrap();
        let said = (output.status.code(), String::from_utf8(output.stdout).unwrap());
        let reported = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, (Some(0), format!("{n}\n")), "{reported}");
    }
}

#[test]
fn a_prompt_comes_from_stdin_and_an_empty_one_makes_nothing() {
    let home = Home::new();
    for empty in ["", " \n"] {
        let (code, _, err) = printed(&home, &[empty]);
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains("the prompt is empty"), "{err}");
    }
    // Nothing on stdin is nothing to say.
    assert_eq!(printed(&home, &["-"]).0, Some(2));
    assert!(!home.folder.path().join("data").exists(), "no server, no session");

    let mut chat = home.piton(&["chat", "--print", "-"]);
    chat.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut chat = chat.spawn().unwrap();
    chat.stdin.take().unwrap().write_all(b"say from\nsay stdin\n").unwrap();
    let output = chat.wait_with_output().unwrap();
    // Two messages of the agent: each has its line.
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "from\nstdin\n");
}

/// Without one that was named: the setting, an agent that is installed, and only then the test agent,
/// which is announced.
#[test]
fn the_default_agent_is_never_a_silent_test_agent() {
    let home = Home::new();
    let config = home.folder.path().join("config.toml");
    let print = |environment: &[(&str, &str)]| {
        let mut command = home.piton(&["--config", config.to_str().unwrap(), "chat", "--print"]);
        command.arg("say hi").env_remove("PITON_CHAT_AGENT").env("PATH", "/nowhere");
        let output = command.envs(environment.iter().copied()).stdin(Stdio::null()).output();
        let output = output.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    std::fs::write(&config, "").unwrap();
    let (code, out, err) = print(&[]);
    assert_eq!((code, out.as_str()), (Some(0), "hi\n"), "{err}");
    assert!(err.contains("echo, a test agent"), "{err}");
    let (_, out, err) = print(&[("PITON_CHAT_AGENT", "echo")]);
    assert_eq!((out.as_str(), err.as_str()), ("hi\n", ""));

    // One of the settings whose program is there.
    let echo = tools::piton();
    let own = format!("[agents.mine]\ncommand = ['{echo}', 'agent', 'echo']\n");
    std::fs::write(&config, &own).unwrap();
    assert!(home.piton(&["stop"]).output().unwrap().status.success());
    let (code, out, err) = print(&[]);
    assert_eq!((code, out.as_str()), (Some(0), "hi\n"), "{err}");
    assert!(err.contains("The agent is mine"), "{err}");
    assert_eq!(last_session(&home)["agent_profile_id"], "mine");
    std::fs::write(&config, format!("{own}[chat]\nagent = 'none'\n")).unwrap();
    let (code, _, err) = print(&[]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("agent_not_found"), "{err}");
}

/// What a script hears that attaches: all that was said, and how it ended.
fn attached(home: &Home, session: &str, input: &str) -> (Option<i32>, String, String) {
    let mut command = home.piton(&["attach", session]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_script_that_attaches_without_input_gets_what_was_said_and_how_it_ended() {
    let home = Home::new();
    let cases = [("say fine", Some(0), "fine"), ("say so far\nask May I?", Some(5), "so far")];
    for (prompt, code, said) in cases {
        printed(&home, &[prompt]);
        let session = last_session(&home)["session_id"].as_str().unwrap().to_owned();
        let (exit, out, err) = attached(&home, &session, "");
        assert_eq!(exit, code, "{prompt}: {err}");
        assert!(out.contains(said), "{prompt}: {out}");
    }
    printed(&home, &["say begun\ncrash"]);
    let session = last_session(&home)["session_id"].as_str().unwrap().to_owned();
    let (exit, out, err) = attached(&home, &session, "");
    assert_eq!(exit, Some(4), "{err}");
    assert!(out.contains("begun") && err.contains("interrupted"), "{out}{err}");
}

/// The end of an older run, which the history tells, is not the end of the prompt's.
#[test]
fn a_prompt_that_is_piped_into_a_session_is_delivered() {
    let home = Home::new();
    printed(&home, &["say zero"]);
    let session = last_session(&home)["session_id"].as_str().unwrap().to_owned();
    for round in 1..=4 {
        let (exit, out, err) = attached(&home, &session, &format!("say round {round}\n"));
        assert_eq!(exit, Some(0), "{err}");
        assert!(out.trim_end().ends_with(&format!("\nround {round}")), "{round}: {out}{err}");
    }
}

/// The terminal does not restart a server that the user started: it reports that the server is
/// away, and finds the next one.
#[test]
fn a_terminal_waits_for_a_server_that_a_user_started() {
    let mut world = World::new();
    let session = world.session();
    let mut attached = Terminal::run(world.command(&["attach", "--plain", &session]));
    attached.shows("Ctrl-C stops a turn, twice leaves.");
    attached.type_in("wait 4000\n");
    world.when(&session, |status| status["status"] == "running");
    world.kill();
    attached.shows("-- the server is away; the agent keeps running. Waiting for a server");
    world.start();
    attached.shows("; a new one took over");
    attached.type_in("say back again\n");
    attached.shows("\r\nback again");
    attached.type_in("/quit\n");
    assert!(attached.ends().0);
}

/// What was asked once is over when it is answered: neither the agent nor its agentctl stays, and the
/// session can be continued.
#[test]
fn a_script_leaves_no_agent_behind_without_being_asked_to() {
    let home = Home::new();
    let running = || {
        let output = home.piton(&["--json", "status"]).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["executions"].clone()
    };
    for prompt in ["say one", "crash"] {
        printed(&home, &[prompt]);
        assert_eq!(running(), 0, "{prompt}");
    }
    let session = last_session(&home)["session_id"].as_str().unwrap().to_owned();
    assert_eq!(printed(&home, &["say two", "--keep"]).0, Some(0));
    assert_eq!(running(), 1);
    // One that waits is needed.
    assert_eq!(printed(&home, &["ask May I?"]).0, Some(5));
    assert_eq!(running(), 2);
    let (exit, out, err) = attached(&home, &session, "say back again\n");
    assert_eq!(exit, Some(0), "{err}");
    assert!(out.contains("\nback again"), "{out}");
}

/// The agent that a prompt to an earlier session started ends with it; one that ran before stays, and so
/// does one that is to be kept.
#[test]
fn a_script_that_returns_to_a_session_leaves_what_it_found() {
    let home = Home::new();
    let running = || {
        let output = home.piton(&["--json", "status"]).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["executions"].clone()
    };
    printed(&home, &["say one"]);
    assert_eq!(running(), 0);
    let session = last_session(&home)["session_id"].as_str().unwrap().to_owned();
    let again = |arguments: &[&str]| {
        let (exit, out, err) = printed(&home, &[arguments, &["--session", &session]].concat());
        assert_eq!(exit, Some(0), "{out}{err}");
    };
    again(&["say two"]);
    assert_eq!(running(), 0, "it was started for this prompt");
    again(&["say three", "--keep"]);
    assert_eq!(running(), 1);
    again(&["say four"]);
    assert_eq!(running(), 1, "it ran before");
}
