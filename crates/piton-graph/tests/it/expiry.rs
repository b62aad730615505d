//! Waits whose time passes: the node fails, not the run, whichever process runs the graph, and whenever.

use std::fmt::Write as _;
use std::time::Duration;

use piton_core::id::SessionId;
use piton_core::{Code, Event};
use piton_graph::{Graph, Outcome, checkpoints};
use serde_json::json;

use crate::world::{World, completed};

/// A person has two seconds; behind the question there is an edge for an answer and, perhaps, one for none.
fn asking(on_error: bool) -> Graph {
    let edge = if on_error { "  - {from: ask, to: escalate, on: error}\n" } else { "" };
    let escalate = if on_error { "  escalate: {template: nobody, writes: result}\n" } else { "" };
    Graph::from_text(&format!(
        "piton: graph/v1\nname: asking\nmemory: {{result: {{reducer: replace}}}}\nnodes:\n  \
         ask: {{human: {{question: \"Well?\", deadline: 2s}}, writes: answer}}\n  \
         use: {{template: \"{{{{ answer }}}}\", writes: result}}\n{escalate}edges:\n  - ask -> use\n{edge}"
    ))
    .unwrap()
}

/// Until the deadline of the session's wait has passed.
async fn passed(world: &World, session: &SessionId) {
    let state = piton_store::load(&**world.store.store(), session).await.unwrap().state;
    let deadline = state.facts.deadline_at().unwrap().as_millis();
    let now = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        i64::try_from(since.as_millis()).unwrap()
    };
    while now() < deadline {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn count(world: &World, session: &SessionId, is_meant: fn(&Event) -> bool) -> usize {
    world.events(session).await.iter().filter(|event| is_meant(event)).count()
}

/// The session of a run that waits, and whose wait's time has passed.
async fn left_waiting(world: &World, graph: &Graph) -> SessionId {
    let (session, outcome) = world.start(graph, &[]).await;
    let Outcome::Waiting { waits } = outcome else { panic!("{outcome:?}") };
    assert!(waits[0].deadline_at.is_some());
    passed(world, &session).await;
    session
}

/// Wants to show: a resume after the deadline fails the node and does not ask again; one after that
/// failure does.
#[tokio::test]
async fn a_resume_after_the_deadline_fails_the_node() {
    let world = World::new();
    let graph = asking(false);
    let session = left_waiting(&world, &graph).await;
    let world = world.reopened();
    let Outcome::Failed(failure) = world.resume(&graph, &session, &[]).await else { panic!() };
    assert_eq!((failure.node.as_str(), failure.code), ("ask", Code::WaitExpired.into()));
    assert_eq!(count(&world, &session, |event| matches!(event, Event::TokenMinted(_))).await, 1);
    let outcome = world.resume(&graph, &session, &[]).await;
    let Outcome::Waiting { waits } = outcome else { panic!("it asks again: {outcome:?}") };
    let wait = &waits[0].wait_id;
    piton_graph::answer(&world.store, &session, wait, json!("yes")).await.unwrap();
    let memory = completed(world.resume(&graph, &session, &[]).await);
    assert_eq!(memory["result"], json!("yes"));
}

/// Wants to show: `on: error` leads on from a wait whose time passed.
#[tokio::test]
async fn an_error_edge_leads_on_from_a_wait_that_nobody_answered() {
    let world = World::new();
    let graph = asking(true);
    let session = left_waiting(&world, &graph).await;
    let world = world.reopened();
    let memory = completed(world.resume(&graph, &session, &[]).await);
    assert_eq!(memory["result"], json!("nobody"));
}

/// Wants to show: an expiry that is in the log, and whose node did not fail yet, is not asked again
/// either: that is what a sweep leaves behind.
#[tokio::test]
async fn a_recorded_expiry_is_not_asked_again() {
    let world = World::new();
    let graph = asking(true);
    let session = left_waiting(&world, &graph).await;
    // The resume records the expiry when it begins, and nothing runs before it is finished.
    let run = graph
        .runner(&world.store)
        .resume(&session, None, serde_json::Map::default())
        .await
        .unwrap();
    drop(run);
    assert_eq!(count(&world, &session, |event| matches!(event, Event::WaitCancelled(_))).await, 1);
    let world = world.reopened();
    let memory = completed(world.resume(&graph, &session, &[]).await);
    assert_eq!(memory["result"], json!("nobody"));
    assert_eq!(count(&world, &session, |event| matches!(event, Event::RunWaiting(_))).await, 1);
    assert_eq!(count(&world, &session, |event| matches!(event, Event::TokenMinted(_))).await, 1);
}

/// Wants to show: the checkpoint before an open wait survives pruning in a run that did not ask
/// itself, but resumed.
#[tokio::test]
async fn an_open_wait_keeps_its_checkpoint_after_a_resume() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let mut nodes = String::new();
    let mut edges = String::from("  - gate -> n0\n");
    for n in 0..12 {
        writeln!(nodes, "  n{n}: {{set: {{k{n}: 1}}}}").unwrap();
        if n > 0 {
            writeln!(edges, "  - n{} -> n{n}", n - 1).unwrap();
        }
    }
    let text = format!(
        "piton: graph/v1\nname: keep\ncheckpoint: {{max_checkpoints_per_session: 2, prune_after_node_count: 1}}\n\
         nodes:\n  ask: {{human: {{question: \"Well?\"}}, writes: answer}}\n  \
         gate: {{command: [sh, -c, \"test -e {}\"]}}\n{nodes}edges:\n{edges}",
        go.display()
    );
    let graph = Graph::from_text(&text).unwrap();
    let (session, outcome) = world.start(&graph, &[]).await;
    let before = match outcome {
        // The gate failed while the question was open.
        Outcome::Failed(failure) => failure.node,
        other => panic!("{other:?}"),
    };
    assert_eq!(before, "gate");
    let (session, world) = {
        // Again, until it stands waiting with nothing else open.
        std::fs::write(&go, "").unwrap();
        let world = world.reopened();
        let outcome = world.resume(&graph, &session, &[]).await;
        assert!(matches!(outcome, Outcome::Waiting { .. }), "{outcome:?}");
        (session, world.reopened())
    };
    let user = || async {
        let filter = piton_graph::CheckpointFilter {
            checkpoint_type: Some(piton_graph::CheckpointType::UserCheckpoint),
            ..Default::default()
        };
        checkpoints::list(world.store.store(), &session, &filter, 10).await.unwrap().checkpoints
    };
    let kept = user().await;
    assert_eq!(kept.len(), 1, "the completions pruned, and not this one");
    checkpoints::prune(&world.store, &session, 0, false).await.unwrap();
    assert_eq!(user().await, kept);
    let refused = checkpoints::delete(&world.store, &session, &kept[0].checkpoint_id).await;
    assert_eq!(refused.unwrap_err().code(), Code::CheckpointInUse);
}
