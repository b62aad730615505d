//! Commands that write as an offline writer: token, cancel, dismiss.

use insta::assert_snapshot;

use crate::cli::fixture::Fixture;

/// Everything that a command did to a session's log.
fn written(fixture: &Fixture, line: &str, session: &str) -> String {
    let before = fixture.run(&format!("sessions log {session} --json")).lines().count() - 3;
    let said = fixture.run(line);
    let log = fixture.run(&format!("sessions log {session} --after {before} --json"));
    format!("{said}\n{log}")
}

#[test]
fn a_run_is_cancelled() {
    let fixture = Fixture::new();
    assert_snapshot!("cancel", written(&fixture, "sessions cancel sess_cut_w", "sess_cut_working"));
    assert_snapshot!("cancel_again", fixture.run("sessions cancel sess_cut_working"));
    assert_snapshot!("cancel_json", fixture.run("sessions cancel sess_cut_asking --json"));
    assert_snapshot!("cancel_again_json", fixture.run("sessions cancel sess_cut_asking --json"));
    assert_snapshot!("cancel_other", fixture.run("sessions cancel sess_detached --run run_other"));
    assert_snapshot!("cancel_closed", fixture.run("sessions cancel sess_done"));
    assert_snapshot!("cancel_never_run", fixture.run("sessions cancel sess_new"));
}

#[test]
fn a_run_is_dismissed() {
    let fixture = Fixture::new();
    let line = "sessions dismiss sess_cut_asking";
    assert_snapshot!("dismiss", written(&fixture, line, "sess_cut_asking"));
    assert_snapshot!("dismiss_again", fixture.run(line));
    assert_snapshot!("dismiss_not_interrupted", fixture.run("sessions dismiss sess_detached"));
    assert_snapshot!("dismiss_json", fixture.run("sessions dismiss sess_cut_working --json"));
}

#[test]
fn a_token_is_made() {
    let fixture = Fixture::new();
    let line = "sessions resume-token sess_cut_asking --valid-for 1h";
    assert_snapshot!("token_interruption", written(&fixture, line, "sess_cut_asking"));
    let line = "sessions resume-token sess_detached --wait wait_3";
    assert_snapshot!("token_wait", written(&fixture, line, "sess_detached"));
    assert_snapshot!("token_json", fixture.run("sessions resume-token sess_cut_working --json"));
    assert_snapshot!("token_which_wait", fixture.run("sessions resume-token sess_detached"));
    assert_snapshot!(
        "token_no_wait",
        fixture.run("sessions resume-token sess_detached --wait wait_9")
    );
    assert_snapshot!("token_nothing", fixture.run("sessions resume-token sess_new"));
    assert_snapshot!(
        "token_span",
        fixture.run("sessions resume-token sess_detached --valid-for 1y")
    );
}

/// A session of a living process is left alone, and the process is named.
#[test]
fn a_session_that_a_user_runs_is_left_alone() {
    let fixture = Fixture::new();
    let log = fixture.run("sessions log sess_live --json");
    assert_snapshot!("owned_cancel", fixture.run("sessions cancel sess_live"));
    assert_snapshot!("owned_dismiss", fixture.run("sessions dismiss sess_live --json"));
    assert_snapshot!("owned_token", fixture.run("sessions resume-token sess_live"));
    assert_eq!(fixture.run("sessions log sess_live --json"), log);
}

/// What an offline writer left behind is sound, and its lock is gone.
#[test]
fn a_offline_writer_leaves_nothing_behind() {
    let fixture = Fixture::new();
    fixture.run("sessions cancel sess_cut_working");
    fixture.run("sessions resume-token sess_live");
    assert!(fixture.run("verify").ends_with("all good.\n--- exit 0\n"));
    let locks = std::fs::read_dir(fixture.home.data().join("boots")).unwrap();
    let mut names: Vec<_> = locks.map(|lock| lock.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["boot_live.lock"]);
}
