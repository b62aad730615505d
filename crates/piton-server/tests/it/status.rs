//! One spelling of a session's status, wherever it is asked for.

use piton_api::client::IndexUpdate;
use piton_api::queue::PromptRequest;
use piton_api::session::{NewSession, RenameRequest, SessionQuery};
use piton_api::task::NewTask;
use piton_core::Reason;
use piton_core::event::{
    AgentError, ExecutorError, ExecutorReady, ExecutorStarting, ExecutorUnreachable,
};
use piton_core::id::{ExecutionId, SessionId};
use piton_core::resume::Context;
use piton_core::state::ExecutorStatus;
use serde_json::{Value, json};

use crate::world::World;

fn execution(id: &str) -> ExecutionId {
    id.parse().unwrap()
}

async fn session(world: &World, task: Option<String>) -> SessionId {
    let new = NewSession {
        title: Some("A title".to_owned()),
        task_id: task,
        start: Some(false),
        working_dir: Some("/".to_owned()),
        ..NewSession::default()
    };
    world.client.create_session(&new).await.unwrap().session_id
}

async fn launched(world: &World, session: &SessionId) {
    let (execution_id, runtime) = (execution("exec_1"), "scripted".to_owned());
    world.observe(session, ExecutorStarting { execution_id, runtime }, None).await;
    let execution_id = execution("exec_1");
    world.observe(session, ExecutorReady { execution_id }, None).await;
}

/// What a status says, without what changes with each look.
fn without_live(mut status: Value) -> Value {
    status.as_object_mut().unwrap().remove("live").unwrap();
    status
}

/// Wants to show: HTTP, WebSocket, lists and the index of sessions say the same under the same names.
#[tokio::test(flavor = "multi_thread")]
async fn a_status_is_spelled_one_way() {
    let world = World::start().await;
    let task = world.client.create_task(&NewTask { title: "T".to_owned() }).await.unwrap();
    let id = session(&world, Some(task.task_id.to_string())).await;
    launched(&world, &id).await;
    let (execution_id, reason) = (execution("exec_1"), Some(Reason::WorkspaceMissing));
    let error = ExecutorError { execution_id, reason, code: Some("executor_io".into()) };
    world.observe(&id, error, Some("no such folder")).await;

    let shown = serde_json::to_value(world.client.session(&id).await.unwrap()).unwrap();
    let mut socket = world.client.socket().await.unwrap();
    let params = json!({"session_id": id, "task_id": task.task_id});
    let answered: Value = socket.call("task.session.status", &params).await.unwrap();
    let shown = without_live(shown);
    assert_eq!(shown, without_live(answered));

    let listed = world.client.sessions(&SessionQuery::default()).await.unwrap();
    let listed = serde_json::to_value(&listed.sessions[0]).unwrap();
    let of_task = world.client.task(&task.task_id).await.unwrap();
    assert_eq!(listed, serde_json::to_value(&of_task.sessions[0]).unwrap());
    let mut index = world.client.index_events();
    let indexed = loop {
        if let IndexUpdate::Changed(summary) = index.next().await.unwrap() {
            break serde_json::to_value(summary).unwrap();
        }
    };
    assert_eq!(listed, indexed);
    for (name, value) in listed.as_object().unwrap() {
        assert_eq!(shown.get(name), Some(value), "{name}");
    }
    // What clients of session managers ask for, by the names that they know.
    for name in [
        "session_id",
        "task_id",
        "state",
        "agent_profile_id",
        "executor_status",
        "executor_id",
        "agent_execution_id",
        "runtime",
        "is_agent_running",
        "is_resumable",
        "needs_resume",
        "resume_reason",
        "worktree_id",
        "worktree_path",
        "worktree_branch",
        "working_dir",
        "provider",
        "error_message",
        "created_at",
        "active_at",
        "status",
        "reason",
        "last_seq",
        "run",
        "interruption",
        "wait",
        "waits",
        "context",
        "context_restored",
        "resume_strategy",
    ] {
        assert!(shown.get(name).is_some(), "{name} is missing");
    }
    assert_eq!(shown["state"], "ERROR");
    assert_eq!(shown["error_message"], "no such folder");
    assert_eq!(shown["error_code"], "executor_io");
    assert_eq!(shown["executor"]["error_message"], "no such folder");
}

/// Wants to show: a session of another task is not found, over the WebSocket as everywhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_names_another_task_finds_no_session() {
    let world = World::start().await;
    let task = |title: &str| NewTask { title: title.to_owned() };
    let one = world.client.create_task(&task("one")).await.unwrap().task_id;
    let other = world.client.create_task(&task("other")).await.unwrap().task_id;
    let id = session(&world, Some(one.to_string())).await;
    let mut socket = world.client.socket().await.unwrap();
    for (method, good) in [
        ("task.session.status", true),
        ("task.session.close", true),
        ("session.subscribe", true),
        ("session.unsubscribe", true),
    ] {
        let wrong = json!({"session_id": id, "task_id": other});
        let refused = socket.call::<Value>(method, &wrong).await.unwrap_err();
        assert_eq!(refused.code(), Some(piton_core::Code::SessionNotFound), "{method}");
        let right = json!({"session_id": id, "task_id": one});
        assert_eq!(socket.call::<Value>(method, &right).await.is_ok(), good, "{method}");
    }
}

/// Wants to show: an executor that does not respond is in error with its cause, and nothing is said to
/// run; its list says so, too.
#[tokio::test(flavor = "multi_thread")]
async fn an_executor_that_does_not_respond_is_an_error_with_a_cause() {
    let world = World::start().await;
    let id = session(&world, None).await;
    launched(&world, &id).await;
    let ready = world.client.session(&id).await.unwrap();
    assert_eq!(ready.summary.executor_status, Some(ExecutorStatus::Ready.into()));
    let (execution_id, code) = (execution("exec_1"), Some("agentctl_unreachable".into()));
    let unreachable = ExecutorUnreachable { execution_id, code };
    world.observe(&id, unreachable, Some("the network is away")).await;
    let status = world.client.session(&id).await.unwrap();
    assert_eq!(status.summary.executor_status, Some(ExecutorStatus::Error.into()));
    assert_eq!(status.summary.reason, Reason::ExecutorUnreachable);
    assert_eq!(status.resume_reason, Some(Reason::ExecutorUnreachable.into()));
    assert_eq!(status.error_message.as_deref(), Some("the network is away"));
    assert!(!status.is_agent_running && !status.needs_resume);
    let executors = world.client.executors().await.unwrap();
    let [one] = executors.executions.as_slice() else { panic!("{executors:?}") };
    assert_eq!(one.status, ExecutorStatus::Error);
    assert_eq!(one.error_message.as_deref(), Some("the network is away"));
    assert_eq!(one.workspace.as_deref(), Some("/"));
}

/// Wants to show: executors that failed stay in the list, with the cause.
#[tokio::test(flavor = "multi_thread")]
async fn executors_in_error_are_listed() {
    let world = World::start().await;
    let id = session(&world, None).await;
    launched(&world, &id).await;
    let execution_id = execution("exec_1");
    let failed =
        AgentError { execution_id, code: Some("agent_missing".into()), auth_methods: Vec::new() };
    world.observe(&id, failed, Some("There is no program")).await;
    let status = world.client.session(&id).await.unwrap();
    assert_eq!(status.error_message.as_deref(), Some("There is no program"));
    assert_eq!(status.context.and_then(|context| context.known()), None::<Context>);
    let (execution_id, reason) = (execution("exec_1"), None);
    let error = ExecutorError { execution_id, reason, code: None };
    world.observe(&id, error, Some("the machine is gone")).await;
    let executors = world.client.executors().await.unwrap();
    let messages: Vec<_> = executors.executions.iter().map(|e| e.error_message.clone()).collect();
    assert_eq!(messages, [Some("the machine is gone".to_owned())]);
}

/// Wants to show: a session without a title shows the beginning of its first prompt wherever it is listed,
/// until that is redacted; a title that a user gives counts for more.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_a_title_is_called_after_its_first_prompt() {
    let (world, _fleet) = World::with_agents().await;
    let client = &world.client;
    let new = NewSession::default();
    let session = client.create_session(&new).await.unwrap().session_id;
    let titles = async || {
        let shown = client.session(&session).await.unwrap().summary.title;
        let page = client.sessions(&SessionQuery::default()).await.unwrap();
        assert_eq!(page.sessions[0].title, shown, "the list shows the same");
        shown
    };
    assert_eq!(titles().await, None);
    client.prompt(&session, &PromptRequest::new("hello there\nand more")).await.unwrap();
    world.wait_for_record(&session, |record| record["kind"] == "run.completed").await;
    assert_eq!(titles().await.as_deref(), Some("hello there"));
    let path = format!("/api/v1/sessions/{session}/redact");
    client.raw("POST", &path, r#"{"value": "hello there"}"#).await.unwrap();
    assert_eq!(titles().await, None, "what was redacted is in no list");
    let rename = RenameRequest { title: Some("Named".to_owned()) };
    client.rename_session(&session, &rename).await.unwrap();
    assert_eq!(titles().await.as_deref(), Some("Named"));
}
