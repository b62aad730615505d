//! `piton sessions …`

mod abandon;
mod answer;
mod answer_graph;
mod archive;
mod artifacts;
mod cancel;
mod checkpoints;
mod cleanup;
mod close;
mod delete;
mod diff;
mod dismiss;
mod export;
mod export_text;
mod fork;
mod import;
mod inspect;
mod list;
mod log;
mod login;
pub(super) mod new;
mod pause;
pub(super) mod prompt;
mod prune;
mod queue;
mod redact;
mod rename;
mod repair;
mod resume;
mod resume_token;
pub(crate) mod rewind;
mod search;
pub(super) mod set;
mod show;
mod show_agent;
mod timeline;
mod waits;

use clap::Subcommand;
use piton_api::client::{self, Client};
use piton_api::session::SessionRun;
use piton_core::id::SessionId;
use serde_json::json;

pub(crate) use list::{StatusFilter, print_table};

use crate::backend::Settled;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::ui::Ui;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    New(new::Args),
    List(list::Args),
    Search(search::Args),
    Show(show::Args),
    Log(log::Args),
    Checkpoints(checkpoints::Args),
    Inspect(inspect::Args),
    Diff(diff::Args),
    Timeline(timeline::Args),
    Artifacts(artifacts::Args),
    Waits(waits::Args),
    Answer(answer::Args),
    Prompt(prompt::Args),
    Set(set::Args),
    Rename(rename::Args),
    Login(login::Args),
    /// List, edit, move and remove queued prompts
    #[command(subcommand)]
    Queue(queue::Command),
    Resume(resume::Args),
    Pause(pause::Args),
    Cancel(cancel::Args),
    Dismiss(dismiss::Args),
    Close(close::Args),
    Fork(fork::Args),
    Rewind(rewind::Args),
    Undo(rewind::UndoArgs),
    Abandon(abandon::Args),
    ResumeToken(resume_token::Args),
    Redact(redact::Args),
    Cleanup(cleanup::Args),
    Repair(repair::Args),
    Delete(delete::Args),
    Archive(archive::Args),
    Prune(prune::Args),
    Export(export::Args),
    Import(import::Args),
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, command: Command) -> Result<Exit> {
    match command {
        Command::New(args) => new::run(ui, cx, args).await,
        Command::List(args) => list::run(ui, cx, args).await,
        Command::Search(args) => search::run(ui, cx, args).await,
        Command::Show(args) => show::run(ui, cx, args).await,
        Command::Log(args) => log::run(ui, cx, args).await,
        Command::Checkpoints(args) => checkpoints::run(ui, cx, args).await,
        Command::Inspect(args) => inspect::run(ui, cx, args).await,
        Command::Diff(args) => diff::run(ui, cx, args).await,
        Command::Timeline(args) => timeline::run(ui, cx, args).await,
        Command::Artifacts(args) => artifacts::run(ui, cx, args).await,
        Command::Waits(args) => waits::run(ui, cx, args).await,
        Command::Answer(args) => answer::run(ui, cx, args).await,
        Command::Prompt(args) => prompt::run(ui, cx, args).await,
        Command::Set(args) => set::run(ui, cx, args).await,
        Command::Rename(args) => rename::run(ui, cx, args).await,
        Command::Login(args) => login::run(ui, cx, args).await,
        Command::Queue(command) => queue::run(ui, cx, command).await,
        Command::Resume(args) => resume::run(ui, cx, args).await,
        Command::Pause(args) => pause::run(ui, cx, args).await,
        Command::Cancel(args) => cancel::run(ui, cx, args).await,
        Command::Dismiss(args) => dismiss::run(ui, cx, args).await,
        Command::Close(args) => close::run(ui, cx, args).await,
        Command::Fork(args) => fork::run(ui, cx, args).await,
        Command::Rewind(args) => rewind::run(ui, cx, args).await,
        Command::Undo(args) => rewind::undo(ui, cx, args).await,
        Command::Abandon(args) => abandon::run(ui, cx, args).await,
        Command::ResumeToken(args) => resume_token::run(ui, cx, args).await,
        Command::Redact(args) => redact::run(ui, cx, args).await,
        Command::Cleanup(args) => cleanup::run(ui, cx, args).await,
        Command::Repair(args) => repair::run(ui, cx, args).await,
        Command::Delete(args) => delete::run(ui, cx, args).await,
        Command::Archive(args) => archive::run(ui, cx, args).await,
        Command::Prune(args) => prune::run(ui, cx, args).await,
        Command::Export(args) => export::run(ui, cx, args).await,
        Command::Import(args) => import::run(ui, cx, args).await,
    }
}

/// Says what became of a session's run.
fn settled(
    ui: &mut Ui,
    session: &SessionId,
    done: &Settled,
    is_so: &str,
    was_so: &str,
) -> Result<Exit> {
    let Settled { run_id, changed, last_seq } = done;
    if ui.json {
        ui.json_line(&json!({
            "session_id": session, "run_id": run_id, "changed": changed, "last_seq": last_seq,
        }))?;
    } else {
        let run = run_id.as_ref().map_or_else(|| "The run".to_owned(), |run| format!("Run {run}"));
        let so = if *changed { is_so } else { was_so };
        ui.line(format_args!("{run} of session {session} {so}."))?;
    }
    Ok(Exit::Good)
}

/// Has the server do something to a session whose agent it needs, and says where that leads.
async fn act(
    ui: &mut Ui,
    client: &Client,
    session: &SessionId,
    request: impl Future<Output = client::Result<SessionRun>>,
    is_so: &str,
) -> Result<Exit> {
    let before = client.session(session).await?.summary;
    let done = request.await?;
    let after = client.session(session).await?.summary;
    if ui.json {
        ui.json_line(&json!({
            "session_id": session,
            "run_id": done.run_id,
            "changed": after.last_seq > before.last_seq,
            "last_seq": after.last_seq,
            "status": after.status,
            "pending": done.pending,
        }))?;
    } else {
        let is_so = if done.pending { "is starting" } else { is_so };
        ui.line(format_args!("Session {session} {is_so}. {}", after.sentence))?;
    }
    Ok(Exit::Good)
}
