//! The server dies, the turn continues.

use std::time::{Duration, Instant};

use piton_testkit::crash::Kind;
use serde_json::json;

use super::fixture::{Fixture, SESSION, check_offsets, chunks, count, header, last, prompt, said};

const TURN: &str = "stream 60 4\ntool one\nask May I?\nstream 60 4\ntool two\nstream 20 2";

/// Wants to show: whenever the server is killed, the agent's process stays the same, every chunk is
/// in the log once and in order, the question can be answered, and the turn ends.
fn a_turn_outlives_its_servers(kind: Kind, kills_min: usize) {
    let seed = std::env::var("PITON_KILL_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("PITON_KILL_SEED={seed} ({})", kind.as_str());
    let mut dice = fastrand::Rng::with_seed(seed);
    let bench = Fixture::new(kind);
    let (mut server, execution) = bench.start();
    let agent = Fixture::agent(&execution).expect("the agent runs");
    let begun = Instant::now();
    let (mut kills, mut turns) = (0, Vec::new());
    while kills < kills_min {
        let run = prompt(&mut server, TURN);
        turns.push(run.clone());
        // While it streams, while it asks, and while it streams again.
        for phase in 0..3 {
            if phase == 1 {
                let waiting = server.status_when(SESSION, |status| {
                    status["waits"].as_array().is_some_and(|waits| !waits.is_empty())
                });
                assert_eq!(waiting["status"], "waiting", "{waiting:#}");
            }
            if phase == 2 {
                let waiting = server.status_when(SESSION, |status| {
                    status["waits"].as_array().is_some_and(|waits| !waits.is_empty())
                });
                let wait_id = waiting["waits"][0].clone();
                let answer = json!({"option_id": "allow_once"});
                let order = json!({"do": "answer", "session": SESSION, "wait_id": wait_id, "answer": answer});
                if dice.bool() {
                    server.must(order);
                } else {
                    // Killed with the answer on its way: it is taken or it is not.
                    server.order(order);
                }
            }
            std::thread::sleep(Duration::from_millis(dice.u64(0..250)));
            server.kill();
            kills += 1;
            assert_eq!(Fixture::agent(&execution), Some(agent), "the agent is the same process");
            if dice.u8(0..4) == 0 {
                // No server for a while.
                std::thread::sleep(Duration::from_millis(dice.u64(0..400)));
            }
            server = bench.serve();
        }
        // An answer that was lost with the server is given now.
        let status = server.status_when(SESSION, |status| {
            status["status"] == "idle"
                || status["waits"].as_array().is_some_and(|waits| !waits.is_empty())
        });
        if let Some(wait_id) = status["waits"].get(0) {
            let answer = json!({"option_id": "allow_once"});
            server.must(
                json!({"do": "answer", "session": SESSION, "wait_id": wait_id, "answer": answer}),
            );
        }
        let status = server.status_when(SESSION, |status| status["status"] == "idle");
        assert_eq!(status["reason"], "run_completed", "{status:#}");
    }
    server.kill();
    let log = bench.log();
    for run in &turns {
        let expected = format!("{}chosen: allow_once{}{}", chunks(60), chunks(60), chunks(20));
        let said = said(&log, run);
        assert_eq!(said, expected, "what {run} said");
    }
    check_offsets(&log);
    assert_eq!(count(&log, "run.interrupted"), 0, "nothing was interrupted");
    assert_eq!(count(&log, "run.completed"), turns.len());
    // A question of `echo` is about a call, too.
    assert_eq!(count(&log, "tool.intent"), 3 * turns.len());
    assert_eq!(count(&log, "tool.outcome"), 3 * turns.len());
    assert!(count(&log, "run.reattached") > 0, "some turn was taken over");
    assert_eq!(header(last(&log, "spool.imported"))["execution_id"], json!(execution));
    let mut server = bench.serve();
    server.must(json!({"do": "stop", "session": SESSION}));
    super::fixture::assert_nothing_left(&execution, None);
    println!("{kills} kills, {} turns, {:?}", turns.len(), begun.elapsed());
}

#[test]
fn a_turn_outlives_its_servers_on_sqlite() {
    a_turn_outlives_its_servers(Kind::Sqlite, 50);
}

#[test]
fn a_turn_outlives_its_servers_on_files() {
    a_turn_outlives_its_servers(Kind::Files, 9);
}

#[test]
#[ignore = "long: part of `make soak`"]
fn a_turn_outlives_five_hundred_servers() {
    a_turn_outlives_its_servers(Kind::Sqlite, 500);
}
