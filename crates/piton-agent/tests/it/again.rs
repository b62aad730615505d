//! Resuming a conversation: resumed, loaded, refused, and what is replayed.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use crate::common::{ScriptedAgent, Setup, World, soon, with_echo, world};
use piton_agent::acp::{Begin, Opened, RefusalPatterns};
use piton_core::Code;
use piton_core::spool::{Fact, OpenedAs};
use piton_echo as echo;
use serde_json::{Value, json};

fn options(memory: &std::path::Path, args: &str) -> echo::Options {
    let mut options = echo::Options::parse(args.split_whitespace().map(str::to_owned)).unwrap();
    options.memory = Some(memory.to_owned());
    options
}

/// A client with an agent that remembers in `memory`.
async fn start(
    memory: &std::path::Path,
    args: &str,
    id: Option<&str>,
    seen: &[String],
) -> (World, Opened) {
    let world = with_echo(Setup::default(), options(memory, args));
    soon(world.connection.initialize()).await.unwrap();
    let opened = world.begin(id, seen).await.unwrap();
    (world, opened)
}

fn seen(world: &World) -> Vec<String> {
    let ids = world.notes.updates("message_id");
    ids.iter().map(|id| id["agent_message_id"].as_str().unwrap().to_owned()).collect()
}

fn diverged(world: &World) -> Vec<(u64, Value)> {
    let facts = world.notes.facts().into_iter();
    facts
        .filter_map(|fact| match fact {
            Fact::HistoryDiverged { unseen, rest } => Some((unseen, rest)),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn an_agent_still_knows_what_it_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let memory = folder.path().join("memory.json");
    let (world, first) = start(&memory, "", None, &[]).await;
    assert_eq!(first.opened_as, OpenedAs::New);
    world.turn("remember colour blue").await.unwrap();
    // The turn in which it is killed is lost, like with real agents.
    world.turn("remember colour red\ncrash").await.unwrap_err();
    world.over().await.unwrap();

    let id = first.agent_session_id.as_str();
    for (args, opened_as) in [
        ("", OpenedAs::Resumed),
        ("--no-resume", OpenedAs::Loaded),
        ("--no-resume --no-load", OpenedAs::New),
    ] {
        let (world, opened) = start(&memory, args, Some(id), &[]).await;
        assert_eq!(opened.opened_as, opened_as, "{args}");
        assert_eq!(opened.agent_session_id == id, opened_as != OpenedAs::New, "{args}");
        let ready = world.notes.facts().into_iter().find_map(|fact| match fact {
            Fact::AgentReady { opened_as, agent_session_id, .. } => {
                Some((opened_as, agent_session_id))
            }
            _ => None,
        });
        assert_eq!(
            ready,
            Some((opened_as, Some(opened.agent_session_id))),
            "kept when it returned"
        );
        assert_eq!(world.notes.answers(), [""; 0], "what is told again is no news");
        world.turn("recall colour\nrecall").await.unwrap();
        let answers = world.notes.answers();
        let known = if opened_as == OpenedAs::New { "nothing about colour" } else { "blue" };
        assert_eq!(answers[0], known, "{args}");
    }
}

#[tokio::test]
async fn an_unknown_conversation_is_refused_and_another_begins() {
    let folder = tempfile::tempdir().unwrap();
    let memory = folder.path().join("memory.json");
    for (args, id) in [("", "nobody-knows"), ("--refuse-session --no-resume", "x")] {
        let (world, opened) = start(&memory, args, Some(id), &[]).await;
        assert_eq!(opened.opened_as, OpenedAs::New);
        let facts = world.notes.facts();
        let Fact::AgentSessionRefused { code, message, .. } = &facts[0] else {
            panic!("{facts:?}")
        };
        assert_eq!((*code, message), (-32002, &format!("Session not found: {id}")));
        assert!(matches!(facts[1], Fact::AgentReady { opened_as: OpenedAs::New, .. }));
        world.turn("say live").await.unwrap();
        assert_eq!(world.notes.answers(), ["live"]);
    }
}

#[tokio::test]
async fn known_messages_replayed_are_dropped_and_later_ones_are_imported() {
    let folder = tempfile::tempdir().unwrap();
    let memory = folder.path().join("memory.json");
    let (world, opened) = start(&memory, "", None, &[]).await;
    world.turn("say one\ntool t").await.unwrap();
    let known = seen(&world);
    assert_eq!(known.len(), 1);
    world.turn("say two\nrun true\nsay three").await.unwrap();
    let all = seen(&world);
    let id = Some(opened.agent_session_id.as_str());

    for how in ["before", "none"] {
        let (world, _) = start(&memory, &format!("--no-resume --replay={how}"), id, &all).await;
        assert_eq!(world.notes.answers(), [""; 0], "{how}");
        assert_eq!(diverged(&world), [], "{how}");
    }
    // The log missed the second turn.
    let (world, _) = start(&memory, "--no-resume", id, &known).await;
    assert_eq!(world.notes.answers(), ["two", "three"]);
    assert_eq!(world.notes.updates("user_message").len(), 1);
    let calls =
        world.notes.facts().into_iter().filter(|fact| matches!(fact, Fact::ToolCall { .. }));
    assert_eq!(calls.count(), 1, "the call of the known turn is not told again");
    assert_eq!(diverged(&world), []);
    // The log knows another history.
    let (world, _) = start(&memory, "--no-resume", id, &["other".to_owned()]).await;
    assert_eq!(world.notes.answers(), [""; 0]);
    let found = diverged(&world);
    let [(3, rest)] = &found[..] else { panic!("{found:?}") };
    assert_eq!(rest["left_out"], 0);
    assert!(rest["updates"].as_array().unwrap().len() > 3);
    // Nothing can be compared without ids.
    let (world, _) = start(&memory, "--no-resume", id, &[]).await;
    assert_eq!((world.notes.answers(), diverged(&world)), (vec![], vec![]));
}

#[tokio::test]
async fn what_trails_in_behind_the_answer_is_dropped_until_the_first_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let memory = folder.path().join("memory.json");
    let (world, opened) = start(&memory, "--no-message-ids", None, &[]).await;
    world.turn("say one\nsay two").await.unwrap();
    let id = Some(opened.agent_session_id.as_str());
    let (world, _) = start(&memory, "--no-resume --replay=after", id, &[]).await;
    // Behind it in the stream: by its answer all that trailed has come.
    soon(world.connection.ask("list_sessions", Value::Null)).await.unwrap();
    world.turn("say live").await.unwrap();
    assert_eq!(world.notes.answers(), ["live"]);
}

/// An agent that gives these answers in order.
async fn with_answers(
    capabilities: Value,
    answers: Vec<(&str, Value)>,
) -> (World, Result<Opened, piton_agent::acp::Error>, Vec<String>) {
    with_answers_of(RefusalPatterns::default(), capabilities, answers).await
}

/// The same of an agent with words of its own.
async fn with_answers_of(
    wording: RefusalPatterns,
    capabilities: Value,
    answers: Vec<(&str, Value)>,
) -> (World, Result<Opened, piton_agent::acp::Error>, Vec<String>) {
    let (world, agent) = world(Setup::default());
    let mut scripted = ScriptedAgent::new(agent);
    let agent_session_id = Some("s1".to_owned());
    let begin = Begin { agent_session_id, wording, ..Begin::default() };
    let opening = async {
        world.connection.initialize().await.unwrap();
        world.connection.begin(begin).await
    };
    let answering = async {
        scripted.open(capabilities).await;
        let mut heard = Vec::new();
        for (method, answer) in answers {
            let mut asked = scripted.hear().await;
            assert_eq!(asked["method"], method);
            heard.push(asked["params"].take().to_string());
            let mut message = json!({ "id": asked["id"] });
            let key = if answer.get("code").is_some() { "error" } else { "result" };
            message[key] = answer;
            scripted.say(message).await;
        }
        heard
    };
    let (opened, heard) = Box::pin(soon(async { tokio::join!(opening, answering) })).await;
    (world, opened, heard)
}

#[tokio::test]
async fn an_error_that_says_nothing_of_the_session_keeps_its_id() {
    let capabilities = json!({ "loadSession": true });
    let error = json!({ "code": -32603, "message": "Internal error" });
    let (world, opened, _) = with_answers(capabilities, vec![("session/load", error)]).await;
    let error = opened.unwrap_err();
    assert_eq!(error.code(), Code::AgentError);
    assert_eq!(world.notes.facts(), [], "nothing was refused");
}

#[tokio::test]
async fn what_is_offered_and_missing_gives_way_to_the_next() {
    let capabilities = json!({ "loadSession": true, "sessionCapabilities": { "resume": {} } });
    let missing = json!({ "code": -32601, "message": "Method not found" });
    let answers = vec![("session/resume", missing), ("session/load", Value::Null)];
    let (world, opened, heard) = with_answers(capabilities, answers).await;
    let opened = opened.unwrap();
    assert_eq!(opened, Opened { opened_as: OpenedAs::Loaded, agent_session_id: "s1".to_owned() });
    assert!(heard[1].contains("\"mcpServers\":[]"), "{heard:?}");
    assert_eq!(world.notes.facts().len(), 1);
}

/// As pi does when the file of a conversation is gone: it says that it has loaded it, and begins an empty one.
#[tokio::test]
async fn a_load_that_replays_nothing_is_a_refusal_where_the_agent_replays() {
    let pi = RefusalPatterns { silence: true, ..RefusalPatterns::default() };
    let capabilities = || json!({ "loadSession": true });
    let new = json!({ "sessionId": "s2" });
    let answers = || vec![("session/load", json!({})), ("session/new", new.clone())];
    let (world, opened, _) = with_answers_of(pi, capabilities(), answers()).await;
    let opened = opened.unwrap();
    assert_eq!((opened.opened_as, opened.agent_session_id.as_str()), (OpenedAs::New, "s2"));
    let facts = world.notes.facts();
    let Fact::AgentSessionRefused { code: -32002, agent_session_id, .. } = &facts[0] else {
        panic!("{facts:?}")
    };
    assert_eq!(agent_session_id.as_deref(), Some("s1"));
    let (_, opened, _) = with_answers(capabilities(), vec![("session/load", json!({}))]).await;
    assert_eq!(opened.unwrap().opened_as, OpenedAs::Loaded, "most agents need not replay");
}

/// Cline advertises that it loads, and some releases do not.
#[tokio::test]
async fn what_is_offered_and_missing_altogether_is_started_fresh() {
    let capabilities = json!({ "loadSession": true });
    let missing = json!({ "code": -32601, "message": "\"Method not found\": session/load" });
    let new = json!({ "sessionId": "s2" });
    let answers = vec![("session/load", missing), ("session/new", new)];
    let (world, opened, _) = with_answers(capabilities, answers).await;
    let opened = opened.unwrap();
    assert_eq!(opened, Opened { opened_as: OpenedAs::New, agent_session_id: "s2".to_owned() });
    let facts = world.notes.facts();
    assert!(
        !facts.iter().any(|fact| matches!(fact, Fact::AgentSessionRefused { .. })),
        "the conversation itself is not disowned: {facts:?}"
    );
    let [Fact::AgentReady { capabilities, .. }] = &facts[..] else { panic!("{facts:?}") };
    assert!(!capabilities.load, "it need not be asked for it again");
}

/// Each agent says in its own words that it does not know a conversation.
#[tokio::test]
async fn the_words_of_a_profile_count() {
    let codex = piton_agent::profiles::find("codex").unwrap().quirks.wording;
    let lost = json!({ "code": -32600, "message": "no rollout found for thread id s1" });
    let new = json!({ "sessionId": "s2" });
    let answers = || vec![("session/load", lost.clone()), ("session/new", new.clone())];
    let capabilities = || json!({ "loadSession": true });
    let (_, opened, _) = with_answers_of(codex, capabilities(), answers()).await;
    assert_eq!(opened.unwrap().agent_session_id, "s2");
    // In others' mouths it may mean anything.
    let (_, opened, _) = with_answers(capabilities(), vec![("session/load", lost.clone())]).await;
    assert_eq!(opened.unwrap_err().code(), Code::AgentError);
    // And what looks like it may not be it.
    let in_use = json!({ "code": -32002, "message": "Session in use by another Codex client" });
    let (_, opened, _) =
        with_answers_of(codex, capabilities(), vec![("session/load", in_use)]).await;
    assert_eq!(opened.unwrap_err().code(), Code::AgentError);
}

/// Codex reports a conversation as loaded whose file is gone, and notices at the first prompt.
#[tokio::test]
async fn a_load_that_meant_nothing_is_noticed_at_the_first_prompt() {
    let (world, agent) = world(Setup::default());
    let mut scripted = ScriptedAgent::new(agent);
    let begin = Begin { agent_session_id: Some("s1".to_owned()), ..Begin::default() };
    let opening = async {
        world.connection.initialize().await.unwrap();
        world.connection.begin(begin).await.unwrap();
        let turn = world.connection.prompt("run_1".parse().unwrap(), "go on").await.unwrap();
        turn.ended().await.unwrap_err();
        // A restart may bring it back; a prompt before that fails, since there is no conversation.
        world.connection.until_deaf().await;
        assert!(world.connection.has_lost_session().await);
        let again = world.connection.prompt("run_2".parse().unwrap(), "go on").await.unwrap_err();
        assert_eq!(again, piton_agent::acp::Error::Closed);
    };
    let answering = async {
        scripted.open(json!({ "loadSession": true })).await;
        let asked = scripted.hear().await;
        scripted.say(json!({ "id": asked["id"], "result": {} })).await;
        let asked = scripted.hear().await;
        assert_eq!(asked["method"], "session/prompt");
        // What it says of itself is no sign that it has the conversation.
        let commands =
            json!({ "sessionUpdate": "available_commands_update", "availableCommands": [] });
        let params = json!({ "sessionId": "s1", "update": commands });
        scripted.say(json!({ "method": "session/update", "params": params })).await;
        let data = json!({ "details": "thread not found: s1" });
        let error = json!({ "code": -32603, "message": "Internal error", "data": data });
        scripted.say(json!({ "id": asked["id"], "error": error })).await;
    };
    Box::pin(soon(async { tokio::join!(opening, answering) })).await;
    let facts = world.notes.facts();
    let refused = facts.iter().position(|fact| {
        matches!(fact, Fact::AgentSessionRefused { agent_session_id: Some(id), .. } if id == "s1")
    });
    let failed = facts.iter().position(|fact| matches!(fact, Fact::TurnFailed { .. }));
    assert!(refused.is_some() && refused < failed, "{facts:?}");
}

#[tokio::test]
async fn details_of_an_error_tell_that_a_session_is_unknown() {
    let capabilities = json!({ "sessionCapabilities": { "resume": {} } });
    let data = json!({ "details": "Session not found" });
    let error = json!({ "code": -32603, "message": "Internal error", "data": data });
    let new = json!({ "sessionId": "s2" });
    let answers = vec![("session/resume", error), ("session/new", new)];
    let (world, opened, _) = with_answers(capabilities, answers).await;
    assert_eq!(opened.unwrap().agent_session_id, "s2");
    assert!(matches!(world.notes.facts()[0], Fact::AgentSessionRefused { code: -32603, .. }));
}
