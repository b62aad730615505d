//! The session index and the token index.

use std::collections::BTreeSet;
use std::sync::Arc;

use piton_core::event::{self, Outcome, TokenPurpose, WaitKind};
use piton_core::id::SessionId;
use piton_core::token;

use super::{Driver, Harness, at, of, piece, said_at};
use crate::contract::{Batch, Durability, Guard, Page, Query, Row, Select, Store};
use crate::writer::WritableRecords;

fn query(select: Select) -> Query {
    Query { task_id: None, select, after: None, limit: 1_000 }
}

async fn names(store: &dyn Store, query: Query) -> Vec<String> {
    let page = store.list(query).await.unwrap();
    assert_eq!(page.next, None);
    page.rows.iter().map(|row| row.session.to_string()).collect()
}

fn started(run: &str, millis: i64) -> piton_core::NewRecord {
    let boot_id = "boot_1".parse().unwrap();
    of(millis, event::RunStarted { run_id: run.parse().unwrap(), boot_id, message_id: None })
}

fn waiting(run: &str, millis: i64, deadline: i64) -> piton_core::NewRecord {
    let event = event::RunWaiting {
        run_id: run.parse().unwrap(),
        wait_id: Some("wait_1".parse().unwrap()),
        wait_kind: WaitKind::Input,
        resume_token_id: None,
        deadline_at: Some(at(deadline)),
        reject_options: Vec::new(),
    };
    of(millis, event)
}

fn closed(millis: i64) -> piton_core::NewRecord {
    of(millis, event::SessionClosed { outcome: Outcome::Completed, reason: None })
}

pub async fn all_are_listed_last_active_first(harness: &dyn Harness) {
    let store = harness.open().await;
    assert_eq!(names(&*store, query(Select::All)).await, [""; 0]);
    let mut a = Driver::create_with(&store, "a", None, 10).await;
    let mut b = Driver::create_with(&store, "b", None, 20).await;
    Driver::create_with(&store, "c", None, 30).await;
    assert_eq!(names(&*store, query(Select::All)).await, ["c", "b", "a"]);
    a.append(vec![said_at(40, "x")]).await.unwrap();
    // A piece of a stream is no activity that a list shows.
    b.append(vec![piece(0, "x")]).await.unwrap();
    assert_eq!(names(&*store, query(Select::All)).await, ["a", "c", "b"]);
}

pub async fn filters_select(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut open = Driver::create_with(&store, "open", Some("task_1"), 10).await;
    let mut shut = Driver::create_with(&store, "shut", Some("task_1"), 20).await;
    Driver::create_with(&store, "idle", Some("task_2"), 30).await;
    Driver::create_with(&store, "free", None, 40).await;
    open.append(vec![started("run_1", 50)]).await.unwrap();
    shut.append(vec![started("run_2", 60), closed(61)]).await.unwrap();
    assert_eq!(names(&*store, query(Select::Unclosed)).await, ["open", "free", "idle"]);
    assert_eq!(names(&*store, query(Select::NeedsRecovery)).await, ["open"]);
    let of_task =
        |task: &str, select| Query { task_id: Some(task.parse().unwrap()), ..query(select) };
    assert_eq!(names(&*store, of_task("task_1", Select::All)).await, ["shut", "open"]);
    assert_eq!(names(&*store, of_task("task_1", Select::Unclosed)).await, ["open"]);
    assert_eq!(names(&*store, of_task("task_2", Select::NeedsRecovery)).await, [""; 0]);
    assert_eq!(names(&*store, of_task("task_3", Select::All)).await, [""; 0]);
    let run_id = "run_1".parse().unwrap();
    open.append(vec![of(70, event::RunCompleted { run_id, stop_reason: None, truncated: false })])
        .await
        .unwrap();
    assert_eq!(names(&*store, query(Select::NeedsRecovery)).await, [""; 0]);
}

/// Follows a query's pages to their end.
async fn pages(store: &dyn Store, mut query: Query) -> Vec<Row> {
    let mut rows = Vec::new();
    loop {
        let Page { rows: page, next } = store.list(query.clone()).await.unwrap();
        assert!(page.len() <= query.limit);
        rows.extend(page);
        match next {
            None => return rows,
            next => query.after = next,
        }
        assert!(rows.len() < 1_000, "the pages do not end");
    }
}

/// Many sessions share a timestamp; each page still begins exactly where the last one ended.
pub async fn pages_with_ties_are_complete(harness: &dyn Harness) {
    let store = harness.open().await;
    for i in 0..40 {
        let mut one = Driver::create_with(&store, &format!("s{i}"), None, i / 15).await;
        one.append(vec![started("run_1", i / 15), waiting("run_1", i / 15, 100 + i / 13)])
            .await
            .unwrap();
    }
    for select in [Select::All, Select::Unclosed, Select::NeedsRecovery, Select::DueBy(at(1_000))] {
        let whole = store.list(query(select)).await.unwrap().rows;
        assert_eq!(whole.len(), 40);
        let distinct: BTreeSet<_> = whole.iter().map(|row| &row.session).collect();
        assert_eq!(distinct.len(), 40);
        let key = |row: &Row| match select {
            Select::DueBy(_) => row.summary.facts.deadline_at().unwrap().as_millis(),
            _ => -row.summary.info.active_at.as_millis(),
        };
        assert!(whole.is_sorted_by_key(key));
        for limit in [1, 3, 7, 39, 40, 41] {
            let rows = pages(&*store, Query { limit, ..query(select) }).await;
            assert_eq!(rows, whole, "{select:?} by {limit}");
        }
    }
}

pub async fn deadlines_are_listed_earliest_first(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut drivers = Vec::new();
    for (name, deadline) in [("late", 300), ("early", 100), ("mid", 200)] {
        let mut one = Driver::create(&store, name).await;
        one.append(vec![started("run_1", 1), waiting("run_1", 2, deadline)]).await.unwrap();
        drivers.push(one);
    }
    Driver::create(&store, "none").await;
    let due = |millis| query(Select::DueBy(at(millis)));
    assert_eq!(names(&*store, due(99)).await, [""; 0]);
    assert_eq!(names(&*store, due(200)).await, ["early", "mid"]);
    assert_eq!(names(&*store, due(1_000)).await, ["early", "mid", "late"]);
    let run_id = "run_1".parse().unwrap();
    drivers[1]
        .append(vec![of(5, event::RunCompleted { run_id, stop_reason: None, truncated: false })])
        .await
        .unwrap();
    assert_eq!(names(&*store, due(1_000)).await, ["mid", "late"]);
}

pub async fn rows_follow_their_sessions(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    let row = |store: Arc<dyn Store>| async move {
        store.list(query(Select::All)).await.unwrap().rows.pop().unwrap()
    };
    let expect = |one: &Driver| Row {
        session: one.session.clone(),
        last_seq: one.state.last_seq,
        lease: one.state.lease.clone(),
        summary: one.state.summary().unwrap(),
    };
    assert_eq!(row(store.clone()).await, expect(&one));
    one.append(vec![started("run_1", 5)]).await.unwrap();
    assert_eq!(row(store.clone()).await, expect(&one));
    one.append(vec![piece(0, "x"), piece(1, "y")]).await.unwrap();
    assert_eq!(row(store.clone()).await, expect(&one));
    let released = super::released(&one.boot, 1);
    one.append(vec![released]).await.unwrap();
    let store = harness.reopen(one.let_go(store)).await;
    assert_eq!(row(store.clone()).await, expect(&one));
}

fn minted(id: &str) -> piton_core::NewRecord {
    let event = event::TokenMinted {
        token_id: id.parse().unwrap(),
        run_id: "run_1".parse().unwrap(),
        purpose: TokenPurpose::Wait,
        wait_id: Some("wait_1".parse().unwrap()),
        wait_kind: Some(WaitKind::Input),
        hash: "00".repeat(32),
        expires_at: Some(at(500)),
    };
    of(1, event)
}

pub async fn tokens_are_found(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    let mut other = Driver::create(&store, "t").await;
    one.append(vec![started("run_1", 1), minted("rt_1"), minted("rt_2")]).await.unwrap();
    other.append(vec![minted("rt_3")]).await.unwrap();
    let consumed = event::TokenConsumed {
        token_id: "rt_1".parse().unwrap(),
        run_id: "run_1".parse().unwrap(),
        answer_digest: "digest".into(),
        result_seq: 6,
    };
    let expired = event::TokenExpired { token_id: "rt_2".parse().unwrap() };
    one.append(vec![of(2, consumed), of(3, expired)]).await.unwrap();
    // The first end counts.
    let revoked = event::TokenRevoked {
        token_id: "rt_1".parse().unwrap(),
        reason: piton_core::Reason::Rotated,
    };
    one.append(vec![of(4, revoked)]).await.unwrap();
    let (one, store) = (one.session.clone(), {
        other.store = None;
        drop(one);
        harness.reopen(store).await
    });
    let consumed = token::State::Consumed { answer_digest: "digest".into(), result_seq: 6 };
    let expected: [(&str, &SessionId, u64, token::State); 3] = [
        ("rt_1", &one, 4, consumed),
        ("rt_2", &one, 5, token::State::Expired),
        ("rt_3", &other.session, 3, token::State::Active),
    ];
    for (id, session, minted_seq, state) in expected {
        let (owner, entry) = store.token(&id.parse().unwrap()).await.unwrap().unwrap();
        assert_eq!((&owner, entry.minted_seq, entry.state), (session, minted_seq, state), "{id}");
    }
}

/// Every log is named, in order, whatever the index says; each page begins where the last ended.
pub async fn all_logs_are_named(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut names = Vec::new();
    for number in 0..25 {
        let name = format!("sess_{number:02}");
        let driver = Driver::create(&store, &name).await;
        names.push(driver.session.clone());
    }
    let task = event::TaskCreated { task_id: "task_1".parse().unwrap(), title: "t".into() };
    let metadata = SessionId::metadata_log();
    let head = store.head(&metadata).await.unwrap();
    store
        .append(Batch {
            session: metadata.clone(),
            expected: head.map_or(0, |head| head.last_seq),
            guard: Guard::Shared,
            records: WritableRecords::verbatim(vec![of(0, task)]),
            durability: Durability::Synced,
            summary: None,
        })
        .await
        .unwrap();
    names.push(metadata);
    names.sort();
    let mut found: Vec<SessionId> = Vec::new();
    loop {
        let page = store.logs(found.last(), 7).await.unwrap();
        assert!(page.len() <= 7);
        if page.is_empty() {
            break;
        }
        found.extend(page);
    }
    assert_eq!(found, names);
}
