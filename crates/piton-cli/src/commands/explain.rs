//! `piton explain`: the documentation's page of an error code, from the program itself.

use piton_core::Code;
use serde_json::json;

use crate::error::{Error, Exit, Result};
use crate::table::{Column, Table};
use crate::ui::{Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton explain                        List all error codes
  piton explain agentctl_unreachable   Print the page of one";

/// The least similarity of a code that a wrong one may have meant.
const SIMILARITY_MIN: f64 = 0.8;

/// Explain an error code: its cause, and what to do
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The code that an error names [default: list all codes]
    #[arg(value_name = "CODE")]
    code: Option<String>,
}

pub(crate) fn run(ui: &mut Ui, args: &Args) -> Result<Exit> {
    match &args.code {
        Some(name) => explain(ui, find(name)?)?,
        None => list(ui)?,
    }
    Ok(Exit::Good)
}

fn explain(ui: &mut Ui, code: Code) -> Result<()> {
    if ui.json {
        let page = code.page();
        let line = json!({"code": code, "title": title(code), "hint": code.hint(), "page": page});
        return ui.json_line(&line);
    }
    ui.text(code.page())
}

fn list(ui: &mut Ui) -> Result<()> {
    if ui.json {
        for code in Code::ALL {
            ui.json_line(&json!({"code": code, "title": title(*code), "hint": code.hint()}))?;
        }
        return Ok(());
    }
    let mut table = Table::new([Column::Whole("CODE"), Column::Cut("MEANING")]);
    for code in Code::ALL {
        table.row([(Tone::Plain, code.to_string()), (Tone::Plain, title(*code).to_owned())]);
    }
    table.print(ui)
}

/// The heading of its page, without the code.
fn title(code: Code) -> &'static str {
    let heading = code.page().lines().next().unwrap_or_default();
    heading.split_once(": ").map_or(heading, |(_, title)| title)
}

fn find(name: &str) -> Result<Code> {
    if let Some(code) = Code::ALL.iter().find(|code| code.as_str() == name) {
        return Ok(*code);
    }
    let similar = Code::ALL
        .iter()
        .map(|code| (strsim::jaro_winkler(code.as_str(), name), code))
        .filter(|(similarity, _)| *similarity >= SIMILARITY_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let hint = match similar {
        Some((_, code)) => format!("Did you mean `piton explain {code}`?"),
        None => "`piton explain` lists all codes.".to_owned(),
    };
    Err(Error::usage(&format!("There is no error code {name:?}")).with_hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_a_title_of_its_own() {
        for code in Code::ALL {
            let heading = format!("# {code}: {}", title(*code));
            assert_eq!(code.page().lines().next(), Some(heading.as_str()));
        }
    }
}
