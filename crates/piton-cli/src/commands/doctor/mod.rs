//! `piton doctor`: looks at everything that Piton stands on, and changes nothing.
//!
//! [`facts`] gathers, [`checks`] judges: what is judged can be tested without being ill.

mod around;
mod checks;
mod facts;

use serde_json::{Value, json};

use crate::context::Context;
use crate::error::{Exit, Result};
use crate::text::{one_line, padded};
use crate::ui::{Tone, Ui};
use checks::{Finding, Level};
use facts::Facts;

const EXAMPLES: &str = "\
Examples:
  piton doctor
  piton doctor --json | jq -r '.findings[] | select(.level != \"ok\") | .hint'

Exits with 1 if there is a problem; a warning is none.
JSON: one object: good, findings: a list of {check, level (ok, warning, problem), says, hint}.";

/// Check what Piton stands on: data folder, store, key, server, agents
///
/// Also what could end agents that are at work: systemd, a logout, a container. Changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, _: Args) -> Result<Exit> {
    let facts = Facts::gather(cx).await;
    let findings = checks::all(&facts);
    let good = findings.iter().all(|finding| finding.level != Level::Problem);
    if ui.json {
        let findings: Vec<Value> = findings.iter().map(to_json).collect();
        ui.json_line(&json!({"good": good, "findings": findings}))?;
    } else {
        for finding in &findings {
            print(ui, finding)?;
        }
    }
    Ok(if good { Exit::Good } else { Exit::Failed })
}

fn to_json(finding: &Finding) -> Value {
    json!({
        "check": finding.check,
        "level": finding.level.as_str(),
        "says": finding.says,
        "hint": finding.hint,
    })
}

fn print(ui: &mut Ui, finding: &Finding) -> Result<()> {
    let (tone, word) = match finding.level {
        Level::Ok => (Tone::Good, "ok"),
        Level::Warning => (Tone::Attention, "warning"),
        Level::Problem => (Tone::Bad, "problem"),
    };
    let word = ui.paint(tone, &padded(word, 8));
    ui.line(format_args!("{word} {} {}", padded(finding.check, 12), one_line(&finding.says)))?;
    if let Some(hint) = &finding.hint {
        let hint = ui.paint(Tone::Quiet, hint);
        ui.line(format_args!("{}{hint}", " ".repeat(22)))?;
    }
    Ok(())
}
