//! A tool call or a permission request as one readable line: what would run, on which files. For
//! texts that an agent or a person reads; nothing is decided by it.

use serde_json::{Map, Value};

use crate::permission::PermissionRequest;

/// Characters of a command, a path or another argument.
const VALUE_CHARS_MAX: usize = 400;
/// Arguments that are named beside the known ones.
const ARGUMENTS_MAX: usize = 6;
/// Paths that are named.
const PATHS_MAX: usize = 10;

/// Arguments that say what is run.
const COMMANDS: [&str; 4] = ["command", "cmd", "script", "code"];
/// Arguments that say on what.
const PATHS: [&str; 7] =
    ["file_path", "filePath", "absolute_path", "path", "notebook_path", "filepath", "filename"];
/// Fields of a call that say nothing about what it does.
const SILENT: [&str; 8] =
    ["toolCallId", "sessionUpdate", "status", "content", "title", "kind", "locations", "_meta"];

/// What is known of a call: its name, its first arguments, and what later updates said of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolText {
    name: String,
    title: Option<String>,
    kind: Option<String>,
    arguments: Value,
    paths: Vec<String>,
    /// The last text that its updates carried.
    reported: Option<String>,
}

/// Tools that hand work to another agent, as agents call them.
const DELEGATIONS: [&str; 8] = [
    "task",
    "agent",
    "subagent",
    "delegate",
    "delegate_coder",
    "delegate_task",
    "delegate_to_agent",
    "spawn_agent",
];

impl ToolText {
    pub fn new(name: &str, arguments: Option<Value>) -> Self {
        let arguments = arguments.unwrap_or_default();
        Self { name: name.to_owned(), arguments, ..Self::default() }
    }

    /// Takes an update of the call, as its agent spelled it: the last that is said of an argument
    /// counts.
    pub fn update(&mut self, update: &Value) {
        let text = |key: &str| {
            update
                .get(key)
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
        };
        self.title = text("title").or(self.title.take());
        self.kind = text("kind").or(self.kind.take());
        if let Some(input) = update.get("rawInput").filter(|input| !is_nothing(input)) {
            self.arguments = merged(std::mem::take(&mut self.arguments), input.clone());
        }
        let locations = update.get("locations").and_then(Value::as_array);
        if let Some(locations) = locations.filter(|locations| !locations.is_empty()) {
            let path = |location: &Value| location.get("path")?.as_str().map(str::to_owned);
            self.paths = locations.iter().filter_map(path).collect();
        }
        let blocks = update.get("content").and_then(Value::as_array).into_iter().flatten();
        let mut texts = blocks.rev().filter_map(|block| {
            let content = block.get("content").unwrap_or(block);
            content.get("text")?.as_str().filter(|text| !text.is_empty())
        });
        self.reported = texts.next().map(str::to_owned).or(self.reported.take());
    }

    /// Whether another agent was to do it.
    pub fn is_delegation(&self) -> bool {
        let name = self.name.to_ascii_lowercase();
        DELEGATIONS.contains(&&*name) || self.arguments.get("subagent_type").is_some()
    }

    /// The last that it reported.
    pub fn reported(&self) -> Option<&str> {
        self.reported.as_deref()
    }

    /// The paths that it names, each once, as it spells them.
    pub fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = Vec::new();
        let named = |key: &&str| self.arguments.get(*key)?.as_str().map(str::to_owned);
        for path in self.paths.iter().cloned().chain(PATHS.iter().filter_map(named)) {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        paths
    }

    /// The arguments as they were said last.
    pub fn arguments(&self) -> &Value {
        &self.arguments
    }

    /// One line: the name, the title where it says more, the command, the paths, the rest.
    pub fn line(&self) -> String {
        let mut parts = vec![one_line(&self.name)];
        let kind = self.kind.as_deref().filter(|kind| *kind != self.name && *kind != "other");
        if let Some(kind) = kind {
            parts.push(format!("({})", one_line(kind)));
        }
        let mut rest = Vec::new();
        let command = match &self.arguments {
            Value::Object(arguments) => {
                let command = COMMANDS.iter().find_map(|key| command(arguments.get(*key)?));
                let is_command = |key: &str| command.is_some() && COMMANDS.contains(&key);
                rest = named(arguments, is_command);
                command
            }
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        };
        let title = self.title.as_deref().filter(|title| *title != self.name);
        let paths = self.paths();
        let says_more = |title: &&str| {
            command.as_deref() != Some(*title) && !paths.iter().any(|path| path == title)
        };
        if let Some(title) = title.filter(says_more) {
            parts.push(format!("{:?}", cut(&one_line(title))));
        }
        if let Some(command) = command {
            parts.push(format!("`{}`", cut(&one_line(&command))));
        }
        push_rest(&mut parts, &paths, &rest);
        parts.join(" ")
    }
}

fn push_rest(parts: &mut Vec<String>, paths: &[String], rest: &[String]) {
    if !paths.is_empty() {
        let listed: Vec<_> =
            paths.iter().take(PATHS_MAX).map(|path| cut(&one_line(path))).collect();
        let more = paths.len().saturating_sub(PATHS_MAX);
        let more = if more > 0 { format!(" and {more} more paths") } else { String::new() };
        parts.push(format!("on {}{more}", listed.join(", ")));
    }
    if !rest.is_empty() {
        parts.push(format!("with {}", rest.join(", ")));
    }
}

/// A question as an agent or a person reads it: its text. One about a permission is put together from
/// all that was said of its call: [`permission_line`].
pub fn question_line(question: &Value) -> String {
    if question.get("toolCall").is_some() {
        return permission_line(&PermissionRequest::new(question, []));
    }
    let said = question.as_str().map(str::to_owned);
    let known = || {
        ["question", "title", "prompt", "message", "text"]
            .iter()
            .find_map(|key| question.get(key)?.as_str().map(str::to_owned))
    };
    cut(&one_line(&said.or_else(known).unwrap_or_else(|| question.to_string())))
}

/// A permission request as one line: what every client shows as its title, the command, the paths, the
/// other arguments, the options.
pub fn permission_line(request: &PermissionRequest) -> String {
    let title = one_line(&request.title);
    let command = request.command.as_deref().map(one_line);
    let mut parts = Vec::new();
    if command.as_ref() == Some(&title) || title.is_empty() {
        let name = request.tool.as_deref().or(request.kind.as_deref()).unwrap_or("tool");
        parts.push(one_line(name));
    } else {
        parts.push(cut(&title));
    }
    if let Some(command) = &command {
        parts.push(format!("`{}`", cut(command)));
    }
    let mut paths = request.paths();
    paths.retain(|path| !title.contains(path.as_str()) && command.as_ref() != Some(path));
    let rest = match &request.arguments {
        Value::Object(arguments) => named(arguments, |key| request.is_command_argument(key)),
        _ => Vec::new(),
    };
    push_rest(&mut parts, &paths, &rest);
    let options: Vec<_> = request.options.iter().map(|option| one_line(&option.name)).collect();
    if !options.is_empty() {
        parts.push(format!("(options: {})", options.join(", ")));
    }
    format!("Permission for {}", parts.join(" "))
}

/// Nothing is said with it.
pub fn is_nothing(arguments: &Value) -> bool {
    arguments.is_null() || arguments.as_object().is_some_and(Map::is_empty)
}

/// Some agents say their arguments bit by bit.
pub fn merged(before: Value, after: Value) -> Value {
    match (before, after) {
        (Value::Object(mut before), Value::Object(after)) => {
            before.extend(after);
            before.into()
        }
        (_, after) => after,
    }
}

/// A command, also one that is a list of words.
fn command(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Array(words) => {
            let words: Vec<_> = words.iter().filter_map(Value::as_str).collect();
            (!words.is_empty()).then(|| words.join(" "))
        }
        _ => None,
    }
}

/// The other arguments, sorted by name.
fn named(arguments: &Map<String, Value>, is_command: impl Fn(&str) -> bool) -> Vec<String> {
    let is_known = |key: &str| PATHS.contains(&key) || SILENT.contains(&key) || is_command(key);
    let mut rest: Vec<_> = arguments.iter().filter(|(key, _)| !is_known(key)).collect();
    // A map has the order of its keys or of their arrival, by a feature that other crates choose.
    rest.sort_by_key(|(key, _)| *key);
    let more = rest.len().saturating_sub(ARGUMENTS_MAX);
    let mut named: Vec<_> = rest
        .into_iter()
        .take(ARGUMENTS_MAX)
        .map(|(key, value)| {
            // As JSON, also a text: a client in another language writes the same.
            format!("{} = {}", one_line(key), cut(&value.to_string()))
        })
        .collect();
    if more > 0 {
        named.push(format!("{more} more arguments"));
    }
    named
}

fn one_line(text: &str) -> String {
    text.replace("\r\n", " ").replace(['\n', '\r'], " ")
}

fn cut(text: &str) -> String {
    crate::history::cut(text, VALUE_CHARS_MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_is_described_by_what_it_runs_and_on_what() {
        let line = |name: &str, arguments: Value| ToolText::new(name, Some(arguments)).line();
        assert_eq!(line("shell", json!({"command": "make\nclean"})), "shell `make clean`");
        assert_eq!(line("exec", json!({"command": ["git", "push"]})), "exec `git push`");
        let arguments = json!({"file_path": "/r/a.rs", "old_string": "x", "n": 3});
        assert_eq!(line("edit", arguments), "edit on /r/a.rs with n = 3, old_string = \"x\"");
        assert_eq!(ToolText::new("think", None).line(), "think");
        let long = line("shell", json!({"command": "x".repeat(2_000)}));
        assert!(long.ends_with(" [cut]`") && long.len() < 500, "{long}");
    }

    #[test]
    fn later_updates_of_the_arguments_count() {
        let mut tool = ToolText::new("write", Some(json!({})));
        tool.update(&json!({"rawInput": {"path": "/r/a"}}));
        tool.update(&json!({"rawInput": {"path": "/r/a.rs", "content": "fn"}, "kind": "edit"}));
        tool.update(
            &json!({"rawInput": {}, "title": "Write a.rs", "locations": [{"path": "/r/a.rs"}]}),
        );
        assert_eq!(tool.line(), "write (edit) \"Write a.rs\" on /r/a.rs");
        assert_eq!(tool.arguments()["content"], "fn");
    }

    #[test]
    fn a_permission_request_is_described_by_its_call_and_options() {
        let question = json!({
            "toolCall": {"toolCallId": "c", "title": "/r/secret.txt", "kind": "read",
                "rawInput": {"filepath": "/r/secret.txt"}},
            "options": [{"optionId": "a", "name": "Allow once"}, {"optionId": "r", "name": "Reject"}],
        });
        assert_eq!(
            question_line(&question),
            "Permission for read /r/secret.txt (options: Allow once, Reject)"
        );
        // What the call had said, and what is said of it later, counts as for every client.
        let bare = json!({
            "toolCall": {"toolCallId": "c", "title": "/w/a.txt", "locations": [{"path": "/w/a.txt"}]},
            "call": {"name": "write", "title": "write", "kind": "edit",
                "rawInput": {"filePath": "/w/a.txt", "mode": 7}},
            "options": [{"optionId": "a", "name": "Allow"}],
        });
        assert_eq!(
            question_line(&bare),
            "Permission for write /w/a.txt with mode = 7 (options: Allow)"
        );
        let later = json!({"title": "Run it", "rawInput": {"command": "make x", "script": "rm y"}});
        let asked = PermissionRequest::new(&json!({"toolCall": {"kind": "execute"}}), [&later]);
        assert_eq!(
            permission_line(&asked),
            r#"Permission for Run it `make x` with script = "rm y""#
        );
        assert_eq!(question_line(&json!("Which one?")), "Which one?");
        assert_eq!(question_line(&json!({"title": "May I?"})), "May I?");
    }
}
