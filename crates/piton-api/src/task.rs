//! Tasks: what is to be done, in any number of sessions.

use piton_core::Timestamp;
use piton_core::id::TaskId;
use serde::{Deserialize, Serialize};

use crate::enums::TaskState;
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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Task {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub task_id: TaskId,
    pub title: String,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub created_at: Timestamp,
    /// Derived from its sessions.
    pub state: TaskState,
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
