//! Edits of the files are detected.

use piton_core::{Content, event};

use super::*;
use crate::conformance::{of, said, session};
use crate::contract::{IndexEntry, Problem, Verification};

/// A closed store whose session `s` has: 1 created, 2 leased, 3 “three”, 4 a blob, 5–6 one batch.
fn written() -> (InFolder, Driver) {
    let folder = InFolder::new();
    let mut driver = None;
    run(async {
        let store: Arc<dyn Store> = Arc::new(folder.store());
        let mut one = Driver::create(&store, "s").await;
        one.append(vec![said("three")]).await.unwrap();
        one.append(vec![said("four".repeat(20_000))]).await.unwrap();
        one.append(vec![said("five"), said("six")]).await.unwrap();
        one.let_go(store);
        driver = Some(one);
    });
    (folder, driver.unwrap())
}

/// The key of a record of the first log.
fn row(seq: u64) -> i64 {
    schema::rid(1, seq)
}

fn verify(folder: &InFolder) -> Verification {
    let mut found = None;
    run(async {
        let store = folder.store();
        found = Some(store.verify(&session("s")).await.unwrap());
    });
    found.unwrap()
}

fn read(folder: &InFolder, detail: Detail) -> Result<Vec<Record>> {
    let mut found = None;
    run(async { found = Some(folder.store().read(&session("s"), 0, 100, detail).await) });
    found.unwrap()
}

#[track_caller]
fn expect(sql: &str, good_to: Seq, problem: Problem) -> InFolder {
    let (folder, _) = written();
    folder.sql(sql);
    let problem = Some(problem);
    assert_eq!(verify(&folder), Verification { good_to, problem, anchored_to: Some(6) });
    folder
}

#[test]
fn an_untouched_log_is_sound() {
    let (folder, _) = written();
    let sound = Verification { good_to: 6, problem: None, anchored_to: Some(6) };
    assert_eq!(verify(&folder), sound);
    // The caches are no part of it.
    folder.sql("DELETE FROM heads; DELETE FROM sessions");
    assert_eq!(verify(&folder), sound);
}

#[test]
fn an_edited_record_breaks_the_chain() {
    for column in [
        "header = '{\"message_id\":\"forged\"}'",
        "header = x'ff'",
        "kind = 'message.delta'",
        "ts = ts + 1",
        "batch_left = 1",
        "payload_hash = zeroblob(32)",
        "payload_hash = NULL",
        "chain = zeroblob(32)",
        "chain = 7",
    ] {
        let sql = format!("UPDATE records SET {column} WHERE rid = {}", row(3));
        let folder = expect(&sql, 2, Problem::ChainBroken { seq: 3 });
        let refused = read(&folder, Detail::Headers).unwrap_err();
        assert!(
            matches!(
                refused,
                Error::ChainBroken { seq: 3, .. } | Error::RecordDamaged { seq: 3, .. }
            ),
            "{column}: {refused}"
        );
    }
}

#[test]
fn an_edited_content_is_damaged() {
    let other = format!("(SELECT payload FROM records WHERE rid = {})", row(5));
    for change in [
        "payload = zeroblob(40)".to_owned(),
        "payload = substr(payload, 1, length(payload) - 1)".to_owned(),
        "payload = NULL".to_owned(),
        "payload = 'text'".to_owned(),
        // Another record's content, under the same key.
        format!("payload = {other}"),
        "form = 0".to_owned(),
        "form = 2".to_owned(),
    ] {
        let sql = format!("UPDATE records SET {change} WHERE rid = {}", row(3));
        let (folder, _) = written();
        folder.sql(&sql);
        let found = verify(&folder);
        let damaged = matches!(
            found.problem,
            Some(
                Problem::PayloadDamaged { seq: 3 }
                    | Problem::BlobMissing { seq: 3 }
                    | Problem::ChainBroken { seq: 3 }
            )
        );
        assert!(damaged && found.good_to == 2, "{change}: {found:?}");
        assert!(read(&folder, Detail::Full).is_err());
    }
    // Headers are still worth reading.
    let (folder, _) = written();
    folder.sql(&format!("UPDATE records SET payload = zeroblob(40) WHERE rid = {}", row(3)));
    assert_eq!(read(&folder, Detail::Headers).unwrap().len(), 6);
    let damaged = read(&folder, Detail::Full).unwrap_err();
    assert!(matches!(damaged, Error::RecordDamaged { seq: 3, .. }));
}

/// Contents of a long log are checked by another thread: the first bad one is still the one that is
/// named, wherever it lies, and whatever else is wrong behind it.
#[test]
fn the_first_damaged_content_of_many_is_named() {
    let folder = InFolder::new();
    run(async {
        let store: Arc<dyn Store> = Arc::new(folder.store());
        let mut driver = Driver::create(&store, "s").await;
        for _ in 0..3 {
            driver.append((0..500).map(|n| said(format!("{n}"))).collect()).await.unwrap();
        }
        driver.let_go(store);
    });
    let expect = |good_to, problem| {
        let anchored_to = Some(1_502);
        assert_eq!(verify(&folder), Verification { good_to, problem, anchored_to });
    };
    expect(1_502, None);
    let damage = |seq| {
        folder.sql(&format!("UPDATE records SET payload = zeroblob(40) WHERE rid = {}", row(seq)));
    };
    damage(1_502);
    expect(1_501, Some(Problem::PayloadDamaged { seq: 1_502 }));
    folder.sql(&format!("UPDATE records SET ts = ts + 1 WHERE rid = {}", row(1_400)));
    expect(1_399, Some(Problem::ChainBroken { seq: 1_400 }));
    damage(900);
    damage(300);
    expect(299, Some(Problem::PayloadDamaged { seq: 300 }));
}

#[test]
fn a_missing_record_is_a_gap() {
    let sql = format!("DELETE FROM records WHERE rid = {}", row(3));
    let folder = expect(&sql, 2, Problem::Gap { expected: 3, found: 4 });
    let refused = read(&folder, Detail::Headers).unwrap_err();
    assert!(matches!(refused, Error::RecordDamaged { seq: 3, .. }));
    let sql = format!("DELETE FROM records WHERE rid = {}", row(1));
    expect(&sql, 0, Problem::Gap { expected: 1, found: 2 });
}

/// The records are all there: no error says that one is missing, and rebuilding the caches repairs
/// the index.
#[test]
fn a_lost_index_entry_is_not_a_lost_record() {
    for sql in [format!("DELETE FROM places WHERE rid = {}", row(3)), "DELETE FROM spans".into()] {
        let (folder, _) = written();
        run(async {
            let store = folder.store();
            // Behind the open store's back: opening it would mend the second.
            folder.sql(&sql);
            let found = store.verify(&session("s")).await.unwrap();
            let Some(Problem::IndexDisagrees { what: IndexEntry::Record(seq) }) = found.problem
            else {
                panic!("{sql}: {found:?}");
            };
            assert_eq!(found.good_to, seq - 1);
            store.rebuild_caches().await.unwrap();
            assert_eq!(store.verify(&session("s")).await.unwrap().problem, None);
        });
    }
}

#[test]
fn swapped_records_break_the_chain() {
    let sql = format!(
        "UPDATE records SET rid = 1 WHERE rid = {three};
         UPDATE records SET rid = {three} WHERE rid = {five};
         UPDATE records SET rid = {five} WHERE rid = 1;",
        three = row(3),
        five = row(5),
    );
    // The index still leads to where the records were.
    expect(&sql, 2, Problem::IndexDisagrees { what: IndexEntry::Record(3) });
    let index = "UPDATE places SET pos = (SELECT r.pos FROM records r WHERE r.rid = places.rid)";
    expect(&format!("{sql} {index}"), 2, Problem::ChainBroken { seq: 3 });
}

#[test]
fn a_cut_log_ends_behind_its_anchor() {
    for (keep, good_to) in [(4, 4), (2, 2)] {
        let sql = format!("DELETE FROM records WHERE rid > {}", row(keep));
        expect(&sql, good_to, Problem::CutBehindAnchor { anchored: 6, found: keep });
    }
    expect("DELETE FROM records", 0, Problem::CutBehindAnchor { anchored: 6, found: 0 });
    let sql = "DELETE FROM records; DELETE FROM logs; DELETE FROM heads";
    expect(sql, 0, Problem::CutBehindAnchor { anchored: 6, found: 0 });
}

/// A log that was cut is read and verified, and does not grow over what is missing.
#[test]
fn a_cut_log_is_not_written_to() {
    let (folder, mut driver) = written();
    folder.sql(&format!("DELETE FROM records WHERE rid > {}; DELETE FROM places", row(4)));
    run(async {
        let store: Arc<dyn Store> = Arc::new(folder.store());
        let head = store.head(&session("s")).await.unwrap().unwrap();
        assert_eq!(head.last_seq, 4);
        driver.store = Some(store.clone());
        driver.state.last_seq = 4;
        let refused = driver.append(vec![said("on top")]).await.unwrap_err();
        assert!(matches!(refused, Error::ChainBroken { seq: 5, .. }), "{refused:?}");
        assert_eq!(store.read(&session("s"), 0, 100, Detail::Headers).await.unwrap().len(), 4);
        let found = store.verify(&session("s")).await.unwrap();
        assert_eq!(found.problem, Some(Problem::CutBehindAnchor { anchored: 6, found: 4 }));
        driver.let_go(store);
    });
}

/// A cut of exactly one record is noticed, too, before anything is written over it.
#[test]
fn a_log_cut_by_one_record_is_not_written_to() {
    let (folder, mut driver) = written();
    run(async {
        let store: Arc<dyn Store> = Arc::new(folder.store());
        driver.store = Some(store.clone());
        driver.append(vec![said("seven")]).await.unwrap();
        driver.let_go(store);
    });
    let seven = row(7);
    folder.sql(&format!(
        "DELETE FROM records WHERE rid = {seven}; DELETE FROM places WHERE rid = {seven}"
    ));
    run(async {
        let store: Arc<dyn Store> = Arc::new(folder.store());
        assert_eq!(store.head(&session("s")).await.unwrap().unwrap().last_seq, 6);
        driver.store = Some(store.clone());
        driver.state.last_seq = 6;
        let refused = driver.append(vec![said("another seven")]).await.unwrap_err();
        assert!(matches!(refused, Error::ChainBroken { seq: 7, .. }), "{refused:?}");
        let found = store.verify(&session("s")).await.unwrap();
        assert_eq!(found.problem, Some(Problem::CutBehindAnchor { anchored: 7, found: 6 }));
        driver.let_go(store);
    });
}

/// The list of all logs includes one that was removed whole.
#[test]
fn a_log_that_was_taken_away_is_named() {
    let (folder, _) = written();
    folder.sql("DELETE FROM records; DELETE FROM logs; DELETE FROM sessions; DELETE FROM heads");
    run(async {
        let store = folder.store();
        let named = [SessionId::metadata_log(), session("s")];
        assert_eq!(store.logs(None, 10).await.unwrap(), named);
        let found = store.verify(&session("s")).await.unwrap();
        assert_eq!(found.problem, Some(Problem::CutBehindAnchor { anchored: 6, found: 0 }));
    });
}

/// One unreadable row of the index does not hide the others, nor its own session.
#[test]
fn an_unreadable_index_row_is_read_from_the_log() {
    let (folder, _) = written();
    folder.sql("UPDATE sessions SET summary = '{'");
    run(async {
        let all = crate::contract::Select::All;
        let query = Query { task_id: None, select: all, after: None, limit: 10 };
        let page = folder.store().list(query).await.unwrap();
        assert_eq!(page.rows.len(), 1);
        assert_eq!(page.rows[0].summary.info.title.as_deref(), Some("About s"));
    });
}

#[test]
fn a_cut_batch_is_found_without_an_anchor() {
    let (folder, _) = written();
    folder.sql(&format!("DELETE FROM records WHERE rid = {}", row(6)));
    sql_in(&folder.folder.path().join(schema::ANCHORS_FILE), "DELETE FROM anchors");
    let problem = Some(Problem::BatchCut { seq: 5 });
    assert_eq!(verify(&folder), Verification { good_to: 5, problem, anchored_to: None });
}

#[test]
fn an_anchor_of_another_log_does_not_match() {
    let (folder, _) = written();
    let anchors = folder.folder.path().join(schema::ANCHORS_FILE);
    sql_in(&anchors, "UPDATE anchors SET seq = 4, chain = zeroblob(32)");
    let problem = Some(Problem::AnchorMismatch { seq: 4 });
    assert_eq!(verify(&folder), Verification { good_to: 3, problem, anchored_to: Some(4) });
}

#[test]
fn blobs_are_walked() {
    let folder = expect("DELETE FROM blobs", 3, Problem::BlobMissing { seq: 4 });
    let missing = read(&folder, Detail::Full).unwrap_err();
    assert!(matches!(missing, Error::BlobMissing { seq: 4, .. }));
    for change in ["data = zeroblob(100)", "compression = 0", "compression = 9", "bytes = 5"] {
        let sql = format!("UPDATE blobs SET {change}");
        expect(&sql, 3, Problem::PayloadDamaged { seq: 4 });
    }
}

#[test]
fn a_forged_chain_key_proves_nothing() {
    let sql = "UPDATE logs SET chain_key = zeroblob(72)";
    expect(sql, 0, Problem::ChainBroken { seq: 1 });
}

/// A content that is gone needs a record that says so.
#[test]
fn tombstones_must_be_justified() {
    let (folder, mut one) = written();
    folder.sql(&format!("UPDATE records SET form = 3, payload = NULL WHERE rid = {}", row(3)));
    let problem = Some(Problem::TombstoneUnjustified { seq: 3 });
    assert_eq!(verify(&folder), Verification { good_to: 2, problem, anchored_to: Some(6) });
    run(async {
        one.store = Some(Arc::new(folder.store()));
        let redacted = event::RecordRedacted { target_seq: 3, reason: None };
        one.append(vec![of(0, redacted)]).await.unwrap();
        one.store = None;
    });
    assert_eq!(verify(&folder), Verification { good_to: 7, problem: None, anchored_to: Some(7) });
    assert_eq!(read(&folder, Detail::Full).unwrap()[2].content, Content::Redacted);
}
