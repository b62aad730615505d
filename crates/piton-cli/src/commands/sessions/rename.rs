//! `piton sessions rename`: gives a session another title.

use piton_api::session::RenameRequest;

use super::act;
use crate::backend;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions rename SESSION 'Fix the clock test'
  piton sessions rename SESSION --clear        Show the beginning of the first prompt again

JSON: one object: session_id, run_id (null), changed, last_seq, status.";

/// Rename a session
///
/// Also a closed one. Does not change the session's branch or folder.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
    /// The new title
    #[arg(required_unless_present = "clear", conflicts_with = "clear")]
    title: Option<String>,
    /// Remove the title
    #[arg(long)]
    clear: bool,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let (client, id) = backend::server_for(cx, &args.session).await?;
    let rename = RenameRequest { title: args.title };
    let is_so = if args.clear { "has no title of its own any more" } else { "is renamed" };
    act(ui, &client, &id, client.rename_session(&id, &rename), is_so).await
}
