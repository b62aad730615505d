//! The client against an agent that says exactly what a test wants it to: limits, order, and what
//! no well-behaved agent says.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Host, Setup, in_turn, run, soon};
use futures_util::FutureExt;
use piton_agent::acp::{Error, Limits};
use piton_core::Code;
use piton_core::event::ToolStatus;
use piton_core::spool::{Ended, Fact};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;

fn tool(kind: &str, id: &str, more: Value) -> Value {
    let mut update = json!({ "sessionUpdate": kind, "toolCallId": id });
    let (Value::Object(all), Value::Object(more)) = (&mut update, more) else { panic!() };
    all.extend(more);
    update
}

/// The agent is held back because its output is not read: it can write no more than the pipes hold.
/// Time is paused, and advances only when no task can make progress.
#[tokio::test(start_paused = true)]
async fn a_journal_that_does_not_keep_up_holds_the_agent_back() {
    let pipe_bytes = 4 * 1024;
    let (world, mut scripted, prompt, turn) =
        in_turn(Setup { pipe_bytes, ..Setup::default() }).await;
    world.notes.open(false);
    let line = {
        let content = json!({ "type": "text", "text": "x".repeat(1_000) });
        let update = json!({ "sessionUpdate": "agent_message_chunk", "content": content });
        let params = json!({ "sessionId": "s1", "update": update });
        format!("{}\n", json!({ "method": "session/update", "params": params }))
    };
    // Far more than the client may buffer: one line, its reader's buffer, and the pipe.
    let all = line.repeat(1_000).into_bytes();
    let mut written = 0;
    let stuck = async {
        while written < all.len() {
            written += scripted.writer.write(&all[written..]).await.unwrap();
        }
    };
    let stuck = tokio::time::timeout(Duration::from_secs(1), stuck).await;
    assert!(stuck.is_err(), "the agent could write all of it");
    assert!(written < 64 * 1024 + 3 * pipe_bytes, "{written} bytes were taken");

    world.notes.open(true);
    soon(scripted.writer.write_all(&all[written..])).await.unwrap();
    scripted.answer(&prompt, json!({ "stopReason": "end_turn" })).await;
    soon(turn.ended()).await.unwrap();
    assert_eq!(world.notes.answers(), ["x".repeat(1_000_000)], "and nothing was lost");
}

#[tokio::test]
async fn a_request_whose_answer_is_too_long_gets_an_error() {
    let limits = Limits { line_bytes_max: 1_000, ..Limits::default() };
    let (world, mut scripted, prompt, turn) = in_turn(Setup { limits, ..Setup::default() }).await;
    let path = "x".repeat(2_000);
    scripted
        .say(json!({ "id": "r1", "method": "fs/read_text_file", "params": { "path": path } }))
        .await;
    let refused = scripted.hear().await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!("r1"), &json!(-32600)));
    scripted.answer(&prompt, json!({ "filler": path, "stopReason": "end_turn" })).await;
    assert_eq!(soon(turn.ended()).await.unwrap_err().code(), Code::AgentMessageTooLong);
    let Some(Fact::TurnFailed { code, .. }) = world.notes.facts().pop() else { panic!() };
    assert_eq!(code, Code::AgentMessageTooLong);
}

#[tokio::test]
async fn an_error_instead_of_an_end_fails_the_turn() {
    let setup = Setup { secrets: vec!["hunter2-secret"], ..Setup::default() };
    let (world, mut scripted, prompt, turn) = in_turn(setup).await;
    let error = json!({ "code": -32000, "message": "Log in", "data": "key hunter2-secret" });
    scripted.say(json!({ "id": prompt["id"], "error": error })).await;
    let failed = soon(turn.ended()).await.unwrap_err();
    assert_eq!(failed.code(), Code::AgentAuthRequired);
    let Some(Fact::TurnFailed { code, message }) = world.notes.facts().pop() else { panic!() };
    assert_eq!(code, Code::AgentAuthRequired);
    assert_eq!(message, "The agent refused session/prompt: Log in key [masked] (-32000)");
}

#[tokio::test]
async fn an_unknown_reason_to_stop_is_kept_as_it_is_spelled() {
    let (world, mut scripted, prompt, turn) = in_turn(Setup::default()).await;
    scripted.answer(&prompt, json!({ "stopReason": "tired", "usage": {} })).await;
    assert_eq!(soon(turn.ended()).await.unwrap(), "tired");
    let ended = Fact::TurnEnded { stop_reason: "tired".to_owned() };
    assert_eq!(world.notes.facts().last(), Some(&ended));
}

#[tokio::test]
async fn the_updates_of_a_call_are_gathered_in_its_result() {
    let (world, mut scripted, prompt, turn) = in_turn(Setup::default()).await;
    let content = json!([{ "type": "content", "content": { "type": "text", "text": "out" } }]);
    for update in [
        tool("tool_call", "c1", json!({ "title": "T", "kind": "edit" })),
        tool("tool_call_update", "c1", json!({ "rawInput": { "a": 1 }, "content": content })),
        tool("tool_call", "c1", json!({ "title": "T again" })),
        tool("tool_call_update", "c1", json!({ "status": "completed" })),
        tool("tool_call_update", "c1", json!({ "title": "late" })),
        // Never announced, and under an id that is none of ours.
        tool("tool_call_update", "a/b", json!({ "status": "failed", "title": "U" })),
        tool("tool_call", "c2", json!({ "title": "V", "status": "completed" })),
    ] {
        scripted.update(update).await;
    }
    scripted.answer(&prompt, json!({ "stopReason": "end_turn" })).await;
    soon(turn.ended()).await.unwrap();
    let facts: Vec<String> = world
        .notes
        .facts()
        .into_iter()
        .filter_map(|fact| match fact {
            Fact::ToolCall { call_id, name, .. } => Some(format!("call {call_id} {name}")),
            Fact::ToolUpdate { call_id, .. } => Some(format!("update {call_id}")),
            Fact::ToolResult { call_id, status, result } => Some(format!(
                "result {call_id} {status:?} {}",
                piton_core::canonical::to_string(&result)
            )),
            _ => None,
        })
        .collect();
    let result = r#"{"content":[{"content":{"text":"out","type":"text"},"type":"content"}],"raw_input":{"a":1}}"#;
    assert_eq!(
        facts,
        [
            "call c1 T",
            "update c1",
            "update c1",
            &format!("result c1 Succeeded {result}"),
            "update c1",
            "call call_0 U",
            "result call_0 Failed {}",
            "call c2 V",
            "result c2 Succeeded {}",
        ]
    );
    // The same id in a later turn is another call.
    let turn = world.connection.prompt(run(2), "more").await.unwrap();
    let prompt = scripted.hear().await;
    scripted.update(tool("tool_call", "c1", json!({ "title": "W" }))).await;
    scripted.answer(&prompt, json!({ "stopReason": "end_turn" })).await;
    soon(turn.ended()).await.unwrap();
    let is_other = |fact: &Fact| matches!(fact, Fact::ToolCall { call_id, name, .. } if name == "W" && call_id.as_str() == "call_1");
    assert!(world.notes.facts().iter().any(is_other));
}

#[tokio::test]
async fn a_message_continues_over_the_progress_of_a_call() {
    let (world, mut scripted, prompt, turn) = in_turn(Setup::default()).await;
    scripted.update(tool("tool_call", "c1", json!({ "title": "T" }))).await;
    scripted.chunk("one ").await;
    scripted.update(tool("tool_call_update", "c1", json!({ "status": "in_progress" }))).await;
    scripted.update(json!({ "sessionUpdate": "usage_update", "used": 1, "size": 2 })).await;
    scripted.chunk("message").await;
    scripted.update(tool("tool_call_update", "c1", json!({ "status": "completed" }))).await;
    scripted.chunk("another").await;
    scripted.answer(&prompt, json!({ "stopReason": "end_turn" })).await;
    soon(turn.ended()).await.unwrap();
    assert_eq!(world.notes.answers(), ["one message", "another"]);
    assert_eq!(world.notes.updates("usage").len(), 1);
}

/// A secret in two chunks, in a call's arguments, output and raw form, in a question, an update, an
/// error, and after it was seen under a key that says what it is.
#[tokio::test]
async fn secrets_reach_no_note() {
    let setup = Setup { secrets: vec!["sk-verysecret-1"], ..Setup::default() };
    let (world, mut scripted, prompt, turn) = in_turn(setup).await;
    scripted.chunk("key: sk-very").await;
    scripted.chunk("secret-1, and sk-very").await;
    let call = json!({ "title": "use sk-verysecret-1", "rawInput": { "x": "sk-verysecret-1" } });
    scripted.update(tool("tool_call", "c1", call)).await;
    let done =
        json!({ "status": "completed", "rawOutput": { "sk-verysecret-1": ["a sk-verysecret-1"] } });
    scripted.update(tool("tool_call_update", "c1", done)).await;
    scripted.update(json!({ "sessionUpdate": "sk-verysecret-1", "y": "sk-verysecret-1" })).await;
    let params = json!({ "sessionId": "s1", "toolCall": { "toolCallId": "c1", "title": "sk-verysecret-1" },
        "options": [] });
    scripted
        .say(json!({ "id": 1, "method": "session/request_permission", "params": params }))
        .await;
    let login = json!({ "title": "login", "rawInput": { "api_key": "learned-on-the-way" } });
    scripted.update(tool("tool_call", "c2", login)).await;
    scripted.chunk("so learned-on-").await;
    scripted.chunk("the-way it is").await;
    scripted.answer(&prompt, json!({ "stopReason": "end_turn" })).await;
    soon(turn.ended()).await.unwrap();
    assert_eq!(world.notes.answers(), ["key: [masked], and sk-very", "so [masked] it is"]);
    let all = format!("{:?}", world.notes.all());
    assert!(!all.contains("verysecret") && !all.contains("learned-on-the-way"), "{all}");
    assert!(all.contains("[masked]"));
}

#[tokio::test]
async fn questions_end_with_the_turn_the_request_or_the_agent() {
    let (world, mut scripted, prompt, turn) = in_turn(Setup::default()).await;
    let ask = |id: u64| {
        let option = json!({ "optionId": "yes", "name": "Yes", "kind": "allow_once" });
        let params =
            json!({ "sessionId": "s1", "toolCall": { "toolCallId": "c" }, "options": [option] });
        json!({ "id": id, "method": "session/request_permission", "params": params })
    };
    scripted.say(ask(1)).await;
    scripted.say(json!({ "method": "$/cancel_request", "params": { "requestId": 1 } })).await;
    assert_eq!(scripted.hear().await["error"]["code"], -32800);
    scripted.say(ask(2)).await;
    scripted.answer(&prompt, json!({ "stopReason": "end_turn" })).await;
    assert_eq!(scripted.hear().await["result"]["outcome"]["outcome"], "cancelled");
    soon(turn.ended()).await.unwrap();

    let turn = world.connection.prompt(run(2), "more").await.unwrap();
    let prompt = scripted.hear().await;
    world.connection.cancel(&run(2)).await.unwrap();
    assert_eq!(scripted.hear().await["method"], "session/cancel");
    scripted.say(ask(3)).await;
    let answer = scripted.hear().await;
    assert_eq!(answer["result"]["outcome"]["outcome"], "cancelled", "asked too late");
    scripted.answer(&prompt, json!({ "stopReason": "cancelled" })).await;
    soon(turn.ended()).await.unwrap();

    let turn = world.connection.prompt(run(3), "more").await.unwrap();
    scripted.hear().await;
    scripted.chunk("partial").await;
    scripted.say(ask(4)).await;
    drop(scripted);
    assert_eq!(soon(turn.ended()).await.unwrap_err(), Error::Closed);
    let notes = Arc::clone(&world.notes);
    world.over().await.unwrap();
    let ended: Vec<Ended> = notes
        .facts()
        .iter()
        .filter_map(|fact| match fact {
            Fact::WaitEnded { why, .. } => Some(*why),
            _ => None,
        })
        .collect();
    assert_eq!(ended, [Ended::Withdrawn, Ended::Withdrawn, Ended::Cancelled], "not the last");
    assert_eq!(notes.all().last().unwrap().run_id, Some(run(3)));
}

#[tokio::test]
async fn a_question_outside_of_a_turn_is_answered_at_once() {
    let (world, mut scripted, prompt, turn) = in_turn(Setup::default()).await;
    scripted.answer(&prompt, json!({ "stopReason": "end_turn" })).await;
    soon(turn.ended()).await.unwrap();
    let params = json!({ "sessionId": "s1", "toolCall": { "toolCallId": "c" }, "options": [] });
    scripted
        .say(json!({ "id": 1, "method": "session/request_permission", "params": params }))
        .await;
    assert_eq!(scripted.hear().await["result"]["outcome"]["outcome"], "cancelled");
    let Some(Fact::Update { what, .. }) = world.notes.facts().pop() else { panic!() };
    assert_eq!(what, "asked_outside_turn");
    assert!(world.connection.asking().await.is_empty());
}

#[tokio::test]
async fn too_many_questions_and_terminals_are_refused() {
    let limits = Limits { asks_max: 1, terminals_max: 1, ..Limits::default() };
    let (_world, mut scripted, _prompt, _turn) =
        in_turn(Setup { limits, ..Setup::default() }).await;
    for id in [1, 2] {
        let params = json!({ "sessionId": "s1", "toolCall": { "toolCallId": "c" }, "options": [] });
        scripted
            .say(json!({ "id": id, "method": "session/request_permission", "params": params }))
            .await;
    }
    let refused = scripted.hear().await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(2), &json!(-32603)));
    for (id, is_made) in [(3, true), (4, false)] {
        let params = json!({ "sessionId": "s1", "command": "ls" });
        scripted.say(json!({ "id": id, "method": "terminal/create", "params": params })).await;
        let answer = scripted.hear().await;
        assert_eq!(answer["result"]["terminalId"].is_string(), is_made, "{answer}");
    }
    scripted.say(json!({ "id": 5, "method": "terminal/create", "params": { "command": 1 } })).await;
    assert_eq!(scripted.hear().await["error"]["code"], -32602);
}

/// Wants to show: a file that is not there has the protocol's own code, by which agents tell that
/// they may make it.
#[tokio::test]
async fn a_missing_file_is_a_missing_resource() {
    let (world, mut scripted, _prompt, _turn) = in_turn(Setup::default()).await;
    world.host.files.lock().unwrap().insert("/there".into(), "text".to_owned());
    let read = |id: i64, path: &str| {
        let params = json!({ "sessionId": "s1", "path": path });
        json!({ "id": id, "method": "fs/read_text_file", "params": params })
    };
    scripted.say(read(1, "/missing")).await;
    let refused = scripted.hear().await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(1), &json!(-32002)));
    scripted.say(read(2, "/there")).await;
    assert_eq!(scripted.hear().await["result"]["content"], "text");
}

#[tokio::test]
async fn requests_beyond_the_limits_are_refused_on_both_sides() {
    let finish = Arc::new(Notify::new());
    let host = Host { finish: Some(Arc::clone(&finish)), ..Host::default() };
    // The prompt is one of those that wait.
    let limits = Limits { host_requests_max: 1, requests_max: 2, ..Limits::default() };
    let (world, mut scripted, prompt, _turn) =
        in_turn(Setup { limits, host, ..Setup::default() }).await;
    for id in [1, 2] {
        let params = json!({ "sessionId": "s1", "terminalId": "t" });
        scripted
            .say(json!({ "id": id, "method": "terminal/wait_for_exit", "params": params }))
            .await;
    }
    let refused = scripted.hear().await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(2), &json!(-32603)));
    finish.notify_one();
    let served = scripted.hear().await;
    assert_eq!((&served["id"], &served["result"]["exitCode"]), (&json!(1), &json!(0)));

    let connection = world.connection.clone();
    let first = tokio::spawn(async move { connection.authenticate("a").await });
    let asked = scripted.hear().await;
    let second = world.connection.authenticate("b").await.unwrap_err();
    assert_eq!(second.code(), Code::LimitReached);
    scripted.answer(&asked, json!({})).await;
    soon(first).await.unwrap().unwrap();
    scripted.answer(&prompt, json!({ "stopReason": "end_turn" })).await;
    soon(world.connection.authenticate("c")).now_or_never();
    assert_eq!(scripted.hear().await["params"]["methodId"], "c", "there is room again");
}

#[tokio::test]
async fn messages_that_are_none_are_dropped_and_batches_are_read() {
    let (world, mut scripted, prompt, turn) = in_turn(Setup::default()).await;
    scripted.line("[]").await;
    scripted.line("42").await;
    scripted.line("\u{feff}{}").await;
    scripted.say(json!({ "id": 999, "result": {} })).await;
    scripted.say(json!({ "error": { "code": -32700, "message": "Parse error" } })).await;
    let update = json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "in a batch" } });
    let said =
        json!({ "method": "session/update", "params": { "sessionId": "s1", "update": update } });
    scripted.line(&json!([said]).to_string()).await;
    let other =
        json!({ "method": "session/update", "params": { "sessionId": "s2", "update": update } });
    scripted.say(other).await;
    scripted.answer(&prompt, json!({ "stopReason": "end_turn" })).await;
    assert_eq!(soon(turn.ended()).await.unwrap(), "end_turn");
    let why: Vec<String> = world.notes.dropped().into_iter().map(|(why, _)| why).collect();
    assert_eq!(why, ["not_a_message", "not_json", "answer_unasked", "not_a_message"]);
    assert_eq!(world.notes.answers(), ["in a batch"]);
    assert_eq!(world.notes.updates("other_session").len(), 1);
}

#[tokio::test]
async fn a_closed_journal_ends_the_driver() {
    let (world, mut scripted, _prompt, turn) = in_turn(Setup::default()).await;
    world.notes.refuse_from_now_on();
    scripted.chunk("x").await;
    assert_eq!(soon(turn.ended()).await.unwrap_err(), Error::Closed);
    assert_eq!(world.over().await.unwrap_err().code(), Code::SpoolClosed);
}

#[tokio::test]
async fn closing_ends_the_agents_input_and_its_last_words_are_kept() {
    let (world, mut scripted, prompt, turn) = in_turn(Setup::default()).await;
    world.connection.close();
    scripted.chunk("last words").await;
    scripted.answer(&prompt, json!({ "stopReason": "end_turn" })).await;
    soon(turn.ended()).await.unwrap();
    drop(scripted);
    assert_eq!(world.notes.answers(), ["last words"]);
    world.over().await.unwrap();
}

#[tokio::test]
async fn statuses_that_some_agents_say() {
    let (world, mut scripted, prompt, turn) = in_turn(Setup::default()).await;
    scripted.update(tool("tool_call", "c1", json!({ "title": "T" }))).await;
    scripted.update(tool("tool_call_update", "c1", json!({ "status": "cancelled" }))).await;
    scripted.answer(&prompt, json!({ "stopReason": "end_turn" })).await;
    soon(turn.ended()).await.unwrap();
    let is_cancelled =
        |fact: &Fact| matches!(fact, Fact::ToolResult { status: ToolStatus::Cancelled, .. });
    assert!(world.notes.facts().iter().any(is_cancelled));
}

/// The caller may be gone before the prompt is written down, and must not leave it half given.
#[tokio::test]
async fn a_prompt_is_given_even_if_no_one_waits_for_it() {
    let (world, mut scripted, prompt, turn) = in_turn(Setup::default()).await;
    scripted.answer(&prompt, json!({ "stopReason": "end_turn" })).await;
    soon(turn.ended()).await.unwrap();
    world.notes.open(false);
    let given = world.connection.prompt(run(2), "more");
    assert!(tokio::time::timeout(Duration::ZERO, given).await.is_err(), "it waits for the journal");
    world.notes.open(true);
    let prompt = scripted.hear().await;
    assert_eq!(prompt["params"]["prompt"][0]["text"], "more");
    assert_eq!(world.connection.turn().await, Some(run(2)));
    scripted.answer(&prompt, json!({ "stopReason": "end_turn" })).await;
    let ended = |fact: &Fact| matches!(fact, Fact::TurnEnded { .. });
    let count = || world.notes.facts().iter().filter(|fact| ended(fact)).count();
    soon(async {
        while count() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(world.connection.turn().await, None);
}

/// Both sides have more to say than the pipes hold, and the agent does not listen before it is done.
#[tokio::test]
async fn an_agent_that_talks_before_it_listens_is_heard() {
    let setup = Setup { pipe_bytes: 1_024, ..Setup::default() };
    let (world, mut scripted, prompt, turn) = in_turn(setup).await;
    scripted.answer(&prompt, json!({ "stopReason": "end_turn" })).await;
    soon(turn.ended()).await.unwrap();
    let long = "y".repeat(100_000);
    let turn = soon(world.connection.prompt(run(2), &long)).await.unwrap();
    for _ in 0..100 {
        scripted.chunk(&"x".repeat(1_000)).await;
    }
    let prompt = scripted.hear().await;
    assert_eq!(prompt["params"]["prompt"][0]["text"], long);
    scripted.answer(&prompt, json!({ "stopReason": "end_turn" })).await;
    soon(turn.ended()).await.unwrap();
    assert_eq!(world.notes.answers(), ["x".repeat(100_000)]);
}
