//! A session's status. The core derives it, the runtime gathers it, `piton-api` spells it; here it is
//! only asked for.

use std::time::Duration;

use piton_api::agent::Execution;
use piton_api::status::Live;
use piton_api::{SessionStatus, SessionSummary};
use piton_core::id::SessionId;
use piton_runtime::{Contact, Listed, SessionReport};
use piton_store::Row;

use crate::app::App;
use crate::problem::Result;

/// How long an agentctl is asked for its process id.
const CONTACT_TIMEOUT: Duration = Duration::from_secs(1);

/// A session as a list has it.
pub(crate) fn summary(listed: &Listed) -> SessionSummary {
    let Row { session, last_seq, summary, .. } = &listed.row;
    SessionSummary::new(session, &summary.info, &summary.facts, *last_seq, &listed.status)
}

/// The executor of a row of the index, if it has one.
pub(crate) async fn execution(app: &App, row: &Row) -> Option<Execution> {
    let Row { session, last_seq, summary, .. } = row;
    let view = app.handle().view();
    let status = view.status(&summary.facts);
    let spelled = SessionSummary::new(session, &summary.info, &summary.facts, *last_seq, &status);
    let agent = summary.info.agent_profile_id.as_deref();
    let execution =
        Execution::new(&spelled, &summary.facts, app.engine().catalog().abilities(agent))?;
    let cause = view.error_cause(session, &summary.facts).await;
    let live = live(app.engine().contact(session));
    let mut execution = execution.with_error(cause.as_ref()).with_last_seen(Some(&live));
    if live.is_connected {
        (execution.address, execution.pid) = contact(app, session).await;
    }
    Some(execution)
}

pub(crate) async fn of(app: &App, session: &SessionId) -> Result<SessionStatus> {
    Ok(spelled(&app.engine().session(session).await?))
}

pub(crate) fn spelled(report: &SessionReport) -> SessionStatus {
    let resume_notices = report.resume_notices.iter().copied().map(Into::into).collect();
    SessionStatus {
        resume_notices,
        ..SessionStatus::new(&report.overview, Some(live(report.contact)))
    }
}

/// Where a connected agentctl is reached, and its process; whatever does not come at once is left out.
async fn contact(app: &App, session: &SessionId) -> (Option<String>, Option<u32>) {
    let asking = async {
        let client = app.engine().agentctl(session).await.ok()?;
        let pid = client.health_of_any().await.ok().map(|health| health.pid);
        Some((Some(format!("unix:{}", client.socket().display())), pid))
    };
    tokio::time::timeout(CONTACT_TIMEOUT, asking).await.ok().flatten().unwrap_or_default()
}

fn live(contact: Contact) -> Live {
    let Contact { at, is_connected, last_seen_at } = contact;
    Live { at, is_connected, last_seen_at }
}
