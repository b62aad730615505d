//! The conversations that agents have: listed, deleted, forked.

use piton_api::agent_view::{AgentSessionQuery, ForkRequest};
use piton_api::session::{NewSession, PromptRequest, StartRequest};
use piton_core::Code;
use piton_core::access::Scope;
use serde_json::{Value, json};

use crate::agentctl::HANG;
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn an_agents_conversations_are_listed_and_deleted() {
    let (world, _fleet) = World::with_agents().await;
    let client = &world.client;
    let query = AgentSessionQuery { folder: Some("/".to_owned()), after: None };
    let none_runs = client.agent_sessions("echo", &query).await.unwrap_err();
    assert_eq!(none_runs.code(), Some(Code::AgentNotRunning));
    let unknown = client.agent_sessions("nobody", &query).await.unwrap_err();
    assert_eq!(unknown.code(), Some(Code::AgentNotFound));
    let new = NewSession { start: Some(false), ..NewSession::default() };
    let session = client.create_session(&new).await.unwrap().session_id;
    client.start(&session, &StartRequest::default()).await.unwrap();
    let page = client.agent_sessions("echo", &query).await.unwrap();
    assert_eq!(page.sessions[0].agent_session_id, "theirs_old");
    assert_eq!(page.sessions[0].folder.as_deref(), Some("/"));
    let relative = AgentSessionQuery { folder: Some("here".to_owned()), after: None };
    let relative = client.agent_sessions("echo", &relative).await.unwrap_err();
    assert_eq!(relative.code(), Some(Code::RequestInvalid));

    client.delete_agent_session("echo", "theirs_old").await.unwrap();
    let own = client.delete_agent_session("echo", &format!("theirs_{session}")).await.unwrap_err();
    assert_eq!(own.code(), Some(Code::AgentSessionInUse));
    let not_offered = client.close_agent_session("echo", "theirs_old").await.unwrap_err();
    assert_eq!(not_offered.code(), Some(Code::AgentNotOffered));
    let controller = world.client_with(&[Scope::Control].into()).await;
    let refused = controller.delete_agent_session("echo", "theirs_old").await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::InsufficientScope));
}

/// Wants to show: a fork is a session of its own, whose agent copies the conversation once.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_forked() {
    let (world, fleet) = World::with_agents().await;
    let client = &world.client;
    let new = NewSession {
        title: Some("One".to_owned()),
        start: Some(false),
        working_dir: Some("/".to_owned()),
        ..NewSession::default()
    };
    let session = client.create_session(&new).await.unwrap().session_id;
    let fork = ForkRequest { start: Some(false), ..ForkRequest::default() };
    let nothing = client.fork(&session, &fork).await.unwrap_err();
    assert_eq!(nothing.code(), Some(Code::AgentNotOffered), "it has no conversation yet");
    client.start(&session, &StartRequest::default()).await.unwrap();
    let keyed = client.with_idempotency_key("f");
    let forked = keyed.fork(&session, &fork).await.unwrap().session_id;
    assert_eq!(keyed.fork(&session, &fork).await.unwrap().session_id, forked);
    assert_ne!(forked, session);
    let status = client.session(&forked).await.unwrap();
    assert_eq!(status.summary.title.as_deref(), Some("One"));
    assert_eq!(status.summary.working_dir.as_deref(), Some("/"));
    let view = client.agent(&forked).await.unwrap();
    assert_eq!(view.forked_from.as_deref(), Some(session.as_str()));
    client.start(&forked, &StartRequest::default()).await.unwrap();
    let start = fleet.starts().pop().unwrap();
    assert!(start.fork);
    assert_eq!(start.agent_session_id, Some(format!("theirs_{session}")));
    // From then on it has a conversation of its own.
    world.kill_agents(&fleet, &forked).await;
    client.start(&forked, &StartRequest::default()).await.unwrap();
    let start = fleet.starts().pop().unwrap();
    assert_eq!((start.fork, start.agent_session_id), (false, Some(format!("theirs_{forked}"))));

    let prompt: PromptRequest = serde_json::from_value(json!({"content": HANG})).unwrap();
    client.prompt(&forked, &prompt).await.unwrap();
    let mut socket = client.socket().await.unwrap();
    let params = json!({"session_id": forked});
    let busy = socket.call::<Value>("task.session.fork", &params).await.unwrap_err();
    assert_eq!(busy.code(), Some(Code::RunInProgress));
    let unknown = client.raw("POST", "/api/v1/sessions/sess_none/fork", "").await.unwrap_err();
    assert_eq!(unknown.code(), Some(Code::SessionNotFound));
}
