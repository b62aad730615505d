//! Full disks and failed flushes.

use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use rusqlite::ffi;

use super::opening::Mount;
use super::*;
use crate::conformance::said;

/// A store whose next commit fails with a given code.
fn with_fault(folder: &InFolder) -> (Arc<dyn Store>, writer::Fault) {
    let fault = writer::Fault::default();
    let mut state = writer::State::default();
    state.fault = fault.clone();
    (Arc::new(SqliteStore::open_with(folder.options(), state).unwrap()), fault)
}

#[test]
fn a_failed_flush_ends_all_writing() {
    let folder = InFolder::new();
    run(async {
        let (store, fault) = with_fault(&folder);
        let mut one = Driver::create(&store, "s").await;
        let mut other = Driver::create(&store, "t").await;
        store.check_writable().await.unwrap();
        fault.0.commit.store(ffi::SQLITE_IOERR_FSYNC, Ordering::SeqCst);
        let doomed = one.clone().batch(vec![said("doomed")]);
        assert!(matches!(store.append(doomed).await, Err(Error::Poisoned(Some(_)))));
        // The disk is well again; the store does not believe it.
        assert!(matches!(one.append(vec![said("x")]).await, Err(Error::Poisoned(_))));
        assert!(matches!(other.append(vec![said("x")]).await, Err(Error::Poisoned(_))));
        assert!(matches!(store.rebuild_caches().await, Err(Error::Poisoned(_))));
        assert!(matches!(store.check_writable().await, Err(Error::Poisoned(_))));
        // What was acknowledged can be read.
        assert_eq!(store.head(&one.session).await.unwrap().unwrap().last_seq, 2);
        assert!(store.verify(&one.session).await.unwrap().problem.is_none());
    });
}

#[test]
fn a_full_disk_refuses_and_continues() {
    let folder = InFolder::new();
    run(async {
        let (store, fault) = with_fault(&folder);
        let mut one = Driver::create(&store, "s").await;
        fault.0.commit.store(ffi::SQLITE_FULL, Ordering::SeqCst);
        let refused = store.append(one.clone().batch(vec![said("no space")])).await;
        assert!(matches!(refused, Err(Error::DiskFull(_))), "{refused:?}");
        assert_eq!(store.head(&one.session).await.unwrap().unwrap().last_seq, 2);
        one.append(vec![said("space again")]).await.unwrap();
        assert_eq!(texts(&*store, &one).await, ["space again"]);
        // A group that does not fit as a whole is tried one by one.
        fault.0.commit.store(ffi::SQLITE_FULL, Ordering::SeqCst);
        let calls: Vec<_> = (0..10)
            .map(|_| {
                let mut batch = one.batch(vec![said("x")]);
                batch.durability = crate::Durability::Buffered;
                store.append(batch)
            })
            .collect();
        assert!(join_all(calls).await.iter().all(Result::is_ok));
    });
}

fn buffered(driver: &mut Driver) -> Batch {
    let mut batch = driver.batch(vec![said("x")]);
    batch.durability = crate::Durability::Buffered;
    batch
}

/// Another process holds the database: the wait for it is not repeated for each of a group.
#[test]
fn a_busy_store_refuses_a_group_at_once() {
    let folder = InFolder::new();
    run(async {
        let (store, fault) = with_fault(&folder);
        let one = Driver::create(&store, "s").await;
        fault.0.begin.store(ffi::SQLITE_BUSY, Ordering::SeqCst);
        let before = fault.0.begins.load(Ordering::SeqCst);
        let mut doomed = one.clone();
        let calls: Vec<_> = (0..100).map(|_| store.append(buffered(&mut doomed))).collect();
        let refused = join_all(calls).await;
        assert!(refused.iter().all(|r| matches!(r, Err(Error::Busy(_)))), "{refused:?}");
        let begins = fault.0.begins.load(Ordering::SeqCst) - before;
        assert!(begins <= 10, "it was waited for {begins} times");
        fault.0.begin.store(0, Ordering::SeqCst);
        one.clone().append(vec![said("released")]).await.unwrap();
    });
}

/// After a group that was not flushed, nothing is acknowledged before flushing works again.
#[test]
fn no_append_is_acknowledged_without_a_flush() {
    let folder = InFolder::new();
    run(async {
        let (store, fault) = with_fault(&folder);
        let mut one = Driver::create(&store, "s").await;
        fault.0.full.store(ffi::SQLITE_NOMEM, Ordering::SeqCst);
        let snapshot = Snapshot { seq: 1, projector: 1, chain: [0; 32], body: "{}".into() };
        store.save_snapshot(&one.session, snapshot).await.unwrap();
        let refused = store.append(one.clone().batch(vec![said("not flushed")])).await;
        assert!(matches!(refused, Err(Error::Unreadable { .. })), "{refused:?}");
        let flushes = store.stats().flushes;
        one.append(vec![said("flushed")]).await.unwrap();
        assert_eq!(store.stats().flushes, flushes + 1);
        assert_eq!(texts(&*store, &one).await, ["flushed"]);
    });
}

#[test]
fn no_one_waits_for_a_writer_that_panicked() {
    let folder = InFolder::new();
    run(async {
        let (store, fault) = with_fault(&folder);
        let mut one = Driver::create(&store, "s").await;
        fault.0.begin.store(-1, Ordering::SeqCst);
        let calls: Vec<_> = (0..2_000).map(|_| store.append(buffered(&mut one))).collect();
        let refused = join_all(calls).await;
        assert!(refused.iter().all(|r| matches!(r, Err(Error::Closed))));
        assert!(matches!(one.append(vec![said("late")]).await, Err(Error::Closed)));
        assert_eq!(store.head(&one.session).await.unwrap().unwrap().last_seq, 2);
    });
}

/// A real disk of 4 MB, filled until it refuses and then emptied.
#[test]
fn a_disk_that_is_really_full() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs"];
    let Some(_mount) = Mount::new(folder.path(), &arguments) else { return };
    let ballast = folder.path().join("ballast");
    std::fs::write(&ballast, vec![1; 2 << 20]).unwrap();
    run(async {
        let options =
            Options { liveness: Arc::new(Boots::default()), ..Options::new(folder.path()) };
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(options.clone()).unwrap());
        let mut one = Driver::create(&store, "s").await;
        let mut kept = 0;
        let refused = loop {
            let before = one.clone();
            match one.append(vec![said(format!("{kept}{}", "x".repeat(10_000)))]).await {
                Ok(_) => kept += 1,
                Err(e) => {
                    one = before;
                    break e;
                }
            }
            assert!(kept < 1_000, "4 MB never end");
        };
        assert!(matches!(refused, Error::DiskFull(_)), "{refused:?}");
        assert!(matches!(store.check_writable().await, Err(Error::DiskFull(_))));
        assert_eq!(texts(&*store, &one).await.len(), kept);
        std::fs::remove_file(&ballast).unwrap();
        one.append(vec![said("space again")]).await.unwrap();
        drop(one.let_go(store));
        let store = SqliteStore::open(options).unwrap();
        assert_eq!(texts(&store, &one).await.len(), kept + 1);
        assert_eq!(store.verify(&one.session).await.unwrap().problem, None);
    });
}

#[test]
fn a_closed_store_says_so_and_keeps_what_was_queued() {
    let folder = InFolder::new();
    run(async {
        let store = Arc::new(folder.store());
        let shared: Arc<dyn Store> = store.clone();
        let mut one = Driver::create(&shared, "s").await;
        let mut batch = one.batch(vec![said("queued")]);
        batch.durability = crate::Durability::Buffered;
        let queued = store.append(batch);
        store.close();
        queued.await.unwrap();
        assert!(matches!(one.append(vec![said("late")]).await, Err(Error::Closed)));
        assert!(matches!(store.head(&one.session).await, Err(Error::Closed)));
        store.close();
    });
}

/// Snapshots cost no flush; appends that wait together share one.
#[test]
fn flushes_are_shared() {
    let folder = InFolder::new();
    run(async {
        let store: Arc<dyn Store> = Arc::new(folder.store());
        let mut one = Driver::create(&store, "s").await;
        let before = store.stats();
        let calls: Vec<_> = (0..100)
            .map(|_| {
                let mut batch = one.batch(vec![said("x")]);
                batch.durability = crate::Durability::Buffered;
                store.append(batch)
            })
            .collect();
        join_all(calls).await;
        let after = store.stats();
        assert_eq!(after.batches - before.batches, 100);
        assert!(after.flushes - before.flushes <= 10, "{after:?}");
        let snapshot = Snapshot { seq: 1, projector: 1, chain: [0; 32], body: "{}".into() };
        store.save_snapshot(&one.session, snapshot).await.unwrap();
        assert_eq!(store.stats(), after);
    });
}
