//! `piton status`: whether a server runs, and where.

use piton_api::agent::Execution;
use piton_core::state::{AgentStatus, ExecutorStatus};
use serde_json::json;

use crate::context::Context;
use crate::error::{Exit, Result};
use crate::server;
use crate::ui::{Tone, Ui};

/// Show whether a server runs on the data folder, and its address
///
/// Exits with 1 if none runs.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "JSON: one object: running, address, public (the address for other machines, if it is another one), pid, \
                        version, executions, agents (those that run), memory_bytes (of agents and what runs beside them)."
)]
pub(crate) struct Args {}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, _: Args) -> Result<Exit> {
    let data = &cx.settings.data.value;
    let (Some(place), Some(client)) = (server::find(data), server::connect(data)) else {
        if ui.json {
            ui.json_line(&json!({"running": false}))?;
        } else {
            ui.line("No server runs. Agents that a server started keep running.")?;
        }
        return Ok(Exit::Failed);
    };
    let executions = client.executors().await?.executions;
    let is_live = |status| matches!(status, Some(ExecutorStatus::Ready | ExecutorStatus::Starting));
    let live = executions.iter().filter(|execution| is_live(execution.status.known())).count();
    let runs = |execution: &&Execution| {
        let agent = execution.agent_status.as_ref().and_then(piton_api::WireEnum::known);
        is_live(execution.status.known())
            && matches!(agent, Some(AgentStatus::Ready | AgentStatus::Starting))
    };
    let agents = executions.iter().filter(runs).count();
    let memory: u64 = executions.iter().filter_map(|execution| execution.memory_bytes).sum();
    if ui.json {
        ui.json_line(&json!({
            "running": true, "address": place.address, "public": place.public, "pid": place.pid,
            "version": place.version, "executions": live, "agents": agents, "memory_bytes": memory,
        }))?;
    } else {
        let address = ui.paint(Tone::Good, &place.address);
        ui.line(format_args!("Piton {} listens on {address} (pid {})", place.version, place.pid))?;
        if let Some(public) = &place.public {
            ui.line(format_args!("Others find it at {public}"))?;
        }
        let megabytes = memory.div_ceil(1024 * 1024);
        ui.line(format_args!("Live agents: {agents} ({megabytes} MB)"))?;
    }
    Ok(Exit::Good)
}
