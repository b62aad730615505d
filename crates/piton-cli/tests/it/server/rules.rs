//! Permission requests: shown whole, answered by rules, never by accident.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::pty::{Home, Terminal};
use crate::server::world::{TEST_TIMEOUT, World};

const RULES: &str = "
[[permissions.rules]]
name = 'touching'
action = 'allow'
command = 'touch *'

[[permissions.rules]]
action = 'deny'
command = 'rm *'
";

fn with_rules() -> World {
    let mut world = World::not_started();
    let config = world.folder.path().join("config.toml");
    std::fs::write(&config, RULES).unwrap();
    world.start_with(|command| {
        command.env("PITON_CONFIG", config);
    });
    world
}

/// Wants to show: the rules of the settings are listed with where they come from, and what they would
/// decide is said without a server.
#[test]
fn rules_are_listed_and_tested_from_the_command_line() {
    let world = World::not_started();
    let config = world.folder.path().join("config.toml");
    std::fs::write(&config, RULES).unwrap();
    let lines = |arguments: &[&str]| -> Vec<Value> {
        let mut command = world.command(arguments);
        let output = command.arg("--json").env("PITON_CONFIG", &config).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let listed = lines(&["permissions", "list"]);
    let shown: Vec<_> =
        listed.iter().map(|rule| (&rule["number"], &rule["name"], &rule["action"])).collect();
    let (touching, second) = (json!("touching"), json!("rule 2"));
    let wanted = [(&json!(1), &touching, &json!("allow")), (&json!(2), &second, &json!("deny"))];
    assert_eq!(shown, wanted, "{listed:#?}");
    assert!(listed[1]["origin"].as_str().unwrap().contains("config.toml"), "{listed:#?}");
    for (command, action, rule) in [
        ("touch a", "allow", touching),
        ("touch a; ls", "ask", Value::Null),
        ("rm -r /", "deny", second),
        ("ls", "ask", Value::Null),
    ] {
        let said = lines(&["permissions", "test", "--tool", "execute", "--command", command]);
        assert_eq!(said[0]["action"], action, "{command}: {said:?}");
        if action != "ask" {
            assert_eq!(said[0]["rule"]["name"], rule, "{command}: {said:?}");
        }
    }
}

fn decided(world: &World, session: &str) -> Vec<Value> {
    let records = world.records(session);
    records.into_iter().filter(|record| record["kind"] == "permission.decided").collect()
}

/// A rule answers in the batch of the request, survives a kill of the server, and never lets a
/// compound command through; what it does not decide is asked with the whole command.
#[test]
fn rules_answer_what_they_know_and_nothing_else() {
    let mut world = with_rules();
    let folder = world.workspace();
    let session = world.session_in(&folder);
    world.prompt(&session, "ask-run touch made.txt");
    world.when(&session, |status| status["last_outcome"] == "completed");
    assert!(folder.join("made.txt").exists());
    let found = decided(&world, &session);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(
        (&found[0]["action"], &found[0]["rule"], &found[0]["option_id"]),
        (&json!("allow"), &json!("touching"), &json!("allow_once"))
    );
    world.prompt(&session, "ask-run cd . && rm made.txt");
    world.when(&session, |status| status["status"] == "idle" && status["last_seq"] != 0);
    let found = decided(&world, &session);
    assert_eq!(
        (found.len(), &found[1]["action"], &found[1]["rule"]),
        (2, &json!("deny"), &json!("rule 2"))
    );
    assert!(folder.join("made.txt").exists());

    world.prompt(&session, "ask-run touch a.txt; touch b.txt");
    let status = world.when(&session, |status| status["status"] == "waiting");
    let wait = &status["waits"][0];
    let permission = &wait["permission"];
    assert_eq!(permission["command"], "touch a.txt; touch b.txt", "{permission:#}");
    assert_eq!((&permission["kind"], &permission["truncated"]), (&json!("execute"), &Value::Null));
    assert_eq!(permission["options"][1]["option_id"], "reject_once");
    let path = format!("/api/v1/waits/{}", wait["wait_id"].as_str().unwrap());
    assert_eq!(world.get(&path).good()["permission"], *permission);
    // The log says which rule left it to a person, and why.
    let records = world.records(&session);
    let asked = records.iter().rfind(|record| record["kind"] == "permission.asked").unwrap();
    assert_eq!(
        (&asked["wait_id"], &asked["action"], &asked["rule"], &asked["reason"]),
        (&wait["wait_id"], &json!("allow"), &json!("touching"), &json!("compound"))
    );
    assert_eq!(world.get("/api/v1/waits/wait_none").code(), "wait_not_found");
    // The server's death changes nothing about what is open, or decided.
    world.kill();
    let config = world.folder.path().join("config.toml");
    world.start_with(|command| {
        command.env("PITON_CONFIG", config);
    });
    world.when(&session, |status| status["status"] == "waiting");
    let answered = json!({"answer": {"optionId": "reject_once"}});
    world.post(&format!("{path}/answer"), &answered).good();
    world.when(&session, |status| status["status"] == "idle");
    assert!(!folder.join("a.txt").exists());
    assert_eq!(decided(&world, &session).len(), 2);
    let resumed = world.records(&session);
    let resumed = resumed.iter().rfind(|record| record["kind"] == "run.resumed").unwrap();
    assert_eq!(resumed["answer"], json!({"option_id": "reject_once"}), "one spelling in the log");
}

/// A run whose permission request a rule answers is not at its end: neither for `--print` nor for a
/// script that is piped in. One that no rule answers still is.
#[test]
fn a_rule_answers_also_for_a_script() {
    let home = Home::new();
    std::fs::write(home.folder.path().join("config.toml"), RULES).unwrap();
    let folder = home.folder.path();
    let print = |prompt: &str| {
        let print = ["--config", "config.toml", "chat", "--agent", "echo", "--print", prompt];
        home.piton(&print).output().unwrap()
    };
    let output = print("ask-run touch printed.txt\nsay after");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("after"), "{output:?}");
    assert!(folder.join("printed.txt").exists());

    let mut piped = home.piton(&["--config", "config.toml", "chat", "--agent", "echo"]);
    piped.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut piped = piped.spawn().unwrap();
    std::io::Write::write_all(&mut piped.stdin.take().unwrap(), b"ask-run touch piped.txt\n")
        .unwrap();
    let output = piped.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(folder.join("piped.txt").exists());

    let output = print("ask-run touch a.txt; touch b.txt");
    assert_eq!(output.status.code(), Some(5), "{output:?}");
}

/// What is said with a rejection is the agent's next prompt, once, before all others.
#[test]
fn a_rejection_can_say_why() {
    let mut world = World::new();
    let session = world.session_in(&world.workspace());
    world.prompt(&session, "ask-run touch a.txt");
    let status = world.when(&session, |status| status["status"] == "waiting");
    let wait = status["waits"][0]["wait_id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/waits/{wait}/answer");
    let key = [("Idempotency-Key", "why-not")];
    let empty = json!({"answer": {"option_id": "reject_once"}, "message": ""});
    assert_eq!(world.ask("POST", &path, Some(&empty), &[]).status, 400);
    let why = json!({"answer": {"option_id": "reject_once"}, "message": "say instead"});
    world.ask("POST", &path, Some(&why), &key).good();
    world.ask("POST", &path, Some(&why), &key).good();
    let said = |records: &[Value], text: &str| {
        let is_it = |r: &&Value| r["kind"] == "message.user" && r["content"] == text;
        records.iter().filter(is_it).count()
    };
    let until = Instant::now() + TEST_TIMEOUT;
    while said(&world.records(&session), "say instead") == 0 {
        assert!(Instant::now() < until, "{:#?}", world.records(&session));
    }
    world.when(&session, |status| status["status"] == "idle");
    assert_eq!(said(&world.records(&session), "say instead"), 1);
    assert!(!world.workspace().join("a.txt").exists());

    world.prompt(&session, "ask-run touch b.txt");
    let status = world.when(&session, |status| status["status"] == "waiting");
    let wait = status["waits"][0]["wait_id"].as_str().unwrap().to_owned();
    world.json(&["sessions", "answer", &wait, "reject", "--message", "say by hand"]);
    let until = Instant::now() + TEST_TIMEOUT;
    while said(&world.records(&session), "say by hand") == 0 {
        assert!(Instant::now() < until, "{:#?}", world.records(&session));
    }
}

fn open_waits(home: &Home) -> Vec<Value> {
    let output = home.piton(&["--json", "sessions", "waits"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Keys typed while the agent works answer no permission request, and stay in the draft.
#[test]
fn a_key_typed_before_the_request_is_drawn_answers_nothing() {
    let home = Home::new();
    let mut chat = Terminal::run(home.piton(&["chat", "--plain"]));
    chat.shows("Ctrl-C stops a turn, twice leaves.");
    chat.type_in("ask-run echo whole command\n");
    // Before the request can be there: the agent is not even started.
    chat.type_in("1");
    chat.shows("? echo whole command");
    chat.shows("press 1 to 2 to answer");
    let waits = open_waits(&home);
    assert_eq!(waits.len(), 1, "the key was no answer");
    assert_eq!(waits[0]["permission"]["command"], "echo whole command");
    chat.type_in("m");
    chat.shows("-- say why, and press Enter");
    chat.type_in("say the reason\n");
    chat.shows("  -> Reject");
    chat.shows_line("the reason");
    assert_eq!(open_waits(&home), Vec::<Value>::new());
    // It is the beginning of the next line, which is typed when the prompt is drawn.
    chat.shows_line("> 1");
    chat.type_in(" was typed early\n");
    chat.shows_line("1 was typed early");
    chat.type_in("/quit\n");
    assert!(chat.ends().0);
}

/// A line that is typed while the prompt is being drawn is sent once, and its answer stands on a line of
/// its own.
#[test]
fn a_line_typed_while_the_prompt_is_drawn_is_neither_lost_nor_doubled() {
    const LINES: usize = 12;
    let home = Home::new();
    let mut chat = Terminal::run(home.piton(&["chat", "--plain"]));
    chat.shows("Ctrl-C stops a turn, twice leaves.");
    chat.type_in("say answer 0\n");
    for n in 1..=LINES {
        // The answer is there, its turn is about to end, and no prompt is drawn yet.
        chat.shows_line(&format!("answer {}", n - 1));
        chat.type_in(&format!("say answer {n}\n"));
    }
    chat.shows_line(&format!("answer {LINES}"));
    chat.type_in("/quit\n");
    assert!(chat.ends().0);
    let lines = |args: &[&str]| -> Vec<Value> {
        let output = home.piton(args).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let sessions = lines(&["--json", "sessions", "list"]);
    let session = sessions[0]["session_id"].as_str().unwrap();
    let said = lines(&["--json", "sessions", "log", session, "--kind", "message.user"]);
    let said: Vec<&str> = said.iter().map(|record| record["content"].as_str().unwrap()).collect();
    let expected: Vec<String> = (0..=LINES).map(|n| format!("say answer {n}")).collect();
    assert_eq!(said, expected);
}

/// What does not fit on the screen is reviewed to its end before it can be allowed.
#[test]
fn a_long_request_is_shown_to_its_end_before_it_can_be_allowed() {
    let home = Home::new();
    let mut chat = Terminal::run(home.piton(&["chat", "--plain"]));
    chat.shows("Ctrl-C stops a turn, twice leaves.");
    let lines: Vec<String> = (1..=90).map(|n| format!("line{n}")).collect();
    chat.type_in(&format!("ask-write big.txt {}\n", lines.join("\\n")));
    chat.shows("more lines: press space to review them before you answer");
    chat.type_in("1");
    let until = Instant::now() + Duration::from_millis(500);
    while Instant::now() < until {
        assert_eq!(open_waits(&home).len(), 1, "it cannot be allowed yet");
    }
    // The key was typed; Tab gives the keys back to the request.
    chat.type_in("\t");
    crate::server::drawn::let_keys_count();
    chat.type_in(" ");
    chat.shows("+ line90");
    chat.shows("press 1 to 2 to answer");
    chat.type_in("1");
    chat.shows("  -> Allow");
    let until = Instant::now() + TEST_TIMEOUT;
    let file = home.folder.path().join("big.txt");
    while !file.exists() {
        assert!(Instant::now() < until, "the file is not written");
    }
    chat.type_in("\x15/quit\n");
    assert!(chat.ends().0);
}

/// Nothing that an agent, a user or a task says controls the terminal that shows it.
#[test]
fn what_others_wrote_does_not_control_the_terminal() {
    let home = Home::new();
    let evil = "\x1b]0;owned\x07\u{9b}2J";
    let prompt = format!("tool {evil}\nthink {evil}\nsay {evil}\nask {evil}");
    let asked = home.piton(&["chat", "--print", &prompt]).output().unwrap();
    assert_eq!(asked.status.code(), Some(5), "{asked:?}");
    assert!(home.piton(&["tasks", "new", evil]).output().unwrap().status.success());
    let waits = open_waits(&home);
    let session = waits[0]["session_id"].as_str().unwrap().to_owned();
    let wait = waits[0]["wait_id"].as_str().unwrap().to_owned();
    let mut screens = Vec::new();
    let mut attached = Terminal::run(home.piton(&["attach", "--plain", &session]));
    attached.shows("press 1 to 2 to answer");
    attached.type_in("2");
    attached.shows("  -> Reject");
    attached.type_in("/quit\n");
    screens.push(attached.ends().1);
    for arguments in [
        &["tasks", "list"] as &[&str],
        &["sessions", "list"],
        &["sessions", "show", &session],
        &["sessions", "log", &session],
        &["permissions", "test", "--tool", evil],
    ] {
        screens.push(Terminal::run(home.piton(arguments)).ends().1);
    }
    assert!(!wait.is_empty());
    for screen in screens {
        assert!(!screen.contains("\x1b]") && !screen.contains('\x07'), "{screen:?}");
        assert!(!screen.contains('\u{9b}'), "{screen:?}");
    }
}
