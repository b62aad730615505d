//! Tasks: what somebody wants done.

use axum::Json;
use axum::extract::State;
use piton_api::problem::Problem as Document;
use piton_api::task::{NewTask, Task, TaskCreated, TaskPage, TaskQuery};
use piton_core::id::TaskId;
use piton_runtime::TaskReport;

use super::{Reply, status};
use crate::app::App;
use crate::extract::{Body, Controller, Params, Path, Reader};
use crate::problem::Result;

/// Makes a task.
#[utoipa::path(post, path = "/tasks", operation_id = "create_task", tag = "tasks", request_body = NewTask,
    params(("Idempotency-Key" = Option<String>, Header, description = "Asked again under the same key, it is made once")),
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

/// A page of tasks, newest first.
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

/// A task with its sessions.
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

fn view(report: TaskReport) -> Task {
    let TaskReport { task, state, sessions } = report;
    Task {
        task_id: task.task_id,
        title: task.title,
        created_at: task.created_at,
        state: state.into(),
        sessions: sessions.iter().map(status::summary).collect(),
    }
}
