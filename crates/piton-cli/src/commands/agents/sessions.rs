//! `piton agents sessions`: the conversations that an agent has.

use std::path::PathBuf;

use piton_api::agent_view::AgentSessionQuery;

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

JSON: one object per conversation and line: agent_session_id, folder, title, updated_at.";

/// List the conversations that an agent keeps
///
/// Asks an agent of that name that runs for one of the sessions. Not every agent offers this.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The agent's id
    agent: String,
    /// Only conversations of this folder
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let client = server::required(&cx.settings.data.value)?;
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
