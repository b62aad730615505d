//! `piton sessions resume`: goes on with what was paused or interrupted.

use piton_api::session::{AgentRequest, StartRequest};

use super::act;
use crate::backend;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions resume sess_0199
  piton sessions resume sess_0199 --agent codex   A log that another program began
  piton sessions resume sess_0199 --fresh      The agent cannot go on with its conversation
  piton sessions list --status paused --json | jq -r .session_id | xargs -n 1 piton sessions resume

JSON: one object: session, run_id (null if there was only an agent to start), changed, last_seq,
status.";

/// Go on with a session: start its agent, and continue a paused or interrupted run
///
/// A server is started in the background if none runs. `piton attach` shows what is said.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session's id, or its beginning
    session: String,
    /// Without the conversation that the agent had, if it cannot go on with it: it begins another, and
    /// is told the history where its profile allows that
    #[arg(long)]
    fresh: bool,
    /// The agent of a session whose log names none, because another program began it
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let (client, id) = backend::server_for(cx, &args.session).await?;
    if let Some(agent) = args.agent {
        client.assign_agent(&id, &AgentRequest { agent_profile_id: agent }).await?;
    }
    if args.fresh {
        client.start(&id, &StartRequest { fresh: true }).await?;
    }
    act(ui, &client, &id, client.resume(&id), "goes on").await
}
