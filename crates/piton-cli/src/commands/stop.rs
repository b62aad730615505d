//! `piton stop`: ends the server, not its agents.

use std::time::Duration;

use piton_api::server::ServerInfo;
use piton_core::Code;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::server;
use crate::ui::Ui;

/// How long a server may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Stop the server; agents keep running, and the next server takes them over
#[derive(Debug, clap::Args)]
#[command(after_help = "JSON: one object: stopped (false if none ran), pid.")]
pub(crate) struct Args {}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, _: Args) -> Result<Exit> {
    let data = &cx.settings.data.value;
    let Some(ServerInfo { pid, .. }) = server::find(data) else {
        if ui.json {
            ui.json_line(&json!({"stopped": false, "pid": null}))?;
        } else {
            ui.line("No server runs.")?;
        }
        return Ok(Exit::Good);
    };
    let target = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let Some(target) = target else { return Err(unstoppable(pid)) };
    kill_process(target, Signal::TERM).map_err(|error| unstoppable(pid).because(&error))?;
    let until = tokio::time::Instant::now() + STOP_TIMEOUT;
    while server::find(data).is_some_and(|place| place.pid == pid) {
        if tokio::time::Instant::now() >= until {
            return Err(unstoppable(pid));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    if ui.json {
        ui.json_line(&json!({"stopped": true, "pid": pid}))?;
    } else {
        ui.line(format_args!("The server (pid {pid}) has ended. Its agents keep running."))?;
    }
    Ok(Exit::Good)
}

fn unstoppable(pid: u32) -> Error {
    Error::new(Code::ServerUnreachable, format!("The server (pid {pid}) does not end"))
}
