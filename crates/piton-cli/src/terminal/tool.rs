//! A tool call as a person reads it: what is done, on what, its last lines of output, its changes.

use piton_core::Timestamp;
use piton_core::permission::{Diff, PermissionRequest};
use piton_core::tool_text::ToolText;
use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tool {
    pub(crate) call_id: String,
    name: String,
    kind: Option<String>,
    title: Option<String>,
    words: ToolText,
    pub(crate) diffs: Vec<Diff>,
    pub(crate) output: String,
    pub(crate) since: Option<Timestamp>,
    pub(crate) until: Option<Timestamp>,
    pub(crate) outcome: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Failed,
    Cancelled,
    /// The run ended before it was known.
    Unknown,
}

impl Tool {
    pub(crate) fn new(record: &Value) -> Self {
        let name = record["name"].as_str().unwrap_or("tool").to_owned();
        let words = ToolText::new(&name, Some(record["arguments"].clone()));
        Self {
            call_id: record["call_id"].as_str().unwrap_or_default().to_owned(),
            name,
            kind: None,
            title: None,
            words,
            diffs: Vec::new(),
            output: String::new(),
            since: serde_json::from_value(record["ts"].clone()).ok(),
            until: None,
            outcome: None,
        }
    }

    pub(crate) fn update(&mut self, record: &Value) {
        let update = &record["update"];
        self.words.update(update);
        self.take(update);
    }

    pub(crate) fn finish(&mut self, record: &Value) {
        self.take(&record["result"]);
        self.until = serde_json::from_value(record["ts"].clone()).ok();
        self.outcome = Some(match record["status"].as_str() {
            Some("succeeded") => Outcome::Done,
            Some("failed") => Outcome::Failed,
            Some("cancelled") => Outcome::Cancelled,
            _ => Outcome::Unknown,
        });
    }

    /// The same, without its changes.
    pub(crate) fn without_diffs(&self) -> Self {
        Self { diffs: Vec::new(), ..self.clone() }
    }

    /// The run has ended.
    pub(crate) fn end(&mut self) {
        self.outcome.get_or_insert(Outcome::Unknown);
    }

    fn take(&mut self, part: &Value) {
        let text =
            |key: &str| part[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        self.title = text("title").or(self.title.take());
        self.kind = text("kind").or(self.kind.take());
        if part["content"].is_array() {
            let question =
                serde_json::json!({"toolCall": {"title": "", "content": part["content"]}});
            let diffs = PermissionRequest::new(&question, []).diffs;
            if !diffs.is_empty() {
                self.diffs = diffs;
            }
        }
        let output = output(part);
        if !output.trim().is_empty() {
            self.output = output;
        }
    }

    /// What is done, in one word: `run`, `read`, `edit`, or the tool's name.
    pub(crate) fn verb(&self) -> &str {
        match self.kind.as_deref() {
            Some("execute") => "run",
            Some(kind @ ("read" | "edit" | "delete" | "move" | "search" | "fetch" | "think")) => {
                kind
            }
            // Some agents name a call by its command.
            _ if self.command().is_some_and(|command| command == self.name) => "run",
            _ => &self.name,
        }
    }

    fn command(&self) -> Option<String> {
        let arguments = self.words.arguments();
        let text = ["command", "cmd", "script"].iter().find_map(|key| arguments[*key].as_str());
        if let Some(text) = text {
            return Some(text.to_owned());
        }
        let words: Vec<&str> =
            arguments["command"].as_array()?.iter().filter_map(Value::as_str).collect();
        Some(words.join(" "))
    }

    /// On what: the command, the path, or what the agent calls it.
    pub(crate) fn subject(&self) -> String {
        let arguments = self.words.arguments();
        let of =
            |keys: &[&str]| keys.iter().find_map(|key| arguments[*key].as_str().map(str::to_owned));
        let path = of(&[
            "file_path",
            "filePath",
            "absolute_path",
            "path",
            "notebook_path",
            "url",
            "pattern",
            "query",
        ]);
        let title = self.title.clone().filter(|title| *title != self.name);
        let diff = self.diffs.first().map(|diff| diff.path.clone());
        let rest = || match arguments {
            Value::Null => String::new(),
            Value::Object(map) if map.is_empty() => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        // A call that is named by its path ("Read src/main.rs") says it once.
        let is_named = |path: &str| self.verb().split(' ').any(|word| is_end_of(path, word));
        match (self.command(), path.or(diff)) {
            (Some(command), _) => command,
            (None, Some(path)) if is_named(&path) => String::new(),
            (None, Some(path)) => path,
            (None, None) => title.unwrap_or_else(rest),
        }
    }

    /// The arguments that are not the subject, by name, each with all of its text.
    pub(crate) fn other_arguments(&self) -> Vec<(String, String)> {
        let (arguments, subject) = (self.words.arguments(), self.subject());
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        if subject == text(arguments) {
            return Vec::new();
        }
        match arguments {
            Value::Object(map) => map
                .iter()
                .map(|(name, value)| (name.clone(), text(value)))
                .filter(|(_, text)| *text != subject)
                .collect(),
            Value::Null => Vec::new(),
            other => vec![("arguments".to_owned(), text(other))],
        }
    }

    /// Lines that were added and taken out.
    pub(crate) fn counts(&self) -> Option<(usize, usize)> {
        if self.diffs.is_empty() {
            return None;
        }
        let mut counts = (0, 0);
        for diff in &self.diffs {
            for (tone, _) in crate::permission_text::diff_lines(diff) {
                match tone {
                    crate::ui::Tone::Good => counts.0 += 1,
                    crate::ui::Tone::Bad => counts.1 += 1,
                    _ => {}
                }
            }
        }
        Some(counts)
    }

    pub(crate) fn elapsed_ms(&self) -> Option<u128> {
        Some(self.until?.since(self.since?).as_millis())
    }
}

/// The path, or its last parts.
fn is_end_of(path: &str, word: &str) -> bool {
    path.strip_suffix(word).is_some_and(|before| before.is_empty() || before.ends_with('/'))
        && !word.is_empty()
}

/// What a call has printed, by what its agent reported.
fn output(part: &Value) -> String {
    let mut texts: Vec<String> = Vec::new();
    for content in part["content"].as_array().into_iter().flatten() {
        if let Some(text) = content["content"]["text"].as_str() {
            texts.push(text.to_owned());
        }
    }
    let terminals = &part["terminals"];
    let each: Vec<&Value> = match terminals {
        Value::Object(map) => map.values().collect(),
        Value::Array(list) => list.iter().collect(),
        _ => Vec::new(),
    };
    texts.extend(
        each.iter().filter_map(|one| one["output"].as_str().or(one.as_str()).map(str::to_owned)),
    );
    if texts.is_empty() {
        let raw = &part["rawOutput"];
        let known = ["output", "stdout", "content", "text", "result", "error", "formatted_output"];
        let text = raw.as_str().or_else(|| known.iter().find_map(|key| raw[*key].as_str()));
        texts.extend(text.map(str::to_owned));
    }
    texts.join("\n")
}
