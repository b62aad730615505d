//! A session's workspace: files, git, shells. Asked of the agentctl beside it, which keeps paths
//! inside; none of it waits for an agent, and none of it is in the log.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use piton_api::enums::Kind;
use piton_api::problem::Problem as Document;
use piton_api::workspace::{
    DiffQuery, DiffStat, FileEntry, FileList, FileQuery, FolderQuery, GitChange, GitCommit,
    GitDiff, GitLog, GitStatus, LogQuery, NewShell as NewShellRequest, Shell, ShellInfo, ShellList,
    WorkspaceTruth,
};
use piton_core::id::SessionId;
use piton_exec::client::Client;
use piton_exec::protocol::workspace::{LOG_MAX, Listed, ListedKind, TruthRequest};

use super::Reply;
use crate::app::App;
use crate::extract::{Content, Controller, OptionalBody, Params, Path, Reader};
use crate::problem::{Problem, Result};

/// List a folder of the workspace.
#[utoipa::path(get, path = "/sessions/{session_id}/files", tag = "workspace",
    params(("session_id" = String, Path, description = "The session's id"), FolderQuery),
    responses((status = 200, body = FileList),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn list_files(
    State(app): State<App>,
    _reader: Reader,
    Path(session): Path<String>,
    Params(folder): Params<FolderQuery>,
) -> Result<Json<FileList>> {
    let client = app.engine().workspace_reader(&SessionId::from_user(&session)?).await?;
    let listing = client.list(folder.path.as_deref().unwrap_or(".")).await?;
    let view = |Listed { name, kind, bytes }| {
        let kind = match kind {
            ListedKind::Folder => Kind::Folder,
            ListedKind::File => Kind::File,
            ListedKind::Link => Kind::Link,
            ListedKind::Other => Kind::Other,
        };
        FileEntry { name, kind: kind.into(), bytes }
    };
    let files = listing.entries.into_iter().map(view).collect();
    Ok(Json(FileList { files, truncated: listing.truncated }))
}

/// Read a file of the workspace, byte for byte; at most 8 MiB.
#[utoipa::path(get, path = "/sessions/{session_id}/files/content", tag = "workspace",
    params(("session_id" = String, Path, description = "The session's id"), FileQuery),
    responses((status = 200, body = String, content_type = "application/octet-stream"),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn read_file(
    State(app): State<App>,
    _reader: Reader,
    Path(session): Path<String>,
    Params(file): Params<FileQuery>,
) -> Result<Response> {
    let client = app.engine().workspace_reader(&SessionId::from_user(&session)?).await?;
    let bytes = client.read_file(&file.path).await?;
    // Whatever is in it: a browser must not take it for a page of ours.
    let kind = HeaderValue::from_static("application/octet-stream");
    Ok(([(header::CONTENT_TYPE, kind)], bytes).into_response())
}

/// Write a file of the workspace, and create the folders above it; at most 8 MiB.
#[utoipa::path(put, path = "/sessions/{session_id}/files/content", tag = "workspace",
    request_body(content = String, content_type = "application/octet-stream"),
    params(("session_id" = String, Path, description = "The session's id"), FileQuery),
    responses((status = 204),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn write_file(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    Params(file): Params<FileQuery>,
    Content(content): Content,
) -> Result<StatusCode> {
    let session = SessionId::from_user(&session)?;
    app.engine().write_file(&caller, &session, &file.path, content).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Get the git status of the workspace.
#[utoipa::path(get, path = "/sessions/{session_id}/git/status", tag = "workspace",
    params(("session_id" = String, Path, description = "The session's id")),
    responses((status = 200, body = GitStatus),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn git_status(
    State(app): State<App>,
    _reader: Reader,
    Path(session): Path<String>,
) -> Result<Json<GitStatus>> {
    let client = app.engine().workspace_reader(&SessionId::from_user(&session)?).await?;
    let status = client.git_status().await?;
    let changed = status.changed.into_iter();
    Ok(Json(GitStatus {
        repository: status.repository,
        branch: status.branch,
        head: status.head,
        changed: changed.map(|c| GitChange { status: c.status, path: c.path }).collect(),
        truncated: status.truncated,
    }))
}

/// Get HEAD, branch and changes of the workspace, as the interruption summary has them.
///
/// One question, answered in at most two seconds: what git could not list or count by then is left out,
/// and `truncated` says so.
#[utoipa::path(get, path = "/sessions/{session_id}/workspace/truth", tag = "workspace",
    params(("session_id" = String, Path, description = "The session's id")),
    responses((status = 200, body = WorkspaceTruth),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn workspace_truth(
    State(app): State<App>,
    _reader: Reader,
    Path(session): Path<String>,
) -> Result<Json<WorkspaceTruth>> {
    let client = app.engine().workspace_reader(&SessionId::from_user(&session)?).await?;
    let files_max = Some(app.handle().settings().limits.changed_files);
    let request = TruthRequest { files_max, ..TruthRequest::default() };
    let truth = client.truth(&request).await?;
    let changed = truth.changed.into_iter();
    Ok(Json(WorkspaceTruth {
        repository: truth.repository,
        branch: truth.branch,
        head: truth.head,
        changed: changed.map(|c| GitChange { status: c.status, path: c.path }).collect(),
        more: truth.more,
        stat: truth.stat.map(|stat| DiffStat {
            files: stat.files,
            added: stat.added,
            removed: stat.removed,
        }),
        truncated: truth.truncated,
    }))
}

/// Get the changes in the workspace as a patch.
#[utoipa::path(get, path = "/sessions/{session_id}/git/diff", tag = "workspace",
    params(("session_id" = String, Path, description = "The session's id"), DiffQuery),
    responses((status = 200, body = GitDiff),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn git_diff(
    State(app): State<App>,
    _reader: Reader,
    Path(session): Path<String>,
    Params(query): Params<DiffQuery>,
) -> Result<Json<GitDiff>> {
    let session = SessionId::from_user(&session)?;
    if query.branch == Some(true) {
        if query.staged == Some(true) {
            return Err(Problem::malformed("Name staged or branch, not both"));
        }
        let diff = app.engine().branch_diff(&session, query.path.as_deref()).await?;
        return Ok(Json(GitDiff { diff: diff.diff, truncated: diff.truncated }));
    }
    let client = app.engine().workspace_reader(&session).await?;
    let diff = client.git_diff(query.staged.unwrap_or(false), query.path.as_deref()).await?;
    Ok(Json(GitDiff { diff: diff.diff, truncated: diff.truncated }))
}

/// List the latest commits of the workspace.
#[utoipa::path(get, path = "/sessions/{session_id}/git/log", tag = "workspace",
    params(("session_id" = String, Path, description = "The session's id"), LogQuery),
    responses((status = 200, body = GitLog),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn git_log(
    State(app): State<App>,
    _reader: Reader,
    Path(session): Path<String>,
    Params(query): Params<LogQuery>,
) -> Result<Json<GitLog>> {
    let limit = query.limit.unwrap_or(50);
    if !(1..=LOG_MAX).contains(&limit) {
        return Err(Problem::malformed(format!("limit is 1 to {LOG_MAX}")));
    }
    let client = app.engine().workspace_reader(&SessionId::from_user(&session)?).await?;
    let commits = client.git_log(limit).await?.into_iter();
    let commits = commits.map(|commit| GitCommit {
        id: commit.id,
        author: commit.author,
        at: commit.at,
        subject: commit.subject,
    });
    Ok(Json(GitLog { commits: commits.collect() }))
}

/// Open a shell in the workspace. Its socket is the shell's screen and keyboard.
#[utoipa::path(post, path = "/sessions/{session_id}/shells", tag = "workspace", request_body = Option<NewShellRequest>,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 201, body = Shell),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn open_shell(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    OptionalBody(open): OptionalBody<NewShellRequest>,
) -> Result<Reply<Shell>> {
    let session = SessionId::from_user(&session)?;
    let opened = app.engine().open_shell(&caller, &session, open.cols, open.rows).await?;
    Ok(Reply::created(
        opened.map(|shell| Shell { session_id: shell.session_id, shell_id: shell.shell_id }),
    ))
}

/// List the shells of a session's workspace; none if its agentctl does not run.
#[utoipa::path(get, path = "/sessions/{session_id}/shells", operation_id = "list_shells", tag = "workspace",
    params(("session_id" = String, Path, description = "The session's id")),
    responses((status = 200, body = ShellList),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn list_shells(
    State(app): State<App>,
    _reader: Reader,
    Path(session): Path<String>,
) -> Result<Json<ShellList>> {
    let session = SessionId::from_user(&session)?;
    let shells = app.engine().shells(&session).await?.into_iter();
    let shells = shells.map(|shell| ShellInfo {
        shell_id: shell.shell_id,
        pid: shell.pid,
        is_ended: shell.is_ended,
    });
    Ok(Json(ShellList { shells: shells.collect() }))
}

/// End a shell and the processes that it started.
#[utoipa::path(delete, path = "/sessions/{session_id}/shells/{shell_id}", tag = "workspace",
    params(("session_id" = String, Path, description = "The session's id"),
        ("shell_id" = String, Path, description = "The shell's id")),
    responses((status = 204),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn end_shell(
    State(app): State<App>,
    Controller(caller): Controller,
    Path((session, shell_id)): Path<(String, String)>,
) -> Result<StatusCode> {
    let session = SessionId::from_user(&session)?;
    app.engine().end_shell(&caller, &session, &shell_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The agentctl that a shell would be at. None is launched: one that is not there has no shells.
pub(crate) async fn of_shell(app: &App, session: &str, shell_id: &str) -> Result<Client> {
    Ok(app.engine().shell(&SessionId::from_user(session)?, shell_id).await?)
}
