//! `piton sessions login`: logs a session's agent in.

use piton_api::agent_view::LoginRequest;

use super::act;
use crate::backend;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions login SESSION                       With the only method that the agent named
  piton sessions login SESSION --method api-key

JSON: one object: session_id, run_id (null), changed, last_seq, status.";

/// Log in to a session's agent
///
/// Starts the agent if it does not run; it logs in before it opens its conversation.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
    /// The login method, by the id that the agent gives it
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let (client, id) = backend::server_for(cx, &args.session).await?;
    let login = LoginRequest { auth_method: args.method };
    act(ui, &client, &id, client.log_in(&id, &login), "has an agent that is logged in").await
}
