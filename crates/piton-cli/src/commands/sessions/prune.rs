//! `piton sessions prune`: what the retention settings ask for, or a graph's old checkpoints.

use std::path::PathBuf;

use piton_api::graph::PruneCheckpointsRequest;
use piton_core::decide::Removal;
use piton_core::graph::KEEP_COUNT_DEFAULT;
use piton_graph::checkpoints;
use piton_runtime::{DueRemoval, Retention, View, due};
use piton_store::{Query, Row, Select};
use serde_json::json;

use super::archive::Archive;
use crate::backend::SessionBackend;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::graphs::{self, GraphHost};
use crate::secret::NewPassphraseArgs;
use crate::table::{Column, Table};
use crate::text::one_line;
use crate::times;
use crate::ui::{Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton sessions prune            What is due
  piton sessions prune --yes      Do it
  PITON_RETENTION_ARCHIVE_AFTER=30d piton sessions prune
  piton sessions prune SESSION --keep 5 --yes       A graph's checkpoints, all but the newest five

The settings retention.archive_after and retention.delete_after say how long closed sessions are
kept after their last activity. A session that is due for both is deleted. Bundles in the archive
are not touched.

JSON: without --yes one object per session and line: session_id, due (archive or delete), active_at.
With --yes, as `sessions archive` and `sessions delete` print them. Of a graph's checkpoints: one
object: session_id, pruned (a list of ids), done.";

/// Sessions on one page of the index.
const PAGE_SESSIONS: usize = 256;

/// Archive and delete closed sessions whose retention period is over
///
/// With a graph's session: remove its old checkpoints instead. Never removes the newest good one, the
/// starting points of lineages and forks, or checkpoints that a wait needs.
///
/// Without --yes it only prints what is due.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A graph's session whose checkpoints to prune
    session: Option<String>,
    /// Graphs: how many checkpoints to keep
    #[arg(long, value_name = "COUNT", default_value_t = KEEP_COUNT_DEFAULT, requires = "session")]
    keep: usize,
    /// Graphs: keep only clean checkpoints, without a failure or retry before them
    #[arg(long, requires = "session")]
    clean_only: bool,
    /// The folder for bundles [default: archive in the data folder]
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Do it instead of printing what is due
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    passphrase: NewPassphraseArgs,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    if let Some(session) = &args.session {
        let how = Checkpoints { keep: args.keep, clean_only: args.clean_only, yes: args.yes };
        return prune_checkpoints(ui, cx, session, how).await;
    }
    let retention = Retention {
        archive_after: cx.settings.archive_after.value,
        delete_after: cx.settings.delete_after.value,
    };
    if retention == Retention::default() {
        ui.note(
            "No retention is set, so nothing is ever due. Set retention.archive_after or \
             retention.delete_after, for example to 30d.",
        )?;
        return Ok(Exit::Good);
    }
    let view = cx.existing_view()?;
    let found = all_due(&view, retention).await?;
    if !args.yes {
        print(ui, &view, &found)?;
        return Ok(Exit::Good);
    }
    let archive = Archive::new(cx, args.to, args.passphrase.given()?);
    let backend = SessionBackend::of(cx)?.ok_or_else(|| cx.missing_store())?;
    if found.is_empty() {
        ui.note("Nothing is due.")?;
    }
    let mut exit = Exit::Good;
    for (due, _) in &found {
        if let Err(error) = carry_out(ui, &backend, &archive, due).await {
            // What keeps one from being removed does not keep the others.
            exit = ui.report(&error.about(due.session.as_str()));
        }
    }
    Ok(exit)
}

async fn carry_out(
    ui: &mut Ui,
    backend: &SessionBackend,
    archive: &Archive,
    due: &DueRemoval,
) -> Result<()> {
    if due.removal == Removal::Archive {
        return archive.add(ui, backend, &due.session).await;
    }
    backend.delete(&due.session, due.removal, Some("retention")).await?;
    super::delete::said(ui, &due.session)
}

/// What is due, with its row. All of it is found before anything is removed: a page that begins
/// behind a session that is gone would be another page.
async fn all_due(view: &View, retention: Retention) -> Result<Vec<(DueRemoval, Row)>> {
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let query = Query { task_id: None, select: Select::All, after, limit: PAGE_SESSIONS };
        let page = view.store().list(query).await?;
        for row in page.rows {
            let due = due(std::slice::from_ref(&row), retention, view.now()).pop();
            found.extend(due.map(|due| (due, row)));
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(found),
        }
    }
}

fn print(ui: &mut Ui, view: &View, found: &[(DueRemoval, Row)]) -> Result<()> {
    let word =
        |due: &DueRemoval| if due.removal == Removal::Archive { "archive" } else { "delete" };
    if ui.json {
        for (due, row) in found {
            let active_at = row.summary.info.active_at;
            ui.json_line(
                &json!({"session_id": due.session, "due": word(due), "active_at": active_at}),
            )?;
        }
        return Ok(());
    }
    if found.is_empty() {
        return ui.note("Nothing is due.");
    }
    let mut table = Table::new([
        Column::Whole("SESSION"),
        Column::Whole("DUE"),
        Column::Whole("ACTIVE"),
        Column::Cut("TITLE"),
    ]);
    for (due, row) in found {
        let info = &row.summary.info;
        table.row([
            (Tone::Plain, due.session.to_string()),
            (Tone::Attention, word(due).to_owned()),
            (Tone::Quiet, times::relative(info.active_at, view.now())),
            (Tone::Plain, info.title.as_deref().map(one_line).unwrap_or_default()),
        ]);
    }
    table.print(ui)?;
    ui.note("Nothing was changed. The same command with --yes does it.")
}

/// How a graph's checkpoints are pruned.
struct Checkpoints {
    keep: usize,
    clean_only: bool,
    yes: bool,
}

async fn prune_checkpoints(
    ui: &mut Ui,
    cx: &Context,
    session: &str,
    how: Checkpoints,
) -> Result<Exit> {
    let (view, id) = cx.view_of(session).await?;
    graphs::require_graph(&view, &id).await?;
    let Checkpoints { keep, clean_only, yes } = how;
    let pruned = if yes {
        drop(view);
        if let Some(client) = graphs::server_for_change(cx, &id).await? {
            let request = PruneCheckpointsRequest {
                keep_count: Some(keep),
                keep_clean_only: clean_only,
                dry_run: false,
            };
            let pruned = client.prune_checkpoints(&id, &request).await?.pruned;
            pruned.iter().map(|id| Ok(id.parse()?)).collect::<Result<_>>()?
        } else {
            let host = GraphHost::open(cx)?;
            let pruned = checkpoints::prune(&host.store, &id, keep, clean_only).await;
            pruned.map_err(|error| graphs::owned(cx, error))?
        }
    } else {
        checkpoints::prune_plan(view.store(), &id, keep, clean_only).await?
    };
    if ui.json {
        ui.json_line(&json!({"session_id": id, "pruned": pruned, "done": yes}))?;
        return Ok(Exit::Good);
    }
    for checkpoint in &pruned {
        ui.line(checkpoint)?;
    }
    let count = pruned.len();
    if yes {
        ui.note(&format!("{count} checkpoints were pruned. What they held stays in the log."))?;
    } else {
        let what = format!("{count} checkpoints would be pruned.");
        ui.note(&format!("{what} Nothing was changed; the same command with --yes does it."))?;
    }
    Ok(Exit::Good)
}
