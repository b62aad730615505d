//! `piton sessions pause`: stops a turn that is to go on later.

use piton_api::session::RunRequest;
use piton_core::id::RunId;

use super::act;
use crate::backend;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions pause SESSION
  piton sessions resume SESSION     Continue the run

JSON: one object: session_id, run_id, changed (false if it was so already), last_seq, status.";

/// Pause a session's run until it is resumed
///
/// Starts a server in the background if none runs; it takes over the running agent.
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
    let (client, id) = backend::server_for(cx, &args.session).await?;
    let run = RunRequest { run_id: args.run.map(|run| run.to_string()) };
    act(ui, &client, &id, client.pause(&id, &run), "is paused").await
}
