use serde_json::json;

use super::*;
use crate::terminal::display::text_of;

fn summary(id: u32, title: &str, status: &str, folder: &str, at: &str) -> SessionSummary {
    serde_json::from_value(json!({
        "session_id": format!("sess_{id:032x}"), "task_id": null, "title": title, "status": status,
        "state": "RUNNING", "reason": "idle", "sentence": format!("It is {status}."), "last_outcome": null,
        "read_only": false, "agent_profile_id": "codex", "provider": null, "working_dir": folder,
        "worktree_id": null, "worktree_path": null, "worktree_branch": "fix-clock",
        "created_at": at, "active_at": at, "last_seq": 9, "run_id": null,
        "queue": {"length": 1, "held": false}, "executor_status": null, "executor_id": null,
        "runtime": null, "agent_execution_id": null,
    }))
    .unwrap()
}

fn sessions() -> Sessions {
    let mut sessions = Sessions::default();
    sessions.set(vec![
        summary(1, "Bump dependencies", "completed", "/w/api", "2026-02-21T08:00:00.000Z"),
        summary(2, "Write the docs", "running", "/w/docs", "2026-02-21T09:57:00.000Z"),
        summary(3, "Fix the clock test, 日本語", "waiting", "/w/api", "2026-02-21T09:59:00.000Z"),
        summary(
            4,
            "Migrate billing",
            "interrupted_waiting",
            "/w/billing",
            "2026-02-21T09:55:00.000Z",
        ),
    ]);
    sessions
}

fn now() -> Timestamp {
    "2026-02-21T10:00:00.000Z".parse().unwrap()
}

#[test]
fn what_needs_the_person_is_first_at_60_80_and_200_columns() {
    let sessions = sessions();
    assert_eq!(sessions.chosen().unwrap().title.as_deref(), Some("Fix the clock test, 日本語"));
    let items = vec![Item::User { text: "tests/clock.rs fails".to_owned() }];
    let preview = Preview {
        session: sessions.chosen().map(|one| one.session_id.clone()),
        last_seq: 9,
        items,
    };
    for columns in [60, 80, 200] {
        let picture = sessions.picture(&preview, now(), columns, 16);
        assert!(picture.rows.iter().all(|row| width(row) <= columns));
        insta::assert_snapshot!(format!("dashboard_{columns}"), text_of(&picture));
    }
}

#[test]
fn a_choice_for_a_folder_has_its_sessions_first() {
    let mut sessions = Sessions { folder: Some("/w/docs".to_owned()), ..sessions() };
    sessions.search(|_| {});
    insta::assert_snapshot!(
        "picker_60",
        text_of(&sessions.picture(&Preview::default(), now(), 60, 16))
    );
    sessions.search(|query| query.push_str("BILL"));
    assert_eq!(sessions.chosen().unwrap().title.as_deref(), Some("Migrate billing"));
    sessions.search(|query| query.push('x'));
    assert!(sessions.chosen().is_none());
    assert!(text_of(&sessions.picture(&Preview::default(), now(), 20, 6)).contains("Nothing fits"));
}

#[test]
fn the_choice_stays_where_it_is_when_others_change() {
    let mut sessions = sessions();
    sessions.step(1);
    let chosen = sessions.chosen().unwrap().session_id.clone();
    sessions.change(summary(9, "New", "waiting", "/w", "2026-02-21T09:59:59.000Z"));
    assert_eq!(sessions.chosen().unwrap().session_id, chosen);
    sessions.remove(&chosen);
    assert_eq!(sessions.chosen().unwrap().title.as_deref(), Some("New"));
    sessions.step(100);
    assert_eq!(sessions.chosen().unwrap().title.as_deref(), Some("Bump dependencies"));
}
