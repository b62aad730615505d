//! `piton sessions resume`: starts a session's agent, and continues its run.

use piton_api::session::{AgentRequest, ContextChoice, ResumeRequest};

use super::act;
use crate::backend;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions resume sess_0199
  piton sessions resume sess_0199 --continue       Continue the interrupted run
  piton sessions resume sess_0199 --with-history   The agent cannot load its conversation
  piton sessions resume sess_0199 --agent codex    The log names no agent
  piton sessions list --status paused --json | jq -r .session_id | xargs -n 1 piton sessions resume

JSON: one object: session, run_id (null if no run was continued), changed, last_seq, status.";

/// Resume a session: start its agent, and continue a paused run
///
/// An interrupted run is continued with `--continue`, or if the setting `resume.continue_run` is `auto`.
/// A server is started in the background if none runs. `piton attach` shows what the agent says.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session's id, or its beginning
    session: String,
    /// Continue the interrupted run
    #[arg(long = "continue")]
    continue_run: bool,
    /// Start the agent without its own conversation; its first prompt carries the history
    #[arg(long)]
    with_history: bool,
    /// Start the agent without its own conversation and without the history
    #[arg(long, conflicts_with = "with_history")]
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
    let context = if args.with_history {
        Some(ContextChoice::Injected)
    } else {
        args.fresh.then_some(ContextChoice::None)
    };
    let how = ResumeRequest { continue_run: args.continue_run.then_some(true), context };
    act(ui, &client, &id, client.resume_with(&id, &how), "is resumed").await
}
