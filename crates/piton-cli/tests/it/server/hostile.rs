//! Titles, names and messages that would control a terminal are shown, and control nothing.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::server::pty::Terminal;
use crate::server::world::World;

/// Sets a title, clears the screen, moves up, writes over the line, reorders in two ways.
const HOSTILE: &str = "a\x1b]0;owned\x07b\x1b[2Jc\u{9b}31md\x7fe\u{202e}f\rg\x1b[1Ah\u{61c}i";
/// All that Unicode has with the property `Bidi_Control`.
const REORDERING: [char; 12] = [
    '\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}',
    '\u{2066}', '\u{2067}', '\u{2068}', '\u{2069}',
];

/// What would reach a terminal, whatever prints it. Line ends and tabs are harmless.
fn controls(text: &str) -> Vec<char> {
    let is_control =
        |c: &char| (c.is_control() && *c != '\n' && *c != '\t') || REORDERING.contains(c);
    text.chars().filter(is_control).collect()
}

#[test]
pub(crate) fn what_others_wrote_never_controls_the_terminal() {
    let mut world = World::new();
    let task = world.post("/api/v1/tasks", &json!({"title": HOSTILE})).good();
    let task = task["task_id"].as_str().unwrap().to_owned();
    let token = json!({"name": HOSTILE, "scopes": ["read"]});
    world.post("/api/v1/access-tokens", &token).good();
    let made = json!({"title": HOSTILE, "task_id": task, "start": false});
    let made = world.post("/api/v1/sessions", &made).good();
    let session = made["session_id"].as_str().unwrap().to_owned();
    world.adopt(&session);
    world.post(&format!("/api/v1/sessions/{session}/start"), &json!({})).good();
    world.when(&session, |status| status["status"] == "idle");
    // The script's words are one line each: the question and the answer are hostile, too.
    let line = HOSTILE.replace('\r', " ");
    world.prompt(&session, &format!("say {line}\nask {line}"));
    let status = world.when(&session, |status| status["status"] == "waiting");
    let wait = status["waits"][0]["wait_id"].as_str().unwrap_or_default().to_owned();

    let commands: &[&[&str]] = &[
        &["tasks", "list"],
        &["tasks", "show", &task],
        &["tasks", "show", HOSTILE],
        &["tokens", "list"],
        &["sessions", "list"],
        &["sessions", "show", &session],
        &["sessions", "show", HOSTILE],
        &["sessions", "log", &session],
        &["sessions", "waits"],
        &["sessions", "answer", &wait, HOSTILE],
        &["attach", &session],
        &["agents", "probe", HOSTILE],
        &["status"],
        &["verify"],
        &["doctor"],
        &["config", "show"],
    ];
    let (mut shown, mut titles) = (0, 0);
    for command in commands {
        for extra in [&[] as &[&str], &["--json"]] {
            let output = world.command(command).args(extra).output().unwrap();
            for bytes in [output.stdout, output.stderr] {
                let text = String::from_utf8(bytes).unwrap();
                assert_eq!(controls(&text), [' '; 0], "{command:?} {extra:?}: {text:?}");
                shown += usize::from(text.contains("^[[2J"));
                // In JSON nothing is lost; notes beside it are text.
                for line in text.lines().filter(|line| line.starts_with('{')) {
                    let value: Value = serde_json::from_str(line).unwrap();
                    if let Some(title) = value["title"].as_str() {
                        assert_eq!(title, HOSTILE, "{command:?}");
                        titles += 1;
                    }
                }
            }
        }
    }
    assert!(titles >= 3, "whole in {titles} lines of JSON");
    assert!(shown >= 7, "readable in {shown} of the outputs");

    // With colours, in a terminal: what controls it is ours.
    let mut attach = world.command(&["attach", "--plain", &session]);
    attach.env_remove("NO_COLOR").env("TERM", "xterm-256color").stdin(Stdio::piped());
    let mut attached = Terminal::run(attach);
    attached.shows("^[[2J");
    attached.interrupt();
    attached.shows("-- cancelled");
    attached.interrupt();
    attached.shows("-- Ctrl-C again leaves");
    attached.interrupt();
    let (_, screen) = attached.ends();
    for forbidden in ["\x1b]0;", "\x1b[2J", "\x1b[1A", "\u{9b}", "\u{202e}", "\u{61c}"] {
        assert!(!screen.contains(forbidden), "{forbidden:?} in {screen:?}");
    }
}
