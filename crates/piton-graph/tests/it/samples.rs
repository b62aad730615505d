//! The samples of the documentation: every block of Rust stands in this file, so it compiles; every
//! block of YAML is a graph, a part of one, or checkpoint options.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use piton_core::id::{CheckpointId, SessionId};
use piton_graph::{
    CheckpointFilter, CheckpointPolicy, Graph, GraphStore, Node, NodeContext, NodeError, Outcome,
    PolicyContext, ValueType, answer, async_trait, checkpoints, custom, inputs, set,
};
use serde_json::json;

struct Publish;

#[async_trait]
impl Node for Publish {
    async fn run(&self, ctx: &mut NodeContext) -> Result<(), NodeError> {
        ctx.write("receipt", "1")
    }
}

#[expect(dead_code, reason = "guides/graphs.md: it has to compile")]
async fn first_graph() -> piton_graph::Result<()> {
    let graph = Graph::builder("credential")
        .optional_input("api_key", ValueType::String)
        .node("collect", set([("found", json!([1, 2, 3]))]))
        .node("publish", custom(Publish).reads(["found", "api_key"]).writes(["receipt"]))
        .edge("collect", "publish")
        .build()?; // finds every mistake that can be found before the graph runs
    let store = piton_graph::open("data")?;
    let run = graph.runner(&store).start(inputs::<&str, &str>([])).await?;
    let session = run.session().clone();
    match run.finish().await? {
        Outcome::Completed(finished) => println!("receipt: {}", finished.memory["receipt"]),
        Outcome::Failed(failure) => {
            println!("{} failed: {}", failure.node, failure.error);
            let key = inputs([("api_key", "sk-0123456789")]);
            graph.runner(&store).resume(&session, None, key).await?.finish().await?;
        }
        Outcome::Waiting { waits } => {
            answer(&store, &session, &waits[0].wait_id, json!("yes")).await?; // then resume
        }
        Outcome::Paused | Outcome::Cancelled => println!("{session} can be resumed"),
    }
    Ok(())
}

#[expect(dead_code, unused_variables, reason = "guides/graphs.md: it has to compile")]
async fn using_checkpoints(
    graph: Graph,
    store: GraphStore,
    session: SessionId,
    id: CheckpointId,
) -> piton_graph::Result<()> {
    let list =
        checkpoints::list(store.store(), &session, &CheckpointFilter::default(), 100).await?;
    let shown = checkpoints::load(store.store(), &session, Some(&id)).await?; // everything that it holds
    graph.runner(&store).resume(&session, Some(&id), inputs([("x", 2)])).await?.finish().await?;
    let copy = checkpoints::fork(&store, &session, &id).await?; // a session of its own
    checkpoints::prune(&store, &session, 10, false).await?;
    checkpoints::delete(&store, &session, &id).await?;
    Ok(())
}

#[derive(Debug)]
struct AfterSlowNodes;

impl CheckpointPolicy for AfterSlowNodes {
    fn should_checkpoint(&self, of: &PolicyContext<'_>) -> bool {
        of.latency.is_none_or(|took| took > Duration::from_secs(5))
    }
}

fn pages() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    found
}

fn blocks(text: &str, kind: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() == format!("```{kind}") {
            let block: Vec<&str> = lines.by_ref().take_while(|line| line.trim() != "```").collect();
            found.push(block.join("\n"));
        }
    }
    found
}

/// Without comments, line ends and indentation, which differ between a page and a source.
fn dense(code: &str) -> String {
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or(line));
    lines.flat_map(str::chars).filter(|c| !c.is_whitespace() && *c != ',').collect()
}

fn missing(block: &str) -> bool {
    !dense(include_str!("samples.rs")).contains(&dense(block))
}

/// Wants to show: a block of Rust in the documentation is code that this file compiles.
#[test]
fn samples_of_rust_compile() {
    assert!(missing(&format!("let store = {}();", "piton_graph::shut")));
    assert_eq!(blocks("a\n```rust\nb\nc\n```\n```sh\nd\n```\n", "rust"), ["b\nc"]);
    let mut count = 0;
    for (path, text) in pages() {
        for block in blocks(&text, "rust") {
            assert!(!missing(&block), "{}: not in samples.rs:\n{block}", path.display());
            count += 1;
        }
    }
    assert!(count >= 3, "{count} samples found");
    let _: &dyn CheckpointPolicy = &AfterSlowNodes;
}

/// The graph that a block is or belongs to, beside a graph that it may name as a file.
fn as_graph(block: &str) -> piton_graph::Result<Graph> {
    let folder = tempfile::tempdir().unwrap();
    let inner = "piton: graph/v1\nname: review\ninputs: {text: {type: string}}\nnodes:\n  \
                 look: {set: {decision: 1}}\n";
    fs::write(folder.path().join("review.yaml"), inner).unwrap();
    let mut text = String::new();
    if !block.contains("piton:") {
        text += "piton: graph/v1\nname: sample\n";
    }
    if !block.contains("nodes:") {
        text += "nodes:\n  a: {set: {findings: 1}}\n";
    }
    if block.contains("{{ draft }}") {
        text += "inputs: {draft: {type: string}}\n";
    }
    let file = folder.path().join("graph.yaml");
    fs::write(&file, format!("{text}{block}\n")).unwrap();
    Graph::from_file(file)
}

/// Wants to show: a block of YAML in the documentation is one that Piton accepts.
#[test]
fn samples_of_yaml_are_accepted() {
    assert!(as_graph("nodes:\n  a: {fly: 1}").is_err());
    let mut graphs = 0;
    for (path, text) in pages() {
        for block in blocks(&text, "yaml") {
            let at = format!("{}:\n{block}", path.display());
            // Options of checkpoints are a file of their own; in a graph they are its `checkpoint`.
            if block.starts_with("checkpoint_") {
                let indented = block.replace('\n', "\n  ");
                as_graph(&format!("checkpoint:\n  {indented}"))
                    .unwrap_or_else(|e| panic!("{at}\n{e}"));
            } else {
                as_graph(&block).unwrap_or_else(|e| panic!("{at}\n{e}"));
            }
            graphs += 1;
        }
    }
    assert!(graphs >= 4, "{graphs} samples found");
}
