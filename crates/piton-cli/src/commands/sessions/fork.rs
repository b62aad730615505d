//! `piton sessions fork`: a session that begins with a copy of another one's conversation.

use piton_api::agent_view::ForkRequest;
use piton_core::id::SessionId;
use piton_graph::checkpoints;
use serde_json::json;

use crate::backend;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::graphs::{self, GraphHost};
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions fork SESSION
  piton attach \"$(piton sessions fork SESSION)\"
  piton sessions fork SESSION --checkpoint 20a1        A graph, up to a checkpoint

JSON: one object: session_id.";

/// Create a session that begins with a copy of another session's conversation
///
/// The agent makes the copy, at its newest turn; agents that do not offer this are refused. The new
/// session works in the same folder.
///
/// Graphs: the new session has everything up to a checkpoint; `piton sessions resume` continues it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
    /// The new session's title [default: the session's]
    #[arg(long, value_name = "TITLE")]
    title: Option<String>,
    /// Graphs: the checkpoint to copy up to [default: the newest]
    #[arg(long, value_name = "CHECKPOINT", conflicts_with = "title")]
    checkpoint: Option<String>,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let (view, id) = cx.view_of(&args.session).await?;
    if args.checkpoint.is_some() {
        graphs::require_graph(&view, &id).await?;
    }
    if graphs::is_graph(&view, &id).await? {
        drop(view);
        return fork_graph(ui, cx, &id, args.checkpoint.as_deref()).await;
    }
    drop(view);
    let (client, id) = backend::server_for(cx, &args.session).await?;
    let forked =
        client.fork(&id, &ForkRequest { title: args.title, ..ForkRequest::default() }).await?;
    if ui.json {
        ui.json_line(&forked)?;
    } else {
        ui.line(&forked.session_id)?;
    }
    Ok(Exit::Good)
}

async fn fork_graph(
    ui: &mut Ui,
    cx: &Context,
    session: &SessionId,
    named: Option<&str>,
) -> Result<Exit> {
    let view = cx.existing_view()?;
    let checkpoint = match named {
        Some(named) => checkpoints::find(view.store(), session, named).await?,
        None => checkpoints::load(view.store(), session, None).await?.checkpoint_id,
    };
    drop(view);
    // No process owns the new session yet: only the store decides who writes it.
    let forked = match graphs::server_of_store(cx)? {
        Some(client) => {
            let checkpoint_id = Some(checkpoint.to_string());
            let request = ForkRequest { checkpoint_id, ..ForkRequest::default() };
            client.fork(session, &request).await?.session_id
        }
        None => checkpoints::fork(&GraphHost::open(cx)?.store, session, &checkpoint).await?,
    };
    if ui.json {
        ui.json_line(&json!({"session_id": forked, "from_checkpoint_id": checkpoint}))?;
    } else {
        ui.line(&forked)?;
        ui.note(&format!("Continue with: {} sessions resume {forked}", ui.call))?;
    }
    Ok(Exit::Good)
}
