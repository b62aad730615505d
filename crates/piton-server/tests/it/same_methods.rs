//! HTTP and WebSocket call the same methods of the session engine: the same result, the same keys.

use piton_api::session::NewSession;
use piton_core::Code;
use serde_json::{Value, json};

use crate::world::World;

fn unstarted(title: &str) -> NewSession {
    NewSession { title: Some(title.to_owned()), start: Some(false), ..NewSession::default() }
}

/// Wants to show: what was asked over HTTP under a key is recognised over the WebSocket, and answered
/// the same; and the other way round.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_means_the_same_over_http_and_over_the_websocket() {
    let world = World::start().await;
    let mut socket = world.client.socket().await.unwrap();
    let keyed = world.client.with_idempotency_key("k1");
    let made = keyed.create_session(&unstarted("One")).await.unwrap().session_id;
    let again = json!({"title": "One", "start": false, "idempotency_key": "k1"});
    let again: Value = socket.call("task.session.create", &again).await.unwrap();
    assert_eq!(again["session_id"], made.as_str());
    let other = json!({"title": "Two", "start": false, "idempotency_key": "k1"});
    let other = socket.call::<Value>("task.session.create", &other).await.unwrap_err();
    assert_eq!(other.code(), Some(Code::IdempotencyKeyReused));

    let close = json!({"session_id": made, "outcome": "failed", "idempotency_key": "c1"});
    let closed: Value = socket.call("task.session.close", &close).await.unwrap();
    let path = format!("/api/v1/sessions/{made}/close");
    let closing = world.client.with_idempotency_key("c1");
    let over_http = closing.raw("POST", &path, r#"{"outcome": "failed"}"#).await.unwrap();
    assert_eq!(closed, over_http);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_renamed_both_ways() {
    let world = World::start().await;
    let mut socket = world.client.socket().await.unwrap();
    let session = world.client.create_session(&unstarted("One")).await.unwrap().session_id;
    let path = format!("/api/v1/sessions/{session}");
    let renamed = world.client.raw("PATCH", &path, r#"{"title": "Two"}"#).await.unwrap();
    assert_eq!(renamed, json!({"session_id": session, "run_id": null, "pending": false}));
    let status = world.client.session(&session).await.unwrap();
    assert_eq!(status.summary.title.as_deref(), Some("Two"));
    let params = json!({"session_id": session, "title": null});
    let renamed: Value = socket.call("task.session.rename", &params).await.unwrap();
    assert_eq!(renamed, json!({"session_id": session, "run_id": null, "pending": false}));
    assert_eq!(world.client.session(&session).await.unwrap().summary.title, None);
}

/// Wants to show: a server that owns a closed session redacts and archives it, for administrators.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_redacted_and_archived_over_the_api() {
    let world = World::start().await;
    let session = world.client.create_session(&unstarted("One")).await.unwrap().session_id;
    let path = |what: &str| format!("/api/v1/sessions/{session}/{what}");
    let prompt = r#"{"content": "the word is hunter22"}"#;
    // No agent can be started in this world: the answer says so, and the prompt is in the log.
    let failed = world.client.raw("POST", &path("messages"), prompt).await.unwrap_err();
    assert_eq!(failed.code(), Some(Code::AgentClosed));

    let controller = world.client_with(&[piton_core::access::Scope::Control].into()).await;
    let value = r#"{"value": "hunter22", "dry_run": true}"#;
    let refused = controller.raw("POST", &path("redact"), value).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::InsufficientScope));
    let planned = world.client.raw("POST", &path("redact"), value).await.unwrap();
    assert_eq!((&planned["done"], &planned["taken_out"]), (&json!(false), &json!(0)));
    assert_eq!(planned["targets"][0]["kind"], "message.user");
    let value = r#"{"value": "hunter22", "reason": "leaked"}"#;
    let redacted = world.client.raw("POST", &path("redact"), value).await.unwrap();
    assert_eq!((&redacted["done"], &redacted["taken_out"]), (&json!(true), &json!(1)));
    let records = world.client.raw("GET", &path("records"), "").await.unwrap();
    assert!(!records.to_string().contains("hunter22"), "{records}");
    let both = r#"{"value": "x", "pattern": "x"}"#;
    let both = world.client.raw("POST", &path("redact"), both).await.unwrap_err();
    assert_eq!(both.code(), Some(Code::RequestInvalid));

    let open = world.client.raw("POST", &path("archive"), "").await.unwrap_err();
    assert_eq!(open.code(), Some(Code::SessionNotClosed));
    world.client.raw("POST", &path("close"), "").await.unwrap();
    let archived = world.client.raw("POST", &path("archive"), "").await.unwrap();
    assert!(std::path::Path::new(archived["bundle"].as_str().unwrap()).is_file());
    assert_eq!(archived["encrypted"], false);
    let gone = world.client.session(&session).await.unwrap_err();
    assert_eq!(gone.code(), Some(Code::SessionNotFound));
}
