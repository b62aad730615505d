//! Errors: what, why, what to do, the code and its page; in JSON too. And the exit codes.

use insta::assert_snapshot;

use crate::cli::fixture::Fixture;
use crate::cli::home::Home;

#[test]
fn sessions_that_are_not_there() {
    let fixture = Fixture::new();
    assert_snapshot!("unknown", fixture.run("sessions show sess_nobody"));
    assert_snapshot!("unknown_json", fixture.run("sessions show sess_nobody --json"));
    assert_snapshot!("unknown_color", fixture.run("sessions log sess_nobody --color always"));
    assert_snapshot!("malformed", fixture.run("sessions log ../../etc/passwd"));
    assert_snapshot!("reserved", fixture.run("sessions cancel _piton"));
    assert_snapshot!("too_long", fixture.run(&format!("sessions show {}", "x".repeat(129))));
}

#[test]
fn stores_that_cannot_be_opened() {
    let fixture = Fixture::new();
    fixture.sql("PRAGMA user_version = 99");
    assert_snapshot!("store_newer", fixture.run("sessions list"));
    assert_snapshot!("store_newer_json", fixture.run("sessions cancel sess_live --json"));

    let home = Home::new();
    home.write(".local/share/piton/sessions/x.json", "");
    assert_snapshot!("store_files", home.run("sessions list"));
    home.write(".local/share/piton/store.sqlite3", "");
    assert_snapshot!("store_ambiguous", home.run("sessions list"));
    home.write(".local/share/piton/store", "sqlite\n");
    assert_snapshot!("store_named_sqlite", home.run("sessions list"));
    home.write(".local/share/piton/store", "tape\n");
    assert_snapshot!("store_unsupported", home.run("sessions list"));

    assert_snapshot!("store_no_folder", home.run("sessions list --data .local/share/piton/store"));

    let fixture = Fixture::new();
    std::fs::remove_file(fixture.home.data().join("key")).unwrap();
    assert_snapshot!("key_missing", fixture.run("sessions show sess_done"));
}

#[test]
fn wrong_usage() {
    let home = Home::new();
    assert_snapshot!("usage", home.run("sessions lst"));
    assert_snapshot!("usage_json", home.run("sessions lst --json"));
    assert_snapshot!("usage_nothing", home.run(""));
    assert_snapshot!("usage_missing", home.run("sessions show"));
}

/// Each code that an error names can be explained without a network.
#[test]
fn codes_are_explained() {
    let home = Home::new();
    assert_snapshot!("explain", home.run("explain session_ambiguous"));
    assert_snapshot!("explain_unknown", home.run("explain sesion_ambiguous"));
    assert_snapshot!("explain_unknown_json", home.run("explain nothing_like_it --json"));
    let list = home.run("explain --json");
    let codes = list.lines().filter(|line| line.starts_with("{\"code\":")).count();
    assert_eq!(codes, piton_core::Code::ALL.len(), "{list}");
    assert!(home.run("@last").ends_with("--- exit 2\n"));
    assert_snapshot!("last_of_none", home.run("sessions show @last"));
}

/// A bug says what to report, and has an exit code of its own.
#[test]
fn a_bug_asks_to_be_reported() {
    let mut home = Home::new();
    home.set("PITON_TEST_PANIC", "1");
    let text = home.run("sessions list");
    let without_place: Vec<_> = text.lines().filter(|line| !line.contains("src/")).collect();
    assert_snapshot!("bug", without_place.join("\n"));
    assert_eq!(text.lines().filter(|line| line.contains("src/commands/mod.rs:")).count(), 1);
}
