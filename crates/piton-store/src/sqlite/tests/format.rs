//! The database's format, version 2, as text. A later program must open it, read the same records
//! and verify them; and a change of the tables needs a new version with a fixture of its own.
//!
//! `PITON_BLESS=1 cargo test -p piton-store format` writes the fixture; do so only for a version
//! that was never released.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicU8, Ordering};

use piton_core::event;
use rusqlite::Connection;
use rusqlite::types::Value;

use super::*;
use crate::conformance::{of, said, session};
use crate::contract::Verification;

const STORE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/store-v2.sql");
const ANCHORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/anchors-v2.sql");
const KEYS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/keys-v2");
const RECORDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/store-v2.jsonl");

/// A database as statements that make it again.
fn dump(path: &Path) -> String {
    let conn = Connection::open(path).unwrap();
    let pragma = |name: &str| -> i64 {
        conn.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0)).unwrap()
    };
    let mut text = String::new();
    for name in ["application_id", "user_version"] {
        writeln!(text, "PRAGMA {name} = {};", pragma(name)).unwrap();
    }
    let mut select = conn
        .prepare(
            "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL
                  AND name NOT LIKE 'sqlite_%' ORDER BY rowid",
        )
        .unwrap();
    let parts: Vec<(String, String, String)> = select
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    for (_, _, sql) in &parts {
        writeln!(text, "{sql};").unwrap();
    }
    for (_, table, _) in parts.iter().filter(|(kind, ..)| kind == "table") {
        let mut select = conn.prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2")).unwrap();
        let columns = select.column_count();
        let mut rows = select.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let value = |at| match row.get(at).unwrap() {
                Value::Null => "NULL".to_owned(),
                Value::Integer(number) => number.to_string(),
                Value::Real(_) => panic!("no table has a float"),
                Value::Text(text) => format!("'{}'", text.replace('\'', "''")),
                Value::Blob(bytes) => format!("x'{}'", hex::encode(bytes)),
            };
            let values: Vec<_> = (0..columns).map(value).collect();
            writeln!(text, "INSERT INTO {table} VALUES ({});", values.join(", ")).unwrap();
        }
    }
    text
}

/// The statements that make tables: what a version consists of.
fn schema_of(dump: &str) -> String {
    dump.split_inclusive(";\n").filter(|sql| !sql.starts_with("INSERT")).collect()
}

/// Nothing random: the fixture's key is not a secret.
#[derive(Debug, Default)]
struct Counting(AtomicU8);

impl Entropy for Counting {
    fn fill(&self, bytes: &mut [u8]) -> Result<()> {
        bytes.fill_with(|| self.0.fetch_add(1, Ordering::SeqCst));
        Ok(())
    }
}

/// A store with a bit of everything: inline and blob contents, a batch, a tombstone, a token, a
/// snapshot, two sessions, the metadata log.
fn written() -> InFolder {
    let folder = InFolder::new();
    run(async {
        let options = Options { entropy: Arc::<Counting>::default(), ..folder.options() };
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(options).unwrap());
        let mut driver = Driver::create(&store, "sess_fixture").await;
        driver.append(vec![said("three"), said("four".repeat(5_000))]).await.unwrap();
        let minted = event::TokenMinted {
            token_id: "rt_1".parse().unwrap(),
            run_id: "run_1".parse().unwrap(),
            purpose: event::TokenPurpose::Interruption,
            wait_id: None,
            wait_kind: None,
            hash: "00".repeat(32),
            expires_at: None,
        };
        driver.append(vec![of(5, minted)]).await.unwrap();
        let gone = event::RecordRedacted { target_seq: 3, reason: Some("test".into()) };
        driver.append(vec![of(6, gone)]).await.unwrap();
        let chain = store.head(&driver.session).await.unwrap().unwrap().chain;
        let body = serde_json::to_string(&driver.state).unwrap();
        let projector = piton_core::state::PROJECTOR_VERSION;
        let snapshot = Snapshot { seq: 6, projector, chain, body };
        store.save_snapshot(&driver.session, snapshot).await.unwrap();
        let mut other = Driver::create(&store, "sess_other").await;
        other.append(vec![said("another")]).await.unwrap();
        let created = event::TaskCreated { task_id: "task_1".parse().unwrap(), title: "t".into() };
        let batch = Batch {
            session: SessionId::metadata_log(),
            expected: 0,
            guard: crate::contract::Guard::Shared,
            records: crate::WritableRecords::verbatim(vec![of(7, created)]),
            durability: crate::contract::Durability::Synced,
            summary: None,
        };
        store.append(batch).await.unwrap();
        other.let_go(store.clone());
        driver.let_go(store);
    });
    folder
}

fn read_all(folder: &InFolder) -> String {
    let mut text = String::new();
    run(async {
        let store = folder.store();
        for name in ["sess_fixture", "sess_other", SessionId::METADATA_LOG] {
            let records = store.read(&session(name), 0, 100, Detail::Full).await.unwrap();
            for record in &records {
                let flat = serde_json::Value::Object(record.to_flat().unwrap());
                writeln!(text, "{flat}").unwrap();
            }
            let last = records.last().unwrap().seq;
            let sound = Verification { good_to: last, problem: None, anchored_to: Some(last) };
            assert_eq!(store.verify(&session(name)).await.unwrap(), sound, "{name}");
        }
    });
    text
}

#[test]
fn version_2_is_read() {
    if std::env::var_os("PITON_BLESS").is_some() {
        let folder = written();
        fs::create_dir_all(Path::new(STORE).parent().unwrap()).unwrap();
        fs::write(RECORDS, read_all(&folder)).unwrap();
        fs::write(STORE, dump(&folder.database())).unwrap();
        fs::write(ANCHORS, dump(&folder.folder.path().join(schema::ANCHORS_FILE))).unwrap();
        fs::copy(folder.folder.path().join(crate::keys::KEY_FILE), KEYS).unwrap();
    }
    let folder = InFolder::new();
    sql_in(&folder.database(), &fs::read_to_string(STORE).unwrap());
    let anchors = folder.folder.path().join(schema::ANCHORS_FILE);
    sql_in(&anchors, &fs::read_to_string(ANCHORS).unwrap());
    let keys = folder.folder.path().join(crate::keys::KEY_FILE);
    fs::copy(KEYS, &keys).unwrap();
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(values(&read_all(&folder)), values(&fs::read_to_string(RECORDS).unwrap()));
    // Its caches are read as they are, and can be made again.
    run(async {
        let store = folder.store();
        let loaded = store.load(&session("sess_fixture")).await.unwrap().unwrap();
        assert!(loaded.replayed > 0, "a snapshot of an older projector is passed over");
        assert!(store.token(&"rt_1".parse().unwrap()).await.unwrap().is_some());
        store.rebuild_caches().await.unwrap();
        let again = store.load(&session("sess_fixture")).await.unwrap().unwrap();
        assert_eq!(again.state, loaded.state);
    });
}

/// Lines as what they say: the order of their fields depends on a feature of any dependency.
fn values(lines: &str) -> Vec<serde_json::Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn tables_change_only_with_the_version() {
    let folder = InFolder::new();
    drop(folder.store());
    let fresh = schema_of(&dump(&folder.database()));
    assert_eq!(schema::FORMAT, 2, "a new version has a fixture of its own beside this one");
    assert_eq!(fresh, schema_of(&fs::read_to_string(STORE).unwrap()));
}
