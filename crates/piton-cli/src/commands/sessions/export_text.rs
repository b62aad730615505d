//! A session as a text for people: Markdown, or one HTML file that loads nothing and runs nothing.
//! What agents and tools wrote is shown as text, whatever it contains.

use std::fmt::Write as _;

use piton_api::SessionSummary;
use piton_core::Timestamp;

use crate::permission_text;
use crate::terminal::conversation::Item;
use crate::terminal::tool::{Outcome, Tool};
use crate::text::{one_line, visible};
use crate::times;
use crate::ui::Tone;

/// Facts at the head of the text.
fn facts(session: &SessionSummary, exported_at: Timestamp) -> Vec<(&'static str, String)> {
    let mut facts = vec![("Session", session.session_id.to_string())];
    facts.extend(session.agent_profile_id.clone().map(|agent| ("Agent", agent)));
    facts.extend(session.working_dir.clone().map(|folder| ("Folder", folder)));
    facts.extend(session.worktree_branch.clone().map(|branch| ("Branch", branch)));
    facts.push(("Created", times::date_and_time(session.created_at)));
    facts.push(("Last active", times::date_and_time(session.active_at)));
    facts.push(("Status", session.sentence.clone()));
    facts.push(("Exported", times::date_and_time(exported_at)));
    facts.into_iter().map(|(name, text)| (name, one_line(&text))).collect()
}

fn title(session: &SessionSummary) -> String {
    one_line(session.title.as_deref().unwrap_or(session.session_id.as_str()))
}

fn outcome(tool: &Tool) -> &'static str {
    match tool.outcome {
        None => "running",
        Some(Outcome::Done) => "done",
        Some(Outcome::Failed) => "failed",
        Some(Outcome::Cancelled) => "cancelled",
        Some(Outcome::Unknown) => "outcome unknown",
    }
}

fn changes(tool: &Tool) -> String {
    let mut text = String::new();
    for diff in &tool.diffs {
        for (tone, line) in permission_text::diff_lines(diff) {
            let line = line.strip_prefix("  ").unwrap_or(&line);
            debug_assert!(!matches!(tone, Tone::Attention));
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

pub(super) fn markdown(session: &SessionSummary, items: &[Item], now: Timestamp) -> String {
    let mut out = format!("# {}\n\n", inline(&title(session)));
    for (name, text) in facts(session, now) {
        let _ = writeln!(out, "- {name}: {}", inline(&text));
    }
    for item in items {
        out.push('\n');
        match item {
            Item::User { text } => {
                out.push_str("## You\n\n");
                for line in visible(text).lines() {
                    let _ = writeln!(out, "> {line}");
                }
            }
            // Agents write Markdown.
            Item::Agent { text, .. } => {
                let _ = writeln!(out, "## Agent\n\n{}", visible(text).trim_end());
            }
            Item::Thought { text, .. } => {
                out.push_str("Thinking:\n\n");
                for line in visible(text).trim().lines() {
                    let _ = writeln!(out, "> {line}");
                }
            }
            Item::Tool(tool) => {
                let _ = writeln!(
                    out,
                    "**{}** {} ({})",
                    inline(&one_line(tool.verb())),
                    code(&one_line(&tool.subject())),
                    outcome(tool)
                );
                for (kind, text) in [("diff", changes(tool)), ("", tool.output.clone())] {
                    if !text.trim().is_empty() {
                        let _ = write!(out, "\n{}", fenced(kind, &visible(&text)));
                    }
                }
            }
            Item::Asked { title, answer, .. } => {
                let answer = answer.as_deref().unwrap_or("not answered");
                let _ = writeln!(
                    out,
                    "**Asked:** {} — {}",
                    inline(&one_line(title)),
                    inline(&one_line(answer))
                );
            }
            Item::Note { text, .. } => {
                let _ = writeln!(out, "*{}*", inline(&one_line(text)));
            }
            Item::Shell { command, output, .. } => {
                let text = format!("$ {command}\n{output}");
                out.push_str(&fenced("", &visible(&text)));
            }
        }
    }
    out
}

/// A line in which no character is markup.
fn inline(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if "\\`*_[]<>#|&".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// The longest row of backticks in a text.
fn ticks(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

fn code(text: &str) -> String {
    let fence = "`".repeat(ticks(text) + 1);
    if text.is_empty() { String::new() } else { format!("{fence} {text} {fence}") }
}

fn fenced(kind: &str, text: &str) -> String {
    let fence = "`".repeat(ticks(text).max(2) + 1);
    format!("{fence}{kind}\n{}\n{fence}\n", text.trim_end())
}

const STYLE: &str = "\
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem}
pre{font:13px/1.45 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere;margin:.25rem 0}
section{margin:1rem 0;padding:.5rem .75rem;border-left:3px solid #8886}
section.you{border-color:#3b82f6}section.error{border-color:#dc2626}
h2{font-size:.8rem;margin:0;opacity:.7}dl{display:grid;grid-template-columns:8rem 1fr;margin:0}
dd{margin:0}.quiet{opacity:.7}.add{color:#15803d}.del{color:#b91c1c}";

pub(super) fn html(session: &SessionSummary, items: &[Item], now: Timestamp) -> String {
    let title = escaped(&title(session));
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>\n{STYLE}\n</style>\n</head>\n<body>\n<h1>{title}</h1>\n<dl>\n"
    );
    for (name, text) in facts(session, now) {
        let _ = writeln!(out, "<dt>{name}</dt><dd>{}</dd>", escaped(&text));
    }
    out.push_str("</dl>\n");
    for item in items {
        let (class, heading, body) = match item {
            Item::User { text } => ("you", "You".to_owned(), pre(text)),
            Item::Agent { text, .. } => ("agent", "Agent".to_owned(), pre(text)),
            Item::Thought { text, .. } => ("quiet", "Thinking".to_owned(), pre(text.trim())),
            Item::Tool(tool) => {
                let class = if tool.outcome == Some(Outcome::Failed) { "error" } else { "tool" };
                let heading = format!("{} ({})", tool.verb(), outcome(tool));
                let mut body = pre(&tool.subject());
                body += &diff_html(tool);
                if !tool.output.trim().is_empty() {
                    body += &pre(&tool.output);
                }
                (class, heading, body)
            }
            Item::Asked { title, answer, .. } => {
                let answer = answer.as_deref().unwrap_or("not answered");
                ("asked", "Asked".to_owned(), pre(&format!("{title}\n→ {answer}")))
            }
            Item::Note { tone, text } => {
                let class = if *tone == Tone::Bad { "error" } else { "quiet" };
                (class, "Piton".to_owned(), pre(text))
            }
            Item::Shell { command, output, .. } => {
                ("tool", "Shell".to_owned(), pre(&format!("$ {command}\n{output}")))
            }
        };
        let heading = escaped(&one_line(&heading));
        let _ = writeln!(out, "<section class=\"{class}\">\n<h2>{heading}</h2>\n{body}</section>");
    }
    out.push_str("</body>\n</html>\n");
    out
}

fn diff_html(tool: &Tool) -> String {
    let lines: Vec<_> = tool.diffs.iter().flat_map(permission_text::diff_lines).collect();
    if lines.is_empty() {
        return String::new();
    }
    let mut out = String::from("<pre>");
    for (tone, line) in lines {
        let line = escaped(&visible(line.strip_prefix("  ").unwrap_or(&line)));
        let _ = match tone {
            Tone::Good => writeln!(out, "<span class=\"add\">{line}</span>"),
            Tone::Bad => writeln!(out, "<span class=\"del\">{line}</span>"),
            _ => writeln!(out, "{line}"),
        };
    }
    out + "</pre>\n"
}

fn pre(text: &str) -> String {
    format!("<pre>{}</pre>\n", escaped(visible(text).trim_end()))
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HOSTILE: &str =
        "</pre><script>alert('x')</script>\x1b]0;t\x07\u{202e}```\n# not a heading & \"q\"";

    fn session(title: &str) -> SessionSummary {
        serde_json::from_value(json!({
            "session_id": "sess_1", "task_id": null, "title": title, "status": "idle",
            "state": "WAITING_FOR_INPUT", "reason": "idle", "sentence": "It is idle.",
            "last_outcome": null, "read_only": false, "agent_profile_id": "codex", "provider": null,
            "working_dir": "/w/<b>", "worktree_id": null, "worktree_path": null,
            "worktree_branch": null, "created_at": "2026-02-21T08:00:00.000Z",
            "active_at": "2026-02-21T09:00:00.000Z", "last_seq": 9, "run_id": null,
            "queue": {"length": 0, "held": false}, "executor_status": null, "executor_id": null,
            "runtime": null, "agent_execution_id": null,
        }))
        .unwrap()
    }

    fn items() -> Vec<Item> {
        let mut tool = Tool::new(&json!({
            "call_id": "c", "name": HOSTILE, "arguments": {"command": format!("echo {HOSTILE}")},
            "ts": "2026-02-21T08:00:00.000Z",
        }));
        tool.finish(&json!({
            "status": "failed", "ts": "2026-02-21T08:00:01.000Z",
            "result": {"content": [
                {"type": "content", "content": {"type": "text", "text": HOSTILE}},
                {"type": "diff", "path": "a<b>.rs", "oldText": "old\n", "newText": HOSTILE},
            ]},
        }));
        let text = HOSTILE.to_owned();
        vec![
            Item::User { text: text.clone() },
            Item::Agent { message_id: "m".to_owned(), text: text.clone(), is_done: true },
            Item::Thought { message_id: "t".to_owned(), text: text.clone(), is_done: true },
            Item::Tool(Box::new(tool)),
            Item::Asked {
                wait_id: "w".to_owned(),
                title: text.clone(),
                options: Vec::new(),
                answer: None,
            },
            Item::Note { tone: Tone::Bad, text },
        ]
    }

    /// Whatever was written, the page has no element but its own, and nothing that controls a terminal.
    #[test]
    fn hostile_text_is_only_text() {
        let now = "2026-02-21T10:00:00.000Z".parse().unwrap();
        let page = html(&session(HOSTILE), &items(), now);
        assert!(!page.contains("<script") && !page.contains("</pre><"), "{page}");
        assert!(!page.contains("a<b>") && !page.contains("/w/<b>"), "{page}");
        assert_eq!(page.matches("<pre>").count(), page.matches("</pre>").count());
        assert!(page.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;"), "{page}");
        let text = markdown(&session(HOSTILE), &items(), now);
        for text in [&page, &text] {
            assert!(!text.contains(['\x1b', '\x07', '\u{202e}']));
        }
        // What was printed by a tool stays within its fence.
        assert!(text.contains("\n````\n</pre><script>"), "{text}");
        assert!(text.contains("**\\</pre\\>"), "{text}");
    }

    #[test]
    fn a_conversation_reads_well() {
        let now = "2026-02-21T10:00:00.000Z".parse().unwrap();
        let items = [
            Item::User { text: "Fix it\nplease".to_owned() },
            Item::Agent {
                message_id: "m".to_owned(),
                text: "Done: `a.rs`.\n".to_owned(),
                is_done: true,
            },
        ];
        let text = markdown(&session("Fix the test"), &items, now);
        insta::assert_snapshot!("export_markdown", text);
        insta::assert_snapshot!("export_html", html(&session("Fix the test"), &items, now));
    }
}
