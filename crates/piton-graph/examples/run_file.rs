//! Runs a graph file, or resumes the session that ran it, and asks its questions on the terminal.
//!
//! `cargo run -p piton-graph --example run_file -- examples/graphs/approval.yaml topic=pitons`
//! `cargo run -p piton-graph --example run_file -- examples/graphs/credential.yaml`
//! then, with the session that it names:
//! `cargo run -p piton-graph --example run_file -- examples/graphs/credential.yaml --resume SESSION api_key=KEY`

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::large_futures,
    reason = "an example talks to people"
)]

use std::process::ExitCode;

use piton_core::id::SessionId;
use piton_graph::{Graph, GraphStore, Outcome, Progress, answer};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

const DATA: &str = "target/example-graphs";

/// `key=value`: the value is JSON, or else text.
fn pair(argument: &str) -> Option<(String, Value)> {
    let (key, value) = argument.split_once('=')?;
    Some((key.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| value.into())))
}

fn show(progress: &Progress) {
    match progress {
        Progress::NodeStarted { node, attempt } => println!("  … {node} (attempt {attempt})"),
        Progress::NodeCompleted { node, latency_ms } => println!("  ✓ {node}  {latency_ms} ms"),
        Progress::NodeFailed { node, error, .. } => println!("  ✗ {node}  {error}"),
        Progress::NodeSkipped { node } => println!("  - {node} skipped"),
        Progress::NodeAdvanced { node, done, .. } => println!("    {node}: {done} done"),
        Progress::NodeWaiting { node, .. } => println!("  ? {node} waits"),
    }
}

async fn run(
    graph: &Graph,
    store: &GraphStore,
    session: Option<SessionId>,
    mut values: Map<String, Value>,
) -> piton_graph::Result<Outcome> {
    let mut session = session;
    loop {
        let (sender, mut progress) = mpsc::unbounded_channel();
        let shown = tokio::spawn(async move {
            while let Some(progress) = progress.recv().await {
                show(&progress);
            }
        });
        let runner = graph.runner(store).progress(sender);
        let given = std::mem::take(&mut values);
        let run = match &session {
            None => runner.start(given).await?,
            Some(id) => runner.resume(id, None, given).await?,
        };
        let id = run.session().clone();
        println!("{}  {id}", graph.name());
        let outcome = run.finish().await?;
        // It ends with the run that it listens to.
        let _ = shown.await;
        let Outcome::Waiting { waits } = &outcome else { return Ok(outcome) };
        for wait in waits {
            println!("{} waits. Your answer:", wait.node);
            let mut line = String::new();
            if std::io::stdin().read_line(&mut line).unwrap_or(0) == 0 {
                return Ok(outcome);
            }
            answer(store, &id, &wait.wait_id, line.trim().into()).await?;
        }
        session = Some(id);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    let Some(file) = arguments.next() else {
        eprintln!("Usage: run_file GRAPH [--resume SESSION] [KEY=VALUE]...");
        return ExitCode::from(2);
    };
    let resumed = arguments.next_if_eq("--resume").and_then(|_| arguments.next()?.parse().ok());
    let values: Map<String, Value> = arguments.filter_map(|argument| pair(&argument)).collect();
    let opened = Graph::from_file(&file).and_then(|graph| Ok((graph, piton_graph::open(DATA)?)));
    let outcome = match &opened {
        Ok((graph, store)) => run(graph, store, resumed, values).await,
        Err(error) => {
            eprintln!("Error: {error}\nHint: {}", error.hint());
            return ExitCode::FAILURE;
        }
    };
    match outcome {
        Ok(Outcome::Completed(finished)) => {
            for (key, value) in finished.memory {
                println!("{key} = {value}");
            }
            ExitCode::SUCCESS
        }
        Ok(Outcome::Failed(failure)) => {
            eprintln!("Failed at `{}`. Everything before it is kept.", failure.node);
            eprintln!("Resume with --resume SESSION KEY=VALUE.");
            ExitCode::FAILURE
        }
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error}\nHint: {}", error.hint());
            ExitCode::FAILURE
        }
    }
}
