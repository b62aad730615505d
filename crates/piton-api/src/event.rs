//! Events of the all-sessions stream (`GET /events`).

use piton_core::id::{SessionId, TaskId};
use serde::{Deserialize, Serialize};

/// The name of the server-sent event that carries a [`Listing`].
pub const LISTING: &str = "listing";
/// The name of the server-sent event that carries a [`SessionSummary`](crate::SessionSummary).
pub const INDEX: &str = "index";
/// The name of the server-sent event that carries a [`DeletedSession`].
pub const GONE: &str = "gone";

/// The name of the server-sent event that carries a [`TaskSummary`](crate::task::TaskSummary) of a
/// listing.
pub const TASK: &str = "task";
/// A task is new, or has another title: a [`TaskSummary`](crate::task::TaskSummary).
pub const TASK_UPDATED: &str = "task.updated";
/// A task's derived state is another one: a [`TaskStateChanged`](crate::task::TaskStateChanged).
pub const TASK_STATE_CHANGED: &str = "task.state_changed";
/// A task was deleted: a [`DeletedTask`].
pub const TASK_DELETED: &str = "task.deleted";

/// How many `index` events follow that replace all that was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Listing {
    pub sessions: usize,
    /// How many `task` events follow those.
    #[serde(default)]
    pub tasks: usize,
    /// There are more sessions than are listed.
    pub truncated: bool,
}

/// A session was deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeletedSession {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session_id: SessionId,
}

/// A task was deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeletedTask {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub task_id: TaskId,
}
