//! Agents that are none, and worlds that do not help: a clear state, a reason, a way forward.

use piton_testkit::crash::Kind;
use piton_testkit::drive::{processes_of, wait_until};
use serde_json::{Value, json};

use super::fixture::{
    Fixture, SESSION, assert_nothing_left, chunks, count, header, last, prompt, said, signal,
};

/// Wants to show: whatever is started in an agent's place, the session says that and why, nothing
/// is left running, and the next agent is as good as any.
#[test]
fn what_is_no_agent_is_reported_and_the_next_one_works() {
    let bench = Fixture::new(Kind::Sqlite);
    let mut server = bench.serve();
    server.must(json!({"do": "create", "session": SESSION}));
    let execution = bench.launch(&mut server);
    let not_executable = bench.folder.path().join("not-executable");
    std::fs::write(&not_executable, "#!/bin/sh\n").expect("writable");
    let cases: [(Value, &str); 5] = [
        (json!(["no-such-agent-anywhere"]), "agent_missing"),
        (json!([not_executable]), "agent_not_executable"),
        (json!(["sh", "-c", "echo out of luck >&2; exit 3"]), "agent_exited"),
        (json!(["sh", "-c", "echo this is not JSON; exit 0"]), "agent_exited"),
        (json!([super::fixture::PROGRAM, "echo", "--protocol", "7"]), "agent_version"),
    ];
    for (before, (command, code)) in cases.into_iter().enumerate() {
        let start = json!({"command": command, "install_hint": "npm install it"});
        server.must(json!({"do": "start", "session": SESSION, "start": start}));
        let status = server.status_when(SESSION, |status| {
            status["facts"]["agent"]["status"] == "error"
                && count(&bench.log(), "agent.error") > before
        });
        let reason = match code {
            "agent_missing" | "agent_not_executable" => "agent_missing",
            _ => "agent_error",
        };
        assert_eq!(
            (&status["status"], &status["reason"]),
            (&json!("error"), &json!(reason)),
            "{command}: {status:#}"
        );
        let log = bench.log();
        let error = last(&log, "agent.error");
        assert_eq!(header(error)["code"], code, "{command}");
        let message = error.content_field("message").expect("told").to_string();
        match code {
            "agent_missing" => assert!(message.contains("npm install it"), "{message}"),
            "agent_exited" if command.to_string().contains("luck") => {
                assert!(message.contains("out of luck"), "{message}");
            }
            _ => {}
        }
        assert_eq!(processes_of(&format!("PITON_EXECUTION={execution}")), [], "{command}");
    }
    bench.start_agent(&mut server, &[]);
    let run = prompt(&mut server, "say hello");
    server.status_when(SESSION, |status| status["status"] == "idle");
    server.must(json!({"do": "stop", "session": SESSION}));
    assert_eq!(said(&bench.log(), &run), "hello");
    assert_nothing_left(&execution, None);
}

/// Wants to show: a socket that was removed is made again, without a second agent.
#[test]
fn a_removed_socket_comes_back() {
    let bench = Fixture::new(Kind::Sqlite);
    let (mut server, execution) = bench.start();
    let agent = Fixture::agent(&execution);
    prompt(&mut server, "stream 20 5\nask May I?");
    let socket = bench.data().join("run").join(format!("{execution}.sock"));
    std::fs::remove_file(&socket).expect("it is there");
    server.kill();
    let mut server = bench.serve();
    let status = server.status_when(SESSION, |status| status["waits"].get(0).is_some());
    let (wait_id, answer) = (status["waits"][0].clone(), json!({"option_id": "allow_once"}));
    server.must(json!({"do": "answer", "session": SESSION, "wait_id": wait_id, "answer": answer}));
    server.status_when(SESSION, |status| status["status"] == "idle");
    assert_eq!(Fixture::agent(&execution), agent);
    server.must(json!({"do": "stop", "session": SESSION}));
    assert_nothing_left(&execution, None);
    assert_eq!(count(&bench.log(), "run.interrupted"), 0);
}

/// Wants to show: an agent that has stopped reading and hears no signal is ended all the same, and
/// a cancelled turn is a cancelled run.
#[test]
fn a_stubborn_agent_is_ended() {
    let bench = Fixture::new(Kind::Sqlite);
    let (mut server, execution) = bench.start();
    prompt(&mut server, "ignore-term\nescape sleep 1000\nhang");
    let mark = format!("PITON_EXECUTION={execution}");
    let escaped = wait_until(super::fixture::TEST_TIMEOUT, || {
        processes_of(&mark).iter().any(|(_, command)| command.starts_with("sleep"))
    });
    assert!(escaped, "{:?}", processes_of(&mark));
    server.must(json!({"do": "cancel", "session": SESSION}));
    let status = server.status_when(SESSION, |status| status["status"] == "idle");
    assert_eq!(status["reason"], "run_cancelled");
    server.must(json!({"do": "stop", "session": SESSION}));
    assert_nothing_left(&execution, None);
}

/// Wants to show: while agentctl is stopped nothing is decided; when it continues, so does the
/// turn.
#[test]
fn who_does_not_answer_for_a_while_is_not_dead() {
    use rustix::process::Signal;
    let bench = Fixture::new(Kind::Sqlite);
    let (mut server, execution) = bench.start();
    let agentctl = bench.agentctl(&execution);
    let run = prompt(&mut server, "say before\nask May I?");
    server.status_when(SESSION, |status| status["waits"].get(0).is_some());
    signal(agentctl, Signal::STOP);
    server.kill();
    let mut server = bench.serve();
    server.status_when(SESSION, |status| status["reason"] == "executor_unreachable");
    signal(agentctl, Signal::CONT);
    let status = server.status_when(SESSION, |status| status["status"] == "waiting");
    let (wait_id, answer) = (status["waits"][0].clone(), json!({"option_id": "allow_once"}));
    server.must(json!({"do": "answer", "session": SESSION, "wait_id": wait_id, "answer": answer}));
    server.status_when(SESSION, |status| status["status"] == "idle");
    server.must(json!({"do": "stop", "session": SESSION}));
    assert_nothing_left(&execution, Some(agentctl));
    let log = bench.log();
    assert_eq!(said(&log, &run), "beforechosen: allow_once");
    assert_eq!(count(&log, "run.interrupted"), 0);
}

/// Wants to show: of a dead agentctl's spool with a flipped bit, what is before it is in the log,
/// the loss of the rest is reported once, and the damaged files are kept aside.
#[test]
fn a_damaged_spool_is_named_and_kept() {
    let bench = Fixture::new(Kind::Sqlite);
    let (mut server, execution) = bench.start();
    let run = prompt(&mut server, "wait 500\nstream 50 1\nask May I?");
    let begun = || count(&bench.log(), "effect.done") > 0;
    assert!(wait_until(super::fixture::TEST_TIMEOUT, begun), "the agent has its prompt");
    server.kill();
    let folder = bench.data().join("run").join(&execution);
    let asked = wait_until(super::fixture::TEST_TIMEOUT, || spool_bytes(&folder) > 9_000);
    assert!(asked, "the spool grows while nobody listens");
    let agentctl = bench.agentctl(&execution);
    super::fixture::sigkill(agentctl);
    let segment = segments(&folder).pop().expect("there is one");
    let mut bytes = std::fs::read(&segment).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&segment, bytes).expect("writable");
    let mut server = bench.serve();
    let status = server.status_when(SESSION, |status| status["reason"] == "process_restart");
    assert_eq!(status["status"], "interrupted_startup", "{status:#}");
    let aside = folder.with_extension("damaged");
    assert!(wait_until(super::fixture::TEST_TIMEOUT, || aside.exists() && !folder.exists()));
    assert_nothing_left(&execution, Some(agentctl));
    let log = bench.log();
    let reported = log.iter().filter(|record| record.header.contains("spool_damaged"));
    assert_eq!(reported.count(), 1);
    let said = said(&log, &run);
    assert!(chunks(50).starts_with(&said) && !said.is_empty(), "{said:?}");
    assert_eq!(count(&log, "run.interrupted"), 1);
}

/// Wants to show: of a dead agentctl's spool whose format is too old nothing is imported; one record says
/// so, the run is interrupted once, and the spool is kept aside as it was.
#[test]
fn a_spool_of_an_old_format_is_named_and_kept() {
    let fixture = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../piton-exec/tests/fixtures/v1/exec_01a1e7b3b02b79288c71cdbd1162c2e8");
    let old = std::fs::read(segments(&fixture).pop().expect("the fixture has one")).expect("it");
    let bench = Fixture::new(Kind::Sqlite);
    let (mut server, execution) = bench.start();
    let run = prompt(&mut server, "wait 500\nstream 50 1\nask May I?");
    let begun = || count(&bench.log(), "effect.done") > 0;
    assert!(wait_until(super::fixture::TEST_TIMEOUT, begun), "the agent has its prompt");
    server.kill();
    let folder = bench.data().join("run").join(&execution);
    let asked = wait_until(super::fixture::TEST_TIMEOUT, || spool_bytes(&folder) > 9_000);
    assert!(asked, "the spool grows while nobody listens");
    let agentctl = bench.agentctl(&execution);
    super::fixture::sigkill(agentctl);
    for segment in segments(&folder) {
        std::fs::remove_file(segment).expect("removable");
    }
    std::fs::write(folder.join("spool/00000000000000000001.seg"), &old).expect("writable");
    let before = count(&bench.log(), "message.delta");
    let mut server = bench.serve();
    server.status_when(SESSION, |status| status["reason"] == "process_restart");
    let aside = folder.with_extension("damaged");
    assert!(wait_until(super::fixture::TEST_TIMEOUT, || aside.exists() && !folder.exists()));
    assert_nothing_left(&execution, Some(agentctl));
    let log = bench.log();
    let reported: Vec<_> =
        log.iter().filter(|record| record.header.contains("spool_damaged")).collect();
    assert_eq!(reported.len(), 1);
    let text = format!("{:?}", reported[0]);
    assert!(text.contains("from before the first release"), "{text}");
    assert_eq!(count(&log, "message.delta"), before, "nothing was imported");
    assert!(chunks(50).starts_with(&said(&log, &run)));
    assert_eq!(count(&log, "run.interrupted"), 1);
    let kept = std::fs::read(segments(&aside).pop().expect("it is kept")).expect("readable");
    assert_eq!(kept, old);
}

fn segments(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let Ok(found) = std::fs::read_dir(folder.join("spool")) else { return Vec::new() };
    found.flatten().map(|entry| entry.path()).collect()
}

fn spool_bytes(folder: &std::path::Path) -> u64 {
    let size = |path: std::path::PathBuf| std::fs::metadata(path).map_or(0, |found| found.len());
    segments(folder).into_iter().map(size).sum()
}
