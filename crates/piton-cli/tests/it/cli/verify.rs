//! `piton verify`.

use insta::assert_snapshot;

use crate::cli::fixture::Fixture;
use crate::cli::home::Home;

/// The row of a session's record.
fn rid(session: &str, seq: u64) -> String {
    format!("(SELECT no FROM logs WHERE id = '{session}') * 4294967296 + {seq}")
}

#[test]
fn a_sound_store_is_good() {
    let mut fixture = Fixture::new();
    assert_snapshot!("verify_good", fixture.run("verify"));
    assert_snapshot!("verify_good_one", fixture.run("verify sess_done"));
    assert_snapshot!("verify_good_json", fixture.run("verify --json"));
    fixture.home.set("COLUMNS", "40");
    assert_snapshot!("verify_good_narrow", fixture.run("verify"));
}

/// One edited byte, one removed record, a log cut at its end: each is named, with what is still good.
#[test]
fn what_was_touched_is_named() {
    let fixture = Fixture::new();
    let edited = rid("sess_done", 5);
    let removed = rid("sess_odd", 2);
    let cut = rid("sess_cut_asking", 5);
    fixture.sql(&format!(
        "UPDATE records SET payload = zeroblob(length(payload)) WHERE rid = {edited};
         DELETE FROM records WHERE rid = {removed};
         DELETE FROM records WHERE rid >= {cut} AND rid < {cut} + 100;
         UPDATE records SET ts = ts + 1 WHERE rid = {};",
        rid("sess_new", 1),
    ));
    assert_snapshot!("verify_bad", fixture.run("verify"));
    assert_snapshot!("verify_bad_json", fixture.run("verify --json"));
    assert_snapshot!("verify_bad_one", fixture.run("verify sess_odd"));
    assert_snapshot!("verify_bad_color", fixture.run("verify sess_done --color always"));
    assert_snapshot!("verify_log_of_bad", fixture.run("sessions log sess_odd"));
}

/// An index that is wrong, or that lost sessions, is rebuilt, and everything is as before.
#[test]
fn caches_are_rebuilt() {
    let fixture = Fixture::new();
    let before = fixture.run("sessions list --json");
    fixture.sql(
        "UPDATE sessions SET summary = replace(summary, 'changelog', 'forgery');
         UPDATE tokens SET entry = replace(entry, 'active', 'expired') WHERE id = 'rt_wait_2';
         DELETE FROM sessions WHERE id LIKE 'sess_cut%'",
    );
    assert_snapshot!("verify_caches", fixture.run("verify"));
    assert_snapshot!("verify_rebuild", fixture.run("verify --rebuild"));
    assert_eq!(fixture.run("sessions list --json"), before);
}

/// A session that was removed with everything that belongs to it is missed, and so are the anchors;
/// no hint leads to a command that would delete the rest of the traces.
#[test]
pub(crate) fn what_was_taken_away_is_missed() {
    let fixture = Fixture::new();
    let no = "(SELECT no FROM logs WHERE id = 'sess_done')";
    fixture.sql(&format!(
        "DELETE FROM places WHERE rid >> 32 = {no}; DELETE FROM spans WHERE first_rid >> 32 = {no};
         DELETE FROM records WHERE rid >> 32 = {no}; DELETE FROM heads WHERE no = {no};
         DELETE FROM sessions WHERE no = {no}; DELETE FROM tokens WHERE no = {no};
         DELETE FROM snapshots WHERE no = {no}; DELETE FROM logs WHERE id = 'sess_done';"
    ));
    for suffix in ["", "-wal", "-shm"] {
        let path = fixture.home.data().join(format!("anchors.sqlite3{suffix}"));
        drop(std::fs::remove_file(path));
    }
    let cut = rid("sess_odd", 4);
    fixture.sql(&format!(
        "DELETE FROM records WHERE rid >= {cut} AND rid < {cut} + 100;
                          DELETE FROM places WHERE rid >= {cut} AND rid < {cut} + 100;"
    ));
    let said = fixture.run("verify");
    assert!(said.contains("sess_done: bad: the metadata log lists the session"), "{said}");
    assert!(said.contains("The store: bad: the file of anchors is missing"), "{said}");
    assert!(said.ends_with("--- exit 1\n"), "{said}");
    assert!(!said.contains("--rebuild"), "{said}");
    let refused = fixture.run("verify --rebuild");
    assert!(refused.contains("Nothing was rebuilt"), "{refused}");
    assert!(refused.ends_with("--- exit 1\n"), "{refused}");
}

#[test]
fn nothing_to_verify_is_not_good() {
    let home = Home::new();
    assert_snapshot!("verify_no_store", home.run("verify"));
    assert_snapshot!("verify_no_session", Fixture::new().run("verify sess_nobody"));
}
