//! `piton agents list`: what can be run here.

use piton_agent::profiles::{self, Profile};
use serde_json::{Value, json};

use crate::agents;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::table::{Column, Table};
use crate::text::one_line;
use crate::ui::{Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton agents list
  piton agents list --json | jq -r 'select(.is_installed) | .agent_profile_id'
  piton chat --agent codex           Talk to one of them

How an agent gets its conversation back when it was ended:
  native        it resumes or loads the conversation itself
  command line  its command is given the conversation's id
  history       it starts without its conversation; its first prompt carries the history
  none          it starts without its conversation, and without the history
An agent reports what it really does when it is started: `piton agents probe AGENT` shows it.

Agents of your own, and changes to these, are settings: `piton config show --help`.
JSON: an object per line: agent_profile_id, name, origin (built_in, configured), command,
program (where it was found), is_installed, resume_strategy, install, notes.";

/// List agents: which are installed, how they resume, how to install the others
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {}

pub(crate) fn run(ui: &mut Ui, cx: &Context, _: &Args) -> Result<Exit> {
    let all = agents::all(&cx.settings)?;
    if ui.json {
        for agent in &all {
            ui.json_line(&to_json(agent))?;
        }
        return Ok(Exit::Good);
    }
    let mut table = Table::new([
        Column::Whole("AGENT"),
        Column::Whole("HERE"),
        Column::Whole("RESUMES BY"),
        Column::Cut("HOW TO GET IT"),
        Column::Cut("NAME"),
    ]);
    for agent in &all {
        let is_here = agents::installed(agent).is_some();
        let (tone, here) = if is_here { (Tone::Good, "yes") } else { (Tone::Quiet, "no") };
        let how = agents::strategy_text(profiles::strategy(agent.abilities));
        // Who has it knows how.
        let install = if is_here { String::new() } else { in_short(&agent.install) };
        table.row([
            (Tone::Title, agent.id.clone()),
            (tone, here.to_owned()),
            (Tone::Plain, how.to_owned()),
            (Tone::Quiet, install),
            (Tone::Plain, agent.name.clone()),
        ]);
    }
    table.print(ui)?;
    Ok(Exit::Good)
}

/// The command of a sentence that is little more.
fn in_short(install: &str) -> String {
    let command = install.strip_prefix("Install it with ").unwrap_or(install);
    one_line(&command.trim_end_matches('.').replace('`', ""))
}

fn to_json(agent: &Profile) -> Value {
    let program = agents::installed(agent);
    json!({
        "agent_profile_id": agent.id,
        "name": agent.name,
        "origin": agent.origin.as_str(),
        "command": agent.command,
        "is_installed": program.is_some(),
        "program": program,
        "resume_strategy": agents::strategy_name(profiles::strategy(agent.abilities)),
        "install": Some(&agent.install).filter(|install| !install.is_empty()),
        "notes": agent.quirks.notes,
    })
}
