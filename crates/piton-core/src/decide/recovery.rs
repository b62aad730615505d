//! What no client asked for: interruptions, dead boots, deadlines that passed.

use std::collections::BTreeSet;

use super::{Context, Decision, Probe, Refusal, revoke_all, run_named, with_status};
use crate::event::{
    ExecutorReady, ExecutorStopped, ExecutorUnreachable, RunInterrupted, RunReattached,
    TokenExpired, WaitCancelled, WaitDeadline,
};
use crate::id::{BootId, RunId};
use crate::interruption::Activity;
use crate::limits::REATTACH_GRACE;
use crate::planted::{self, Bug};
use crate::reason::Reason;
use crate::record::NewRecord;
use crate::state::{Executor, ExecutorStatus, Phase, Run, State};
use crate::status::is_past;

/// Interrupts a run, once: a run that was interrupted, or has ended, stays as it is.
pub(super) fn interrupt(
    state: &State,
    cx: &Context,
    run_id: &RunId,
    reason: Reason,
) -> Result<Decision, Refusal> {
    let run = run_named(state, run_id)?;
    if !run.is_unfinished() {
        return Ok(Decision::already());
    }
    Ok(Decision::done(with_status(state, cx, interrupted(state, cx, run, reason))))
}

/// A dead agent's waits cannot be answered: their tokens are revoked with the interruption.
pub(super) fn interrupted(
    state: &State,
    cx: &Context,
    run: &Run,
    reason: Reason,
) -> Vec<NewRecord> {
    interrupted_in_turn(state, cx, run, reason, None)
}

/// The same; `stop_reason`: how the agent said that its turn ended, which is not believed.
pub(super) fn interrupted_in_turn(
    state: &State,
    cx: &Context,
    run: &Run,
    reason: Reason,
    stop_reason: Option<String>,
) -> Vec<NewRecord> {
    let mut records = Vec::new();
    revoke_all(state, cx, reason, &mut records);
    let event = RunInterrupted {
        run_id: run.run_id.clone(),
        reason,
        boot_id: Some(run.boot_id.clone()),
        phase: Activity::of(state),
        stop_reason,
    };
    records.push(NewRecord::new(cx.now, event));
    records
}

/// A run of a dead boot is settled. What its executor answers decides: alive, the run is taken
/// over with its waits; gone, it is interrupted; unreachable, nothing is decided.
pub(super) fn recover(
    state: &State,
    cx: &Context,
    dead: &BTreeSet<BootId>,
    probe: Option<Probe>,
    takes_over: bool,
) -> Decision {
    let run = state.facts.run.as_ref().filter(|run| {
        let twice =
            planted::is(Bug::InterruptedTwice) && matches!(run.phase, Phase::Interrupted { .. });
        let is_orphaned = (run.is_open() || twice) && dead.contains(&run.boot_id);
        is_orphaned && !state.facts.is_graph_waiting()
    });
    let executor = state.facts.executor.as_ref().filter(|executor| executor.may_live());
    let mut records = Vec::new();
    match (executor, probe) {
        (Some(executor), Some(Probe::Alive)) => {
            if executor.status != ExecutorStatus::Ready || takes_over {
                let execution_id = executor.execution_id.clone();
                records.push(NewRecord::new(cx.now, ExecutorReady { execution_id }));
            }
            if let Some(run) = run {
                records.push(reattached(cx, run));
            }
        }
        (Some(executor), Some(Probe::Unreachable) | None) => {
            if executor.status != ExecutorStatus::Unreachable {
                let execution_id = executor.execution_id.clone();
                let unreachable = ExecutorUnreachable { execution_id, code: None };
                records.push(NewRecord::new(cx.now, unreachable));
            }
        }
        (Some(executor), Some(Probe::Gone)) => {
            records.push(stopped(cx, executor));
            if let Some(run) = run {
                records.extend(interrupted(state, cx, run, Reason::ProcessRestart));
            } else if let Some(run) = state.facts.run.as_ref().filter(|run| begun(state, run)) {
                // An answer made the run this boot's, but its agent was the one that is gone.
                records.extend(interrupted(state, cx, run, Reason::ProcessExit));
            }
        }
        (None, _) => {
            if let Some(run) = run {
                records.extend(interrupted(state, cx, run, Reason::ProcessRestart));
            }
        }
    }
    if records.is_empty() {
        return Decision::already();
    }
    Decision::done(with_status(state, cx, records))
}

/// An agent was given the open run; one that is still to be begun or continued has lost nothing.
pub(super) fn begun(state: &State, run: &Run) -> bool {
    run.is_open() && !awaited(state, run)
}

/// The run is still to be begun or continued.
pub(super) fn awaited(state: &State, run: &Run) -> bool {
    state.prompts(&run.run_id).next().is_some()
}

fn stopped(cx: &Context, executor: &Executor) -> NewRecord {
    NewRecord::new(cx.now, ExecutorStopped { execution_id: executor.execution_id.clone() })
}

/// Waits keep their tokens, and at least a little time: no client could answer while no server ran.
fn reattached(cx: &Context, run: &Run) -> NewRecord {
    let at_least = cx.now.after(REATTACH_GRACE);
    let deadlines = run
        .waits
        .iter()
        .filter(|(_, wait)| wait.deadline_at.is_some_and(|deadline| deadline < at_least))
        .map(|(wait_id, _)| WaitDeadline { wait_id: wait_id.clone(), deadline_at: at_least })
        .collect();
    let (run_id, boot_id) = (run.run_id.clone(), cx.boot.clone());
    NewRecord::new(cx.now, RunReattached { run_id, boot_id, deadlines })
}

/// Deadlines that have passed. A live agent is answered `cancelled` and continues; so is one that may
/// live, as soon as it responds. Without one the run is interrupted.
pub(super) fn sweep(state: &State, cx: &Context, live: bool) -> Decision {
    let mut records = Vec::new();
    let live = live
        || state.facts.executor.as_ref().is_some_and(Executor::may_live)
        // The node that waits fails when the graph is resumed; the run is not interrupted for it.
        || state.facts.is_graph_waiting();
    let run = state.facts.run.as_ref().filter(|run| run.is_open());
    let due = |run: &Run| run.waits.values().any(|wait| is_past(wait.deadline_at, cx.now));
    if let Some(run) = run.filter(|run| due(run)) {
        if live {
            for (wait_id, wait) in &run.waits {
                if !is_past(wait.deadline_at, cx.now) {
                    continue;
                }
                if let Some(token_id) =
                    wait.token_id.as_ref().filter(|id| state.tokens.contains_key(*id))
                {
                    let event = TokenExpired { token_id: token_id.clone() };
                    records.push(NewRecord::new(cx.now, event));
                }
                let event = WaitCancelled {
                    run_id: run.run_id.clone(),
                    wait_id: wait_id.clone(),
                    reason: Reason::WaitTimeout,
                };
                records.push(NewRecord::new(cx.now, event));
            }
        } else {
            records = interrupted(state, cx, run, Reason::WaitTimeout);
        }
    } else {
        // Tokens of waits live and die with their waits; the others have a time of their own.
        for (token_id, token) in &state.tokens {
            if token.wait_id.is_none() && is_past(token.expires_at, cx.now) {
                let event = TokenExpired { token_id: token_id.clone() };
                records.push(NewRecord::new(cx.now, event));
            }
        }
    }
    if records.is_empty() {
        return Decision::already();
    }
    Decision::done(with_status(state, cx, records))
}
