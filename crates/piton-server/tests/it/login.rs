//! Logging an agent in.

use piton_api::agent_view::LoginRequest;
use piton_api::session::{NewSession, StartRequest};
use piton_core::Code;
use piton_core::access::Scope;
use serde_json::{Value, json};

use crate::world::World;

fn by(method: &str) -> LoginRequest {
    LoginRequest { auth_method: Some(method.to_owned()) }
}

/// Wants to show: an agent that wants to be logged in names how; a wrong way is a failure and not a
/// success; the right one leaves an agent that runs.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_logged_in() {
    let (world, fleet) = World::with_agents().await;
    let client = &world.client;
    fleet.set_auth("api-key");
    let new = NewSession { start: Some(false), ..NewSession::default() };
    let session = client.create_session(&new).await.unwrap().session_id;
    let nothing_known = client.log_in(&session, &LoginRequest::default()).await.unwrap_err();
    assert_eq!(nothing_known.code(), Some(Code::RequestInvalid));
    let wrong = client.log_in(&session, &by("browser")).await.unwrap_err();
    assert!(wrong.to_string().contains("Log in first"), "{wrong}");
    let status = client.session(&session).await.unwrap();
    assert_eq!(json!(status)["error_code"], "agent_auth_required");
    // The agent named one way: it need not be named again.
    let keyed = client.with_idempotency_key("l");
    keyed.log_in(&session, &LoginRequest::default()).await.unwrap();
    assert_eq!(fleet.starts().last().unwrap().auth_method.as_deref(), Some("api-key"));
    let status = client.session(&session).await.unwrap();
    assert_eq!(json!(status)["is_agent_running"], true);
    let starts = fleet.starts().len();
    keyed.log_in(&session, &LoginRequest::default()).await.unwrap();
    assert_eq!(fleet.starts().len(), starts, "once for the key");
    // One that runs is asked as it is.
    let mut socket = client.socket().await.unwrap();
    let params = json!({"session_id": session, "auth_method": "api-key"});
    socket.call::<Value>("task.session.login", &params).await.unwrap();
    assert_eq!(fleet.starts().len(), starts);
    client.start(&session, &StartRequest::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_log_in_is_refused() {
    let (world, _fleet) = World::with_agents().await;
    let client = &world.client;
    let unknown = client.raw("POST", "/api/v1/sessions/sess_none/login", "").await.unwrap_err();
    assert_eq!(unknown.code(), Some(Code::SessionNotFound));
    let new = NewSession { start: Some(false), ..NewSession::default() };
    let session = client.create_session(&new).await.unwrap().session_id;
    let path = format!("/api/v1/sessions/{session}/login");
    let reader = world.client_with(&[Scope::Read].into()).await;
    let refused = reader.raw("POST", &path, "").await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::InsufficientScope));
    client.raw("POST", &format!("/api/v1/sessions/{session}/close"), "").await.unwrap();
    let closed = client.raw("POST", &path, r#"{"auth_method": "x"}"#).await.unwrap_err();
    assert_eq!(closed.code(), Some(Code::SessionClosed));
}
