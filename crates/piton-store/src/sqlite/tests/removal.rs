//! What is taken out is gone from the files; what is copied is the same.

use std::fs;

use piton_core::{Content, event};

use super::*;
use crate::conformance::{at, of, said, session};
use crate::contract::{Guard, IndexEntry, LogCopy, Problem};

/// Whether any file in the folder holds these bytes.
fn holds(folder: &InFolder, needle: &[u8]) -> bool {
    let files = fs::read_dir(folder.folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let hit = |bytes: Vec<u8>| bytes.windows(needle.len()).any(|window| window == needle);
    files.filter(|path| path.is_file()).any(|path| hit(fs::read(path).unwrap()))
}

/// A column of a record as it lies in the database; some bytes from its middle.
fn stored(folder: &InFolder, sql: &str) -> Vec<u8> {
    let conn = rusqlite::Connection::open(folder.database()).unwrap();
    let bytes: Vec<u8> = conn.query_row(sql, [], |row| row.get(0)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle - 16..middle + 16].to_vec()
}

fn redacted(target_seq: u64) -> piton_core::NewRecord {
    of(0, event::RecordRedacted { target_seq, reason: Some("a password".into()) })
}

/// The sealed content is in the files before and nowhere in them after, while the store is open.
#[test]
fn a_redacted_content_is_gone_from_the_files() {
    let folder = InFolder::new();
    run(async {
        let store: Arc<dyn Store> = Arc::new(folder.store());
        let mut driver = Driver::create(&store, "s").await;
        driver.append(vec![said("a secret that is long enough to be found again")]).await.unwrap();
        driver.append(vec![said("blob".repeat(20_000))]).await.unwrap();
        driver.append(vec![said("stays")]).await.unwrap();
        let inline = format!("SELECT payload FROM records WHERE rid = {}", schema::rid(1, 3));
        let needles = [stored(&folder, &inline), stored(&folder, "SELECT data FROM blobs")];
        for needle in &needles {
            assert!(holds(&folder, needle));
        }
        driver.append(vec![redacted(3), redacted(4)]).await.unwrap();
        for needle in &needles {
            assert!(!holds(&folder, needle));
        }
        let records = store.read(&session("s"), 0, 100, Detail::Full).await.unwrap();
        assert_eq!([&records[2].content, &records[3].content], [&Content::Redacted; 2]);
        assert!(matches!(&records[4].content, Content::Json(json) if json.contains("stays")));
        assert_eq!(store.verify(&session("s")).await.unwrap().problem, None);
        driver.let_go(store);
    });
}

/// A reader that still looks at the old pages keeps them in the write-ahead log for as long; then
/// they go.
#[test]
fn a_redacted_content_goes_when_the_last_reader_lets_go() {
    let folder = InFolder::new();
    run(async {
        let store: Arc<dyn Store> = Arc::new(folder.store());
        let mut driver = Driver::create(&store, "s").await;
        driver.append(vec![said("a secret that is long enough to be found again")]).await.unwrap();
        let inline = format!("SELECT payload FROM records WHERE rid = {}", schema::rid(1, 3));
        let needle = stored(&folder, &inline);
        let other = rusqlite::Connection::open(folder.database()).unwrap();
        other.execute_batch("BEGIN; SELECT count(*) FROM records;").unwrap();
        driver.append(vec![redacted(3)]).await.unwrap();
        other.execute_batch("COMMIT").unwrap();
        drop(other);
        driver.append(vec![said("goes on")]).await.unwrap();
        // The writer empties it once the queue was empty for a moment.
        for _ in 0..200 {
            if !holds(&folder, &needle) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert!(!holds(&folder, &needle));
        driver.let_go(store);
    });
}

/// A process that took something out and died before the write-ahead log was emptied leaves a note;
/// the next process that opens the store empties the log.
#[test]
fn what_was_not_emptied_is_emptied_by_the_next() {
    let folder = InFolder::new();
    let pending = || {
        let conn = rusqlite::Connection::open(folder.database()).unwrap();
        conn.prepare("SELECT 1 FROM meta WHERE name = 'removed'").unwrap().exists([]).unwrap()
    };
    drop(folder.store());
    folder.sql("INSERT INTO meta(name, value) VALUES ('removed', '')");
    assert!(pending());
    let store = folder.store();
    for _ in 0..200 {
        if !pending() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(!pending());
    drop(store);
}

#[test]
fn a_deleted_log_is_gone_from_the_files() {
    let folder = InFolder::new();
    run(async {
        let store: Arc<dyn Store> = Arc::new(folder.store());
        let mut driver = Driver::create(&store, "gone").await;
        let mut other = Driver::create(&store, "stays").await;
        let shared = "shared".repeat(20_000);
        driver.append(vec![said("alone".repeat(20_000)), said(shared.clone())]).await.unwrap();
        other.append(vec![said(shared)]).await.unwrap();
        let header = b"About gone";
        let inline = stored(&folder, "SELECT data FROM blobs WHERE no = 1");
        assert!(holds(&folder, header) && holds(&folder, &inline));
        let note = event::SessionDeleted {
            session_id: session("gone"),
            last_seq: 4,
            chain: None,
            reason: None,
        };
        let guard = Guard::Lease { boot: driver.boot.clone(), epoch: 1 };
        store
            .delete(&session("gone"), 4, guard, crate::WritableRecords::verbatim(vec![of(0, note)]))
            .await
            .unwrap();
        assert!(!holds(&folder, header) && !holds(&folder, &inline));
        assert!(store.head(&session("gone")).await.unwrap().is_none());
        assert!(matches!(
            store.verify(&session("gone")).await.unwrap_err(),
            Error::SessionNotFound { .. }
        ));
        // Its neighbour keeps what both had said, and the same name can be used again.
        assert_eq!(store.verify(&session("stays")).await.unwrap().problem, None);
        other.append(vec![said("goes on")]).await.unwrap();
        driver.let_go(store.clone());
        let mut again = Driver::create(&store, "gone").await;
        again.append(vec![said("anew")]).await.unwrap();
        assert_eq!(store.verify(&session("gone")).await.unwrap().problem, None);
        again.let_go(store.clone());
        other.let_go(store);
    });
    // And after it was opened again.
    run(async {
        let store = folder.store();
        for name in ["gone", "stays"] {
            assert_eq!(store.verify(&session(name)).await.unwrap().problem, None, "{name}");
        }
        let notes = store.read(&SessionId::metadata_log(), 0, 10, Detail::Full).await.unwrap();
        let kinds: Vec<&str> = notes.iter().map(|note| &*note.kind).collect();
        let [made, gone] = ["session.registered", "session.deleted"];
        assert_eq!(kinds, [made, made, gone, made]);
    });
}

/// Into a second store and back: byte-equal, verified, and writable by the next boot.
#[test]
fn a_copied_log_is_the_same() {
    let (first, second) = (InFolder::new(), InFolder::new());
    run(async {
        let from: Arc<dyn Store> = Arc::new(first.store());
        let mut driver = Driver::create(&from, "s").await;
        driver.append(vec![said("one"), said("two".repeat(20_000)), said("three")]).await.unwrap();
        driver.append(vec![redacted(3)]).await.unwrap();
        let head = from.copy_head(&session("s")).await.unwrap().unwrap();
        let records = from.copy_records(&session("s"), 0, 100).await.unwrap();
        let copy = |records: Vec<_>| LogCopy {
            head: head.clone(),
            records: Box::new(records.into_iter().map(Ok)),
            note: None,
        };
        let to: Arc<dyn Store> = Arc::new(second.store());
        // One that is cut or edited leaves nothing behind.
        let cut = to.copy_in(copy(records[..5].to_vec())).await.unwrap_err();
        assert!(matches!(cut, Error::RecordDamaged { .. }), "{cut:?}");
        let mut edited = records.clone();
        edited[1].record.ts = at(7);
        let broken = to.copy_in(copy(edited)).await.unwrap_err();
        assert!(matches!(broken, Error::ChainBroken { seq: 2, .. }), "{broken:?}");
        assert!(to.head(&session("s")).await.unwrap().is_none());
        to.copy_in(copy(records.clone())).await.unwrap();
        let exists = to.copy_in(copy(records.clone())).await.unwrap_err();
        assert!(matches!(exists, Error::SessionExists { .. }));
        assert_eq!(to.copy_records(&session("s"), 0, 100).await.unwrap(), records);
        assert_eq!(to.verify(&session("s")).await.unwrap().problem, None);
        let there = to.load(&session("s")).await.unwrap().unwrap();
        assert_eq!(there.state, from.load(&session("s")).await.unwrap().unwrap().state);
        let mut moved = Driver { store: Some(to.clone()), ..driver.clone() };
        moved.append(vec![said("goes on there")]).await.unwrap();
        assert_eq!(to.verify(&session("s")).await.unwrap().problem, None);
        moved.let_go(to);
        driver.let_go(from);
    });
}

#[test]
fn caches_that_mislead_are_found() {
    for (sql, problem) in [
        ("UPDATE heads SET epoch = 9", Problem::CutBehindCache { known: 4, found: 3 }),
        ("UPDATE heads SET owner = 'boot_9'", Problem::IndexDisagrees { what: IndexEntry::Lease }),
        ("UPDATE sessions SET closed = 1", Problem::IndexDisagrees { what: IndexEntry::Session }),
        (
            "UPDATE sessions SET needs_recovery = 1 - needs_recovery",
            Problem::IndexDisagrees { what: IndexEntry::Session },
        ),
        (
            "UPDATE sessions SET active_at = active_at + 1",
            Problem::IndexDisagrees { what: IndexEntry::Session },
        ),
        (
            "UPDATE sessions SET deadline_at = 7",
            Problem::IndexDisagrees { what: IndexEntry::Session },
        ),
        (
            "UPDATE sessions SET task_id = 'task_9'",
            Problem::IndexDisagrees { what: IndexEntry::Session },
        ),
        (
            "UPDATE sessions SET summary = replace(summary, 'About s', 'Another')",
            Problem::IndexDisagrees { what: IndexEntry::Session },
        ),
        (
            "INSERT INTO tokens(id, no, entry) VALUES ('rt_forged', 1, '{}')",
            Problem::CutBehindCache { known: 4, found: 3 },
        ),
        (
            "UPDATE snapshots SET body = replace(body, 'About s', 'Another')",
            Problem::SnapshotDisagrees { seq: 3 },
        ),
        ("UPDATE snapshots SET seq = 99", Problem::CutBehindCache { known: 99, found: 3 }),
    ] {
        let folder = InFolder::new();
        run(async {
            let store: Arc<dyn Store> = Arc::new(folder.store());
            let mut driver = Driver::create(&store, "s").await;
            driver.append(vec![said("three")]).await.unwrap();
            let head = store.head(&session("s")).await.unwrap().unwrap();
            let snapshot = Snapshot {
                seq: 3,
                projector: piton_core::state::PROJECTOR_VERSION,
                chain: head.chain,
                body: serde_json::to_string(&driver.state).unwrap(),
            };
            store.save_snapshot(&session("s"), snapshot).await.unwrap();
            assert_eq!(store.verify(&session("s")).await.unwrap().problem, None);
            driver.let_go(store);
        });
        folder.sql(sql);
        run(async {
            let found = folder.store().verify(&session("s")).await.unwrap();
            assert_eq!(found.problem, Some(problem), "{sql}");
            assert_eq!(found.good_to, 3);
        });
    }
}
