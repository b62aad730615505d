//! `piton sessions resume`: starts a session's agent and continues its run, or continues a graph.

use std::path::PathBuf;

use piton_api::session::{AgentRequest, ContextChoice, ResumeRequest};

use super::act;
use crate::backend;
use crate::commands::run::{self, Resume};
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::graphs;
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions resume SESSION
  piton sessions resume SESSION --continue         Continue the interrupted run
  piton sessions resume SESSION --with-history     The agent cannot load its conversation
  piton sessions resume SESSION --agent codex      The log names no agent
  piton sessions resume SESSION --set api_key=@env:API_KEY       A graph, with a value set
  piton sessions resume SESSION --checkpoint 20a1                A graph, from an older checkpoint
  piton sessions list --status paused --json | jq -r .session_id | xargs -n 1 piton sessions resume

JSON: one object: session_id, run_id (null if no run was continued), changed, last_seq, status. Of a
graph: one event per line, as `piton run --json` prints them.";

/// Resume a session: start its agent and continue a paused run, or continue a graph
///
/// An interrupted run is continued with `--continue`, or if the setting `resume.continue_run` is `auto`.
/// Starts a server in the background if none runs. `piton attach` shows what the agent says.
///
/// A graph continues in this process, at its last position or from an older checkpoint; what came after
/// that checkpoint stays in the log.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "flags of the command line")]
pub(crate) struct Args {
    /// The session: its id, the beginning or end of it, or @last
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
    /// The agent, if the session's log names none because another program created it
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// The checkpoint to resume from: its id, or the beginning or end of it
    #[arg(long, value_name = "CHECKPOINT", help_heading = "Graphs")]
    checkpoint: Option<String>,
    /// Set a memory key first: key=value, key=@FILE, key=@env:NAME
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Graphs")]
    set: Vec<String>,
    /// Resume with this graph file instead of the original
    #[arg(long, value_name = "FILE", help_heading = "Graphs")]
    graph: Option<PathBuf>,
    /// Resume with the original graph although its file changed
    #[arg(long, conflicts_with = "graph", help_heading = "Graphs")]
    recorded_graph: bool,
    /// Checkpoint options, YAML or JSON
    #[arg(long, value_name = "FILE", help_heading = "Graphs")]
    checkpoint_config: Option<PathBuf>,
}

impl Args {
    fn names_a_graph(&self) -> bool {
        self.checkpoint.is_some()
            || !self.set.is_empty()
            || self.graph.is_some()
            || self.recorded_graph
            || self.checkpoint_config.is_some()
    }
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let (view, id) = cx.view_of(&args.session).await?;
    if args.names_a_graph() {
        graphs::require_graph(&view, &id).await?;
    }
    if graphs::is_graph(&view, &id).await? {
        drop(view);
        let how = Resume {
            checkpoint: args.checkpoint,
            set: args.set,
            graph: args.graph,
            is_graph_recorded: args.recorded_graph,
            checkpoint_config: args.checkpoint_config,
        };
        return Box::pin(run::resume(ui, cx, &id, how)).await;
    }
    drop(view);
    let (client, id) = backend::server_for(cx, &args.session).await?;
    if let Some(agent) = args.agent {
        client.assign_agent(&id, &AgentRequest { agent_profile_id: agent }).await?;
    }
    let context = if args.with_history {
        Some(ContextChoice::Injected)
    } else {
        args.fresh.then_some(ContextChoice::None)
    };
    // Before the agent starts: the user may want to look at the workspace first.
    for notice in client.session(&id).await?.resume_notices {
        ui.note(&notice.sentence)?;
    }
    let how = ResumeRequest { continue_run: args.continue_run.then_some(true), context };
    act(ui, &client, &id, client.resume_with(&id, &how), "is resumed").await
}
