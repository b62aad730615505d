//! `piton convert`: in place, both ways, and whatever ends it.

use std::fs;
use std::sync::Arc;

use insta::assert_snapshot;
use piton_core::id::SessionId;
use piton_store::files::{self, FilesStore};
use piton_store::{CopiedRecord, CopyHead, Query, Select, SqliteStore, Store, sqlite};

use crate::cli::fixture::Fixture;
use crate::cli::home::Home;

/// Everything that a store's chains cover, log by log.
type Logs = Vec<(CopyHead, Vec<CopiedRecord>)>;

fn open(home: &Home) -> Arc<dyn Store> {
    let data = home.data();
    match fs::read_to_string(data.join("store")).unwrap_or_default().trim() {
        "files" => Arc::new(FilesStore::open(files::Options::new(data)).unwrap()),
        _ => Arc::new(SqliteStore::open(sqlite::Options::new(data)).unwrap()),
    }
}

fn logs(home: &Home) -> Logs {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = open(home);
        let query = Query { task_id: None, select: Select::All, after: None, limit: 100 };
        let rows = store.list(query).await.unwrap().rows;
        let mut sessions: Vec<SessionId> = rows.into_iter().map(|row| row.session).collect();
        sessions.sort();
        sessions.push(SessionId::metadata_log());
        let mut logs = Vec::new();
        for session in sessions {
            let Some(head) = store.copy_head(&session).await.unwrap() else { continue };
            let mut records: Vec<CopiedRecord> = Vec::new();
            loop {
                let after = records.last().map_or(0, |copied| copied.record.seq);
                let page = store.copy_records(&session, after, 100).await.unwrap();
                if page.is_empty() {
                    break;
                }
                records.extend(page);
            }
            // Anchors trail, each store in its own way.
            logs.push((CopyHead { anchor: None, ..head }, records));
        }
        logs
    })
}

/// A store that no process uses any more, with a metadata log.
fn home() -> Home {
    let fixture = Fixture::new();
    fixture.run("sessions delete sess_new --yes");
    fixture.end()
}

fn good(said: &str) {
    assert!(said.ends_with("--- exit 0\n"), "{said}");
}

fn names(home: &Home) -> Vec<String> {
    let entries = fs::read_dir(home.data()).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    // SQLite's own, there or not as it likes.
    names.retain(|name| !name.ends_with("-wal") && !name.ends_with("-shm"));
    names.sort();
    names
}

#[test]
fn a_store_is_converted_both_ways() {
    let home = home();
    let before = logs(&home);
    let listed = home.run("sessions list --json");
    assert_eq!(before.len(), 7);
    assert_snapshot!("convert_plan", home.run("convert --to files"));
    assert_snapshot!("convert_plan_json", home.run("convert --to files --json"));
    assert_snapshot!("convert_same", home.run("convert --to sqlite --yes"));
    assert_snapshot!("convert_what", home.run("convert --to tape"));
    assert_eq!(logs(&home), before);

    assert_snapshot!("convert_to_files", home.run("convert --to files --yes"));
    assert_snapshot!("convert_names_files", names(&home).join("\n"));
    assert_eq!(logs(&home), before);
    assert_eq!(home.run("sessions list --json"), listed);
    assert!(home.run("verify").ends_with("all good.\n--- exit 0\n"));

    assert_snapshot!("convert_to_sqlite", home.run("convert --to sqlite --yes --json"));
    assert_snapshot!("convert_names_sqlite", names(&home).join("\n"));
    assert_eq!(logs(&home), before);
    assert_eq!(home.run("sessions list --json"), listed);
    assert!(home.run("verify").ends_with("all good.\n--- exit 0\n"));
}

/// SQLite, bundle, plain files, SQLite: the same bytes.
#[test]
fn a_round_trip_through_a_bundle_loses_nothing() {
    let from = home();
    let of = |home: &Home| {
        let logs = logs(home).into_iter();
        logs.filter(|(head, _)| head.session.as_str() == "sess_done").collect::<Vec<_>>()
    };
    let before = of(&from);
    good(&from.run("sessions export sess_done"));
    let mut to = Home::new();
    to.set("PITON_STORE", "files");
    let bundle = from.path().join("sess_done.piton");
    good(&to.run(&format!("sessions import {}", bundle.display())));
    fs::write(to.data().join("store"), "files\n").unwrap();
    assert_eq!(of(&to), before);
    good(&to.run("convert --to sqlite --yes"));
    assert_eq!(of(&to), before);
    assert!(to.run("verify").ends_with("all good.\n--- exit 0\n"));
}

/// Killed at every step, in both directions: one whole store is in charge, with all of it; and the
/// next attempt gets there and leaves no more than one that was not killed.
#[test]
fn whatever_ends_it_one_store_is_in_charge() {
    let steps = ["named", "noted", "made", "copying", "copied", "committed", "moving", "moved"];
    for (from, to) in [("sqlite", "files"), ("files", "sqlite")] {
        for (number, step) in steps.into_iter().enumerate() {
            let home = home();
            if from == "files" {
                good(&home.run("convert --to files --yes"));
                fs::remove_dir_all(home.data().join("before-convert-2026-02-21")).unwrap();
            }
            let before = logs(&home);
            let mut command = home.command(["convert", "--to", to, "--yes"]);
            let killed = command.env("PITON_TEST_ABORT_AT", step).output().unwrap();
            assert_eq!(killed.status.code(), None, "{from} {step}: it was not killed: {killed:?}");
            let in_charge = fs::read_to_string(home.data().join("store")).unwrap();
            let expected = if number < 5 { from } else { to };
            assert_eq!(in_charge.trim(), expected, "{from} {step}");
            assert_eq!(logs(&home), before, "{from} {step}");
            assert!(home.run("verify").ends_with("all good.\n--- exit 0\n"), "{from} {step}");

            good(&home.run(&format!("convert --to {to} --yes")));
            assert_eq!(logs(&home), before, "{from} {step}");
            let kind = format!("convert_names_after_{to}");
            assert_snapshot!(kind, names(&home).join("\n"));
        }
    }
}

/// A process that lives may write: it is named, and nothing is begun.
#[test]
fn a_living_process_is_in_the_way() {
    let fixture = Fixture::new();
    let before = names(&fixture.home);
    assert_snapshot!("convert_in_use", fixture.run("convert --to files --yes"));
    let mut after = names(&fixture.home);
    after.retain(|name| name != "convert.lock");
    assert_eq!(after, before);
}

/// While a process converts a store, no other process writes to it or converts it.
#[test]
fn no_one_writes_meanwhile() {
    let home = home();
    let lock = fs::File::create(home.data().join("convert.lock")).unwrap();
    lock.lock().unwrap();
    assert_snapshot!("convert_meanwhile", home.run("sessions delete sess_done --yes"));
    assert_snapshot!("convert_twice", home.run("convert --to files --yes"));
    assert_snapshot!("convert_rebuild", home.run("verify --rebuild"));
    good(&home.run("sessions show sess_done"));
    drop(lock);
    good(&home.run("sessions delete sess_done --yes"));
}

/// Another store's files that no conversion left may be the user's, and stay.
#[test]
fn what_no_one_left_behind_is_not_touched() {
    let home = home();
    fs::write(home.data().join("store"), "sqlite\n").unwrap();
    home.write(".local/share/piton/sessions/mine.messages.jsonl", "{}\n");
    assert_snapshot!("convert_not_empty", home.run("convert --to files --yes"));
    assert!(home.data().join("sessions/mine.messages.jsonl").exists());
}

/// What the index lost is copied all the same.
#[test]
fn a_session_that_the_index_lost_is_converted_too() {
    let fixture = Fixture::new();
    let listed = fixture.run("sessions list --json");
    fixture.sql("DELETE FROM sessions WHERE id LIKE 'sess_cut%'");
    let home = fixture.end();
    assert_ne!(home.run("sessions list --json"), listed);
    good(&home.run("convert --to files --yes"));
    // Its owner has ended meanwhile, which lists do not show otherwise than by the status.
    let names = |text: &str| text.matches("\"session\":\"").count();
    assert_eq!(names(&home.run("sessions list --json")), names(&listed));
}

/// A store that cannot be copied stays in charge, and what was begun is gone.
#[test]
fn a_damaged_store_is_not_converted() {
    let fixture = Fixture::new();
    fixture.sql("UPDATE records SET ts = ts + 1 WHERE rid % 4294967296 = 3");
    let home = fixture.end();
    assert_snapshot!("convert_damaged", home.run("convert --to files --yes"));
    assert_eq!(fs::read_to_string(home.data().join("store")).unwrap(), "sqlite\n");
    assert!(!home.data().join("sessions").exists() && !home.data().join("convert.json").exists());
    good(&home.run("sessions list"));
}
