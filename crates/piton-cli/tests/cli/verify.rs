//! `piton verify`.

use insta::assert_snapshot;

use crate::fixture::Fixture;
use crate::home::Home;

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

/// An index that lies, or that lost sessions, is made anew, and everything is as before.
#[test]
fn caches_are_made_anew() {
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

#[test]
fn nothing_to_verify_is_not_good() {
    let home = Home::new();
    assert_snapshot!("verify_no_store", home.run("verify"));
    assert_snapshot!("verify_no_session", Fixture::new().run("verify sess_nobody"));
}
