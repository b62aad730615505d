//! Following a log: every record once, in order, whatever happens to the hints.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use piton_core::Record;

use super::{Driver, Harness, leased, piece, said, session};
use crate::tail::Tail;

/// Longer than anything here takes; a case that waits so long has failed.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// What a tail delivers up to a position.
async fn deliver(tail: &mut Tail, to: u64) -> Vec<Record> {
    let mut records = Vec::new();
    while tail.position() < to {
        let more = tokio::time::timeout(TEST_TIMEOUT, tail.next()).await.expect("the tail waits");
        records.extend(more.unwrap());
    }
    records
}

fn seqs(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.seq).collect()
}

pub async fn a_tail_delivers_every_record_once(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    let mut tail = Tail::new(store.clone(), one.session.clone(), 0);
    let (delivered, ()) = tokio::join!(deliver(&mut tail, 102), async {
        for i in 0..50 {
            one.append(vec![said(i), piece(i, "x")]).await.unwrap();
        }
    });
    assert_eq!(seqs(&delivered), (1..=102).collect::<Vec<_>>());
    let read = store.read(&one.session, 0, 1_000, crate::Detail::Full).await.unwrap();
    assert_eq!(delivered, read, "a hint's records are the log's");
}

pub async fn a_late_tail_catches_up(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    for i in 0..40 {
        one.append((0..20).map(|_| said(i)).collect()).await.unwrap();
    }
    let mut tail = Tail::new(store.clone(), one.session.clone(), 700);
    let (delivered, ()) = tokio::join!(deliver(&mut tail, 803), async {
        one.append(vec![said("new")]).await.unwrap();
    });
    assert_eq!(seqs(&delivered), (701..=803).collect::<Vec<_>>());
}

/// Far more commits than hints are kept, while the tail does not look.
pub async fn lost_hints_lose_nothing(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    let mut tail = Tail::new(store.clone(), one.session.clone(), 0);
    assert_eq!(seqs(&deliver(&mut tail, 2).await), [1, 2]);
    for i in 0..300 {
        let mut batch = one.batch(vec![said(i)]);
        batch.durability = crate::Durability::Buffered;
        drop(store.append(batch));
    }
    one.append(vec![said("last")]).await.unwrap();
    assert_eq!(seqs(&deliver(&mut tail, 303).await), (3..=303).collect::<Vec<_>>());
}

pub async fn a_tail_waits_for_a_session_that_is_not_there_yet(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut tail = Tail::new(store.clone(), session("s"), 0);
    let (delivered, one) = tokio::join!(deliver(&mut tail, 2), Driver::create(&store, "s"));
    assert_eq!(seqs(&delivered), [1, 2]);
    assert_eq!(one.state.last_seq, 2);
}

pub async fn a_thousand_tails(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    let follow = |store: Arc<dyn crate::Store>| async move {
        let mut tail = Tail::new(store, session("s"), 0);
        seqs(&deliver(&mut tail, 23).await)
    };
    let tails = join_all((0..1_000).map(|_| follow(store.clone())));
    let (all, ()) = tokio::join!(tails, async {
        let lease = leased(&one.boot, 2);
        one.append(vec![lease]).await.unwrap();
        for i in 0..20 {
            one.append(vec![said(i)]).await.unwrap();
        }
    });
    assert!(all.iter().all(|seqs| *seqs == (1..=23).collect::<Vec<_>>()));
}
