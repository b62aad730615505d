//! `piton sessions diff`: what changed between two checkpoints.

use piton_api::rewind::FilesDiffQuery;
use piton_graph::checkpoints::{self, CheckpointDiff, KeyChanges};
use serde_json::Value;

use super::rewind::{mark, note_skipped};
use crate::backend;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::text::{one_line, shortened};
use crate::ui::{Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton sessions diff SESSION 20a1                From a checkpoint to the newest one
  piton sessions diff SESSION 20a1 20b4 --memory
  piton sessions diff SESSION 20a1 --files        Files of an agent's session, from a turn to now

JSON: one object: session_id, from_checkpoint_id, to_checkpoint_id, nodes_completed, nodes_undone,
memory and outputs {added, changed: {key: {from, to}}, removed}, excluded_keys; with --files:
session_id, changes [{path, change}], skipped [{path, reason}], skipped_total.";

/// Compare two checkpoints of a graph, or the files of an agent's session
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
    /// The older checkpoint: its id, or the beginning or end of it
    #[arg(value_name = "CHECKPOINT")]
    from: String,
    /// The newer one [default: the newest]
    #[arg(value_name = "CHECKPOINT")]
    to: Option<String>,
    /// Compare only the memory
    #[arg(long)]
    memory: bool,
    /// The files of an agent's session; without a second checkpoint, as they are now
    #[arg(long, conflicts_with = "memory")]
    files: bool,
}

async fn files(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let (client, id) = backend::server_for(cx, &args.session).await?;
    let diff = client.diff_files(&id, &FilesDiffQuery { from: args.from, to: args.to }).await?;
    if ui.json {
        ui.json_line(&diff)?;
        return Ok(Exit::Good);
    }
    for change in &diff.changes {
        let (tone, mark) = mark(change.change.as_str());
        let path = one_line(&change.path);
        ui.line(format_args!("  {} {path}", ui.paint(tone, mark)))?;
    }
    note_skipped(ui, &diff.skipped, diff.skipped_total)?;
    if diff.changes.is_empty() {
        ui.note("Nothing changed.")?;
    }
    Ok(Exit::Good)
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    if args.files {
        return files(ui, cx, args).await;
    }
    let (view, id) = cx.view_of(&args.session).await?;
    let store = view.store();
    let from = checkpoints::find(store, &id, &args.from).await?;
    let to = match &args.to {
        Some(to) => Some(checkpoints::find(store, &id, to).await?),
        None => None,
    };
    let diff = checkpoints::diff(store, &id, &from, to.as_ref()).await?;
    if ui.json {
        ui.json_line(&diff)?;
        return Ok(Exit::Good);
    }
    print(ui, &diff, args.memory)
}

fn print(ui: &mut Ui, diff: &CheckpointDiff, is_memory_only: bool) -> Result<Exit> {
    if !is_memory_only {
        for node in &diff.nodes_undone {
            line(ui, Tone::Bad, "-", "node", node)?;
        }
        for node in &diff.nodes_completed {
            line(ui, Tone::Good, "+", "node", node)?;
        }
        changes(ui, &diff.outputs)?;
    }
    changes(ui, &diff.memory)?;
    for key in &diff.excluded_keys {
        line(ui, Tone::Attention, "~", key, "(never saved)")?;
    }
    let nothing = diff.memory.is_empty() && diff.excluded_keys.is_empty();
    if nothing && (is_memory_only || (diff.outputs.is_empty() && diff.nodes_completed.is_empty())) {
        ui.note("Nothing changed.")?;
    }
    Ok(Exit::Good)
}

fn changes(ui: &mut Ui, changes: &KeyChanges) -> Result<()> {
    for (key, value) in &changes.removed {
        line(ui, Tone::Bad, "-", key, &text(value))?;
    }
    for (key, value) in &changes.added {
        line(ui, Tone::Good, "+", key, &text(value))?;
    }
    for (key, value) in &changes.changed {
        line(
            ui,
            Tone::Attention,
            "~",
            key,
            &format!("{} -> {}", text(&value.from), text(&value.to)),
        )?;
    }
    Ok(())
}

fn text(value: &Value) -> String {
    shortened(&one_line(&value.to_string()), 200)
}

fn line(ui: &mut Ui, tone: Tone, mark: &str, key: &str, text: &str) -> Result<()> {
    let rest = format!("{:<12} {text}", one_line(key));
    let rest = shortened(&rest, Ui::table_width().saturating_sub(4));
    ui.line(format_args!("  {} {rest}", ui.paint(tone, mark)))
}
