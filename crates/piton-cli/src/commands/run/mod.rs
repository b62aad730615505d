//! `piton run`: runs a graph in a session of its own, in this process or on the data folder's server.

mod drive;
mod remote;
mod screen;

use std::path::PathBuf;

use piton_api::client::Client;
use piton_core::id::SessionId;
use piton_graph::{Graph, Outcome};
use serde_json::{Map, Value, json};

use crate::background;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::graphs::{self, GraphHost};
use crate::text::{one_line, shortened};
use crate::ui::{Tone, Ui};
use drive::Drive;
use remote::Remote;

const EXAMPLES: &str = "\
Examples:
  piton run report.yaml --input repos='[\"a\",\"b\"]'
  piton run report.yaml --input notes=@notes.txt
  echo '{\"name\": \"Ada\"}' | piton run greeting.yaml --input -
  piton run report.yaml --json | jq -c 'select(.event == \"node_failed\")'

Ctrl-C pauses the run at its next safe point and prints the command that resumes it; a second
Ctrl-C stops it now. Exit codes: 0 completed, 1 failed, 5 it waits for an answer, 130 paused or
stopped by Ctrl-C.

JSON: one object per line, with `event`: run_started {session_id, graph, resumed_from},
node_started, node_advanced, node_completed, node_failed, node_skipped, node_waiting, and at last
run_ended {session_id, outcome, outputs, memory, failed_at_node, error, checkpoint_id, waits,
resume}.";

/// Run a graph; completed nodes are durable
///
/// Needs no server, but for graphs with `agent` nodes: then one is started in the background, and the
/// graph runs there. A run that fails, is stopped or killed continues with `piton sessions resume`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The graph file, YAML or JSON
    graph: PathBuf,
    /// An input: key=value, key=@FILE, key=@env:NAME, or - for a JSON object on standard input
    #[arg(long = "input", short, value_name = "KEY=VALUE")]
    inputs: Vec<String>,
    /// Checkpoint options for this run, YAML or JSON; they override the graph's and the settings'
    #[arg(long, value_name = "FILE")]
    checkpoint_config: Option<PathBuf>,
    /// The working folder for commands [default: this one]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let graph = Graph::from_file(&args.graph)?;
    let inputs = graphs::values(graph.spec(), &args.inputs)?;
    let options = graphs::checkpoint_options(args.checkpoint_config.as_deref())?;
    let folder = match args.cwd {
        Some(folder) => std::path::absolute(folder)?,
        None => std::env::current_dir()?,
    };
    let folder = folder.to_str().ok_or_else(|| Error::usage("The folder's name is not UTF-8"))?;
    if let Some(client) = server_for_run(cx, &graph).await? {
        let remote = Remote { cx, client, graph: &graph, options };
        return remote.start(ui, inputs, folder).await;
    }
    let host = GraphHost::open(cx)?;
    let drive = Drive { cx, store: &host.store, graph: &graph, options };
    drive.start(ui, inputs, folder).await
}

/// The server that a new graph runs on; `None`: it runs in this process. Agents belong to a server, and
/// beside a server no other process writes to a store of files.
pub(crate) async fn server_for_run(cx: &Context, graph: &Graph) -> Result<Option<Client>> {
    if graph.agent_nodes().next().is_some() {
        return Ok(Some(background::ensure(cx).await?));
    }
    graphs::server_of_store(cx)
}

/// The server that a graph is resumed on; `None`: it is resumed in this process. A session that the
/// server owns is resumed there.
pub(crate) async fn server_for_resume(
    cx: &Context,
    graph: &Graph,
    session: &SessionId,
) -> Result<Option<Client>> {
    if let Some(client) = server_for_run(cx, graph).await? {
        return Ok(Some(client));
    }
    graphs::server_for_change(cx, session).await
}

/// Resumes a graph's session, in this process or on the server.
pub(crate) async fn resume(
    ui: &mut Ui,
    cx: &Context,
    session: &SessionId,
    how: Resume,
) -> Result<Exit> {
    let view = cx.existing_view()?;
    let store = view.store();
    let graph =
        graphs::graph_for(store, session, how.graph.as_deref(), how.is_graph_recorded).await?;
    let set = graphs::values(graph.spec(), &how.set)?;
    let options = graphs::checkpoint_options(how.checkpoint_config.as_deref())?;
    let checkpoint = match &how.checkpoint {
        Some(named) => Some(piton_graph::checkpoints::find(store, session, named).await?),
        None => None,
    };
    if let Some(client) = server_for_resume(cx, &graph, session).await? {
        let remote = Remote { cx, client, graph: &graph, options };
        let file = how.graph.as_deref();
        let request = remote.resume_request(file, checkpoint.as_ref(), set)?;
        return remote.resume(ui, session, request).await;
    }
    drop(view);
    let host = GraphHost::open(cx)?;
    let drive = Drive { cx, store: &host.store, graph: &graph, options };
    Box::pin(drive.resume(ui, session, checkpoint.as_ref(), set)).await
}

/// How a graph is resumed.
#[derive(Debug)]
pub(crate) struct Resume {
    pub(crate) checkpoint: Option<String>,
    pub(crate) set: Vec<String>,
    pub(crate) graph: Option<PathBuf>,
    pub(crate) is_graph_recorded: bool,
    pub(crate) checkpoint_config: Option<PathBuf>,
}

/// Says how a run ended, and what to do next.
fn report(
    ui: &mut Ui,
    graph: &Graph,
    session: &SessionId,
    outcome: &Outcome,
    resume: String,
) -> Result<Exit> {
    if ui.json {
        let mut line = json!({"event": "run_ended", "session_id": session});
        if let (Value::Object(line), Value::Object(more)) = (&mut line, ended(outcome)) {
            line.extend(more);
            if !matches!(outcome, Outcome::Completed(_)) {
                line.insert("resume".to_owned(), resume.into());
            }
        }
        ui.json_line(&line)?;
        return Ok(exit(outcome));
    }
    match outcome {
        Outcome::Completed(finished) => {
            for (key, value) in results(graph, finished) {
                let label = format!("  {}  ", ui.paint(Tone::Title, &one_line(&key)));
                let room = Ui::table_width().saturating_sub(key.len() + 4).max(20);
                let text = match &value {
                    Value::String(text) => one_line(text),
                    value => one_line(&value.to_string()),
                };
                ui.line(format_args!("{label}{}", shortened(&text, room)))?;
            }
            ui.line(ui.paint(Tone::Good, "Completed."))?;
        }
        Outcome::Failed(failure) => {
            let failed = format!("Failed at `{}`.", failure.node);
            let kept = "Everything before it is kept.";
            ui.line(format_args!("{} {kept}", ui.paint(Tone::Bad, &failed)))?;
            ui.line(format_args!("Resume:  {resume}"))?;
        }
        Outcome::Waiting { waits } => {
            for wait in waits {
                let (node, id) = (&wait.node, &wait.wait_id);
                ui.line(format_args!("`{node}` waits for an answer: {id}"))?;
                let answer = format!("Answer:  {} sessions answer {id} ANSWER", ui.call);
                ui.line(answer)?;
            }
            ui.line(format_args!("Resume:  {resume}"))?;
        }
        Outcome::Paused => {
            ui.line(ui.paint(Tone::Attention, "Paused."))?;
            ui.line(format_args!("Resume:  {resume}"))?;
        }
        Outcome::Cancelled => {
            ui.line(ui.paint(Tone::Attention, "Stopped. What completed is kept."))?;
            ui.line(format_args!("Resume:  {resume}"))?;
        }
    }
    Ok(exit(outcome))
}

fn exit(outcome: &Outcome) -> Exit {
    match outcome {
        Outcome::Completed(_) => Exit::Good,
        Outcome::Failed(_) => Exit::Failed,
        Outcome::Waiting { .. } => Exit::Waiting,
        Outcome::Paused | Outcome::Cancelled => Exit::CTRL_C,
    }
}

fn ended(outcome: &Outcome) -> Value {
    match outcome {
        Outcome::Completed(finished) => {
            let memory: Map<String, Value> = finished
                .memory
                .iter()
                .map(|(key, value)| (key.clone(), (**value).clone()))
                .collect();
            json!({"outcome": "completed", "outputs": finished.outputs, "memory": memory})
        }
        Outcome::Failed(failure) => json!({
            "outcome": "failed", "failed_at_node": failure.node, "error": failure.error,
            "code": failure.code.as_str(), "checkpoint_id": failure.checkpoint,
        }),
        Outcome::Waiting { waits } => {
            let waits: Vec<Value> = waits
                .iter()
                .map(|wait| json!({"wait_id": wait.wait_id, "node": wait.node, "deadline_at": wait.deadline_at}))
                .collect();
            json!({"outcome": "waiting", "waits": waits})
        }
        Outcome::Paused => json!({"outcome": "paused"}),
        Outcome::Cancelled => json!({"outcome": "cancelled"}),
    }
}

/// What a completed graph is shown with: its outputs, or what its last nodes wrote.
fn results(graph: &Graph, finished: &piton_graph::Finished) -> Vec<(String, Value)> {
    if !finished.outputs.is_empty() {
        return finished.outputs.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    }
    let spec = graph.spec();
    let leads_on =
        |name: &str| spec.edges.iter().any(|edge| edge.from == name && edge.max.is_none());
    let last = spec.nodes.iter().filter(|(name, _)| !leads_on(name));
    let keys: std::collections::BTreeSet<&String> =
        last.flat_map(|(_, node)| &node.writes).collect();
    let found = keys.into_iter().filter_map(|key| Some((key, finished.memory.get(key)?)));
    found.map(|(key, value)| (key.clone(), (**value).clone())).collect()
}
