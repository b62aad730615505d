//! The metadata log lists every session.

use std::sync::Arc;

use piton_core::expected_sessions::ExpectedSessions;
use piton_core::id::SessionId;
use piton_core::{Code, event};

use super::{Driver, Harness, of, said, session};
use crate::contract::{Detail, Guard, LogCopy, Store};
use crate::writer::WritableRecords;

/// What the metadata log lists.
async fn listed(store: &Arc<dyn Store>) -> Vec<String> {
    let records = store.read(&SessionId::metadata_log(), 0, 1_000, Detail::Headers).await.unwrap();
    let mut roster = ExpectedSessions::default();
    for record in &records {
        roster.apply(&record.event().unwrap());
    }
    roster.iter().map(|session| session.as_str().to_owned()).collect()
}

/// Wants to show: whatever made a session, the metadata log says that it is there, and no longer
/// when it is gone; nothing is amiss at any of these times.
pub async fn every_session_is_listed(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "one").await;
    let mut two = Driver::create(&store, "two").await;
    one.append(vec![said("x")]).await.unwrap();
    assert_eq!(store.verify_store().await.unwrap(), []);
    two.store = None;
    let store = harness.reopen(one.let_go(store)).await;
    assert_eq!(listed(&store).await, ["one", "two"]);
    assert_eq!(store.verify_store().await.unwrap(), []);

    let head = store.copy_head(&one.session).await.unwrap().unwrap();
    let records = store.copy_records(&one.session, 0, 100).await.unwrap();
    let (session_id, chain, reason) = (one.session.clone(), None, None);
    let deleted = of(1, event::SessionDeleted { session_id, last_seq: 3, chain, reason });
    let guard = Guard::Lease { boot: one.boot.clone(), epoch: one.state.lease.epoch };
    store.delete(&one.session, 3, guard, WritableRecords::verbatim(vec![deleted])).await.unwrap();
    assert_eq!(listed(&store).await, ["two"]);
    assert_eq!(store.verify_store().await.unwrap(), []);
    let store = harness.reopen(store).await;
    assert_eq!(listed(&store).await, ["two"]);

    let (session_id, chain) = (one.session.clone(), "00".to_owned());
    let imported = of(2, event::SessionImported { session_id, last_seq: 3, chain });
    let records = Box::new(records.into_iter().map(Ok));
    store.copy_in(LogCopy { head, records, note: Some(imported) }).await.unwrap();
    let store = harness.reopen(store).await;
    assert_eq!(listed(&store).await, ["one", "two"]);
    assert_eq!(store.verify_store().await.unwrap(), []);
}

/// Wants to show: the registration is part of the log that others write to, and no session is
/// registered twice.
pub async fn a_session_is_listed_once(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "one").await;
    for _ in 0..3 {
        one.append(vec![said("x")]).await.unwrap();
    }
    let refused = one.rival("boot_2").append(vec![said("y")]).await.unwrap_err();
    assert_eq!(refused.code(), Code::SessionOwned);
    let store = harness.reopen(one.let_go(store)).await;
    let store = harness.reopen(store).await;
    let records = store.read(&SessionId::metadata_log(), 0, 100, Detail::Headers).await.unwrap();
    let about = event::SessionRegistered { session_id: session("one") };
    let events: Vec<_> = records.iter().map(|record| record.event().unwrap()).collect();
    assert_eq!(events, [about.into()]);
}
