//! The one function that says what a session's status is. A status is never stored as authority:
//! it follows from the folded facts, the set of dead boots, and the time.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::event::{Outcome, WaitKind};
use crate::id::{BootId, WaitId};
use crate::interruption::{self, Activity};
use crate::reason::Reason;
use crate::state::{AgentStatus, ExecutorStatus, Facts, Phase, Run, Wait, WaitToken};
use crate::time::Timestamp;

/// What a session is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Name {
    Completed,
    Failed,
    Cancelled,
    Error,
    Starting,
    InterruptedStartup,
    InterruptedWaiting,
    Paused,
    Waiting,
    Running,
    Idle,
}

/// The session's state on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum WireState {
    Starting,
    Running,
    WaitingForInput,
    Error,
    Completed,
    Failed,
    Cancelled,
}

/// A session's status with its explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    pub name: Name,
    pub reason: Reason,
    /// Of an interrupted run: what it was doing.
    pub activity: Option<Activity>,
    /// The wait that is shown when one is shown.
    pub wait: Option<WaitView>,
    pub last_outcome: Option<Outcome>,
    /// A newer program wrote to the session; this one only reads it.
    pub read_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitView {
    pub wait_id: WaitId,
    pub kind: WaitKind,
    pub since_seq: u64,
    pub deadline_at: Option<Timestamp>,
}

impl Name {
    pub const ALL: &'static [Self] = &[
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Error,
        Self::Starting,
        Self::InterruptedStartup,
        Self::InterruptedWaiting,
        Self::Paused,
        Self::Waiting,
        Self::Running,
        Self::Idle,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Error => "error",
            Self::Starting => "starting",
            Self::InterruptedStartup => "interrupted_startup",
            Self::InterruptedWaiting => "interrupted_waiting",
            Self::Paused => "paused",
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Idle => "idle",
        }
    }

    pub fn is_interrupted(self) -> bool {
        matches!(self, Self::InterruptedStartup | Self::InterruptedWaiting)
    }

    pub fn wire(self) -> WireState {
        match self {
            Self::Completed => WireState::Completed,
            Self::Failed => WireState::Failed,
            Self::Cancelled => WireState::Cancelled,
            Self::Error => WireState::Error,
            Self::Starting => WireState::Starting,
            Self::Running => WireState::Running,
            Self::InterruptedStartup
            | Self::InterruptedWaiting
            | Self::Paused
            | Self::Waiting
            | Self::Idle => WireState::WaitingForInput,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Status {
    /// One sentence for people.
    pub fn sentence(&self) -> String {
        if self.name.is_interrupted() {
            interruption::sentence(self.reason, self.activity)
        } else {
            self.reason.sentence().to_owned()
        }
    }
}

/// Derives the status. Precedence: closed, error, starting, interrupted, paused, waiting, running,
/// idle.
pub fn derive(facts: &Facts, dead: &BTreeSet<BootId>, now: Timestamp) -> Status {
    let (name, reason) = name_and_reason(facts, dead, now);
    let run = facts.run.as_ref();
    let wait = run
        .filter(|run| run.is_unfinished() && facts.closed.is_none())
        .and_then(Run::earliest_wait)
        .map(|(wait_id, wait)| WaitView {
            wait_id: wait_id.clone(),
            kind: wait.kind,
            since_seq: wait.since_seq,
            deadline_at: wait.deadline_at,
        });
    let activity = match run.map(|run| run.phase) {
        _ if !name.is_interrupted() => None,
        Some(Phase::Interrupted { activity, .. }) => activity,
        // No record says so yet; what it was doing beside a wait is not among the facts.
        _ => (name == Name::InterruptedWaiting).then_some(Activity::Waiting),
    };
    let last_outcome = facts.closed.or(match run.map(|run| run.phase) {
        Some(Phase::Ended(outcome)) => Some(outcome),
        _ => None,
    });
    Status {
        name,
        reason,
        activity,
        wait,
        last_outcome,
        read_only: facts.unknown_critical.is_some(),
    }
}

fn name_and_reason(facts: &Facts, dead: &BTreeSet<BootId>, now: Timestamp) -> (Name, Reason) {
    match facts.closed {
        Some(Outcome::Completed) => return (Name::Completed, Reason::SessionCompleted),
        Some(Outcome::Failed) => return (Name::Failed, Reason::SessionFailed),
        Some(Outcome::Cancelled) => return (Name::Cancelled, Reason::SessionCancelled),
        None => {}
    }
    let executor = facts.executor.as_ref().map(|executor| executor.status);
    let agent = facts.agent.as_ref().map(|agent| agent.status);
    match executor {
        Some(ExecutorStatus::Error) => {
            let reason = facts.executor.as_ref().and_then(|executor| executor.reason);
            return (Name::Error, reason.unwrap_or(Reason::ExecutorError));
        }
        Some(ExecutorStatus::Unreachable) => return (Name::Error, Reason::ExecutorUnreachable),
        _ if agent == Some(AgentStatus::Error) => {
            let reason = facts.agent.as_ref().and_then(|agent| agent.error);
            return (Name::Error, reason.unwrap_or(Reason::AgentError));
        }
        Some(ExecutorStatus::Starting) => return (Name::Starting, Reason::ExecutorStarting),
        _ if agent == Some(AgentStatus::Starting)
            || facts.executor.as_ref().is_some_and(|executor| executor.expects_agent) =>
        {
            return (Name::Starting, Reason::AgentStarting);
        }
        _ if facts.agent_waits.is_some_and(|wait| now < wait.until) => {
            let reason = facts.agent_waits.map(|wait| wait.reason);
            return (Name::Starting, reason.unwrap_or(Reason::AgentStarting));
        }
        Some(ExecutorStatus::Ready | ExecutorStatus::Stopped) | None => {}
    }
    if facts.has_due_prompt() {
        return (Name::Running, Reason::PromptDue);
    }
    let is_held = !facts.queue.is_empty();
    let Some(run) = &facts.run else { return (Name::Idle, Reason::NeverRun) };
    match run.phase {
        Phase::Interrupted { reason, was_waiting, .. } => (interrupted(was_waiting), reason),
        Phase::Paused => (Name::Paused, Reason::Paused),
        Phase::Dismissed | Phase::Ended(_) if is_held => (Name::Idle, Reason::QueueHeld),
        Phase::Dismissed => (Name::Idle, Reason::RunDismissed),
        Phase::Ended(Outcome::Completed) => (Name::Idle, Reason::RunCompleted),
        Phase::Ended(Outcome::Failed) => (Name::Idle, Reason::RunFailed),
        Phase::Ended(Outcome::Cancelled) => (Name::Idle, Reason::RunCancelled),
        Phase::Open => {
            let executor_live = executor == Some(ExecutorStatus::Ready);
            let boot_dead = dead.contains(&run.boot_id);
            if facts.is_graph_waiting() {
                // A graph's wait needs no living process.
                return open_run(run, true, now);
            }
            if boot_dead && !executor_live {
                return (interrupted(!run.waits.is_empty()), Reason::ProcessRestart);
            }
            let (name, reason) = open_run(run, executor_live, now);
            if boot_dead { (name, Reason::ExecutorProbing) } else { (name, reason) }
        }
    }
}

fn interrupted(was_waiting: bool) -> Name {
    if was_waiting { Name::InterruptedWaiting } else { Name::InterruptedStartup }
}

fn open_run(run: &Run, executor_live: bool, now: Timestamp) -> (Name, Reason) {
    let timed_out = run.waits.values().any(|wait| is_past(wait.deadline_at, now));
    // With a live agent the sweep cancels the question and the run continues; without one the run
    // cannot be answered any more.
    if timed_out && !executor_live {
        return (Name::InterruptedWaiting, Reason::WaitTimeout);
    }
    let Some((_, wait)) = run.earliest_wait().filter(|_| run.is_waiting()) else {
        return (Name::Running, Reason::RunOpen);
    };
    if run.waits.values().all(|wait| wait.token != WaitToken::Active) {
        return (Name::InterruptedWaiting, inactive_token(wait));
    }
    if timed_out {
        return (Name::Waiting, Reason::WaitTimeout);
    }
    let reason = match wait.kind {
        WaitKind::Input => Reason::Input,
        WaitKind::Permission => Reason::Permission,
        WaitKind::ToolResult => Reason::ToolResult,
        WaitKind::Human => Reason::Human,
        WaitKind::Other => Reason::Unrecognised,
    };
    (Name::Waiting, reason)
}

fn inactive_token(wait: &Wait) -> Reason {
    match wait.token {
        WaitToken::Expired => Reason::TokenExpired,
        WaitToken::Revoked => Reason::TokenRevoked,
        WaitToken::Missing | WaitToken::Active => Reason::TokenMissing,
    }
}

/// A deadline is passed at its moment, not after it.
pub(crate) fn is_past(deadline_at: Option<Timestamp>, now: Timestamp) -> bool {
    deadline_at.is_some_and(|deadline| deadline <= now)
}
