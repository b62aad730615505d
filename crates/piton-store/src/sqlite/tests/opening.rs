//! Whatever lies where the store should be: a clear answer, and nothing overwritten.

use std::fs;
use std::io::Write as _;
use std::process::Command;

use super::*;
use crate::conformance::{leased, said};
use crate::load::load;

fn write_one(folder: &InFolder) -> Driver {
    let mut driver = None;
    run(async {
        let store: Arc<dyn Store> = Arc::new(folder.store());
        let mut one = Driver::create(&store, "s").await;
        one.append(vec![said("kept")]).await.unwrap();
        one.let_go(store);
        driver = Some(one);
    });
    driver.unwrap()
}

/// A closed store is one file with everything in it, so a copy of the file is complete.
#[test]
fn a_closed_store_lies_in_one_file() {
    for _ in 0..20 {
        let folder = InFolder::new();
        run(async {
            let store: Arc<dyn Store> = Arc::new(folder.store());
            let mut driver = Driver::create(&store, "s").await;
            store.head(&driver.session).await.unwrap();
            driver.let_go(store);
        });
        let wal = folder.folder.path().join("store.sqlite3-wal");
        assert!(!wal.exists());
    }
}

#[test]
fn a_foreign_file_is_refused_and_not_touched() {
    let folder = InFolder::new();
    let path = folder.database();
    for content in [&b"x"[..], b"Hello, I am a diary.\n", &[0; 4096]] {
        fs::write(&path, content).unwrap();
        assert!(matches!(folder.refused(), Error::Foreign { .. }));
        assert_eq!(fs::read(&path).unwrap(), content);
    }
    fs::remove_file(&path).unwrap();
    sql_in(&path, "CREATE TABLE theirs(x); INSERT INTO theirs VALUES (1)");
    let content = fs::read(&path).unwrap();
    assert!(matches!(folder.refused(), Error::Foreign { .. }));
    assert_eq!(fs::read(&path).unwrap(), content);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(folder.refused(), Error::Foreign { .. }));
}

#[test]
fn a_damaged_file_is_refused() {
    let folder = InFolder::new();
    write_one(&folder);
    let path = folder.database();
    let whole = fs::read(&path).unwrap();
    for bytes in [0, 50, 100, 4096, 8192, whole.len() - 4096] {
        fs::write(&path, &whole[..bytes]).unwrap();
        let refused = folder.refused();
        assert!(matches!(refused, Error::Damaged { .. }), "{bytes}: {refused:?}");
        assert_eq!(fs::read(&path).unwrap(), whole[..bytes]);
    }
    let mut bent = whole.clone();
    bent[100..4096].fill(0xff);
    fs::write(&path, &bent).unwrap();
    assert!(matches!(folder.refused(), Error::Damaged { .. }));
    fs::write(&path, &whole).unwrap();
    folder.sql("DROP TABLE records");
    assert!(matches!(folder.refused(), Error::Damaged { .. }));
}

/// A lost store is not silently replaced by a new one.
#[test]
fn a_lost_database_is_not_replaced() {
    let folder = InFolder::new();
    write_one(&folder);
    fs::remove_file(folder.database()).unwrap();
    assert!(matches!(folder.refused(), Error::Damaged { .. }));
    assert!(!folder.database().exists());
}

#[test]
fn a_newer_format_is_named_and_left_alone() {
    let folder = InFolder::new();
    write_one(&folder);
    folder.sql("PRAGMA user_version = 99");
    assert!(matches!(folder.refused(), Error::Newer { found: 99, supported: schema::FORMAT }));
    folder.sql("PRAGMA user_version = 2");
    drop(folder.store());
}

/// What a process that died while it made the store left behind is no store.
#[test]
fn a_half_made_store_is_made_again() {
    let folder = InFolder::new();
    fs::write(folder.database().with_extension("new"), "half").unwrap();
    write_one(&folder);
    assert!(!folder.database().with_extension("new").exists());
}

#[test]
fn a_folder_that_cannot_be_is_reported() {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("file"), "").unwrap();
    let refused = SqliteStore::open(Options::new(temp.path().join("file/data"))).unwrap_err();
    assert!(matches!(refused, Error::Unreadable { .. }), "{refused:?}");
    let absent = Options { access: Access::ReadOnly, ..Options::new(temp.path().join("absent")) };
    assert!(matches!(SqliteStore::open(absent), Err(Error::Unreadable { .. })));
    assert!(!temp.path().join("absent").exists());
}

/// A mount that is undone when the test ends. `None` where mounting is not allowed.
pub(super) struct Mount(PathBuf);

impl Mount {
    pub(super) fn new(path: &Path, arguments: &[&str]) -> Option<Self> {
        let mounted = Command::new("mount").args(arguments).arg(path).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(path.to_owned())),
            refused => {
                let left_out =
                    format!("LEFT OUT: {} cannot be mounted: {refused:?}", path.display());
                let must = std::env::var_os("CI").is_some() && rustix::process::geteuid().is_root();
                assert!(!must, "{left_out}");
                // Past the test's captured output.
                let _ = writeln!(std::io::stderr(), "{left_out}");
                None
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_read_only_folder_is_reported_and_can_be_read() {
    let folder = InFolder::new();
    let one = write_one(&folder);
    let path = folder.folder.path().to_owned();
    let source = path.to_str().unwrap().to_owned();
    let Some(_bind) = Mount::new(&path, &["--bind", &source]) else { return };
    let Some(_read_only) = Mount::new(&path, &["-o", "remount,bind,ro"]) else { return };
    assert!(matches!(folder.refused(), Error::ReadOnly { .. }), "{:?}", folder.refused());
    let new = Options::new(path.join("new"));
    assert!(matches!(SqliteStore::open(new), Err(Error::ReadOnly { .. })));
    run(async {
        let options = Options { access: Access::ReadOnly, ..folder.options() };
        let store = SqliteStore::open(options).unwrap();
        assert_eq!(texts(&store, &one).await, ["kept"]);
    });
}

#[test]
fn a_reader_works_beside_a_writer_and_writes_nothing() {
    let folder = InFolder::new();
    run(async {
        let store: Arc<dyn Store> = Arc::new(folder.store());
        let mut one = Driver::create(&store, "s").await;
        let options = Options { access: Access::ReadOnly, ..folder.options() };
        let reader: Arc<dyn Store> = Arc::new(SqliteStore::open(options).unwrap());
        let mut tail = crate::Tail::new(reader.clone(), one.session.clone(), 2);
        one.append(vec![said("seen")]).await.unwrap();
        assert_eq!(texts(&*reader, &one).await, ["seen"]);
        assert_eq!(tail.next().await.unwrap().len(), 1);
        // The next is noticed while it waits.
        let (noticed, appended) = tokio::join!(tail.next(), one.append(vec![said("noticed")]));
        appended.unwrap();
        assert_eq!(noticed.unwrap()[0].content_field("content").unwrap(), "noticed");
        assert!(reader.verify(&one.session).await.unwrap().problem.is_none());
        let refused = reader.append(one.clone().batch(vec![said("never")])).await;
        assert!(matches!(refused, Err(Error::ReadOnly { .. })));
        assert!(matches!(reader.rebuild_caches().await, Err(Error::ReadOnly { .. })));
    });
}

#[test]
fn anchors_that_cannot_be_read_do_not_stop_anything() {
    let folder = InFolder::new();
    let mut one = write_one(&folder);
    let anchors = folder.folder.path().join(schema::ANCHORS_FILE);
    let open_and_append = |one: &mut Driver| {
        run(async {
            one.store = Some(Arc::new(folder.store()));
            one.append(vec![said("more")]).await.unwrap();
            one.store = None;
        });
    };
    fs::write(&anchors, "not a database at all, and longer than a header").unwrap();
    open_and_append(&mut one);
    fs::remove_file(&anchors).unwrap();
    open_and_append(&mut one);
    assert!(anchors.with_extension("damaged").exists());
    run(async {
        let store = folder.store();
        let found = store.verify(&one.session).await.unwrap();
        assert_eq!((found.problem, found.anchored_to), (None, Some(one.state.last_seq)));
    });
}

/// Another program's database in the anchors' place is put aside unchanged.
#[test]
fn foreign_anchors_are_put_aside_and_not_written() {
    let folder = InFolder::new();
    write_one(&folder);
    let anchors = folder.folder.path().join(schema::ANCHORS_FILE);
    fs::remove_file(&anchors).unwrap();
    sql_in(&anchors, "PRAGMA application_id = 7; CREATE TABLE theirs(x)");
    let content = fs::read(&anchors).unwrap();
    run(async {
        let store: Arc<dyn Store> = Arc::new(folder.store());
        drop(Driver::create(&store, "t").await.let_go(store));
    });
    assert_eq!(fs::read(anchors.with_extension("damaged")).unwrap(), content);
    assert!(anchors.exists());
}

/// Law 1: delete every cache row, or the tables themselves.
#[test]
fn caches_that_were_deleted_are_made_again() {
    for sql in [
        "DELETE FROM heads; DELETE FROM sessions; DELETE FROM tokens; DELETE FROM snapshots",
        "DROP TABLE heads; DROP TABLE sessions; DROP TABLE tokens; DROP TABLE snapshots",
        "DELETE FROM sessions",
    ] {
        let folder = InFolder::new();
        let mut one = write_one(&folder);
        folder.sql(sql);
        run(async {
            let store: Arc<dyn Store> = Arc::new(folder.store());
            let query = Query { task_id: None, select: crate::Select::All, after: None, limit: 10 };
            let rows = store.list(query).await.unwrap().rows;
            assert_eq!(rows[0].summary, one.state.summary().unwrap());
            assert_eq!(rows[0].lease, one.state.lease);
            assert_eq!(load(&*store, &one.session).await.unwrap().state, one.state);
            one.store = Some(store);
            one.append(vec![said("on")]).await.unwrap();
            one.store = None;
        });
    }
}

/// A lease does not get lost with its cache row, neither for readers nor for the writer.
#[test]
fn a_missing_head_is_healed() {
    let folder = InFolder::new();
    let mut one = write_one(&folder);
    run(async {
        let store: Arc<dyn Store> = Arc::new(folder.store());
        let other = Driver::create(&store, "t").await;
        drop((store, other));
    });
    folder.sql("DELETE FROM heads WHERE no = 1; DELETE FROM sessions WHERE no = 1");
    run(async {
        let store: Arc<dyn Store> = Arc::new(folder.store());
        assert_eq!(store.head(&one.session).await.unwrap().unwrap().lease, one.state.lease);
        let mut rival = one.rival("boot_2");
        let batch = rival.batch(vec![leased(&"boot_2".parse().unwrap(), 2)]);
        assert!(matches!(store.append(batch).await, Err(Error::SessionOwned { .. })));
        one.store = Some(store.clone());
        one.append(vec![said("mine")]).await.unwrap();
        one.store = None;
    });
}
