//! What an agent without a protocol prints, and what is kept of it. The fixtures are written after
//! the public documentation of `claude -p --output-format stream-json --verbose`.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::sync::Arc;

use crate::common::{Ids, Notes, run};
use piton_agent::acp::Limits;
use piton_agent::one_shot::{
    Conversation, Format, Handle, Options, Outcome, ResumeSupport, Target, TurnOutput,
    refusing_line,
};
use piton_core::Code;
use piton_core::event::ToolStatus;
use piton_core::mask::{KeyPatterns, Masker};
use piton_core::spool::{Channel, Fact, OpenedAs};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

const TURN: &str = include_str!("../../fixtures/stream-json/turn.jsonl");
const REFUSED: &str = include_str!("../../fixtures/stream-json/refused.jsonl");
const ID: &str = "0b1c2d3e-aaaa-4bbb-8ccc-000000000001";

struct World {
    conversation: Conversation,
    notes: Arc<Notes>,
}

fn with(handle: Handle, limits: Limits) -> World {
    let notes = Arc::new(Notes::default());
    let masker = Masker::new(KeyPatterns::default(), ["hunter2hunter2"]).unwrap();
    let options = Options {
        masker: Arc::new(masker),
        journal: Arc::clone(&notes) as _,
        ids: Arc::new(Ids::default()),
        limits,
        resumes: ResumeSupport::TheLast,
    };
    World { conversation: Conversation::new(options, handle), notes }
}

impl World {
    fn new() -> Self {
        with(Handle::none(), Limits::default())
    }

    /// A turn whose output came in two pieces.
    async fn turn(&self, format: Format, output: &[u8], cut: usize) -> TurnOutput {
        self.conversation.turn_started(run(1)).await.unwrap();
        let (one, two) = output.split_at(cut);
        self.conversation.read(format, one.chain(two)).await.unwrap()
    }

    async fn json(&self, lines: &[Value]) -> TurnOutput {
        let text = lines.iter().fold(String::new(), |text, line| text + &line.to_string() + "\n");
        self.turn(Format::StreamJson, text.as_bytes(), 0).await
    }

    async fn target(&self) -> String {
        format!("{:?}", self.conversation.handle().await.target(ResumeSupport::TheLast))
    }
}

fn message(n: u8) -> String {
    format!("00000000-0000-4000-8000-{n:012}")
}

fn named(id: &str) -> Fact {
    Fact::AgentSessionAssigned { agent_session_id: id.to_owned() }
}

fn assistant(uuid: &str, block: &Value) -> Value {
    json!({ "type": "assistant", "uuid": uuid, "message": { "id": "m", "content": [block] } })
}

/// Wants to show: a recorded turn becomes these facts in this order, wherever the pipe cuts it.
#[tokio::test]
async fn a_turn_is_kept_in_order_wherever_it_is_cut() {
    let world = World::new();
    let said = world.turn(Format::StreamJson, TURN.as_bytes(), 0).await;
    let outcome =
        Outcome { is_error: false, subtype: "success".to_owned(), words: "Done".to_owned() };
    assert_eq!((said.is_something, said.outcome.clone()), (true, Some(outcome)));
    world.conversation.ended(said, "end_turn").await.unwrap();
    let facts = world.notes.facts();
    let kinds: Vec<String> = facts
        .iter()
        .map(|fact| match fact {
            Fact::Update { what, .. } => what.clone(),
            Fact::ToolResult { status, .. } => format!("{status:?}"),
            fact => format!("{fact:?}").split([' ', '{']).next().unwrap().to_owned(),
        })
        .collect();
    let expected = "TurnStarted AgentSessionAssigned session_info message_id Text TextEnd message_id Text \
        TextEnd ToolCall Succeeded ToolCall Failed unknown:rate_limit_event message_id Text usage \
        TextEnd TurnEnded";
    assert_eq!(kinds.join(" "), expected);
    assert_eq!(facts[1], named(ID));
    assert_eq!(world.notes.messages(Channel::Thought), ["Größe first"]);
    assert_eq!(world.notes.answers(), ["I look 🦀", "Done"]);
    let ids: Vec<Value> = world.notes.updates("message_id");
    let agent_ids: Vec<_> = ids.iter().map(|update| update["agent_message_id"].clone()).collect();
    assert_eq!(agent_ids, [message(2), message(3), message(9)]);
    let call = Fact::ToolCall {
        call_id: "toolu_01".parse().unwrap(),
        name: "Bash".to_owned(),
        arguments: json!({ "command": "ls" }),
    };
    let result = Fact::ToolResult {
        call_id: "toolu_01".parse().unwrap(),
        status: ToolStatus::Succeeded,
        result: json!({ "raw_input": { "command": "ls" }, "raw_output": "README.md" }),
    };
    assert_eq!((&facts[9], &facts[10]), (&call, &result));
    let raw = world.notes.all()[10].raw.clone().unwrap();
    assert_eq!(raw["tool_use_result"]["stdout"], "README.md", "nothing it said is lost");
    assert!(world.notes.all().iter().all(|note| note.run_id == Some(run(1))));
    assert_eq!(world.notes.updates("usage")[0].get("result"), None, "the answer is there already");
    let resume = Target::Resume { id: Some(ID), message_id: Some(&message(9)) };
    assert_eq!(world.conversation.handle().await.target(ResumeSupport::ByName), resume);

    for cut in 1..TURN.len() {
        let other = World::new();
        let said = other.turn(Format::StreamJson, TURN.as_bytes(), cut).await;
        other.conversation.ended(said, "end_turn").await.unwrap();
        assert_eq!(other.notes.facts(), facts, "cut at {cut}");
    }
}

#[tokio::test]
async fn text_is_an_answer_wherever_it_is_cut() {
    let text = "Größe 🦀\nhunter2hunter2 second\n";
    for cut in 0..=text.len() {
        let world = World::new();
        let said = world.turn(Format::Text, text.as_bytes(), cut).await;
        assert!(said.is_something);
        world.conversation.ended(said, "end_turn").await.unwrap();
        let answers = world.notes.answers();
        assert!(answers[0].starts_with("Größe 🦀\n") && answers[0].ends_with(" second"));
        assert!(!answers[0].contains("hunter2") && answers.len() == 1, "{answers:?}");
        let ends = world.notes.facts().into_iter().filter(|f| matches!(f, Fact::TextEnd { .. }));
        assert_eq!(ends.count(), 1);
        assert_eq!(world.target().await, "Resume { id: None, message_id: None }");
    }
}

/// Each line is noted by itself, and a bad line costs no other one.
#[tokio::test]
async fn what_is_no_message_is_said_and_skipped() {
    let limits = Limits { line_bytes_max: 1_000, ..Limits::default() };
    let world = with(Handle::none(), limits);
    let long = "x".repeat(5_000);
    let good = assistant("u1", &json!({ "type": "text", "text": "still here" }));
    let mut bytes = format!("Loading ... {{\n[1,2]\n7\n{{\"no\":\"type\"}}\n{long}\n").into_bytes();
    bytes.extend(b"{\"type\":\"note\",\"text\":\"\xff\xfe bad\"}\n");
    bytes.extend(format!("{good}").into_bytes());
    world.turn(Format::StreamJson, &bytes, 0).await;
    let dropped = |why: &str, bytes| (why.to_owned(), bytes);
    let expected = [
        dropped("not_json", 13),
        dropped("not_a_message", 5),
        dropped("not_a_message", 1),
        dropped("not_a_message", 13),
        dropped("line_too_long", 5_000),
    ];
    assert_eq!(world.notes.dropped(), expected);
    assert_eq!(world.notes.updates("unknown:note")[0]["text"], "\u{fffd}\u{fffd} bad");
    world.conversation.gone().await.unwrap();
    assert_eq!(world.notes.answers(), ["still here"]);
}

/// What is unknown is kept, what belongs to a call of an agent's own is no answer, and nothing
/// makes it panic.
#[tokio::test]
async fn odd_messages_are_kept_as_they_are() {
    let world = World::new();
    let odd = [
        json!({ "type": "assistant" }),
        json!({ "type": "assistant", "message": 7 }),
        json!({ "type": "assistant", "message": { "content": "plain" } }),
        assistant("u2", &json!({ "type": "redacted_thinking", "data": "x" })),
        assistant("u3", &json!({ "type": "tool_use" })),
        json!({ "type": "user", "message": { "content": "a prompt" } }),
        json!({ "type": "user", "message": { "content": [{ "type": "tool_result" }] } }),
        json!({ "type": "system", "subtype": "compact_boundary" }),
        json!({ "type": "system", "subtype": "status", "password": "geheim-geheim" }),
        json!({ "type": "new_thing", "deep": { "x": [1] } }),
        assistant("u4", &json!({ "type": "tool_use", "id": "t1", "name": "Task", "input": {} })),
        json!({ "type": "assistant", "parent_tool_use_id": "t1", "uuid": "u5",
            "message": { "content": [{ "type": "text", "text": "of the helper" }] } }),
    ];
    world.json(&odd).await;
    world.conversation.gone().await.unwrap();
    assert_eq!(world.notes.answers(), ["plain"]);
    let whats = ["content", "user_message", "compaction", "unknown:system/status"];
    for what in whats.into_iter().chain(["unknown:new_thing", "unknown:tool_call"]) {
        assert!(!world.notes.updates(what).is_empty(), "{what}: {:#?}", world.notes.facts());
    }
    assert_eq!(world.notes.updates("unknown:new_thing")[0]["deep"]["x"], json!([1]));
    assert!(!format!("{:?}", world.notes.all()).contains("geheim"), "secrets are masked");
    let of_call = world.notes.facts().into_iter().find_map(|fact| match fact {
        Fact::ToolUpdate { call_id, update } => Some((call_id.to_string(), update)),
        _ => None,
    });
    let (call_id, update) = of_call.unwrap();
    assert_eq!(call_id, "t1");
    assert_eq!(update["said"]["message"]["content"][0]["text"], "of the helper");
}

/// Many parts are many facts, up to a limit, and each is small.
#[tokio::test]
async fn a_message_of_many_parts_does_not_multiply() {
    let world = World::new();
    let block = |n: usize| json!({ "type": "tool_use", "id": format!("t{n}"), "name": "x" });
    let blocks: Vec<Value> = (0..3_000).map(block).collect();
    let large = "x".repeat(100_000);
    let event = json!({ "type": "assistant", "extra": large, "message": { "content": blocks } });
    world.json(&[event]).await;
    let notes = world.notes.all();
    let calls = notes.iter().filter(|note| matches!(note.fact, Fact::ToolCall { .. }));
    assert_eq!(calls.count(), 1_000);
    let rest = world.notes.updates("content");
    assert_eq!(rest[0]["message"]["content"].as_array().unwrap().len(), 2_000);
    let bytes: usize = notes.iter().map(|note| format!("{note:?}").len()).sum();
    assert!(bytes < 3_000_000, "{bytes}");
}

/// An answer that is nowhere but in the result is an answer; one that was said is not said again.
#[tokio::test]
async fn the_result_is_said_if_nothing_else_was() {
    let result = json!({ "type": "result", "subtype": "success", "is_error": false,
        "result": "from a command", "session_id": "s1" });
    let world = World::new();
    let said = world.json(&[result]).await;
    world.conversation.ended(said, "end_turn").await.unwrap();
    assert_eq!(world.notes.answers(), ["from a command"]);
    assert!(world.notes.facts().contains(&named("s1")));
}

/// What it calls itself at the beginning of a resumed turn may be a name that it never writes.
#[tokio::test]
async fn another_name_counts_when_its_turn_has_ended_well() {
    let world = with(Handle::to_resume("old".to_owned(), None), Limits::default());
    world.conversation.begin(OpenedAs::Resumed, Some("old".to_owned())).await.unwrap();
    let ready = &world.notes.facts()[0];
    let Fact::AgentReady { opened_as, agent_session_id, requested_session_id, .. } = ready else {
        panic!()
    };
    let old = Some("old".to_owned());
    assert_eq!(
        (*opened_as, agent_session_id, requested_session_id),
        (OpenedAs::Resumed, &old, &old)
    );
    let init = json!({ "type": "system", "subtype": "init", "session_id": "other" });
    let result =
        |is_error: bool| json!({ "type": "result", "is_error": is_error, "session_id": "other" });
    world.json(&[init.clone(), result(true)]).await;
    world.conversation.failed(Code::AgentError, String::new()).await.unwrap();
    assert!(!world.notes.facts().contains(&named("other")));
    let said = world.json(&[init, result(false)]).await;
    world.conversation.ended(said, "end_turn").await.unwrap();
    assert!(world.notes.facts().contains(&named("other")));
    // When that name is refused, the next turn resumes it by its earlier name.
    world.conversation.turn_started(run(2)).await.unwrap();
    world.conversation.refused(1, "No conversation found").await.unwrap();
    let facts = world.notes.facts();
    let last = &facts[facts.len() - 3..];
    assert!(
        matches!(&last[0], Fact::AgentSessionRefused { code: 1, agent_session_id: Some(id), .. } if id == "other")
    );
    assert_eq!(last[1], named("old"));
    assert!(matches!(&last[2], Fact::TurnFailed { code, .. } if *code == Code::SessionRefused));
}

/// In doubt the id is kept.
#[tokio::test]
async fn only_what_names_the_conversation_as_unknown_is_a_refusal() {
    let dead = "0b1c2d3e-aaaa-4bbb-8ccc-00000000dead";
    let world = World::new();
    let refused = world.turn(Format::StreamJson, REFUSED.as_bytes(), 0).await;
    let sentence = format!("No conversation found with session ID: {dead}");
    assert_eq!(refusing_line(&refused, "", dead), Some(sentence.as_str()));
    let silent = TurnOutput::default();
    let noise = format!("(node) Warning: slow\n{sentence}\n");
    assert_eq!(refusing_line(&silent, &noise, dead), Some(sentence.as_str()));
    let text = |text: &str| TurnOutput {
        is_something: !text.is_empty(),
        beginning: text.to_owned(),
        ..TurnOutput::default()
    };
    assert_eq!(refusing_line(&text(&sentence), "", dead), Some(sentence.as_str()));
    for (said, errors) in [
        (silent.clone(), ""),
        (silent.clone(), "Invalid API key"),
        (silent.clone(), "Session is locked by another process"),
        (silent.clone(), "No such file or directory: session.json"),
        (silent, "No message found with message.uuid of: 7"),
        (text("The web session was not found, I looked"), ""),
        (text("I worked"), "Session not found: of the web server"),
    ] {
        assert_eq!(refusing_line(&said, errors, dead), None, "{said:?} {errors}");
    }
    assert_eq!(
        refusing_line(&text(""), "Session not found: cwd", "cwd"),
        Some("Session not found: cwd")
    );
}

/// A turn that was cut off leaves its text, and does not say that it was whole.
#[tokio::test]
async fn what_was_cut_off_is_kept_and_not_complete() {
    let world = World::new();
    world.turn(Format::Text, b"half a sen", 0).await;
    world.conversation.interrupted("killed".to_owned()).await.unwrap();
    assert_eq!(world.notes.answers(), ["half a sen"]);
    let facts = world.notes.facts();
    assert!(!facts.iter().any(|fact| matches!(fact, Fact::TextEnd { .. })), "{facts:#?}");
    let closed = Fact::TurnFailed { code: Code::AgentClosed.into(), message: "killed".to_owned() };
    assert_eq!(facts.last(), Some(&closed));
}
