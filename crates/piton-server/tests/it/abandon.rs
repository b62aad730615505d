//! An executor that does not respond is given up on request.

use piton_api::queue::PromptRequest;
use piton_api::session::{AbandonRequest, NewSession};
use piton_core::Code;
use piton_core::access::Scope;
use piton_core::event::{ExecutorReady, ExecutorStarting};
use piton_core::id::{ExecutionId, SessionId};
use serde_json::{Value, json};

use crate::agentctl::HANG;
use crate::world::World;

async fn launched(world: &World) -> SessionId {
    let new = NewSession { start: Some(false), ..NewSession::default() };
    let session = world.client.create_session(&new).await.unwrap().session_id;
    let execution_id: ExecutionId = "exec_1".parse().unwrap();
    let (starting, runtime) = (execution_id.clone(), "scripted".to_owned());
    world.observe(&session, ExecutorStarting { execution_id: starting, runtime }, None).await;
    world.observe(&session, ExecutorReady { execution_id }, None).await;
    session
}

/// Wants to show: without it no other agent starts beside one that does not respond; with it the
/// executor counts as ended, once, over HTTP and over the WebSocket under the same key.
#[tokio::test(flavor = "multi_thread")]
async fn an_executor_is_abandoned_on_request() {
    let world = World::start().await;
    let client = &world.client;
    let session = launched(&world).await;
    let keyed = client.with_idempotency_key("a");
    let other = AbandonRequest { agent_execution_id: Some("exec_2".to_owned()) };
    let refused = client.abandon(&session, &other).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::ExecutorNotFound));
    let abandoned = keyed.abandon(&session, &AbandonRequest::default()).await.unwrap();
    assert_eq!((abandoned.session_id, abandoned.run_id), (session.clone(), None));
    let mut socket = client.socket().await.unwrap();
    let params = json!({"session_id": session, "idempotency_key": "a"});
    let again: Value = socket.call("task.session.abandon", &params).await.unwrap();
    assert_eq!(again, json!({"session_id": session, "run_id": null, "pending": false}));
    let status = client.session(&session).await.unwrap();
    assert_eq!(json!(status.summary.executor_status), json!("stopped"));
    let records = client.raw("GET", &format!("/api/v1/sessions/{session}/records"), "").await;
    let abandoned = records.unwrap().to_string().matches("executor.abandoned").count();
    assert_eq!(abandoned, 1);
    // Again without a key: it is so already.
    client.abandon(&session, &AbandonRequest::default()).await.unwrap();
}

/// Wants to show: a run is not taken from an agent that is at work on it. When its executor is silent,
/// the same request gives it up, under the same key, and a repetition finds the first answer.
#[tokio::test(flavor = "multi_thread")]
async fn an_executor_that_responds_is_not_abandoned() {
    let (world, fleet) = World::with_agents().await;
    let client = &world.client;
    let session = client.create_session(&NewSession::default()).await.unwrap().session_id;
    client.prompt(&session, &PromptRequest::new(HANG)).await.unwrap();
    let keyed = client.with_idempotency_key("a");
    let refused = keyed.abandon(&session, &AbandonRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::ExecutorInUse));
    let piton_api::client::Error::Problem(problem) = &refused else { panic!("{refused:?}") };
    assert!(problem.hint.contains("piton sessions cancel"), "{problem:?}");
    let records = client.raw("GET", &format!("/api/v1/sessions/{session}/records"), "").await;
    assert!(!records.unwrap().to_string().contains("executor.abandoned"), "nothing was written");
    fleet.set_away(true);
    let abandoned = keyed.abandon(&session, &AbandonRequest::default()).await.unwrap();
    assert!(abandoned.run_id.is_some());
    let status = client.session(&session).await.unwrap();
    assert_eq!(json!(status.summary.status), json!("interrupted_startup"));
    fleet.set_away(false);
    assert_eq!(keyed.abandon(&session, &AbandonRequest::default()).await.unwrap(), abandoned);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_abandoned_is_refused() {
    let world = World::start().await;
    let client = &world.client;
    let new = NewSession { start: Some(false), ..NewSession::default() };
    let idle = client.create_session(&new).await.unwrap().session_id;
    let refused = client.abandon(&idle, &AbandonRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::ExecutorNotFound));
    let path = "/api/v1/sessions/sess_none/abandon";
    let unknown = client.raw("POST", path, "").await.unwrap_err();
    assert_eq!(unknown.code(), Some(Code::SessionNotFound));
    let path = format!("/api/v1/sessions/{idle}/abandon");
    let malformed = client.raw("POST", &path, r#"{"execution": 1}"#).await.unwrap_err();
    assert_eq!(malformed.code(), Some(Code::RequestInvalid));
    let reader = world.client_with(&[Scope::Read].into()).await;
    let refused = reader.raw("POST", &path, "").await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::InsufficientScope));
}
