//! Who may do what: every method of the WebSocket with every scope, and the same over HTTP.

use piton_api::client::Error;
use piton_core::Code;
use piton_core::access::Scope;
use piton_server::{OPERATIONS, Operation};
use serde_json::{Value, json};

use crate::world::World;

/// Whether a request got past the question who may ask: whatever it came to then.
fn is_admitted<T>(came: Result<T, Error>) -> bool {
    !came.is_err_and(|error| error.code() == Some(Code::InsufficientScope))
}

/// The scopes as the documentation promises them, written down a second time.
const CONTROL: &[&str] = &[
    "task.update",
    "task.session.create",
    "task.session.answer",
    "task.session.start",
    "task.session.open",
    "task.session.prompt",
    "task.session.queue.add",
    "task.session.queue.edit",
    "task.session.queue.remove",
    "task.session.queue.release",
    "task.session.resume",
    "task.session.rename",
    "task.session.pause",
    "task.session.cancel",
    "task.session.dismiss",
    "task.session.close",
    "task.session.stop",
    "task.session.abandon",
    "task.session.fork",
    "task.session.login",
    "task.session.configure",
];

/// Wants to show: each method needs exactly its scope, and the HTTP operation behind it needs the same.
#[tokio::test(flavor = "multi_thread")]
async fn each_method_needs_its_scope_both_ways() {
    let world = World::start().await;
    for scope in Scope::ALL {
        let client = world.client_with(&[*scope].into()).await;
        let mut socket = client.socket().await.unwrap();
        for Operation { method, http, scope: needed } in OPERATIONS {
            let promised = if CONTROL.contains(method) { Scope::Control } else { Scope::Read };
            assert_eq!(*needed, promised, "{method}");
            let params = json!({"session_id": "sess_none", "wait_id": "wait_none", "task_id": "task_none", "message_id": "msg_none"});
            let called = is_admitted(socket.call::<Value>(method, &params).await);
            assert_eq!(called, scope == needed, "{method} with {scope}");
            let Some((verb, path)) = http else { continue };
            let path = path.replace("{session_id}", "sess_none").replace("{wait_id}", "wait_none");
            let path = path.replace("{task_id}", "task_none");
            let path = path.replace("{message_id}", "msg_none");
            let asked = is_admitted(client.raw(verb, &format!("/api/v1{path}"), "{}").await);
            assert_eq!(asked, scope == needed, "{verb} {path} with {scope}");
        }
    }
}
