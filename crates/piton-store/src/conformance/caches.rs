//! The log is the truth: caches can go.

use piton_core::event;

use super::{Driver, Harness, of, released, said};
use crate::contract::{Query, Select, Store, Verification};
use crate::load::load;

/// Everything that is answered from caches.
async fn answers(store: &dyn Store, drivers: &[&Driver]) -> Vec<String> {
    let mut answers = Vec::new();
    for driver in drivers {
        answers.push(format!("{:?}", store.head(&driver.session).await.unwrap()));
        answers.push(format!("{:?}", load(store, &driver.session).await.unwrap().state));
    }
    for select in [Select::All, Select::Unclosed, Select::NeedsRecovery] {
        let query = Query { task_id: None, select, after: None, limit: 100 };
        answers.push(format!("{:?}", store.list(query).await.unwrap()));
    }
    for token in ["rt_1", "rt_2"] {
        answers.push(format!("{:?}", store.token(&token.parse().unwrap()).await.unwrap()));
    }
    answers
}

fn minted(id: &str) -> piton_core::NewRecord {
    let event = event::TokenMinted {
        token_id: id.parse().unwrap(),
        run_id: "run_1".parse().unwrap(),
        purpose: event::TokenPurpose::Interruption,
        wait_id: None,
        wait_kind: None,
        hash: "00".repeat(32),
        expires_at: None,
    };
    of(1, event)
}

pub async fn rebuilding_changes_no_answer(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create_with(&store, "s", Some("task_1"), 10).await;
    let mut other = Driver::create_with(&store, "t", None, 20).await;
    let run_id: piton_core::id::RunId = "run_1".parse().unwrap();
    let started =
        event::RunStarted { run_id: run_id.clone(), boot_id: one.boot.clone(), message_id: None };
    one.append(vec![of(30, started), minted("rt_1"), minted("rt_2")]).await.unwrap();
    let revoked = event::TokenRevoked {
        token_id: "rt_2".parse().unwrap(),
        reason: piton_core::Reason::Rotated,
    };
    one.append(vec![of(31, revoked)]).await.unwrap();
    let release = released(&other.boot, 1);
    other.append(vec![said("x"), release]).await.unwrap();
    let before = answers(&*store, &[&one, &other]).await;
    store.rebuild_caches().await.unwrap();
    assert_eq!(answers(&*store, &[&one, &other]).await, before);
    // Appends still work, and the caches show them.
    one.append(vec![of(40, event::RunCompleted { run_id, stop_reason: None, truncated: false })])
        .await
        .unwrap();
    let after = answers(&*store, &[&one, &other]).await;
    assert_ne!(after, before);
    other.store = None;
    let store = harness.reopen(one.let_go(store)).await;
    assert_eq!(answers(&*store, &[&one, &other]).await, after);
    store.rebuild_caches().await.unwrap();
    assert_eq!(answers(&*store, &[&one, &other]).await, after);
}

pub async fn a_sound_log_verifies(harness: &dyn Harness) {
    let store = harness.open().await;
    let mut one = Driver::create(&store, "s").await;
    one.append(vec![said("x"), said("y".repeat(50_000))]).await.unwrap();
    let sound = |found: Verification| {
        assert_eq!((found.good_to, &found.problem), (4, &None), "{found:?}");
        assert!(found.anchored_to.is_none_or(|seq| seq <= 4));
    };
    sound(store.verify(&one.session).await.unwrap());
    let store = harness.reopen(one.let_go(store)).await;
    sound(store.verify(&one.session).await.unwrap());
}
