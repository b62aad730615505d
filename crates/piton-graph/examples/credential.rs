//! A missing credential fails the ninth node; set at the resume it completes, without repeating eight.
//!
//! `cargo run -p piton-graph --example credential`

#![expect(clippy::print_stdout, clippy::large_futures, reason = "an example shows what it does")]

use piton_graph::{
    Graph, Node, NodeContext, NodeError, Outcome, ValueType, async_trait, custom, inputs,
};

struct Step;

#[async_trait]
impl Node for Step {
    async fn run(&self, ctx: &mut NodeContext) -> Result<(), NodeError> {
        println!("  {} runs, attempt {}", ctx.node(), ctx.attempt());
        Ok(())
    }
}

struct Publish;

#[async_trait]
impl Node for Publish {
    async fn run(&self, ctx: &mut NodeContext) -> Result<(), NodeError> {
        println!("  {} runs, attempt {}", ctx.node(), ctx.attempt());
        if ctx.value("api_key")?.is_null() {
            return Err(NodeError::new("api_key is not set").permanent());
        }
        // Another service would recognise a repetition by this key.
        ctx.write("receipt", ctx.idempotency_key().to_owned())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> piton_graph::Result<()> {
    let mut builder = Graph::builder("credential").optional_input("api_key", ValueType::String);
    for n in 1..=8 {
        builder = builder.node(format!("n{n}"), custom(Step));
    }
    builder = builder.node("publish", custom(Publish).reads(["api_key"]).writes(["receipt"]));
    for n in 1..=7 {
        builder = builder.edge(format!("n{n}"), format!("n{}", n + 1));
    }
    let graph = builder.edge("n8", "publish").build()?;

    let data = std::env::temp_dir().join(format!("piton-example-{}", std::process::id()));
    let store = piton_graph::open(&data)?;
    println!("Without a credential:");
    let run = graph.runner(&store).start(inputs::<&str, &str>([])).await?;
    let session = run.session().clone();
    if let Outcome::Failed(failure) = run.finish().await? {
        println!("  {} failed: {}", failure.node, failure.error);
    }
    println!("Resumed with one:");
    let key = inputs([("api_key", "sk-example-0123456789")]);
    let run = graph.runner(&store).resume(&session, None, key).await?;
    if let Outcome::Completed(finished) = run.finish().await? {
        println!("  completed: receipt {}", finished.memory["receipt"]);
    }
    drop(store);
    // It was an example: nothing is kept.
    let _ = std::fs::remove_dir_all(data);
    Ok(())
}
