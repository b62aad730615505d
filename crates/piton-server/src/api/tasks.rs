//! The endpoints of tasks.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use piton_api::WireEnum;
use piton_api::problem::Problem as Document;
use piton_api::task::{
    NewTask, Task, TaskChanged, TaskCreated, TaskDeleteQuery, TaskPage, TaskQuery, TaskSummary,
    TaskUpdate,
};
use piton_core::event::Outcome;
use piton_core::id::TaskId;
use piton_core::registry::{TaskChange, TaskLifecycle};
use piton_runtime::{Caller, Fulfilled, TaskReport, broadcast};

use super::{Reply, status};
use crate::app::App;
use crate::extract::{Administrator, Body, Controller, Params, Path, Reader};
use crate::problem::{Problem, Result};

/// Create a task.
#[utoipa::path(post, path = "/tasks", operation_id = "create_task", tag = "tasks", request_body = NewTask,
    params(("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 201, body = TaskCreated),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn create(
    State(app): State<App>,
    Controller(caller): Controller,
    Body(new): Body<NewTask>,
) -> Result<Reply<TaskCreated>> {
    let created = app.engine().create_task(&caller, new.title).await?;
    Ok(Reply::created(created.map(|created| TaskCreated { task_id: created.task_id })))
}

/// List tasks, newest first.
#[utoipa::path(get, path = "/tasks", operation_id = "list_tasks", tag = "tasks", params(TaskQuery),
    responses((status = 200, body = TaskPage),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(app): State<App>,
    _reader: Reader,
    Params(query): Params<TaskQuery>,
) -> Result<Json<TaskPage>> {
    let after: Option<TaskId> = query.after.map(|id| id.parse()).transpose()?;
    let page = app.engine().tasks(after.as_ref(), query.limit).await?;
    let next = page.next.as_ref().map(ToString::to_string);
    Ok(Json(TaskPage { tasks: page.tasks.into_iter().map(view).collect(), next }))
}

/// Get a task with its sessions.
#[utoipa::path(get, path = "/tasks/{task_id}", operation_id = "show_task", tag = "tasks",
    params(("task_id" = String, Path, description = "The task's id")),
    responses((status = 200, body = Task),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn show(
    State(app): State<App>,
    _reader: Reader,
    Path(task): Path<String>,
) -> Result<Json<Task>> {
    Ok(Json(view(app.engine().task(&task.parse()?).await?)))
}

/// Rename, close or reopen a task.
///
/// A closed task's state is its outcome, whatever its sessions do; they stay as they are, and new ones
/// are refused. A reopened task's state follows from its sessions again.
#[utoipa::path(patch, path = "/tasks/{task_id}", operation_id = "update_task", tag = "tasks", request_body = TaskUpdate,
    params(("task_id" = String, Path, description = "The task's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 200, body = TaskChanged),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn update(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(task): Path<String>,
    Body(update): Body<TaskUpdate>,
) -> Result<Reply<TaskChanged>> {
    Ok(Reply::ok(update_now(&app, &caller, &task, update).await?))
}

pub(crate) async fn update_now(
    app: &App,
    caller: &Caller,
    task: &str,
    update: TaskUpdate,
) -> Result<Fulfilled<TaskChanged>> {
    let lifecycle = match (update.closed, update.outcome) {
        (Some(true), None) => Some(TaskLifecycle::Closed(Outcome::Completed)),
        (Some(true), Some(WireEnum::Known(outcome))) => Some(TaskLifecycle::Closed(outcome)),
        (Some(true), Some(WireEnum::Other(_))) => {
            return Err(Problem::malformed("outcome is completed, failed or cancelled"));
        }
        (_, Some(_)) => return Err(Problem::malformed("outcome needs closed: true beside it")),
        (Some(false), None) => Some(TaskLifecycle::Open),
        (None, None) => None,
    };
    if update.title.is_none() && lifecycle.is_none() {
        return Err(Problem::malformed("Name what is to change: title or closed"));
    }
    let change = TaskChange { title: update.title, lifecycle };
    let changed = app.engine().change_task(caller, &task.parse()?, change).await?;
    Ok(changed.map(|changed| TaskChanged { task_id: changed.task_id }))
}

/// Delete a task. Its sessions stay. Refused while a session is open, unless forced.
#[utoipa::path(delete, path = "/tasks/{task_id}", operation_id = "delete_task", tag = "tasks",
    params(("task_id" = String, Path, description = "The task's id"), TaskDeleteQuery,
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 204),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn delete(
    State(app): State<App>,
    Administrator(caller): Administrator,
    Path(task): Path<String>,
    Params(deleting): Params<TaskDeleteQuery>,
) -> Result<StatusCode> {
    let forced = deleting.force.unwrap_or(false);
    app.engine().delete_task(&caller, &task.parse()?, forced).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A task as events have it.
pub(crate) fn summary(summary: &broadcast::TaskSummary) -> TaskSummary {
    let broadcast::TaskSummary { task, state } = summary;
    TaskSummary {
        task_id: task.task_id.clone(),
        title: task.title.clone(),
        created_at: task.created_at,
        state: (*state).into(),
        is_closed: task.closed.is_some(),
    }
}

pub(crate) fn view(report: TaskReport) -> Task {
    let TaskReport { task, state, sessions } = report;
    Task {
        task_id: task.task_id,
        title: task.title,
        created_at: task.created_at,
        state: state.into(),
        is_closed: task.closed.is_some(),
        sessions: sessions.iter().map(status::summary).collect(),
    }
}
