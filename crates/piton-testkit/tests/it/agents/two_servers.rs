//! Two servers on one data folder, with a live agent: one owns the session, the other is refused
//! and learns which one owns it.

use piton_testkit::crash::Kind;
use piton_testkit::drive::{Server, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::at::At;
use super::fixture::{
    Fixture, SESSION, TEST_TIMEOUT, answer, asked, assert_nothing_left, check_offsets, chunks,
    count, header, last, prompt, said, signal,
};

const TURN: &str = "stream 60 5\nask May I?\nstream 20 2";

/// Everything that a server could do to a session, and what it is refused with.
fn all_refused(server: &mut Server, bench: &Fixture, wait_id: &Value) -> Vec<String> {
    let choice = json!({"option_id": "reject_once"});
    let start = json!({"command": [super::fixture::PROGRAM, "echo"]});
    let orders = [
        json!({"do": "prompt", "session": SESSION, "text": "say what nobody wants"}),
        json!({"do": "answer", "session": SESSION, "wait_id": wait_id, "answer": choice}),
        json!({"do": "cancel", "session": SESSION}),
        json!({"do": "abandon", "session": SESSION}),
        json!({"do": "launch", "session": SESSION, "workspace": bench.workspace()}),
        json!({"do": "start", "session": SESSION, "start": start}),
        json!({"do": "stop", "session": SESSION}),
    ];
    let code = |order: Value| {
        let done = server.ask(order.clone());
        done.expect_err(&format!("{order} is not refused")).0
    };
    orders.into_iter().map(code).collect()
}

/// Every execution that ever had a folder.
fn executions(bench: &Fixture) -> Vec<String> {
    let entries = std::fs::read_dir(bench.data().join("run")).expect("readable").flatten();
    let folders = entries.filter(|entry| entry.path().is_dir());
    folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Wants to show: a second server reads the session of the first and changes nothing of it, also
/// while the first is stalled; the first continues where it was.
#[test]
fn a_second_server_leaves_the_sessions_of_a_stalled_one_alone() {
    let bench = Fixture::new(Kind::Sqlite);
    let (mut first, execution) = bench.start();
    let agent = Fixture::agent(&execution);
    let run = prompt(&mut first, TURN);
    let mut second = bench.serve();
    let wait_id = asked(&mut second);
    let owned = vec!["session_owned"; 7];
    assert_eq!(all_refused(&mut second, &bench, &wait_id), owned);
    signal(first.pid(), Signal::STOP);
    assert_eq!(all_refused(&mut second, &bench, &wait_id), owned);
    second.kill();
    // Nor does one that begins meanwhile.
    let mut third = bench.serve();
    assert_eq!(third.status(SESSION)["status"], "waiting");
    assert_eq!(all_refused(&mut third, &bench, &wait_id), owned);
    signal(first.pid(), Signal::CONT);
    answer(&mut first, &wait_id);
    first.status_when(SESSION, |status| status["status"] == "idle");
    assert_eq!(third.status(SESSION)["reason"], "run_completed");
    assert_eq!(Fixture::agent(&execution), agent);
    assert_eq!(executions(&bench), [execution.as_str()]);
    let log = bench.log();
    assert_eq!(said(&log, &run), format!("{}chosen: allow_once{}", chunks(60), chunks(20)));
    check_offsets(&log);
    let kinds = ["session.leased", "executor.starting", "run.completed", "run.reattached"];
    assert_eq!(kinds.map(|kind| count(&log, kind)), [1, 1, 1, 0]);
    first.must(json!({"do": "stop", "session": SESSION}));
    assert_nothing_left(&execution, None);
}

/// Wants to show: a server that is stalled and taken for dead (its lock is gone, as the lease of
/// one on another machine would be) is fenced off when it comes back: the log refuses the commands
/// of its clients, agentctl refuses its stale epoch, and nothing happens twice.
#[test]
fn a_stalled_server_that_was_replaced_is_not_heard_any_more() {
    let bench = Fixture::new(Kind::Sqlite);
    let (mut first, execution) = bench.start();
    let agent = Fixture::agent(&execution);
    let run = prompt(&mut first, TURN);
    let wait_id = asked(&mut first);
    signal(first.pid(), Signal::STOP);
    // What it finds when it wakes.
    let choice = json!({"option_id": "reject_once"});
    let late = json!({"do": "answer", "session": SESSION, "wait_id": wait_id, "answer": choice});
    first.order(late.clone());
    first.order(json!({"do": "prompt", "session": SESSION, "text": "say what nobody wants"}));
    let boot = header(last(&bench.log(), "run.started"))["boot_id"].clone();
    let lock = format!("{}.lock", boot.as_str().expect("an id"));
    std::fs::remove_file(bench.data().join("boots").join(lock)).expect("it is there");
    let before = At::of(&bench, &execution);
    let mut second = bench.serve();
    second.status_when(SESSION, |status| status["facts"]["run"]["boot_id"] != boot);
    let seen = bench.data().join("run").join(&execution).join("epoch");
    let heard = || {
        let text = std::fs::read_to_string(&seen).unwrap_or_default();
        text.trim().parse::<u64>().is_ok_and(|epoch| epoch > before.epoch)
    };
    assert!(wait_until(TEST_TIMEOUT, heard), "agentctl heard of the second server");
    assert_eq!(Fixture::agent(&execution), agent, "the agent is the same process");
    signal(first.pid(), Signal::CONT);
    // Answers come in the order of the work, so everything is asked for again to be sure.
    assert_eq!(first.ask(late).map_err(|(code, _)| code), Err("session_owned".to_owned()));
    assert_eq!(all_refused(&mut first, &bench, &wait_id), vec!["session_owned"; 7]);
    assert_eq!(before.late_answer(&wait_id), "epoch_stale");
    answer(&mut second, &wait_id);
    second.status_when(SESSION, |status| status["status"] == "idle");
    let again = prompt(&mut second, "say again");
    second.status_when(SESSION, |status| status["status"] == "idle");
    assert_eq!(first.status(SESSION)["last_seq"], second.status(SESSION)["last_seq"]);
    assert_eq!(Fixture::agent(&execution), agent, "the agent is the same process");
    assert_eq!(executions(&bench), [execution.as_str()]);
    let log = bench.log();
    assert_eq!(said(&log, &run), format!("{}chosen: allow_once{}", chunks(60), chunks(20)));
    assert_eq!(said(&log, &again), "again");
    check_offsets(&log);
    let kinds = ["executor.starting", "run.reattached", "run.completed", "run.interrupted"];
    assert_eq!(kinds.map(|kind| count(&log, kind)), [1, 1, 2, 0]);
    second.must(json!({"do": "stop", "session": SESSION}));
    assert_nothing_left(&execution, None);
}
