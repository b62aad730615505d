//! `piton sessions inspect`: what a checkpoint holds.

use piton_graph::checkpoints::{self, Checkpoint};
use serde_json::Value;

use crate::context::Context;
use crate::error::{Exit, Result};
use crate::text::{one_line, shortened};
use crate::times;
use crate::ui::{Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton sessions inspect SESSION                          The newest checkpoint
  piton sessions inspect SESSION 20a1 --include-memory
  piton sessions inspect SESSION 20a1 --include-memory --json | jq .shared_memory

JSON: one object: checkpoint_id, session_id, checkpoint_type, created_at, current_node, next_node,
execution_path, shared_memory (with --include-memory), excluded_keys, conversation_states,
accumulated_outputs, artifacts, metrics_snapshot, is_clean, can_resume_from, description,
signature, log_position, parent, lineage, error, failed_at_node.";

/// Show the contents of a graph's checkpoint
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
    /// The checkpoint's id, or the beginning or end of it [default: the newest]
    checkpoint: Option<String>,
    /// Also print the values of the memory
    #[arg(long)]
    include_memory: bool,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let (view, id) = cx.view_of(&args.session).await?;
    let store = view.store();
    let named = match &args.checkpoint {
        Some(named) => Some(checkpoints::find(store, &id, named).await?),
        None => None,
    };
    let mut checkpoint = checkpoints::load(store, &id, named.as_ref()).await?;
    let memory = checkpoint.shared_memory.take();
    if ui.json {
        checkpoint.shared_memory = memory.filter(|_| args.include_memory);
        ui.json_line(&checkpoint)?;
        return Ok(Exit::Good);
    }
    print(ui, cx, &checkpoint)?;
    match memory {
        Some(memory) if args.include_memory => {
            heading(ui, "Memory")?;
            for (key, value) in &memory {
                entry(ui, key, value)?;
            }
            for key in &checkpoint.excluded_keys {
                ui.line(format_args!("  {key}  {}", ui.paint(Tone::Quiet, "(never saved)")))?;
            }
        }
        Some(memory) => {
            let keys: Vec<&str> = memory.keys().map(String::as_str).collect();
            field(ui, "Memory", &format!("{}  (values: --include-memory)", keys.join(", ")))?;
        }
        None => field(ui, "Memory", "left out by include_full_memory; the log has it")?,
    }
    Ok(Exit::Good)
}

fn print(ui: &mut Ui, cx: &Context, one: &Checkpoint) -> Result<()> {
    let title = format!("Checkpoint {}", one.checkpoint_id);
    ui.line(ui.paint(Tone::Title, &title))?;
    field(ui, "Type", one.checkpoint_type.as_str())?;
    field(ui, "Created", &times::both(one.created_at, cx.now()))?;
    let next = one.next_node.as_ref().map_or_else(String::new, |next| format!(" -> {next}"));
    field(ui, "Node", &format!("{}{next}", one.current_node.as_deref().unwrap_or("-")))?;
    field(ui, "What", &one.description)?;
    if let Some(error) = &one.error {
        field(ui, "Failed", error)?;
    }
    field(ui, "Path", &one.execution_path.join(" -> "))?;
    let clean = if one.is_clean { "yes" } else { "no" };
    let resumes = if one.can_resume_from { "yes" } else { "no" };
    field(ui, "Clean", clean)?;
    field(ui, "Resumable", resumes)?;
    let metrics = &one.metrics_snapshot;
    let failures = metrics.nodes_with_failures.join(", ");
    let failures = if failures.is_empty() { "none".to_owned() } else { failures };
    let text = format!(
        "{} nodes completed in {} ms, {} retries, failures: {failures}",
        metrics.nodes_completed, metrics.total_latency_ms, metrics.total_retries
    );
    field(ui, "Metrics", &text)?;
    field(ui, "Lineage", &format!("{}, record {}", one.lineage, one.log_position))?;
    if let Some(parent) = &one.parent {
        field(ui, "Parent", parent.as_str())?;
    }
    field(ui, "Signature", &one.signature)?;
    if !one.accumulated_outputs.is_empty() {
        heading(ui, "Outputs")?;
        for (key, value) in &one.accumulated_outputs {
            entry(ui, key, value)?;
        }
    }
    if !one.artifacts.is_empty() {
        let names: Vec<&str> = one.artifacts.iter().map(|file| file.name.as_str()).collect();
        field(ui, "Artifacts", &names.join(", "))?;
    }
    for (node, conversation) in one.conversation_states.iter().flatten() {
        field(ui, "Loop", &format!("{node}: {conversation}"))?;
    }
    Ok(())
}

fn heading(ui: &mut Ui, text: &str) -> Result<()> {
    ui.line(ui.paint(Tone::Title, text))
}

fn field(ui: &mut Ui, name: &str, text: &str) -> Result<()> {
    let name = ui.paint(Tone::Quiet, &format!("{name:<10}"));
    ui.line(format_args!("{name} {}", one_line(text)))
}

fn entry(ui: &mut Ui, key: &str, value: &Value) -> Result<()> {
    let text = one_line(&value.to_string());
    let room = Ui::table_width().saturating_sub(key.len() + 4).max(20);
    ui.line(format_args!("  {}  {}", one_line(key), shortened(&text, room)))
}
