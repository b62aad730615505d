//! The client against the built-in agent: what it says, does and asks becomes notes, in order.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Host, Setup, ready, ready_with, run, soon, with_echo};
use piton_agent::acp::{Error, Limits};
use piton_core::Code;
use piton_core::agent_view::{ConfigValue, Configure};
use piton_core::event::ToolStatus;
use piton_core::spool::{Channel, Ended, Fact, OpenedAs};
use piton_echo as echo;
use serde_json::{Value, json};
use tokio::sync::Notify;

fn options(args: &str) -> echo::Options {
    echo::Options::parse(args.split_whitespace().map(str::to_owned)).unwrap()
}

fn results(facts: &[Fact]) -> Vec<(ToolStatus, Value)> {
    let result = |fact: &Fact| match fact {
        Fact::ToolResult { status, result, .. } => Some((*status, result.clone())),
        _ => None,
    };
    facts.iter().filter_map(result).collect()
}

#[tokio::test]
async fn a_conversation_begins_and_words_come_back() {
    let world = with_echo(Setup::default(), options(""));
    let hello = soon(world.connection.initialize()).await.unwrap();
    assert_eq!(hello.agent.unwrap().name, "echo");
    assert!(hello.capabilities.load && hello.capabilities.resume && hello.capabilities.fork);
    let opened = world.begin(None, &[]).await.unwrap();
    let Some(Fact::AgentReady { opened_as, agent_session_id, .. }) =
        world.notes.facts().first().cloned()
    else {
        panic!("{:?}", world.notes.facts())
    };
    assert_eq!((opened_as, agent_session_id), (OpenedAs::New, Some(opened.agent_session_id)));

    assert_eq!(world.turn("hello there you").await.unwrap(), "end_turn");
    assert_eq!(world.notes.answers(), ["hello there you"]);
    let notes = world.notes.all();
    let started = notes.iter().position(|note| note.fact == Fact::TurnStarted {}).unwrap();
    assert!(notes[started..].iter().all(|note| note.run_id == Some(run(1))));
    let kinds: Vec<&str> = notes[started..].iter().map(|note| kind(&note.fact)).collect();
    assert_eq!(
        kinds,
        ["turn_started", "update", "text", "text", "text", "text_end", "turn_ended"],
        "the turn's end comes behind all that was said"
    );
}

fn kind(fact: &Fact) -> &'static str {
    match fact {
        Fact::TurnStarted {} => "turn_started",
        Fact::TurnEnded { .. } => "turn_ended",
        Fact::Text { .. } => "text",
        Fact::TextEnd { .. } => "text_end",
        Fact::ToolCall { .. } => "tool_call",
        Fact::ToolUpdate { .. } => "tool_update",
        Fact::ToolResult { .. } => "tool_result",
        Fact::Update { .. } => "update",
        Fact::WaitOpened { .. } => "asked",
        Fact::WaitEnded { .. } => "ask_ended",
        _ => "other",
    }
}

#[tokio::test]
async fn every_chunk_arrives_once_and_in_order() {
    let world = ready().await;
    world.turn("stream 500").await.unwrap();
    let chunks: Vec<String> = (1..=500).map(|n| format!("chunk {n} ")).collect();
    assert_eq!(world.notes.answers(), [chunks.concat()]);
}

#[tokio::test]
async fn messages_are_parted_by_what_comes_between_them() {
    let world = ready_with(Setup::default(), options("--no-message-ids")).await;
    world.turn("think hm\nsay one\ntool t\nsay two\nplan\nsay three").await.unwrap();
    assert_eq!(world.notes.messages(Channel::Thought), ["hm"]);
    assert_eq!(world.notes.answers(), ["one", "two", "three"]);
    assert_eq!(world.notes.updates("plan").len(), 1);
    let kinds: Vec<_> = world.notes.facts().iter().map(kind).collect();
    let turn: Vec<_> = kinds.into_iter().skip_while(|kind| *kind != "turn_started").collect();
    let text = ["text", "text_end"];
    let mut expected = vec!["turn_started"];
    expected.extend(text);
    expected.extend(text);
    expected.extend(["tool_call", "tool_update", "tool_result"]);
    expected.extend(text);
    expected.push("update");
    expected.extend(text);
    expected.push("turn_ended");
    assert_eq!(turn, expected);
}

#[tokio::test]
async fn files_are_read_and_written_through_the_host() {
    let world = ready().await;
    world.turn("write notes.txt some text\nread notes.txt\nread missing").await.unwrap();
    let path = std::env::temp_dir().join("notes.txt");
    assert_eq!(world.host.files.lock().unwrap()[&path], "some text");
    assert_eq!(world.notes.answers(), ["some text", "failed: No such file"]);
    let results = results(&world.notes.facts());
    let statuses: Vec<_> = results.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [ToolStatus::Succeeded, ToolStatus::Succeeded, ToolStatus::Failed]);
    assert_eq!(results[0].1["content"][0]["type"], "diff");
    assert_eq!(results[0].1["content"][0]["newText"], "some text");
}

#[tokio::test]
async fn a_terminals_output_stays_with_the_call_after_its_release() {
    let world = ready().await;
    world.turn("shell ls -l").await.unwrap();
    let results = results(&world.notes.facts());
    assert_eq!(results[0].0, ToolStatus::Succeeded);
    assert_eq!(results[0].1["terminals"]["term-0"]["output"], "output of -c ls -l");
    assert!(world.host.terminals.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_the_agent_runs_itself_is_a_call_with_its_output() {
    let world = ready().await;
    world.turn("run echo hi; exit 3").await.unwrap();
    let call = world.notes.all().into_iter().find(|note| kind(&note.fact) == "tool_call").unwrap();
    let Fact::ToolCall { name, arguments, .. } = &call.fact else { panic!() };
    assert_eq!((name.as_str(), arguments), ("run", &json!({ "command": "echo hi; exit 3" })));
    assert_eq!(call.raw.unwrap()["kind"], "execute", "the rest of it is kept as it was said");
    let results = results(&world.notes.facts());
    assert_eq!(results[0].0, ToolStatus::Failed);
    assert_eq!(results[0].1["raw_output"], json!({ "exit_code": 3, "output": "hi\n" }));
}

#[tokio::test]
async fn a_permission_waits_for_an_answer_that_was_offered() {
    let world = ready().await;
    let turn = world.connection.prompt(run(1), "ask Really?").await.unwrap();
    let (wait_id, question) = world.notes.asked().await;
    assert_eq!(question["toolCall"]["title"], "Really?");
    assert_eq!(question["options"][0]["option_id"], "allow_once");
    assert!(question["call_id"].is_string(), "which call it is about");
    assert_eq!(world.connection.asking().await.first(), Some(&wait_id));

    let wrong = world.connection.answer(&wait_id, Some(json!({ "option_id": "maybe" }))).await;
    assert_eq!(wrong.unwrap_err().code(), Code::AnswerInvalid);
    assert_eq!(world.connection.asking().await.len(), 1, "which changed nothing");

    let answer = json!({ "option_id": "reject_once" });
    world.connection.answer(&wait_id, Some(answer.clone())).await.unwrap();
    assert_eq!(soon(turn.ended()).await.unwrap(), "end_turn");
    assert_eq!(world.notes.answers(), ["chosen: reject_once"]);
    let ended = Fact::WaitEnded { wait_id: wait_id.clone(), why: Ended::Answered };
    assert!(world.notes.facts().contains(&ended));
    let again = world.connection.answer(&wait_id, Some(answer)).await;
    assert_eq!(again.unwrap_err().code(), Code::WaitNotFound);
}

#[tokio::test]
async fn no_one_answers_a_permission() {
    let world = ready().await;
    let turn = world.connection.prompt(run(1), "ask").await.unwrap();
    let (wait_id, _) = world.notes.asked().await;
    world.connection.answer(&wait_id, None).await.unwrap();
    soon(turn.ended()).await.unwrap();
    assert_eq!(world.notes.answers(), ["chosen: nothing"]);
    let ended = Fact::WaitEnded { wait_id, why: Ended::Cancelled };
    assert!(world.notes.facts().contains(&ended));
}

#[tokio::test]
async fn cancelling_a_turn_ends_its_questions() {
    let world = ready().await;
    let turn = world.connection.prompt(run(1), "ask\nsay never").await.unwrap();
    let (wait_id, _) = world.notes.asked().await;
    let other = world.connection.cancel(&run(2)).await;
    assert_eq!(other.unwrap_err().code(), Code::TurnNotFound);
    world.connection.cancel(&run(1)).await.unwrap();
    assert_eq!(soon(turn.ended()).await.unwrap(), "cancelled");
    let facts = world.notes.facts();
    assert!(facts.contains(&Fact::WaitEnded { wait_id, why: Ended::Cancelled }));
    assert_eq!(facts.last(), Some(&Fact::TurnEnded { stop_reason: "cancelled".to_owned() }));
    assert!(!world.notes.answers().contains(&"never".to_owned()));
    assert_eq!(world.turn("say on").await.unwrap(), "end_turn", "it goes on afterwards");
}

#[tokio::test]
async fn cancelling_a_long_turn_ends_it_soon() {
    let world = ready().await;
    let turn = world.connection.prompt(run(1), "say a\nwait 3600000").await.unwrap();
    world.notes.until(|fact| matches!(fact, Fact::Text { .. }).then_some(())).await;
    world.connection.cancel(&run(1)).await.unwrap();
    assert_eq!(soon(turn.ended()).await.unwrap(), "cancelled");
}

/// Time is paused: it advances when no task can make progress.
#[tokio::test(start_paused = true)]
async fn an_agent_that_hangs_is_deaf_to_cancellation() {
    let world = ready().await;
    let turn = world.connection.prompt(run(1), "hang").await.unwrap();
    world.connection.cancel(&run(1)).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_hours(1), turn.ended()).await;
    assert!(ended.is_err());
    assert_eq!(world.connection.turn().await, Some(run(1)));
}

#[tokio::test]
async fn the_end_of_the_agent_withdraws_its_questions_and_ends_no_turn() {
    let world = ready().await;
    let turn = world.connection.prompt(run(1), "say partial\nexit 3").await.unwrap();
    assert_eq!(soon(turn.ended()).await.unwrap_err(), Error::Closed);
    let notes = std::sync::Arc::clone(&world.notes);
    let connection = world.connection.clone();
    world.over().await.unwrap();
    assert_eq!(notes.answers(), ["partial"]);
    let is_end = |fact: &Fact| matches!(fact, Fact::TurnEnded { .. } | Fact::TurnFailed { .. });
    assert!(!notes.facts().iter().any(is_end));
    assert_eq!(connection.prompt(run(2), "x").await.unwrap_err().code(), Code::AgentClosed);
}

#[tokio::test]
async fn a_crash_at_every_stage_is_an_error_and_no_wait() {
    let world = with_echo(Setup::default(), options("crash_at=initialize"));
    let error = soon(world.connection.initialize()).await.unwrap_err();
    assert_eq!(error.code(), Code::AgentClosed);
    for (stage, id) in [("new", None), ("load", Some("x"))] {
        let world = with_echo(Setup::default(), options(&format!("--crash-at {stage}")));
        soon(world.connection.initialize()).await.unwrap();
        assert_eq!(world.begin(id, &[]).await.unwrap_err().code(), Code::AgentClosed, "{stage}");
    }
    for (stage, prompt) in [("prompt", "say x"), ("tool", "tool x")] {
        let world = ready_with(Setup::default(), options(&format!("--crash-at {stage}"))).await;
        assert_eq!(world.turn(prompt).await.unwrap_err().code(), Code::AgentClosed, "{stage}");
    }
    let world = with_echo(Setup::default(), options("--exit-at-once"));
    assert_eq!(soon(world.connection.initialize()).await.unwrap_err().code(), Code::AgentClosed);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_never_answers_is_given_up() {
    let world = with_echo(Setup::default(), options("--no-answer"));
    let error = world.connection.initialize().await.unwrap_err();
    assert_eq!(error.code(), Code::AgentTimeout);
    let message = "The agent did not answer initialize within 60000 ms";
    assert_eq!(error.to_string(), message);
}

#[tokio::test]
async fn another_version_is_refused() {
    let world = with_echo(Setup::default(), options("--protocol 2"));
    let error = soon(world.connection.initialize()).await.unwrap_err();
    assert_eq!((error.code(), error), (Code::AgentVersion, Error::Version { spoken: 2 }));
}

#[tokio::test]
async fn what_is_no_json_and_what_is_too_long_is_noted_and_the_turn_continues() {
    let limits = Limits { line_bytes_max: 10_000, drops_noted_max: 2, ..Limits::default() };
    let world = ready_with(Setup { limits, ..Setup::default() }, options("")).await;
    let prompt = "say a\ngarbage\nhuge 20000\ngarbage\ngarbage\ngarbage\nsay b";
    assert_eq!(world.turn(prompt).await.unwrap(), "end_turn");
    assert_eq!(world.notes.answers(), ["a", "b"]);
    let dropped = world.notes.dropped();
    let sum = |why: &str| dropped.iter().filter(|(said, _)| said == why).count();
    assert_eq!(sum("not_json"), 3, "two by themselves, two as a sum");
    let (_, bytes) = dropped.iter().find(|(why, _)| why == "line_too_long").unwrap();
    assert!(*bytes > 20_000);
}

#[tokio::test]
async fn an_agent_that_closes_its_input_may_end_its_turn() {
    let world = ready().await;
    assert_eq!(world.turn("close-stdin\nsay still here").await.unwrap(), "end_turn");
    assert_eq!(world.notes.answers(), ["still here"]);
    assert_eq!(world.turn("say x").await.unwrap_err().code(), Code::AgentClosed);
    let Some(Fact::TurnFailed { code, .. }) = world.notes.facts().pop() else { panic!() };
    assert_eq!(code, Code::AgentClosed, "it never got the prompt");
}

#[tokio::test]
async fn one_turn_at_a_time() {
    let world = ready().await;
    let turn = world.connection.prompt(run(1), "ask").await.unwrap();
    let busy = world.connection.prompt(run(2), "say x").await.unwrap_err();
    assert_eq!(busy, Error::Busy { run_id: run(1) });
    let (wait_id, _) = world.notes.asked().await;
    world.connection.answer(&wait_id, None).await.unwrap();
    soon(turn.ended()).await.unwrap();
    assert_eq!(world.connection.turn().await, None);
}

#[tokio::test]
async fn other_things_can_be_asked() {
    let world = ready().await;
    world.turn("remember k v").await.unwrap();
    let connection = &world.connection;
    let listed = soon(connection.ask("list_sessions", Value::Null)).await.unwrap();
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 1);
    let forked = soon(connection.ask("fork_session", json!({}))).await.unwrap();
    assert_ne!(forked["sessionId"], listed["sessions"][0]["sessionId"]);
    soon(connection.ask("set_mode", json!({ "modeId": "quiet" }))).await.unwrap();
    assert_eq!(world.notes.updates("mode"), [json!({ "currentModeId": "quiet" })]);
    soon(connection.ask("delete_session", json!({ "sessionId": forked["sessionId"] })))
        .await
        .unwrap();
    soon(connection.ask("close_session", Value::Null)).await.unwrap();
    let unknown = soon(connection.ask("reboot", Value::Null)).await.unwrap_err();
    assert_eq!(unknown.code(), Code::RequestInvalid);
    let refused = soon(connection.ask("set_config_option", Value::Null)).await.unwrap_err();
    assert_eq!(refused.code(), Code::AgentError);
    soon(connection.authenticate("any")).await.unwrap();
}

/// Wants to show: each choice is given to the agent and noted; one that it refuses is noted as refused
/// and keeps the others from nothing.
#[tokio::test]
async fn choices_are_given_to_the_agent() {
    let world = ready().await;
    let last_update = |what: &str| world.notes.updates(what).pop().unwrap_or_default();
    assert_eq!(last_update("modes")["modes"]["currentModeId"], "normal");
    assert_eq!(last_update("models")["models"]["currentModelId"], "small");
    assert_eq!(last_update("config")["configOptions"][0]["currentValue"], false);
    let choice = Configure {
        mode: Some("quiet".to_owned()),
        model: Some("huge".to_owned()),
        options: [("loud".to_owned(), ConfigValue::Bool(true))].into(),
    };
    soon(world.connection.configure(&choice)).await.unwrap();
    assert_eq!(last_update("mode"), json!({ "currentModeId": "quiet" }));
    assert_eq!(last_update("choice_refused:model")["value"], "huge");
    assert_eq!(world.notes.updates("model"), [Value::Null; 0]);
    assert_eq!(last_update("config")["configOptions"][0]["currentValue"], true);
    let large = Configure { model: Some("large".to_owned()), ..Configure::default() };
    soon(world.connection.configure(&large)).await.unwrap();
    assert_eq!(last_update("model"), json!({ "currentModelId": "large" }));
    assert_eq!(world.turn("commands\nusage 10\nplan").await.unwrap(), "end_turn");
    assert_eq!(last_update("commands")["availableCommands"][0]["name"], "recall");
    assert_eq!(
        (&last_update("usage")["used"], &last_update("usage")["size"]),
        (&json!(10), &json!(1_000))
    );
    assert_eq!(last_update("plan")["entries"][0]["content"], "First");
}

#[tokio::test]
async fn requests_of_the_agent_do_not_keep_it_from_being_read() {
    let finish = Arc::new(Notify::new());
    let host = Host { finish: Some(Arc::clone(&finish)), ..Host::default() };
    let world = ready_with(Setup { host, ..Setup::default() }, options("")).await;
    let turn = world.connection.prompt(run(1), "shell sleep").await.unwrap();
    world.notes.until(|fact| (kind(fact) == "tool_update").then_some(())).await;
    // The command runs; something else is answered meanwhile.
    soon(world.connection.ask("list_sessions", Value::Null)).await.unwrap();
    finish.notify_one();
    assert_eq!(soon(turn.ended()).await.unwrap(), "end_turn");
}

#[tokio::test]
async fn modes_and_whatever_else_is_said_are_updates() {
    let world = ready().await;
    let unknown = r#"raw {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"$SESSION","update":{"sessionUpdate":"telepathy","x":1}}}"#;
    let image = r#"raw {"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"$SESSION","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"image","data":"AA==","mimeType":"image/png"},"future":true}}}"#;
    let vendor = r#"raw {"jsonrpc":"2.0","method":"_vendor/news","params":{"x":2}}"#;
    let request = r#"raw {"jsonrpc":"2.0","id":"q1","method":"_vendor/ask","params":{}}"#;
    let prompt = format!("mode quiet\n{unknown}\n{image}\n{vendor}\n{request}\nsay ok");
    assert_eq!(world.turn(&prompt).await.unwrap(), "end_turn");
    assert_eq!(world.notes.updates("mode")[0]["currentModeId"], "quiet");
    assert_eq!(world.notes.updates("unknown:telepathy")[0]["x"], 1);
    assert_eq!(world.notes.updates("content")[0]["content"]["type"], "image");
    assert_eq!(world.notes.updates("notification:_vendor/news"), [json!({ "x": 2 })]);
    assert_eq!(world.notes.answers(), ["ok"]);
}

#[tokio::test]
async fn a_script_takes_the_place_of_prompts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("script");
    std::fs::write(&file, "say one\n---\nsay two\n").unwrap();
    let script = Some(PathBuf::from(&file));
    let options = echo::Options { script, ..echo::Options::default() };
    let world = ready_with(Setup::default(), options).await;
    for _ in 0..3 {
        world.turn("three").await.unwrap();
    }
    assert_eq!(world.notes.answers(), ["one", "two", "three"]);
}
