//! The tasks beside the index of sessions: which there are, and the state of each. A state is derived
//! again only when one of the task's sessions says something else about it than before.

use std::collections::{BTreeMap, BTreeSet};

use piton_core::Timestamp;
use piton_core::id::{SessionId, TaskId};
use piton_core::registry::Task;
use piton_core::task::{SessionActivity, TaskState};

use crate::engine::derive_task_state;
use crate::view::Listed;

/// A task as a list has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSummary {
    pub task: Task,
    pub state: TaskState,
}

/// What happened to a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskEvent {
    /// It is new, or has another title.
    Updated(TaskSummary),
    StateChanged {
        task: TaskSummary,
        old_state: TaskState,
    },
    Deleted(TaskId),
}

/// What a session says about its task, and when, where that decides.
type Said = (SessionActivity, Option<Timestamp>);

#[derive(Debug, Default)]
pub(super) struct TaskBoard {
    tasks: BTreeMap<TaskId, TaskSummary>,
    sessions: BTreeMap<SessionId, (TaskId, Said)>,
    dirty: BTreeSet<TaskId>,
}

fn said(listed: &Listed) -> Said {
    let activity = piton_core::task::activity(&listed.row.summary.facts, &listed.status);
    let is_ended = matches!(activity, SessionActivity::Ended(_));
    (activity, is_ended.then_some(listed.row.summary.info.active_at))
}

impl TaskBoard {
    /// Newest first.
    pub(super) fn listing(&self) -> Vec<TaskSummary> {
        self.tasks.values().rev().cloned().collect()
    }

    /// A session is as it is here.
    pub(super) fn note(&mut self, listed: &Listed) {
        let Some(task) = &listed.row.summary.info.task_id else { return };
        let now = (task.clone(), said(listed));
        if self.sessions.get(&listed.row.session) != Some(&now) {
            self.dirty.insert(task.clone());
            self.sessions.insert(listed.row.session.clone(), now);
        }
    }

    /// A session is gone.
    pub(super) fn forget(&mut self, session: &SessionId) {
        if let Some((task, _)) = self.sessions.remove(session) {
            self.dirty.insert(task);
        }
    }

    /// A session is there, and not among those that are listed any more.
    pub(super) fn unlist(&mut self, session: &SessionId) {
        self.sessions.remove(session);
    }

    /// Takes the tasks as the metadata log has them: the newest. `is_there`: an older one that is not
    /// among them was not deleted.
    pub(super) fn set_all(
        &mut self,
        tasks: Vec<Task>,
        is_there: impl Fn(&TaskId) -> bool,
    ) -> Vec<TaskEvent> {
        let mut events = Vec::new();
        let listed: BTreeSet<TaskId> = tasks.iter().map(|task| task.task_id.clone()).collect();
        let unlisted = self.tasks.keys().filter(|known| !listed.contains(*known)).cloned();
        for task in unlisted.collect::<Vec<_>>() {
            self.tasks.remove(&task);
            if !is_there(&task) {
                events.push(TaskEvent::Deleted(task));
            }
        }
        for task in tasks {
            let id = task.task_id.clone();
            match self.tasks.get_mut(&id) {
                None => {
                    let summary = TaskSummary { task, state: TaskState::Todo };
                    events.push(TaskEvent::Updated(summary.clone()));
                    self.tasks.insert(id.clone(), summary);
                    self.dirty.insert(id);
                }
                Some(known) if known.task != task => {
                    let is_other_title = known.task.title != task.title;
                    known.task = task;
                    if is_other_title {
                        events.push(TaskEvent::Updated(known.clone()));
                    }
                    self.dirty.insert(id);
                }
                Some(_) => {}
            }
        }
        events
    }

    /// The tasks whose states may have changed.
    pub(super) fn take_dirty(&mut self) -> BTreeSet<TaskId> {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.retain(|task| self.tasks.contains_key(task));
        dirty
    }

    /// Derives a task's state from its sessions.
    pub(super) fn set_state(&mut self, task: &TaskId, sessions: &[Listed]) -> Option<TaskEvent> {
        let known = self.tasks.get_mut(task)?;
        let old_state = known.state;
        known.state = derive_task_state(&known.task, sessions);
        let changed = || TaskEvent::StateChanged { task: known.clone(), old_state };
        (known.state != old_state).then(changed)
    }
}

#[cfg(test)]
mod tests {
    use piton_core::event::Outcome;

    use super::*;

    fn task(id: &str, title: &str, closed: Option<Outcome>) -> Task {
        let (task_id, title) = (id.parse().unwrap(), title.to_owned());
        Task { task_id, title, created_at: Timestamp::from_millis(1), closed }
    }

    /// Wants to show: what did not change is no event, and a closed task's state is what its user said.
    #[test]
    fn each_change_of_a_task_is_one_event() {
        let mut board = TaskBoard::default();
        let id: TaskId = "task_1".parse().unwrap();
        let summary =
            |title, closed, state| TaskSummary { task: task("task_1", title, closed), state };
        let made = board.set_all(vec![task("task_1", "One", None)], |_| false);
        assert_eq!(made, [TaskEvent::Updated(summary("One", None, TaskState::Todo))]);
        assert_eq!(board.take_dirty(), [id.clone()].into());
        assert_eq!(board.set_state(&id, &[]), None);
        assert_eq!(board.set_all(vec![task("task_1", "One", None)], |_| false), []);
        assert_eq!(board.take_dirty(), BTreeSet::new());
        let renamed = board.set_all(vec![task("task_1", "Two", None)], |_| false);
        assert_eq!(renamed, [TaskEvent::Updated(summary("Two", None, TaskState::Todo))]);
        let closed = Some(Outcome::Cancelled);
        assert_eq!(board.set_all(vec![task("task_1", "Two", closed)], |_| false), []);
        let changed = TaskEvent::StateChanged {
            task: summary("Two", closed, TaskState::Cancelled),
            old_state: TaskState::Todo,
        };
        assert_eq!(board.set_state(&id, &[]), Some(changed));
        assert_eq!(board.set_all(Vec::new(), |_| false), [TaskEvent::Deleted(id.clone())]);
        assert_eq!((board.take_dirty(), board.set_state(&id, &[])), (BTreeSet::new(), None));
        // One that newer ones took the place of is still there.
        board.set_all(vec![task("task_1", "One", None)], |_| false);
        assert_eq!(board.set_all(Vec::new(), |_| true), []);
    }
}
