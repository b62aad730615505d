//! `piton mcp`: graphs and their checkpoints as tools of the Model Context Protocol, on standard input and
//! output. What a tool starts runs in this process, or on the server that alone writes to the store.

mod parameters;
mod runs;
mod tools;

use piton_core::Code;
use rmcp::ServiceExt as _;
use rmcp::transport::stdio;

use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::graphs;
use tools::Tools;

const EXAMPLES: &str = "\
Examples:
  piton mcp
  claude mcp add piton -- piton mcp

Tools: list_resumable_sessions, list_session_checkpoints, inspect_checkpoint, resume_session,
run_graph, fork_session, answer_wait. docs/reference/mcp.md describes their parameters and
results.

Runs that a tool started are paused when the client leaves, and can be resumed.";

/// Serve graphs as MCP tools on standard input and output
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {}

pub(crate) async fn run(cx: Context, _args: Args) -> Result<Exit> {
    let tools = Tools::new(cx);
    // Beside the server of a store of files, everything is done there.
    if graphs::server_of_store(tools.context())?.is_none() {
        tools.host()?;
    }
    let runs = tools.runs().clone();
    let failed = |error: &dyn std::error::Error| {
        Error::new(Code::RequestInvalid, "The MCP client could not be served").because(error)
    };
    let served = tools.serve(stdio()).await.map_err(|error| failed(&error))?;
    let ended = served.waiting().await;
    runs.pause_all().await;
    ended.map_err(|error| failed(&error))?;
    Ok(Exit::Good)
}
