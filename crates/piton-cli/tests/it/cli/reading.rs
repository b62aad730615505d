//! Commands that read: list, show, log, waits.

use std::io::{BufRead, BufReader};
use std::process::Child;

use insta::assert_snapshot;
use rustix::process::{Pid, Signal, kill_process};

use crate::cli::fixture::Fixture;
use crate::cli::home::Home;

#[test]
fn sessions_are_listed() {
    let mut fixture = Fixture::new();
    assert_snapshot!("list", fixture.run("sessions list"));
    assert_snapshot!("list_json", fixture.run("sessions list --json"));
    assert_snapshot!("list_color", fixture.run("sessions list --color always"));
    assert_snapshot!("list_status", fixture.run("sessions list --status interrupted_waiting"));
    assert_snapshot!("list_word", fixture.run("sessions list --status interrupted"));
    assert_snapshot!("list_status_paused", fixture.run("sessions list --status paused"));
    assert_snapshot!("list_status_none", fixture.run("sessions list --status error"));
    assert_snapshot!("list_status_wrong", fixture.run("sessions list --status asleep"));
    fixture.home.set("COLUMNS", "40");
    assert_snapshot!("list_narrow", fixture.run("sessions list"));
    fixture.home.set("COLUMNS", "62");
    assert_snapshot!("list_cut", fixture.run("sessions list"));
}

/// Page by page gives the same as all at once.
#[test]
fn a_list_continues_where_it_stopped() {
    let fixture = Fixture::new();
    let first = fixture.run("sessions list --limit 2");
    assert_snapshot!("list_first_page", first);
    let (_, cursor) = first.split_once("--after ").unwrap();
    let cursor = cursor.lines().next().unwrap();
    let rest = fixture.run(&format!("sessions list --after {cursor}"));
    assert_snapshot!("list_second_page", rest);
    assert_snapshot!("list_wrong_cursor", fixture.run("sessions list --after yesterday"));
    let whole = fixture.run("sessions list --limit 7");
    assert!(!whole.contains("--after"), "there is nothing after the last: {whole}");
}

#[test]
fn without_a_store_there_are_no_sessions() {
    let home = Home::new();
    assert_snapshot!("list_no_store", home.run("sessions list"));
    assert_snapshot!("list_no_store_json", home.run("sessions list --json"));
    assert_snapshot!("waits_no_store", home.run("sessions waits"));
    assert_snapshot!("show_no_store", home.run("sessions show sess_done"));
    assert!(!home.data().exists(), "reading makes nothing");
}

/// `NO_COLOR` and a pipe mean no colours, unless `--color always` is given.
#[test]
fn colours_are_asked_for() {
    let colored = |set: &[(&str, &str)], arguments: &str| {
        let mut fixture = Fixture::new();
        for (name, value) in set {
            fixture.home.set(name, value);
        }
        fixture.run(&format!("sessions list {arguments}")).contains('␛')
    };
    assert!(!colored(&[], ""));
    assert!(colored(&[("CLICOLOR_FORCE", "1")], ""));
    assert!(!colored(&[("CLICOLOR_FORCE", "0")], ""));
    assert!(!colored(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], ""));
    assert!(colored(&[("NO_COLOR", "1")], "--color always"));
    assert!(colored(&[("NO_COLOR", "1"), ("PITON_COLOR", "always")], ""));
    assert!(!colored(&[("CLICOLOR_FORCE", "1")], "--color never"));
}

#[test]
fn a_session_is_shown() {
    let mut fixture = Fixture::new();
    for name in ["done", "new", "cut_working", "cut_asking", "detached", "odd", "live"] {
        let text = fixture.run(&format!("sessions show sess_{name}"));
        assert_snapshot!(format!("show_{name}"), text);
    }
    assert_snapshot!("show_json", fixture.run("sessions show sess_cut_working --json"));
    assert_snapshot!("show_live_json", fixture.run("sessions show sess_live --json"));
    assert_snapshot!("show_color", fixture.run("sessions show sess_cut_working --color always"));
    assert_snapshot!("show_messages", fixture.run("sessions show sess_done --messages 1"));
    fixture.home.set("COLUMNS", "40");
    assert_snapshot!("show_narrow", fixture.run("sessions show sess_cut_asking"));
}

/// An id may be shortened to a beginning or an end that only one session has; `@last` is the
/// session that was active last, as the list has it.
#[test]
fn ids_may_be_shortened() {
    let fixture = Fixture::new();
    let whole = fixture.run("sessions show sess_detached --json");
    let short = fixture.run("sessions show sess_de --json");
    assert_eq!(short.lines().nth(2), whole.lines().nth(2));
    let by_end = fixture.run("sessions show tached --json");
    assert_eq!(by_end.lines().nth(2), whole.lines().nth(2));
    let session_id = |text: String| {
        let (_, behind) = text.split_once("\"session_id\":\"").expect("the answer has an id");
        behind.split('"').next().map(str::to_owned)
    };
    let first = session_id(fixture.run("sessions list --limit 1 --json"));
    assert_eq!(session_id(fixture.run("sessions show @last --json")), first);
    assert_snapshot!("ambiguous", fixture.run("sessions show sess_cut"));
    assert_snapshot!("ambiguous_many", fixture.run("sessions show sess"));
    assert_snapshot!("ambiguous_json", fixture.run("sessions cancel sess_cut --json"));
}

/// With more sessions than the lookup reads, a prefix cannot be proved unique: the command asks for
/// whole ids, and they work. A list is one page of many.
#[test]
fn among_too_many_sessions_only_whole_ids_count() {
    let fixture = Fixture::new();
    // The index is a cache: rows without logs are enough to look through.
    fixture.sql(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
         INSERT INTO sessions
           SELECT 1000 + i, 'sess_more_' || i, active_at - i, task_id, closed, needs_recovery,
                  deadline_at, summary
           FROM sessions, n WHERE id = 'sess_new';
         INSERT INTO heads SELECT no, 1, NULL FROM sessions WHERE no > 1000;",
    );
    assert_snapshot!("too_many", fixture.run("sessions show sess_det"));
    assert!(fixture.run("sessions show sess_detached").ends_with("--- exit 0\n"));
    let listed = fixture.run("sessions list --limit 1000 --json");
    assert_eq!(listed.lines().filter(|line| line.starts_with('{')).count(), 1_000);
}

#[test]
fn a_log_is_printed() {
    let mut fixture = Fixture::new();
    assert_snapshot!("log", fixture.run("sessions log sess_done"));
    assert_snapshot!("log_json", fixture.run("sessions log sess_cut_working --json"));
    assert_snapshot!("log_odd", fixture.run("sessions log sess_odd"));
    assert_snapshot!("log_color", fixture.run("sessions log sess_odd --color always"));
    assert_snapshot!("log_after", fixture.run("sessions log sess_done --after 8"));
    assert_snapshot!("log_after_the_end", fixture.run("sessions log sess_done --after 800"));
    assert_snapshot!(
        "log_kinds",
        fixture.run("sessions log sess_done --kind tool.* --kind run.completed")
    );
    fixture.home.set("COLUMNS", "40");
    assert_snapshot!("log_narrow", fixture.run("sessions log sess_cut_asking"));
}

#[test]
fn waits_are_listed() {
    let mut fixture = Fixture::new();
    assert_snapshot!("waits", fixture.run("sessions waits"));
    assert_snapshot!("waits_json", fixture.run("sessions waits --json"));
    assert_snapshot!("waits_of_one", fixture.run("sessions waits sess_detached"));
    assert_snapshot!("waits_none", fixture.run("sessions waits sess_new"));
    assert_snapshot!("waits_stranded", fixture.run("sessions waits sess_cut_asking --json"));
    fixture.home.set("COLUMNS", "40");
    assert_snapshot!("waits_narrow", fixture.run("sessions waits sess_detached"));
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// `log --follow` shows what another process writes, until a signal comes.
#[test]
fn a_log_is_followed_until_a_signal() {
    for (number, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let fixture = Fixture::new();
        let mut child = fixture.home.spawn("sessions log sess_live --follow --kind message.*");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        assert_eq!(first.split_whitespace().nth(3), Some("message.user"), "{first}");
        fixture.work(|to| async move {
            to.say(&"sess_live".parse().unwrap(), "msg_more", "written meanwhile").await;
        });
        let second = lines.next().unwrap().unwrap();
        assert!(second.contains("written meanwhile"), "{second}");
        signal(&child, number);
        assert_eq!(lines.next().transpose().unwrap(), None);
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr), (Some(code), Vec::new()));
    }
}

/// A reader that leaves is no error worth a word.
#[test]
fn a_reader_that_leaves_ends_it_quietly() {
    let fixture = Fixture::new();
    let mut child = fixture.home.spawn("sessions log sess_live --follow");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    drop(lines);
    // Nothing more is written: it notices all the same.
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(3), Vec::new()));

    // One that leaves while there is something to write.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = fixture.home.command(["sessions", "list"]).stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(3), Vec::new()));
}
