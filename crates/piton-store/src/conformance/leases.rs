//! One writer at a time, refused by the store and not by good manners.

use piton_core::id::SessionId;
use piton_core::state::Lease;
use piton_core::{NewRecord, event};

use super::{Driver, Harness, at, boot, leased, released, said, session};
use crate::contract::{Batch, Durability, Guard, Store};
use crate::error::{Error, Result};
use crate::writer::WritableRecords;

async fn lease(store: &dyn Store, driver: &Driver) -> Lease {
    store.head(&driver.session).await.unwrap().unwrap().lease
}

/// Appends and expects it to be refused without a trace.
async fn refused(store: &dyn Store, batch: Batch) -> Error {
    let before = store.head(&batch.session).await.unwrap();
    let session = batch.session.clone();
    let error = store.append(batch).await.unwrap_err();
    assert_eq!(store.head(&session).await.unwrap(), before, "{error}");
    error
}

async fn take(driver: &mut Driver, epoch: u64) -> Result<()> {
    let record = leased(&driver.boot, epoch);
    driver.append(vec![record]).await.map(drop)
}

pub async fn a_session_needs_a_writer(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut batch = Batch {
        session: session("s"),
        expected: 0,
        guard: Guard::Lease { boot: boot("boot_1"), epoch: 0 },
        records: WritableRecords::verbatim(vec![said("x")]),
        durability: Durability::Synced,
        summary: None,
    };
    for epoch in [0, 1] {
        batch.guard = Guard::Lease { boot: boot("boot_1"), epoch };
        assert!(matches!(refused(&*store, batch.clone()).await, Error::EpochStale { .. }));
    }
    batch.guard = Guard::Shared;
    assert!(matches!(refused(&*store, batch.clone()).await, Error::BatchInvalid { .. }));
    assert_eq!(store.head(&batch.session).await.unwrap(), None);
    batch.guard = Guard::Lease { boot: boot("boot_1"), epoch: 1 };
    batch.records.extend(WritableRecords::verbatim(vec![leased(&boot("boot_1"), 1)]));
    store.append(batch).await.unwrap();
}

pub async fn a_living_owner_keeps_its_session(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    let mut rival = one.rival("boot_2");
    let batch = rival.batch(vec![leased(&boot("boot_2"), 2)]);
    match refused(&*store, batch).await {
        Error::SessionOwned { owner, .. } => assert_eq!(owner, one.boot),
        other => panic!("{other}"),
    }
    let batch = one.rival("boot_2").batch(vec![said("x")]);
    refused(&*store, batch).await;
    one.append(vec![said("mine")]).await.unwrap();
    let owner = Some(boot("boot_1"));
    assert_eq!(lease(&*store, &one).await, Lease { owner, epoch: 1 });
}

pub async fn a_dead_owner_loses_its_session(harness: &dyn Harness) {
    let store = harness.open().await;
    let one = Driver::create(&store, "s").await;
    harness.kill(&one.boot);
    let mut rival = one.rival("boot_2");
    rival.append(vec![leased(&boot("boot_2"), 2), said("taken")]).await.unwrap();
    let owner = Some(boot("boot_2"));
    assert_eq!(lease(&*store, &one).await, Lease { owner, epoch: 2 });
    // And it does not come back while the new owner lives.
    let mut again = rival.rival("boot_3");
    let batch = again.batch(vec![leased(&boot("boot_3"), 3)]);
    assert!(matches!(refused(&*store, batch).await, Error::SessionOwned { .. }));
}

pub async fn a_stale_writer_is_refused(harness: &dyn Harness) {
    let store = harness.open().await;
    let one = Driver::create(&store, "s").await;
    harness.kill(&one.boot);
    let mut rival = one.rival("boot_2");
    take(&mut rival, 2).await.unwrap();
    // It knows where the log stands, and is refused all the same.
    let mut stale = one.clone();
    stale.state.last_seq = rival.state.last_seq;
    match refused(&*store, stale.clone().batch(vec![said("late")])).await {
        Error::EpochStale { presented: 1, actual: 2, .. } => {}
        other => panic!("{other}"),
    }
    // With the right epoch and the wrong name, too.
    stale.state.lease.epoch = 2;
    refused(&*store, stale.clone().batch(vec![said("late")])).await;
    // It cannot release what is no longer its own.
    let mut stale = one.rival("boot_1");
    stale.state.last_seq = rival.state.last_seq;
    refused(&*store, stale.batch(vec![released(&one.boot, 1)])).await;
    rival.append(vec![said("mine")]).await.unwrap();
}

pub async fn a_released_session_is_free(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    one.append(vec![said("last"), released(&boot("boot_1"), 1)]).await.unwrap();
    assert_eq!(lease(&*store, &one).await, Lease { owner: None, epoch: 1 });
    let batch = one.clone().batch(vec![said("too late")]);
    assert!(matches!(refused(&*store, batch).await, Error::EpochStale { .. }));
    let mut rival = one.rival("boot_2");
    take(&mut rival, 2).await.unwrap();
    rival.append(vec![said("mine")]).await.unwrap();
}

pub async fn the_same_boot_may_take_again(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    take(&mut one, 2).await.unwrap();
    one.append(vec![said("x")]).await.unwrap();
    let owner = Some(boot("boot_1"));
    assert_eq!(lease(&*store, &one).await, Lease { owner, epoch: 2 });
}

pub async fn a_lease_must_be_ones_own_and_the_next(harness: &dyn Harness) {
    let store = harness.open().await;
    let one = Driver::create(&store, "s").await;
    harness.kill(&one.boot);
    let rival = one.rival("boot_2");
    for epoch in [0, 1, 3, u64::MAX] {
        let batch = rival.clone().batch(vec![leased(&boot("boot_2"), epoch)]);
        refused(&*store, batch).await;
    }
    let batch = rival.clone().batch(vec![leased(&boot("boot_3"), 2)]);
    refused(&*store, batch).await;
    take(&mut rival.clone(), 2).await.unwrap();
}

pub async fn the_metadata_log_has_no_lease(harness: &dyn Harness) {
    let store = harness.open().await;
    let task = |i: u64| {
        let task_id = format!("task_{i}").parse().unwrap();
        NewRecord::new(at(0), event::TaskCreated { task_id, title: "x".into() })
    };
    let mut batch = Batch {
        session: SessionId::metadata_log(),
        expected: 0,
        guard: Guard::Lease { boot: boot("boot_1"), epoch: 1 },
        records: WritableRecords::verbatim(vec![task(0)]),
        durability: Durability::Synced,
        summary: None,
    };
    assert!(matches!(refused(&*store, batch.clone()).await, Error::BatchInvalid { .. }));
    batch.guard = Guard::Shared;
    for i in 0..3 {
        batch.expected = i;
        batch.records = WritableRecords::verbatim(vec![task(i)]);
        store.append(batch.clone()).await.unwrap();
    }
    assert!(matches!(refused(&*store, batch).await, Error::SeqConflict { .. }));
    let head = store.head(&SessionId::metadata_log()).await.unwrap().unwrap();
    assert_eq!((head.last_seq, head.lease), (3, Lease::default()));
}

pub async fn leases_survive(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    take(&mut one, 2).await.unwrap();
    let store = harness.reopen(one.let_go(store)).await;
    one.store = Some(store.clone());
    let owner = Some(boot("boot_1"));
    assert_eq!(lease(&*store, &one).await, Lease { owner, epoch: 2 });
    let batch = one.rival("boot_2").batch(vec![leased(&boot("boot_2"), 3)]);
    assert!(matches!(refused(&*store, batch).await, Error::SessionOwned { .. }));
    one.append(vec![said("still mine")]).await.unwrap();
}
