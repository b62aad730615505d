//! A session's status. The core derives it, the runtime gathers it, `piton-api` spells it; here it is
//! only asked for.

use piton_api::agent::Execution;
use piton_api::status::Live;
use piton_api::{SessionStatus, SessionSummary};
use piton_core::id::SessionId;
use piton_runtime::{Listed, SessionReport};
use piton_store::Row;

use crate::app::App;
use crate::problem::Result;

/// A session as a list has it.
pub(crate) fn summary(listed: &Listed) -> SessionSummary {
    let Row { session, last_seq, summary, .. } = &listed.row;
    SessionSummary::new(session, &summary.info, &summary.facts, *last_seq, &listed.status)
}

/// The executor of a row of the index, if it has one.
pub(crate) fn execution(app: &App, row: &Row) -> Option<Execution> {
    let Row { session, last_seq, summary, .. } = row;
    let status = app.handle().view().status(&summary.facts);
    let spelled = SessionSummary::new(session, &summary.info, &summary.facts, *last_seq, &status);
    let agent = summary.info.agent_profile_id.as_deref();
    Execution::new(&spelled, &summary.facts, app.engine().catalog().abilities(agent))
}

pub(crate) async fn of(app: &App, session: &SessionId) -> Result<SessionStatus> {
    Ok(spelled(&app.engine().session(session).await?))
}

pub(crate) fn spelled(report: &SessionReport) -> SessionStatus {
    let live = Live { at: report.at, is_connected: report.is_connected };
    SessionStatus::new(&report.overview, Some(live))
}
