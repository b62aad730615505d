//! Reading: what was written, to the byte, in pages; snapshots, and the states made of both.

use piton_core::state::PROJECTOR_VERSION;
use piton_core::{Content, NewRecord, Record, chain, fold};
use serde_json::Value;

use super::{Driver, Harness, at, piece, said, session};
use crate::contract::{Detail, Snapshot, Store};
use crate::load::load;

async fn all(store: &dyn Store, driver: &Driver) -> Vec<Record> {
    store.read(&driver.session, 0, 10_000, Detail::Full).await.unwrap()
}

pub async fn pages_have_no_gap_and_no_repeat(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    // A neighbour on either side of it.
    Driver::create(&store, "r").await;
    Driver::create(&store, "t").await;
    one.append((0..48).map(said).collect()).await.unwrap();
    let whole = all(&*store, &one).await;
    assert_eq!(whole.len(), 50);
    for limit in [1, 7, 49, 50, 51] {
        let mut read: Vec<Record> = Vec::new();
        loop {
            let after = read.last().map_or(0, |record| record.seq);
            let page = store.read(&one.session, after, limit, Detail::Full).await.unwrap();
            assert!(page.len() <= limit);
            if page.is_empty() {
                break;
            }
            read.extend(page);
        }
        assert_eq!(read, whole, "limit {limit}");
    }
    for (after, limit) in [(50, 10), (51, 10), (u64::MAX, 10), (0, 0)] {
        assert!(store.read(&one.session, after, limit, Detail::Full).await.unwrap().is_empty());
    }
}

pub async fn headers_come_without_contents(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    one.append(vec![said("x"), said("y".repeat(100_000))]).await.unwrap();
    let full = all(&*store, &one).await;
    let headers = store.read(&one.session, 0, 100, Detail::Headers).await.unwrap();
    assert_eq!(headers.len(), full.len());
    for (header, full) in headers.iter().zip(&full) {
        let content = match &full.content {
            Content::Json(_) => Content::Omitted,
            other => other.clone(),
        };
        assert_eq!(*header, Record { content, ..full.clone() });
    }
    assert_eq!(headers[0].content, Content::None);
    assert_eq!(headers[3].content, Content::Omitted);
}

pub async fn unknown_kinds_and_fields_are_kept_to_the_byte(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    let odd = [
        ("of.tomorrow", r#"{ "z" : 1, "a" :[null,  1.50]}"#, Some(r#"{"b": "ü\u00fc" }"#)),
        ("of.tomorrow", r#"{"critical":false}"#, None),
        ("run.paused", r#"{"later": {"x":1e2}, "run_id":"run_1"}"#, None),
        ("message.user", r#"{"message_id":"m","n":0}"#, Some(r#"{ "content":"x","more":[ ] }"#)),
    ];
    let record = |(kind, header, payload): (&str, &str, Option<&str>)| {
        NewRecord::from_bytes(at(7), kind, header.as_bytes(), payload.map(str::as_bytes)).unwrap()
    };
    one.append(odd.map(record).to_vec()).await.unwrap();
    let store = harness.reopen(one.let_go(store)).await;
    let read = store.read(&one.session, 2, 10, Detail::Full).await.unwrap();
    let expected: Vec<_> = (3..).zip(odd).map(|(seq, odd)| record(odd).at(seq)).collect();
    assert_eq!(read, expected);
}

pub async fn contents_round_trip(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    let mut noise = String::new();
    let mut hasher = blake3::Hasher::new();
    // Does not shrink, and is not all the same.
    while noise.len() < 200_000 {
        hasher.update(b"more");
        noise.push_str(hasher.finalize().to_hex().as_str());
    }
    let contents: Vec<Value> = vec![
        "".into(),
        Value::Null,
        "Grüße, 世界 \u{1F9D7} \0 \u{7f} \" \\ \n".into(),
        "i".repeat(16 * 1024 - 14).into(),
        "j".repeat(16 * 1024).into(),
        "b".repeat(20_000).into(),
        "b".repeat(20_000).into(),
        "m".repeat(1 << 20).into(),
        noise.into(),
    ];
    for content in &contents {
        one.append(vec![said(content.clone())]).await.unwrap();
    }
    // As a stream's pieces, many in one batch; and the emptiest of all.
    one.append((0..50).map(|i| piece(i, &"p".repeat(1_000))).collect()).await.unwrap();
    one.append(vec![NewRecord::from_bytes(at(0), "test.empty", b"{}", Some(b"")).unwrap()])
        .await
        .unwrap();
    let store = harness.reopen(one.let_go(store)).await;
    let mut read = Vec::new();
    while read.len() < contents.len() + 51 {
        let after = 2 + read.len() as u64;
        let page = store.read(&one.session, after, 1_000, Detail::Full).await.unwrap();
        assert!(!page.is_empty());
        read.extend(page);
    }
    for (record, content) in read.iter().zip(&contents) {
        assert_eq!(record.content_field("content").as_ref(), Some(content));
    }
    assert_eq!(read.last().unwrap().content, Content::Json("".into()));
}

pub async fn large_answers_stop_early_but_not_empty(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    for _ in 0..4 {
        one.append(vec![said("l".repeat(6 << 20))]).await.unwrap();
    }
    let mut after = 0;
    let mut pages = 0;
    while after < 6 {
        let page = store.read(&one.session, after, 100, Detail::Full).await.unwrap();
        assert_eq!(page.first().map(|record| record.seq), Some(after + 1));
        after = page.last().unwrap().seq;
        pages += 1;
    }
    assert!(pages > 1, "24 MB came in one answer");
}

pub async fn the_chain_is_known_at_every_record(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    one.append(vec![said("a"), said("b")]).await.unwrap();
    let mut hashes = Vec::new();
    for seq in 0..=4 {
        hashes.push(store.chain_at(&one.session, seq).await.unwrap().unwrap());
    }
    assert_eq!(hashes[0], chain::GENESIS);
    assert_eq!(store.head(&one.session).await.unwrap().unwrap().chain, hashes[4]);
    assert_eq!(store.chain_at(&one.session, 5).await.unwrap(), None);
    assert_eq!(store.chain_at(&one.session, u64::MAX).await.unwrap(), None);
    let count = hashes.len();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), count);
}

pub async fn what_is_not_there_is_not_there(harness: &dyn Harness) {
    let store = harness.open().await;
    let missing = session("nobody");
    assert_eq!(store.head(&missing).await.unwrap(), None);
    assert!(store.read(&missing, 0, 10, Detail::Full).await.unwrap().is_empty());
    assert_eq!(store.chain_at(&missing, 1).await.unwrap(), None);
    assert_eq!(store.snapshot(&missing).await.unwrap(), None);
    assert_eq!(store.token(&"rt_none".parse().unwrap()).await.unwrap(), None);
    assert!(store.verify(&missing).await.is_err());
}

pub async fn snapshots_are_kept_and_replaced(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    assert_eq!(store.snapshot(&one.session).await.unwrap(), None);
    let mut last = None;
    for seq in [1, 2] {
        let snapshot =
            Snapshot { seq, projector: 7, chain: [3; 32], body: format!("{{\"n\":{seq}}}") };
        store.save_snapshot(&one.session, snapshot.clone()).await.unwrap();
        assert_eq!(store.snapshot(&one.session).await.unwrap().as_ref(), Some(&snapshot));
        last = Some(snapshot);
    }
    // An append flushes whatever came before it, snapshots too.
    one.append(vec![said("x")]).await.unwrap();
    let store = harness.reopen(one.let_go(store)).await;
    assert_eq!(store.snapshot(&one.session).await.unwrap(), last);
}

/// With no snapshot, and with one at every position: the same state.
pub async fn loading_is_replaying(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    one.append((0..10).map(said).collect()).await.unwrap();
    let records = all(&*store, &one).await;
    let replayed = fold::replay(&records).unwrap();
    assert_eq!(replayed, one.state);
    let loaded = load(&*store, &one.session).await.unwrap();
    assert_eq!((loaded.state, loaded.replayed), (replayed.clone(), 12));
    for cut in 1..=records.len() {
        let body = serde_json::to_string(&fold::replay(&records[..cut]).unwrap()).unwrap();
        let seq = cut as u64;
        let chain = store.chain_at(&one.session, seq).await.unwrap().unwrap();
        let snapshot = Snapshot { seq, projector: PROJECTOR_VERSION, chain, body };
        store.save_snapshot(&one.session, snapshot).await.unwrap();
        let loaded = load(&*store, &one.session).await.unwrap();
        assert_eq!((loaded.state, loaded.replayed), (replayed.clone(), 12 - seq));
    }
}

pub async fn a_snapshot_that_does_not_fit_is_passed_over(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    one.append(vec![said("x")]).await.unwrap();
    let head = store.head(&one.session).await.unwrap().unwrap();
    let mut lie = one.state.clone();
    lie.facts.unknown_critical = Some("a.lie".into());
    let good = Snapshot {
        seq: head.last_seq,
        projector: PROJECTOR_VERSION,
        chain: head.chain,
        body: serde_json::to_string(&lie).unwrap(),
    };
    for bad in [
        Snapshot { projector: PROJECTOR_VERSION + 1, ..good.clone() },
        Snapshot { chain: [9; 32], ..good.clone() },
        Snapshot { seq: head.last_seq - 1, ..good.clone() },
        Snapshot { seq: head.last_seq + 1, ..good.clone() },
        Snapshot { body: "{".into(), ..good.clone() },
    ] {
        store.save_snapshot(&one.session, bad.clone()).await.unwrap();
        let loaded = load(&*store, &one.session).await.unwrap();
        assert_eq!(loaded.state, one.state, "{bad:?}");
    }
}
