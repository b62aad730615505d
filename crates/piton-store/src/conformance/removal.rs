//! Taking out, removing, copying: what is gone is gone, what is copied is the same to the byte.

use piton_core::event::{self, AdoptedRun};
use piton_core::id::SessionId;
use piton_core::{Code, Content, NewRecord, Record, Seq, chain};

use super::{Driver, Harness, at, leased, of, said, session};
use crate::contract::{
    CopiedRecord, CopyHead, Detail, Guard, LogCopy, Query, Select, Store, Verification,
};
use crate::error::{Error, Result};
use crate::load::load;
use crate::writer::WritableRecords;

fn redacted(target_seq: Seq) -> NewRecord {
    of(9, event::RecordRedacted { target_seq, reason: Some("a test".into()) })
}

fn large(letter: &str) -> NewRecord {
    said(letter.repeat(100_000))
}

async fn all(store: &dyn Store, session: &SessionId) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    loop {
        let after = records.last().map_or(0, |record| record.seq);
        let page = store.read(session, after, 1_000, Detail::Full).await.unwrap();
        if page.is_empty() {
            return records;
        }
        records.extend(page);
    }
}

async fn sound(store: &dyn Store, session: &SessionId, good_to: Seq) {
    let Verification { good_to: found, problem, .. } = store.verify(session).await.unwrap();
    assert_eq!((found, problem), (good_to, None));
}

/// Small and large contents go, once and for all; everything else stays as it was.
pub async fn redaction_takes_a_content_out(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    one.append(vec![said("small"), large("a"), said("stays")]).await.unwrap();
    let before = all(&*store, &one.session).await;
    let chain = store.chain_at(&one.session, 5).await.unwrap();
    one.append(vec![redacted(3), said("after"), redacted(4)]).await.unwrap();
    // What has no content, and what has lost it already, stays as it is.
    one.append(vec![redacted(1), redacted(3)]).await.unwrap();
    one.append(vec![said("more")]).await.unwrap();
    assert_eq!(store.chain_at(&one.session, 5).await.unwrap(), chain, "the chain has changed");
    let mut expected = before;
    expected[2].content = Content::Redacted;
    expected[3].content = Content::Redacted;
    let mut store = Some(store);
    for again in [false, true] {
        if again {
            store = Some(harness.reopen(one.let_go(store.take().unwrap())).await);
        }
        let store = store.clone().unwrap();
        let read = all(&*store, &one.session).await;
        assert_eq!(read[..5], expected[..5]);
        assert_eq!(read.len(), 11);
        assert_eq!(read[10].content_field("content"), Some("more".into()));
        sound(&*store, &one.session, 11).await;
        assert_eq!(load(&*store, &one.session).await.unwrap().state, one.state);
    }
}

/// A content that the same batch takes out is never there at all.
pub async fn a_batch_may_take_out_its_own_contents(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    one.append(vec![said("secret"), large("b"), redacted(3), redacted(4)]).await.unwrap();
    let read = all(&*store, &one.session).await;
    assert_eq!([&read[2].content, &read[3].content], [&Content::Redacted; 2]);
    sound(&*store, &one.session, 6).await;
}

pub async fn only_earlier_records_can_be_taken_out(harness: &dyn Harness) {
    let store = harness.open().await;
    let one = Driver::create(&store, "s").await;
    for target in [0, 3, 4, u64::MAX] {
        let refused = store.append(one.clone().batch(vec![redacted(target)])).await;
        assert!(matches!(refused, Err(Error::BatchInvalid { .. })), "{target}: {refused:?}");
    }
    assert_eq!(store.head(&one.session).await.unwrap().unwrap().last_seq, 2);
}

/// Two logs with the same content: one loses it, the other does not.
pub async fn redaction_leaves_other_logs_alone(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    let mut other = Driver::create(&store, "t").await;
    one.append(vec![large("c"), said("x")]).await.unwrap();
    other.append(vec![large("c")]).await.unwrap();
    one.append(vec![redacted(3)]).await.unwrap();
    assert_eq!(all(&*store, &one.session).await[2].content, Content::Redacted);
    let kept = all(&*store, &other.session).await;
    assert_eq!(kept[2].content_field("content"), Some("c".repeat(100_000).into()));
    // And the same content can come again.
    one.append(vec![large("c")]).await.unwrap();
    sound(&*store, &one.session, 6).await;
    sound(&*store, &other.session, 3).await;
}

async fn deleted(store: &dyn Store, one: &Driver) -> NewRecord {
    let head = store.head(&one.session).await.unwrap().unwrap();
    of(
        9,
        event::SessionDeleted {
            session_id: one.session.clone(),
            last_seq: head.last_seq,
            chain: Some(hex::encode(head.chain)),
            reason: None,
        },
    )
}

fn guard(one: &Driver) -> Guard {
    Guard::Lease { boot: one.boot.clone(), epoch: one.state.lease.epoch }
}

pub async fn deleting_removes_a_log_and_notes_it(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    let mut other = Driver::create(&store, "t").await;
    one.append(vec![large("d"), said("x")]).await.unwrap();
    other.append(vec![large("d")]).await.unwrap();
    let note = deleted(&*store, &one).await;
    store
        .delete(&one.session, 4, guard(&one), WritableRecords::verbatim(vec![note.clone()]))
        .await
        .unwrap();
    other.store = None;
    assert_eq!(store.head(&one.session).await.unwrap(), None);
    let store = harness.reopen(one.let_go(store)).await;
    {
        assert_eq!(store.head(&one.session).await.unwrap(), None);
        assert!(all(&*store, &one.session).await.is_empty());
        assert!(matches!(load(&*store, &one.session).await, Err(Error::SessionNotFound { .. })));
        let query = Query { task_id: None, select: Select::All, after: None, limit: 10 };
        let listed = store.list(query).await.unwrap().rows;
        assert_eq!(listed.iter().map(|row| &row.session).collect::<Vec<_>>(), [&other.session]);
        let notes = all(&*store, &SessionId::metadata_log()).await;
        let deletions = notes.iter().filter(|note| &*note.kind == "session.deleted");
        let deletions: Vec<_> = deletions.cloned().collect();
        assert_eq!(deletions, [note.at(deletions[0].seq)]);
        assert_eq!(all(&*store, &other.session).await.len(), 3);
        sound(&*store, &SessionId::metadata_log(), notes.len() as u64).await;
        sound(&*store, &other.session, 3).await;
    }
    // The name is free, and what comes has nothing of what was.
    let mut again = Driver::create(&store, "s").await;
    again.append(vec![large("d")]).await.unwrap();
    assert_eq!(all(&*store, &again.session).await.len(), 3);
    sound(&*store, &again.session, 3).await;
}

fn deleted_note(session: &SessionId) -> WritableRecords {
    let (session_id, chain, reason) = (session.clone(), None, None);
    let note = event::SessionDeleted { session_id, last_seq: 0, chain, reason };
    WritableRecords::verbatim(vec![of(9, note)])
}

/// The rules of an append hold, and a refused removal changes nothing.
pub async fn deleting_keeps_the_rules(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    one.append(vec![said("x")]).await.unwrap();
    let note = || deleted_note(&session("s"));
    let epoch = one.state.lease.epoch;
    let not_owner = Guard::Lease { boot: super::boot("boot_2"), epoch };
    let stale = Guard::Lease { boot: one.boot.clone(), epoch: epoch + 1 };
    let metadata = SessionId::metadata_log();
    for (session, expected, guard, code) in [
        (&one.session, 2, guard(&one), Code::SeqConflict),
        (&one.session, 4, guard(&one), Code::SeqConflict),
        (&one.session, 3, not_owner, Code::SessionOwned),
        (&one.session, 3, stale, Code::EpochStale),
        (&one.session, 3, Guard::Shared, Code::BatchInvalid),
        (&super::session("nobody"), 0, guard(&one), Code::SessionNotFound),
    ] {
        let refused = store.delete(session, expected, guard, note()).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
    }
    let notes = all(&*store, &metadata).await;
    let is_deletion = |note: &Record| &*note.kind == "session.deleted";
    assert!(!notes.iter().any(is_deletion), "a refused removal was noted");
    assert_eq!(all(&*store, &one.session).await.len(), 3);
    store.delete(&one.session, 3, guard(&one), note()).await.unwrap();
    let refused = store.delete(&metadata, 1, Guard::Shared, note()).await.unwrap_err();
    assert_eq!(refused.code(), Code::BatchInvalid);
}

async fn copy_of(store: &dyn Store, session: &SessionId) -> (CopyHead, Vec<CopiedRecord>) {
    let head = store.copy_head(session).await.unwrap().unwrap();
    let mut records: Vec<CopiedRecord> = Vec::new();
    loop {
        let after = records.last().map_or(0, |copied| copied.record.seq);
        let page = store.copy_records(session, after, 3).await.unwrap();
        if page.is_empty() {
            return (head, records);
        }
        records.extend(page);
    }
}

fn log_copy(head: CopyHead, records: Vec<CopiedRecord>) -> LogCopy {
    LogCopy { head, records: Box::new(records.into_iter().map(Ok)), note: None }
}

/// Out, removed, and in again: the same records, hashes, states and leases.
pub async fn a_copy_is_the_same_to_the_byte(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    let odd = [
        ("of.tomorrow", "{ \"z\" : 1,\n \"a\" :[null,  1.50]}", Some("{\"b\": \"ü\\u00fc\" }")),
        ("of.tomorrow", r#"{"seq":7,"_":{"chain":"x"}}"#, None),
        ("message.user", r#"{"message_id":"m","content":1}"#, Some(r#"{"content":"x"}"#)),
        ("test.bytes", "{}", Some("not JSON, \u{0} and\nlines")),
    ];
    let record = |(kind, header, payload): (&str, &str, Option<&str>)| {
        NewRecord::from_bytes(at(7), kind, header.as_bytes(), payload.map(str::as_bytes)).unwrap()
    };
    one.append(odd.map(record).to_vec()).await.unwrap();
    one.append(vec![large("e"), said("gone"), said("stays")]).await.unwrap();
    one.append(vec![redacted(8)]).await.unwrap();
    let before = all(&*store, &one.session).await;
    let head = store.head(&one.session).await.unwrap();
    let (copy_head, records) = copy_of(&*store, &one.session).await;
    assert_eq!(records.len(), 10);
    let exists = store.copy_in(log_copy(copy_head.clone(), records.clone())).await;
    assert!(matches!(exists, Err(Error::SessionExists { .. })), "{exists:?}");
    store.delete(&one.session, 10, guard(&one), deleted_note(&one.session)).await.unwrap();
    store.copy_in(log_copy(copy_head, records.clone())).await.unwrap();
    let mut store = Some(store);
    for again in [false, true] {
        if again {
            store = Some(harness.reopen(one.let_go(store.take().unwrap())).await);
        }
        let store = store.clone().unwrap();
        assert_eq!(all(&*store, &one.session).await, before);
        assert_eq!(store.head(&one.session).await.unwrap(), head);
        assert_eq!(copy_of(&*store, &one.session).await.1, records);
        assert_eq!(load(&*store, &one.session).await.unwrap().state, one.state);
        sound(&*store, &one.session, 10).await;
        one.store = Some(store.clone());
    }
    one.append(vec![said("goes on")]).await.unwrap();
}

/// Whatever is wrong with a copy, nothing of it is left.
pub async fn a_bad_copy_leaves_nothing(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    one.append(vec![said("x"), large("f")]).await.unwrap();
    let (head, records) = copy_of(&*store, &one.session).await;
    store.delete(&one.session, 4, guard(&one), deleted_note(&one.session)).await.unwrap();
    let changed = |change: &dyn Fn(&mut Vec<CopiedRecord>)| {
        let mut records = records.clone();
        change(&mut records);
        log_copy(head.clone(), records)
    };
    let mut other_key = head.clone();
    other_key.chain_key = chain::Key::new([1; 32]);
    let mut beyond = head.clone();
    beyond.last_seq = 5;
    let mut anchored = head.clone();
    anchored.anchor = Some((4, [9; 32]));
    let breaks = || Err(Error::Closed);
    let mut with_error: Vec<Result<CopiedRecord>> = records.iter().cloned().map(Ok).collect();
    with_error.insert(2, breaks());
    let bad = [
        changed(&|records| records[2].record.header = r#"{"message_id":"other"}"#.into()),
        changed(&|records| records[3].record.content = Content::Json("{}".into())),
        changed(&|records| records[3].record.content = Content::None),
        changed(&|records| records[1].batch_left = 1),
        changed(&|records| drop(records.remove(1))),
        changed(&|records| drop(records.pop())),
        changed(&|records| records.clear()),
        log_copy(other_key, records.clone()),
        log_copy(beyond, records.clone()),
        log_copy(anchored, records.clone()),
        LogCopy { head: head.clone(), records: Box::new(with_error.into_iter()), note: None },
    ];
    for (number, copy) in bad.into_iter().enumerate() {
        let refused = store.copy_in(copy).await;
        assert!(refused.is_err(), "copy {number} was taken");
        assert_eq!(store.head(&one.session).await.unwrap(), None, "copy {number}");
    }
    let store = harness.reopen(one.let_go(store)).await;
    assert_eq!(store.head(&one.session).await.unwrap(), None);
    store.copy_in(log_copy(head, records)).await.unwrap();
    sound(&*store, &one.session, 4).await;
}

/// A log that began elsewhere starts later, and is like any other from there on.
pub async fn an_adopted_log_starts_later(harness: &dyn Harness) {
    let store = harness.open().await;
    let id = session("sess_123");
    let key = chain::Key::new([3; 32]);
    let adopted = event::SessionAdopted {
        session_id: id.clone(),
        created_at: at(-1_000),
        title: Some("Fix flaky test".into()),
        working_dir: None,
        provider: None,
        run: Some(AdoptedRun {
            run_id: "run_9f5".parse().unwrap(),
            boot_id: "boot_old".parse().unwrap(),
            started_at: at(-500),
        }),
    };
    let mut chain = chain::GENESIS;
    let mut records = Vec::new();
    for (seq, new) in (144..).zip([of(0, adopted), said("run tests")]) {
        let payload_hash = new.payload.as_ref().map(|text| key.payload_hash(text.as_bytes()));
        let (ts, kind, header) = (new.ts, &*new.kind, &*new.header);
        chain = key
            .link(&chain, chain::LinkInput { seq, ts, kind, header, payload_hash, batch_left: 0 });
        records.push(CopiedRecord { record: new.at(seq), batch_left: 0, payload_hash, chain });
    }
    let head = CopyHead {
        session: id.clone(),
        chain_key: key,
        last_seq: 145,
        chain,
        anchor: Some((144, records[0].chain)),
    };
    store.copy_in(log_copy(head, records.clone())).await.unwrap();
    let state = load(&*store, &id).await.unwrap().state;
    assert_eq!(state.info.as_ref().unwrap().created_at, at(-1_000));
    let mut driver = Driver {
        store: Some(store.clone()),
        session: id.clone(),
        boot: super::boot("boot_1"),
        state,
    };
    driver.append(vec![leased(&driver.boot.clone(), 1), said("more")]).await.unwrap();
    driver.append(vec![redacted(145)]).await.unwrap();
    store.rebuild_caches().await.unwrap();
    let mut store = Some(store);
    for again in [false, true] {
        if again {
            store = Some(harness.reopen(driver.let_go(store.take().unwrap())).await);
        }
        let store = store.clone().unwrap();
        let read = all(&*store, &id).await;
        let seqs: Vec<Seq> = read.iter().map(|record| record.seq).collect();
        assert_eq!(seqs, [144, 145, 146, 147, 148]);
        assert_eq!(read[1].content, Content::Redacted);
        assert_eq!(store.read(&id, 146, 1, Detail::Full).await.unwrap(), read[3..4]);
        assert_eq!(store.chain_at(&id, 144).await.unwrap(), Some(records[0].chain));
        assert_eq!(store.chain_at(&id, 143).await.unwrap(), None);
        assert_eq!(store.chain_at(&id, 0).await.unwrap(), Some(chain::GENESIS));
        assert_eq!(load(&*store, &id).await.unwrap().state, driver.state);
        sound(&*store, &id, 148).await;
    }
}
