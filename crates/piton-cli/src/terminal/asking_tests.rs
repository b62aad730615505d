use piton_core::permission::PermissionRequest;
use serde_json::json;

use super::*;
use crate::commands::chat::screen::Asked;
use crate::terminal::rows::plain;

const DELAY: Duration = Duration::from_millis(300);

fn asking_of(command: &str) -> Asking {
    let question = json!({"toolCall": {"title": "Push", "kind": "execute", "rawInput": {"command": command}},
        "options": [{"optionId": "y", "name": "Allow", "kind": "allow_once"},
            {"optionId": "a", "name": "Always allow", "kind": "allow_always"},
            {"optionId": "n", "name": "Reject", "kind": "reject_once"}]});
    let request = PermissionRequest::new(&question, []);
    let options = request.options.iter().map(|o| (o.option_id.clone(), o.name.clone())).collect();
    let asked = Asked::default();
    Asking::new(Question { wait_id: "wait_1".to_owned(), request, options, asked }, false)
}

fn text(rows: &[Row]) -> String {
    rows.iter().map(|row| plain(row).trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

fn key(c: char) -> KeyEvent {
    KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE)
}

const TYPED: Pressed = Pressed::Typed { before: None };

#[test]
fn a_key_answers_between_two_moments_of_quiet() {
    let start = Instant::now();
    let ms = |ms: u64| start + Duration::from_millis(ms);
    let mut asking = asking_of("git push");
    asking.rows(60, 20);
    asking.drawn(ms(10));
    assert_eq!(asking.due_at(DELAY), Some(ms(310)));
    assert_eq!(asking.arm(ms(310), DELAY), None);
    assert_eq!(asking.press(key('1'), ms(400)), Pressed::Pending);
    assert_eq!((asking.due_at(DELAY), asking.arm(ms(699), DELAY)), (Some(ms(700)), None));
    assert_eq!(asking.arm(ms(700), DELAY), Some(Meaning::Option(0)));
    assert_eq!(asking.press(key('m'), ms(800)), Pressed::Pending);
    let enter = KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE);
    assert_eq!(asking.press(enter, ms(810)), Pressed::Meant(Meaning::RejectAndSay));
}

/// Any text whose letters are keys: it is typed whole, and nothing is answered until Tab is pressed.
#[test]
fn prose_over_a_request_is_typed_and_answers_nothing() {
    let start = Instant::now();
    for (text, gap) in [("an error", 20), ("an error", 400), ("1 more", 120), ("make it", 250)] {
        let mut asking = asking_of("rm -rf build");
        asking.rows(60, 20);
        asking.drawn(start);
        let mut now = start + DELAY * 2;
        let mut typed = String::new();
        for c in text.chars() {
            assert_eq!(asking.arm(now, DELAY), None, "{text} {c}");
            match asking.press(key(c), now) {
                Pressed::Typed { before } => typed.extend(before.into_iter().chain([c])),
                pressed => assert_eq!(pressed, Pressed::Pending, "{text} {c}"),
            }
            now += Duration::from_millis(gap);
        }
        assert_eq!(typed, text);
        assert_eq!(asking.due_at(DELAY), None);
        assert_eq!(asking.press(key('1'), now + DELAY * 9), TYPED, "the prompt has the keys");
        let tab = KeyEvent::new(KeyCode::Tab, KeyModifiers::NONE);
        assert_eq!(asking.press(tab, now + DELAY * 10), Pressed::Taken);
        assert_eq!(asking.press(key('1'), now + DELAY * 10), TYPED, "not before a moment of quiet");
        asking.press(tab, now + DELAY * 11);
        assert_eq!(asking.arm(now + DELAY * 12, DELAY), None);
        assert_eq!(asking.press(key('1'), now + DELAY * 13), Pressed::Pending);
    }
}

#[test]
fn what_was_typed_before_a_request_was_shown_belongs_to_the_prompt() {
    let start = Instant::now();
    let ms = |ms: u64| start + Duration::from_millis(ms);
    let mut asking = asking_of("git push");
    asking.rows(60, 20);
    assert_eq!(asking.press(key('1'), ms(0)), TYPED, "before it was drawn");
    let mut asking = asking_of("git push");
    asking.rows(60, 20);
    asking.drawn(ms(10));
    asking.arm(ms(400), DELAY);
    assert_eq!(asking.press(key('1'), ms(5)), TYPED, "read before it was drawn");
    let mut asking = asking_of("git push");
    asking.rows(60, 20);
    asking.drawn(ms(10));
    asking.arm(ms(400), DELAY);
    asking.hide();
    assert_eq!(asking.press(key('1'), ms(500)), TYPED, "something else was on the screen");
}

/// Each option has a key and all of its words, however many there are and however long.
#[test]
fn many_and_long_options_are_shown_whole() {
    let mut asking = asking_of("git push");
    let name = |n: usize| format!("Option {n} {}", "which is long ".repeat(4));
    asking.question.options = (1..=14).map(|n| (n.to_string(), name(n))).collect();
    let mut shown = String::new();
    for _ in 0..40 {
        shown.push_str(&text(&asking.rows(50, 12)));
        asking.drawn(Instant::now());
        asking.scroll(1, Instant::now());
    }
    assert!(shown.contains("e Option 14") && shown.contains("1 to e choose"), "{shown}");
    let words: Vec<&str> = shown.split_whitespace().filter(|word| *word != "│").collect();
    assert!(words.join(" ").contains(name(14).trim_end()), "{shown}");
    let mut one = asking_of("git push");
    one.question.options = vec![("y".to_owned(), name(1))];
    let shown = text(&one.rows(50, 12));
    let words: Vec<&str> = shown.split_whitespace().filter(|word| *word != "│").collect();
    assert!(words.join(" ").contains(name(1).trim_end()), "{shown}");
}

#[test]
fn a_long_command_is_answered_only_after_its_end_was_shown() {
    let start = Instant::now();
    let command: Vec<String> = (1..=30).map(|n| format!("step {n}")).collect();
    let mut asking = asking_of(&command.join("\n"));
    insta::assert_snapshot!(text(&asking.rows(40, 10)));
    asking.drawn(start);
    assert!(!asking.is_whole() && asking.due_at(DELAY).is_none());
    asking.arm(start + DELAY * 9, DELAY);
    for _ in 0..10 {
        asking.press(key(' '), start);
        asking.rows(40, 10);
        asking.drawn(start);
    }
    assert!(asking.is_whole());
    assert!(text(&asking.rows(40, 10)).contains("step 30"));
    asking.arm(start + DELAY, DELAY);
    insta::assert_snapshot!(text(&asking.rows(40, 10)));
    assert_eq!(asking.press(key('2'), start + DELAY), Pressed::Pending);
    assert_eq!(asking.arm(start + DELAY * 2, DELAY), Some(Meaning::Option(1)));
    let mut unseen = asking_of(&command.join("\n"));
    unseen.rows(40, 10);
    unseen.drawn(start);
    unseen.arm(start + DELAY * 9, DELAY);
    assert_eq!(unseen.press(key('1'), start + DELAY * 9), TYPED);
}
