//! `piton sessions delete`: removes logs for good; the store's own log keeps a note.

use piton_core::decide::Removal;
use piton_core::id::SessionId;
use serde_json::json;

use crate::backend::{LeftWorktree, SessionBackend};
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::show;
use crate::table::{Column, Table};
use crate::text::one_line;
use crate::times;
use crate::ui::{Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton sessions delete SESSION                 What would be deleted
  piton sessions delete SESSION --yes           Delete it
  piton sessions delete SESSION OTHER --reason 'asked to forget' --yes
  piton sessions export SESSION                 A copy first

The metadata log keeps a note: the id, the number of records, the end of its hash chain and the
reason; nothing of what was in it. Bundles and backups elsewhere are not touched. The session's
worktree is removed too, unless work would be lost with it.

JSON: one object per session and line: session_id, deleted, refusal (null, or {code, message}).";

/// Delete sessions permanently
///
/// Without --yes it only prints what it would do. A session that
/// another running process owns is never deleted.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The sessions: their ids, or the beginning or end of each
    #[arg(required = true)]
    sessions: Vec<String>,
    /// Delete even if a run is open or an agent may still be running
    #[arg(long)]
    force: bool,
    /// The reason, kept in the metadata log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Do it instead of printing what would be done
    #[arg(long, short)]
    yes: bool,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let how = if args.force { Removal::DeleteForced } else { Removal::Delete };
    let (backend, ids) = SessionBackend::for_sessions(cx, &args.sessions).await?;
    if !args.yes {
        return preview(ui, cx, &backend, &ids, how).await;
    }
    let mut exit = Exit::Good;
    for id in &ids {
        match backend.delete(id, how, args.reason.as_deref()).await {
            Ok(left) => {
                said(ui, id)?;
                if let Some(LeftWorktree { path, because }) = left {
                    ui.warn(&format!("Its worktree is left at {path}. {because}"))?;
                }
            }
            // What keeps one from being deleted does not keep the others.
            Err(error) => exit = ui.report(&with_force(error).about(id.as_str())),
        }
    }
    Ok(exit)
}

pub(super) fn said(ui: &mut Ui, id: &SessionId) -> Result<()> {
    if ui.json {
        ui.json_line(&json!({"session_id": id, "deleted": true, "refusal": null}))
    } else {
        ui.line(format_args!("Session {id} is deleted."))
    }
}

async fn preview(
    ui: &mut Ui,
    cx: &Context,
    backend: &SessionBackend,
    ids: &[SessionId],
    how: Removal,
) -> Result<Exit> {
    let view = cx.existing_view()?;
    let mut table = Table::new([
        Column::Whole("SESSION"),
        Column::Whole("STATUS"),
        Column::Whole("RECORDS"),
        Column::Whole("ACTIVE"),
        Column::Cut("TITLE"),
    ]);
    let mut refusals = Vec::new();
    for id in ids {
        let state = view.state(id).await?;
        let status = view.status(&state.facts);
        let may = backend.check_removal(id, &state, how).await;
        let refusal = may.err().map(|error| with_force(error).about(id.as_str()));
        if ui.json {
            let refusal = refusal.map(|error| {
                let code = error.code().map(piton_core::Code::as_str);
                json!({"code": code, "message": error.message()})
            });
            ui.json_line(&json!({"session_id": id, "deleted": false, "refusal": refusal}))?;
            continue;
        }
        refusals.extend(refusal);
        let info = state.info.as_ref();
        table.row([
            (Tone::Plain, id.to_string()),
            (show::status_tone(status.name), show::status_word(status.name).to_owned()),
            (Tone::Plain, state.last_seq.to_string()),
            (
                Tone::Quiet,
                info.map(|info| times::relative(info.active_at, view.now())).unwrap_or_default(),
            ),
            (
                Tone::Plain,
                info.and_then(|info| info.title.as_deref()).map(one_line).unwrap_or_default(),
            ),
        ]);
    }
    if ui.json {
        return Ok(Exit::Good);
    }
    table.print(ui)?;
    let free = ids.len() - refusals.len();
    for refusal in &refusals {
        ui.warn(refusal.message())?;
    }
    match free {
        0 => ui.note("Nothing was deleted, and --yes would delete nothing."),
        1 => {
            ui.note("Nothing was deleted. The same command with --yes deletes 1 session, for good.")
        }
        free => ui.note(&format!(
            "Nothing was deleted. The same command with --yes deletes {free} sessions, for good."
        )),
    }?;
    Ok(Exit::Good)
}

/// What is at work in a session can be passed over; an owner cannot.
fn with_force(error: Error) -> Error {
    match error.code() {
        Some(piton_core::Code::RunInProgress | piton_core::Code::ExecutorAlive) => {
            error.with_hint("Cancel it first, or delete the session all the same with --force.")
        }
        _ => error,
    }
}
