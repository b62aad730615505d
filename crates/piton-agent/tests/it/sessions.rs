//! Logging in, forks, and the conversations that an agent has besides the one that is open.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::time::Duration;

use crate::common::{ScriptedAgent, Setup, World, soon, with_echo, world};
use piton_agent::acp::{Begin, Error, Limits, Opened};
use piton_core::Code;
use piton_core::spool::{AuthMethod, Fact, OpenedAs};
use piton_echo as echo;
use serde_json::{Value, json};

fn echo_options(args: &str) -> echo::Options {
    echo::Options::parse(args.split_whitespace().map(str::to_owned)).unwrap()
}

async fn greeted(setup: Setup, args: &str) -> World {
    let world = with_echo(setup, echo_options(args));
    soon(world.connection.initialize()).await.unwrap();
    world
}

#[tokio::test]
async fn an_agent_that_wants_a_login_says_how_and_is_logged_in() {
    let world = greeted(Setup::default(), "--auth key").await;
    let refused = world.begin(None, &[]).await.unwrap_err();
    assert_eq!((refused.code(), refused.is_auth()), (Code::AgentAuthRequired, true));
    let method = AuthMethod {
        id: "key".to_owned(),
        name: "Log in by key".to_owned(),
        description: Some("Nothing is checked".to_owned()),
    };
    assert_eq!(world.connection.auth_methods().await, [method]);
    assert_eq!(world.notes.facts(), [], "nothing was opened");

    let unknown = soon(world.connection.log_in("other")).await.unwrap_err();
    let known = Error::AuthUnknown { id: "other".to_owned(), known: "\"key\"".to_owned() };
    assert_eq!((unknown.code(), &unknown), (Code::AgentAuthNotFound, &known));
    soon(world.connection.log_in("key")).await.unwrap();
    assert_eq!(world.begin(None, &[]).await.unwrap().opened_as, OpenedAs::New);
    world.turn("say hello").await.unwrap();
    assert_eq!(world.notes.answers(), ["hello"]);
}

#[tokio::test]
async fn a_login_that_fails_or_never_ends_is_named() {
    let world = greeted(Setup::default(), "--auth key --auth-answer refuse").await;
    let failed = soon(world.connection.log_in("key")).await.unwrap_err();
    assert_eq!(failed.code(), Code::AgentAuthFailed);
    assert!(failed.to_string().contains("The key is not good"), "{failed}");

    let limits = Limits { start_wait: Duration::from_millis(200), ..Limits::default() };
    let setup = Setup { limits, ..Setup::default() };
    let world = greeted(setup, "--auth key --auth-answer never").await;
    let late = soon(world.connection.log_in("key")).await.unwrap_err();
    assert_eq!(late.code(), Code::AgentAuthTimeout);

    let world = greeted(Setup::default(), "").await;
    let unknown = soon(world.connection.log_in("key")).await.unwrap_err();
    assert!(unknown.to_string().ends_with("it names none"), "{unknown}");
}

/// What an agent says about its logins is masked like everything else.
#[tokio::test]
async fn names_of_logins_are_masked() {
    let setup = Setup { secrets: vec!["hunter2-secret"], ..Setup::default() };
    let world = greeted(setup, "--auth hunter2-secret").await;
    let methods = format!("{:?}", world.connection.auth_methods().await);
    assert!(methods.contains("[masked]") && !methods.contains("hunter2"), "{methods}");
}

fn fork(id: Option<&str>) -> Begin {
    let cwd = std::env::temp_dir();
    Begin { cwd, agent_session_id: id.map(str::to_owned), fork: true, ..Begin::default() }
}

/// Two conversations from one: what is said in one of them is not known to the other.
#[tokio::test]
async fn a_fork_knows_what_was_said_and_leaves_the_original_alone() {
    let folder = tempfile::tempdir().unwrap();
    let memory = format!("--memory {}", folder.path().join("memory.json").display());
    let first = greeted(Setup::default(), &memory).await;
    let original = first.begin(None, &[]).await.unwrap().agent_session_id;
    first.turn("remember colour blue").await.unwrap();

    let second = greeted(Setup::default(), &memory).await;
    let opened = soon(second.connection.begin(fork(Some(&original)))).await.unwrap();
    assert_eq!(opened.opened_as, OpenedAs::Forked);
    assert_ne!(opened.agent_session_id, original);
    let facts = second.notes.facts();
    let Fact::AgentReady { opened_as, agent_session_id, requested_session_id, .. } = &facts[0]
    else {
        panic!("{facts:?}")
    };
    assert_eq!(*opened_as, OpenedAs::Forked);
    assert_eq!(agent_session_id.as_ref(), Some(&opened.agent_session_id));
    assert_eq!(requested_session_id.as_ref(), Some(&original));
    second.turn("recall colour\nremember colour red").await.unwrap();
    assert_eq!(second.notes.answers(), ["blue", "remembered colour"]);
    first.turn("recall colour").await.unwrap();
    assert_eq!(first.notes.answers(), ["remembered colour", "blue"]);
}

/// Nothing else is done instead: another client may use the original conversation.
#[tokio::test]
async fn a_fork_that_is_not_possible_is_refused() {
    let world = greeted(Setup::default(), "--no-fork").await;
    let refused = soon(world.connection.begin(fork(Some("x")))).await.unwrap_err();
    assert_eq!(refused, Error::NotOffered { method: "session/fork".to_owned() });
    let refused = soon(world.connection.begin(fork(None))).await.unwrap_err();
    assert_eq!(refused.code(), Code::ForkSourceRequired);
    assert_eq!(world.notes.facts(), []);
    // One that the agent does not know is like any other that it does not know.
    let world = greeted(Setup::default(), "").await;
    let opened = soon(world.connection.begin(fork(Some("nobody-knows")))).await.unwrap();
    assert_eq!(opened.opened_as, OpenedAs::New);
    let refused = Fact::AgentSessionRefused {
        code: -32002,
        message: "Session not found: nobody-knows".to_owned(),
        agent_session_id: Some("nobody-knows".to_owned()),
    };
    assert_eq!(world.notes.facts()[0], refused);
}

/// Wants to show: what was asked for is noted beside what came of it.
#[tokio::test]
async fn a_conversation_that_cannot_be_gone_on_with_is_named() {
    let world = greeted(Setup::default(), "--no-resume --no-load").await;
    let opened = world.begin(Some("before"), &[]).await.unwrap();
    let facts = world.notes.facts();
    let Fact::AgentReady { opened_as, agent_session_id, requested_session_id, .. } = &facts[0]
    else {
        panic!("{facts:?}")
    };
    assert_eq!((*opened_as, requested_session_id.as_deref()), (OpenedAs::New, Some("before")));
    assert_eq!(agent_session_id.as_ref(), Some(&opened.agent_session_id));
}

/// The protocol gives an agent no place to rename a conversation that is loaded; some do it.
#[tokio::test]
async fn an_agent_that_calls_a_conversation_otherwise_is_heard() {
    let (world, agent) = world(Setup::default());
    let mut scripted = ScriptedAgent::new(agent);
    let opening = async {
        world.connection.initialize().await.unwrap();
        world.begin(Some("s1"), &[]).await
    };
    let answering = async {
        scripted.open(json!({ "loadSession": true })).await;
        let asked = scripted.hear().await;
        assert_eq!(asked["method"], "session/load");
        scripted.answer(&asked, json!({ "sessionId": "s2" })).await;
    };
    let (opened, ()) = Box::pin(soon(async { tokio::join!(opening, answering) })).await;
    let expected = Opened { opened_as: OpenedAs::Loaded, agent_session_id: "s2".to_owned() };
    assert_eq!(opened.unwrap(), expected);
    let facts = world.notes.facts();
    let Fact::AgentReady { agent_session_id: Some(id), .. } = &facts[0] else {
        panic!("{facts:?}")
    };
    assert_eq!(id, "s1");
    assert_eq!(facts[1], Fact::AgentSessionAssigned { agent_session_id: "s2".to_owned() });
}

#[tokio::test]
async fn conversations_are_listed_closed_and_deleted_but_for_the_one_at_hand() {
    let world = greeted(Setup::default(), "").await;
    let own = world.begin(None, &[]).await.unwrap().agent_session_id;
    world.turn("hello there").await.unwrap();
    let connection = &world.connection;
    let forked = soon(connection.ask("fork_session", json!({}))).await.unwrap();
    let other = forked["sessionId"].as_str().unwrap();

    let ids = async || {
        let listed = soon(connection.list_sessions(None, None)).await.unwrap();
        let mut ids: Vec<_> = listed.sessions.into_iter().map(|s| s.agent_session_id).collect();
        ids.sort();
        ids
    };
    let mut both = vec![own.clone(), other.to_owned()];
    both.sort();
    assert_eq!(ids().await, both);
    let listed = soon(connection.list_sessions(None, None)).await.unwrap();
    assert_eq!(listed.sessions[0].title.as_deref(), Some("hello there"));
    assert_eq!(listed.sessions[0].cwd, Some(std::env::temp_dir()));

    soon(connection.close_session(other)).await.unwrap();
    assert_eq!(ids().await, both);
    for refused in [
        soon(connection.close_session(&own)).await,
        soon(connection.delete_session(&own)).await,
        soon(connection.ask("delete_session", Value::Null)).await.map(drop),
    ] {
        assert_eq!(refused.unwrap_err(), Error::OwnSession { id: own.clone() });
    }
    soon(connection.delete_session(other)).await.unwrap();
    assert_eq!(ids().await, [own]);
}

#[tokio::test]
async fn what_is_not_offered_is_not_asked() {
    let (world, agent) = world(Setup::default());
    let mut scripted = ScriptedAgent::new(agent);
    let opening = world.connection.initialize();
    let (opened, ()) = soon(async { tokio::join!(opening, scripted.open(json!({}))) }).await;
    opened.unwrap();
    let connection = &world.connection;
    for refused in [
        soon(connection.list_sessions(None, None)).await.map(drop),
        soon(connection.close_session("x")).await,
        soon(connection.delete_session("x")).await,
    ] {
        assert_eq!(refused.unwrap_err().code(), Code::AgentNotOffered);
    }
}
