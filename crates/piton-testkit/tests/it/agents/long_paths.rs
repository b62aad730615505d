//! A data folder whose path is longer than a socket's may be.

use piton_testkit::crash::Kind;
use piton_testkit::drive::processes_of;
use serde_json::json;

use super::fixture::{
    Fixture, SESSION, answer, asked, assert_nothing_left, check_offsets, chunks, count, header,
    idle, last, prompt, said,
};

/// Wants to show: the socket goes into a folder that is closed to others; a turn outlives its
/// server there as well, and nothing of it stays.
#[test]
fn a_data_folder_that_is_too_deep_for_a_socket_works() {
    let bench = Fixture::named(Kind::Sqlite, &"d".repeat(200));
    let temp = bench.folder.path().join("t");
    std::fs::create_dir(&temp).expect("writable");
    let temp_is = format!("temp={}", temp.display());
    let mut server = bench.serve_with(&[&temp_is]);
    server.must(json!({"do": "create", "session": SESSION}));
    let execution = bench.launch(&mut server);
    bench.start_agent(&mut server, &[]);
    let agent = Fixture::agent(&execution);
    let run = prompt(&mut server, "stream 60 5\nask May I?\nstream 20 2");
    server.kill();
    assert_eq!(sockets(&temp).len(), 1);
    let mut server = bench.serve_with(&[&temp_is]);
    let wait_id = asked(&mut server);
    answer(&mut server, &wait_id);
    idle(&mut server);
    assert_eq!(Fixture::agent(&execution), agent);
    server.must(json!({"do": "stop", "session": SESSION}));
    assert_nothing_left(&execution, None);
    assert_eq!(sockets(&temp), [] as [std::path::PathBuf; 0]);
    let log = bench.log();
    assert_eq!(said(&log, &run), format!("{}chosen: allow_once{}", chunks(60), chunks(20)));
    check_offsets(&log);
    assert_eq!(count(&log, "run.interrupted"), 0);
}

/// Wants to show: where there is no room for a socket anywhere, the launch is refused with a code
/// before anything is started, the log says so, and with a better folder the session works.
#[test]
fn where_no_socket_can_be_nothing_is_started() {
    let bench = Fixture::named(Kind::Sqlite, &"d".repeat(200));
    let temp = bench.folder.path().join("t".repeat(120));
    std::fs::create_dir(&temp).expect("writable");
    let mut server = bench.serve_with(&[&format!("temp={}", temp.display())]);
    server.must(json!({"do": "create", "session": SESSION}));
    let launch = json!({"do": "launch", "session": SESSION, "workspace": bench.workspace()});
    let (code, message) = server.ask(launch).expect_err("nowhere to go");
    assert_eq!(code, "socket_path_too_long", "{message}");
    let status = server.status(SESSION);
    assert_eq!((&status["status"], &status["reason"]), (&json!("error"), &json!("executor_error")));
    let log = bench.log();
    let error = last(&log, "executor.error");
    let reported = error.content_field("message").expect("told").to_string();
    assert_eq!(header(error)["code"], "socket_path_too_long", "{reported}");
    assert!(reported.contains("short enough") && message.contains("short enough"), "{reported}");
    let execution = header(error)["execution_id"].as_str().expect("an id").to_owned();
    assert_eq!(processes_of(&format!("PITON_EXECUTION={execution}")), []);
    assert!(!bench.data().join("run").join(&execution).join("lock").exists(), "it never began");
    server.kill();
    let better = bench.folder.path().join("t");
    std::fs::create_dir(&better).expect("writable");
    let mut server = bench.serve_with(&[&format!("temp={}", better.display())]);
    let execution = bench.launch(&mut server);
    bench.start_agent(&mut server, &[]);
    let run = prompt(&mut server, "say hello");
    idle(&mut server);
    assert_eq!(said(&bench.log(), &run), "hello");
    server.must(json!({"do": "stop", "session": SESSION}));
    assert_nothing_left(&execution, None);
}

fn sockets(temp: &std::path::Path) -> Vec<std::path::PathBuf> {
    let folders = std::fs::read_dir(temp).expect("readable").flatten();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.path()).expect("a folder"));
    files.flatten().map(|entry| entry.path()).collect()
}
