//! A task's state follows from its sessions, until a user closes the task.

use serde::Serialize;

use crate::event::Outcome;
use crate::state::Facts;
use crate::status::{Status, WireState};
use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TaskState {
    /// None of its sessions was given a prompt.
    Todo,
    InProgress,
    Review,
    Completed,
    Failed,
    Cancelled,
}

impl From<Outcome> for TaskState {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Completed => Self::Completed,
            Outcome::Failed => Self::Failed,
            Outcome::Cancelled => Self::Cancelled,
        }
    }
}

/// What one session says about its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionActivity {
    /// It was given no prompt: starting its agent, or failing to, is no work on the task.
    NotPrompted,
    /// An agent works.
    Running,
    /// It waits for a person.
    Waiting,
    /// It ended, or cannot continue by itself.
    Ended(Outcome),
}

/// What a session says about its task. A session whose agent is being started says what its run
/// says; one in error has failed, and can be tried again.
pub fn activity(facts: &Facts, status: &Status) -> SessionActivity {
    if let Some(outcome) = facts.closed {
        return SessionActivity::Ended(outcome);
    }
    let Some(run) = &facts.run else { return SessionActivity::NotPrompted };
    match status.name.wire() {
        WireState::Running => SessionActivity::Running,
        WireState::Starting if run.is_open() => SessionActivity::Running,
        WireState::Starting | WireState::WaitingForInput => SessionActivity::Waiting,
        WireState::Error | WireState::Failed => SessionActivity::Ended(Outcome::Failed),
        WireState::Completed => SessionActivity::Ended(Outcome::Completed),
        WireState::Cancelled => SessionActivity::Ended(Outcome::Cancelled),
    }
}

/// Derives a task's state: an agent works on it, else a session waits for a person, else the outcome
/// of the session that was active last and was given a prompt.
pub fn derive(sessions: impl IntoIterator<Item = (SessionActivity, Timestamp)>) -> TaskState {
    let (mut is_waiting, mut last) = (false, None);
    for (activity, active_at) in sessions {
        match activity {
            SessionActivity::NotPrompted => {}
            SessionActivity::Running => return TaskState::InProgress,
            SessionActivity::Waiting => is_waiting = true,
            SessionActivity::Ended(outcome) => {
                if last.is_none_or(|(at, _)| at <= active_at) {
                    last = Some((active_at, outcome));
                }
            }
        }
    }
    match last {
        _ if is_waiting => TaskState::Review,
        Some((_, outcome)) => outcome.into(),
        None => TaskState::Todo,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::Reason;
    use crate::state::{Phase, Run};
    use crate::status::Name;

    fn status(name: Name) -> Status {
        let reason = Reason::RunOpen;
        Status { name, reason, activity: None, wait: None, last_outcome: None, read_only: false }
    }

    fn facts(phase: Option<Phase>) -> Facts {
        let run = phase.map(|phase| Run {
            run_id: "run_1".parse().unwrap(),
            boot_id: "boot_1".parse().unwrap(),
            started_at: Timestamp::from_millis(0),
            started_seq: 1,
            ended_at: None,
            phase,
            blocked: false,
            waits: std::collections::BTreeMap::default(),
            settled_waits: std::collections::VecDeque::default(),
            truncated: false,
            message_seq: None,
            wait_timed_out: false,
        });
        Facts { run, ..Facts::default() }
    }

    #[test]
    fn work_beats_waiting_beats_the_last_outcome() {
        use SessionActivity::{Ended, NotPrompted, Running, Waiting};
        let at = Timestamp::from_millis;
        let (completed, failed) = (Ended(Outcome::Completed), Ended(Outcome::Failed));
        assert_eq!(derive([]), TaskState::Todo);
        assert_eq!(derive([(NotPrompted, at(9))]), TaskState::Todo);
        assert_eq!(derive([(completed, at(2)), (failed, at(1))]), TaskState::Completed);
        assert_eq!(derive([(completed, at(1)), (failed, at(2))]), TaskState::Failed);
        assert_eq!(derive([(completed, at(1)), (NotPrompted, at(2))]), TaskState::Completed);
        assert_eq!(derive([(completed, at(2)), (Waiting, at(1))]), TaskState::Review);
        assert_eq!(derive([(Waiting, at(2)), (Running, at(1))]), TaskState::InProgress);
    }

    /// Wants to show: an agent that only starts, or fails to, is neither work nor something to review;
    /// and a session whose agent is started again does not leave the state that it was in.
    #[test]
    fn starting_and_errors_count_by_what_was_asked() {
        let interrupted =
            Phase::Interrupted { reason: Reason::ProcessExit, was_waiting: false, activity: None };
        let ended = Phase::Ended(Outcome::Completed);
        for (name, phase, expected) in [
            (Name::Starting, None, SessionActivity::NotPrompted),
            (Name::Error, None, SessionActivity::NotPrompted),
            (Name::Idle, None, SessionActivity::NotPrompted),
            (Name::Starting, Some(Phase::Open), SessionActivity::Running),
            (Name::Running, Some(Phase::Open), SessionActivity::Running),
            (Name::Waiting, Some(Phase::Open), SessionActivity::Waiting),
            (Name::Starting, Some(ended), SessionActivity::Waiting),
            (Name::Starting, Some(interrupted), SessionActivity::Waiting),
            (Name::InterruptedStartup, Some(interrupted), SessionActivity::Waiting),
            (Name::Idle, Some(ended), SessionActivity::Waiting),
            (Name::Error, Some(ended), SessionActivity::Ended(Outcome::Failed)),
            (Name::Error, Some(Phase::Open), SessionActivity::Ended(Outcome::Failed)),
        ] {
            assert_eq!(activity(&facts(phase), &status(name)), expected, "{name} {phase:?}");
        }
        let closed = Facts { closed: Some(Outcome::Cancelled), ..Facts::default() };
        let named = status(Name::Cancelled);
        assert_eq!(activity(&closed, &named), SessionActivity::Ended(Outcome::Cancelled));
    }
}
