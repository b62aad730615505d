//! `piton agents login`: has an agent log in, without a session.

use std::time::Duration;

use piton_core::Code;
use serde_json::json;

use super::contact::{self, Asked, Login};
use super::probe;
use crate::agents;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::times;
use crate::ui::Ui;

/// A person may have to find a browser first.
const WAIT: Duration = Duration::from_mins(5);

const EXAMPLES: &str = "\
Examples:
  piton agents login gemini                        With the only method that the agent names
  piton agents login codex --method chatgpt
  piton agents probe codex                         Which methods there are

JSON: one object: agent_profile_id, auth_methods.";

/// Log in to an agent
///
/// Starts the agent in an empty temporary folder and asks it to log in. Most agents remember the login
/// for later starts. `piton sessions login` logs in the agent of one session.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The agent's id; `piton agents list` shows them
    agent: String,
    /// The login method, by the id that the agent gives it
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// How long to wait for the login [default: 5m]
    #[arg(long, value_name = "SPAN", value_parser = times::parse_span)]
    wait: Option<Duration>,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let profile = agents::find(&cx.settings, &args.agent)?;
    if !profile.is_acp() {
        let message = format!("{} does not speak the Agent Client Protocol", profile.name);
        return Err(Error::new(Code::AgentUnusable, message)
            .with_hint("Log in with the agent's own command."));
    }
    Ui::progress(&format!("Logging {} in", profile.id));
    let login = args.method.map_or(Login::Only, Login::By);
    let asked = contact::log_in(cx, &profile, args.wait.unwrap_or(WAIT), login).await;
    Ui::progress("");
    match asked {
        Asked::Heard(heard) => {
            if ui.json {
                let methods = heard.hello.auth_methods.iter().map(|method| &method.id);
                let methods: Vec<&String> = methods.collect();
                ui.json_line(&json!({"agent_profile_id": profile.id, "auth_methods": methods}))?;
            } else {
                ui.line(format_args!("{} is logged in.", profile.id))?;
            }
            Ok(Exit::Good)
        }
        Asked::Failed(failure) => Err(probe::error(&profile, &failure)),
        Asked::Interrupted(exit) => Ok(exit),
    }
}
