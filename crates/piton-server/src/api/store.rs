//! The store as a whole: verified, pruned. For administrators, a page at a time.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use piton_api::enums::Pruning;
use piton_api::problem::Problem as Document;
use piton_api::record::Verification;
use piton_api::store::{
    PruneReport, PruneRequest, PrunedSession, StoreFinding, StoreVerification, VerifyQuery,
};
use piton_core::decide::Removal;
use piton_core::id::SessionId;
use piton_runtime::{Pruned, Retention};

use crate::app::App;
use crate::extract::{Administrator, Body, Params};
use crate::problem::Result;

/// A log's verification, spelled.
pub(crate) fn verification(session: SessionId, found: piton_store::Verification) -> Verification {
    Verification {
        session_id: session,
        good: found.problem.is_none(),
        good_to: found.good_to,
        problem: found.problem.map(|problem| problem.to_string()),
        anchored_to: found.anchored_to,
    }
}

/// Verify the logs, a page of them; with the last page also the store as a whole.
#[utoipa::path(get, path = "/verify", operation_id = "verify_store", tag = "store", params(VerifyQuery),
    responses((status = 200, body = StoreVerification),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn verify(
    State(app): State<App>,
    _administrator: Administrator,
    Params(query): Params<VerifyQuery>,
) -> Result<Json<StoreVerification>> {
    let after: Option<SessionId> = query.after.as_deref().map(str::parse).transpose()?;
    let page = app.engine().verify_store(after.as_ref(), query.limit).await?;
    let findings = page.findings.into_iter().map(|finding| StoreFinding {
        session_id: finding.session,
        problem: finding.problem.to_string(),
    });
    Ok(Json(StoreVerification {
        logs: page.logs.into_iter().map(|(id, found)| verification(id, found)).collect(),
        findings: findings.collect(),
        next: page.next.map(|session| session.to_string()),
    }))
}

/// Archive and delete closed sessions whose retention period is over.
#[utoipa::path(post, path = "/prune", operation_id = "prune_store", tag = "store", request_body = PruneRequest,
    responses((status = 200, body = PruneReport),
        (status = "4XX", body = Document, content_type = "application/problem+json")))]
pub(crate) async fn prune(
    State(app): State<App>,
    Administrator(caller): Administrator,
    Body(request): Body<PruneRequest>,
) -> Result<Json<PruneReport>> {
    let retention = Retention {
        archive_after: request.archive_after_s.map(Duration::from_secs),
        delete_after: request.delete_after_s.map(Duration::from_secs),
    };
    let pruned = app.engine().prune(&caller, retention, request.dry_run, request.limit).await?;
    let (pruned, truncated) = pruned;
    let sessions = pruned.into_iter().map(|Pruned { due, outcome }| {
        let error = outcome.as_ref().and_then(|outcome| outcome.as_ref().err());
        PrunedSession {
            session_id: due.session,
            due: match due.removal {
                Removal::Archive => Pruning::Archive,
                Removal::Delete | Removal::DeleteForced => Pruning::Delete,
            }
            .into(),
            done: matches!(outcome, Some(Ok(()))),
            error: error.map(ToString::to_string),
            error_code: error.map(|error| error.code().to_string()),
        }
    });
    Ok(Json(PruneReport { sessions: sessions.collect(), truncated }))
}
