//! What was looked at and how it is: one line each, and what to do. Every doctor speaks like this.

use serde_json::{Value, json};

use crate::call::Call;
use crate::error::Result;
use crate::text::{one_line, padded};
use crate::ui::{Tone, Ui};

/// Of the words before the text, so that texts stand below each other.
const LEVEL_WIDTH: usize = 8;
const CHECK_WIDTH: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Ok,
    Warning,
    Problem,
}

impl Level {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) check: &'static str,
    pub(crate) level: Level,
    pub(crate) says: String,
    pub(crate) hint: Option<String>,
}

pub(crate) fn ok(check: &'static str, says: impl Into<String>) -> Finding {
    Finding { check, level: Level::Ok, says: says.into(), hint: None }
}

pub(crate) fn warning(
    check: &'static str,
    says: impl Into<String>,
    hint: impl Into<String>,
) -> Finding {
    Finding { check, level: Level::Warning, says: says.into(), hint: Some(hint.into()) }
}

pub(crate) fn problem(
    check: &'static str,
    says: impl Into<String>,
    hint: impl Into<String>,
) -> Finding {
    Finding { check, level: Level::Problem, says: says.into(), hint: Some(hint.into()) }
}

/// A warning is no problem.
pub(crate) fn are_good(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.level != Level::Problem)
}

impl Finding {
    pub(crate) fn to_json(&self, call: &Call) -> Value {
        json!({
            "check": self.check,
            "level": self.level.as_str(),
            "says": call.spelled(&self.says),
            "hint": self.hint.as_deref().map(|hint| call.spelled(hint)),
        })
    }

    pub(crate) fn print(&self, ui: &mut Ui) -> Result<()> {
        let tone = match self.level {
            Level::Ok => Tone::Good,
            Level::Warning => Tone::Attention,
            Level::Problem => Tone::Bad,
        };
        let word = ui.paint(tone, &padded(self.level.as_str(), LEVEL_WIDTH));
        ui.line(format_args!(
            "{word} {} {}",
            padded(self.check, CHECK_WIDTH),
            one_line(&ui.call.spelled(&self.says))
        ))?;
        if let Some(hint) = &self.hint {
            let hint = ui.paint(Tone::Quiet, &ui.call.spelled(hint));
            ui.line(format_args!("{}{hint}", " ".repeat(LEVEL_WIDTH + CHECK_WIDTH + 2)))?;
        }
        Ok(())
    }
}
