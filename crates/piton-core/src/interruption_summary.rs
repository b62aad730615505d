//! The interruption summary: what an agent is given, once, with its first prompt after an
//! interruption. One text for every agent.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::history::{cut, harmless};
use crate::interruption::{self, Activity};
use crate::limits::CHANGED_FILES_MAX;
use crate::reason::Reason;
use crate::tool_text::ToolText;

/// The first line of every interruption summary.
pub const HEADING: &str = "[SESSION_RESUMED]";
/// Its last line; the request follows.
pub const END: &str = "[END_OF_SESSION_RESUMED]";

/// Of the answer that was cut off, its end.
const ANSWER_CHARS_MAX: usize = 2_000;
/// Of what the user said.
const PROMPT_CHARS_MAX: usize = 8_000;

/// What an agent lost, read from the log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    pub interruption: Option<Reason>,
    pub activity: Option<Activity>,
    /// What the user said and no agent was given, oldest first. Whole: this is how it is delivered.
    pub undelivered: Vec<String>,
    /// What the interrupted run was started with. An agent that saves its conversation at the end of
    /// a turn does not know it any more.
    pub prompt: Option<String>,
    /// What it had begun to say.
    pub answer: String,
    /// Tool calls without an outcome.
    pub calls: Vec<ToolText>,
    /// How many there were in all.
    pub calls_total: u64,
    /// Questions that were cut off, each as one line.
    pub questions: Vec<String>,
    pub truth: Option<Truth>,
    /// Why there is no truth.
    pub truth_error: Option<String>,
    /// Of an interrupted loop that has phases of its own, as one in a web page has.
    pub loop_run: Option<LoopRun>,
    /// Of an agent: the request is only that it continue the run.
    pub is_continued: bool,
}

impl Findings {
    /// What an agent was doing, in the phases of a loop; `None`: it was not at work. An agent says no
    /// phase of its own: the log tells.
    pub fn phase(&self) -> Option<LoopPhase> {
        if let Some(loop_run) = &self.loop_run {
            return Some(loop_run.phase);
        }
        match self.activity? {
            Activity::Answering => Some(LoopPhase::StreamingLlm),
            Activity::RunningTool if self.calls.iter().any(ToolText::is_delegation) => {
                Some(LoopPhase::DelegatingCoder)
            }
            Activity::RunningTool => Some(LoopPhase::ExecutingTools),
            Activity::Starting | Activity::Waiting | Activity::Unrecognised => None,
        }
    }
}

/// What a loop was doing. It is continued by this text, so the text ends with what its phase asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopRun {
    pub phase: LoopPhase,
    pub round: u64,
    /// The last that a delegated coder reported.
    pub coder_state: Option<String>,
    /// Of the partial answer, so many characters; all of it without a number.
    pub answer_chars_max: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopPhase {
    StreamingLlm,
    ExecutingTools,
    DelegatingCoder,
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
    /// Not all of it could be read: there may be more changed files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Of paths that were asked for, as they were spelled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<(String, PathState)>,
}

/// What the workspace says of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathState {
    /// It differs from the last commit, or is not in it.
    Changed,
    Unchanged,
    Missing,
    /// It is there, and git ignores it.
    Ignored,
    /// It is not in the workspace.
    Outside,
    #[serde(other)]
    Unknown,
}

impl PathState {
    fn sentence(self) -> Option<&'static str> {
        Some(match self {
            Self::Changed => "changed since the last commit",
            Self::Unchanged => "unchanged since the last commit",
            Self::Missing => "does not exist",
            Self::Ignored => "exists; git ignores it",
            Self::Outside => "outside the workspace",
            Self::Unknown => return None,
        })
    }
}

/// How much is changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    pub files: u64,
    pub added: u64,
    pub removed: u64,
}

impl Truth {
    /// As many of the changed files as are named by default.
    pub fn new(changed: Vec<(String, String)>) -> Self {
        let more = changed.len().saturating_sub(CHANGED_FILES_MAX) as u64;
        let changed = changed.into_iter().take(CHANGED_FILES_MAX).collect();
        Self { changed, more, ..Self::default() }
    }
}

/// The summary, and behind it what is asked of the agent now.
pub fn text(findings: &Findings, request: &str) -> String {
    let mut note = String::from(HEADING);
    push(&mut note, "");
    if let Some(truth) = &findings.truth {
        workspace(&mut note, truth);
    } else if let Some(error) = &findings.truth_error {
        let error = one_line(error);
        push(&mut note, &format!("Workspace state at recovery: unknown ({error})."));
        push(&mut note, "Look at the workspace before you change anything.");
    }
    if let Some(LoopRun { phase, round, .. }) = &findings.loop_run {
        let what = match phase {
            LoopPhase::StreamingLlm => "while you were generating a response",
            LoopPhase::ExecutingTools => "while executing tool calls",
            LoopPhase::DelegatingCoder => "during Coder delegation",
        };
        push(&mut note, &format!("Interruption: connection dropped {what} (round {round})."));
    }
    if let Some(reason) = findings.interruption {
        let sentence = interruption::sentence(reason, findings.activity);
        let sentence = sentence.replace("the agent was", "you were");
        push(&mut note, &format!("Interruption: your last turn did not end. {sentence}"));
    }
    if let Some(prompt) = &findings.prompt {
        push(&mut note, "The request of that turn:");
        quote(&mut note, &cut(prompt, PROMPT_CHARS_MAX));
    }
    for undelivered in &findings.undelivered {
        push(&mut note, "The user said this before, and it did not reach you:");
        quote(&mut note, undelivered);
    }
    if !findings.answer.is_empty() {
        push(&mut note, "The end of your partial answer, which may be incomplete:");
        let chars_max = match &findings.loop_run {
            Some(loop_run) => loop_run.answer_chars_max.unwrap_or(usize::MAX),
            None => ANSWER_CHARS_MAX,
        };
        quote(&mut note, &end(&findings.answer, chars_max));
    }
    if !findings.calls.is_empty() {
        push(
            &mut note,
            "The outcome of these tool calls is unknown. Each may have happened, wholly or in part. \
             Check the workspace against what they were to do: if the changes are there, continue \
             with the next step; if not, make the calls again:",
        );
        let known = findings.truth.as_ref().map_or(&[][..], |truth| &truth.paths);
        for call in &findings.calls {
            push(&mut note, &format!("- {}", call.line()));
            for (path, state) in paths_of(call, known) {
                push(&mut note, &format!("  {}: {state}", one_line(path)));
            }
        }
        let more = findings.calls_total.saturating_sub(findings.calls.len() as u64);
        if more > 0 {
            push(&mut note, &format!("- and {more} more calls"));
        }
    }
    if !findings.questions.is_empty() {
        push(
            &mut note,
            "These questions of yours were cut off and cannot be answered. Ask again if you need the \
             answer:",
        );
        for question in &findings.questions {
            push(&mut note, &format!("- {question}"));
        }
    }
    match (&findings.loop_run, findings.phase()) {
        (Some(loop_run), _) => {
            template(&mut note, findings, loop_run.phase, loop_run.coder_state.as_deref());
        }
        // Another request comes before the answer that was cut off.
        (None, Some(LoopPhase::StreamingLlm)) if !findings.is_continued => {}
        (None, Some(phase)) => {
            let mut delegated = findings.calls.iter().filter(|call| call.is_delegation());
            let state = delegated.find_map(ToolText::reported);
            let state = state.map(|state| end(state, ANSWER_CHARS_MAX));
            template(&mut note, findings, phase, state.as_deref());
        }
        (None, None) => {}
    }
    push(&mut note, "Do not repeat work that is already reflected in the workspace.");
    push(&mut note, END);
    format!("{note}\n{request}")
}

/// What the workspace says of the paths that a call names.
fn paths_of<'a>(
    call: &ToolText,
    known: &'a [(String, PathState)],
) -> impl Iterator<Item = (&'a str, &'static str)> {
    let named = call.paths();
    let of_call = known.iter().filter(move |(path, _)| named.contains(path));
    of_call.filter_map(|(path, state)| Some((path.as_str(), state.sentence()?)))
}

/// What a phase asks for.
fn template(note: &mut String, findings: &Findings, phase: LoopPhase, coder_state: Option<&str>) {
    match phase {
        LoopPhase::StreamingLlm if findings.truth.is_some() => push(
            note,
            "Resume your response. The workspace state above reflects the current truth.",
        ),
        LoopPhase::StreamingLlm => push(note, "Resume your response."),
        // The lines above name the calls, and ask for the same.
        LoopPhase::ExecutingTools if !findings.calls.is_empty() => {}
        LoopPhase::ExecutingTools => push(
            note,
            "The tool batch may or may not have completed. Check the workspace against what the tools \
             were supposed to do. If the expected changes are present, proceed to the next step. If \
             not, re-attempt the tool calls.",
        ),
        LoopPhase::DelegatingCoder => {
            match coder_state {
                Some(state) => {
                    push(note, "Last known Coder state:");
                    quote(note, state);
                }
                None => push(note, "Last known Coder state: none was reported."),
            }
            push(
                note,
                "The Coder's work may be partially complete. Check the workspace. Decide whether to \
                 re-delegate the remaining work or proceed based on what's done.",
            );
        }
    }
}

fn workspace(note: &mut String, truth: &Truth) {
    let branch = truth.branch.as_deref().unwrap_or("no branch");
    let head = truth.head.as_deref().unwrap_or("no commit yet");
    push(note, "Workspace state at recovery:");
    push(note, &format!("- HEAD: {head} ({branch})"));
    if let Some(Stat { files, added, removed }) = truth.stat {
        push(
            note,
            &format!("- Diff summary: {files} files, {added} lines added, {removed} removed"),
        );
    }
    if truth.changed.is_empty() && truth.truncated {
        return push(note, "- Changed files: unknown (git did not list them in time)");
    }
    if truth.changed.is_empty() {
        return push(note, "- Changed files: none");
    }
    push(note, "- Changed files:");
    for (status, path) in &truth.changed {
        push(note, &format!("{status} {}", one_line(path)));
    }
    match (truth.more, truth.truncated) {
        (0, true) => push(note, "(there may be more files)"),
        (more, true) => push(note, &format!("(and at least {more} more files)")),
        (0, false) => {}
        (more, false) => push(note, &format!("(and {more} more files)")),
    }
}

/// The text of a prompt: a text, or content blocks, of which those that are no text are
/// named.
pub fn content_text(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(blocks) => {
            let text = |block: &Value, key: &str| block.get(key)?.as_str().map(str::to_owned);
            let block = |block: &Value| {
                text(block, "text").unwrap_or_else(|| {
                    let kind = text(block, "type").unwrap_or_else(|| "content".to_owned());
                    let name = text(block, "uri").or_else(|| text(block, "name"));
                    format!("[{kind}{}]", name.map_or_else(String::new, |name| format!(": {name}")))
                })
            };
            Some(blocks.iter().map(block).collect::<Vec<_>>().join("\n"))
        }
        _ => None,
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
fn end(text: &str, chars_max: usize) -> String {
    let skipped = text.chars().count().saturating_sub(chars_max);
    match text.char_indices().nth(skipped) {
        Some((from, _)) if skipped > 0 => format!("[…] {}", &text[from..]),
        _ => text.to_owned(),
    }
}
