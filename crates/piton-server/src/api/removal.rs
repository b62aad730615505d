//! Redaction and archive: what takes contents and sessions out of the store.

use axum::Json;
use axum::extract::State;
use piton_api::problem::Problem as Document;
use piton_api::session::{
    ArchiveRequest, RedactRequest, Redaction, RedactionTarget, SessionArchived,
};
use piton_core::id::SessionId;
use piton_core::redact::{Literal, Selector, Target};
use piton_runtime::{ArchiveTarget, Pattern, RedactionReport};
use piton_store::SecretText;

use crate::app::App;
use crate::extract::{Administrator, Body, OptionalBody, Path};
use crate::problem::{Problem, Result};

/// What a request wants taken out.
fn selector(request: &RedactRequest) -> Result<Selector> {
    match (&request.seqs, &request.value, &request.pattern) {
        (Some(seqs), None, None) => Ok(Selector::Seqs(seqs.iter().copied().collect())),
        (None, Some(value), None) => {
            let empty = || Problem::malformed("value is empty");
            Ok(Selector::Matching(Box::new(Literal::new(value).ok_or_else(empty)?)))
        }
        (None, None, Some(pattern)) => {
            let invalid = |_| Problem::malformed("pattern is not a regular expression");
            Ok(Selector::Matching(Box::new(Pattern::new(pattern).map_err(invalid)?)))
        }
        _ => Err(Problem::malformed("Name exactly one of seqs, value and pattern")),
    }
}

fn target(target: &Target) -> RedactionTarget {
    RedactionTarget { seq: target.seq, kind: target.kind.to_string(), matches: target.matches }
}

/// Redact contents of a session's log irreversibly, also of a closed session.
#[utoipa::path(post, path = "/sessions/{session_id}/redact", operation_id = "redact_session", tag = "sessions", request_body = RedactRequest,
    params(("session_id" = String, Path, description = "The session's id")),
    responses((status = 200, body = Redaction),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn redact(
    State(app): State<App>,
    Administrator(caller): Administrator,
    Path(session): Path<String>,
    Body(request): Body<RedactRequest>,
) -> Result<Json<Redaction>> {
    let session = SessionId::from_user(&session)?;
    let what = selector(&request)?;
    let RedactionReport { plan, done } = if request.dry_run {
        let plan = app.engine().plan_redaction(&session, what).await?;
        RedactionReport { plan, done: None }
    } else {
        app.engine().redact(&caller, &session, what, request.reason.as_deref()).await?
    };
    Ok(Json(Redaction {
        session_id: session,
        done: done.is_some(),
        taken_out: done.map_or(0, |done| done.taken_out),
        targets: plan.targets.iter().map(target).collect(),
        in_headers: plan.in_headers.iter().map(target).collect(),
        empty: plan.empty,
        gone: plan.gone,
        missing: plan.missing,
    }))
}

/// Archive a closed session: move it from the store into a bundle on the server.
#[utoipa::path(post, path = "/sessions/{session_id}/archive", operation_id = "archive_session", tag = "sessions", request_body = Option<ArchiveRequest>,
    params(("session_id" = String, Path, description = "The session's id")),
    responses((status = 200, body = SessionArchived),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn archive(
    State(app): State<App>,
    Administrator(caller): Administrator,
    Path(session): Path<String>,
    OptionalBody(request): OptionalBody<ArchiveRequest>,
) -> Result<Json<SessionArchived>> {
    let session = SessionId::from_user(&session)?;
    let encrypted = request.passphrase.is_some();
    let target = ArchiveTarget {
        folder: request.folder.map(Into::into),
        passphrase: request.passphrase.map(SecretText::from),
    };
    let archived = app.engine().archive(&caller, &session, target).await?;
    Ok(Json(SessionArchived {
        session_id: archived.session,
        bundle: archived.bundle.display().to_string(),
        last_seq: archived.last_seq,
        encrypted,
    }))
}
