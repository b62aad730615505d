//! `piton sessions cancel`: gives a run up.

use piton_core::id::RunId;

use super::settled;
use crate::backend::{SessionBackend, Settling};
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions cancel SESSION
  piton sessions cancel SESSION --run RUN          Only if this is still its run

JSON: one object: session_id, run_id, changed (false if it was so already), last_seq.";

/// Cancel a session's run
///
/// The server stops the turn; the agent keeps running. Without a server, this cancels a run that no
/// process owns.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
    /// The run [default: the latest]
    #[arg(long, value_name = "RUN", value_parser = str::parse::<RunId>)]
    run: Option<RunId>,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let (backend, id) = SessionBackend::for_session(cx, &args.session).await?;
    let done = backend.settle(&id, args.run, Settling::Cancel).await?;
    settled(ui, &id, &done, "is cancelled", "was cancelled already")
}
