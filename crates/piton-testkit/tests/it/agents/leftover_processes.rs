//! Agents that cut the line to them, and agents that leave others behind.

use piton_core::Record;
use piton_testkit::crash::Kind;
use piton_testkit::drive::wait_until;
use serde_json::{Value, json};

use super::fixture::{
    Fixture, SESSION, TEST_TIMEOUT, answer, asked, assert_nothing_left, count, header, idle, last,
    prompt, said, sigkill,
};

/// Living processes with these words in their command line, whatever their environment says.
fn running(words: &str) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_words = |pid: &u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).replace('\0', " ").contains(words)
    };
    pids.filter(has_words).collect()
}

/// That agentctl ended the agent, and why, and that its run did not come to its end.
fn assert_says_why(log: &[Record]) {
    assert_eq!(header(last(log, "run.interrupted"))["reason"], "process_exit");
    assert_eq!(count(log, "run.interrupted"), 1);
    let error = last(log, "agent.error");
    assert_eq!(header(error)["code"], "agent_closed");
    let message = error.content_field("message").expect("told").to_string();
    assert!(message.contains("stopped reading its input"), "{message}");
}

/// Wants to show: an agent that does not read any more is ended, the session says why, and the
/// next agent is as good as any.
#[test]
fn an_agent_that_closes_its_input_is_ended() {
    let bench = Fixture::new(Kind::Sqlite);
    let (mut server, execution) = bench.start();
    let agentctl = bench.agentctl(&execution);
    let first = prompt(&mut server, "escape exec sleep 1000\nclose-stdin\nsay behind");
    idle(&mut server);
    assert_eq!(said(&bench.log(), &first), "behind", "what it still says is heard");
    let second = prompt(&mut server, "say what it never hears");
    let exited = |status: &Value| status["facts"]["agent"]["status"] == "exited";
    let status = server.status_when(SESSION, exited);
    assert_eq!(status["status"], "interrupted_startup", "{status:#}");
    assert_nothing_left(&execution, None);
    assert_says_why(&bench.log());
    // The session continues with another agent.
    bench.start_agent(&mut server, &[]);
    let third = prompt(&mut server, "say again");
    idle(&mut server);
    let log = bench.log();
    assert_eq!((said(&log, &second), said(&log, &third)), (String::new(), "again".to_owned()));
    server.must(json!({"do": "stop", "session": SESSION}));
    assert_nothing_left(&execution, Some(agentctl));
}

/// Wants to show: the same while it waits for an answer, which cannot reach it.
#[test]
fn an_agent_that_closes_its_input_and_asks_is_ended() {
    let bench = Fixture::new(Kind::Sqlite);
    let (mut server, execution) = bench.start();
    let run = prompt(&mut server, "close-stdin\nsay before\nask May I?");
    let wait_id = asked(&mut server);
    answer(&mut server, &wait_id);
    let exited = |status: &Value| status["facts"]["agent"]["status"] == "exited";
    let status = server.status_when(SESSION, exited);
    assert_eq!(status["status"], "interrupted_startup", "{status:#}");
    assert_nothing_left(&execution, None);
    let log = bench.log();
    assert_says_why(&log);
    assert_eq!(said(&log, &run), "before");
    server.must(json!({"do": "stop", "session": SESSION}));
}

/// Wants to show: what a killed agent leaves is killed at once. Real ones were seen to ask the
/// model once more, and could have run a tool, without a reader of their output.
#[test]
fn what_a_killed_agent_leaves_does_nothing_more() {
    let bench = Fixture::new(Kind::Sqlite);
    let (mut server, execution) = bench.start();
    let (now, step) = (bench.data().with_extension("now"), bench.data().with_extension("deed"));
    // A second after the kill; a grace would be longer.
    let later = format!(
        "trap '' TERM; while [ ! -e {} ]; do sleep 0.05; done; sleep 1; touch {}; exec sleep 1000",
        now.display(),
        step.display()
    );
    let run = prompt(&mut server, &format!("escape {later}\nsay there\nhang"));
    assert!(wait_until(TEST_TIMEOUT, || said(&bench.log(), &run) == "there"));
    let agent = Fixture::agent(&execution).expect("it is at work");
    std::fs::write(now, "").unwrap();
    sigkill(agent);
    server.status_when(SESSION, |status| status["reason"] == "process_exit");
    assert_nothing_left(&execution, None);
    assert!(!step.exists(), "it went on by itself");
    server.must(json!({"do": "stop", "session": SESSION}));
}

/// Wants to show: daemons of an agent that ends, also those without a mark and those that keep
/// starting others, are ended with it; the run is interrupted once, with its reason.
#[test]
fn daemons_end_with_the_agent_that_made_them() {
    let bench = Fixture::new(Kind::Sqlite);
    let (mut server, execution) = bench.start();
    let agentctl = bench.agentctl(&execution);
    // A duration that no other process sleeps for.
    let sleep = format!("sleep {}", 1_000_000 + std::process::id());
    let turn = format!(
        "escape exec {sleep}\n\
         escape exec env -i {sleep}\n\
         escape while :; do setsid env -i {sleep} & sleep 0.02; done\n\
         say before\nask May I?\nexit 3"
    );
    let run = prompt(&mut server, &turn);
    let wait_id = asked(&mut server);
    assert!(wait_until(TEST_TIMEOUT, || running(&sleep).len() > 6), "{:?}", running(&sleep));
    answer(&mut server, &wait_id);
    let status = server.status_when(SESSION, |status| status["status"] == "interrupted_startup");
    assert_eq!(status["reason"], "process_exit", "{status:#}");
    assert_nothing_left(&execution, None);
    assert!(wait_until(TEST_TIMEOUT, || running(&sleep).is_empty()), "{:?}", running(&sleep));
    let log = bench.log();
    assert_eq!(said(&log, &run), "beforechosen: allow_once");
    assert_eq!(count(&log, "run.interrupted"), 1);
    let exited = header(last(&log, "agent.exited"));
    assert_eq!(exited["exit_code"], 3, "{exited}");
    // agentctl has outlived it, and the next agent is as good as any.
    bench.start_agent(&mut server, &[]);
    let run = prompt(&mut server, "say again");
    idle(&mut server);
    assert_eq!(said(&bench.log(), &run), "again");
    server.must(json!({"do": "stop", "session": SESSION}));
    assert_nothing_left(&execution, Some(agentctl));
}
