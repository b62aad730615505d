//! The agent dies, agentctl dies, both, everything: one interruption, the right reason, nothing
//! left running.

use std::time::Duration;

use piton_core::transcript::{self, Item, Outcome};
use piton_testkit::crash::Kind;
use piton_testkit::drive::wait_until;
use serde_json::{Value, json};

use super::fixture::{
    Fixture, SESSION, TEST_TIMEOUT, assert_nothing_left, count, header, is_running, last, prompt,
    said, sigkill,
};

/// A turn with an escaped child, a call under way, and an open question.
const TURN: &str = "escape sleep 1000\nsay before\nask May I?";

/// Between looks for executions that are no session's.
const LOOKS_APART: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dies {
    Agent,
    Agentctl,
    Both,
    ServerAndAgent,
    ServerAndAgentctl,
    Everything,
}

fn is_asking(status: &Value) -> bool {
    status["waits"].as_array().is_some_and(|waits| !waits.is_empty())
}

fn whoever_dies(dies: Dies) {
    let bench = Fixture::new(Kind::Sqlite);
    let (mut server, execution) = bench.start();
    let (agent, agentctl) =
        (Fixture::agent(&execution).expect("it runs"), bench.agentctl(&execution));
    let run = prompt(&mut server, TURN);
    server.status_when(SESSION, is_asking);
    let kills_server =
        matches!(dies, Dies::ServerAndAgent | Dies::ServerAndAgentctl | Dies::Everything);
    if kills_server {
        server.kill();
        server = {
            kill(dies, agent, agentctl);
            bench.serve()
        };
    } else {
        kill(dies, agent, agentctl);
    }
    let status = server.status_when(SESSION, |status| status["status"] == "interrupted_waiting");
    let reason = match dies {
        // The agentctl that outlived it told what became of it.
        Dies::Agent | Dies::ServerAndAgent | Dies::Agentctl | Dies::Both => "process_exit",
        Dies::ServerAndAgentctl | Dies::Everything => "process_restart",
    };
    assert_eq!(status["reason"], reason, "{dies:?}: {status:#}");
    let survives = matches!(dies, Dies::Agent | Dies::ServerAndAgent);
    if survives {
        assert_eq!(status["facts"]["executor"]["status"], "ready", "{status:#}");
        server.must(json!({"do": "stop", "session": SESSION}));
    }
    assert_nothing_left(&execution, Some(agentctl));
    let log = bench.log();
    assert_eq!(count(&log, "run.interrupted"), 1, "{dies:?}");
    assert_eq!(header(last(&log, "run.interrupted"))["reason"], json!(reason));
    assert_eq!(said(&log, &run), "before");
    let items = transcript::build(&log, None).expect("readable");
    let unknown = |item: &&Item| matches!(item, Item::Tool { outcome: Outcome::Unknown, .. });
    assert!(items.iter().filter(unknown).count() >= 1, "{dies:?}: {items:?}");
    // The session continues with another agent.
    let next = bench.launch(&mut server);
    bench.start_agent(&mut server, &[]);
    let run = prompt(&mut server, "say again");
    server.status_when(SESSION, |status| status["status"] == "idle");
    server.must(json!({"do": "stop", "session": SESSION}));
    assert_nothing_left(&next, None);
    assert_eq!(said(&bench.log(), &run), "again");
}

fn kill(dies: Dies, agent: u32, agentctl: u32) {
    // agentctl first: it must not have the time to say what it saw.
    if matches!(dies, Dies::Agentctl | Dies::Both | Dies::ServerAndAgentctl | Dies::Everything) {
        sigkill(agentctl);
    }
    if matches!(dies, Dies::Agent | Dies::Both | Dies::ServerAndAgent | Dies::Everything) {
        sigkill(agent);
    }
}

#[test]
fn the_agent_dies() {
    whoever_dies(Dies::Agent);
}

#[test]
fn agentctl_dies() {
    whoever_dies(Dies::Agentctl);
}

#[test]
fn both_die() {
    whoever_dies(Dies::Both);
}

#[test]
fn server_and_agent_die() {
    whoever_dies(Dies::ServerAndAgent);
}

#[test]
fn server_and_agentctl_die() {
    whoever_dies(Dies::ServerAndAgentctl);
}

#[test]
fn everything_dies() {
    whoever_dies(Dies::Everything);
}

/// Wants to show: a session that is closed in the middle of a turn has no agent a moment later, well
/// before anybody looks for strangers.
#[test]
fn the_agent_of_a_closed_session_is_ended_at_once() {
    let bench = Fixture::new(Kind::Sqlite);
    let (mut server, execution) = bench.start();
    let (agent, agentctl) =
        (Fixture::agent(&execution).expect("it runs"), bench.agentctl(&execution));
    let run = prompt(&mut server, TURN);
    server.status_when(SESSION, is_asking);
    server.must(json!({"do": "close", "session": SESSION}));
    let ended = wait_until(LOOKS_APART / 2, || !is_running(agent) && !is_running(agentctl));
    assert!(ended, "they outlive their session");
    assert_nothing_left(&execution, Some(agentctl));
    let stopped = |status: &Value| status["facts"]["executor"]["status"] == "stopped";
    server.status_when(SESSION, stopped);
    let log = bench.log();
    assert_eq!((count(&log, "run.cancelled"), count(&log, "run.interrupted")), (1, 0));
    assert_eq!(said(&log, &run), "before");
}

/// Wants to show: an agentctl that does not answer is not dead; given up, and back, it is ended.
#[test]
fn an_abandoned_execution_that_returns_is_ended() {
    use rustix::process::Signal;
    let bench = Fixture::new(Kind::Sqlite);
    let (mut server, execution) = bench.start();
    let agentctl = bench.agentctl(&execution);
    prompt(&mut server, "say before\nask May I?");
    server.status_when(SESSION, is_asking);
    super::fixture::signal(agentctl, Signal::STOP);
    server.kill();
    let mut server = bench.serve();
    let status = server.status_when(SESSION, |status| status["status"] == "error");
    assert_eq!(status["reason"], "executor_unreachable", "{status:#}");
    let refused =
        server.ask(json!({"do": "launch", "session": SESSION, "workspace": bench.workspace()}));
    assert_eq!(refused.map_err(|(code, _)| code), Err("executor_alive".into()), "no second agent");
    server.must(json!({"do": "abandon", "session": SESSION}));
    assert_eq!(server.status(SESSION)["reason"], "abandoned");
    super::fixture::signal(agentctl, Signal::CONT);
    server.kill();
    let server = bench.serve();
    assert_nothing_left(&execution, Some(agentctl));
    let folder = bench.data().join("run").join(&execution);
    assert!(wait_until(TEST_TIMEOUT, || !folder.exists()), "its folder is cleared away");
    drop(server);
    assert_eq!(count(&bench.log(), "run.interrupted"), 1);
}
