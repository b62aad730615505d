//! `piton sessions dismiss`: marks an interrupted run as handled without resuming it.

use piton_core::id::RunId;

use super::settled;
use crate::backend::{SessionBackend, Settling};
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions dismiss SESSION
  piton sessions dismiss SESSION --run RUN          Only if this is still its run

JSON: one object: session_id, run_id, changed (false if it was so already), last_seq.";

/// Mark an interrupted run as handled without resuming it
///
/// The session is idle afterwards; its log keeps what happened.
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
    let done = backend.settle(&id, args.run, Settling::Dismiss).await?;
    settled(ui, &id, &done, "is dismissed", "was dismissed already")
}
