//! Tasks: what somebody wants done, in any number of sessions.

use piton_core::Timestamp;
use piton_core::decide::Refusal;
use piton_core::id::TaskId;
use piton_core::registry::{Command, Task};
use piton_core::task::{self, TaskState};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::requests::Request;
use super::sessions::page_limit;
use super::{Caller, Engine, Fulfilled};
use crate::error::{Error, Result};
use crate::view::Listed;

const TITLE_BYTES_MAX: usize = 1_024;
/// Sessions of one task that its state is derived from.
const SESSIONS_MAX: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedTask {
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
        if title.trim().is_empty() || title.len() > TITLE_BYTES_MAX {
            return Err(Error::Invalid(format!("A title has 1 to {TITLE_BYTES_MAX} bytes")));
        }
        let request = Request::new(caller, "tasks.create", "", &json!({"title": title}))?;
        let task_id = self.ids().task()?;
        let created = CreatedTask { task_id: task_id.clone() };
        self.register(&request, created, Command::CreateTask { task_id, title }).await
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
        let of_task = Some(task.task_id.clone());
        let (sessions, more) = self.view().list(of_task, |_| true, None, SESSIONS_MAX).await?;
        if more.is_some() {
            return Err(Error::TaskTooLarge { task: task.task_id, max: SESSIONS_MAX });
        }
        let statuses: Vec<(&_, Timestamp)> =
            sessions.iter().map(|s| (&s.status, s.row.summary.info.active_at)).collect();
        let state = task::derive(statuses.iter().copied());
        Ok(TaskReport { task, state, sessions })
    }
}
