//! Data of earlier formats is refused before anything is written; plain logs are still adopted. How
//! the data was made: `fixtures/v1/README.md`.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use piton_core::Code;
use piton_store::files::{self, Access};
use piton_store::{FilesStore, SqliteStore, Store as _, bundle, sqlite};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1").join(name)
}

/// Copies a folder, with the modes that a store wants: git keeps none of them.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o700)).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
            fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
}

fn copied(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy(&fixture(name), folder.path());
    folder
}

/// Every file and folder: when it was last changed, its mode and its bytes.
type Listing = BTreeMap<PathBuf, (i64, i64, u32, Vec<u8>)>;

fn listing(folder: &Path) -> Listing {
    let mut found = Listing::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(path) = folders.pop() {
        let metadata = fs::metadata(&path).unwrap();
        let bytes = if metadata.is_dir() {
            let entries = fs::read_dir(&path).unwrap();
            folders.extend(entries.map(|entry| entry.unwrap().path()));
            Vec::new()
        } else {
            fs::read(&path).unwrap()
        };
        let changed = (metadata.mtime(), metadata.mtime_nsec());
        found.insert(path, (changed.0, changed.1, metadata.mode(), bytes));
    }
    found
}

/// Wants to show: a store of format 1 is refused by its code, to readers and writers, and not one
/// byte, name or time of its folder changes.
#[test]
fn stores_of_format_1_are_refused_untouched() {
    let folder = copied("sqlite");
    let before = listing(folder.path());
    assert_eq!(before.len(), 4, "the folder and its three files");
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let options = sqlite::Options { access, ..sqlite::Options::new(folder.path()) };
        let refused = SqliteStore::open(options).unwrap_err();
        assert_eq!(refused.code(), Code::StoreTooOld, "{refused}");
        assert_eq!(listing(folder.path()), before);
    }
    let folder = copied("files");
    let before = listing(folder.path());
    assert!(before.len() > 8, "{:?}", before.keys());
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let options = files::Options { access, ..files::Options::new(folder.path()) };
        let refused = FilesStore::open(options).unwrap_err();
        assert_eq!(refused.code(), Code::StoreTooOld, "{refused}");
        assert_eq!(listing(folder.path()), before);
    }
}

/// Wants to show: a bundle of format 1 is refused by its code and nothing is imported.
#[tokio::test]
async fn bundles_of_format_1_are_refused() {
    let path = fixture("session.piton");
    let before = fs::read(&path).unwrap();
    let refused = bundle::check(fs::File::open(&path).unwrap(), None).unwrap_err();
    assert_eq!(refused.code(), Code::BundleTooOld, "{refused}");
    let folder = tempfile::tempdir().unwrap();
    let store = FilesStore::open(files::Options::new(folder.path())).unwrap();
    let now = piton_core::Timestamp::from_millis(1_800_000_000_000);
    let refused = bundle::import_file(&store, &path, None, now).await.unwrap_err();
    assert_eq!(refused.code(), Code::BundleTooOld, "{refused}");
    assert_eq!(store.logs(None, 10).await.unwrap(), []);
    assert_eq!(fs::read(&path).unwrap(), before);
}

const PLAIN: &str = concat!(
    r#"{"seq":1,"ts":"2026-02-21T12:00:00.000Z","kind":"session.created","session_id":"sess_1"}"#,
    "\n",
    r#"{"seq":2,"ts":"2026-02-21T12:00:01.000Z","kind":"message.user","message_id":"msg_1","content":"hi"}"#,
    "\n"
);

/// Wants to show: logs without a format of Piton's are no old store: they are read as they are, and
/// adopted.
#[tokio::test]
async fn plain_logs_are_still_adopted() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    copy(&fixture("files").join("sessions"), &data.join("sessions"));
    for entry in fs::read_dir(data.join("sessions")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
    let log = data.join("sessions/sess_1.messages.jsonl");
    fs::write(&log, PLAIN).unwrap();
    fs::set_permissions(&log, fs::Permissions::from_mode(0o600)).unwrap();
    let before = listing(&data);
    let reading = files::Options { access: Access::ReadOnly, ..files::Options::new(&data) };
    let id = "sess_1".parse().unwrap();
    let detail = piton_store::Detail::Full;
    {
        let store = FilesStore::open(reading).unwrap();
        assert_eq!(store.read(&id, 0, 10, detail).await.unwrap().len(), 2);
        assert_eq!(store.verify(&id).await.unwrap().problem, None);
    }
    assert_eq!(listing(&data), before, "a reader writes nothing");
    let store = FilesStore::open(files::Options::new(&data)).unwrap();
    assert_eq!(store.read(&id, 0, 10, detail).await.unwrap().len(), 2);
    assert!(store.copy_head(&id).await.unwrap().is_some(), "brought into this store's form");
    assert_eq!(store.verify(&id).await.unwrap().problem, None);
}
