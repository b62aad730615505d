//! `piton reload`: the server reads its settings again.

use piton_api::server::Reloaded;
use serde_json::json;

use crate::context::Context;
use crate::error::{Exit, Result};
use crate::server;
use crate::ui::Ui;

const EXAMPLES: &str = "\
The same as `kill -HUP` of the server's process, with an answer. An invalid config file changes
nothing, and the command fails with config_invalid.
JSON: one object: changed (settings whose new values count now), restart_required.";

/// Reload the server's settings
///
/// Prints which settings changed and which need a restart. Agents keep running either way.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, _: Args) -> Result<Exit> {
    let client = server::required(&cx.settings.data.value)?;
    let Reloaded { changed, restart_required } = client.reload().await?;
    if ui.json {
        ui.json_line(&json!({"changed": changed, "restart_required": restart_required}))?;
        return Ok(Exit::Good);
    }
    if changed.is_empty() && restart_required.is_empty() {
        ui.line("No setting has changed.")?;
    }
    if !changed.is_empty() {
        ui.line(format_args!("Changed: {}", changed.join(", ")))?;
    }
    if !restart_required.is_empty() {
        ui.line(format_args!("Restart the server for: {}", restart_required.join(", ")))?;
    }
    Ok(Exit::Good)
}
