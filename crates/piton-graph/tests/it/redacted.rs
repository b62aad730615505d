//! What a redaction took out is asked for by name, and never taken for nothing.

use piton_core::event::{RecordRedacted, SessionLeased, SessionReleased};
use piton_core::id::SessionId;
use piton_core::mask::Masker;
use piton_core::{Code, Event, NewRecord, Timestamp};
use piton_graph::{
    Graph, Node, NodeContext, NodeError, Outcome, async_trait, checkpoints, custom, inputs,
};
use piton_store::{Durability, Position, Writer};
use serde_json::{Map, json};
use std::sync::Arc;

use crate::world::{Ran, World, completed};

/// Takes a record's content out, as `sessions redact` does.
async fn redact(world: &World, session: &SessionId, target_seq: u64) {
    let store = world.store.store();
    let loaded = piton_store::load(&**store, session).await.unwrap();
    let mut state = loaded.state;
    let (boot_id, epoch) = (world.store.boot().clone(), state.lease.epoch + 1);
    let (expected, at) = (state.last_seq, Timestamp::from_millis(0));
    let events: [Event; 3] = [
        SessionLeased { boot_id: boot_id.clone(), epoch }.into(),
        RecordRedacted { target_seq, reason: None }.into(),
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

async fn seq_of(world: &World, session: &SessionId, is_meant: impl Fn(&Event) -> bool) -> u64 {
    let records = world.records(session).await;
    records.iter().find(|record| is_meant(&record.event().unwrap())).unwrap().seq
}

fn two(ran: &Ran) -> Graph {
    Graph::builder("two")
        .node("first", piton_graph::set([("name", json!("Ada Lovelace"))]))
        .node("second", custom(ran.needing("ready")).reads(["name", "ready"]))
        .optional_input("ready", piton_graph::ValueType::Boolean)
        .node("third", piton_graph::template("hello {{ name }}").writes(["text"]))
        .edge("first", "second")
        .edge("second", "third")
        .build()
        .unwrap()
}

/// Wants to show: a resume, also of a fork and from a checkpoint before the redaction, refuses to go
/// on without a value that was redacted, and takes another one.
#[tokio::test]
async fn a_redacted_value_is_asked_for() {
    let world = World::new();
    let graph = two(&Ran::default());
    let (session, outcome) = world.start(&graph, &[]).await;
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    let meant = |event: &Event| matches!(event, Event::MemoryChanged(e) if e.key == "name");
    let seq = seq_of(&world, &session, meant).await;
    redact(&world, &session, seq).await;
    let checkpoint = failure.checkpoint.unwrap();
    let forked = checkpoints::fork(&world.store, &session, &checkpoint).await.unwrap();
    for (session, from) in [(&session, None), (&session, Some(&checkpoint)), (&forked, None)] {
        let ready = inputs([("ready", true)]);
        let refused = graph.runner(&world.store).resume(session, from, ready).await.unwrap_err();
        assert_eq!(refused.code(), Code::MemoryValueRequired);
        assert!(refused.to_string().ends_with(": name"), "{refused}");
        assert!(refused.hint().contains("--set name="), "{}", refused.hint());
    }
    let view = checkpoints::view(world.store.store(), &session).await.unwrap();
    assert_eq!(view.excluded_keys, ["name"]);
    let set = [("ready", json!(true)), ("name", json!("A."))];
    let memory = completed(world.resume(&graph, &session, &set).await);
    assert_eq!(memory["text"], json!("hello A."));
}

/// Wants to show: so is a condition's value.
#[tokio::test]
async fn a_redacted_value_of_a_condition_is_asked_for() {
    let world = World::new();
    let graph = Graph::builder("branch")
        .node("first", piton_graph::set([("kind", json!("large"))]))
        .node("second", custom(Ran::default().needing("ready")).reads(["ready"]))
        .optional_input("ready", piton_graph::ValueType::Boolean)
        .node("third", piton_graph::template("large").writes(["text"]))
        .edge("first", "second")
        .edge_if("second", "third", "kind == 'large'")
        .build()
        .unwrap();
    let (session, _) = world.start(&graph, &[]).await;
    let meant = |event: &Event| matches!(event, Event::MemoryChanged(e) if e.key == "kind");
    redact(&world, &session, seq_of(&world, &session, meant).await).await;
    let ready = inputs([("ready", true)]);
    let refused = graph.runner(&world.store).resume(&session, None, ready).await.unwrap_err();
    assert!(refused.to_string().ends_with(": kind"), "{refused}");
}

/// Wants to show: so is an answer that was given and that the node did not take yet.
#[tokio::test]
async fn a_redacted_answer_is_asked_for() {
    let world = World::new();
    let graph = Graph::builder("asking")
        .node("ask", piton_graph::human("Your name?").writes(["name"]))
        .node("use", piton_graph::template("hello {{ name }}").writes(["text"]))
        .edge("ask", "use")
        .build()
        .unwrap();
    let (session, outcome) = world.start(&graph, &[]).await;
    let Outcome::Waiting { waits } = outcome else { panic!("{outcome:?}") };
    let wait = &waits[0].wait_id;
    piton_graph::answer(&world.store, &session, wait, json!("Ada Lovelace")).await.unwrap();
    let meant = |event: &Event| matches!(event, Event::RunResumed(e) if e.wait_id.is_some());
    redact(&world, &session, seq_of(&world, &session, meant).await).await;
    let refused = graph.runner(&world.store).resume(&session, None, Map::new()).await.unwrap_err();
    assert_eq!(refused.code(), Code::MemoryValueRequired);
    assert!(refused.to_string().ends_with(": name"), "{refused}");
    let memory = completed(world.resume(&graph, &session, &[("name", json!("A."))]).await);
    assert_eq!(memory["text"], json!("hello A."));
}

struct Halfway(Ran);

#[async_trait]
impl Node for Halfway {
    async fn run(&self, ctx: &mut NodeContext) -> Result<(), NodeError> {
        if ctx.last_safe_point().is_none() {
            ctx.write("name", "Ada Lovelace")?;
            ctx.safe_point("asked").await?;
            return Err(NodeError::new("cut off"));
        }
        self.0.note(ctx.read::<String>("name")?);
        Ok(())
    }
}

/// Wants to show: so are the writes of a safe point.
#[tokio::test]
async fn redacted_writes_of_a_safe_point_are_asked_for() {
    let world = World::new();
    let ran = Ran::default();
    let graph = Graph::builder("half")
        .node("half", custom(Halfway(ran.clone())).writes(["name"]))
        .build()
        .unwrap();
    let (session, _) = world.start(&graph, &[]).await;
    let meant = |event: &Event| matches!(event, Event::NodeSafePoint(_));
    redact(&world, &session, seq_of(&world, &session, meant).await).await;
    let refused = graph.runner(&world.store).resume(&session, None, Map::new()).await.unwrap_err();
    assert_eq!(refused.code(), Code::MemoryValueRequired);
    assert!(refused.to_string().ends_with(": name"), "{refused}");
    completed(world.resume(&graph, &session, &[("name", json!("A."))]).await);
    assert_eq!(ran.all(), ["A."]);
}
