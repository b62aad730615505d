//! The clock jumps between a server's lives and within one. agentctl's clock stays, so that the two
//! are apart as well.

use piton_core::Timestamp;
use piton_testkit::crash::Kind;
use piton_testkit::drive::Server;
use serde_json::{Value, json};

use super::fixture::{
    Fixture, SESSION, answer, asked, assert_nothing_left, check_offsets, chunks, count, idle,
    prompt, said,
};

const HOUR_MS: i64 = 60 * 60 * 1000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// The least time to answer after a period without a server.
const GRACE_MS: i64 = 5 * 60 * 1000;

fn moment(value: &Value) -> i64 {
    let moment: Timestamp = serde_json::from_value(value.clone()).expect("a moment");
    moment.as_millis()
}

/// Sets a server's clock; what it shows.
fn set(server: &mut Server, ahead_ms: i64) -> i64 {
    moment(&server.must(json!({"do": "clock", "ahead_ms": ahead_ms})))
}

/// When the only open question's time is up.
fn deadline(server: &mut Server) -> i64 {
    let status = server.status(SESSION);
    let waits = status["facts"]["run"]["waits"].as_object().expect("waits");
    assert_eq!(waits.len(), 1, "{status:#}");
    moment(&waits.values().next().expect("one")["deadline_at"])
}

/// Wants to show: whatever the clock says when the next server starts, a question that is open can
/// be answered for as long as the grace, nothing is interrupted, and every chunk is in its place.
#[test]
fn a_clock_that_jumps_between_two_lives_ends_nothing() {
    let bench = Fixture::new(Kind::Sqlite);
    let (mut server, execution) = bench.start();
    let agent = Fixture::agent(&execution);
    let first = prompt(&mut server, "stream 40 2\nask May I?\nstream 60 5");
    asked(&mut server);
    // A question's time is seven days: it is over, it is not yet, it was never asked.
    for ahead_ms in [8 * DAY_MS, -5 * HOUR_MS, 400 * DAY_MS, -400 * DAY_MS, 30 * DAY_MS] {
        server.kill();
        server = bench.serve_with(&[&format!("ahead-ms={ahead_ms}")]);
        let wait_id = asked(&mut server);
        let now = set(&mut server, ahead_ms);
        server.must(json!({"do": "sweep"}));
        assert_eq!(asked(&mut server), wait_id, "{ahead_ms}");
        let left_ms = deadline(&mut server) - now;
        assert!(left_ms > GRACE_MS - 60_000, "{left_ms} ms are left when {ahead_ms} ms ahead");
        assert_eq!(server.status(SESSION)["status"], "waiting", "{ahead_ms}");
    }
    let wait_id = asked(&mut server);
    answer(&mut server, &wait_id);
    server.kill();
    // Hours back in the middle of the rest.
    let mut server = bench.serve_with(&[&format!("ahead-ms={}", -5 * HOUR_MS)]);
    idle(&mut server);
    let second = prompt(&mut server, "stream 30 2");
    idle(&mut server);
    assert_eq!(Fixture::agent(&execution), agent);
    server.must(json!({"do": "stop", "session": SESSION}));
    assert_nothing_left(&execution, None);
    let log = bench.log();
    let expected = format!("{}chosen: allow_once{}", chunks(40), chunks(60));
    assert_eq!(said(&log, &first), expected);
    assert_eq!(said(&log, &second), chunks(30));
    check_offsets(&log);
    let kinds = ["run.interrupted", "wait.cancelled", "token.expired", "run.completed"];
    assert_eq!(kinds.map(|kind| count(&log, kind)), [0, 0, 0, 2]);
    assert!(log.iter().map(|record| record.seq).eq(1..=log.len() as u64));
}

/// Wants to show: a clock that jumps while the server lives changes nothing about a turn that
/// streams; a question whose time is over by it is cancelled, and the run continues.
#[test]
fn a_clock_that_jumps_within_a_life_interrupts_nothing() {
    let bench = Fixture::new(Kind::Sqlite);
    let (mut server, execution) = bench.start();
    let first = prompt(&mut server, "stream 100 5");
    for ahead_ms in [3 * DAY_MS, -5 * HOUR_MS, 0] {
        let before = server.status(SESSION)["last_seq"].as_u64();
        set(&mut server, ahead_ms);
        server.must(json!({"do": "sweep"}));
        let goes_on =
            |status: &Value| status["last_seq"].as_u64() > before || status["status"] == "idle";
        server.status_when(SESSION, goes_on);
    }
    idle(&mut server);
    let second = prompt(&mut server, "ask May I?\nsay behind");
    asked(&mut server);
    set(&mut server, -5 * HOUR_MS);
    server.must(json!({"do": "sweep"}));
    assert_eq!(server.status(SESSION)["status"], "waiting");
    set(&mut server, 8 * DAY_MS);
    let status = idle(&mut server);
    assert_eq!(status["reason"], "run_completed", "{status:#}");
    server.must(json!({"do": "stop", "session": SESSION}));
    assert_nothing_left(&execution, None);
    let log = bench.log();
    assert_eq!(said(&log, &first), chunks(100));
    assert_eq!(said(&log, &second), "chosen: nothingbehind");
    check_offsets(&log);
    let kinds = ["run.interrupted", "wait.cancelled", "token.expired", "run.completed"];
    assert_eq!(kinds.map(|kind| count(&log, kind)), [0, 1, 1, 2]);
}
