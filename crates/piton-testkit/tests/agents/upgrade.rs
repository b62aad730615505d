//! An agentctl that was started before an upgrade goes on to work under the newer server.

use piton_testkit::crash::Kind;
use piton_testkit::drive::Server;
use serde_json::json;

use crate::bench_of_work::{
    Bench, PROGRAM, SESSION, assert_nothing_left, check_offsets, chunks, count, prompt, said,
};

/// Wants to show: agentctl speaks the previous version of the protocol, a turn is under way, the
/// server is replaced by one of the newest version; the turn goes on, and so do the next ones.
#[test]
fn an_older_agentctl_goes_on_under_a_newer_server() {
    let bench = Bench::new(Kind::Sqlite);
    let mut old = Server::start(PROGRAM, "sqlite", &bench.data(), &["protocol-max=1"]);
    old.must(json!({"do": "create", "session": SESSION}));
    let execution = bench.launch(&mut old);
    bench.start_agent(&mut old, &[]);
    let agent = Bench::agent(&execution);
    let first = prompt(&mut old, "stream 80 5\nask May I?\nstream 20 2");
    old.status_when(SESSION, |status| status["last_seq"].as_u64() > Some(14));
    old.kill();
    let mut server = bench.serve();
    let status = server.status_when(SESSION, |status| status["waits"].get(0).is_some());
    let wait_id = status["waits"][0].clone();
    let answer = json!({"option_id": "reject_once"});
    server.must(json!({"do": "answer", "session": SESSION, "wait_id": wait_id, "answer": answer}));
    server.status_when(SESSION, |status| status["status"] == "idle");
    let second = prompt(&mut server, "stream 30 1");
    server.status_when(SESSION, |status| status["status"] == "idle");
    assert_eq!(Bench::agent(&execution), agent, "the agent is the same process");
    server.must(json!({"do": "stop", "session": SESSION}));
    assert_nothing_left(&execution, None);
    let log = bench.log();
    let expected = format!("{}chosen: reject_once{}", chunks(80), chunks(20));
    assert_eq!(said(&log, &first), expected);
    assert_eq!(said(&log, &second), chunks(30));
    check_offsets(&log);
    assert_eq!((count(&log, "run.completed"), count(&log, "run.interrupted")), (2, 0));
}
