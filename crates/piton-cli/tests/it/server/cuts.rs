//! Subscribers that are cut at random, over servers that are killed: each reads exactly the log.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::server::socket::{Silence, Socket};
use crate::server::world::World;

/// Connections that are cut.
pub(crate) const CUTS: u64 = 60;
pub(crate) const CUTS_LONG: u64 = 500;
/// One cut in so many takes the server with it.
pub(crate) const KILL_EVERY: u64 = 10;

/// Numbers that follow from a seed.
pub(crate) struct Dice(u64);

impl Dice {
    /// From a seed that is said.
    pub(crate) fn new() -> Self {
        let seed = seed();
        eprintln!("PITON_SEED={seed}");
        Self(seed)
    }

    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

fn seed() -> u64 {
    let given = std::env::var("PITON_SEED").ok().and_then(|seed| seed.parse().ok());
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
    given.unwrap_or_else(|| u64::from(now()) + 1)
}

/// Where a subscriber is: all events of every record up to `after`.
#[derive(Default)]
struct Place {
    after: u64,
    seen: Vec<Value>,
}

impl Place {
    /// Reads so many events at most, and forgets what came of a record that was cut.
    fn read(&mut self, world: &World, session: &str, count: u64) {
        let mut socket = Socket::connect(world);
        let params = json!({"session_id": session, "after": self.after});
        socket.good("session.subscribe", &params);
        let mut begun = Vec::new();
        for _ in 0..count {
            match socket.event(Duration::from_millis(200)) {
                Ok(event) => begun.push(event),
                Err(Silence::Nothing) => break,
                Err(silence) => panic!("{silence:?}"),
            }
            let payload = &begun[begun.len() - 1]["payload"];
            if payload.get("more").is_none() {
                self.after = payload["seq"].as_u64().unwrap();
                self.seen.append(&mut begun);
            }
        }
        // Dropped without a closing handshake.
    }
}

/// The events are the log: every record once, in order, with what it says.
fn compare(seen: &[Value], log: &[Value]) {
    let whole: Vec<&Value> =
        seen.iter().filter(|event| event["payload"].get("more").is_none()).collect();
    let seqs: Vec<u64> =
        whole.iter().map(|event| event["payload"]["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=log.len() as u64).collect::<Vec<_>>());
    for (event, record) in whole.iter().zip(log) {
        let (name, payload) = (event["event"].as_str().unwrap(), &event["payload"]);
        assert_eq!(payload["ts"], record["ts"]);
        match record["kind"].as_str().unwrap() {
            "message.user" => {
                assert_eq!((name, &payload["text"]), ("session.message.added", &record["content"]));
            }
            "message.delta" => {
                let first = record["offset"] == 0;
                let named = if first { "session.message.added" } else { "session.message.updated" };
                assert_eq!(name, named);
                for field in ["message_id", "offset", "text"] {
                    assert_eq!(payload[field], record[field]);
                }
            }
            "message.completed" => {
                assert_eq!((name, &payload["complete"]), ("session.message.updated", &json!(true)));
                assert_eq!(payload["hash"], record["hash"]);
            }
            "executor.starting" => assert_eq!(name, "session.agentctl_starting"),
            "executor.ready" => assert_eq!(name, "session.agentctl_ready"),
            "executor.error" | "executor.unreachable" => {
                assert_eq!(name, "session.agentctl_error");
            }
            "agent.updated" => {
                assert_eq!(name, "session.agent_updated");
                assert_eq!(payload["agent_execution_id"], record["execution_id"]);
                for field in ["run_id", "what", "update"] {
                    assert_eq!(payload[field], record[field]);
                }
            }
            "status.derived" => {
                assert_eq!(
                    (name, &payload["status"]),
                    ("session.state_changed", &record["status"])
                );
            }
            _ => assert_eq!((name, &payload["record"]), ("session.record", record)),
        }
    }
    // One change of the state follows from another, wherever the connection was cut.
    let mut status = "idle".to_owned();
    for event in seen.iter().filter(|event| event["payload"].get("more").is_some()) {
        assert_eq!(event["event"], "session.state_changed");
        assert_eq!(event["payload"]["old_status"], status.as_str(), "{event:#}");
        event["payload"]["status"].as_str().unwrap().clone_into(&mut status);
    }
}

fn cut(cuts: u64) {
    let mut dice = Dice::new();
    let mut world = World::new();
    let session = world.session();
    let words: Vec<String> = (0..cuts * 3).map(|n| format!("say word {n}\nwait 20")).collect();
    world.prompt(&session, &words.join("\n"));
    let mut place = Place::default();
    for _ in 0..cuts {
        place.read(&world, &session, dice.roll(14));
        if dice.roll(KILL_EVERY) == 0 {
            world.kill();
            world.start();
        }
    }
    world.when(&session, |status| status["status"] == "idle");
    let log = loop {
        let log = world.records(&session);
        if place.after == log.len() as u64 {
            break log;
        }
        place.read(&world, &session, 1_000);
    };
    assert!(log.len() as u64 > cuts * 3, "{}", log.len());
    compare(&place.seen, &log);
}

#[test]
fn a_subscriber_that_is_cut_reads_exactly_the_log() {
    cut(CUTS);
}

#[test]
#[ignore = "long: make soak"]
fn a_subscriber_that_is_cut_reads_exactly_the_log_for_long() {
    cut(CUTS_LONG);
}
