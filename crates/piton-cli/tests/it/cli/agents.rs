//! `piton agents`: what is listed, what an agent says when it is asked, and what is left of it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::cli::home::Home;

const FILE: &str = ".config/piton/config.toml";
const PITON: &str = env!("CARGO_BIN_EXE_piton");
/// Nothing here takes so long.
const TEST_TIMEOUT: Duration = Duration::from_mins(1);

/// A home without any program but those of the system's shell.
fn home() -> Home {
    let mut home = Home::new();
    std::fs::create_dir_all(home.path().join("bin")).unwrap();
    std::fs::create_dir_all(home.path().join("temp")).unwrap();
    let (bin, temp) = (home.path().join("bin"), home.path().join("temp"));
    home.set("PATH", bin.to_str().unwrap()).set("TMPDIR", temp.to_str().unwrap());
    home
}

fn script(home: &Home, path: &str, text: &str) {
    home.write(path, &format!("#!/bin/sh\n{text}\n"));
    let file = home.path().join(path);
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs a command, and names the program itself and how long things took.
fn run(home: &Home, line: &str) -> String {
    home.run(line).replace(PITON, "[PITON]")
}

fn reported(home: &Home, line: &str) -> Value {
    let output = home.command(line.split_whitespace()).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn temp_is_empty(home: &Home) -> bool {
    std::fs::read_dir(home.path().join("temp")).unwrap().next().is_none()
}

#[test]
fn all_are_listed() {
    let home = home();
    assert_snapshot!("agents_list", run(&home, "agents list"));
    assert_snapshot!("agents_list_json", run(&home, "agents list --json"));
    // An installed agent, a changed one, and one that the user configured.
    script(&home, "bin/gemini", "exit 0");
    home.write(
        FILE,
        "[agents.codex]\nname = 'My Codex'\ncommand = ['./codex']\n\
         [agents.mine]\ncommand = ['gemini']\nresume = 'history'\n",
    );
    assert_snapshot!("agents_list_more", run(&home, "agents list"));
}

#[test]
fn an_agent_says_who_it_is() {
    let home = home();
    assert_snapshot!("agents_probe", run(&home, "agents probe echo"));
    let mut said = reported(&home, "agents probe echo --json");
    assert!(said["answered_in_ms"].as_u64().is_some(), "{said}");
    said.as_object_mut().unwrap().remove("answered_in_ms");
    assert_eq!(
        said,
        json!({
            "agent_profile_id": "echo",
            "program": PITON,
            "agent": {"name": "echo", "version": env!("CARGO_PKG_VERSION")},
            "capabilities": {"load": true, "resume": true, "list": true, "close": true, "delete": true,
                       "fork": true,
                       "prompt": {"image": true, "audio": true, "embedded_context": true}},
            "auth_methods": [],
            "resume_strategy": "native",
            "expected_strategy": "native",
        })
    );
    assert!(temp_is_empty(&home));
    assert!(!home.data().exists(), "nothing was written down");
}

/// What is advertised counts: an agent that the table takes for one that forgets, and the other way
/// round.
#[test]
fn what_it_advertises_counts() {
    let home = home();
    script(&home, "bin/gemini", &format!("exec {PITON} agent echo -- --no-resume --auth key"));
    assert_snapshot!("agents_probe_more", run(&home, "agents probe gemini"));
    home.write(
        FILE,
        &format!(
            "[agents.mine]\ncommand = [{PITON:?}, 'agent', 'echo', '--', '--no-resume', '--no-load']\n"
        ),
    );
    assert_snapshot!("agents_probe_less", run(&home, "agents probe mine"));
}

#[test]
fn an_agent_that_cannot_be_used_says_why() {
    let home = home();
    script(&home, "bin/dies", "echo 'There is no key' >&2; exit 3");
    script(&home, "bin/silent", "while read -r line; do :; done");
    home.write("bin/text", "hello\n");
    home.write(
        FILE,
        "[agents.dies]\ncommand = ['dies']\n[agents.silent]\ncommand = ['silent']\n\
         [agents.text]\ncommand = ['~/bin/text']\n[agents.lost]\ncommand = ['lost']\n",
    );
    for (name, line) in [
        ("unknown", "agents probe claud-code"),
        ("unlike_any", "agents probe zzz"),
        ("amp", "agents probe amp"),
        ("missing", "agents probe qwen"),
        ("lost", "agents probe lost"),
        ("text", "agents probe text"),
        ("dies", "agents probe dies"),
        ("silent", "agents probe silent --wait 1s"),
        ("dies_json", "agents probe dies --json"),
    ] {
        assert_snapshot!(format!("agents_probe_{name}"), run(&home, line));
        assert!(temp_is_empty(&home), "{name}");
    }
}

/// Waits until a file has a line, and gives it.
fn line_in(file: &Path) -> String {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        match std::fs::read_to_string(file) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ => assert!(Instant::now() < until, "{} is never written", file.display()),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn lives(pid: &str) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which is in brackets.
    !matches!(state.rsplit_once(") ").map(|(_, rest)| &rest[..1]), None | Some("Z" | "X"))
}

/// A home with an agent that starts something which leaves its group, and tells its number.
fn with_a_leaver(then: &str) -> (Home, std::path::PathBuf) {
    let mut home = home();
    let path = std::env::var("PATH").unwrap();
    home.set("PATH", &path);
    let file = home.path().join("pid");
    script(
        &home,
        "leaver",
        &format!(
            "setsid sh -c 'echo $$ > \"$PID_FILE.new\"; mv \"$PID_FILE.new\" \"$PID_FILE\"; \
             while :; do sleep 1000; done' > /dev/null 2>&1 < /dev/null &\n\
             while [ ! -e \"$PID_FILE\" ]; do sleep 0.01; done\n{then}"
        ),
    );
    let settings =
        format!("[agents.leaver]\ncommand = ['~/leaver']\nenv.PID_FILE = '{}'\n", file.display());
    home.write(FILE, &settings);
    (home, file)
}

#[test]
fn nothing_of_it_is_left_running() {
    let (home, file) = with_a_leaver(&format!("exec {PITON} agent echo"));
    let output = home.command(["agents", "probe", "leaver"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(!lives(&line_in(&file)), "what it started outlived it");
    assert!(temp_is_empty(&home));
}

/// Who is impatient leaves nothing behind either.
#[test]
fn nothing_of_it_is_left_running_when_a_user_interrupts() {
    let (home, file) = with_a_leaver("while read -r line; do :; done");
    let mut command = home.command(["agents", "probe", "leaver", "--wait", "10m"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let left = line_in(&file);
    assert!(lives(&left));
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!lives(&left), "what it started outlived the command");
    assert!(temp_is_empty(&home));
}

#[test]
fn the_doctor_names_what_is_wrong() {
    let home = home();
    assert_snapshot!("agents_doctor", run(&home, "agents doctor"));
    assert_snapshot!("agents_doctor_missing", run(&home, "agents doctor copilot"));
    assert_snapshot!("agents_doctor_amp", run(&home, "agents doctor amp"));

    script(
        &home,
        "bin/claude-agent-acp",
        &format!("exec {PITON} agent echo -- --auth claude-login"),
    );
    script(&home, "bin/node", "echo v18.19.0");
    home.write("bin/goose", "not executable");
    home.write(FILE, "[agents.goose]\n[agents.lost]\ncommand = ['lost']\ninstall = 'Ask Ada.'\n");
    // All agents that are configured or installed; problems of agents that the command does not
    // name do not count.
    assert_snapshot!("agents_doctor_all", run(&home, "agents doctor"));
    assert_snapshot!("agents_doctor_node", run(&home, "agents doctor claude-code"));
    script(&home, "bin/node", "echo v24.1.0");
    assert_snapshot!("agents_doctor_good_json", run(&home, "agents doctor claude-code --json"));
    assert_snapshot!("agents_doctor_unknown", run(&home, "agents doctor clod-code"));
    assert!(temp_is_empty(&home));
}

#[test]
fn an_agent_without_a_home_is_a_problem() {
    let home = home();
    let mut command = home.command(["agents", "doctor", "echo", "--json", "--data", "d"]);
    let output = command.args(["--config", "none.toml"]).env_remove("HOME").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "a config file that is named must be there");
    home.write("none.toml", "");
    let mut command = home.command(["agents", "doctor", "echo", "--json", "--data", "d"]);
    let output = command.args(["--config", "none.toml"]).env_remove("HOME").output().unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = said["agents"][0]["findings"].as_array().unwrap();
    let home = findings.iter().find(|finding| finding["check"] == "home").unwrap();
    assert_eq!((&home["level"], &home["says"]), (&json!("problem"), &json!("HOME is not set")));
    assert_eq!(output.status.code(), Some(1));
}

/// However an agent is started, it does not get Piton's own variables: the store's key above all.
#[test]
fn an_agent_that_is_tried_does_not_see_what_is_meant_for_piton() {
    let mut home = home();
    let seen = home.path().join("seen");
    script(&home, "bin/spy", &format!("/usr/bin/env >> '{}'; exit 1", seen.display()));
    home.write(FILE, "[agents.spy]\ncommand = ['spy']\nenv = { PITON_GIVEN = 'yes' }\n");
    home.set("PITON_KEY", "5e6ff1dc").set("SPY_SEES", "this");
    for line in ["agents probe spy", "agents doctor spy"] {
        let output = home.command(line.split_whitespace()).output().unwrap();
        assert!(!output.status.success(), "{line}: {output:?}");
        let reported = std::fs::read_to_string(&seen).unwrap_or_default();
        std::fs::remove_file(&seen).unwrap();
        assert!(reported.contains("SPY_SEES=this"), "{line}: {reported}");
        assert!(reported.contains("PITON_GIVEN=yes"), "what a profile gives it has: {reported}");
        assert!(reported.contains("PITON_EXECUTION="), "by which it is found: {reported}");
        assert!(
            !reported.contains("PITON_KEY") && !reported.contains("5e6ff1dc"),
            "{line}: {reported}"
        );
    }
}
