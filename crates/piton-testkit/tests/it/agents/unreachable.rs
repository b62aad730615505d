//! An agentctl that does not answer blocks its own agent only.

use std::time::{Duration, Instant};

use piton_testkit::crash::Kind;
use piton_testkit::drive::Server;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::fixture::{
    Fixture, PROGRAM, SESSION, answer, asked, assert_nothing_left, check_offsets, chunks, count,
    idle, prompt, said, signal,
};

const OTHER: &str = "sess_other";
/// Less than anybody waits for an agentctl that does not answer; far more than a turn takes.
const AT_ONCE: Duration = Duration::from_secs(4);

/// A second session with an agent of its own.
fn start_other(bench: &Fixture, server: &mut Server) -> String {
    server.must(json!({"do": "create", "session": OTHER}));
    let launch = json!({"do": "launch", "session": OTHER, "workspace": bench.workspace()});
    let execution = server.must(launch).as_str().expect("an id").to_owned();
    let start = json!({"command": [PROGRAM, "echo"]});
    server.must(json!({"do": "start", "session": OTHER, "start": start}));
    server.status_when(OTHER, |status| status["facts"]["agent"]["status"] == "ready");
    execution
}

/// How long something takes that must not take long.
fn at_once<T>(what: &str, does: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = does();
    assert!(begun.elapsed() < AT_ONCE, "{what} took {:?}", begun.elapsed());
    done
}

/// A whole turn of the other session.
fn turn(server: &mut Server) {
    server.must(json!({"do": "prompt", "session": OTHER, "text": "stream 5 1"}));
    let status = server.status_when(OTHER, |status| status["status"] == "idle");
    assert_eq!(status["reason"], "run_completed", "{status:#}");
}

/// Wants to show: while one agentctl is stopped the other sessions' turns and its own session's
/// reads take as long as ever, under the server that knew it and under the next one; an answer that
/// was given meanwhile reaches it once when it continues.
#[test]
fn who_does_not_answer_holds_up_no_other() {
    let bench = Fixture::new(Kind::Sqlite);
    let (mut server, execution) = bench.start();
    let other = start_other(&bench, &mut server);
    let (agent, agentctl) = (Fixture::agent(&execution), bench.agentctl(&execution));
    let run = prompt(&mut server, "stream 40 2\nask May I?\nstream 20 2");
    let wait_id = asked(&mut server);
    signal(agentctl, Signal::STOP);
    at_once("an answer", || answer(&mut server, &wait_id));
    for _ in 0..5 {
        at_once("a turn of another session", || turn(&mut server));
        at_once("a status", || server.status(SESSION));
    }
    server.kill();
    let mut server = at_once("the start of a server", || bench.serve());
    for _ in 0..5 {
        at_once("a turn of another session", || turn(&mut server));
        at_once("a status", || server.status(SESSION));
    }
    let unreachable = |status: &Value| status["reason"] == "executor_unreachable";
    let status = server.status_when(SESSION, unreachable);
    assert_eq!(status["status"], "error", "{status:#}");
    at_once("a turn of another session", || turn(&mut server));
    signal(agentctl, Signal::CONT);
    idle(&mut server);
    assert_eq!(Fixture::agent(&execution), agent);
    let log = bench.log();
    assert_eq!(said(&log, &run), format!("{}chosen: allow_once{}", chunks(40), chunks(20)));
    check_offsets(&log);
    assert_eq!((count(&log, "run.interrupted"), count(&log, "run.completed")), (0, 1));
    for (session, execution) in [(SESSION, execution), (OTHER, other)] {
        server.must(json!({"do": "stop", "session": session}));
        assert_nothing_left(&execution, None);
    }
}
