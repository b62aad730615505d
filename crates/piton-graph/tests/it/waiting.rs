//! Waits for people: durable, answered once, over restarts.

use std::sync::Arc;
use std::time::Duration;

use piton_core::{Code, Event};
use piton_graph::{
    Graph, Node, NodeContext, NodeError, Outcome, async_trait, checkpoints, custom, human, template,
};
use piton_store::Store;
use serde_json::json;

use crate::world::{Ran, World, completed};

fn approval() -> Graph {
    Graph::from_text(
        "piton: graph/v1\nname: approval\nnodes:\n  draft: {template: text, writes: draft}\n  approve:\n    human: {question: \"Send {{ draft }}?\", options: [send, revise], deadline: 7d}\n    writes: decision\n  send: {template: \"sent {{ draft }}\", writes: result}\n  drop: {template: dropped, writes: result}\nmemory: {result: {reducer: replace}}\nedges:\n  - draft -> approve\n  - {from: approve, to: send, when: \"decision == 'send'\"}\n  - {from: approve, to: drop, when: \"decision == 'revise'\"}\n",
    )
    .unwrap()
}

#[tokio::test]
async fn a_wait_outlives_the_process_and_its_answer_continues_the_run() {
    let world = World::new();
    let (session, outcome) = world.start(&approval(), &[]).await;
    let Outcome::Waiting { waits } = outcome else { panic!("{outcome:?}") };
    assert_eq!(waits[0].node, "approve");
    let world = world.reopened();
    let facts = piton_store::load(&**world.store.store(), &session).await.unwrap().state.facts;
    let boot = facts.run.as_ref().unwrap().boot_id.clone();
    let status = piton_core::status::derive(&facts, &[boot].into(), now());
    assert_eq!(status.name.as_str(), "waiting", "no process is needed for a wait");
    // There is no answer yet: it waits on, and does not ask again.
    let outcome = world.resume(&approval(), &session, &[]).await;
    assert_eq!(outcome, Outcome::Waiting { waits: waits.clone() });
    let wait = &waits[0].wait_id;
    let wrong = piton_graph::answer(&world.store, &session, wait, json!("perhaps")).await;
    assert_eq!(wrong.unwrap_err().code(), Code::AnswerInvalid);
    piton_graph::answer(&world.store, &session, wait, json!("send")).await.unwrap();
    let twice = piton_graph::answer(&world.store, &session, wait, json!("revise")).await;
    assert_eq!(twice.unwrap_err().code(), Code::WaitNotFound);
    let world = world.reopened();
    let memory = completed(world.resume(&approval(), &session, &[]).await);
    assert_eq!((&memory["decision"], &memory["result"]), (&json!("send"), &json!("sent text")));
    let asked = world.events(&session).await;
    let asked = asked.iter().filter(|event| matches!(event, Event::TokenMinted(_)));
    assert_eq!(asked.count(), 2, "one for the question, one for the answer");
    let filter = piton_graph::CheckpointFilter {
        checkpoint_type: Some(piton_graph::CheckpointType::UserCheckpoint),
        ..Default::default()
    };
    let listed = checkpoints::list(world.store.store(), &session, &filter, 10).await.unwrap();
    assert_eq!(listed.checkpoints.len(), 1);
    assert!(listed.checkpoints[0].is_clean, "to wait is no retry");
}

fn now() -> piton_core::Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    piton_core::Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap())
}

/// Wants to show: a wait whose time passes while the run is alive fails its node. The other node ends when
/// that is in the log, so that the run is certainly alive until then.
#[tokio::test]
async fn a_deadline_that_passes_fails_the_node() {
    let world = World::new();
    let id: piton_core::id::SessionId = "sess_late".parse().unwrap();
    let until = UntilFailed { store: Arc::clone(world.store.store()), session: id.clone() };
    let graph = Graph::builder("late")
        .node("ask", human("Well?").deadline(Duration::from_millis(50)).writes(["answer"]))
        .node("work", custom(until))
        .build()
        .unwrap();
    let run =
        graph.runner(&world.store).session(id).start(serde_json::Map::default()).await.unwrap();
    let outcome = run.finish().await.unwrap();
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!((failure.node.as_str(), failure.code), ("ask", Code::WaitExpired.into()));
}

struct UntilFailed {
    store: Arc<dyn Store>,
    session: piton_core::id::SessionId,
}

#[async_trait]
impl Node for UntilFailed {
    async fn run(&self, _ctx: &mut NodeContext) -> Result<(), NodeError> {
        let mut tail = piton_store::Tail::new(Arc::clone(&self.store), self.session.clone(), 0);
        loop {
            let records = tail.next().await.unwrap();
            if records.iter().any(|record| &*record.kind == "node.failed") {
                return Ok(());
            }
        }
    }
}

struct AsksInTheMiddle(Ran);

#[async_trait]
impl Node for AsksInTheMiddle {
    async fn run(&self, ctx: &mut NodeContext) -> Result<(), NodeError> {
        self.0.note(ctx.last_safe_point().unwrap_or("nothing").to_owned());
        if ctx.last_safe_point().is_none() {
            ctx.write("receipt", "r-1")?;
            ctx.safe_point("paid").await?;
        }
        let answer = ctx.wait_for("Ship it?", &[], None).await?;
        ctx.write("answer", answer)
    }
}

/// Wants to show: a node that runs again sees its last safe point with what it had written, and the
/// answer that was given.
#[tokio::test]
async fn a_node_continues_behind_its_safe_point() {
    let world = World::new();
    let ran = Ran::default();
    let graph = Graph::builder("middle")
        .node("pay", custom(AsksInTheMiddle(ran.clone())).writes(["receipt", "answer"]))
        .node("end", template("{{ receipt }} {{ answer.text }}").writes(["all"]))
        .edge("pay", "end")
        .build()
        .unwrap();
    let (session, outcome) = world.start(&graph, &[]).await;
    let Outcome::Waiting { waits } = outcome else { panic!("{outcome:?}") };
    let answer = json!({"text": "yes"});
    piton_graph::answer(&world.store, &session, &waits[0].wait_id, answer).await.unwrap();
    let world = world.reopened();
    let memory = completed(world.resume(&graph, &session, &[]).await);
    assert_eq!(memory["all"], json!("r-1 yes"));
    assert_eq!(ran.all(), ["nothing", "paid"]);
}
