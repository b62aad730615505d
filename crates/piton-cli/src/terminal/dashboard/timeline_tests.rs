use ratatui::crossterm::event::KeyModifiers;
use serde_json::json;

use super::*;
use crate::terminal::display::text_of;

fn checkpoint(n: u32, lineage: u32, words: &str, error: Option<&str>) -> CheckpointSummary {
    serde_json::from_value(json!({
        "checkpoint_id": format!("cp_{n:032x}"), "type": "node_start", "created_at": "2026-02-21T10:00:00.000Z",
        "current_node": "check", "next_node": null, "is_clean": true, "can_resume_from": true,
        "description": words, "lineage": lineage, "error": error,
    }))
    .unwrap()
}

fn graph() -> Box<GraphView> {
    serde_json::from_value(json!({
        "session_id": format!("sess_{:032x}", 1), "graph": "ship", "goal": null, "file": null, "spec_hash": "",
        "lineage": 2, "is_on_server": true, "nodes": [], "edges": [], "execution_path": ["load"],
        "failed_at_node": "check", "error": "exit 1", "resume_from_checkpoint_id": null, "waits": [],
        "excluded_keys": [], "last_seq": 9,
    }))
    .unwrap()
}

fn view() -> CheckpointView {
    serde_json::from_value(json!({
        "checkpoint_id": format!("cp_{:032x}", 3), "session_id": format!("sess_{:032x}", 1),
        "checkpoint_type": "node_start", "created_at": "2026-02-21T10:00:00.000Z", "current_node": "check",
        "next_node": null, "execution_path": ["load"], "shared_memory": {"n": 0, "repo": "web"},
        "excluded_keys": ["api_key"], "accumulated_outputs": {}, "metrics_snapshot":
            {"total_retries": 0, "nodes_with_failures": [], "nodes_completed": 1, "total_latency_ms": 1},
        "is_clean": true, "can_resume_from": true, "description": "Before `check` starts", "signature": "",
        "log_position": 5, "parent": null, "lineage": 2,
    }))
    .unwrap()
}

fn timeline() -> Timeline {
    let all = vec![
        checkpoint(3, 2, "Before `check` starts", Some("exit 1")),
        checkpoint(2, 1, "Before `check` starts", None),
        checkpoint(1, 1, "`load` completed", None),
    ];
    let session = format!("sess_{:032x}", 1).parse().unwrap();
    Timeline::new(session, 9, Checkpoints::Graph(graph(), all))
}

fn press(timeline: &mut Timeline, keys: &str) -> Wanted {
    let mut wanted = Wanted::Nothing;
    for c in keys.chars() {
        let code = match c {
            '\r' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            '\x7f' => KeyCode::Backspace,
            c => KeyCode::Char(c),
        };
        wanted = timeline.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
    wanted
}

/// By keys alone: the failed node's checkpoint is chosen, its memory shown, a value edited, and the
/// resume asked for with it.
#[test]
fn a_failed_graph_is_resumed_from_a_checkpoint_with_an_edited_value() {
    let mut timeline = timeline();
    insta::assert_snapshot!("timeline_80", text_of(&timeline.picture(80, 12)));
    let id = format!("cp_{:032x}", 3);
    assert_eq!(press(&mut timeline, "\r"), Wanted::Inspect(id.clone()));
    timeline.inspected(view());
    press(&mut timeline, "e\x7f12");
    let editing = timeline.picture(60, 12);
    assert!(text_of(&editing).contains("  n = 12") && editing.cursor.is_some());
    press(&mut timeline, "\r");
    insta::assert_snapshot!("inspection_60", text_of(&timeline.picture(60, 12)));
    let set = json!({"n": 12}).as_object().unwrap().clone();
    assert_eq!(press(&mut timeline, "r"), Wanted::Resume { checkpoint: id, set });
    // A value that is no JSON is a text; leaving the line leaves the value.
    press(&mut timeline, "je");
    press(&mut timeline, &"\x7f".repeat(5));
    press(&mut timeline, "a b\r");
    press(&mut timeline, "jesecret\x1b");
    let Wanted::Resume { set, .. } = press(&mut timeline, "r") else { panic!() };
    assert_eq!(Value::Object(set), json!({"n": 12, "repo": "a b"}));
    assert_eq!(press(&mut timeline, "\x1bq"), Wanted::Close);
}

#[test]
fn two_checkpoints_are_compared() {
    let mut timeline = timeline();
    let id = |n: u32| format!("cp_{n:032x}");
    assert_eq!(press(&mut timeline, "d"), Wanted::Diff { from: id(2), to: id(3) });
    assert_eq!(press(&mut timeline, "jj kkd"), Wanted::Diff { from: id(1), to: id(3) });
    let diff: CheckpointDiff = serde_json::from_value(json!({
        "session_id": format!("sess_{:032x}", 1), "from_checkpoint_id": id(1), "to_checkpoint_id": id(3),
        "nodes_completed": ["load"], "nodes_undone": [], "outputs": {"added": {}, "changed": {}, "removed": {}},
        "memory": {"added": {"repo": "web"}, "changed": {"n": {"from": 0, "to": 12}}, "removed": {"old": null}},
        "excluded_keys": ["api_key"],
    }))
    .unwrap();
    timeline.compared(&diff);
    insta::assert_snapshot!("diff_60", text_of(&timeline.picture(60, 12)));
}

#[test]
fn a_turn_is_rewound_to_only_when_that_is_confirmed() {
    let turn = |n: u32, kind: &str| {
        json!({"checkpoint_id": format!("cp_{n:032x}"), "type": kind, "seq": n,
            "created_at": "2026-02-21T10:00:00.000Z", "lineage": 1, "is_live": true, "run_id": "run_1",
            "has_files": true, "snapshot_late": false})
    };
    let list =
        serde_json::from_value(json!({"session_id": format!("sess_{:032x}", 1), "lineage": 1,
        "can_undo": false, "checkpoints": [turn(2, "turn_complete"), turn(1, "turn_start")]}));
    let session = format!("sess_{:032x}", 1).parse().unwrap();
    let mut timeline = Timeline::new(session, 2, Checkpoints::Turns(list.unwrap()));
    let checkpoint = format!("cp_{:032x}", 1);
    assert_eq!(press(&mut timeline, "jrxy"), Wanted::Nothing);
    assert_eq!(press(&mut timeline, "ry"), Wanted::Rewind { checkpoint });
    assert_eq!(press(&mut timeline, "u"), Wanted::Undo);
}
