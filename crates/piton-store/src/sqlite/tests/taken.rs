//! The removal of whole sessions, anchors, the metadata log or pages of the index is noticed.

use std::fs;

use piton_core::{Code, event};
use rusqlite::Connection;

use super::*;
use crate::conformance::{said, session};
use crate::contract::{Finding, Problem, Select};

/// A closed store with the sessions `s` and `t`, three records each.
fn written() -> (InFolder, Driver) {
    let folder = InFolder::new();
    let mut driver = None;
    run(async {
        let store: Arc<dyn Store> = Arc::new(folder.store());
        let mut one = Driver::create(&store, "s").await;
        one.append(vec![said("three")]).await.unwrap();
        let mut other = Driver::create(&store, "t").await;
        other.append(vec![said("three")]).await.unwrap();
        other.let_go(store.clone());
        one.let_go(store);
        driver = Some(one);
    });
    (folder, driver.unwrap())
}

fn anchors(folder: &InFolder) -> std::path::PathBuf {
    folder.folder.path().join(schema::ANCHORS_FILE)
}

/// As `piton verify` opens it: nothing is made again before it looks.
fn reader(folder: &InFolder) -> SqliteStore {
    let options = Options { access: Access::ReadOnly, ..Options::new(folder.folder.path()) };
    SqliteStore::open(options).unwrap()
}

fn findings(folder: &InFolder) -> Vec<Finding> {
    let mut found = None;
    run(async { found = Some(reader(folder).verify_store().await.unwrap()) });
    found.unwrap()
}

/// Removes everything of a session, as a person with an SQL shell would.
fn take_away(folder: &InFolder, name: &str) {
    let no = format!("(SELECT no FROM logs WHERE id = '{name}')");
    folder.sql(&format!(
        "DELETE FROM places WHERE rid >> 32 = {no}; DELETE FROM spans WHERE first_rid >> 32 = {no};
         DELETE FROM records WHERE rid >> 32 = {no}; DELETE FROM heads WHERE no = {no};
         DELETE FROM sessions WHERE no = {no}; DELETE FROM tokens WHERE no = {no};
         DELETE FROM snapshots WHERE no = {no}; DELETE FROM logs WHERE id = '{name}';"
    ));
    sql_in(
        &anchors(folder),
        &format!(
            "DELETE FROM anchors WHERE session = '{name}';
             UPDATE meta SET value = (SELECT count(*) FROM anchors);"
        ),
    );
}

fn kind(folder: &InFolder) -> Vec<String> {
    let mut kinds = None;
    run(async {
        let all = folder.store().read(&SessionId::metadata_log(), 0, 100, Detail::Headers).await;
        kinds = Some(all.unwrap().iter().map(|record| record.kind.to_string()).collect());
    });
    kinds.unwrap()
}

#[test]
fn an_untouched_store_has_no_findings() {
    assert_eq!(findings(&written().0), []);
}

/// Wants to show: a session of which nothing is left is missed.
#[test]
fn a_session_that_was_taken_away_is_missed() {
    let (folder, _) = written();
    take_away(&folder, "s");
    let missing = Finding { session: Some(session("s")), problem: Problem::SessionMissing };
    assert_eq!(findings(&folder), [missing]);
}

/// Wants to show: so is the log that would tell, and no other takes its place.
#[test]
fn the_metadata_log_is_missed() {
    let (folder, mut one) = written();
    take_away(&folder, SessionId::METADATA_LOG);
    let missing =
        Finding { session: Some(SessionId::metadata_log()), problem: Problem::MetadataMissing };
    assert_eq!(findings(&folder), [missing]);
    run(async {
        let store: Arc<dyn Store> = Arc::new(folder.store());
        let task = event::TaskCreated { task_id: "task_1".parse().unwrap(), title: "t".into() };
        let batch = Batch {
            session: SessionId::metadata_log(),
            expected: 0,
            guard: Guard::Shared,
            records: crate::WritableRecords::verbatim(vec![crate::conformance::of(0, task)]),
            durability: crate::Durability::Synced,
            summary: None,
        };
        assert_eq!(store.append(batch).await.unwrap_err().code(), Code::ChainBroken);
        one.session = session("u");
        one.state = piton_core::State::default();
        let begun = vec![crate::conformance::leased(&one.boot, 1), said("x")];
        one.store = Some(store);
        assert_eq!(one.append(begun).await.unwrap_err().code(), Code::ChainBroken);
        one.store = None;
    });
    assert_eq!(findings(&folder).len(), 1);
}

/// Wants to show: anchors that are gone, wholly or in part, or damaged are a finding of their own,
/// and what a cache knows beyond the log is not called a broken cache.
#[test]
fn lost_anchors_are_missed() {
    let (folder, _) = written();
    let damaged = |folder: &InFolder| {
        let found = findings(folder);
        assert!(
            matches!(
                &found[..],
                [Finding { session: None, problem: Problem::AnchorsDamaged { .. } }]
            ),
            "{found:?}"
        );
    };
    sql_in(&anchors(&folder), "DELETE FROM anchors WHERE session = 's'");
    damaged(&folder);
    sql_in(&anchors(&folder), "DELETE FROM anchors");
    damaged(&folder);
    sql_in(&anchors(&folder), "DROP TABLE meta");
    damaged(&folder);
    sql_in(&anchors(&folder), "DROP TABLE anchors");
    damaged(&folder);
    fs::write(anchors(&folder), b"not a database, and long enough to be looked at as if").unwrap();
    damaged(&folder);
    fs::remove_file(anchors(&folder)).unwrap();
    let missing = Finding { session: None, problem: Problem::AnchorsMissing };
    assert_eq!(findings(&folder), [missing]);
    folder.sql(&format!("DELETE FROM records WHERE rid = {}", schema::rid(1, 3)));
    folder.sql(&format!("DELETE FROM places WHERE rid = {}", schema::rid(1, 3)));
    folder.sql("UPDATE heads SET epoch = 2 WHERE no = 1");
    run(async {
        let found = reader(&folder).verify(&session("s")).await.unwrap();
        assert_eq!(found.problem, Some(Problem::CutBehindCache { known: 3, found: 2 }));
    });
}

/// Wants to show: the next process that opens the store records, once, that anchors were lost.
#[test]
fn lost_anchors_are_recorded_and_made_again() {
    let (folder, _) = written();
    let registered = ["session.registered", "session.registered"];
    assert_eq!(kind(&folder), registered);
    fs::remove_file(anchors(&folder)).unwrap();
    drop(folder.store());
    let recorded = [registered[0], registered[1], "anchors.recreated"];
    assert_eq!(kind(&folder), recorded);
    assert_eq!(kind(&folder), recorded);
    assert_eq!(findings(&folder), []);
    run(async {
        let store = reader(&folder);
        for name in ["s", "t"] {
            let found = store.verify(&session(name)).await.unwrap();
            assert_eq!((found.problem, found.anchored_to), (None, Some(3)));
        }
    });
}

/// Wants to show: every byte of the index of sessions that changes what is listed is noticed.
#[test]
fn a_changed_page_of_the_index_is_noticed() {
    let (folder, _) = written();
    let conn = Connection::open(folder.database()).unwrap();
    conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE").unwrap();
    let page_bytes: u32 = conn.query_row("PRAGMA page_size", [], |row| row.get(0)).unwrap();
    let page_bytes = page_bytes as usize;
    let roots: Vec<u32> = conn
        .prepare("SELECT rootpage FROM sqlite_schema WHERE tbl_name = 'sessions'")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<rusqlite::Result<_>>()
        .unwrap();
    drop(conn);
    assert!(roots.len() > 4, "the table and its indexes");
    let whole = fs::read(folder.database()).unwrap();
    let query = || Query { task_id: None, select: Select::All, after: None, limit: 10 };
    let list = |folder: &InFolder| {
        let mut listed = None;
        run(async { listed = Some(reader(folder).list(query()).await.map_err(|e| e.code())) });
        listed.unwrap()
    };
    let before = list(&folder);
    let (mut changed, mut tried) = (0, 0);
    for root in roots {
        let start = (root as usize - 1) * page_bytes;
        // The page's header and the end, where its cells are.
        let used = (start..start + 16).chain(start + page_bytes - 700..start + page_bytes);
        for at in used.step_by(9) {
            tried += 1;
            let mut bytes = whole.clone();
            bytes[at] ^= 0x04;
            fs::write(folder.database(), &bytes).unwrap();
            let after = list(&folder);
            if after == before {
                continue;
            }
            changed += 1;
            let mut noticed = false;
            run(async {
                let store = reader(&folder);
                noticed = store.verify_store().await.map_or(true, |found| !found.is_empty());
                for name in ["s", "t"] {
                    let found = store.verify(&session(name)).await;
                    noticed |= found.map_or(true, |found| found.problem.is_some());
                }
            });
            assert!(noticed, "byte {at} changes the list to {after:?} and nobody says so");
        }
    }
    assert!(changed > 10 && tried > changed, "{changed} of {tried} changes are seen in the list");
}
