//! Sessions' worktrees: planned with the session, cleaned up, repaired. The runtime does it; here it
//! is only asked for and spelled.

use std::path::Path as FilePath;

use axum::Json;
use axum::extract::State;
use piton_core::id::SessionId;
use piton_core::worktree::{Plan, Stage};
use piton_runtime::{Cleaned, Left};
use piton_workspace::worktree::Force;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::sessions::NewSession;
use crate::app::App;
use crate::extract::{Asker, Controller, Params, Path};
use crate::problem::{Document, Problem, Result};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct CleaningUp {
    /// Also what is nowhere else, and whatever is still at work in it.
    force: Option<bool>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CleanedUp {
    session_id: String,
    /// The folder that is gone.
    worktree_path: String,
    worktree_branch: String,
    /// The branch is still in the repository.
    kept_branch: bool,
    /// It was not so before.
    changed: bool,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WorktreeView {
    session_id: String,
    worktree_path: String,
    worktree_branch: String,
}

/// What became of a deleted session's worktree.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Deleted {
    session_id: String,
    worktree_path: String,
    worktree_branch: String,
    /// It was clean and is gone; else it is where it was, and no session knows of it any more.
    worktree_removed: bool,
    /// Why it was left.
    left_because: Option<String>,
}

/// The worktree that a new session is to have, if it names a repository.
pub(super) async fn plan(app: &App, session: &SessionId, new: &NewSession) -> Result<Option<Plan>> {
    let Some(repo) = &new.repo else {
        return match new.base {
            Some(_) => Err(Problem::malformed("base needs repo beside it")),
            None => Ok(None),
        };
    };
    if new.working_dir.is_some() {
        return Err(Problem::malformed("A session has a working_dir or a repo, not both"));
    }
    // Of a repetition the plan is in the log.
    if let Ok(state) = app.handle().state(session).await
        && let Some(known) = state.facts.worktree
    {
        return Ok(Some(known.plan));
    }
    let repo = FilePath::new(repo);
    Ok(Some(app.worktrees().plan(session, repo, new.base.as_deref()).await?))
}

/// Also after a repetition: the first request may have been cut off before it. The session is made
/// whatever comes of it: who asks is told which one it is.
pub(super) async fn prepare(app: &App, session: &SessionId) -> Result<()> {
    let worktree = app.handle().state(session).await?.facts.worktree;
    if worktree.is_none_or(|worktree| worktree.stage != Stage::Planned) {
        return Ok(());
    }
    let prepared = app.worktrees().ready(session).await;
    prepared.map(drop).map_err(|error| {
        let problem = Problem::from(error);
        let detail = problem.detail.iter().map(|detail| format!("{detail}; "));
        let made = format!("session {session} is made, and tries it again when it is resumed");
        let detail = detail.chain([made]).collect::<String>();
        problem.with_detail(detail)
    })
}

/// Says what became of the worktree of a session that is no more, also to those who come later.
pub(super) async fn left(
    app: &App,
    asker: &Asker,
    session: &SessionId,
    left: Left,
) -> Result<Json<Deleted>> {
    let (plan, because) = match left {
        Left::Removed(cleaned) => (cleaned.plan, None),
        Left::Kept { plan, why } => {
            app.done(asker, "worktrees.leave", plan.path.clone()).await?;
            let problem = Problem::from(why);
            let detail = problem.detail.map_or_else(String::new, |detail| format!(": {detail}"));
            (plan, Some(format!("{}{detail}", problem.title)))
        }
    };
    Ok(Json(Deleted {
        session_id: session.to_string(),
        worktree_path: plan.path,
        worktree_branch: plan.branch,
        worktree_removed: because.is_none(),
        left_because: because,
    }))
}

/// Removes a session's worktree; its branch, too, if everything on it is elsewhere. Refused if
/// something would be lost, unless it is forced.
#[utoipa::path(delete, path = "/sessions/{session_id}/worktree", tag = "worktrees",
    params(("session_id" = String, Path, description = "The session's id"), CleaningUp),
    responses((status = 200, body = CleanedUp),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn clean_up(
    State(app): State<App>,
    Controller(asker): Controller,
    Path(session): Path<String>,
    Params(how): Params<CleaningUp>,
) -> Result<Json<CleanedUp>> {
    let session = SessionId::from_user(&session)?;
    let force = if how.force.unwrap_or(false) { Force::Yes } else { Force::No };
    let Cleaned { plan, kept_branch, changed } = app.worktrees().clean_up(&session, force).await?;
    if force == Force::Yes && changed {
        app.done(&asker, "worktrees.force", plan.path.clone()).await?;
    }
    Ok(Json(CleanedUp {
        session_id: session.to_string(),
        worktree_path: plan.path,
        worktree_branch: plan.branch,
        kept_branch,
        changed,
    }))
}

/// Makes a worktree again that was removed, from its branch; one that is there stays as it is.
#[utoipa::path(post, path = "/sessions/{session_id}/worktree", tag = "worktrees",
    params(("session_id" = String, Path, description = "The session's id")),
    responses((status = 200, body = WorktreeView),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn repair(
    State(app): State<App>,
    _controller: Controller,
    Path(session): Path<String>,
) -> Result<Json<WorktreeView>> {
    let session = SessionId::from_user(&session)?;
    let plan = app.worktrees().repair(&session).await?.plan;
    Ok(Json(WorktreeView {
        session_id: session.to_string(),
        worktree_path: plan.path,
        worktree_branch: plan.branch,
    }))
}
