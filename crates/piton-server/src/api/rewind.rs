//! Checkpoints of agents' turns, and the way back to them. The runtime does it; here it is only asked
//! for and spelled.

use axum::Json;
use axum::extract::State;
use piton_api::WireEnum;
use piton_api::problem::Problem as Document;
use piton_api::rewind::{
    FileChange, FilesDiff, FilesDiffQuery, RewindRequest, RewindResult, RewoundConversation,
    RewoundFiles, SkippedPath, TurnCheckpoint, TurnCheckpointList, UndoRequest,
};
use piton_core::id::SessionId;
use piton_core::turns::is_live;
use piton_runtime::{Fulfilled, RewindReport, RewindSpec};

use super::Reply;
use crate::app::App;
use crate::extract::{Controller, OptionalBody, Params, Path, Reader};
use crate::problem::Result;

/// List the checkpoints of a session's turns, newest first.
#[utoipa::path(get, path = "/sessions/{session_id}/turn-checkpoints", operation_id = "list_turn_checkpoints", tag = "rewind",
    params(("session_id" = String, Path, description = "The session's id")),
    responses((status = 200, body = TurnCheckpointList),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn checkpoints(
    State(app): State<App>,
    _reader: Reader,
    Path(session): Path<String>,
) -> Result<Json<TurnCheckpointList>> {
    let session = SessionId::from_user(&session)?;
    let state = app.engine().view().state(&session).await?;
    let segments = state.turns.live_segments(state.last_seq);
    let checkpoints = state.turns.checkpoints.iter().rev().map(|entry| TurnCheckpoint {
        checkpoint_id: entry.checkpoint_id.clone(),
        checkpoint_type: entry.checkpoint_type.into(),
        seq: entry.seq,
        created_at: entry.created_at,
        lineage: entry.lineage,
        is_live: is_live(segments.as_deref(), entry.seq),
        run_id: entry.turn.run_id.to_string(),
        has_files: entry.turn.snapshot.is_some(),
        snapshot_late: entry.turn.snapshot_late,
    });
    Ok(Json(TurnCheckpointList {
        session_id: session,
        checkpoints: checkpoints.collect(),
        lineage: state.turns.lineages.current(),
        can_undo: state.turns.last_rewind.is_some(),
        kept_checkpoint: state.turns.kept_checkpoint().map(|entry| entry.checkpoint_id.clone()),
    }))
}

/// Rewind files, conversation, or both to a checkpoint.
///
/// A safety snapshot of the files is taken first. Refused with `workspace_conflict` if files changed that
/// the session did not change, and with `run_in_progress` while a run is open. What was said after the
/// checkpoint stays in the log, as a lineage that was left behind; the agent gets a fresh start with the
/// history up to the checkpoint.
#[utoipa::path(post, path = "/sessions/{session_id}/rewind", operation_id = "rewind_session", tag = "rewind", request_body = Option<RewindRequest>,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 200, body = RewindResult),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn rewind(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    OptionalBody(request): OptionalBody<RewindRequest>,
) -> Result<Reply<RewindResult>> {
    let session = SessionId::from_user(&session)?;
    let is_some_paths = !request.paths.is_empty();
    let spec = RewindSpec {
        to: request.checkpoint,
        turns: request.turns,
        files: request.files.unwrap_or(true),
        conversation: request.conversation.unwrap_or(!is_some_paths),
        paths: request.paths,
        dry_run: request.dry_run.unwrap_or(false),
        force: request.force.unwrap_or(false),
        cancel: request.cancel.unwrap_or(false),
    };
    Ok(Reply::ok(spelled(app.engine().rewind(&caller, &session, spec).await?)))
}

/// Undo the last rewind, if no turn has begun since. A second undo restores the rewind.
#[utoipa::path(post, path = "/sessions/{session_id}/undo", operation_id = "undo_rewind", tag = "rewind", request_body = Option<UndoRequest>,
    params(("session_id" = String, Path, description = "The session's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: a repeated request with the same key and body returns the first response")),
    responses((status = 200, body = RewindResult),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn undo(
    State(app): State<App>,
    Controller(caller): Controller,
    Path(session): Path<String>,
    OptionalBody(request): OptionalBody<UndoRequest>,
) -> Result<Reply<RewindResult>> {
    let session = SessionId::from_user(&session)?;
    let (force, dry_run) = (request.force.unwrap_or(false), request.dry_run.unwrap_or(false));
    Ok(Reply::ok(spelled(app.engine().undo(&caller, &session, force, dry_run).await?)))
}

/// Compare the files of two checkpoints, or of a checkpoint and the workspace.
#[utoipa::path(get, path = "/sessions/{session_id}/diff", operation_id = "diff_files", tag = "rewind",
    params(("session_id" = String, Path, description = "The session's id"), FilesDiffQuery),
    responses((status = 200, body = FilesDiff),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn diff(
    State(app): State<App>,
    _reader: Reader,
    Path(session): Path<String>,
    Params(query): Params<FilesDiffQuery>,
) -> Result<Json<FilesDiff>> {
    let session = SessionId::from_user(&session)?;
    let found = app.engine().diff_files(&session, &query.from, query.to.as_deref()).await?;
    Ok(Json(FilesDiff {
        session_id: session,
        changes: found.changes.into_iter().map(change).collect(),
        skipped: found.skipped.into_iter().map(skipped).collect(),
        skipped_total: found.skipped_total,
    }))
}

fn skipped(skipped: piton_runtime::SkippedPath) -> SkippedPath {
    SkippedPath { path: skipped.path, reason: WireEnum::spelled(&skipped.reason) }
}

fn change(change: piton_runtime::FileChange) -> FileChange {
    FileChange { path: change.path, change: WireEnum::spelled(&change.change) }
}

fn spelled(done: Fulfilled<RewindReport>) -> Fulfilled<RewindResult> {
    done.map(|report| RewindResult {
        session_id: report.session_id,
        checkpoint_id: report.checkpoint_id,
        dry_run: report.dry_run,
        files: report.files.map(|files| RewoundFiles {
            changes: files.changes.into_iter().map(change).collect(),
            changes_total: files.changes_total,
            foreign: files.foreign,
            safety_snapshot: files.safety_snapshot,
            skipped: files.skipped.into_iter().map(skipped).collect(),
            skipped_total: files.skipped_total,
            kept_checkpoint: files.kept_checkpoint,
        }),
        conversation: report.conversation.map(|conversation| RewoundConversation {
            lineage: conversation.lineage,
            context: conversation.context.into(),
        }),
    })
}
