//! `piton sessions …`

mod archive;
mod cancel;
mod delete;
mod dismiss;
mod export;
mod import;
mod list;
mod log;
mod prune;
mod redact;
mod show;
mod token;
mod waits;

use clap::Subcommand;
use piton_core::decide::Verdict;
use piton_core::id::SessionId;
use piton_runtime::{Ack, View};
use serde_json::json;

use crate::context::Context;
use crate::error::{Exit, Result};
use crate::ui::Ui;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    List(list::Args),
    Show(show::Args),
    Log(log::Args),
    Waits(waits::Args),
    Token(token::Args),
    Cancel(cancel::Args),
    Dismiss(dismiss::Args),
    Redact(redact::Args),
    Delete(delete::Args),
    Archive(archive::Args),
    Prune(prune::Args),
    Export(export::Args),
    Import(import::Args),
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, command: Command) -> Result<Exit> {
    match command {
        Command::List(args) => list::run(ui, cx, args).await,
        Command::Show(args) => show::run(ui, cx, args).await,
        Command::Log(args) => log::run(ui, cx, args).await,
        Command::Waits(args) => waits::run(ui, cx, args).await,
        Command::Token(args) => token::run(ui, cx, args).await,
        Command::Cancel(args) => cancel::run(ui, cx, args).await,
        Command::Dismiss(args) => dismiss::run(ui, cx, args).await,
        Command::Redact(args) => redact::run(ui, cx, args).await,
        Command::Delete(args) => delete::run(ui, cx, args).await,
        Command::Archive(args) => archive::run(ui, cx, args).await,
        Command::Prune(args) => prune::run(ui, cx, args).await,
        Command::Export(args) => export::run(ui, cx, args).await,
        Command::Import(args) => import::run(ui, cx, args).await,
    }
}

/// Says what became of a session's run.
async fn settled(
    ui: &mut Ui,
    view: &View,
    session: &SessionId,
    ack: &Ack,
    is_so: &str,
    was_so: &str,
) -> Result<Exit> {
    let run = view.state(session).await?.facts.run.map(|run| run.run_id);
    let changed = ack.verdict != Verdict::Already;
    if ui.json {
        ui.json_line(&json!({
            "session": session, "run_id": run, "changed": changed, "last_seq": ack.last_seq,
        }))?;
    } else {
        let run = run.map_or_else(|| "The run".to_owned(), |run| format!("Run {run}"));
        ui.line(format_args!(
            "{run} of session {session} {}.",
            if changed { is_so } else { was_so }
        ))?;
    }
    Ok(Exit::Good)
}
