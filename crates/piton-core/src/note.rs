//! The note: what an agent is told, once, with its first prompt after an interruption.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::history::{cut, harmless};
use crate::limits::CHANGED_FILES_MAX;
use crate::reason::Reason;

/// Of the answer that was cut off, its end; of a call's arguments and a question, the beginning.
const ANSWER_CHARS_MAX: usize = 2_000;
const DETAIL_CHARS_MAX: usize = 300;
const UNSAID_CHARS_MAX: usize = 8_000;

/// What an agent lost, read from the log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    pub interruption: Option<Reason>,
    /// What the user said and no agent was given.
    pub unsaid: Option<String>,
    /// What it had begun to say.
    pub answer: String,
    /// Name and arguments.
    pub calls: Vec<(String, Option<Value>)>,
    /// How many there were in all.
    pub calls_total: u64,
    pub questions: Vec<Value>,
    pub truth: Option<Truth>,
}

/// What the workspace says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    pub branch: Option<String>,
    pub head: Option<String>,
    /// Git's two letters, and the path.
    pub changed: Vec<(String, String)>,
    /// Changed files that are not among them.
    pub more: u64,
    pub stat: Option<Stat>,
}

/// How much is changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    pub files: u64,
    pub added: u64,
    pub removed: u64,
}

impl Stat {
    /// Counts in a unified diff.
    pub fn of(diff: &str) -> Self {
        let mut stat = Self::default();
        let mut in_hunk = false;
        for line in diff.lines() {
            if line.starts_with("diff --git ") {
                stat.files += 1;
                in_hunk = false;
            } else if line.starts_with("@@") {
                in_hunk = true;
            } else if in_hunk && line.starts_with('+') {
                stat.added += 1;
            } else if in_hunk && line.starts_with('-') {
                stat.removed += 1;
            }
        }
        stat
    }
}

impl Truth {
    /// As many of the changed files as are named by default.
    pub fn new(changed: Vec<(String, String)>, is_more: bool) -> Self {
        Self::at_most(CHANGED_FILES_MAX, changed, is_more)
    }

    /// So many of the changed files.
    pub fn at_most(files: usize, changed: Vec<(String, String)>, is_more: bool) -> Self {
        let more = changed.len().saturating_sub(files) as u64 + u64::from(is_more);
        let changed = changed.into_iter().take(files).collect();
        Self { changed, more, ..Self::default() }
    }
}

/// The note, and behind it what is asked of the agent now.
pub fn text(findings: &Findings, request: &str) -> String {
    let mut note = String::from("[Note from Piton, which runs this session]\n");
    if let Some(reason) = findings.interruption {
        push(&mut note, &format!("Your last turn was interrupted. {}", reason.sentence()));
    }
    if let Some(unsaid) = &findings.unsaid {
        push(&mut note, "The user said this before, and you were not given it:");
        quote(&mut note, &cut(unsaid, UNSAID_CHARS_MAX));
    }
    if !findings.answer.is_empty() {
        push(&mut note, "You had begun to answer. What you said is kept; its end is:");
        quote(&mut note, &end(&findings.answer));
    }
    if !findings.calls.is_empty() {
        push(
            &mut note,
            "Of these tool calls nobody knows what became of them. They may have happened, wholly or \
             in part. Look before you make them again:",
        );
        for (name, arguments) in &findings.calls {
            let arguments = arguments.as_ref().map(Value::to_string).unwrap_or_default();
            push(&mut note, &format!("- {name} {}", one_line(&cut(&arguments, DETAIL_CHARS_MAX))));
        }
        let more = findings.calls_total.saturating_sub(findings.calls.len() as u64);
        if more > 0 {
            push(&mut note, &format!("- and {more} more calls"));
        }
    }
    if !findings.questions.is_empty() {
        push(
            &mut note,
            "Nobody can answer these questions of yours any more. Ask again if you must:",
        );
        for question in &findings.questions {
            let question = cut(&question.to_string(), DETAIL_CHARS_MAX);
            push(&mut note, &format!("- {}", one_line(&question)));
        }
    }
    if let Some(truth) = &findings.truth {
        workspace(&mut note, truth);
    }
    push(&mut note, "[End of the note]");
    format!("{note}\n{request}")
}

fn workspace(note: &mut String, truth: &Truth) {
    let branch = truth.branch.as_deref().unwrap_or("no branch");
    let head = truth.head.as_deref().unwrap_or("no commit yet");
    push(note, &format!("The workspace is at {head} ({branch})."));
    if let Some(stat) = truth.stat {
        let Stat { files, added, removed } = stat;
        push(note, &format!("Its diff: {files} files, {added} lines added, {removed} removed."));
    }
    if truth.changed.is_empty() {
        return push(note, "Nothing in it is changed since that commit.");
    }
    push(note, "Changed files:");
    for (status, path) in &truth.changed {
        push(note, &format!("{status} {}", one_line(path)));
    }
    if truth.more > 0 {
        push(note, &format!("and {} more files", truth.more));
    }
}

fn push(note: &mut String, line: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(note, "{line}");
}

fn quote(note: &mut String, text: &str) {
    for line in harmless(text).split('\n') {
        push(note, &format!("> {line}"));
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// The end of a text, and that there was more before it.
fn end(text: &str) -> String {
    let skipped = text.chars().count().saturating_sub(ANSWER_CHARS_MAX);
    match text.char_indices().nth(skipped) {
        Some((from, _)) if skipped > 0 => format!("[…] {}", &text[from..]),
        _ => text.to_owned(),
    }
}
