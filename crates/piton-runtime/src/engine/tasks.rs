//! Tasks: a goal of the user, worked on in any number of sessions.

use piton_core::decide::Refusal;
use piton_core::id::{SessionId, TaskId};
use piton_core::registry::{Command, Task, TaskChange};
use piton_core::task::{self, TaskState};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::requests::Request;
use super::sessions::page_limit;
use super::{Caller, Engine, Fulfilled};
use crate::error::{Error, Result};
use crate::view::{Listed, TASK_SESSIONS_MAX};

const TITLE_BYTES_MAX: usize = 1_024;
/// Open sessions that a refusal names.
const NAMED_MAX: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedTask {
    pub task_id: TaskId,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedTask {
    pub task_id: TaskId,
}

/// A task, its derived state, and its sessions, last active first.
#[derive(Clone, Debug)]
pub struct TaskReport {
    pub task: Task,
    pub state: TaskState,
    pub sessions: Vec<Listed>,
}

#[derive(Clone, Debug)]
pub struct TaskPage {
    pub tasks: Vec<TaskReport>,
    /// Where the next page begins; `None` on the last one.
    pub next: Option<TaskId>,
}

impl Engine {
    pub async fn create_task(
        &self,
        caller: &Caller,
        title: String,
    ) -> Result<Fulfilled<CreatedTask>> {
        check_title(&title)?;
        let request = Request::new(caller, "tasks.create", "", &json!({"title": title}))?;
        let task_id = self.ids().task()?;
        let created = CreatedTask { task_id: task_id.clone() };
        self.register(&request, created, Command::CreateTask { task_id, title }).await
    }

    /// Gives a task another title, closes it with an outcome, or reopens it. What is so already is
    /// written once.
    pub async fn change_task(
        &self,
        caller: &Caller,
        task: &TaskId,
        change: TaskChange,
    ) -> Result<Fulfilled<ChangedTask>> {
        if let Some(title) = &change.title {
            check_title(title)?;
        }
        let request = Request::new(caller, "tasks.change", task, &change)?;
        let changed = ChangedTask { task_id: task.clone() };
        let command = Command::ChangeTask { task_id: task.clone(), change };
        self.register(&request, changed, command).await
    }

    /// Deletes a task. Its sessions stay as they are; while some of them are not closed the task is
    /// kept, unless it is forced.
    pub async fn delete_task(
        &self,
        caller: &Caller,
        task: &TaskId,
        forced: bool,
    ) -> Result<Fulfilled<ChangedTask>> {
        let request = Request::new(caller, "tasks.delete", task, &json!({"force": forced}))?;
        let metadata = self.metadata().await?;
        let requests = metadata.read(|known| known.requests.clone());
        let log = SessionId::metadata_log();
        if let Some(replayed) = self.find_replay(&log, &requests, &request).await? {
            return Ok(replayed);
        }
        self.find_task(task).await?;
        let (sessions, _) = self.view().list_task(task).await?;
        let open = sessions.iter().filter(|one| one.row.summary.facts.closed.is_none());
        let open: Vec<&str> = open.map(|one| one.row.session.as_str()).collect();
        if !forced && !open.is_empty() {
            let mut sessions = open[..open.len().min(NAMED_MAX)].join(", ");
            if open.len() > NAMED_MAX {
                sessions = format!("{sessions} and {} more", open.len() - NAMED_MAX);
            }
            return Err(Refusal::TaskInUse { task: task.clone(), sessions }.into());
        }
        let deleted = ChangedTask { task_id: task.clone() };
        self.register(&request, deleted, Command::DeleteTask { task_id: task.clone() }).await
    }

    /// A page of tasks, newest first. `limit`: 50 by default.
    pub async fn tasks(&self, after: Option<&TaskId>, limit: Option<usize>) -> Result<TaskPage> {
        let limit = page_limit(limit)?;
        let metadata = self.metadata().await?;
        let page = metadata.read(|known| {
            let older = match after {
                Some(after) if !known.tasks.contains_key(after) => return None,
                Some(after) => known.tasks.range(..after.clone()),
                None => known.tasks.range(..),
            };
            Some(older.rev().take(limit + 1).map(|(_, task)| task.clone()).collect::<Vec<_>>())
        });
        let mut page = page.ok_or(Error::CursorInvalid)?;
        let more = page.len() > limit;
        page.truncate(limit);
        let next = page.last().filter(|_| more).map(|task| task.task_id.clone());
        let mut tasks = Vec::with_capacity(page.len());
        for task in page {
            tasks.push(self.report_task(task).await?);
        }
        Ok(TaskPage { tasks, next })
    }

    /// A task with its sessions.
    pub async fn task(&self, task: &TaskId) -> Result<TaskReport> {
        let task = self.find_task(task).await?;
        self.report_task(task).await
    }

    pub(super) async fn find_task(&self, task: &TaskId) -> Result<Task> {
        let found = self.metadata().await?.read(|known| known.tasks.get(task).cloned());
        Ok(found.ok_or_else(|| Refusal::TaskNotFound { task: task.clone() })?)
    }

    async fn report_task(&self, task: Task) -> Result<TaskReport> {
        let (sessions, is_truncated) = self.view().list_task(&task.task_id).await?;
        if is_truncated {
            return Err(Error::TaskTooLarge { task: task.task_id, max: TASK_SESSIONS_MAX });
        }
        let state = derive_task_state(&task, &sessions);
        Ok(TaskReport { task, state, sessions })
    }
}

fn check_title(title: &str) -> Result<()> {
    if title.trim().is_empty() || title.len() > TITLE_BYTES_MAX {
        return Err(Error::Invalid(format!("A title has 1 to {TITLE_BYTES_MAX} bytes")));
    }
    Ok(())
}

/// A task's state: what its user said when closing it, else what follows from its sessions.
pub(crate) fn derive_task_state(task: &Task, sessions: &[Listed]) -> TaskState {
    if let Some(outcome) = task.closed {
        return outcome.into();
    }
    task::derive(sessions.iter().map(|one| {
        let summary = &one.row.summary;
        (task::activity(&summary.facts, &one.status), summary.info.active_at)
    }))
}
