//! An agentctl that was started before an upgrade keeps working under the newer server; one that
//! has no version in common with it is replaced between turns.

use piton_exec::protocol::{PROTOCOL, PROTOCOL_MIN};
use piton_testkit::crash::Kind;
use piton_testkit::drive::{Server, wait_until};
use serde_json::json;

use super::fixture::{
    Fixture, PROGRAM, SESSION, TEST_TIMEOUT, answer, asked, assert_nothing_left, check_offsets,
    chunks, count, header, is_running, last, prompt, said,
};

/// Wants to show: agentctl speaks the oldest version of the protocol that this program understands, a
/// turn is under way, the server is replaced by one of the newest version; the turn continues in the
/// same agent, and so do its question and the next turn.
#[test]
fn an_older_agentctl_keeps_working_under_a_newer_server() {
    let bench = Fixture::new(Kind::Sqlite);
    let option = format!("protocol-max={PROTOCOL_MIN}");
    let mut old = bench.serve_with(&[&option]);
    old.must(json!({"do": "create", "session": SESSION}));
    let execution = bench.launch(&mut old);
    bench.start_agent(&mut old, &[]);
    let agent = Fixture::agent(&execution);
    let first = prompt(&mut old, "stream 80 5\nask May I?\nstream 20 2");
    assert!(wait_until(TEST_TIMEOUT, || !said(&bench.log(), &first).is_empty()), "it streams");
    old.kill();
    let mut server = bench.serve();
    let wait_id = asked(&mut server);
    answer(&mut server, &wait_id);
    server.status_when(SESSION, |status| status["status"] == "idle");
    let second = prompt(&mut server, "stream 30 1");
    server.status_when(SESSION, |status| status["status"] == "idle");
    assert_eq!(Fixture::agent(&execution), agent, "the agent is the same process");
    server.must(json!({"do": "stop", "session": SESSION}));
    assert_nothing_left(&execution, None);
    let log = bench.log();
    let expected = format!("{}chosen: allow_once{}", chunks(80), chunks(20));
    assert_eq!(said(&log, &first), expected);
    assert_eq!(said(&log, &second), chunks(30));
    check_offsets(&log);
    assert_eq!((count(&log, "run.completed"), count(&log, "run.interrupted")), (2, 0));
    assert_eq!(count(&log, "executor.unreachable"), 0, "it is understood");
}

/// Wants to show: a server that starts removes a program that no process runs from, and not the one
/// that a living agentctl was started from.
#[test]
fn programs_that_no_one_runs_from_are_cleared_away_at_the_start() {
    let bench = Fixture::new(Kind::Sqlite);
    let (server, execution) = bench.start();
    let agent = Fixture::agent(&execution);
    server.kill();
    let bin = bench.data().join("bin");
    let used: Vec<_> = std::fs::read_dir(&bin).expect("readable").flatten().collect();
    let old = bin.join("piton-0.0.1-0123456789abcdef");
    std::fs::write(&old, "an old program").expect("writable");
    let mut server = bench.serve();
    assert!(wait_until(TEST_TIMEOUT, || !old.exists()), "nobody runs from it");
    assert!(!used.is_empty() && used.iter().all(|entry| entry.path().exists()));
    let run = prompt(&mut server, "say still");
    server.status_when(SESSION, |status| status["status"] == "idle");
    assert_eq!(Fixture::agent(&execution), agent, "the agent is the same process");
    server.must(json!({"do": "stop", "session": SESSION}));
    assert_nothing_left(&execution, None);
    assert_eq!(said(&bench.log(), &run), "still");
}

/// Versions that this program does not speak.
const UNSUPPORTED: [u32; 1] = [9];

/// A server and an agentctl of a version that no other server knows.
fn foreign(bench: &Fixture, version: u32) -> (Server, String) {
    let option = format!("protocol-max={version}");
    let mut server = Server::start(PROGRAM, "sqlite", &bench.data(), &[&option]);
    server.must(json!({"do": "create", "session": SESSION}));
    let execution = bench.launch(&mut server);
    bench.start_agent(&mut server, &[]);
    (server, execution)
}

fn goes_on(server: &mut Server, bench: &Fixture) {
    let next = bench.launch(server);
    bench.start_agent(server, &[]);
    let run = prompt(server, "say again");
    server.status_when(SESSION, |status| status["status"] == "idle");
    server.must(json!({"do": "stop", "session": SESSION}));
    assert_nothing_left(&next, None);
    assert_eq!(said(&bench.log(), &run), "again");
}

/// Wants to show: an agentctl that cannot be spoken to and has nothing to do is ended, the log says
/// why, and the session continues with a new one.
#[test]
fn an_idle_agentctl_of_an_unknown_version_is_replaced() {
    for version in UNSUPPORTED {
        an_idle_agentctl_is_replaced(version);
    }
}

fn an_idle_agentctl_is_replaced(version: u32) {
    let bench = Fixture::new(Kind::Sqlite);
    let (mut old, execution) = foreign(&bench, version);
    let run = prompt(&mut old, "stream 30 1");
    old.status_when(SESSION, |status| status["status"] == "idle");
    let agentctl = bench.agentctl(&execution);
    old.kill();
    let mut server = bench.serve();
    server.status_when(SESSION, |status| status["facts"]["executor"]["status"] == "stopped");
    assert_nothing_left(&execution, Some(agentctl));
    let log = bench.log();
    let reported = last(&log, "executor.unreachable");
    assert_eq!(header(reported)["code"], "protocol_unsupported");
    let message = reported.content_field("message").expect("told").to_string();
    let why = format!(
        "It speaks protocol {version} to {version}, this program {PROTOCOL_MIN} to {PROTOCOL}"
    );
    assert!(message.contains(&why), "{message}");
    assert_eq!(said(&log, &run), chunks(30));
    goes_on(&mut server, &bench);
}

/// Wants to show: one that is at work is left alone, and the session says why it cannot be reached;
/// when its turn is over it is ended, and what it said without a reader is in the log, also the
/// turn's end.
#[test]
fn a_busy_agentctl_of_an_unknown_version_is_replaced_after_its_turn() {
    let bench = Fixture::new(Kind::Sqlite);
    let (mut old, execution) = foreign(&bench, 9);
    let agentctl = bench.agentctl(&execution);
    let gate = bench.folder.path().join("gate");
    let until_open = format!("run until test -e {}; do sleep 0.02; done", gate.display());
    let run = prompt(&mut old, &format!("say before\n{until_open}\nstream 40 1"));
    assert!(
        wait_until(TEST_TIMEOUT, || said(&bench.log(), &run) == "before"),
        "the turn is under way"
    );
    old.kill();
    let mut server = bench.serve();
    let status = server.status_when(SESSION, |status| {
        status["facts"]["executor"]["code"] == "protocol_unsupported"
    });
    assert_eq!(
        (&status["status"], &status["reason"]),
        (&json!("error"), &json!("executor_unreachable")),
        "{status:#}"
    );
    let launch = json!({"do": "launch", "session": SESSION, "workspace": bench.workspace()});
    let refused = server.ask(launch).map_err(|(code, _)| code);
    assert_eq!(refused, Err("executor_alive".into()), "no second agent");
    assert!(is_running(agentctl) && Fixture::agent(&execution).is_some());
    std::fs::write(&gate, "open").expect("writable");
    let status = server.status_when(SESSION, |status| status["status"] == "idle");
    assert_eq!(status["reason"], "run_completed", "{status:#}");
    assert_nothing_left(&execution, Some(agentctl));
    let log = bench.log();
    assert_eq!(said(&log, &run), format!("before{}", chunks(40)));
    check_offsets(&log);
    assert_eq!((count(&log, "run.completed"), count(&log, "run.interrupted")), (1, 0));
    assert_eq!(count(&log, "executor.unreachable"), 1, "it is told once");
    goes_on(&mut server, &bench);
}
