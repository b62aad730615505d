//! `piton sessions checkpoints`: where a graph can be resumed from.

use clap::Subcommand;
use piton_core::State;
use piton_core::graph::{CheckpointFilter, CheckpointType};
use piton_core::id::SessionId;
use piton_core::turns::{TurnEntry, is_live};
use piton_graph::checkpoints::{self, CheckpointList, CheckpointSummary};
use serde_json::json;

use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::graphs::{self, GraphHost};
use crate::table::{Column, Table};
use crate::text::one_line;
use crate::times;
use crate::ui::{Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton sessions checkpoints SESSION
  piton sessions checkpoints SESSION --type node_complete --clean
  piton sessions checkpoints delete SESSION 20a1

A checkpoint is named by its id, or by the beginning or the end of it.

JSON: one object: session_id, checkpoints (newest first: checkpoint_id, type, created_at,
current_node, next_node, is_clean, can_resume_from, description, lineage, error, failed_at_node),
latest_checkpoint_id, total_checkpoints, resume_from_checkpoint_id. Of an agent's session:
session_id, lineage, can_undo, checkpoints (checkpoint_id, type, seq, created_at, lineage,
is_live, run_id, has_files, snapshot_late).";

/// List the checkpoints of a session, newest first: of a graph, or of an agent's turns
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// The session: its id, the beginning or end of it, or @last
    #[arg(required = true)]
    session: Option<String>,
    /// Only checkpoints of this type
    #[arg(long = "type", value_name = "TYPE", value_parser = parse_type)]
    checkpoint_type: Option<CheckpointType>,
    /// Only clean checkpoints: without a failure or a retry before them
    #[arg(long)]
    clean: bool,
    /// Only checkpoints of this node
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Only checkpoints of this lineage
    #[arg(long, value_name = "NUMBER")]
    lineage: Option<u32>,
    /// The maximum number of checkpoints
    #[arg(long, short = 'n', default_value_t = 50, value_name = "COUNT")]
    limit: usize,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Delete a checkpoint; what it held stays in the log
    Delete {
        /// The session: its id, the beginning or end of it, or @last
        session: String,
        /// The checkpoint's id, or the beginning or end of it
        checkpoint: String,
    },
}

fn parse_type(text: &str) -> Result<CheckpointType, String> {
    CheckpointType::parse(text).ok_or_else(|| {
        let names: Vec<_> = CheckpointType::ALL.iter().map(|kind| kind.as_str()).collect();
        format!("it is none of {}", names.join(", "))
    })
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    if let Some(Command::Delete { session, checkpoint }) = args.command {
        return delete(ui, cx, &session, &checkpoint).await;
    }
    let session = args.session.ok_or_else(|| Error::usage("Name a session"))?;
    let (view, id) = cx.view_of(&session).await?;
    let state = view.state(&id).await?;
    if state.facts.graph.is_none() && !state.turns.checkpoints.is_empty() {
        return turns(ui, cx, &id, &state, (args.checkpoint_type, args.lineage), args.limit);
    }
    let filter = CheckpointFilter {
        checkpoint_type: args.checkpoint_type,
        is_clean: args.clean.then_some(true),
        node: args.node,
        lineage: args.lineage,
    };
    let list = checkpoints::list(view.store(), &id, &filter, args.limit).await?;
    if ui.json {
        ui.json_line(&list)?;
        return Ok(Exit::Good);
    }
    print(ui, cx, &list)
}

/// The checkpoints of an agent's turns.
fn turns(
    ui: &mut Ui,
    cx: &Context,
    id: &SessionId,
    state: &State,
    (checkpoint_type, lineage): (Option<CheckpointType>, Option<u32>),
    limit: usize,
) -> Result<Exit> {
    let segments = state.turns.live_segments(state.last_seq);
    let wanted = |entry: &&TurnEntry| {
        checkpoint_type.is_none_or(|wanted| wanted == entry.checkpoint_type)
            && lineage.is_none_or(|wanted| wanted == entry.lineage)
    };
    let entries: Vec<&TurnEntry> =
        state.turns.checkpoints.iter().rev().filter(wanted).take(limit).collect();
    let is_live = |entry: &TurnEntry| is_live(segments.as_deref(), entry.seq);
    if ui.json {
        let checkpoints = entries.iter().map(|entry| {
            json!({
                "checkpoint_id": entry.checkpoint_id,
                "type": entry.checkpoint_type,
                "seq": entry.seq,
                "created_at": entry.created_at,
                "lineage": entry.lineage,
                "is_live": is_live(entry),
                "run_id": entry.turn.run_id,
                "has_files": entry.turn.snapshot.is_some(),
                "snapshot_late": entry.turn.snapshot_late,
            })
        });
        ui.json_line(&json!({
            "session_id": id,
            "lineage": state.turns.lineages.current(),
            "can_undo": state.turns.last_rewind.is_some(),
            "checkpoints": checkpoints.collect::<Vec<_>>(),
        }))?;
        return Ok(Exit::Good);
    }
    let mut table = Table::new([
        Column::Whole("ID"),
        Column::Whole("TYPE"),
        Column::Whole("AT"),
        Column::Whole("FILES"),
        Column::Cut("WHAT"),
    ]);
    for entry in entries {
        let files = match (&entry.turn.snapshot, entry.turn.snapshot_late) {
            (Some(_), _) => "yes",
            (None, true) => "late",
            (None, false) => "no",
        };
        let what = if is_live(entry) { "" } else { "left behind by a rewind" };
        table.row([
            (Tone::Plain, entry.checkpoint_id.to_string()),
            (Tone::Plain, entry.checkpoint_type.as_str().to_owned()),
            (Tone::Quiet, times::relative(entry.created_at, cx.now())),
            (Tone::Plain, files.to_owned()),
            (Tone::Quiet, what.to_owned()),
        ]);
    }
    table.print(ui)?;
    Ok(Exit::Good)
}

fn print(ui: &mut Ui, cx: &Context, list: &CheckpointList) -> Result<Exit> {
    if list.checkpoints.is_empty() {
        ui.note("No checkpoints.")?;
        return Ok(Exit::Good);
    }
    let mut table = Table::new([
        Column::Whole(""),
        Column::Whole("ID"),
        Column::Whole("TYPE"),
        Column::Whole("NODE"),
        Column::Whole("AT"),
        Column::Whole("CLEAN"),
        Column::Cut("WHAT"),
    ]);
    for one in &list.checkpoints {
        let is_next = list.resume_from_checkpoint_id.as_ref() == Some(&one.checkpoint_id);
        table.row([
            (Tone::Active, if is_next { "▶" } else { "" }.to_owned()),
            (Tone::Plain, one.checkpoint_id.to_string()),
            (Tone::Plain, one.checkpoint_type.as_str().to_owned()),
            (Tone::Plain, one.current_node.clone().unwrap_or_default()),
            (Tone::Quiet, times::relative(one.created_at, cx.now())),
            (Tone::Plain, if one.is_clean { "yes" } else { "no" }.to_owned()),
            (Tone::Quiet, what(one, is_next)),
        ]);
    }
    table.print(ui)?;
    let hidden = list.total_checkpoints.saturating_sub(list.checkpoints.len());
    if hidden > 0 {
        ui.note(&format!("{hidden} more checkpoints are not shown."))?;
    }
    Ok(Exit::Good)
}

fn what(one: &CheckpointSummary, is_next: bool) -> String {
    let mut parts = Vec::new();
    if is_next {
        parts.push("resumes here".to_owned());
    }
    if !one.can_resume_from {
        parts.push("cannot be resumed from".to_owned());
    }
    if one.lineage > 1 {
        parts.push(format!("lineage {}", one.lineage));
    }
    match &one.error {
        Some(error) => parts.push(format!("failed: {}", one_line(error))),
        None => parts.push(one_line(&one.description)),
    }
    parts.join(" · ")
}

async fn delete(ui: &mut Ui, cx: &Context, session: &str, named: &str) -> Result<Exit> {
    let (view, id) = cx.view_of(session).await?;
    let checkpoint = checkpoints::find(view.store(), &id, named).await?;
    drop(view);
    let deleted = if let Some(client) = graphs::server_for_change(cx, &id).await? {
        client.delete_checkpoint(&id, checkpoint.as_str()).await?;
        true
    } else {
        let host = GraphHost::open(cx)?;
        let deleted = checkpoints::delete(&host.store, &id, &checkpoint).await;
        deleted.map_err(|error| graphs::owned(cx, error))?
    };
    if ui.json {
        ui.json_line(&json!({"session_id": id, "checkpoint_id": checkpoint, "deleted": deleted}))?;
    } else {
        ui.line(format_args!("Checkpoint {checkpoint} is deleted."))?;
    }
    Ok(Exit::Good)
}
