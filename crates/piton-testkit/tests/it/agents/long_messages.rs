//! An agent that says very much at once.

use piton_testkit::crash::Kind;
use piton_testkit::drive::Server;
use serde_json::json;

use super::fixture::{
    Fixture, SESSION, assert_nothing_left, check_offsets, count, idle, prompt, said,
};

const MIB: u64 = 1024 * 1024;
/// The longest message that agentctl takes.
const MESSAGE_MAX: u64 = 32 * MIB;

/// The most memory that a process ever had.
fn peak_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib * 1024
}

/// Memory is a few times the longest message that is taken, however much longer the message is.
fn assert_bounded(server: &Server, agentctl: u32, times: u64) {
    for (who, pid) in [("server", server.pid()), ("agentctl", agentctl)] {
        let peak = peak_bytes(pid);
        println!("{who}: {} MiB", peak / MIB);
        assert!(peak < times * MESSAGE_MAX, "the {who} had {} MiB", peak / MIB);
    }
}

/// Wants to show: a message of 50 MB is left out, the log names how long it was, what was said
/// around it is there, and the session continues.
#[test]
fn a_message_of_fifty_megabytes_is_named_and_left_out() {
    let bench = Fixture::new(Kind::Sqlite);
    let (mut server, execution) = bench.start();
    let (agent, agentctl) = (Fixture::agent(&execution), bench.agentctl(&execution));
    let first = prompt(&mut server, &format!("say before\nhuge {}\nsay behind", 50 * MIB));
    let status = idle(&mut server);
    assert_eq!(status["reason"], "run_completed", "{status:#}");
    // Of what is longer than a message may be no more than that is ever in memory.
    assert_bounded(&server, agentctl, 3);
    let second = prompt(&mut server, "say again");
    idle(&mut server);
    assert_eq!(Fixture::agent(&execution), agent);
    let log = bench.log();
    assert_eq!(said(&log, &first), "beforebehind");
    assert_eq!(said(&log, &second), "again");
    let dropped: Vec<_> =
        log.iter().filter(|record| record.header.contains("\"dropped\"")).collect();
    assert_eq!(dropped.len(), 1, "{dropped:?}");
    let reported = dropped[0].content_field("update").expect("told");
    assert_eq!(reported["why"], "line_too_long");
    let bytes = reported["bytes"].as_u64().expect("a number");
    assert!((50 * MIB..51 * MIB).contains(&bytes), "{bytes}");
    server.must(json!({"do": "stop", "session": SESSION}));
    assert_nothing_left(&execution, Some(agentctl));
}

/// Wants to show: a message just below the limit is in the log, whole, and costs no more memory
/// than a few copies of it.
#[test]
fn a_message_of_thirty_megabytes_is_whole() {
    let bench = Fixture::new(Kind::Sqlite);
    let (mut server, execution) = bench.start();
    let agentctl = bench.agentctl(&execution);
    let length = 30 * MIB;
    let first = prompt(&mut server, &format!("huge {length}\nsay behind"));
    let status = idle(&mut server);
    assert_eq!(status["reason"], "run_completed", "{status:#}");
    assert_bounded(&server, agentctl, 10);
    let second = prompt(&mut server, "say again");
    idle(&mut server);
    let log = bench.log();
    let said_first = said(&log, &first);
    let (text, behind) = said_first.split_at(usize::try_from(length).expect("it fits"));
    assert!(text.bytes().all(|byte| byte == b'x'));
    assert_eq!((behind, said(&log, &second).as_str()), ("behind", "again"));
    check_offsets(&log);
    assert_eq!(count(&log, "run.completed"), 2);
    server.must(json!({"do": "stop", "session": SESSION}));
    assert_nothing_left(&execution, Some(agentctl));
}
