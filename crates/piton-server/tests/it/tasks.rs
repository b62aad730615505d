//! Tasks: their derived state, what is pushed about them, and how they are edited, closed and deleted.

use piton_api::client::{Client, IndexUpdate, Socket};
use piton_api::session::{CloseRequest, NewSession, PromptRequest, StartRequest};
use piton_api::socket_event::SocketEvent;
use piton_api::task::{NewTask, Task, TaskDeleteQuery, TaskUpdate};
use piton_core::Code;
use piton_core::access::Scope;
use piton_core::id::{SessionId, TaskId};
use serde_json::{Value, json};

use crate::agentctl::HANG;
use crate::world::World;

async fn task(client: &Client, title: &str) -> TaskId {
    client.create_task(&NewTask { title: title.to_owned() }).await.unwrap().task_id
}

async fn session_of(client: &Client, task: &TaskId) -> SessionId {
    let task_id = Some(task.to_string());
    let new = NewSession { task_id, start: Some(false), ..NewSession::default() };
    client.create_session(&new).await.unwrap().session_id
}

/// The next event as it was sent.
async fn sent(socket: &mut Socket) -> Value {
    let event = socket.next_event().await.unwrap();
    assert!(!matches!(event, SocketEvent::Other(_)), "{event:?} is no event of the contract");
    json!(event)
}

fn prompt() -> PromptRequest {
    serde_json::from_value(json!({"content": HANG})).unwrap()
}

async fn state(client: &Client, task: &TaskId) -> Value {
    serde_json::to_value(client.task(task).await.unwrap().state).unwrap()
}

/// Wants to show: the state follows from what sessions were asked, not from agents that start; and
/// each change of it is pushed once, over the stream and over the WebSocket, with the same fields.
#[tokio::test(flavor = "multi_thread")]
async fn a_tasks_state_is_derived_and_pushed() {
    let (world, fleet) = World::with_agents().await;
    let client = &world.client;
    let mut socket = client.socket().await.unwrap();
    let listed: Value = socket.call("tasks.subscribe", &json!({})).await.unwrap();
    assert_eq!(listed, json!({"tasks": []}));
    let mut events = client.index_events();
    let IndexUpdate::Listing(listing) = events.next().await.unwrap() else { panic!("no listing") };
    assert_eq!((listing.sessions, listing.tasks), (0, 0));

    let task = task(client, "One").await;
    let event = sent(&mut socket).await;
    assert_eq!(
        (event["event"].as_str().unwrap(), &event["payload"]["state"]),
        ("task.updated", &json!("TODO"))
    );
    let session = session_of(client, &task).await;
    client.start(&session, &StartRequest::default()).await.unwrap();
    assert_eq!(state(client, &task).await, "TODO", "nothing was asked");
    client.prompt(&session, &prompt()).await.unwrap();
    let event = sent(&mut socket).await;
    assert_eq!(event["event"], "task.state_changed");
    let states = (&event["payload"]["old_state"], &event["payload"]["new_state"]);
    assert_eq!(states, (&json!("TODO"), &json!("IN_PROGRESS")));
    assert_eq!(event["payload"]["task_id"], task.as_str());
    assert_eq!(state(client, &task).await, "IN_PROGRESS");
    while fleet.prompts().is_empty() {
        tokio::task::yield_now().await;
    }
    fleet.finish();
    let event = sent(&mut socket).await;
    assert_eq!(event["payload"]["new_state"], "REVIEW", "a person is to look at it");
    let close: CloseRequest = serde_json::from_value(json!({"outcome": "failed"})).unwrap();
    client.close(&session, &close).await.unwrap();
    let event = sent(&mut socket).await;
    assert_eq!(event["payload"]["new_state"], "FAILED");
    // The same over server-sent events, between those of the session.
    let mut states = Vec::new();
    while states.len() < 4 {
        match events.next().await.unwrap() {
            IndexUpdate::Task(task) => states.push(json!(task.state)),
            IndexUpdate::TaskStateChanged(changed) => states.push(json!(changed.new_state)),
            _ => {}
        }
    }
    assert_eq!(states, ["TODO", "IN_PROGRESS", "REVIEW", "FAILED"]);
    // Who connects now is given the tasks as they are.
    let mut later = client.index_events();
    let IndexUpdate::Listing(listing) = later.next().await.unwrap() else { panic!("no listing") };
    assert_eq!((listing.sessions, listing.tasks), (1, 1));
    let IndexUpdate::Changed(_) = later.next().await.unwrap() else { panic!("no session") };
    let IndexUpdate::Task(listed) = later.next().await.unwrap() else { panic!("no task") };
    assert_eq!((listed.task_id, json!(listed.state)), (task, json!("FAILED")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_edited_closed_and_reopened() {
    let world = World::start().await;
    let client = &world.client;
    let task = task(client, "One").await;
    let session = session_of(client, &task).await;
    let mut socket = client.socket().await.unwrap();
    socket.call::<Value>("tasks.subscribe", &json!({})).await.unwrap();
    let path = format!("/api/v1/tasks/{task}");

    let keyed = client.with_idempotency_key("edit");
    let update = TaskUpdate { title: Some("Two".to_owned()), ..TaskUpdate::default() };
    keyed.update_task(&task, &update).await.unwrap();
    let event = sent(&mut socket).await;
    assert_eq!(
        (event["event"].as_str().unwrap(), &event["payload"]["title"]),
        ("task.updated", &json!("Two"))
    );
    let params = json!({"task_id": task, "title": "Three"});
    socket.call::<Value>("task.update", &params).await.unwrap();
    // Repeated under its key it changes nothing any more.
    keyed.update_task(&task, &update).await.unwrap();
    assert_eq!(client.task(&task).await.unwrap().title, "Three");
    let another = keyed.raw("PATCH", &path, r#"{"title": "Four"}"#).await.unwrap_err();
    assert_eq!(another.code(), Some(Code::IdempotencyKeyReused));

    client.raw("PATCH", &path, r#"{"closed": true, "outcome": "cancelled"}"#).await.unwrap();
    let Task { state, is_closed, .. } = client.task(&task).await.unwrap();
    assert_eq!((json!(state), is_closed), (json!("CANCELLED"), true));
    let new = json!({"task_id": task, "start": false});
    let refused = client.raw("POST", "/api/v1/sessions", &new.to_string()).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::TaskClosed));
    assert_eq!(client.session(&session).await.unwrap().summary.session_id, session, "it stays");
    client.raw("PATCH", &path, r#"{"closed": false}"#).await.unwrap();
    let Task { state, is_closed, .. } = client.task(&task).await.unwrap();
    assert_eq!((json!(state), is_closed), (json!("TODO"), false));

    for wrong in [
        "{}",
        r#"{"title": " "}"#,
        r#"{"outcome": "failed"}"#,
        r#"{"closed": false, "outcome": "failed"}"#,
        r#"{"closed": true, "outcome": "bored"}"#,
        r#"{"name": "x"}"#,
    ] {
        let refused = client.raw("PATCH", &path, wrong).await.unwrap_err();
        assert_eq!(refused.code(), Some(Code::RequestInvalid), "{wrong}");
    }
    let long = json!({"title": "x".repeat(2_000)}).to_string();
    let refused = client.raw("PATCH", &path, &long).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::RequestInvalid));
    let none = client.raw("PATCH", "/api/v1/tasks/task_none", r#"{"title": "x"}"#).await;
    assert_eq!(none.unwrap_err().code(), Some(Code::TaskNotFound));
    let reader = world.client_with(&[Scope::Read].into()).await;
    let refused = reader.raw("PATCH", &path, r#"{"title": "x"}"#).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::InsufficientScope));
}

/// Wants to show: a deletion does not take work away that is not closed, and never a session.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_deleted_when_its_sessions_are_closed_or_by_force() {
    let world = World::start().await;
    let client = &world.client;
    let (kept, forced) = (task(client, "Kept").await, task(client, "Forced").await);
    let session = session_of(client, &kept).await;
    let other = session_of(client, &forced).await;
    let controller = world.client_with(&[Scope::Control].into()).await;
    let query = TaskDeleteQuery::default();
    let refused = controller.delete_task(&kept, &query).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::InsufficientScope));
    let refused = client.delete_task(&kept, &query).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::TaskInUse));
    assert!(refused.to_string().contains(session.as_str()), "{refused}");
    let mut socket = client.socket().await.unwrap();
    socket.call::<Value>("tasks.subscribe", &json!({})).await.unwrap();
    client.close(&session, &CloseRequest::default()).await.unwrap();
    let event = sent(&mut socket).await;
    assert_eq!(event["payload"]["new_state"], "COMPLETED");
    let keyed = client.with_idempotency_key("delete");
    keyed.delete_task(&kept, &query).await.unwrap();
    keyed.delete_task(&kept, &query).await.unwrap();
    let event = sent(&mut socket).await;
    assert_eq!(
        (event["event"].as_str().unwrap(), &event["payload"]["task_id"]),
        ("task.deleted", &json!(kept))
    );
    let gone = client.delete_task(&kept, &query).await.unwrap_err();
    assert_eq!(gone.code(), Some(Code::TaskNotFound));
    client.delete_task(&forced, &TaskDeleteQuery { force: Some(true) }).await.unwrap();
    let gone = client.task(&forced).await.unwrap_err();
    assert_eq!(gone.code(), Some(Code::TaskNotFound));
    let status = client.session(&other).await.unwrap();
    assert_eq!(status.summary.task_id, Some(forced), "the session stays");
    socket.call::<Value>("tasks.unsubscribe", &json!({})).await.unwrap();
}

/// Wants to show: one socket can follow the whole list, so a page needs no stream of its own for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_socket_follows_sessions_and_tasks() {
    let (world, _fleet) = World::with_agents().await;
    let client = &world.client;
    let task = task(client, "One").await;
    let session = session_of(client, &task).await;
    let mut socket = client.socket().await.unwrap();
    let answer: Value = socket.call("tasks.subscribe", &json!({"sessions": true})).await.unwrap();
    assert_eq!(answer, json!({}));
    let mut names = Vec::new();
    for _ in 0..3 {
        let event = sent(&mut socket).await;
        names.push((
            event["event"].as_str().unwrap().to_owned(),
            event["payload"]["session_id"].clone(),
        ));
    }
    let none = Value::Null;
    assert_eq!(
        names,
        [
            ("listing".to_owned(), none.clone()),
            ("index".to_owned(), json!(session)),
            ("task".to_owned(), none)
        ]
    );
    assert_eq!(socket.call::<Value>("ping", &json!({})).await.unwrap(), json!({}));
    client.close(&session, &CloseRequest::default()).await.unwrap();
    loop {
        let event = sent(&mut socket).await;
        if event["event"] == "index" && event["payload"]["status"] == "completed" {
            break;
        }
    }
    let bad = socket.call::<Value>("tasks.subscribe", &json!({"sessions": 1})).await.unwrap_err();
    assert_eq!(bad.code(), Some(Code::RequestInvalid));
}
