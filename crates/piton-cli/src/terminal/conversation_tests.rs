use serde_json::json;

use super::*;

fn applied(records: &[Value]) -> Conversation {
    let mut conversation = Conversation::default();
    for record in records {
        conversation.apply(record);
    }
    conversation
}

#[test]
fn a_turn_is_messages_tools_and_its_end() {
    let conversation = applied(&[
        json!({"seq": 1, "kind": "message.user", "message_id": "m1", "content": "do it", "run_id": "r"}),
        json!({"seq": 2, "kind": "run.started", "run_id": "r"}),
        json!({"seq": 3, "kind": "message.delta", "message_id": "m2", "text": "I "}),
        json!({"seq": 4, "kind": "message.delta", "message_id": "m2", "text": "will"}),
        json!({"seq": 5, "kind": "tool.intent", "call_id": "c", "name": "bash", "arguments": {"command": "ls"}}),
    ]);
    assert!(conversation.is_running());
    assert_eq!(conversation.items[0], Item::User { text: "do it".to_owned() });
    let said =
        Item::Agent { message_id: "m2".to_owned(), text: "I will".to_owned(), is_done: true };
    assert_eq!(conversation.items[1], said, "a call ends the message before it");
    assert!(!conversation.items[2].is_final());

    let mut conversation = conversation;
    conversation.apply(
        &json!({"seq": 6, "kind": "run.interrupted", "run_id": "r", "reason": "process_exit"}),
    );
    assert!(!conversation.is_running() && conversation.needs_resume);
    assert!(conversation.items.iter().all(Item::is_final), "{:?}", conversation.items);
    assert_eq!(conversation.position, 6);
}

/// A server that answers a prompt after its turn: the turn has ended all the same.
#[test]
fn a_run_that_has_ended_is_not_opened_by_its_late_answer() {
    let mut conversation = applied(&[
        json!({"seq": 1, "kind": "run.started", "run_id": "r"}),
        json!({"seq": 2, "kind": "run.cancelled", "run_id": "r"}),
    ]);
    conversation.run_accepted("r".to_owned(), Timestamp::from_millis(0));
    assert!(!conversation.is_running());
    conversation.run_accepted("next".to_owned(), Timestamp::from_millis(0));
    assert!(conversation.is_running());
}

#[test]
fn a_question_is_open_until_it_is_answered_anywhere() {
    let asked = json!({"seq": 1, "kind": "run.waiting", "run_id": "r", "wait_id": "w",
        "question": {"toolCall": {"title": "May I?"}, "options": [{"optionId": "y", "name": "Yes"}]}});
    let mut conversation = applied(&[asked]);
    assert_eq!(conversation.questions.len(), 1);
    // The terminal that answers takes it away before the log has the answer.
    conversation.questions.clear();
    conversation.apply(&json!({"seq": 2, "kind": "run.resumed", "run_id": "r", "wait_id": "w",
        "answer": {"option_id": "y"}}));
    assert!(conversation.questions.is_empty());
    let answered = Item::Asked {
        wait_id: "w".to_owned(),
        title: "May I?".to_owned(),
        options: vec![("y".to_owned(), "Yes".to_owned())],
        answer: Some("Yes".to_owned()),
    };
    assert_eq!(conversation.items, [answered]);
}

#[test]
fn what_was_typed_here_is_shown_once() {
    let mut conversation = Conversation::default();
    conversation.accepted("m1".to_owned(), "hello".to_owned());
    conversation
        .apply(&json!({"seq": 1, "kind": "message.user", "message_id": "m1", "content": "hello"}));
    conversation
        .apply(&json!({"seq": 2, "kind": "message.user", "message_id": "m2", "content": "other"}));
    let text = |item: &Item| match item {
        Item::User { text } => text.clone(),
        _ => String::new(),
    };
    let texts: Vec<String> = conversation.items.iter().map(text).collect();
    assert_eq!(texts, ["hello", "other"]);
    assert!(conversation.stale.queue);
    // The record may be faster than the answer to the request.
    conversation.accepted("m2".to_owned(), "other".to_owned());
    assert_eq!(conversation.items.len(), 2);
}

#[test]
fn a_call_that_is_named_by_its_command_or_path_says_it_once() {
    for (name, arguments, wanted) in [
        ("cargo test", json!({"command": "cargo test"}), ("run", "cargo test")),
        ("Read src/a.rs", json!({"path": "/w/src/a.rs"}), ("Read src/a.rs", "")),
        ("Read ca.rs", json!({"path": "/w/src/a.rs"}), ("Read ca.rs", "/w/src/a.rs")),
        ("grep", json!({"pattern": "x"}), ("grep", "x")),
    ] {
        let intent = json!({"seq": 1, "kind": "tool.intent", "call_id": "c", "name": name,
            "arguments": arguments});
        let conversation = applied(&[intent]);
        let Item::Tool(tool) = &conversation.items[0] else { panic!() };
        assert_eq!((tool.verb(), tool.subject().as_str()), wanted);
    }
}

#[test]
fn a_tool_shows_what_it_did_and_what_it_printed() {
    let conversation = applied(&[
        json!({"seq": 1, "kind": "tool.intent", "call_id": "c", "name": "bash", "arguments": {}}),
        json!({"seq": 2, "kind": "tool.updated", "call_id": "c",
            "update": {"kind": "execute", "rawInput": {"command": "cargo test"}}}),
        json!({"seq": 3, "kind": "tool.outcome", "call_id": "c", "status": "failed",
            "result": {"content": [{"type": "content", "content": {"type": "text", "text": "boom"}},
                {"type": "diff", "path": "a.rs", "oldText": "1\n2\n", "newText": "1\n3\n"}]}}),
    ]);
    let Item::Tool(tool) = &conversation.items[0] else { panic!() };
    assert_eq!(
        (tool.verb(), tool.subject().as_str(), tool.output.as_str()),
        ("run", "cargo test", "boom")
    );
    assert_eq!(
        (tool.outcome, tool.counts()),
        (Some(super::super::tool::Outcome::Failed), Some((1, 1)))
    );
}
