//! Readers that are cut, servers that are killed and upgraded: no reader sees a gap or a repeat,
//! and no turn notices.

use std::io::{BufRead as _, BufReader};
use std::time::Duration;

use serde_json::Value;

use crate::server::cuts::{CUTS, CUTS_LONG, Dice, KILL_EVERY};
use crate::server::world::World;

/// Reads events after a position, `count` at most, and then cuts the connection.
fn read(world: &World, session: &str, after: u64, count: usize) -> Vec<(u64, Value)> {
    let bearer = format!("Bearer {}", world.token);
    let after = after.to_string();
    let headers = [("authorization", bearer.as_str()), ("last-event-id", after.as_str())];
    let path = format!("/api/v1/sessions/{session}/events");
    let stream = world.send("GET", &path, None, &headers);
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let (mut seen, mut id) = (Vec::new(), None);
    if count == 0 {
        return seen;
    }
    for line in BufReader::new(stream).lines() {
        // Nothing more to come, or the server is gone.
        let Ok(line) = line else { break };
        if let Some(text) = line.strip_prefix("id: ") {
            id = Some(text.parse().unwrap());
        }
        // What has no id is no record.
        if let Some(data) = line.strip_prefix("data: ")
            && let Some(id) = id.take()
        {
            seen.push((id, serde_json::from_str(data).unwrap()));
        }
        if seen.len() == count {
            break;
        }
    }
    seen
}

fn cut(cuts: u64) {
    let mut dice = Dice::new();
    let mut world = World::new();
    let session = world.session();
    let words: Vec<String> = (0..cuts * 3).map(|n| format!("say word {n}\nwait 20")).collect();
    world.prompt(&session, &words.join("\n"));
    let (mut seen, mut after): (Vec<(u64, Value)>, u64) = (Vec::new(), 0);
    for _ in 0..cuts {
        let some = read(&world, &session, after, usize::try_from(dice.roll(14)).unwrap());
        if let Some((last, _)) = some.last() {
            after = *last;
        }
        seen.extend(some);
        if dice.roll(KILL_EVERY) == 0 {
            world.kill();
            world.start();
        }
    }
    world.when(&session, |status| status["status"] == "idle");
    loop {
        let rest = read(&world, &session, after, usize::MAX);
        let Some((last, _)) = rest.last() else { break };
        after = *last;
        seen.extend(rest);
    }
    let log = world.records(&session);
    assert!(log.len() as u64 > cuts * 3, "{}", log.len());
    let ids: Vec<u64> = seen.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, (1..=log.len() as u64).collect::<Vec<_>>());
    let records: Vec<Value> = seen.into_iter().map(|(_, record)| record).collect();
    assert_eq!(records, log);
}

#[test]
fn a_reader_that_is_cut_reads_exactly_the_log() {
    cut(CUTS);
}

#[test]
#[ignore = "long: make soak"]
fn a_reader_that_is_cut_reads_exactly_the_log_for_long() {
    cut(CUTS_LONG);
}

/// Ten turns go on while their server is upgraded, and killed.
#[test]
fn no_turn_notices_that_its_server_ends() {
    let mut world = World::new();
    let sessions: Vec<String> = (0..10).map(|_| world.session()).collect();
    let script: Vec<String> = (0..30).map(|n| format!("say {n};\nwait 100")).collect();
    let script = script.join("\n");
    let runs: Vec<String> = sessions.iter().map(|id| world.prompt(id, &script)).collect();
    world.end();
    world.start();
    for session in &sessions {
        assert_eq!(world.status(session)["is_agent_running"], true);
    }
    world.kill();
    world.start();
    let words: Vec<String> = (0..30).map(|n| format!("{n};")).collect();
    let expected = words.concat();
    for (session, run) in sessions.iter().zip(&runs) {
        let status = world.when(session, |status| status["status"] == "idle");
        assert_eq!(status["last_outcome"], "completed");
        assert_eq!(world.said(session, run), expected);
        let records = world.records(session);
        assert!(records.iter().all(|record| record["kind"] != "run.interrupted"));
    }
}
