//! What a resume has no right to: a session that is closed, and checkpoints of other sessions.

use std::sync::Arc;

use piton_core::event::{SessionClosed, SessionLeased, SessionReleased};
use piton_core::id::SessionId;
use piton_core::mask::Masker;
use piton_core::{Code, Event, NewRecord, Timestamp};
use piton_graph::{Graph, ValueType, checkpoints, custom, inputs, set};
use piton_store::{Durability, Position, Writer};
use serde_json::json;

use crate::world::{Ran, World, completed};

fn graph(ran: &Ran) -> Graph {
    Graph::builder("closed")
        .optional_input("go", ValueType::Boolean)
        .node("a", set([("x", json!(1))]))
        .node("b", custom(ran.needing("go")).reads(["go"]))
        .edge("a", "b")
        .build()
        .unwrap()
}

/// Ends a session, as `sessions close` does.
async fn close(world: &World, session: &SessionId) {
    let store = world.store.store();
    let mut state = piton_store::load(&**store, session).await.unwrap().state;
    let (boot_id, epoch) = (world.store.boot().clone(), state.lease.epoch + 1);
    let (expected, at) = (state.last_seq, Timestamp::from_millis(0));
    let closed: SessionClosed = serde_json::from_value(json!({"outcome": "failed"})).unwrap();
    let events: [Event; 3] = [
        SessionLeased { boot_id: boot_id.clone(), epoch }.into(),
        closed.into(),
        SessionReleased { boot_id: boot_id.clone(), epoch }.into(),
    ];
    for (seq, event) in (expected + 1..).zip(&events) {
        state.apply(seq, at, event);
    }
    let records: Vec<_> = events.into_iter().map(|event| NewRecord::new(at, event)).collect();
    let writer = Writer::new(Arc::clone(store), boot_id, Arc::new(Masker::default()));
    let records = writer.mask(session, expected, records).unwrap().records;
    let position = Position { expected, epoch: epoch - 1 };
    writer.append(session, position, records, Durability::Synced, state.summary()).await.unwrap();
}

/// Wants to show: a closed session is not resumed; a fork of it is, and the closed one stays as it is.
#[tokio::test]
async fn a_closed_session_can_only_be_forked() {
    let world = World::new();
    let ran = Ran::default();
    let (session, _) = world.start(&graph(&ran), &[]).await;
    close(&world, &session).await;
    let listed = world.checkpoints(&session).await;
    let newest = &listed[0].checkpoint_id;
    for checkpoint in [None, Some(newest)] {
        let go = inputs([("go", true)]);
        let refused = graph(&ran).runner(&world.store).resume(&session, checkpoint, go).await;
        assert_eq!(refused.unwrap_err().code(), Code::SessionClosed);
    }
    let before = world.records(&session).await.len();
    let forked = checkpoints::fork(&world.store, &session, newest).await.unwrap();
    completed(world.resume(&graph(&ran), &forked, &[("go", json!(true))]).await);
    assert_eq!(world.records(&session).await.len(), before);
}

/// Wants to show: a checkpoint of another session is none of this one's, for everything that takes one.
#[tokio::test]
async fn a_checkpoint_of_another_session_is_not_found() {
    let world = World::new();
    let ran = Ran::default();
    let (session, _) = world.start(&graph(&ran), &[]).await;
    let (other, _) = world.start(&graph(&ran), &[]).await;
    let theirs = world.checkpoints(&other).await[0].checkpoint_id.clone();
    let store = world.store.store();
    let go = inputs([("go", true)]);
    let resumed = graph(&ran).runner(&world.store).resume(&session, Some(&theirs), go).await;
    assert_eq!(resumed.unwrap_err().code(), Code::CheckpointNotFound);
    let forked = checkpoints::fork(&world.store, &session, &theirs).await;
    assert_eq!(forked.unwrap_err().code(), Code::CheckpointNotFound);
    let loaded = checkpoints::load(store, &session, Some(&theirs)).await;
    assert_eq!(loaded.unwrap_err().code(), Code::CheckpointNotFound);
    let found = checkpoints::find(store, &session, theirs.as_str()).await;
    assert_eq!(found.unwrap_err().code(), Code::CheckpointNotFound);
    assert!(!checkpoints::delete(&world.store, &session, &theirs).await.unwrap());
    let compared = checkpoints::diff(store, &session, &theirs, None).await;
    assert_eq!(compared.unwrap_err().code(), Code::CheckpointNotFound);
    assert_eq!(world.checkpoints(&other).await[0].checkpoint_id, theirs, "it is there as it was");
}
