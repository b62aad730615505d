//! Items of a conversation as rows. Pure.

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::conversation::Item;
use super::highlight::Highlighter;
use super::markdown;
use super::rows::{
    ACCENT, BAD, GOOD, QUIET, Row, STRONG, WAITING, cut, prefixed, row, span, style, wrap,
};
use super::tool::{Outcome, Tool};
use crate::permission_text;
use crate::ui::Tone;

/// Lines of a call's output that are shown below it.
const OUTPUT_LINES_SHOWN: usize = 5;
/// Lines of a change that are shown below its call.
const DIFF_LINES_SHOWN: usize = 24;

/// How much is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// As the conversation scrolls by: thoughts folded, the end of outputs.
    Short,
    /// All of it.
    Whole,
}

/// An item, with a blank row before it where a new thought begins.
pub(crate) fn item(item: &Item, width_max: usize, detail: Detail) -> Vec<Row> {
    let inner = width_max.saturating_sub(2).max(8);
    let mark = |sign: &str, style: Style| span(format!("{sign} "), style);
    let indent = Span::raw("  ");
    match item {
        Item::User { text } => {
            let lines = text.lines().flat_map(|line| wrap(row(line, STRONG), inner, 0)).collect();
            let mut rows = vec![Line::default()];
            rows.extend(prefixed(lines, &mark(">", ACCENT), &indent));
            rows
        }
        Item::Agent { text, .. } => {
            let mut rows = vec![Line::default()];
            rows.extend(prefixed(markdown::rows(text, inner), &indent, &indent));
            rows
        }
        Item::Thought { text, .. } => {
            let style = QUIET.add_modifier(Modifier::ITALIC);
            let text = text.trim();
            if detail == Detail::Short {
                let first = text.lines().next().unwrap_or_default();
                let more = if text.lines().nth(1).is_some() { " … ctrl-t shows all" } else { "" };
                let line = Line::from(vec![
                    span("thought  ", QUIET),
                    span(format!("{first}{more}"), style),
                ]);
                return vec![prefix_one(cut(line, inner))];
            }
            let lines = text.lines().flat_map(|line| wrap(row(line, style), inner, 0)).collect();
            prefixed(lines, &indent, &indent)
        }
        Item::Tool(tool) => self::tool(tool, width_max, detail),
        Item::Asked { title, answer, .. } => {
            let lines = title.lines().flat_map(|line| wrap(row(line, WAITING), inner, 0)).collect();
            let mut rows = prefixed(lines, &mark("?", WAITING), &indent);
            if let Some(answer) = answer {
                rows.extend(prefixed(
                    wrap(row(answer, QUIET), inner - 2, 0),
                    &span("  → ", QUIET),
                    &span("    ", QUIET),
                ));
            }
            rows
        }
        Item::Note { tone, text } => {
            let lines =
                text.lines().flat_map(|line| wrap(row(line, style(*tone)), inner, 0)).collect();
            let sign = match tone {
                Tone::Bad => "✗",
                Tone::Attention => "!",
                Tone::Good => "✓",
                _ => "·",
            };
            prefixed(lines, &mark(sign, style(*tone)), &indent)
        }
        Item::Shell { command, output, code } => {
            let mut rows = vec![Line::default()];
            let lines =
                command.lines().flat_map(|line| wrap(row(line, STRONG), inner, 0)).collect();
            rows.extend(prefixed(lines, &mark("!", ACCENT), &indent));
            rows.extend(self::output(output, width_max, detail));
            if *code != Some(0) {
                let words =
                    code.map_or("ended by a signal".to_owned(), |code| format!("exit {code}"));
                rows.push(prefix_one(row(words, BAD)));
            }
            rows
        }
    }
}

fn prefix_one(row: Row) -> Row {
    let mut spans = vec![Span::raw("  ")];
    spans.extend(row.spans);
    Line::from(spans)
}

/// A tool call: one line, the change that it made, the end of what it printed.
fn tool(tool: &Tool, width_max: usize, detail: Detail) -> Vec<Row> {
    let (sign, color) = match tool.outcome {
        None => ("○", WAITING),
        Some(Outcome::Done) => ("●", GOOD),
        Some(Outcome::Failed) => ("●", BAD),
        Some(Outcome::Cancelled | Outcome::Unknown) => ("●", QUIET),
    };
    let mut end = Vec::new();
    if let Some((added, taken)) = tool.counts() {
        end.push(span(format!("  +{added}"), GOOD));
        end.push(span(format!(" −{taken}"), BAD));
    }
    match tool.outcome {
        Some(Outcome::Failed) => end.push(span("  ✗ failed", BAD)),
        Some(Outcome::Cancelled) => end.push(span("  cancelled", QUIET)),
        Some(Outcome::Unknown) => end.push(span("  outcome not known", WAITING)),
        Some(Outcome::Done) | None => {}
    }
    if let Some(ms) = tool.elapsed_ms().filter(|ms| *ms >= 1_000) {
        end.push(span(format!("  {}.{} s", ms / 1_000, ms % 1_000 / 100), QUIET));
    }
    let subject = tool.subject();
    let mut lines = subject.lines();
    let first = lines.next().unwrap_or_default();
    let mut spans =
        vec![span(format!("{sign} "), color), span(tool.verb(), STRONG), Span::raw(" ")];
    spans.push(span(first, Style::new()));
    let room = width_max.saturating_sub(end.iter().map(Span::width).sum());
    let mut rows = match detail {
        Detail::Short => {
            let more = subject.lines().count() > 1;
            if more {
                spans.push(span(" …", QUIET));
            }
            let mut line = cut(Line::from(spans), room);
            line.spans.append(&mut end);
            vec![line]
        }
        Detail::Whole => {
            spans.append(&mut end);
            let mut rows = wrap(Line::from(spans), width_max, 4);
            for line in lines {
                rows.extend(wrap(row(format!("    {line}"), Style::new()), width_max, 4));
            }
            rows.extend(arguments(tool, width_max));
            rows
        }
    };
    rows.extend(diffs(tool, width_max, detail));
    if tool.diffs.is_empty() || detail == Detail::Whole {
        rows.extend(output(&tool.output, width_max, detail));
    }
    rows
}

/// What a call was given beside its subject.
fn arguments(tool: &Tool, width_max: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, text) in tool.other_arguments() {
        let mut lines = text.lines();
        let first = format!("    {name}: {}", lines.next().unwrap_or_default());
        rows.extend(wrap(row(first, QUIET), width_max, 6));
        rows.extend(lines.flat_map(|line| wrap(row(format!("      {line}"), QUIET), width_max, 6)));
    }
    rows
}

fn diffs(tool: &Tool, width_max: usize, detail: Detail) -> Vec<Row> {
    let mut rows = Vec::new();
    for diff in &tool.diffs {
        let mut code = Highlighter::for_path(&diff.path);
        for (tone, line) in permission_text::diff_lines(diff) {
            rows.extend(diff_row(tone, &line, &mut code, width_max));
        }
    }
    let shown = if detail == Detail::Short { DIFF_LINES_SHOWN } else { usize::MAX };
    if rows.len() > shown {
        let more = rows.len() - shown;
        rows.truncate(shown);
        rows.push(row(format!("      … {more} more lines · ctrl-t shows all"), QUIET));
    }
    rows
}

/// A line of a change: what was added and taken out in its colour, the rest as code.
pub(crate) fn diff_row(
    tone: Tone,
    line: &str,
    code: &mut Highlighter,
    width_max: usize,
) -> Vec<Row> {
    let line = match tone {
        Tone::Good => row(format!("  {line}"), GOOD),
        Tone::Bad => row(format!("  {line}"), BAD.remove_modifier(Modifier::BOLD)),
        Tone::Title => row(format!("  {line}"), STRONG),
        _ => {
            let mut spans = vec![Span::raw("  ")];
            spans.extend(code.line(line).into_iter().map(|span| span.patch_style(QUIET)));
            Line::from(spans)
        }
    };
    wrap(line, width_max, 6)
}

/// The last lines of what was printed; colours of its own are not kept.
fn output(text: &str, width_max: usize, detail: Detail) -> Vec<Row> {
    let text = strip_ansi(text);
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let shown = if detail == Detail::Short { OUTPUT_LINES_SHOWN } else { usize::MAX };
    let hidden = lines.len().saturating_sub(shown);
    let mut rows = Vec::new();
    if hidden > 0 {
        let notice = row(format!("    … {hidden} lines before · ctrl-t shows all"), QUIET);
        rows.push(cut(notice, width_max));
    }
    let inner = width_max.saturating_sub(4).max(8);
    for line in &lines[hidden..] {
        let line = row(line, QUIET);
        let pieces = match detail {
            Detail::Short => vec![cut(line, inner)],
            Detail::Whole => wrap(line, inner, 0),
        };
        rows.extend(prefixed(pieces, &Span::raw("    "), &Span::raw("    ")));
    }
    rows
}

/// Without the sequences with which programs colour their output; every other control character stays
/// for the sanitiser to name.
fn strip_ansi(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\x1b' || chars.peek() != Some(&'[') {
            shown.push(c);
            continue;
        }
        let mut sequence = String::from("\x1b[");
        chars.next();
        while let Some(c) = chars.peek().copied().filter(|c| c.is_ascii_digit() || *c == ';') {
            sequence.push(c);
            chars.next();
        }
        if chars.next_if_eq(&'m').is_none() {
            shown.push_str(&sequence);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::terminal::conversation::Conversation;
    use crate::terminal::rows::plain;

    fn shown(records: &[serde_json::Value], width_max: usize, detail: Detail) -> String {
        let mut conversation = Conversation::default();
        for record in records {
            conversation.apply(record);
        }
        let rows = conversation.items.iter().flat_map(|one| item(one, width_max, detail));
        rows.map(|row| plain(&row).trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }

    fn story() -> Vec<serde_json::Value> {
        let output: Vec<String> =
            (1..=9).map(|n| format!("\x1b[32mtest {n}\x1b[0m ... ok")).collect();
        vec![
            json!({"seq": 1, "kind": "message.user", "message_id": "m", "content": "tests/clock.rs fails every night, please find out why and mend it"}),
            json!({"seq": 2, "kind": "run.started", "run_id": "r"}),
            json!({"seq": 3, "kind": "message.delta", "message_id": "t", "channel": "thought", "text": "A clock.\nLocal or UTC?"}),
            json!({"seq": 4, "kind": "message.delta", "message_id": "a", "text": "The test compares a **local** date with a `Utc` one:\n\n| where | date |\n|---|---|\n| test | local |\n| code | UTC |"}),
            json!({"seq": 5, "kind": "tool.intent", "call_id": "c", "name": "Edit", "arguments": {}, "ts": "2026-02-21T10:00:00.000Z"}),
            json!({"seq": 6, "kind": "tool.outcome", "call_id": "c", "status": "succeeded", "ts": "2026-02-21T10:00:00.200Z",
                "result": {"kind": "edit", "content": [{"type": "diff", "path": "tests/clock.rs",
                    "oldText": "fn a() {\n    let today = Local::now().date();\n}\n", "newText": "fn a() {\n    let today = Utc::now().date();\n}\n"}]}}),
            json!({"seq": 7, "kind": "tool.intent", "call_id": "d", "name": "Bash", "arguments": {"command": "cargo test clock"}, "ts": "2026-02-21T10:00:01.000Z"}),
            json!({"seq": 8, "kind": "tool.outcome", "call_id": "d", "status": "succeeded", "ts": "2026-02-21T10:00:05.100Z",
                "result": {"kind": "execute", "content": [{"type": "content", "content": {"type": "text", "text": output.join("\n")}}]}}),
            json!({"seq": 9, "kind": "run.interrupted", "run_id": "r", "reason": "process_exit"}),
        ]
    }

    #[test]
    fn a_story_at_60_columns() {
        insta::assert_snapshot!(shown(&story(), 60, Detail::Short));
    }

    #[test]
    fn a_story_whole_at_80_columns() {
        insta::assert_snapshot!(shown(&story(), 80, Detail::Whole));
    }

    #[test]
    fn all_arguments_of_a_call_are_in_the_transcript() {
        let long = "word ".repeat(40);
        let records = [
            json!({"kind": "tool.intent", "call_id": "c", "name": "grep", "arguments":
                {"pattern": "fn main", "path": "src", "glob": ["*.rs"], "prompt": format!("one\n{long}")}}),
            json!({"kind": "tool.intent", "call_id": "d", "name": "lookup", "arguments": {"key": 7}}),
        ];
        let shown = shown(&records, 40, Detail::Whole);
        for line in
            ["    glob: [\"*.rs\"]", "    pattern: fn main", "    prompt: one", "      word"]
        {
            assert!(shown.lines().any(|one| one.starts_with(line)), "{line}:\n{shown}");
        }
        assert_eq!(shown.matches("word").count(), 40, "{shown}");
        assert_eq!(shown.matches("{\"key\":7}").count(), 1, "{shown}");
    }

    #[test]
    fn every_row_fits_a_narrow_screen() {
        for width_max in [20, 24, 33] {
            let mut conversation = Conversation::default();
            for record in &story() {
                conversation.apply(record);
            }
            for one in &conversation.items {
                for row in item(one, width_max, Detail::Short) {
                    assert!(crate::terminal::rows::width(&row) <= width_max, "{:?}", plain(&row));
                }
            }
        }
    }

    #[test]
    fn colours_of_an_output_go_and_all_else_is_named() {
        assert_eq!(
            strip_ansi("\x1b[1;31mred\x1b[0m \x1b[2J\x1b]0;t\x07"),
            "red \x1b[2J\x1b]0;t\x07"
        );
        let records = [
            json!({"kind": "tool.intent", "call_id": "c", "name": "x", "arguments": {}}),
            json!({"kind": "tool.outcome", "call_id": "c", "status": "succeeded",
                "result": {"rawOutput": "\x1b[31ma\x1b[2Jb"}}),
        ];
        assert_eq!(shown(&records, 40, Detail::Short), "● x\n    a^[[2Jb");
    }
}
