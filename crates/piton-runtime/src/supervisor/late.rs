//! Starts that take longer than a request waits. What was asked for beside such a start, or what the
//! settings ask for, is done when the agent runs.

use std::time::Duration;

use piton_core::decide::Command;
use piton_core::id::SessionId;
use piton_core::resume::{self, Policy, StartTrigger};

use crate::error::{Error, Result};
use crate::service::Handle;
use crate::view::View;

/// What is to be done when an agent runs is given up after so long.
const LATE_START_MAX: Duration = Duration::from_mins(10);

/// Waits until the log says what became of a start that is under way; `false`: none is. An agent that
/// could not be started is an error.
pub(crate) async fn await_start(view: &View, session: &SessionId) -> Result<bool> {
    let waiting = async {
        let mut tail = view.tail(session, 0);
        let mut was_starting = false;
        loop {
            let state = view.state(session).await?;
            if state.facts.can_receive() {
                return Ok(true);
            }
            if !resume::is_starting(&state.facts) {
                if was_starting {
                    return Err(view.start_failure(session, &state).await.into());
                }
                return Ok(false);
            }
            was_starting = true;
            tail.seek(state.last_seq);
            tail.next().await?;
        }
    };
    tokio::time::timeout(LATE_START_MAX, waiting).await.unwrap_or(Err(Error::AgentLate))
}

/// Continues the run that the settings continue with such a start.
pub(super) async fn continue_run(
    handle: &Handle,
    policy: Policy,
    session: &SessionId,
    trigger: StartTrigger,
) -> Result<()> {
    if !await_start(handle.view(), session).await? {
        return Ok(());
    }
    let facts = handle.state(session).await?.facts;
    match resume::run_to_continue(&facts, policy.continue_run, trigger) {
        Some(run_id) => handle.execute(session, Command::Resume { run_id }).await.map(drop),
        None => Ok(()),
    }
}
