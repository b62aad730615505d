//! `piton sessions abandon`: gives up an executor that does not respond.

use piton_api::session::AbandonRequest;

use super::act;
use crate::backend;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions abandon SESSION
  piton sessions resume SESSION       Start another agent and continue

JSON: one object: session_id, run_id, changed (false if it was so already), last_seq, status.";

/// Give up an executor that does not respond
///
/// Piton starts no second agent while the first may be alive. If the executor will not come back, this
/// interrupts its run, and another agent can be started. If the executor returns, its agent is ended.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
    /// Only if this execution is still the session's
    #[arg(long, value_name = "EXECUTION")]
    execution: Option<String>,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let (client, id) = backend::server_for(cx, &args.session).await?;
    let request = AbandonRequest { agent_execution_id: args.execution };
    act(ui, &client, &id, client.abandon(&id, &request), "has no executor any more").await
}
