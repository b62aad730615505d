use serde_json::json;

use super::*;
use crate::terminal::display::text_of;
use crate::terminal::popup::Entry;
use crate::terminal::rows::width;

fn status() -> Status {
    Status {
        agent: "codex".to_owned(),
        model: Some("gpt-5".to_owned()),
        mode: Some("ask".to_owned()),
        folder: "~/api".to_owned(),
        branch: Some("fix-clock".to_owned()),
        session: "sess_0199".to_owned(),
        context: Some(12),
        cost: Some("0.42 USD".to_owned()),
        queued: 2,
        held: false,
    }
}

fn editor(text: &str) -> Editor {
    let mut editor = Editor::default();
    editor.set(text);
    editor
}

fn plan() -> Vec<Step> {
    let step = |words: &str, status| Step { words: words.to_owned(), status };
    vec![
        step("reproduce", StepStatus::Done),
        step("fix", StepStatus::Active),
        step("push", StepStatus::Pending),
    ]
}

fn queue() -> Vec<Queued> {
    vec![
        Queued { text: "and bump the version".to_owned(), mark: "queued 1" },
        Queued { text: "then\npush".to_owned(), mark: "queued 2" },
    ]
}

fn view<'a>(
    editor: &'a Editor,
    status: &'a Status,
    plan: &'a [Step],
    queue: &'a [Queued],
) -> View<'a> {
    let live = super::super::markdown::rows(
        "The test compares a local date with a UTC one, which differ",
        50,
    );
    View {
        live,
        plan,
        queue,
        asking: None,
        activity: Some(Activity {
            words: "working".to_owned(),
            elapsed_s: 42,
            frame: 0,
            keys: "esc interrupts",
        }),
        editor,
        label: "> ",
        placeholder: "Ask for something",
        popup: None,
        status,
        message: None,
        hint: "enter send · alt-enter newline · ctrl-t transcript · /help",
    }
}

#[test]
fn a_turn_on_screens_of_60_80_and_200_columns() {
    let (editor, status, plan, queue) = (
        editor("write a test for 日本語 as well,\nand one for midnight"),
        status(),
        plan(),
        queue(),
    );
    for columns in [60, 80, 200] {
        let picture = view(&editor, &status, &plan, &queue).picture(columns, 24);
        assert!(picture.rows.iter().all(|row| width(row) < columns));
        insta::assert_snapshot!(format!("turn_{columns}"), text_of(&picture));
    }
}

#[test]
fn a_permission_shows_all_of_its_command() {
    let question = json!({"kind": "run.waiting", "wait_id": "w", "question": {"toolCall":
        {"title": "Push the branch", "kind": "execute", "rawInput": {"command": "git push origin fix-clock"}},
        "options": [{"optionId": "y", "name": "Allow", "kind": "allow_once"},
            {"optionId": "a", "name": "Always allow git push", "kind": "allow_always"},
            {"optionId": "n", "name": "Reject", "kind": "reject_once"}]}});
    let question = crate::commands::chat::screen::question(&question).unwrap();
    let (editor, status) = (editor("typed before"), status());
    for columns in [60, 80, 200] {
        let mut asking = Asking::new(question.clone(), false);
        let view =
            View { asking: Some(&mut asking), activity: None, ..view(&editor, &status, &[], &[]) };
        insta::assert_snapshot!(
            format!("permission_{columns}"),
            text_of(&view.picture(columns, 24))
        );
    }
}

#[test]
fn choices_are_below_the_prompt() {
    let entry = |name: &str, what: &str| Entry {
        name: name.to_owned(),
        what: what.to_owned(),
        text: String::new(),
    };
    let entries = vec![entry("/model", "Choose a model"), entry("/mode", "Choose a mode")];
    let popup = Popup { from: 0, entries, chosen: 1 };
    let (editor, status) = (editor("/mo"), status());
    let view = View {
        popup: Some(&popup),
        activity: None,
        live: Vec::new(),
        ..view(&editor, &status, &[], &[])
    };
    insta::assert_snapshot!(text_of(&view.picture(60, 24)));
}

#[test]
fn a_screen_of_any_size_holds_the_prompt() {
    let (editor, status, plan, queue) = (editor(&"words ".repeat(200)), status(), plan(), queue());
    for columns in [12, 20, 33] {
        for rows in [3, 4, 6, 10] {
            let picture = view(&editor, &status, &plan, &queue).picture(columns, rows);
            assert!(picture.rows.len() <= rows.max(4), "{columns}x{rows}: {}", text_of(&picture));
            let (row, column) = picture.cursor.unwrap();
            assert!(row < picture.rows.len() && column <= columns.max(13), "{columns}x{rows}");
        }
    }
}
