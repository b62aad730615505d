//! What a session's supervisor does next: one table, as a function of values. The supervisor itself
//! (in `piton-runtime`) carries the steps out and asks again after each of them.
//!
//! `docs/internals/supervisor.md` shows the same table; `tests/it/supervise.rs` goes through it row
//! by row.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::decide::{Command, Probe};
use crate::id::BootId;
use crate::resume::{self, StartTrigger};
use crate::state::{Executor, ExecutorStatus, Facts, Run, State};
use crate::time::Timestamp;

/// The first delay before a lost connection is made again; each further one is twice as long.
pub const RECONNECT_MIN: Duration = Duration::from_millis(500);
pub const RECONNECT_MAX: Duration = Duration::from_secs(30);
/// How long an execution may be silent before the log calls it unreachable.
pub const UNREACHABLE_AFTER: Duration = Duration::from_mins(1);

/// Who holds the session's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseHolder {
    /// This boot.
    Ours,
    /// No boot, or one that has died.
    NoLiveBoot,
    /// Another boot, which lives.
    Other,
}

/// What is known of the session's execution, beside the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionContact {
    /// Nothing yet, or nothing since the connection was lost.
    Unknown,
    /// It is being launched by this process: it must not be taken for gone.
    Launching,
    /// It answered a probe, and is not connected. `rests`: the next connection waits for its delay.
    Alive { rests: bool },
    /// Nothing of it runs any more; that is proven.
    Gone,
    /// It did not answer. `for_long`: for longer than it may be silent.
    Silent { for_long: bool },
    /// It is connected and followed.
    Connected,
}

/// What the supervisor knows and the log does not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is the answer to a question of its own")]
pub struct LiveFacts {
    pub owner: LeaseHolder,
    /// Of the boots that the log names, those that have died.
    pub dead: BTreeSet<BootId>,
    pub link: ExecutionContact,
    /// A caller waits until it is written down what became of the execution.
    pub is_awaited: bool,
    /// It has been silent for longer than executors are waited for (`executor.abandon_after`).
    pub is_given_up: bool,
    /// An agent is wanted, and why.
    pub start: Option<StartTrigger>,
    /// The agent has had nothing to do for as long as it may ([`idle_since`]).
    pub is_idle: bool,
    /// The agent that is to be ended is being ended here.
    pub is_stopping: bool,
}

/// What the supervisor does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask whether the execution lives.
    Probe,
    /// Write down what is known of it. The spool of a gone execution is imported first.
    Settle(Option<Probe>),
    /// Shake hands and follow what it says.
    Connect,
    /// Nothing but to listen to it, and to what wakes the supervisor.
    Follow,
    /// Abandon it, as a user would: it has been silent for too long.
    Abandon,
    /// Wait for the launch to end, or for the delay to pass; then look again.
    Wait,
    /// Decide about the agent ([`crate::resume::plan`]) and start it.
    Start(StartTrigger),
    /// Decide that an agent that nothing needs is to be ended.
    EndIdleAgent,
    /// End the agent, as was decided; its execution stays.
    StopAgent,
    /// End the execution of a closed session.
    StopExecution,
    /// Nothing needs a supervisor.
    End,
}

/// The table. The first row that fits is taken.
pub fn next(facts: &Facts, known: &LiveFacts) -> Step {
    let start = known.start.map(Step::Start);
    if known.owner == LeaseHolder::Other {
        // What is wanted of another's session is refused by the store, with the owner's name.
        return start.unwrap_or(Step::End);
    }
    let Some(executor) = facts.executor.as_ref().filter(|executor| executor.may_live()) else {
        if orphaned_run(facts, &known.dead).is_some() {
            return Step::Settle(None);
        }
        return start.unwrap_or(Step::End);
    };
    let is_ours = known.owner == LeaseHolder::Ours;
    let is_closed = facts.closed.is_some();
    match known.link {
        ExecutionContact::Launching => Step::Wait,
        ExecutionContact::Unknown => Step::Probe,
        ExecutionContact::Gone => Step::Settle(Some(Probe::Gone)),
        ExecutionContact::Silent { for_long } => {
            let is_recorded = executor.status == ExecutorStatus::Unreachable;
            if !is_recorded && (for_long || known.is_awaited || !is_ours) {
                return Step::Settle(Some(Probe::Unreachable));
            }
            if is_recorded && known.is_given_up {
                return Step::Abandon;
            }
            start.unwrap_or(Step::Wait)
        }
        ExecutionContact::Alive { .. } | ExecutionContact::Connected if !is_ours => {
            Step::Settle(Some(Probe::Alive))
        }
        ExecutionContact::Alive { rests: true } => start.unwrap_or(Step::Wait),
        ExecutionContact::Alive { .. } | ExecutionContact::Connected if is_closed => {
            Step::StopExecution
        }
        ExecutionContact::Alive { rests: false } => Step::Connect,
        ExecutionContact::Connected => {
            let is_orphaned = facts.run.as_ref().is_some_and(|run| is_orphaned(run, &known.dead));
            if executor.status != ExecutorStatus::Ready || is_orphaned {
                return Step::Settle(Some(Probe::Alive));
            }
            if resume::is_ending(facts) {
                // A start that is wanted waits for its end.
                let waits = start.unwrap_or(Step::Follow);
                return if known.is_stopping { waits } else { Step::StopAgent };
            }
            let idle = known.is_idle.then_some(Step::EndIdleAgent);
            start.or(idle).unwrap_or(Step::Follow)
        }
    }
}

/// Since when the session's agent has had nothing to do: it is ready, no run is open (and so no wait),
/// nothing is to be carried out or delivered. `None`: it has something to do, or there is none.
pub fn idle_since(state: &State) -> Option<Timestamp> {
    let facts = &state.facts;
    let is_busy = facts.run.as_ref().is_some_and(Run::is_open)
        || facts.has_due_prompt()
        || !state.pending.is_empty();
    let is_idle = facts.closed.is_none() && facts.can_receive() && !is_busy;
    state.info.as_ref().filter(|_| is_idle).map(|info| info.active_at)
}

fn is_orphaned(run: &Run, dead: &BTreeSet<BootId>) -> bool {
    run.is_open() && dead.contains(&run.boot_id)
}

/// The recovery of a run that a dead boot left open and that no executor can be asked about: it is
/// interrupted. `None`: there is none, or its executor has to be asked.
pub fn orphaned_run(facts: &Facts, dead: &BTreeSet<BootId>) -> Option<Command> {
    let may_live = facts.executor.as_ref().is_some_and(Executor::may_live);
    let run = facts.run.as_ref().filter(|run| is_orphaned(run, dead))?;
    if may_live || facts.closed.is_some() || facts.is_graph_waiting() {
        return None;
    }
    let dead = BTreeSet::from([run.boot_id.clone()]);
    Some(Command::Recover { dead, probe: None, takes_over: false })
}

/// How long to wait before the connection is tried again, after `failures` of them in a row. Between
/// half of the delay and all of it, by `random`: many that lost one server do not return at once.
pub fn reconnect_delay(failures: u32, random: u32) -> Duration {
    let doubled = RECONNECT_MIN.saturating_mul(1_u32 << failures.min(16));
    let whole = doubled.min(RECONNECT_MAX);
    whole / 2 + (whole / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
}
