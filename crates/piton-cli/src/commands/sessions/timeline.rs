//! `piton sessions timeline`: what happened in a graph's session, line by line.

use piton_graph::checkpoints::{self, TimelineEntry};

use crate::context::Context;
use crate::error::{Exit, Result};
use crate::text::one_line;
use crate::times;
use crate::ui::{Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton sessions timeline SESSION
  piton sessions timeline SESSION --json | jq 'select(.kind == \"node.completed\")'

Records that a later lineage abandoned are marked with `·`.

JSON: one object per line: seq, ts, lineage, is_current, kind, node, checkpoint_id, latency_ms,
attempt, detail.";

/// Show a graph's runs, nodes, checkpoints and lineages in order
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let (view, id) = cx.view_of(&args.session).await?;
    for entry in checkpoints::timeline(view.store(), &id).await? {
        if ui.json { ui.json_line(&entry)? } else { print(ui, &entry)? }
    }
    Ok(Exit::Good)
}

fn print(ui: &mut Ui, entry: &TimelineEntry) -> Result<()> {
    let mut parts = Vec::new();
    parts.extend(entry.node.clone());
    parts.extend(entry.detail.clone());
    parts.extend(entry.attempt.filter(|attempt| *attempt > 1).map(|n| format!("attempt {n}")));
    parts.extend(entry.latency_ms.map(|ms| format!("{ms} ms")));
    parts.extend(entry.checkpoint_id.as_ref().map(ToString::to_string));
    let tone = match entry.kind.as_str() {
        _ if !entry.is_current => Tone::Quiet,
        "node.failed" | "run.failed" | "run.interrupted" | "checkpoint.damaged" => Tone::Bad,
        "node.completed" | "run.completed" => Tone::Good,
        "lineage.started" | "run.waiting" => Tone::Attention,
        _ => Tone::Plain,
    };
    let mark = if entry.is_current { " " } else { "·" };
    let kind = ui.paint(tone, &format!("{:<20}", entry.kind));
    let start = format!("{:>5} {mark} {}", entry.seq, times::time_of_day(entry.ts));
    let start = ui.paint(Tone::Quiet, &start);
    ui.line(format!("{start}  {kind} {}", one_line(&parts.join("  "))).trim_end())
}
