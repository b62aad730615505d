//! A session's status. The core derives it, the runtime gathers it, `piton-api` spells it; here it is
//! only asked for.

use std::time::Duration;

use piton_api::agent::Execution;
use piton_api::status::{Live, Wait};
use piton_api::{SessionStatus, SessionSummary};
use piton_core::id::SessionId;
use piton_core::state::{Facts, State};
use piton_runtime::Listed;
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
    let execution = Execution::new(&spelled, &summary.facts, app.agents_known().abilities(agent))?;
    let cause = view.error_cause(session, &summary.facts).await;
    let live = live(app, session);
    let mut execution = execution.with_error(cause.as_ref()).with_last_seen(Some(&live));
    if live.is_connected {
        (execution.address, execution.pid) = contact(app, session).await;
    }
    Some(execution)
}

/// The open waits of a session, with their questions.
pub(crate) async fn waits(app: &App, session: &SessionId, facts: &Facts) -> Result<Vec<Wait>> {
    let open = app.handle().view().open_waits(session, facts).await;
    Ok(open.iter().map(|open| Wait::new(session, open)).collect())
}

pub(crate) async fn of(app: &App, session: &SessionId) -> Result<SessionStatus> {
    let state: State = app.handle().state(session).await?;
    let abilities = app.resumer().abilities(&state);
    let overview = app.handle().view().overview(session, state, abilities).await?;
    Ok(SessionStatus::new(&overview, Some(live(app, session))))
}

/// Where a connected agentctl is reached, and its process; whatever does not come at once is left out.
async fn contact(app: &App, session: &SessionId) -> (Option<String>, Option<u32>) {
    let asking = async {
        let client = app.executions().workspace(session).await.ok()?;
        let pid = client.health_of_any().await.ok().map(|health| health.pid);
        Some((Some(format!("unix:{}", client.socket().display())), pid))
    };
    tokio::time::timeout(CONTACT_TIMEOUT, asking).await.ok().flatten().unwrap_or_default()
}

fn live(app: &App, session: &SessionId) -> Live {
    use piton_runtime::Driver as _;
    Live {
        at: app.handle().view().now(),
        is_connected: app.executions().is_live(session),
        last_seen_at: app.executions().last_seen(session),
    }
}
