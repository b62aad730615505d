//! A data folder that is copied, renamed or taken away while its agent is at work. The agent belongs
//! to the folder in which it began, whatever that is called, and to no other.

use std::path::Path;
use std::process::Command;

use piton_testkit::crash::Kind;
use piton_testkit::drive::{Server, processes_of, wait_until};
use serde_json::{Value, json};

use super::fixture::{
    Fixture, SESSION, TEST_TIMEOUT, assert_nothing_left, check_offsets, chunks, count, is_running,
    prompt, said, sigkill,
};

/// With a child that nothing but its mark leads to once agentctl is dead.
const TURN: &str = "escape sleep 1000\nsay before\nask May I?\nstream 40 2";

/// A turn that waits for an answer, and no server. Gives agent, agentctl, execution and run.
fn asking(bench: &Fixture) -> (u32, u32, String, String) {
    let (mut server, execution) = bench.start();
    let run = prompt(&mut server, TURN);
    server.status_when(SESSION, is_asking);
    assert!(wait_until(TEST_TIMEOUT, || escaped(&execution).is_some()), "it has a child");
    server.kill();
    let agent = Fixture::agent(&execution).expect("it outlives its server");
    (agent, bench.agentctl(&execution), execution, run)
}

/// The agent's child in a session of its own.
fn escaped(execution: &str) -> Option<u32> {
    let marked = processes_of(&format!("PITON_EXECUTION={execution}"));
    marked.iter().find(|(_, command)| command.starts_with("sleep")).map(|(pid, _)| *pid)
}

fn is_asking(status: &Value) -> bool {
    status["waits"].get(0).is_some()
}

fn answer(server: &mut Server) {
    let status = server.status_when(SESSION, is_asking);
    let (wait_id, answer) = (status["waits"][0].clone(), json!({"option_id": "allow_once"}));
    server.must(json!({"do": "answer", "session": SESSION, "wait_id": wait_id, "answer": answer}));
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-r").arg(from).arg(to).status().expect("cp runs");
    assert!(copied.success(), "{copied}");
}

/// The server of a copy finds that its execution is gone, interrupts its run, and clears away what
/// the copy had of it.
fn is_settled(server: &mut Server, bench: &Fixture, execution: &str) {
    let status = server.status_when(SESSION, |status| status["status"] == "interrupted_waiting");
    assert_eq!(status["reason"], "process_restart", "{status:#}");
    assert_eq!(status["facts"]["executor"]["status"], "stopped", "{status:#}");
    let folder = bench.data().join("run").join(execution);
    assert!(
        wait_until(TEST_TIMEOUT, || !folder.exists()),
        "what the copy had of it is cleared away"
    );
}

/// A turn of another agent, from its launch to its end.
fn goes_on(server: &mut Server, bench: &Fixture) -> String {
    let next = bench.launch(server);
    bench.start_agent(server, &[]);
    let run = prompt(server, "say again");
    server.status_when(SESSION, |status| status["status"] == "idle");
    server.must(json!({"do": "stop", "session": SESSION}));
    assert_nothing_left(&next, None);
    run
}

/// Wants to show: a server on a copy neither ends nor speaks to the original's agent. It says that
/// its own execution is gone, interrupts its run once, and can have an agent of its own.
fn a_copy_leaves_the_original_alone(kind: Kind) {
    let bench = Fixture::new(kind);
    let (agent, agentctl, execution, run) = asking(&bench);
    let copied = bench.beside("copy");
    copy(&bench.data(), &copied.data());
    let mut server = bench.serve();
    server.status_when(SESSION, |status| status["status"] == "waiting");
    let mut other = copied.serve();
    is_settled(&mut other, &copied, &execution);
    let again = goes_on(&mut other, &copied);
    assert_eq!(Fixture::agent(&execution), Some(agent), "the original's agent is the same process");
    assert!(is_running(agentctl));
    answer(&mut server);
    let status = server.status_when(SESSION, |status| status["status"] == "idle");
    assert_eq!(status["reason"], "run_completed", "{status:#}");
    server.must(json!({"do": "stop", "session": SESSION}));
    assert_nothing_left(&execution, Some(agentctl));
    other.kill();
    server.kill();
    let log = bench.log();
    assert_eq!(said(&log, &run), format!("beforechosen: allow_once{}", chunks(40)));
    check_offsets(&log);
    assert_eq!((count(&log, "run.interrupted"), count(&log, "run.completed")), (0, 1));
    let log = copied.log();
    assert_eq!((said(&log, &run), said(&log, &again)), ("before".to_owned(), "again".to_owned()));
    assert_eq!((count(&log, "run.interrupted"), count(&log, "run.completed")), (1, 1));
}

#[test]
fn a_copy_leaves_the_original_alone_on_sqlite() {
    a_copy_leaves_the_original_alone(Kind::Sqlite);
}

#[test]
fn a_copy_leaves_the_original_alone_on_files() {
    a_copy_leaves_the_original_alone(Kind::Files);
}

/// Wants to show: what the original's dead agentctl left running is its own to end, and the copy's
/// server does not do it.
#[test]
fn a_copy_leaves_the_originals_leftovers_alone() {
    let bench = Fixture::new(Kind::Sqlite);
    let (_, agentctl, execution, _) = asking(&bench);
    let child = escaped(&execution).expect("it runs");
    let copied = bench.beside("copy");
    copy(&bench.data(), &copied.data());
    sigkill(agentctl);
    let mut other = copied.serve();
    is_settled(&mut other, &copied, &execution);
    assert!(is_running(child), "it is the original's to end");
    let mut server = bench.serve();
    server.status_when(SESSION, |status| status["status"] == "interrupted_waiting");
    assert_nothing_left(&execution, Some(agentctl));
}

/// Wants to show: under a new name, also one that no socket's path would fit into, the data folder
/// is the same: its server finds the agent again, and there is no second one.
#[test]
fn a_renamed_data_folder_keeps_its_agent() {
    for name in ["moved".to_owned(), "moved-".repeat(20)] {
        let bench = Fixture::new(Kind::Sqlite);
        let (agent, agentctl, execution, run) = asking(&bench);
        let moved = bench.beside(&name);
        std::fs::rename(bench.data(), moved.data()).expect("it can be renamed");
        let mut server = moved.serve();
        answer(&mut server);
        let status = server.status_when(SESSION, |status| status["status"] == "idle");
        assert_eq!(status["reason"], "run_completed", "{status:#}");
        assert_eq!(Fixture::agent(&execution), Some(agent), "the agent is the same process");
        assert_eq!(moved.agentctl(&execution), agentctl);
        server.must(json!({"do": "stop", "session": SESSION}));
        assert_nothing_left(&execution, Some(agentctl));
        let log = moved.log();
        assert_eq!(said(&log, &run), format!("beforechosen: allow_once{}", chunks(40)));
        assert_eq!(count(&log, "run.interrupted"), 0);
    }
}

/// Wants to show: what is left in a renamed folder of a killed agentctl is found and ended.
#[test]
fn a_renamed_data_folder_keeps_its_leftovers() {
    let bench = Fixture::new(Kind::Sqlite);
    let (_, agentctl, execution, _) = asking(&bench);
    let child = escaped(&execution).expect("it runs");
    sigkill(agentctl);
    let moved = bench.beside("moved");
    std::fs::rename(bench.data(), moved.data()).expect("it can be renamed");
    assert!(is_running(child));
    let mut server = moved.serve();
    server.status_when(SESSION, |status| status["status"] == "interrupted_waiting");
    assert_nothing_left(&execution, Some(agentctl));
}

/// Wants to show: a move to another file system is a copy and a removal. The copy's run is
/// interrupted once and can be resumed with another agent; the old agent, which no server can find
/// any more, ends by itself.
#[test]
fn an_agent_whose_folder_is_taken_away_ends() {
    let bench = Fixture::new(Kind::Sqlite);
    let (_, agentctl, execution, _) = asking(&bench);
    let moved = bench.beside("elsewhere");
    copy(&bench.data(), &moved.data());
    std::fs::remove_dir_all(bench.data()).expect("it can be removed");
    let mut server = moved.serve();
    is_settled(&mut server, &moved, &execution);
    assert_nothing_left(&execution, Some(agentctl));
    assert_eq!(processes_of(&format!("PITON_EXECUTION={execution}")), []);
    goes_on(&mut server, &moved);
    assert_eq!(count(&moved.log(), "run.interrupted"), 1);
}
