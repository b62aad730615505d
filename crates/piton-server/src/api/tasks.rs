//! Tasks: what somebody wants done.

use axum::Json;
use axum::extract::State;
use piton_api::problem::Problem as Document;
use piton_api::task::{NewTask, Task, TaskCreated, TaskPage, TaskQuery};
use piton_core::decide::Refusal;
use piton_core::id::TaskId;
use piton_core::registry::{self, Command};
use piton_core::task;
use piton_core::{Code, Timestamp};

use super::{Reply, status};
use crate::app::{App, Asked, to_value};
use crate::extract::{Body, Controller, Params, Path, Reader};
use crate::problem::{Problem, Result};

const TITLE_BYTES_MAX: usize = 1_024;
const PAGE_MAX: usize = 200;
/// Sessions of one task that its state is derived from.
const SESSIONS_MAX: usize = 1_000;

/// Makes a task.
#[utoipa::path(post, path = "/tasks", operation_id = "create_task", tag = "tasks", request_body = NewTask,
    params(("Idempotency-Key" = Option<String>, Header, description = "Asked again under the same key, it is made once")),
    responses((status = 201, body = TaskCreated),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn create(
    State(app): State<App>,
    Controller(asker): Controller,
    Body(new): Body<NewTask>,
) -> Result<Reply<TaskCreated>> {
    if new.title.trim().is_empty() || new.title.len() > TITLE_BYTES_MAX {
        return Err(Problem::malformed(format!("A title has 1 to {TITLE_BYTES_MAX} bytes")));
    }
    let task_id = app.handle().ids().task()?;
    let request = Asked { asker: &asker, action: "tasks.create", body: to_value(&new)? };
    let made = TaskCreated { task_id: task_id.clone() };
    let command = Command::CreateTask { task_id, title: new.title };
    Ok(Reply::created(app.register(&request, true, made, command).await?))
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
    let limit = query.limit.unwrap_or(50);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(Problem::malformed(format!("limit is 1 to {PAGE_MAX}")));
    }
    let after: Option<TaskId> = query.after.map(|id| id.parse()).transpose()?;
    if let Some(after) = &after
        && app.metadata().read(|registry| !registry.tasks.contains_key(after))
    {
        return Err(Problem::new(Code::CursorInvalid, "This is no place in the list"));
    }
    let mut page: Vec<registry::Task> = app.metadata().read(|registry| {
        let older = match &after {
            Some(after) => registry.tasks.range(..after.clone()),
            None => registry.tasks.range(..),
        };
        older.rev().take(limit + 1).map(|(_, task)| task.clone()).collect()
    });
    let more = page.len() > limit;
    page.truncate(limit);
    let next = page.last().filter(|_| more).map(|task| task.task_id.to_string());
    let mut tasks = Vec::with_capacity(page.len());
    for task in page {
        tasks.push(view(&app, task).await?);
    }
    Ok(Json(TaskPage { tasks, next }))
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
    let task = find(&app, &task.parse()?)?;
    Ok(Json(view(&app, task).await?))
}

pub(crate) fn find(app: &App, task: &TaskId) -> Result<registry::Task> {
    let found = app.metadata().read(|registry| registry.tasks.get(task).cloned());
    Ok(found.ok_or_else(|| Refusal::TaskNotFound { task: task.clone() })?)
}

async fn view(app: &App, task: registry::Task) -> Result<Task> {
    let of_task = Some(task.task_id.clone());
    let (listed, more) = app.handle().list(of_task, None, None, SESSIONS_MAX).await?;
    if more.is_some() {
        let title = format!("Task {} has more than {SESSIONS_MAX} sessions", task.task_id);
        return Err(Problem::new(Code::LimitReached, title));
    }
    let states: Vec<(&_, Timestamp)> =
        listed.iter().map(|l| (&l.status, l.row.summary.info.active_at)).collect();
    let state = task::derive(states.iter().copied());
    Ok(Task {
        task_id: task.task_id,
        title: task.title,
        created_at: task.created_at,
        state: state.into(),
        sessions: listed.iter().map(status::summary).collect(),
    })
}
