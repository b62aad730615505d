//! `piton sessions fork`: a session that begins with a copy of another one's conversation.

use piton_api::agent_view::ForkRequest;

use crate::backend;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions fork sess_0199
  piton attach \"$(piton sessions fork sess_0199)\"

JSON: one object: session_id.";

/// Create a session that begins with a copy of another one's conversation
///
/// The agent makes the copy, at its newest turn; one that does not offer this is refused. The new session
/// works in the same folder.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session's id, or its beginning
    session: String,
    /// What the new session is called [default: as the session]
    #[arg(long, value_name = "TITLE")]
    title: Option<String>,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let (client, id) = backend::server_for(cx, &args.session).await?;
    let forked = client.fork(&id, &ForkRequest { title: args.title, start: None }).await?;
    if ui.json {
        ui.json_line(&forked)?;
    } else {
        ui.line(&forked.session_id)?;
    }
    Ok(Exit::Good)
}
