//! Which sessions have been kept long enough. Pure: the caller lists, decides when, and does it.

use std::time::Duration;

use piton_core::Timestamp;
use piton_core::decide::Removal;
use piton_core::id::SessionId;
use piton_core::state::Executor;
use piton_store::Row;

/// How long closed sessions are kept after anything last happened to them. `None`: for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    pub archive_after: Option<Duration>,
    pub delete_after: Option<Duration>,
}

/// What is due for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueRemoval {
    pub session: SessionId,
    pub removal: Removal,
}

/// What is due now. A session that is due for both is deleted: a user who configured deletion does
/// not want its bundle to remain. Those that are not closed, or whose executor may live, never are.
pub fn due(rows: &[Row], retention: Retention, now: Timestamp) -> Vec<DueRemoval> {
    let rows = rows.iter().filter(|row| {
        let facts = &row.summary.facts;
        facts.closed.is_some() && !facts.executor.as_ref().is_some_and(Executor::may_live)
    });
    let due = rows.filter_map(|row| {
        let is_past = |span: Option<Duration>| {
            span.is_some_and(|span| row.summary.info.active_at.after(span) <= now)
        };
        let removal = if is_past(retention.delete_after) {
            Removal::Delete
        } else if is_past(retention.archive_after) {
            Removal::Archive
        } else {
            return None;
        };
        Some(DueRemoval { session: row.session.clone(), removal })
    });
    due.collect()
}

#[cfg(test)]
mod tests {
    use piton_core::State;
    use piton_core::event::{Event, ExecutorStarting, Outcome, SessionClosed, SessionCreated};

    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn row(name: &str, closed: bool, more: Option<Event>) -> Row {
        let created = SessionCreated {
            session_id: name.parse().unwrap(),
            title: None,
            task_id: None,
            working_dir: None,
            provider: None,
            agent_profile_id: None,
        };
        let outcome = Outcome::Completed;
        let end = closed.then(|| SessionClosed { outcome, reason: None }.into());
        let mut state = State::default();
        for event in [Some(created.into()), more, end].into_iter().flatten() {
            state.apply(state.last_seq + 1, Timestamp::from_millis(0), &event);
        }
        Row {
            session: name.parse().unwrap(),
            last_seq: state.last_seq,
            lease: state.lease.clone(),
            summary: state.summary().unwrap(),
        }
    }

    /// Only what is closed and at rest, only when its time has come, and deleting before archiving.
    #[test]
    fn what_is_due() {
        let executor = ExecutorStarting {
            execution_id: "exec_1".parse().unwrap(),
            runtime: "standalone".into(),
        };
        let rows = [
            row("closed", true, None),
            row("open", false, None),
            row("alive", true, Some(executor.into())),
        ];
        let at = |days: u32| Timestamp::from_millis(0).after(DAY * days);
        let names = |retention, now| -> Vec<(String, Removal)> {
            let due = due(&rows, retention, now);
            due.into_iter().map(|due| (due.session.to_string(), due.removal)).collect()
        };
        let both = Retention { archive_after: Some(DAY * 2), delete_after: Some(DAY * 5) };
        assert_eq!(names(both, at(1)), []);
        assert_eq!(names(both, at(2)), [("closed".to_owned(), Removal::Archive)]);
        assert_eq!(names(both, at(5)), [("closed".to_owned(), Removal::Delete)]);
        assert_eq!(names(Retention::default(), at(9_999)), []);
    }
}
