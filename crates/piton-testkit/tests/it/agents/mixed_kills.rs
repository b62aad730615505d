//! One session, killed again and again: its server, its agent, its agentctl, any of them together, in
//! the middle of a turn. Nothing is lost, nothing is said twice, and each death of an agent is one
//! interruption.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use piton_core::Record;
use piton_core::event::Event;
use piton_testkit::crash::Kind;
use piton_testkit::drive::wait_until;
use serde_json::{Value, json};

use super::fixture::{
    Fixture, SESSION, TEST_TIMEOUT, answer, asked, assert_nothing_left, check_offsets, chunks,
    count, idle, prompt, said, sigkill,
};

const KILLS: usize = 40;
const KILLS_LONG: usize = 500;
const TURN: &str = "stream 20 3\nask May I?\nsay end";

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dies {
    server: bool,
    agentctl: bool,
    agent: bool,
}

impl Dies {
    /// One of the seven ways.
    fn random(dice: &mut fastrand::Rng) -> Self {
        let who = dice.u8(1..8);
        Self { server: who & 1 > 0, agentctl: who & 2 > 0, agent: who & 4 > 0 }
    }

    /// The agent ends: by itself, or with its agentctl.
    fn ends_turn(self) -> bool {
        self.agentctl || self.agent
    }
}

fn has_spoken(records: &[Record], run: &str) -> bool {
    records.iter().any(|record| match record.event() {
        Ok(Event::MessageDelta(e)) => e.run_id.is_some_and(|of| of.as_str() == run),
        _ => false,
    })
}

fn mixed_kills(kills: usize) {
    let seed = std::env::var("PITON_KILL_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("PITON_KILL_SEED={seed}");
    let mut dice = fastrand::Rng::with_seed(seed);
    let bench = Fixture::new(Kind::Sqlite);
    let begun = Instant::now();
    let (mut server, mut execution) = bench.start();
    // By run: whether it was interrupted.
    let mut runs: BTreeMap<String, bool> = BTreeMap::new();
    for _ in 0..kills {
        let dies = Dies::random(&mut dice);
        let (agent, agentctl) =
            (Fixture::agent(&execution).expect("it runs"), bench.agentctl(&execution));
        let from = bench.log().last().map_or(0, |record| record.seq);
        let run = prompt(&mut server, TURN);
        // While it speaks, or while it asks.
        let spoke = wait_until(TEST_TIMEOUT, || has_spoken(&bench.log_after(from), &run));
        assert!(spoke, "{dies:?}: {run} says nothing");
        if dice.bool() {
            asked(&mut server);
        } else {
            std::thread::sleep(Duration::from_millis(dice.u64(0..40)));
        }
        // agentctl first: it must not have the time to say what it saw.
        let others = [(dies.agentctl, agentctl), (dies.agent, agent)];
        let dying = others.into_iter().filter(|(dies, _)| *dies).map(|(_, pid)| pid);
        if dies.server {
            server.kill();
            dying.for_each(sigkill);
            server = bench.serve();
        } else {
            dying.for_each(sigkill);
        }
        runs.insert(run, dies.ends_turn());
        if !dies.ends_turn() {
            let wait_id = asked(&mut server);
            answer(&mut server, &wait_id);
            idle(&mut server);
            continue;
        }
        server.status_when(SESSION, |status| {
            status["status"].as_str().is_some_and(|name| name.starts_with("interrupted"))
        });
        if !dies.agentctl {
            server.must(json!({"do": "stop", "session": SESSION}));
        }
        assert_nothing_left(&execution, Some(agentctl));
        execution = bench.launch(&mut server);
        bench.start_agent(&mut server, &[]);
    }
    server.must(json!({"do": "stop", "session": SESSION}));
    assert_nothing_left(&execution, None);
    drop(server);
    check(&bench.log(), &runs);
    println!("{kills} kills in {:.1?}", begun.elapsed());
}

fn check(log: &[Record], runs: &BTreeMap<String, bool>) {
    check_offsets(log);
    let whole = format!("{}chosen: allow_once end", chunks(20));
    let of_run = |record: &&Record, run: &str| {
        let header: Value = serde_json::from_str(&record.header).expect("JSON");
        header["run_id"] == run
    };
    for (run, is_interrupted) in runs {
        let records: Vec<Record> =
            log.iter().filter(|record| of_run(record, run)).cloned().collect();
        let said = said(log, run);
        let words: String = said.split_whitespace().collect();
        let all: String = whole.split_whitespace().collect();
        assert!(!words.is_empty() && all.starts_with(&words), "{run} said {said:?}");
        assert_eq!(count(&records, "run.started"), 1, "{run}");
        assert_eq!(count(&records, "run.interrupted"), usize::from(*is_interrupted), "{run}");
        assert_eq!(count(&records, "run.completed"), usize::from(!is_interrupted), "{run}");
        if !is_interrupted {
            assert_eq!(words, all, "{run}");
        }
    }
    assert_eq!(count(log, "run.started"), runs.len());
}

#[test]
fn forty_mixed_kills() {
    mixed_kills(KILLS);
}

#[test]
#[ignore = "long: part of `make soak`"]
fn five_hundred_mixed_kills() {
    mixed_kills(KILLS_LONG);
}
