//! One thing has one name: an id is `session_id`, `run_id`, `wait_id`, `task_id` and `checkpoint_id` in
//! all that is printed with `--json`, as in the API.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::path::{Path, PathBuf};

use serde_json::Value;

/// Keys that name a thing; its id has `_id` behind the name.
const THINGS: &[&str] = &["session", "run", "wait", "task", "checkpoint"];

/// Keys of an object that name an id as if it were the thing.
fn misnamed(object: &Value) -> Vec<&'static str> {
    let is_id = |name: &&&str| object.get(**name).is_some_and(Value::is_string);
    THINGS.iter().filter(is_id).copied().collect()
}

/// Looks at every line of an output that is an object; called for all that the tests read.
pub(crate) fn assert_ids_are_named(printed: &str) {
    for line in printed.lines() {
        let Ok(object) = serde_json::from_str::<Value>(line) else { continue };
        let found = misnamed(&object);
        assert!(found.is_empty(), "{found:?} should end in _id: {line}");
    }
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The keys of `json!` that should be the key of an id.
fn misnamed_keys(source: &str) -> Vec<&'static str> {
    let is_key = |name: &&&str| source.contains(&format!("\"{name}\":"));
    THINGS.iter().filter(is_key).copied().collect()
}

/// Wants to show: also what no test reads names ids by one name.
#[test]
fn ids_have_one_name_in_json() {
    assert_eq!(misnamed(&serde_json::json!({"session": "sess_1", "wait": {}})), ["session"]);
    assert_eq!(misnamed_keys(r#"json!({"run": id, "wait_id": wait})"#), ["run"]);
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    assert!(files.len() > 100, "the commands' sources are looked at");
    for file in files {
        let found = misnamed_keys(&std::fs::read_to_string(&file).unwrap());
        assert!(found.is_empty(), "{}: {found:?} should end in _id", file.display());
    }
}
