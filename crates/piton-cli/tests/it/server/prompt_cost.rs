//! What a prompt to a running agent costs on its way to the agent's input, seen by strace: one flush of
//! the log, one request to agentctl, one flush of the spool. Only order and number are looked at, so a
//! slow machine changes nothing.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::world::{TEST_TIMEOUT, World};
use crate::tools;

const CALLS: &str = "trace=fsync,fdatasync,write,writev,sendto,sendmsg,recvfrom,read,connect";
/// So often, each time with a text of its own.
const PROMPTS: usize = 4;

/// Whether processes can be traced here; if not, one line says what is left out.
fn can_trace() -> bool {
    let tried = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).output();
    if tried.as_ref().is_ok_and(|output| output.status.success()) {
        return true;
    }
    let why = format!("strace does not start; scripts/setup installs it: {tried:?}");
    tools::left_out("what a prompt costs", &why);
    false
}

fn text(prompt: usize) -> String {
    format!("say prompt-number-{prompt}-on-its-way")
}

/// What happened between the server's reading a prompt and agentctl's writing it to the agent.
#[derive(Debug, Default, PartialEq, Eq)]
struct Cost {
    /// Of the log, by the server.
    log: usize,
    /// Of the spool, by agentctl.
    spool: usize,
    other: Vec<String>,
    /// Connections to agentctl; each carries one request.
    requests: usize,
}

fn cost(trace: &str, prompt: usize) -> Cost {
    let text = text(prompt);
    // A call is where it ended: one that was cut in two has its text there if it read, and before that
    // if it wrote.
    let came = |line: &str| line.contains("recvfrom") && line.contains(&text);
    let given =
        |line: &str| line.contains("write") && line.contains("<pipe:") && line.contains(&text);
    let lines: Vec<&str> = trace.lines().collect();
    let first = lines.iter().position(|line| came(line)).expect("the prompt was never read");
    let last = lines.iter().position(|line| given(line)).expect("the agent was given nothing");
    assert!(first < last, "{first} {last}");
    let mut cost = Cost::default();
    for line in &lines[first..last] {
        let call = line.split_once(' ').map_or("", |(_, call)| call.trim_start());
        if call.starts_with("fsync(") || call.starts_with("fdatasync(") {
            if line.contains("store.sqlite3-wal>") {
                cost.log += 1;
            } else if line.contains("/spool/") {
                cost.spool += 1;
            } else {
                cost.other.push((*line).to_owned());
            }
        } else if call.starts_with("connect(") && line.contains("AF_UNIX") {
            cost.requests += 1;
        }
    }
    cost
}

/// The server and all that it starts, under strace.
fn start_traced(world: &mut World, file: &Path) {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-y", "-s", "2048", "-e", CALLS, "-o"]).arg(file);
    world.start_within(strace);
}

/// Returns when nothing that is traced happens any more: what a prompt leaves to be flushed must not be
/// counted as a cost of the next one.
fn calm(file: &Path) {
    let length = || std::fs::metadata(file).unwrap().len();
    let until = Instant::now() + TEST_TIMEOUT;
    let mut before = length();
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = length();
        if std::mem::replace(&mut before, now) == now {
            return;
        }
        assert!(Instant::now() < until, "the server is never calm");
    }
}

/// Returns when the files that the session found have been saved: that is done once, when its agent
/// starts, and is no cost of a prompt.
fn first_snapshot(world: &World, session: &str) {
    let stats = world.data().join("snapshots").join(session).join("stats");
    let until = Instant::now() + TEST_TIMEOUT;
    while !stats.exists() {
        assert!(Instant::now() < until, "there is no snapshot at {}", stats.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ends the traced server itself: strace ends with it.
fn end_traced(world: &mut World) {
    let info = std::fs::read(world.data().join("run/server.json")).unwrap();
    let info: Value = serde_json::from_slice(&info).unwrap();
    let pid = i32::try_from(info["pid"].as_i64().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    world.kill_agentctls();
    world.wait();
}

/// Wants to show: a prompt to an agent that runs costs one flush of the log, one request to agentctl
/// and one flush of the spool until the agent has it, and no other flush.
#[test]
fn a_prompt_costs_two_flushes_and_one_round_trip() {
    if !can_trace() {
        return;
    }
    let mut world = World::not_started();
    let file = world.folder.path().join("trace");
    start_traced(&mut world, &file);
    let session = world.session();
    first_snapshot(&world, &session);
    calm(&file);
    for prompt in 0..PROMPTS {
        let run = world.prompt(&session, &text(prompt));
        world.when(&session, |status| status["status"] == "idle");
        assert!(world.said(&session, &run).contains("on-its-way"));
        calm(&file);
    }
    end_traced(&mut world);
    let trace = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned();
    let whole = Cost { log: 1, spool: 1, other: Vec::new(), requests: 1 };
    for prompt in 0..PROMPTS {
        assert_eq!(cost(&trace, prompt), whole, "prompt {prompt}");
    }
}

/// Wants to show: a prompt before which files changed costs the same until the agent has it. The
/// snapshot of those files is taken before the prompt is written down, and flushed after its delivery.
#[test]
fn changed_files_add_no_flush_to_a_prompt() {
    if !can_trace() {
        return;
    }
    let mut world = World::not_started();
    let file = world.folder.path().join("trace");
    start_traced(&mut world, &file);
    let workspace = world.workspace();
    std::fs::write(workspace.join("first"), "before the session").unwrap();
    let session = world.session_in(&workspace);
    first_snapshot(&world, &session);
    calm(&file);
    for prompt in 0..PROMPTS {
        std::fs::write(workspace.join("changed"), format!("before prompt {prompt}")).unwrap();
        world.prompt(&session, &text(prompt));
        world.when(&session, |status| status["status"] == "idle");
        calm(&file);
    }
    let records = world.records(&session);
    end_traced(&mut world);
    let taken = records.iter().filter(|record| {
        record["kind"] == "workspace.snapshot_taken" && record["trigger"] == "turn_start"
    });
    assert_eq!(taken.count(), PROMPTS, "the files changed before each prompt");
    let trace = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned();
    let whole = Cost { log: 1, spool: 1, other: Vec::new(), requests: 1 };
    for prompt in 0..PROMPTS {
        assert_eq!(cost(&trace, prompt), whole, "prompt {prompt}");
        let (_, after) = trace.split_once(&text(prompt)).expect("the prompt was never read");
        let until_next = after.split(&text(prompt + 1)).next().unwrap_or_default();
        let flushes = until_next.lines().filter(|line| {
            line.contains("fdatasync(") && line.contains("/snapshots/") && line.contains("/pack>")
        });
        assert_eq!(flushes.count(), 1, "prompt {prompt}: its snapshot is flushed once, later");
    }
}

/// Wants to show: neither permission rules nor prompts that are held in the queue add a flush or a
/// request to a prompt.
#[test]
fn rules_and_held_prompts_add_nothing_to_a_prompt() {
    if !can_trace() {
        return;
    }
    let mut world = World::not_started();
    let file = world.folder.path().join("trace");
    let config = world.folder.path().join("config.toml");
    let rules = "[[permissions.rules]]\naction = 'deny'\ncommand = 'rm *'\n";
    std::fs::write(&config, rules.repeat(20)).unwrap();
    let mut strace = Command::new("strace");
    strace.args(["-f", "-y", "-s", "2048", "-e", CALLS, "-o"]).arg(&file);
    strace.arg("env").arg(format!("PITON_CONFIG={}", config.display()));
    world.start_within(strace);
    let session = world.session();
    first_snapshot(&world, &session);
    world.prompt(&session, "stream 100000 5");
    for number in 0..3 {
        let held = json!({"content": format!("say held {number}")});
        world.post(&format!("/api/v1/sessions/{session}/queue"), &held).good();
    }
    world.post(&format!("/api/v1/sessions/{session}/cancel"), &json!({})).good();
    world.when(&session, |status| status["status"] == "idle");
    calm(&file);
    for prompt in 0..2 {
        world.prompt(&session, &text(prompt));
        world.when(&session, |status| status["status"] == "idle");
        calm(&file);
    }
    let queue = world.get(&format!("/api/v1/sessions/{session}/queue")).good();
    end_traced(&mut world);
    assert_eq!(queue["prompts"].as_array().map(Vec::len), Some(3), "they stay held: {queue:#}");
    let trace = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned();
    let whole = Cost { log: 1, spool: 1, other: Vec::new(), requests: 1 };
    for prompt in 0..2 {
        assert_eq!(cost(&trace, prompt), whole, "prompt {prompt}");
    }
}
