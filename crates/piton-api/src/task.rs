//! Tasks: what is to be done, in any number of sessions.

use piton_core::Timestamp;
use piton_core::id::TaskId;
use serde::{Deserialize, Serialize};

use crate::enums::{RunOutcome, TaskState};
use crate::status::SessionSummary;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewTask {
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 1024))]
    pub title: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskCreated {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub task_id: TaskId,
}

/// Changes of a task; absent fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskUpdate {
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 1024))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// True closes the task, false reopens it. Its sessions stay as they are; a closed task takes no
    /// new ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<bool>,
    /// How the task ended, with `closed: true`; `completed` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RunOutcome>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskChanged {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub task_id: TaskId,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct TaskDeleteQuery {
    /// Also with sessions that are not closed: they stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
}

/// A task as a list of tasks has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskSummary {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub task_id: TaskId,
    pub title: String,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub created_at: Timestamp,
    /// Derived from its sessions, unless it is closed.
    pub state: TaskState,
    /// A user closed it.
    pub is_closed: bool,
}

/// A task's state is another one than before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskStateChanged {
    #[serde(flatten)]
    pub task: TaskSummary,
    pub old_state: TaskState,
    /// The same as `state`.
    pub new_state: TaskState,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Task {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub task_id: TaskId,
    pub title: String,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub created_at: Timestamp,
    /// Derived from its sessions, unless it is closed.
    pub state: TaskState,
    /// A user closed it.
    #[serde(default)]
    pub is_closed: bool,
    /// Its sessions, last active first.
    pub sessions: Vec<SessionSummary>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskPage {
    pub tasks: Vec<Task>,
    /// Where the next page begins; null on the last one.
    pub next: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct TaskQuery {
    /// Where the last page ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 200))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}
