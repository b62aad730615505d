//! A permission request in words: everything that is asked for, line by line, nothing cut.

use std::time::Duration;

use piton_core::permission::{Diff, PermissionRequest};
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use crate::ui::Tone;

/// Unchanged lines that are shown around a change.
const CONTEXT_LINES: usize = 3;

/// After this a change is shown in larger pieces than necessary: the screen does not wait.
const DIFF_TIME_MAX: Duration = Duration::from_millis(50);

/// A line, and what it is.
pub(crate) type Line = (Tone, String);

/// The whole request.
pub(crate) fn lines(request: &PermissionRequest) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut title = request.title.lines();
    lines.push((Tone::Attention, format!("? {}", title.next().unwrap_or_default())));
    lines.extend(title.map(|line| (Tone::Attention, format!("  {line}"))));
    if let Some(command) = request.command.as_ref().filter(|command| **command != request.title) {
        for (at, line) in command.lines().enumerate() {
            let sign = if at == 0 { '$' } else { ' ' };
            lines.push((Tone::Active, format!("  {sign} {line}")));
        }
    }
    for place in &request.locations {
        let is_shown = request.diffs.iter().any(|diff| diff.path == place.path);
        if is_shown || request.title.contains(&place.path) {
            continue;
        }
        let line = place.line.map_or_else(String::new, |line| format!(":{line}"));
        lines.push((Tone::Quiet, format!("  at {}{line}", place.path)));
    }
    if let Some(text) = &request.text {
        lines.extend(text.lines().map(|line| (Tone::Plain, format!("  {line}"))));
    }
    request.diffs.iter().for_each(|diff| push_diff(diff, &mut lines));
    push_arguments(request, &mut lines);
    if request.missing_bytes > 0 {
        let bytes = request.missing_bytes;
        let text =
            format!("  {bytes} bytes of this request are missing: Piton was not given them.");
        lines.push((Tone::Bad, text));
    }
    lines
}

/// What the arguments say that is not on the screen yet.
fn push_arguments(request: &PermissionRequest, lines: &mut Vec<Line>) {
    let is_shown = |key: &str, value: &Value| {
        let is_command = request.is_command_argument(key);
        let of_diff = |diff: &Diff| {
            let text = value.as_str();
            text == Some(&diff.new_text)
                || text == Some(&diff.path)
                || text == diff.old_text.as_deref()
        };
        let is_in_title = value.as_str().is_some_and(|text| request.title == text);
        is_command || is_in_title || request.diffs.iter().any(of_diff)
    };
    match &request.arguments {
        Value::Null => {}
        Value::Object(arguments) => {
            for (key, value) in arguments.iter().filter(|(key, value)| !is_shown(key, value)) {
                let text = match value {
                    Value::String(text) => text.clone(),
                    value => serde_json::to_string_pretty(value).unwrap_or_default(),
                };
                let mut text = text.lines();
                let first = text.next().unwrap_or_default();
                lines.push((Tone::Plain, format!("  {key}: {first}")));
                lines.extend(text.map(|line| (Tone::Plain, format!("    {line}"))));
            }
        }
        other => lines.push((Tone::Plain, format!("  {other}"))),
    }
}

/// A change: its path, and its lines with a few that are around them.
pub(crate) fn diff_lines(diff: &Diff) -> Vec<Line> {
    let mut lines = Vec::new();
    push_diff(diff, &mut lines);
    lines
}

fn push_diff(diff: &Diff, lines: &mut Vec<Line>) {
    let new: Vec<&str> = diff.new_text.lines().collect();
    let Some(old) = &diff.old_text else {
        lines.push((Tone::Title, format!("  {} (new file)", diff.path)));
        lines.extend(new.iter().map(|line| (Tone::Good, format!("  + {line}"))));
        return;
    };
    lines.push((Tone::Title, format!("  {}", diff.path)));
    let old: Vec<&str> = old.lines().collect();
    if old == new {
        lines.push((Tone::Quiet, "    only line ends differ, or nothing".to_owned()));
        return;
    }
    let changes = TextDiff::configure().timeout(DIFF_TIME_MAX).diff_slices(&old, &new);
    for (at, group) in changes.grouped_ops(CONTEXT_LINES).iter().enumerate() {
        if at > 0 {
            lines.push((Tone::Quiet, "    …".to_owned()));
        }
        for change in group.iter().flat_map(|op| changes.iter_changes(op)) {
            let (tone, sign) = match change.tag() {
                ChangeTag::Equal => (Tone::Quiet, ' '),
                ChangeTag::Delete => (Tone::Bad, '-'),
                ChangeTag::Insert => (Tone::Good, '+'),
            };
            lines.push((tone, format!("  {sign} {}", change.value())));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(question: &Value) -> Vec<String> {
        lines(&PermissionRequest::new(question, [])).into_iter().map(|(_, line)| line).collect()
    }

    #[test]
    fn a_command_is_shown_whole_with_its_other_arguments() {
        let long = format!("echo {}\nrm x", "y".repeat(300));
        let question = json!({"toolCall": {"title": "Tidy up", "kind": "execute",
            "rawInput": {"command": long, "cwd": "/w", "options": {"a": 1}}}});
        let first = format!("  $ echo {}", "y".repeat(300));
        assert_eq!(
            text(&question),
            [
                "? Tidy up",
                &first,
                "    rm x",
                "  cwd: /w",
                "  options: {",
                "      \"a\": 1",
                "    }"
            ]
        );
    }

    #[test]
    fn a_command_hides_no_other_argument() {
        let asked = |arguments: &Value| {
            text(
                &json!({"toolCall": {"title": "Tidy up", "kind": "execute", "rawInput": arguments}}),
            )
        };
        assert_eq!(
            asked(&json!({"command": "git status", "script": "rm -rf ~"})),
            ["? Tidy up", "  $ git status", "  script: rm -rf ~"]
        );
        assert_eq!(asked(&json!({"cmd": "ls", "script": " ls"})), ["? Tidy up", "  $ ls"]);
        let program = ["? Tidy up", "  $ ./sh -c ls"];
        assert_eq!(asked(&json!({"command": ["./sh", "-c", "ls"]})), program);
        // One said in the call, one in the question.
        let question = json!({"call": {"name": "run", "rawInput": {"command": "git status"}},
            "toolCall": {"title": "Tidy up", "rawInput": {"cmd": "rm -rf ~"}}});
        let lines = text(&question);
        for command in ["git status", "rm -rf ~"] {
            assert!(lines.iter().any(|line| line.contains(command)), "{lines:?}");
        }
    }

    #[test]
    fn a_change_is_shown_with_what_is_around_it() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let new = "1\n2\n3\n4\nfive\n6\n7\n8\n9\n";
        let question = json!({"toolCall": {"title": "Edit", "locations": [{"path": "a"}],
            "rawInput": {"file_path": "a", "new": new},
            "content": [{"type": "diff", "path": "a", "oldText": old, "newText": new},
                {"type": "diff", "path": "b", "newText": "n\n"}]}});
        assert_eq!(
            text(&question),
            [
                "? Edit",
                "  a",
                "    2",
                "    3",
                "    4",
                "  - 5",
                "  + five",
                "    6",
                "    7",
                "    8",
                "  b (new file)",
                "  + n"
            ]
        );
    }

    #[test]
    fn lines_between_two_changes_are_not_part_of_them() {
        let of = |first: &str, last: &str| format!("{first}\n2\n3\n4\n5\n6\n7\n8\n9\n{last}\n");
        let diff = Diff {
            path: "a".to_owned(),
            old_text: Some(of("1", "10")),
            new_text: of("one", "ten"),
        };
        let texts: Vec<String> = diff_lines(&diff).into_iter().map(|(_, line)| line).collect();
        let wanted = "  a|  - 1|  + one|    2|    3|    4|    …|    7|    8|    9|  - 10|  + ten";
        assert_eq!(texts.join("|"), wanted);
    }

    #[test]
    fn what_is_missing_is_said() {
        let question = json!({"toolCall": {"title": "Edit"}, "missing_bytes": 12});
        let missing = "  12 bytes of this request are missing: Piton was not given them.";
        assert_eq!(text(&question), ["? Edit", missing]);
    }
}
