//! `piton sessions close`: the end of a session; its log stays.

use piton_api::session::CloseRequest;
use piton_core::event;

use super::act;
use crate::backend;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions close SESSION
  piton sessions close SESSION --outcome cancelled

JSON: one object: session_id, run_id (null), changed (false if it was so already), last_seq,
status.";

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Outcome {
    Completed,
    Failed,
    Cancelled,
}

impl From<Outcome> for event::Outcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Completed => Self::Completed,
            Outcome::Failed => Self::Failed,
            Outcome::Cancelled => Self::Cancelled,
        }
    }
}

/// Close a session: it can be read, archived and deleted, but not resumed
///
/// Starts a server in the background if none runs, so that the session's agent ends too.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
    /// The session's outcome
    #[arg(long, value_name = "OUTCOME", default_value = "completed")]
    outcome: Outcome,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let (client, id) = backend::server_for(cx, &args.session).await?;
    let close = CloseRequest { outcome: Some(event::Outcome::from(args.outcome).into()) };
    act(ui, &client, &id, client.close(&id, &close), "is closed").await
}
