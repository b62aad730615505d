//! `piton doctor`: looks at everything that Piton stands on, and changes nothing.
//!
//! [`facts`] gathers, [`checks`] judges: what is judged can be tested without being ill.

mod checks;
mod facts;
mod system;

use serde_json::{Value, json};

use crate::context::Context;
use crate::error::{Exit, Result};
use crate::findings;
use crate::ui::Ui;
use facts::Facts;

const EXAMPLES: &str = "\
Examples:
  piton doctor
  piton doctor --json | jq -r '.findings[] | select(.level != \"ok\") | .hint'

Exits with 1 if there is a problem; warnings do not count.
JSON: one object: good, findings: a list of {check, level (ok, warning, problem), says, hint}.";

/// Check the installation: data folder, store, key, server, agents
///
/// Also checks what could end running agents: systemd, a logout, a container. Changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, _: Args) -> Result<Exit> {
    let facts = Facts::gather(cx).await;
    let findings = checks::all(&facts);
    let good = findings::are_good(&findings);
    if ui.json {
        let findings: Vec<Value> =
            findings.iter().map(|finding| finding.to_json(&ui.call)).collect();
        ui.json_line(&json!({"good": good, "findings": findings}))?;
    } else {
        for finding in &findings {
            finding.print(ui)?;
        }
    }
    Ok(if good { Exit::Good } else { Exit::Failed })
}
