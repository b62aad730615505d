//! `piton sessions repair`: makes a worktree again that was removed.

use crate::backend;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions repair SESSION
  piton sessions resume SESSION                   Then resume the session

JSON: one object: session_id, worktree_path, worktree_branch.";

/// Recreate a session's removed worktree from its branch
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let (client, id) = backend::server_for(cx, &args.session).await?;
    let made = client.repair_worktree(&id).await?;
    if ui.json {
        ui.json_line(&made)?;
        return Ok(Exit::Good);
    }
    let (folder, branch) = (&made.worktree_path, &made.worktree_branch);
    ui.line(format_args!("The worktree {folder} is there, on the branch {branch}."))?;
    Ok(Exit::Good)
}
