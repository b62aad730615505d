//! Keys: without them nothing opens, and nothing readable lies on the disk.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::conformance::said;
use crate::keys::KEY_FILE;

const MARKER: &str = "XYLOPHONE-OF-THE-GLACIER";

fn assert_no_plaintext(folder: &Path) {
    let mut files = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let found = bytes.windows(MARKER.len()).any(|window| window == MARKER.as_bytes());
        assert!(!found, "{} tells", path.display());
        files += 1;
    }
    assert!(files >= 3);
}

#[test]
fn contents_never_lie_on_the_disk_in_the_clear() {
    let folder = InFolder::new();
    run(async {
        let store: Arc<dyn Store> = Arc::new(folder.store());
        let mut one = Driver::create(&store, "s").await;
        one.append(vec![said(MARKER), said(format!("{MARKER}{}", "x".repeat(100_000)))])
            .await
            .unwrap();
        // With the write-ahead log, and, once closed, without it.
        assert_no_plaintext(folder.folder.path());
        drop(one.let_go(store));
        assert_no_plaintext(folder.folder.path());
    });
    for file in [schema::FILE, KEY_FILE] {
        let mode = fs::metadata(folder.folder.path().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{file} can be read by others");
    }
}

#[test]
fn without_its_key_a_store_stays_shut_and_untouched() {
    let folder = InFolder::new();
    drop(folder.store());
    let key = folder.folder.path().join(KEY_FILE);
    let right = fs::read(&key).unwrap();
    let before = fs::read(folder.database()).unwrap();
    let put = |text: &[u8]| {
        fs::write(&key, text).unwrap();
        folder.refused()
    };
    assert!(matches!(put("ab".repeat(32).as_bytes()), Error::KeyWrong { .. }));
    assert!(matches!(put(b"garbage"), Error::KeyInvalid { .. }));
    fs::remove_file(&key).unwrap();
    match folder.refused() {
        Error::KeyMissing { place, .. } => assert!(place.contains("file"), "{place}"),
        other => panic!("{other}"),
    }
    assert!(!key.exists(), "a new key was made for an old store");
    assert_eq!(fs::read(folder.database()).unwrap(), before);
    fs::write(&key, right).unwrap();
    assert!(matches!(folder.refused(), Error::KeyPermissions { .. }));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    drop(folder.store());
}

/// Another source than the store's own does not help, even with the right key.
#[test]
fn a_store_keeps_to_its_source() {
    let folder = InFolder::new();
    let key = "cd".repeat(32);
    let mut options = folder.options();
    options.keys.environment = Some(key.clone().into());
    drop(SqliteStore::open(options.clone()).unwrap());
    assert!(!folder.folder.path().join(KEY_FILE).exists());
    assert!(matches!(folder.refused(), Error::KeyMissing { .. }));
    options.keys.environment = Some("ef".repeat(32).into());
    assert!(matches!(SqliteStore::open(options.clone()), Err(Error::KeyWrong { .. })));
    options.keys.environment = Some(format!("{},{key}", "ef".repeat(32)).into());
    drop(SqliteStore::open(options).unwrap());
}

#[test]
fn a_store_without_any_source_is_not_made() {
    let folder = InFolder::new();
    let mut options = folder.options();
    options.keys.order = vec![crate::KeySource::Environment];
    assert!(matches!(SqliteStore::open(options), Err(Error::KeyMissing { .. })));
    assert!(!folder.database().exists());
}

#[test]
fn after_a_rotation_old_and_new_are_readable() {
    let folder = InFolder::new();
    let key_ids = || -> Vec<String> {
        let conn = rusqlite::Connection::open(folder.database()).unwrap();
        let mut select = conn
            .prepare("SELECT DISTINCT key_id FROM records WHERE key_id IS NOT NULL ORDER BY rid")
            .unwrap();
        let ids = select.query_map([], |row| row.get(0)).unwrap();
        ids.map(Result::unwrap).collect()
    };
    run(async {
        let store = Arc::new(folder.store());
        let shared: Arc<dyn Store> = store.clone();
        let mut one = Driver::create(&shared, "s").await;
        one.append(vec![said("old"), said("old blob".repeat(9_000))]).await.unwrap();
        store.rotate_key().await.unwrap();
        one.append(vec![said("new"), said("old blob".repeat(9_000))]).await.unwrap();
        let other = Driver::create(&shared, "t").await;
        assert_eq!(key_ids().len(), 2);
        let expected = texts(&*shared, &one).await;
        assert_eq!((expected.len(), &*expected[0], &*expected[2]), (4, "old", "new"));
        one.store = None;
        drop((store, shared, other));
        let conn = rusqlite::Connection::open(folder.database()).unwrap();
        let wrapped: i64 = conn
            .query_row("SELECT count(DISTINCT key_id) FROM logs", [], |row| row.get(0))
            .unwrap();
        assert_eq!(wrapped, 1, "every chain key is wrapped under the current key");
        drop(conn);
        let store: Arc<dyn Store> = Arc::new(folder.store());
        assert_eq!(texts(&*store, &one).await, expected);
        let found = store.verify(&one.session).await.unwrap();
        assert_eq!((found.good_to, found.problem), (6, None));
        one.store = Some(store);
        one.append(vec![said("newer")]).await.unwrap();
        one.store = None;
        assert_eq!(key_ids().len(), 2, "the new key is still the current one");
    });
}

/// A process with the store open continues after a rotation by another process.
#[test]
fn a_rotation_by_another_process_is_followed() {
    let folder = InFolder::new();
    run(async {
        let mine: Arc<dyn Store> = Arc::new(folder.store());
        let mut one = Driver::create(&mine, "s").await;
        let theirs = Arc::new(folder.store());
        theirs.rotate_key().await.unwrap();
        let shared: Arc<dyn Store> = theirs.clone();
        let mut other = Driver::create(&shared, "t").await;
        other.append(vec![said("theirs")]).await.unwrap();
        assert_eq!(texts(&*mine, &other).await, ["theirs"]);
        one.append(vec![said("mine")]).await.unwrap();
        assert_eq!(texts(&*theirs, &one).await, ["mine"]);
        let conn = rusqlite::Connection::open(folder.database()).unwrap();
        let others: i64 = conn
            .query_row(
                "SELECT count(*) FROM records WHERE key_id IS NOT NULL AND rid > (SELECT no << 32
                   FROM logs WHERE id = 's') + 2 AND key_id IS NOT
                   (SELECT value FROM meta WHERE name = 'key_id')",
                [],
                |row| row.get(0),
            )
            .unwrap();
        assert_eq!(others, 0, "a record was written under a key that was replaced before");
    });
}

/// However many rotate at once, no key gets lost.
#[test]
fn rotations_at_once_lose_no_key() {
    let folder = InFolder::new();
    run(async {
        let stores = [Arc::new(folder.store()), Arc::new(folder.store())];
        let shared: Vec<Arc<dyn Store>> = stores.iter().map(|s| s.clone() as _).collect();
        let mut one = Driver::create(&shared[0], "s").await;
        let mut other = Driver::create(&shared[1], "t").await;
        for _ in 0..10 {
            let (a, b) = tokio::join!(stores[0].rotate_key(), stores[1].rotate_key());
            a.unwrap();
            b.unwrap();
            one.append(vec![said("x")]).await.unwrap();
            other.append(vec![said("x")]).await.unwrap();
        }
        one.store = None;
        other.store = None;
        drop((stores, shared));
        let key = fs::read_to_string(folder.folder.path().join(KEY_FILE)).unwrap();
        assert_eq!(key.lines().count(), 21);
        let store = folder.store();
        for driver in [&one, &other] {
            assert_eq!(texts(&store, driver).await.len(), 10);
            assert_eq!(store.verify(&driver.session).await.unwrap().problem, None);
        }
    });
}
