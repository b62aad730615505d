//! The graphs in `examples/graphs` do what their comments say.

use std::path::Path;

use piton_graph::{Graph, Outcome, answer};
use serde_json::json;

use crate::world::{World, completed};

fn example(name: &str) -> Graph {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/graphs");
    Graph::from_file(folder.join(name)).unwrap()
}

#[tokio::test]
async fn pipeline() {
    let world = World::new();
    let (_, outcome) = world.start(&example("pipeline.yaml"), &[("text", json!("one two"))]).await;
    assert_eq!(completed(outcome)["result"], json!("Fine: 2 words"));
    let long = json!("word ".repeat(101));
    let (_, outcome) = world.start(&example("pipeline.yaml"), &[("text", long)]).await;
    assert!(completed(outcome)["result"].as_str().unwrap().starts_with("Too long"));
}

#[tokio::test]
async fn map() {
    let world = World::new();
    let given = [("folders", json!(["src", "tests"])), ("files", json!(["Cargo.toml"]))];
    let (_, outcome) = world.start(&example("map.yaml"), &given).await;
    assert_eq!(completed(outcome)["report"], json!("3 measured"));
}

#[tokio::test]
async fn approval() {
    let world = World::new();
    let graph = example("approval.yaml");
    let (session, mut outcome) = world.start(&graph, &[("topic", json!("pitons"))]).await;
    for said in ["revise", "send"] {
        let Outcome::Waiting { waits } = outcome else { panic!("{outcome:?}") };
        answer(&world.store, &session, &waits[0].wait_id, json!(said)).await.unwrap();
        outcome = world.resume(&graph, &session, &[]).await;
    }
    assert_eq!(completed(outcome)["result"], json!("Sent: A text about pitons"));
}

#[tokio::test]
async fn credential() {
    let world = World::new();
    let graph = example("credential.yaml");
    let (session, outcome) = world.start(&graph, &[]).await;
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!((failure.node.as_str(), failure.error.contains("api_key is not set")), ("n9", true));
    completed(world.resume(&graph, &session, &[("api_key", json!("sk-0123456789"))]).await);
    let view = piton_graph::checkpoints::view(world.store.store(), &session).await.unwrap();
    // The log has the graph, too, though one of its inputs is called like a secret.
    let recorded = Graph::recorded(world.store.store(), &session).await.unwrap();
    assert_eq!((recorded.spec(), recorded.hash()), (graph.spec(), graph.hash()));
    let same = Graph::of_session(world.store.store(), &session).await.unwrap();
    assert_eq!(same.file(), graph.file());
    assert_eq!(view.execution_path, ["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"]);
}
