//! What a permission request asks for, put together from the question itself and from what the
//! agent had said of the tool call.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::command;

/// Kinds of tools whose requests are nothing without the command.
const EXECUTES: &str = "execute";
/// Room that paths have in a limited request in any case.
const LOCATIONS_BYTES_MIN: usize = 1024;

/// A place in the workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    pub path: String,
    #[serde(default)]
    pub line: Option<u64>,
}

/// A change of a file; `old_text` is `None` if the file is new.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diff {
    pub path: String,
    #[serde(default)]
    pub old_text: Option<String>,
    pub new_text: String,
}

/// A way to answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermissionOption {
    pub option_id: String,
    pub name: String,
    /// `allow_once`, `allow_always`, `reject_once`, `reject_always`, as the agent spelled it.
    #[serde(default)]
    pub kind: Option<String>,
}

/// What an agent asks permission for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PermissionRequest {
    /// The tool, as the agent names it.
    pub tool: Option<String>,
    /// The kind of tool: `execute`, `edit`, `read`, `delete`, `fetch`, …
    pub kind: Option<String>,
    /// One line for people.
    pub title: String,
    /// The whole command line, if the tool runs one.
    pub command: Option<String>,
    /// The tool's arguments; null if the agent says none.
    pub arguments: Value,
    pub locations: Vec<Location>,
    pub diffs: Vec<Diff>,
    /// What the agent explains.
    pub text: Option<String>,
    pub options: Vec<PermissionOption>,
    /// How many bytes of the request are missing here; 0: it is whole.
    pub missing_bytes: u64,
    /// Which command it is cannot be told: the question and the tool call, or several arguments, do
    /// not say the same.
    #[serde(skip)]
    pub(super) is_ambiguous: bool,
    /// The commands that are said beside `command`.
    #[serde(skip)]
    pub(super) other_commands: Vec<String>,
}

impl PermissionRequest {
    /// The request that a question of a permission makes. `updates`: what the agent said of the same
    /// tool call after it had asked, in order.
    pub fn new<'a>(question: &Value, updates: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut request = Self { options: options(question), ..Self::default() };
        let null = Value::Null;
        let asked = question.get("toolCall").unwrap_or(&null);
        // What the call had said, then what the question says, then what was said later.
        if let Some(call) = question.get("call") {
            request.tool = text(call, "name");
            request.hear(call);
        }
        let title_of_call = std::mem::take(&mut request.title);
        request.hear(asked);
        for update in updates {
            request.hear(update);
        }
        // Agents that ask with nothing but a path, or the tool's name, have said more before.
        if is_bare(&request.title, &request) && !title_of_call.is_empty() {
            request.title = title_of_call;
        }
        if request.title.is_empty() {
            request.title = text(question, "title").unwrap_or_default();
        }
        if request.title.is_empty() || is_bare(&request.title, &request) {
            request.title = request.readable_title(question);
        }
        request.missing_bytes += missing(question) + question.get("call").map_or(0, missing);
        request
    }

    /// Takes over what a tool call, or an update of one, says.
    fn hear(&mut self, call: &Value) {
        if let Some(title) = text(call, "title") {
            self.title = title;
        }
        if let Some(kind) = text(call, "kind") {
            self.kind = Some(kind);
        }
        if let Some(arguments) = call.get("rawInput").filter(|arguments| is_said(arguments)) {
            self.hear_arguments(arguments);
        }
        let parts = call.get("content").and_then(Value::as_array).map(Vec::as_slice);
        let parts = parts.unwrap_or_default();
        let diffs: Vec<Diff> = parts.iter().filter_map(diff).collect();
        if !diffs.is_empty() {
            self.diffs = diffs;
        }
        let texts: Vec<String> = parts.iter().filter_map(content_text).collect();
        if !texts.is_empty() {
            self.text = Some(texts.join("\n"));
        }
        let places = call.get("locations").and_then(Value::as_array).into_iter().flatten();
        for place in places {
            let Some(path) = text(place, "path") else { continue };
            let location = Location { path, line: place.get("line").and_then(Value::as_u64) };
            if !self.locations.contains(&location) {
                self.locations.push(location);
            }
        }
    }

    fn hear_arguments(&mut self, said: &Value) {
        self.hear_command(command::of_arguments(said));
        match (&mut self.arguments, said) {
            (Value::Object(arguments), Value::Object(said)) => {
                arguments.extend(said.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
            (arguments, said) => *arguments = said.clone(),
        }
        // What was said bit by bit may say more than its parts.
        let together = command::of_arguments(&self.arguments);
        self.is_ambiguous |= together.is_ambiguous;
        if !together.is_ambiguous {
            self.hear_command(together);
        }
    }

    fn hear_command(&mut self, asked: command::Asked) {
        self.is_ambiguous |= asked.is_ambiguous;
        self.other_commands.extend(asked.others);
        if let Some(line) = asked.line
            && self.command.as_ref() != Some(&line)
        {
            let before = self.command.replace(line);
            self.is_ambiguous |= before.is_some();
            self.other_commands.extend(before);
        }
    }

    /// Whether this argument says nothing but the command.
    pub fn is_command_argument(&self, key: &str) -> bool {
        self.command.is_some() && command::of_argument(&self.arguments, key) == self.command
    }

    fn readable_title(&self, question: &Value) -> String {
        let tool = self.tool.clone().or_else(|| self.kind.clone());
        let tool = tool.filter(|tool| *tool != "other");
        let path = self.paths().into_iter().next();
        match (tool, &self.command, path) {
            (_, Some(command), _) => command.clone(),
            (Some(tool), None, Some(path)) => format!("{tool} {path}"),
            (Some(tool), None, None) => tool,
            (None, None, Some(path)) => format!("use {path}"),
            (None, None, None) => match question {
                Value::Null => String::new(),
                Value::String(question) => question.clone(),
                question => question.get("toolCall").unwrap_or(question).to_string(),
            },
        }
    }

    /// Whether everything is there that a rule has to see.
    pub(super) fn is_readable(&self) -> bool {
        let env = ["env", "environment"].iter().filter_map(|key| self.arguments.get(key));
        let has_env = env.into_iter().any(is_said);
        let lacks_command = self.executes() && self.command.is_none();
        !self.is_ambiguous && !lacks_command && !has_env
    }

    /// Whether it asks to run a command.
    pub fn executes(&self) -> bool {
        self.command.is_some() || self.kind.as_deref() == Some(EXECUTES)
    }

    /// Every path that the request names, as the agent spelled it.
    pub fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = Vec::new();
        let mut add = |path: &str| {
            if !paths.iter().any(|known| known == path) {
                paths.push(path.to_owned());
            }
        };
        self.locations.iter().for_each(|location| add(&location.path));
        self.diffs.iter().for_each(|diff| add(&diff.path));
        paths_in(&self.arguments, false, 0, &mut add);
        paths
    }

    /// The same request in at most about `bytes_max` bytes. What is left out is counted.
    #[must_use]
    pub fn limited(mut self, bytes_max: usize) -> Self {
        let mut room = bytes_max;
        let mut missing = 0;
        cut(&mut self.title, room.min(1024), &mut missing);
        room = room.saturating_sub(self.title.len());
        if let Some(command) = &mut self.command {
            cut(command, room, &mut missing);
            room = room.saturating_sub(command.len());
        }
        for diff in &mut self.diffs {
            cut(&mut diff.new_text, room, &mut missing);
            room = room.saturating_sub(diff.new_text.len());
            if let Some(old) = &mut diff.old_text {
                cut(old, room, &mut missing);
                room = room.saturating_sub(old.len());
            }
        }
        if let Some(text) = &mut self.text {
            cut(text, room, &mut missing);
            room = room.saturating_sub(text.len());
        }
        let bytes = self.arguments.to_string().len();
        if bytes > room {
            self.arguments = Value::Null;
            missing += bytes as u64;
        } else {
            room -= bytes;
        }
        let bytes =
            |places: &[Location]| places.iter().map(|place| place.path.len()).sum::<usize>();
        while bytes(&self.locations) > room.max(LOCATIONS_BYTES_MIN) {
            missing += self.locations.pop().map_or(0, |place| place.path.len() as u64);
        }
        self.missing_bytes += missing;
        self
    }

    /// The option that a rule may choose: for this once only.
    pub(super) fn once(&self, kind: &str) -> Option<&PermissionOption> {
        self.options.iter().find(|option| option.kind.as_deref() == Some(kind))
    }
}

/// A title that says nothing which is not said elsewhere.
fn is_bare(title: &str, request: &PermissionRequest) -> bool {
    let is_name = request.tool.as_deref() == Some(title) || request.kind.as_deref() == Some(title);
    is_name || request.paths().iter().any(|path| path == title)
}

fn is_said(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Object(object) => !object.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => true,
    }
}

fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// What was left out of a question, or of what it says of its call, because of a limit.
fn missing(value: &Value) -> u64 {
    value.get("missing_bytes").and_then(Value::as_u64).unwrap_or(0)
}

fn diff(part: &Value) -> Option<Diff> {
    if part.get("type").and_then(Value::as_str) != Some("diff") {
        return None;
    }
    Some(Diff {
        path: text(part, "path")?,
        old_text: part.get("oldText").and_then(Value::as_str).map(str::to_owned),
        new_text: part.get("newText").and_then(Value::as_str).unwrap_or_default().to_owned(),
    })
}

fn content_text(part: &Value) -> Option<String> {
    let content = part.get("content")?;
    text(content, "text")
}

/// The tool call that a question is about, by the id that it has in the log.
pub fn asked_call(question: &Value) -> Option<&str> {
    let of_agent = || question.get("toolCall")?.get("toolCallId");
    question.get("call_id").or_else(of_agent).and_then(Value::as_str)
}

/// What the beginning of a tool call says, as an update of it: some agents ask first, and begin the call
/// then.
pub fn update_of_intent(name: &str, arguments: Option<&Value>) -> Value {
    json!({"title": name, "rawInput": arguments})
}

/// The options of a question, in either spelling of their ids.
fn options(question: &Value) -> Vec<PermissionOption> {
    let options = question.get("options").and_then(Value::as_array).into_iter().flatten();
    let options = options.filter_map(|option| {
        let option_id = option_id(option)?.to_owned();
        let name = text(option, "name").unwrap_or_else(|| option_id.clone());
        Some(PermissionOption { option_id, name, kind: text(option, "kind") })
    });
    options.collect()
}

pub(crate) fn option_id(value: &Value) -> Option<&str> {
    value.get("option_id").or_else(|| value.get("optionId")).and_then(Value::as_str)
}

/// An answer with the one spelling of an option's id; `optionId` is accepted.
pub fn normal_answer(answer: Value) -> Value {
    match answer {
        Value::Object(mut answer)
            if answer.contains_key("optionId") && !answer.contains_key("option_id") =>
        {
            let id = answer.remove("optionId").unwrap_or_default();
            answer.insert("option_id".to_owned(), id);
            Value::Object(answer)
        }
        answer => answer,
    }
}

/// What looks like a path in arguments: by its key, or by how it begins.
fn paths_in(value: &Value, is_path: bool, depth: usize, add: &mut impl FnMut(&str)) {
    const DEPTH_MAX: usize = 6;
    if depth > DEPTH_MAX {
        return;
    }
    match value {
        Value::String(text) => {
            let begins = |prefix| text.starts_with(prefix);
            let looks = begins("/") || begins("~/") || begins("./") || begins("../");
            match text.strip_prefix("file://") {
                // Where it lies is not known before it is decoded.
                Some(path) if path.contains('%') => add(&format!("~{text}")),
                Some(path) => add(path),
                None if is_path || looks && !text.contains('\n') => add(text),
                None => {}
            }
        }
        Value::Array(list) => list.iter().for_each(|v| paths_in(v, is_path, depth + 1, add)),
        Value::Object(object) => {
            for (key, value) in object {
                if key.starts_with('/') || key.starts_with("./") || key.starts_with("../") {
                    add(key);
                }
                paths_in(value, names_path(key), depth + 1, add);
            }
        }
        _ => {}
    }
}

fn names_path(key: &str) -> bool {
    let key: String = key.chars().filter(char::is_ascii_alphanumeric).collect();
    let key = key.to_ascii_lowercase();
    key.ends_with("path")
        || key.ends_with("paths")
        || matches!(
            &*key,
            "file" | "files" | "filename" | "dir" | "directory" | "folder" | "parentdir"
        )
}

fn cut(text: &mut String, bytes_max: usize, missing: &mut u64) {
    if text.len() > bytes_max {
        let end = text.floor_char_boundary(bytes_max);
        *missing += (text.len() - end) as u64;
        text.truncate(end);
    }
}

/// A question that is small enough for a record, with its options and the beginning of what it asks.
pub(crate) fn capped(question: &Value, bytes_max: usize) -> Value {
    let bytes = question.to_string().len();
    if bytes <= bytes_max {
        return question.clone();
    }
    let request = PermissionRequest::new(question, []);
    let before = request.missing_bytes;
    let request = request.limited(bytes_max / 4);
    let content: Vec<Value> = request
        .diffs
        .iter()
        .map(|diff| {
            json!({"type": "diff", "path": diff.path, "oldText": diff.old_text,
                "newText": diff.new_text})
        })
        .collect();
    let mut call = Map::new();
    call.insert("title".to_owned(), request.title.clone().into());
    for (key, value) in [("kind", &request.kind), ("name", &request.tool)] {
        if let Some(value) = value {
            call.insert(key.to_owned(), value.clone().into());
        }
    }
    let arguments = match &request.command {
        Some(command) if request.arguments.is_null() => json!({"command": command}),
        _ => request.arguments.clone(),
    };
    call.insert("rawInput".to_owned(), arguments);
    call.insert("content".to_owned(), content.into());
    let lost = (request.missing_bytes - before).max(1);
    json!({
        "toolCall": call,
        "options": question.get("options").filter(|options| options.to_string().len() < 64 * 1024),
        "call_id": question.get("call_id"),
        "missing_bytes": before + lost,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered() -> Value {
        json!([{"option_id": "a", "name": "Allow", "kind": "allow_once"},
            {"optionId": "r", "kind": "reject_once"}])
    }

    #[test]
    fn a_bare_path_becomes_a_request_that_can_be_read() {
        let question = json!({
            "toolCall": {"toolCallId": "c", "title": "/w/a.txt", "locations": [{"path": "/w/a.txt"}]},
            "call": {"name": "write", "title": "write", "kind": "edit",
                "rawInput": {"filePath": "/w/a.txt", "content": "hello"}},
            "options": offered(),
        });
        let request = PermissionRequest::new(&question, []);
        assert_eq!(request.title, "write /w/a.txt");
        assert_eq!(request.arguments["content"], "hello");
        assert_eq!(
            (request.tool.as_deref(), request.kind.as_deref()),
            (Some("write"), Some("edit"))
        );
        let ids: Vec<_> = request.options.iter().map(|option| &*option.option_id).collect();
        assert_eq!(ids, ["a", "r"]);
        assert_eq!(request.options[1].name, "r");
        assert_eq!(request.paths(), ["/w/a.txt"]);
    }

    #[test]
    fn a_path_of_an_unknown_tool_is_no_request_by_itself() {
        let question = json!({"toolCall": {"toolCallId": "c", "title": "/w/a.txt", "kind": "other",
            "locations": [{"path": "/w/a.txt"}]}, "options": offered()});
        assert_eq!(PermissionRequest::new(&question, []).title, "use /w/a.txt");
    }

    #[test]
    fn a_call_that_begins_after_the_question_is_a_part_of_the_request() {
        let question = json!({"toolCall": {"toolCallId": "c", "title": "/w/a.txt", "kind": "other",
            "locations": [{"path": "/w/a.txt"}]}, "options": offered()});
        assert_eq!(asked_call(&question), Some("c"));
        let begun = update_of_intent("Shell", Some(&json!({"command": "rm a.txt"})));
        let request = PermissionRequest::new(&question, [&begun]);
        assert_eq!(request.command.as_deref(), Some("rm a.txt"));
        let mut named = question;
        named["call_id"] = "call_7".into();
        assert_eq!(asked_call(&named), Some("call_7"), "its name in the log counts");
    }

    #[test]
    fn later_updates_of_the_call_count() {
        let question =
            json!({"toolCall": {"title": "Write", "rawInput": {}}, "options": offered()});
        let update = json!({"rawInput": {"path": "b.txt"}, "content": [
            {"type": "diff", "path": "b.txt", "oldText": null, "newText": "x\n"},
            {"type": "content", "content": {"type": "text", "text": "because"}},
        ]});
        let request = PermissionRequest::new(&question, [&update]);
        assert_eq!(request.arguments, json!({"path": "b.txt"}));
        assert_eq!(request.text.as_deref(), Some("because"));
        let new_text = "x\n".to_owned();
        assert_eq!(request.diffs, [Diff { path: "b.txt".to_owned(), old_text: None, new_text }]);
    }

    #[test]
    fn another_command_than_the_call_said_is_ambiguous() {
        let question = json!({"toolCall": {"kind": "execute", "rawInput": {"command": "ls"}},
            "call": {"rawInput": {"command": "rm x"}}});
        assert!(!PermissionRequest::new(&question, []).is_readable());
        let question = json!({"toolCall": {"kind": "execute", "title": "ls"}});
        assert!(!PermissionRequest::new(&question, []).is_readable());
        let question = json!({"toolCall": {"rawInput": {"command": "ls", "env": {"A": "1"}}}});
        assert!(!PermissionRequest::new(&question, []).is_readable());
        let question = json!({"toolCall": {"rawInput": {"command": "ls", "env": {}}}});
        assert!(PermissionRequest::new(&question, []).is_readable());
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let long = "x".repeat(10_000);
        let question = json!({"toolCall": {"title": "t", "rawInput": {"command": long}}});
        let whole = PermissionRequest::new(&question, []);
        assert_eq!(whole.missing_bytes, 0);
        let cut = whole.clone().limited(4_000);
        let arguments = whole.arguments.to_string().len() as u64;
        assert_eq!(cut.missing_bytes, 10_000 - 3_999 + arguments);
        assert_eq!(whole.clone().limited(100_000), whole);
    }

    #[test]
    fn a_question_that_is_too_large_keeps_its_options_and_says_what_is_missing() {
        let question = json!({
            "call_id": "c", "options": offered(),
            "toolCall": {"kind": "edit", "title": "Edit", "content": [
                {"type": "diff", "path": "a", "oldText": "", "newText": "y".repeat(100_000)}]},
        });
        assert_eq!(capped(&question, 1_000_000), question);
        let capped = capped(&question, 8_000);
        assert!(capped.to_string().len() < 8_000);
        let request = PermissionRequest::new(&capped, []);
        assert_eq!(request.options.len(), 2);
        assert!(request.missing_bytes > 90_000, "{}", request.missing_bytes);
        assert_eq!(request.diffs[0].path, "a");
    }

    #[test]
    fn paths_are_found_by_key_and_by_look() {
        let question = json!({"toolCall": {"rawInput": {
            "file_path": "src/a", "content": "/not a path\nbecause of the line end",
            "changes": {"/w/b": {"x": 1}}, "paths": ["c", "d"], "uri": "file:///e", "n": "../f",
        }}});
        let mut paths = PermissionRequest::new(&question, []).paths();
        paths.sort();
        assert_eq!(paths, ["../f", "/e", "/w/b", "c", "d", "src/a"]);
    }
}
