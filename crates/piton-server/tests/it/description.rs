//! The API's description: as it is committed, and nothing taken away since the last release.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

fn docs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api").join(name)
}

fn read(name: &str) -> Value {
    let text = std::fs::read_to_string(docs(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A change of the API shows in the diff of its description; `PITON_UPDATE=1` writes the file.
#[test]
fn the_description_is_as_it_is_committed() {
    let mut made = serde_json::to_value(piton_server::description()).unwrap();
    // By name, whatever crates are built beside this one.
    made.sort_all_objects();
    if std::env::var_os("PITON_UPDATE").is_some() {
        let text = serde_json::to_string_pretty(&made).unwrap();
        std::fs::write(docs("openapi.json"), text + "\n").unwrap();
    }
    let same = made == read("openapi.json");
    assert!(same, "run this test with PITON_UPDATE=1 and look at the change");
}

/// What an operation does to its object, as its summary begins.
const VERBS: &[&str] = &[
    "Abandon", "Answer", "Archive", "Assign", "Attach", "Cancel", "Check", "Close", "Commit",
    "Compare", "Connect", "Create", "Delete", "Edit", "End", "Exchange", "Get", "List", "Log",
    "Mark", "Merge", "Open", "Pause", "Prompt", "Prune", "Push", "Queue", "Read", "Recreate",
    "Redact", "Release", "Reload", "Remove", "Rename", "Report", "Resume", "Revoke", "Rewind",
    "Run", "Set", "Start", "Stop", "Stream", "Undo", "Verify", "Write",
];

/// A summary that does not begin with an imperative, with its operation.
fn nouns(description: &Value) -> Vec<String> {
    let operations = fields(&description["paths"]).flat_map(|(path, item)| {
        fields(item).map(move |(method, operation)| (path, method, operation))
    });
    let summaries = operations.map(|(path, method, operation)| {
        let summary = operation["summary"].as_str().unwrap_or_default();
        (
            summary.split([' ', ',']).next().unwrap_or_default(),
            format!("{method} {path}: {summary}"),
        )
    });
    summaries.filter(|(verb, _)| !VERBS.contains(verb)).map(|(_, named)| named).collect()
}

/// Wants to show: every operation is summarised as a command is: by an imperative.
#[test]
fn summaries_are_imperatives() {
    let planted = json!({"paths": {"/a": {"get": {"summary": "A page of a log."}}}});
    assert_eq!(nouns(&planted), ["get /a: A page of a log."]);
    assert_eq!(nouns(&read("openapi.json")), Vec::<String>::new());
}

/// Properties that are any text, although their description lists what they can be.
fn lists_in_words(description: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for (name, schema) in fields(&description["components"]["schemas"]) {
        for (property, of) in fields(&schema["properties"]) {
            let is_text = of["type"] == "string" && of.get("enum").is_none();
            let words = of["description"].as_str().unwrap_or_default();
            if is_text && words.contains("` or `") {
                found.push(format!("{name}.{property}: {words}"));
            }
        }
    }
    found
}

/// Wants to show: a closed list of values is an enumeration, not a sentence.
#[test]
fn closed_lists_are_enumerations() {
    let text = json!({"type": "string", "description": "`on` or `off`."});
    let planted = json!({"components": {"schemas": {"A": {"properties": {"b": text}}}}});
    assert_eq!(lists_in_words(&planted), ["A.b: `on` or `off`."]);
    assert_eq!(lists_in_words(&read("openapi.json")), Vec::<String>::new());
}

#[test]
fn nothing_was_taken_away_since_the_last_release() {
    let broken = broken(&read("released.json"), &read("openapi.json"));
    assert!(broken.is_empty(), "{broken:#?}");
}

const METHODS: &[&str] = &["get", "put", "post", "delete", "patch"];

/// A part of a description, and the whole that its references lead into.
#[derive(Clone, Copy)]
struct Part<'a> {
    all: &'a Value,
    part: &'a Value,
}

impl<'a> Part<'a> {
    fn at(self, part: &'a Value) -> Self {
        Self { part, ..self }
    }

    fn resolved(self) -> Self {
        match self.part["$ref"].as_str().and_then(|name| name.strip_prefix('#')) {
            Some(pointer) => self.at(self.all.pointer(pointer).unwrap_or(&Value::Null)),
            None => self,
        }
    }
}

/// What a client of the old description could not rely on any more.
fn broken(old: &Value, new: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let (before, after) = (Part { all: old, part: old }, Part { all: new, part: new });
    for (path, item) in fields(&old["paths"]) {
        for method in METHODS.iter().filter(|method| item.get(**method).is_some()) {
            let at = format!("{method} {path}");
            match new["paths"].get(path).and_then(|item| item.get(*method)) {
                None => found.push(format!("{at} is gone")),
                Some(now) => {
                    operation_broken(before.at(&item[*method]), after.at(now), &at, &mut found);
                }
            }
        }
    }
    found
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn operation_broken(old: Part<'_>, new: Part<'_>, at: &str, found: &mut Vec<String>) {
    let parameters = |operation: &Value, needed: bool| -> BTreeSet<String> {
        let all = operation["parameters"].as_array().into_iter().flatten();
        let wanted = all.filter(|p| !needed || p["required"] == true);
        wanted.map(|p| format!("{} {}", p["in"], p["name"])).collect()
    };
    for gone in parameters(old.part, false).difference(&parameters(new.part, false)) {
        found.push(format!("{at}: the parameter {gone} is gone"));
    }
    for needed in parameters(new.part, true).difference(&parameters(old.part, true)) {
        found.push(format!("{at}: the parameter {needed} is needed now"));
    }
    let (was_taken, is_taken) =
        (&old.part["requestBody"]["content"], &new.part["requestBody"]["content"]);
    if was_taken.is_null() && new.part["requestBody"]["required"] == true {
        found.push(format!("{at}: a body is needed now"));
    }
    for (kind, media) in fields(was_taken) {
        match is_taken.get(kind) {
            None => found.push(format!("{at}: {kind} is not taken any more")),
            Some(now) => {
                let (old, new) = (old.at(&media["schema"]), new.at(&now["schema"]));
                schema_broken(old, new, Way::Sent, &format!("{at}, sent"), &[], found);
            }
        }
    }
    for (status, answer) in fields(&old.part["responses"]) {
        let Some(now) = new.part["responses"].get(status) else {
            found.push(format!("{at}: the answer {status} is gone"));
            continue;
        };
        for (kind, media) in fields(&answer["content"]) {
            match now["content"].get(kind) {
                None => found.push(format!("{at}: {status} {kind} is gone")),
                Some(now) => {
                    let (old, new) = (old.at(&media["schema"]), new.at(&now["schema"]));
                    schema_broken(old, new, Way::Answered, &format!("{at}, {status}"), &[], found);
                }
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Sent,
    Answered,
}

fn types(schema: &Value) -> BTreeSet<&str> {
    match &schema["type"] {
        Value::String(one) => BTreeSet::from([one.as_str()]),
        many => names(many),
    }
}

fn names(value: &Value) -> BTreeSet<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// A schema that is made of others, as one.
fn merged(schema: Part<'_>) -> Value {
    let mut whole = schema.part.clone();
    for part in schema.part["allOf"].as_array().into_iter().flatten() {
        let part = merged(schema.at(part).resolved());
        for (name, property) in fields(&part["properties"]) {
            whole["properties"][name] = property.clone();
        }
        let mut required = part["required"].as_array().cloned().unwrap_or_default();
        required.extend(whole["required"].as_array().cloned().unwrap_or_default());
        whole["required"] = Value::Array(required);
        whole["type"] = json!("object");
    }
    whole
}

fn schema_broken(
    old: Part<'_>,
    new: Part<'_>,
    way: Way,
    at: &str,
    above: &[&str],
    found: &mut Vec<String>,
) {
    let name = old.part["$ref"].as_str();
    if name.is_some_and(|name| above.contains(&name)) {
        return;
    }
    let above: Vec<&str> = above.iter().copied().chain(name).collect();
    let (old, new) = (old.resolved(), new.resolved());
    let (merged_old, merged_new) = (merged(old), merged(new));
    let (old, new) = (old.at(&merged_old), new.at(&merged_new));
    let (before, after) = (types(old.part), types(new.part));
    // What is taken may become more, what is answered less, never the other way round.
    let (must, may) = if way == Way::Sent { (&before, &after) } else { (&after, &before) };
    if !may.is_empty() && !must.is_subset(may) {
        found.push(format!("{at}: {before:?} became {after:?}"));
    }
    let (was_listed, is_listed) = (names(&old.part["enum"]), names(&new.part["enum"]));
    if way == Way::Sent {
        for gone in was_listed.difference(&is_listed) {
            found.push(format!("{at}: the value {gone} is not taken any more"));
        }
    }
    let (was_needed, is_needed) = (names(&old.part["required"]), names(&new.part["required"]));
    if way == Way::Sent {
        for needed in is_needed.difference(&was_needed) {
            found.push(format!("{at}: {needed} is needed now"));
        }
    } else {
        for gone in was_needed.difference(&is_needed) {
            found.push(format!("{at}: {gone} may be left out now"));
        }
    }
    for (name, property) in fields(&old.part["properties"]) {
        match new.part["properties"].get(name) {
            None => found.push(format!("{at}: {name} is gone")),
            Some(now) => {
                let at = format!("{at}.{name}");
                schema_broken(old.at(property), new.at(now), way, &at, &above, found);
            }
        }
    }
    if !old.part["items"].is_null() {
        let (old, new) = (old.at(&old.part["items"]), new.at(&new.part["items"]));
        schema_broken(old, new, way, &format!("{at}[]"), &above, found);
    }
}

type Change<'a> = &'a dyn Fn(&mut Value);

/// The comparison sees what it is for.
#[test]
fn what_would_break_a_client_is_found() {
    let old = read("released.json");
    assert!(broken(&old, &old).is_empty());
    let change = |pointer: &str, with: Change<'_>| {
        let mut new = old.clone();
        with(new.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer}")));
        broken(&old, &new)
    };
    let gone = |name: &'static str| {
        move |value: &mut Value| {
            value.as_object_mut().unwrap().remove(name).unwrap();
        }
    };
    let cases: &[(&str, Change<'_>)] = &[
        ("/paths", &gone("/api/v1/sessions")),
        ("/paths/~1api~1v1~1tasks", &gone("post")),
        ("/components/schemas/SessionStatus/allOf/1/properties", &gone("needs_resume")),
        ("/components/schemas/SessionStatus/allOf/1/properties/is_resumable", &|value| {
            *value = json!({"type": "string"});
        }),
        ("/components/schemas/SessionStatus/allOf/1", &|value| {
            value["required"].as_array_mut().unwrap().clear();
        }),
        ("/components/schemas/PromptRequest/required", &|value| {
            value.as_array_mut().unwrap().push(json!("more"));
        }),
        ("/components/schemas/SessionSummary/properties", &gone("status")),
        ("/paths/~1api~1v1~1sessions/get/parameters", &|value| {
            value.as_array_mut().unwrap().remove(0);
        }),
        ("/paths/~1api~1v1~1sessions/get/parameters/0", &|value| value["required"] = json!(true)),
        ("/paths/~1api~1v1~1tasks/post/responses", &gone("201")),
    ];
    for (pointer, with) in cases {
        assert!(!change(pointer, *with).is_empty(), "{pointer}");
    }
    let more = change("/components/schemas/SessionStatus/allOf/1/properties", &|value| {
        value["something_new"] = json!({"type": "string"});
    });
    assert!(more.is_empty(), "{more:?}");
}
