//! A task's state follows from its sessions.

use serde::Serialize;

use crate::event::Outcome;
use crate::status::{Status, WireState};
use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TaskState {
    /// No session has been started for it.
    Todo,
    InProgress,
    Review,
    Completed,
    Failed,
    Cancelled,
}

/// Derives a task's state: somebody works on it, else somebody waits for a person, else the
/// outcome of the session that was active last.
pub fn derive<'a>(
    sessions: impl IntoIterator<Item = (&'a Status, Timestamp)> + Clone,
) -> TaskState {
    let states = || sessions.clone().into_iter().map(|(status, _)| status.name.wire());
    if states().any(|state| matches!(state, WireState::Running | WireState::Starting)) {
        return TaskState::InProgress;
    }
    if states().any(|state| matches!(state, WireState::WaitingForInput | WireState::Error)) {
        return TaskState::Review;
    }
    let last = sessions.into_iter().max_by_key(|(_, active_at)| *active_at);
    match last.and_then(|(status, _)| status.last_outcome) {
        Some(Outcome::Completed) => TaskState::Completed,
        Some(Outcome::Failed) => TaskState::Failed,
        Some(Outcome::Cancelled) => TaskState::Cancelled,
        None => TaskState::Todo,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::Reason;
    use crate::status::Name;

    fn status(name: Name, last_outcome: Option<Outcome>) -> Status {
        Status { name, reason: Reason::RunOpen, wait: None, last_outcome, read_only: false }
    }

    #[test]
    fn work_beats_waiting_beats_the_last_outcome() {
        let at = Timestamp::from_millis;
        let completed = status(Name::Completed, Some(Outcome::Completed));
        let failed = status(Name::Failed, Some(Outcome::Failed));
        let idle = status(Name::Idle, Some(Outcome::Completed));
        let running = status(Name::Running, None);
        let starting = status(Name::Starting, None);
        let error = status(Name::Error, None);
        let none: [(&Status, Timestamp); 0] = [];
        assert_eq!(derive(none), TaskState::Todo);
        assert_eq!(derive([(&completed, at(2)), (&failed, at(1))]), TaskState::Completed);
        assert_eq!(derive([(&completed, at(1)), (&failed, at(2))]), TaskState::Failed);
        assert_eq!(derive([(&completed, at(2)), (&idle, at(1))]), TaskState::Review);
        assert_eq!(derive([(&error, at(2)), (&completed, at(3))]), TaskState::Review);
        assert_eq!(derive([(&idle, at(2)), (&running, at(1))]), TaskState::InProgress);
        assert_eq!(derive([(&idle, at(2)), (&starting, at(1))]), TaskState::InProgress);
    }
}
