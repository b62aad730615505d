//! Sessions' worktrees: planned with the session, cleaned up, repaired. The runtime does it; here it
//! is only asked for and spelled.

use std::path::Path as FilePath;

use axum::Json;
use axum::extract::State;
use piton_api::problem::Problem as Document;
use piton_api::session::{NewSession, SessionDeleted};
use piton_api::worktree::{CleanupQuery, Worktree, WorktreeCleanup};
use piton_core::id::SessionId;
use piton_core::worktree::{Stage, WorktreePlan};
use piton_runtime::{Cleaned, Left};
use piton_workspace::worktree::Force;

use crate::app::App;
use crate::extract::{Asker, Controller, Params, Path};
use crate::problem::{Problem, Result};

/// The worktree that a new session is to have, if it names a repository.
pub(super) async fn plan(
    app: &App,
    session: &SessionId,
    new: &NewSession,
) -> Result<Option<WorktreePlan>> {
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
) -> Result<Json<SessionDeleted>> {
    let (plan, because) = match left {
        Left::Removed(cleaned) => (cleaned.plan, None),
        Left::Kept { plan, why } => {
            app.done(asker, "worktrees.leave", plan.path.clone()).await?;
            let problem = Problem::from(why);
            let detail = problem.detail.map_or_else(String::new, |detail| format!(": {detail}"));
            (plan, Some(format!("{}{detail}", problem.title)))
        }
    };
    Ok(Json(SessionDeleted {
        session_id: session.clone(),
        worktree_path: plan.path,
        worktree_branch: plan.branch,
        worktree_removed: because.is_none(),
        left_because: because,
    }))
}

/// Removes a session's worktree; its branch, too, if everything on it is elsewhere. Refused if
/// something would be lost, unless it is forced.
#[utoipa::path(delete, path = "/sessions/{session_id}/worktree", tag = "worktrees",
    params(("session_id" = String, Path, description = "The session's id"), CleanupQuery),
    responses((status = 200, body = WorktreeCleanup),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn clean_up(
    State(app): State<App>,
    Controller(asker): Controller,
    Path(session): Path<String>,
    Params(how): Params<CleanupQuery>,
) -> Result<Json<WorktreeCleanup>> {
    let session = SessionId::from_user(&session)?;
    let force = if how.force.unwrap_or(false) { Force::Yes } else { Force::No };
    let Cleaned { plan, kept_branch, changed } = app.worktrees().clean_up(&session, force).await?;
    if force == Force::Yes && changed {
        app.done(&asker, "worktrees.force", plan.path.clone()).await?;
    }
    Ok(Json(WorktreeCleanup {
        session_id: session.clone(),
        worktree_path: plan.path,
        worktree_branch: plan.branch,
        kept_branch,
        changed,
    }))
}

/// Makes a worktree again that was removed, from its branch; one that is there stays as it is.
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
    let plan = app.worktrees().repair(&session).await?.plan;
    Ok(Json(Worktree {
        session_id: session.clone(),
        worktree_path: plan.path,
        worktree_branch: plan.branch,
    }))
}
