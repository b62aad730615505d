//! `piton agents sessions`: the conversations that an agent keeps; closes and deletes one.

use std::path::PathBuf;

use piton_api::agent_view::AgentSessionQuery;
use serde_json::json;

use super::super::sessions::new::folder;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::server;
use crate::table::{Column, Table};
use crate::text::one_line;
use crate::ui::{Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton agents sessions codex
  piton agents sessions codex --folder .
  piton agents sessions codex --close ID
  piton agents sessions codex --delete ID          What would be deleted
  piton agents sessions codex --delete ID --yes    Delete it

JSON: one object per conversation and line: agent_session_id, folder, title, updated_at; of
--close and --delete one object: agent, agent_session_id, closed or deleted.";

/// List the conversations that an agent keeps, close or delete one
///
/// Asks a running agent of that profile. Not every agent offers this. A
/// conversation of a session that is not closed is refused. Piton's own log of a session stays.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The agent's id
    agent: String,
    /// Only conversations of this folder
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Close this conversation of the agent
    #[arg(long, value_name = "ID", conflicts_with_all = ["folder", "delete"])]
    close: Option<String>,
    /// Delete this conversation of the agent; without --yes it only prints what it would do
    #[arg(long, value_name = "ID", conflicts_with = "folder")]
    delete: Option<String>,
    /// Do it instead of printing what would be done
    #[arg(long, short, requires = "delete")]
    yes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Closed,
    Deleted,
    /// It was only shown.
    Nothing,
}

fn said(ui: &mut Ui, agent: &str, id: &str, done: Done) -> Result<Exit> {
    if ui.json {
        let name = if done == Done::Closed { "closed" } else { "deleted" };
        ui.json_line(&json!({
            "agent": agent, "agent_session_id": id, name: done != Done::Nothing,
        }))?;
        return Ok(Exit::Good);
    }
    let id = one_line(id);
    match done {
        Done::Closed => ui.line(format_args!("Conversation {id} of {agent} is closed."))?,
        Done::Deleted => ui.line(format_args!("Conversation {id} of {agent} is deleted."))?,
        Done::Nothing => {
            ui.line(format_args!("Conversation {id} of {agent} would be deleted."))?;
            ui.note("Pass --yes to delete it.")?;
        }
    }
    Ok(Exit::Good)
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let client = server::required(&cx.settings.data.value)?;
    if let Some(id) = &args.close {
        client.close_agent_session(&args.agent, id).await?;
        return said(ui, &args.agent, id, Done::Closed);
    }
    if let Some(id) = &args.delete {
        if args.yes {
            client.delete_agent_session(&args.agent, id).await?;
        }
        return said(ui, &args.agent, id, if args.yes { Done::Deleted } else { Done::Nothing });
    }
    let folder = args.folder.as_deref().map(folder).transpose()?;
    let mut table = Table::new([Column::Whole("ID"), Column::Cut("TITLE"), Column::Cut("FOLDER")]);
    let (mut after, mut count) = (None, 0);
    loop {
        let query = AgentSessionQuery { folder: folder.clone(), after };
        let page = client.agent_sessions(&args.agent, &query).await?;
        for session in &page.sessions {
            count += 1;
            if ui.json {
                ui.json_line(session)?;
                continue;
            }
            table.row([
                (Tone::Title, session.agent_session_id.clone()),
                (Tone::Plain, session.title.as_deref().map(one_line).unwrap_or_default()),
                (Tone::Quiet, session.folder.clone().unwrap_or_default()),
            ]);
        }
        after = page.next;
        // An agent that never comes to an end is not followed for ever.
        if after.is_none() || count >= 1_000 {
            break;
        }
    }
    if ui.json {
        return Ok(Exit::Good);
    }
    if count == 0 {
        ui.note("The agent has no conversations.")?;
        return Ok(Exit::Good);
    }
    table.print(ui)?;
    Ok(Exit::Good)
}
