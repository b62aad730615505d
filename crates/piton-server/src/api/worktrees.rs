//! Sessions' worktrees: planned with the session, cleaned up, repaired. The runtime does it; here it
//! is only asked for and spelled.

use axum::Json;
use axum::extract::State;
use piton_api::problem::Problem as Document;
use piton_api::session::SessionDeleted;
use piton_api::worktree::{CleanupQuery, Worktree, WorktreeCleanup};
use piton_core::id::SessionId;
use piton_runtime::{CleanupResult, WorktreeRemoval};
use piton_workspace::worktree::Force;

use crate::app::App;
use crate::extract::{Controller, Params, Path};
use crate::problem::{Problem, Result};

/// Spells what became of a deleted session's worktree.
pub(super) fn left(session: &SessionId, left: WorktreeRemoval) -> SessionDeleted {
    let (plan, because) = match left {
        WorktreeRemoval::Removed(cleaned) => (cleaned.plan, None),
        WorktreeRemoval::Kept { plan, why } => {
            let problem = Problem::from(why);
            let detail = problem.detail.map_or_else(String::new, |detail| format!(": {detail}"));
            (plan, Some(format!("{}{detail}", problem.title)))
        }
    };
    SessionDeleted {
        session_id: session.clone(),
        worktree_path: plan.path,
        worktree_branch: plan.branch,
        worktree_removed: because.is_none(),
        left_because: because,
    }
}

/// Remove a session's worktree, and its branch if every commit of it is elsewhere. Refused if
/// something would be lost, unless forced.
#[utoipa::path(delete, path = "/sessions/{session_id}/worktree", tag = "worktrees",
    params(("session_id" = String, Path, description = "The session's id"), CleanupQuery),
    responses((status = 200, body = WorktreeCleanup),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn clean_up(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    Params(how): Params<CleanupQuery>,
) -> Result<Json<WorktreeCleanup>> {
    let session = SessionId::from_user(&session)?;
    let force = if how.force.unwrap_or(false) { Force::Yes } else { Force::No };
    let cleaned = app.engine().clean_up_worktree(&caller, &session, force).await?;
    let CleanupResult { plan, kept_branch, changed } = cleaned;
    Ok(Json(WorktreeCleanup {
        session_id: session.clone(),
        worktree_path: plan.path,
        worktree_branch: plan.branch,
        kept_branch,
        changed,
    }))
}

/// Recreate a removed worktree from its branch; an existing one stays as it is.
#[utoipa::path(post, path = "/sessions/{session_id}/worktree", tag = "worktrees",
    params(("session_id" = String, Path, description = "The session's id")),
    responses((status = 200, body = Worktree),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn repair(
    State(app): State<App>,
    _controller: Controller,
    Path(session): Path<String>,
) -> Result<Json<Worktree>> {
    let session = SessionId::from_user(&session)?;
    let plan = app.engine().repair_worktree(&session).await?;
    Ok(Json(Worktree {
        session_id: session.clone(),
        worktree_path: plan.path,
        worktree_branch: plan.branch,
    }))
}
