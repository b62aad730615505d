//! Finishing a session's work: its branch reviewed, committed, merged, pushed.

use axum::Json;
use axum::extract::State;
use piton_api::problem::Problem as Document;
use piton_api::workspace::{
    CommitRequest, Committed, GitBranch, MergeRequest, MergeStrategy, Merged, PushRequest, Pushed,
};
use piton_core::id::SessionId;
use piton_runtime::{CommittedWork, MergedWork, PushedWork};
use piton_workspace::BranchReport;
use piton_workspace::finish::Strategy;

use super::Reply;
use crate::app::App;
use crate::extract::{Body, Controller, OptionalBody, Path, Reader};
use crate::problem::Result;

/// Compare the session's branch with its base branch.
#[utoipa::path(get, path = "/sessions/{session_id}/git/branch", operation_id = "git_branch", tag = "workspace",
    params(("session_id" = String, Path, description = "The session's id")),
    responses((status = 200, body = GitBranch),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn branch(
    State(app): State<App>,
    _reader: Reader,
    Path(session): Path<String>,
) -> Result<Json<GitBranch>> {
    let report = app.engine().branch(&SessionId::from_user(&session)?).await?;
    let BranchReport { branch, head, base, merge_base, ahead, behind, uncommitted, remotes } =
        report;
    Ok(Json(GitBranch { branch, head, base, merge_base, ahead, behind, uncommitted, remotes }))
}

/// Commit all changes in the session's folder, with the user's hooks and filters. If that fails,
/// the index is as it was.
#[utoipa::path(post, path = "/sessions/{session_id}/git/commit", operation_id = "git_commit", tag = "workspace", request_body = CommitRequest,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 200, body = Committed),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn commit(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    Body(request): Body<CommitRequest>,
) -> Result<Reply<Committed>> {
    let session = SessionId::from_user(&session)?;
    let done = app.engine().commit_work(&caller, &session, &request.message).await?;
    Ok(Reply::ok(done.map(|CommittedWork { session_id, commit }| Committed { session_id, commit })))
}

/// Merge the session's branch into another local branch. A conflict is `merge_conflict` and leaves
/// HEAD, index and files as they were.
#[utoipa::path(post, path = "/sessions/{session_id}/git/merge", operation_id = "git_merge", tag = "workspace", request_body = Option<MergeRequest>,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 200, body = Merged),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn merge(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    OptionalBody(request): OptionalBody<MergeRequest>,
) -> Result<Reply<Merged>> {
    let session = SessionId::from_user(&session)?;
    let MergeRequest { into, strategy, message } = request;
    let strategy = match strategy {
        MergeStrategy::Merge => Strategy::Merge,
        MergeStrategy::Squash => Strategy::Squash,
        MergeStrategy::Rebase => Strategy::Rebase,
    };
    let (into, message) = (into.as_deref(), message.as_deref());
    let done = app.engine().merge_work(&caller, &session, into, strategy, message).await?;
    Ok(Reply::ok(done.map(|done| {
        let MergedWork { session_id, into, commit, was_up_to_date } = done;
        Merged { session_id, into, commit, was_up_to_date }
    })))
}

/// Push the session's branch to a remote with the user's credentials. Commits of the remote are
/// never overwritten.
#[utoipa::path(post, path = "/sessions/{session_id}/git/push", operation_id = "git_push", tag = "workspace", request_body = Option<PushRequest>,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 200, body = Pushed),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn push(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    OptionalBody(request): OptionalBody<PushRequest>,
) -> Result<Reply<Pushed>> {
    let session = SessionId::from_user(&session)?;
    let done = app.engine().push_work(&caller, &session, request.remote.as_deref()).await?;
    Ok(Reply::ok(done.map(|PushedWork { session_id, remote, branch }| Pushed {
        session_id,
        remote,
        branch,
    })))
}
