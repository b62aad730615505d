//! `piton sessions cleanup`: removes a session's worktree, never what is nowhere else.

use piton_api::worktree::CleanupQuery;

use crate::backend;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions cleanup SESSION
  piton sessions cleanup SESSION --force          Uncommitted and unpushed work is lost

JSON: one object: session_id, worktree_path, worktree_branch, kept_branch, changed (false if it
was so already).";

/// Remove a session's worktree, and its branch if its commits are on another branch
///
/// Refused while a turn runs, and if there are uncommitted changes, untracked files, or commits that no
/// other branch, tag or remote has. Ends an idle agent.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
    /// Remove the worktree and branch with everything in them, and end the agent
    #[arg(long)]
    force: bool,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let (client, id) = backend::server_for(cx, &args.session).await?;
    let done = client.clean_up_worktree(&id, &CleanupQuery { force: Some(args.force) }).await?;
    if ui.json {
        ui.json_line(&done)?;
        return Ok(Exit::Good);
    }
    let was = if done.changed { "is removed" } else { "was removed before" };
    let branch = if done.kept_branch { "is kept" } else { "is gone, too" };
    let (folder, name) = (&done.worktree_path, &done.worktree_branch);
    ui.line(format_args!("The worktree {folder} {was}; its branch {name} {branch}."))?;
    Ok(Exit::Good)
}
