//! Batches: whole, in order, durable, or refused without a trace.

use futures_util::future::join_all;
use piton_core::limits::{BATCH_RECORDS_MAX, HEADER_BYTES_MAX, PAYLOAD_BYTES_MAX};
use piton_core::{Content, NewRecord};

use super::{Driver, Harness, at, leased, piece, said, session};
use crate::contract::{Appended, Detail, Durability};
use crate::error::Error;
use crate::writer::WritableRecords;

pub async fn batches_are_whole_and_in_order(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    let appended = one.append(vec![said("a"), said("b"), said("c")]).await.unwrap();
    assert_eq!(appended, Appended { first: 3, last: 5 });
    assert_eq!(one.append(vec![said("d")]).await.unwrap(), Appended { first: 6, last: 6 });
    let records = store.read(&one.session, 0, 100, Detail::Full).await.unwrap();
    let seqs: Vec<_> = records.iter().map(|record| record.seq).collect();
    assert_eq!(seqs, [1, 2, 3, 4, 5, 6]);
    let texts: Vec<_> =
        records[2..].iter().map(|record| record.content_field("content").unwrap()).collect();
    assert_eq!(texts, ["a", "b", "c", "d"]);
    let head = store.head(&one.session).await.unwrap().unwrap();
    assert_eq!(head.last_seq, 6);
    let stats = store.stats();
    assert_eq!((stats.batches, stats.records), (3, 6));
    assert!(stats.flushes >= 1 && stats.flushes <= stats.batches, "{stats:?}");
}

pub async fn a_seq_conflict_writes_nothing(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    let before = store.head(&one.session).await.unwrap();
    for expected in [0, 1, 3, 1_000] {
        let mut batch = one.clone().batch(vec![said("x"), said("y")]);
        batch.expected = expected;
        match store.append(batch).await {
            Err(Error::SeqConflict { expected: named, actual: 2, .. }) => {
                assert_eq!(named, expected);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(store.head(&one.session).await.unwrap(), before);
    // A session that is not there is at 0.
    let mut batch = one.clone().batch(vec![leased(&one.boot, 1)]);
    batch.session = session("t");
    assert!(matches!(store.append(batch).await, Err(Error::SeqConflict { actual: 0, .. })));
    assert_eq!(store.head(&session("t")).await.unwrap(), None);
    one.append(vec![said("z")]).await.unwrap();
}

/// Refused and accepted batches of two sessions are called for together.
pub async fn a_refused_batch_leaves_its_neighbours_alone(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    let mut other = Driver::create(&store, "t").await;
    let stale = one.batch(vec![said("before")]);
    let mut conflict = stale.clone();
    conflict.records = WritableRecords::verbatim(vec![said("never"), said("never")]);
    let empty = { one.clone().batch(Vec::new()) };
    let next = one.batch(vec![said("after")]);
    let calls = [stale, conflict, other.batch(vec![said("t")]), empty, next];
    let answers = join_all(calls.map(|batch| store.append(batch))).await;
    assert!(answers[0].is_ok() && answers[2].is_ok() && answers[4].is_ok(), "{answers:?}");
    assert!(matches!(answers[1], Err(Error::SeqConflict { .. })));
    assert!(matches!(answers[3], Err(Error::BatchInvalid { .. })));
    for (driver, texts) in [(&one, &["before", "after"][..]), (&other, &["t"])] {
        let records = store.read(&driver.session, 2, 100, Detail::Full).await.unwrap();
        let read: Vec<_> =
            records.iter().map(|record| record.content_field("content").unwrap()).collect();
        assert_eq!(read, texts);
    }
}

pub async fn limits_are_named(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    let with = |header: &str, payload: Option<&str>| {
        vec![
            NewRecord::from_bytes(
                at(0),
                "test.large",
                header.as_bytes(),
                payload.map(str::as_bytes),
            )
            .unwrap(),
        ]
    };
    let header = |bytes: usize| format!("{{\"x\":\"{}\"}}", "h".repeat(bytes - 8));
    for records in [
        with(&header(HEADER_BYTES_MAX + 1), None),
        with("{}", Some(&"p".repeat(PAYLOAD_BYTES_MAX + 1))),
    ] {
        let refused = store.append(one.clone().batch(records)).await;
        assert!(matches!(refused, Err(Error::PayloadTooLarge { .. })), "{refused:?}");
    }
    for records in [Vec::new(), vec![piece(0, "x"); BATCH_RECORDS_MAX + 1]] {
        let refused = store.append(one.clone().batch(records)).await;
        assert!(matches!(refused, Err(Error::BatchInvalid { .. })), "{refused:?}");
    }
    assert_eq!(store.head(&one.session).await.unwrap().unwrap().last_seq, 2);
    one.append(vec![piece(0, "x"); BATCH_RECORDS_MAX]).await.unwrap();
    one.append(with(&header(HEADER_BYTES_MAX / 2), None)).await.unwrap();
}

pub async fn pipelined_appends_keep_the_order_of_the_calls(harness: &dyn Harness) {
    const CALLS: u64 = 300;
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    // All are called before any future is polled; then the last is polled first.
    let mut futures = Vec::new();
    for call in 0..CALLS {
        let mut batch = one.batch(vec![piece(call, "x")]);
        if call % 3 == 0 {
            batch.durability = Durability::Buffered;
        }
        futures.push(store.append(batch));
    }
    futures.reverse();
    for (answer, last) in join_all(futures).await.into_iter().zip((3..CALLS + 3).rev()) {
        assert_eq!(answer.unwrap(), Appended { first: last, last });
    }
}

pub async fn a_dropped_future_takes_nothing_back(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    drop(store.append(one.batch(vec![said("a")])));
    one.append(vec![said("b")]).await.unwrap();
    assert_eq!(store.head(&one.session).await.unwrap().unwrap().last_seq, 4);
}

pub async fn one_of_many_at_the_same_place_wins(harness: &dyn Harness) {
    let store = harness.open().await;
    let one = Driver::create(&store, "s").await;
    let calls = (0..32).map(|i| store.append(one.clone().batch(vec![said(i)])));
    let answers = join_all(calls).await;
    assert!(answers[0].is_ok(), "the first call comes first");
    let refused = |a: &&_| matches!(a, Err(Error::SeqConflict { expected: 2, actual: 3, .. }));
    assert_eq!(answers.iter().filter(refused).count(), 31, "{answers:?}");
    let records = store.read(&one.session, 2, 100, Detail::Full).await.unwrap();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].content_field("content").unwrap(), 0);
}

pub async fn sessions_do_not_disturb_each_other(harness: &dyn Harness) {
    let store = harness.open().await;
    let write = |name: String| {
        let store = store.clone();
        async move {
            let mut driver = Driver::create(&store, &name).await;
            for i in 0..20 {
                driver.append(vec![said(format!("{name} {i}")), piece(i, "x")]).await.unwrap();
            }
            driver
        }
    };
    for driver in join_all((0..16).map(|i| write(format!("s{i}")))).await {
        let records = store.read(&driver.session, 0, 100, Detail::Full).await.unwrap();
        assert_eq!(records.len(), 42);
        let texts = records.iter().filter_map(|record| record.content_field("content"));
        for (i, text) in texts.enumerate() {
            assert_eq!(text, format!("{} {i}", driver.session));
        }
    }
}

pub async fn acknowledged_means_durable(harness: &dyn Harness) {
    let mut store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    for (round, durability) in
        [Durability::Synced, Durability::Buffered, Durability::Synced].into_iter().enumerate()
    {
        let mut batch = one.batch(vec![said(round), piece(0, "x")]);
        batch.durability = durability;
        store.append(batch).await.unwrap();
        store = harness.reopen(one.let_go(store)).await;
        one.store = Some(store.clone());
        let head = store.head(&one.session).await.unwrap().unwrap();
        assert_eq!(head.last_seq, one.state.last_seq);
        let records = store.read(&one.session, head.last_seq - 2, 10, Detail::Full).await.unwrap();
        assert_eq!(records[0].content_field("content").unwrap(), round);
        assert!(matches!(records[1].content, Content::Json(_)));
    }
}

pub async fn a_synced_batch_flushes_what_was_queued_before_it(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    let mut buffered = one.batch(vec![said("buffered")]);
    buffered.durability = Durability::Buffered;
    let buffered = store.append(buffered);
    one.append(vec![said("synced")]).await.unwrap();
    let records = store.read(&one.session, 2, 10, Detail::Full).await.unwrap();
    assert_eq!(records.len(), 2);
    assert_eq!(buffered.await.unwrap(), Appended { first: 3, last: 3 });
}
