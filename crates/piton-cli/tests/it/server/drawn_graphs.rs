//! Graphs in the drawn client and on the dashboard, by keys alone.

use crate::server::drawn::{drawn, let_keys_count};
use crate::server::pty::{Home, Terminal};

pub(crate) const FAILING: &str = "\
piton: graph/v1
name: ship
nodes:
  load: {set: {n: 0, repo: web}}
  check:
    command: [sh, -c, \"n=$(cat | tr -dc 0-9); test \\\"$n\\\" -gt 0 && echo fine\"]
    reads: n
    writes: ok
edges:
  - load -> check
";

pub(crate) const ASKING: &str = "\
piton: graph/v1
name: approval
nodes:
  draft: {template: \"A text\", writes: draft}
  approve:
    human: {question: \"Send this?\\n\\n{{ draft }}\", options: [send, revise]}
    writes: decision
  why: {human: {question: \"Which address?\"}, writes: address}
  done: {template: \"{{ decision }} to {{ address }}\", writes: result}
edges:
  - draft -> approve
  - approve -> why
  - why -> done
";

pub(crate) fn run(home: &Home, graph: &str) {
    let file = home.folder.path().join("graph.yaml");
    std::fs::write(&file, graph).unwrap();
    let mut command = home.piton(&["run", file.to_str().unwrap()]);
    command.stdin(std::process::Stdio::null()).output().unwrap();
}

/// The dashboard's timeline: the failed node's checkpoint, its memory, an edited value, a resume, what
/// that changed, and both lineages.
#[test]
fn a_failed_graph_is_resumed_on_the_dashboard_with_an_edited_value() {
    let home = Home::new();
    run(&home, FAILING);
    let mut top = Terminal::run_sized(drawn(home.piton(&["top"])), 24, 100);
    top.sees("the graph by its name", |screen| {
        screen.contains("graph ship") && screen.contains("failed")
    });
    top.type_in("t");
    top.sees("its checkpoints", |screen| {
        screen.starts_with("Timeline")
            && screen.contains("Lineage 1 (current)")
            && screen.contains("failed at check")
    });
    // Below the node that failed: what was there before.
    top.type_in("j\r");
    top.sees("its memory", |screen| screen.contains("n = 0") && screen.contains("repo = \"web\""));
    top.type_in("e\x7f12\r");
    top.sees("the value", |screen| screen.contains("n = 12") && screen.contains("set by a resume"));
    top.type_in("r");
    top.sees("a complete run", |screen| {
        screen.contains("Lineage 1 (current)") && screen.contains("2 nodes completed")
    });
    top.type_in("\x1b[Hd");
    top.sees("what changed", |screen| screen.contains("+ node check"));
    // Back before it, as it was: another lineage, which fails as the first had.
    top.type_in("q\x1b[F\x1b[Ar");
    top.sees("another lineage", |screen| {
        screen.contains("Lineage 2 (current)")
            && screen.contains("Lineage 1 (left behind)")
            && screen.contains("failed at check")
    });
    top.type_in("q");
    top.sees("the list", |screen| screen.starts_with("Piton"));
    top.signal(rustix::process::Signal::TERM);
    let (good, screen) = top.ends();
    assert!(good && screen.ends_with("\x1b[?25h"), "{screen:?}");
    assert!(screen.contains("\x1b[?1049l"), "{screen:?}");
}

/// A graph's questions are read and answered where one attaches to it: an option, then a text.
#[test]
fn a_graph_is_followed_and_answered() {
    let home = Home::new();
    run(&home, ASKING);
    let mut attached = Terminal::run_sized(drawn(home.piton(&["attach"])), 24, 80);
    attached.sees("the question", |screen| {
        screen.contains("│ The graph asks")
            && screen.contains("│ Send this?")
            && screen.contains("A text")
            && screen.contains("1 send   2 revise")
            && screen.contains("✓ draft")
            && screen.contains("graph approval")
    });
    assert!(!attached.screen().contains("echo"), "{}", attached.screen());
    let_keys_count();
    attached.type_in("1");
    attached.sees("the next question", |screen| {
        screen.contains("│ Which address?") && screen.contains("→ send")
    });
    let_keys_count();
    attached.type_in("t");
    attached.sees_text("answer>");
    assert!(attached.screen().contains("? Which address?"), "{}", attached.screen());
    attached.type_in("the office\r");
    attached.sees("the end", |screen| screen.contains("→ the office") && screen.contains("✓ done"));
    attached.type_in("\x04");
    assert!(attached.ends().0);
}
