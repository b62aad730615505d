//! An agent's own features over HTTP and the WebSocket: shown, chosen, and kept over starts.

use piton_api::agent_view::{AgentChoice, AgentView, OptionValue};
use piton_api::client::Client;
use piton_api::session::{NewSession, PromptRequest, StartRequest};
use piton_core::Code;
use piton_core::access::Scope;
use piton_core::event::{AgentReady, ExecutorReady, ExecutorStarting};
use piton_core::id::{ExecutionId, SessionId};
use serde_json::{Value, json};

use crate::agentctl::TELL;
use crate::world::World;

async fn session(client: &Client, new: NewSession) -> SessionId {
    let new = NewSession { start: Some(false), ..new };
    client.create_session(&new).await.unwrap().session_id
}

fn mode(mode: &str) -> AgentChoice {
    AgentChoice { mode: Some(mode.to_owned()), ..AgentChoice::default() }
}

fn current(view: &AgentView) -> (Option<&str>, Option<&str>) {
    let modes = view.modes.as_ref().and_then(|modes| modes.current.as_deref());
    let chosen = view.models.as_ref().and_then(|models| models.current.as_deref());
    (modes, chosen)
}

/// Waits until the agent's words are in the log.
async fn until(client: &Client, session: &SessionId, is: impl Fn(&AgentView) -> bool) -> AgentView {
    let mut records = client.records_from(session, 0);
    loop {
        let view = client.agent(session).await.unwrap();
        if is(&view) {
            return view;
        }
        let next = records.next();
        tokio::time::timeout(std::time::Duration::from_secs(30), next).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agents_features_are_shown() {
    let (world, _fleet) = World::with_agents().await;
    let client = &world.client;
    let session = session(client, NewSession::default()).await;
    let empty = client.agent(&session).await.unwrap();
    assert_eq!((&empty.modes, &empty.usage, empty.plan.len()), (&None, &None, 0));
    let prompt: PromptRequest = serde_json::from_value(json!({"content": TELL})).unwrap();
    client.prompt(&session, &prompt).await.unwrap();
    let view = until(client, &session, |view| view.usage.is_some()).await;
    assert_eq!(current(&view), (Some("ask"), Some("small")));
    assert_eq!(view.modes.as_ref().unwrap().available.len(), 2);
    assert_eq!(view.config_options[0].current, Some(OptionValue::Bool(false)));
    assert_eq!((view.plan[0].content.as_str(), view.commands[0].name.as_str()), ("One", "test"));
    let usage = view.usage.clone().unwrap();
    assert_eq!((usage.context_tokens, usage.context_window_tokens), (Some(10), Some(100)));
    assert_eq!(usage.cost.unwrap().currency, "USD");
    let mut socket = client.socket().await.unwrap();
    let params = json!({"session_id": session});
    let over_socket: Value = socket.call("task.session.agent", &params).await.unwrap();
    assert_eq!(over_socket, serde_json::to_value(&view).unwrap());
}

/// Wants to show: what a user chose is given to the agent that runs, and to the next one, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_choice_is_applied_now_and_after_a_resume() {
    let (world, fleet) = World::with_agents().await;
    let client = &world.client;
    let session = session(client, NewSession::default()).await;
    client.start(&session, &StartRequest::default()).await.unwrap();
    until(client, &session, |view| view.config_options.len() == 1).await;
    let keyed = client.with_idempotency_key("m");
    // At the same time, and once more.
    let code = mode("code");
    let (first, second) = tokio::join!(
        keyed.configure_agent(&session, &code),
        keyed.configure_agent(&session, &code)
    );
    assert_eq!(first.unwrap(), second.unwrap());
    keyed.configure_agent(&session, &code).await.unwrap();
    let mut socket = client.socket().await.unwrap();
    let params = json!({"session_id": session, "model": "large", "options": {"web": true}});
    socket.call::<Value>("task.session.configure", &params).await.unwrap();
    let is_chosen = |view: &AgentView| {
        current(view) == (Some("code"), Some("large"))
            && view.config_options[0].current == Some(OptionValue::Bool(true))
    };
    let view = until(client, &session, is_chosen).await;
    assert_eq!(view.chosen.mode.as_deref(), Some("code"));
    let records = client.raw("GET", &format!("/api/v1/sessions/{session}/records"), "").await;
    let records = records.unwrap().to_string();
    assert_eq!(records.matches("\"agent.configured\"").count(), 2, "once for the key");

    world.kill_agents(&fleet, &session).await;
    client.start(&session, &StartRequest::default()).await.unwrap();
    let started = fleet.starts().pop().unwrap();
    assert_eq!(started.choice.mode.as_deref(), Some("code"));
    assert_eq!(started.choice.model.as_deref(), Some("large"));
    assert_eq!(started.choice.options.len(), 1);
    until(client, &session, |view| current(view) == (Some("code"), Some("large"))).await;
}

/// Wants to show: an initial choice reaches the first agent; one that it refuses is dropped, visibly.
#[tokio::test(flavor = "multi_thread")]
async fn an_initial_choice_is_given_to_the_first_agent() {
    let (world, fleet) = World::with_agents().await;
    let client = &world.client;
    let choice = AgentChoice { model: Some("huge".to_owned()), ..mode("code") };
    let new = NewSession { agent: Some(choice), ..NewSession::default() };
    let session = session(client, new).await;
    client.start(&session, &StartRequest::default()).await.unwrap();
    let view = until(client, &session, |view| view.chosen.model.is_none()).await;
    assert_eq!(current(&view), (Some("code"), Some("small")));
    assert_eq!(fleet.starts()[0].choice.model.as_deref(), Some("huge"));
    let records = client.raw("GET", &format!("/api/v1/sessions/{session}/records"), "").await;
    assert!(records.unwrap().to_string().contains("choice_refused:model"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_chosen_is_refused() {
    let (world, _fleet) = World::with_agents().await;
    let client = &world.client;
    let session = session(client, NewSession::default()).await;
    client.start(&session, &StartRequest::default()).await.unwrap();
    until(client, &session, |view| view.config_options.len() == 1).await;
    let path = format!("/api/v1/sessions/{session}/agent");
    for not_offered in [
        json!({"mode": "fly"}),
        json!({"model": "huge"}),
        json!({"options": {"other": true}}),
        json!({"options": {"web": "yes"}}),
    ] {
        let refused = client.raw("POST", &path, &not_offered.to_string()).await.unwrap_err();
        assert_eq!(refused.code(), Some(Code::ChoiceNotOffered), "{not_offered}");
    }
    let many: serde_json::Map<String, Value> =
        (0..65).map(|n| (format!("o{n}"), true.into())).collect();
    for wrong in [
        json!({}),
        json!({"mode": ""}),
        json!({"mode": "x".repeat(600)}),
        json!({"mode": 1}),
        json!({"speed": "fast"}),
        json!({"options": many}),
    ] {
        let refused = client.raw("POST", &path, &wrong.to_string()).await.unwrap_err();
        assert_eq!(refused.code(), Some(Code::RequestInvalid), "{wrong}");
    }
    let choice = r#"{"mode": "code"}"#;
    let unknown = client.raw("POST", "/api/v1/sessions/sess_none/agent", choice).await;
    assert_eq!(unknown.unwrap_err().code(), Some(Code::SessionNotFound));
    let reader = world.client_with(&[Scope::Read].into()).await;
    let refused = reader.raw("POST", &path, choice).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::InsufficientScope));
    client.close(&session, &piton_api::session::CloseRequest::default()).await.unwrap();
    let closed = client.raw("POST", &path, choice).await.unwrap_err();
    assert_eq!(closed.code(), Some(Code::SessionClosed));
    assert!(client.agent(&session).await.unwrap().modes.is_some(), "it can still be read");
}

/// Wants to show: while the executor does not respond the answer says so, and the choice is not lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_choice_for_an_agent_that_does_not_respond_is_kept() {
    let world = World::start().await;
    let client = &world.client;
    let session = session(client, NewSession::default()).await;
    let execution_id: ExecutionId = "exec_1".parse().unwrap();
    let (starting, runtime) = (execution_id.clone(), "scripted".to_owned());
    world.observe(&session, ExecutorStarting { execution_id: starting, runtime }, None).await;
    world.observe(&session, ExecutorReady { execution_id: execution_id.clone() }, None).await;
    world.observe(&session, AgentReady { execution_id, agent_session_id: None }, None).await;
    let refused = client.configure_agent(&session, &mode("code")).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::AgentctlUnreachable));
    let view = client.agent(&session).await.unwrap();
    assert_eq!(view.chosen.mode.as_deref(), Some("code"), "the next agent is given it");
}

/// Wants to show: a request that names no agent gets one that is installed or set, and the answer says
/// which one and why; under a key it says so again.
#[tokio::test(flavor = "multi_thread")]
async fn the_agent_of_a_request_that_names_none_is_announced() {
    let (world, _fleet) = World::with_agents().await;
    let new = |named: Option<&str>| NewSession {
        agent_profile_id: named.map(str::to_owned),
        start: Some(false),
        ..NewSession::default()
    };
    let named = world.client.create_session(&new(Some("echo"))).await.unwrap();
    assert_eq!((named.agent_profile_id.as_deref(), named.notice), (Some("echo"), None));
    let keyed = world.client.with_idempotency_key("default-agent".to_owned());
    let unnamed = keyed.create_session(&new(None)).await.unwrap();
    assert_eq!(unnamed.agent_profile_id.as_deref(), Some("echo"));
    let notice = unnamed.notice.clone().unwrap();
    assert!(notice.contains("echo, a test agent without a model"), "{notice}");
    assert_eq!(keyed.create_session(&new(None)).await.unwrap(), unnamed);
}
