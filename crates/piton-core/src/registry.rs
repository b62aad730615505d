//! What belongs to no session: tasks, and who may use the API. Folded from the metadata log.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::access::{Access, AccessDenied, Bearer, Scope};
use crate::decide::{Decision, Refusal, Verdict};
use crate::event::{
    self, AccessTokenCreated, AccessTokenRevoked, AccessTokenUsed, Event, Outcome, Seq, TaskClosed,
    TaskCreated, TaskDeleted, TaskReopened, TaskUpdated,
};
use crate::id::{AccessTokenId, SessionId, TaskId};
use crate::limits::ACCESS_MAX;
use crate::record::{NewRecord, Record};
use crate::request::{Request, Requests};
use crate::time::Timestamp;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Registry {
    pub last_seq: Seq,
    pub tasks: BTreeMap<TaskId, Task>,
    /// Secrets that were not revoked, nor used up.
    pub access: BTreeMap<AccessTokenId, Access>,
    pub requests: Requests,
    /// The last record of each session whose notification was delivered or given up.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub notified: BTreeMap<SessionId, Seq>,
    /// The host that notifications go to, and since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify_since: Option<(String, Timestamp)>,
}

/// The action of an `audit.recorded` whose target, `SESSION/SEQ`, needs no further notification.
pub const NOTIFY_DELIVERED: &str = "notify.delivered";
/// The action of an `audit.recorded` from which on notifications go to its target, a host.
pub const NOTIFY_ENABLED: &str = "notify.enabled";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub task_id: TaskId,
    pub title: String,
    pub created_at: Timestamp,
    /// How a user closed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<Outcome>,
}

/// How a task is to be from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TaskChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<TaskLifecycle>,
}

/// Whether a task's state follows from its sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskLifecycle {
    Open,
    Closed(Outcome),
}

/// What a caller wants of the registry.
#[derive(Clone, Debug)]
pub enum Command {
    CreateTask {
        task_id: TaskId,
        title: String,
    },
    ChangeTask {
        task_id: TaskId,
        change: TaskChange,
    },
    DeleteTask {
        task_id: TaskId,
    },
    Grant(AccessTokenCreated),
    Revoke {
        access_token_id: AccessTokenId,
    },
    /// Exchanges a secret that is good once for a lasting one.
    Exchange {
        used: AccessTokenId,
        granted: AccessTokenCreated,
    },
    Note(event::AuditRecorded),
}

impl Registry {
    pub fn apply_record(&mut self, record: &Record) -> Result<(), event::ParseError> {
        let event = record.event()?;
        self.apply(record.seq, record.ts, &event);
        Ok(())
    }

    fn note(&mut self, ts: Timestamp, noted: &event::AuditRecorded) {
        let Some(target) = &noted.target else { return };
        if noted.action == NOTIFY_ENABLED {
            self.notify_since = Some((target.clone(), ts));
        } else if noted.action == NOTIFY_DELIVERED
            && let Some((session, seq)) = target.rsplit_once('/')
            && let (Ok(session), Ok(seq)) = (session.parse(), seq.parse())
        {
            self.notified.insert(session, seq);
        }
    }

    /// Tolerant, as every fold: what makes no sense in its place changes nothing.
    pub fn apply(&mut self, seq: Seq, ts: Timestamp, event: &Event) {
        self.last_seq = seq;
        match event {
            Event::TaskCreated(e) => {
                let TaskCreated { task_id, title } = e.clone();
                let (id, closed) = (task_id.clone(), None);
                let task = Task { task_id: id, title, created_at: ts, closed };
                self.tasks.entry(task_id).or_insert(task);
            }
            Event::TaskUpdated(e) => {
                if let Some(task) = self.tasks.get_mut(&e.task_id) {
                    task.title.clone_from(&e.title);
                }
            }
            Event::TaskClosed(e) => {
                if let Some(task) = self.tasks.get_mut(&e.task_id) {
                    task.closed = Some(e.outcome);
                }
            }
            Event::TaskReopened(e) => {
                if let Some(task) = self.tasks.get_mut(&e.task_id) {
                    task.closed = None;
                }
            }
            Event::TaskDeleted(e) => {
                self.tasks.remove(&e.task_id);
            }
            Event::AccessTokenCreated(e) => {
                let e = e.clone();
                let access = Access {
                    access_token_id: e.access_token_id.clone(),
                    name: e.name,
                    scopes: e.scopes.into_iter().collect(),
                    hash: e.hash,
                    created_at: ts,
                    expires_at: e.expires_at,
                    single_use: e.single_use,
                };
                self.access.entry(e.access_token_id).or_insert(access);
            }
            Event::AccessTokenUsed(AccessTokenUsed { access_token_id })
            | Event::AccessTokenRevoked(AccessTokenRevoked { access_token_id }) => {
                self.access.remove(access_token_id);
            }
            Event::AuditRecorded(e) => self.note(ts, e),
            Event::SessionDeleted(e) => drop(self.notified.remove(&e.session_id)),
            Event::RequestAccepted(e) => self.requests.taken(seq, ts, e),
            _ => {}
        }
    }

    /// Who the holder is, if the secret opens what needs a scope, now.
    pub fn admit(
        &self,
        bearer: &Bearer,
        needed: Scope,
        now: Timestamp,
    ) -> Result<&Access, AccessDenied> {
        let access = self.access.get(&bearer.id).filter(|access| !access.single_use);
        let access = access.ok_or(AccessDenied::Unknown)?;
        access.check(&bearer.secret, needed, now).map(|()| access)
    }

    /// The secret that is good once, if it still is.
    pub fn once(&self, bearer: &Bearer, now: Timestamp) -> Result<&Access, AccessDenied> {
        let access = self.access.get(&bearer.id).filter(|access| access.single_use);
        let access = access.filter(|access| bearer.secret.matches(&access.hash));
        let access = access.ok_or(AccessDenied::Unknown)?;
        if access.expires_at.is_some_and(|at| at <= now) {
            return Err(AccessDenied::Expired);
        }
        Ok(access)
    }

    /// Decides. Pure: the same arguments give the same answer.
    pub fn decide(
        &self,
        now: Timestamp,
        request: Option<Request>,
        command: Command,
        request_kept_for: Duration,
    ) -> Result<Decision, Refusal> {
        if let Some(request) = &request
            && let Some(seq) = self.requests.find(request, now, request_kept_for)?
        {
            return Ok(Decision { records: Vec::new(), outcome: Verdict::Repeated { seq } });
        }
        let mut records = Vec::new();
        match command {
            Command::CreateTask { task_id, .. } if self.tasks.contains_key(&task_id) => {
                return Ok(Decision { records, outcome: Verdict::Already });
            }
            Command::CreateTask { task_id, title } => {
                records.push(NewRecord::new(now, TaskCreated { task_id, title }));
            }
            Command::ChangeTask { task_id, change } => {
                records = self.change_task(now, &task_id, change)?;
                if records.is_empty() && request.as_ref().is_none_or(|asked| asked.key.is_none()) {
                    return Ok(Decision { records, outcome: Verdict::Already });
                }
            }
            Command::DeleteTask { task_id } => {
                self.task(&task_id)?;
                records.push(NewRecord::new(now, TaskDeleted { task_id }));
            }
            Command::Grant(granted) => {
                self.make_room(now, &mut records)?;
                records.push(NewRecord::new(now, granted));
            }
            Command::Revoke { access_token_id } => {
                if !self.access.contains_key(&access_token_id) {
                    return Err(Refusal::AccessTokenNotFound { access: access_token_id });
                }
                records.push(NewRecord::new(now, AccessTokenRevoked { access_token_id }));
            }
            Command::Exchange { used, granted } => {
                if !self.access.get(&used).is_some_and(|access| access.single_use) {
                    return Err(Refusal::AccessTokenNotFound { access: used });
                }
                records.push(NewRecord::new(now, AccessTokenUsed { access_token_id: used }));
                records.push(NewRecord::new(now, granted));
            }
            Command::Note(note) => records.push(NewRecord::new(now, note)),
        }
        records.extend(request.map(|request| request.record(now)));
        Ok(Decision { records, outcome: Verdict::Done })
    }

    fn task(&self, task: &TaskId) -> Result<&Task, Refusal> {
        self.tasks.get(task).ok_or_else(|| Refusal::TaskNotFound { task: task.clone() })
    }

    /// Only what is another than before becomes a record.
    fn change_task(
        &self,
        now: Timestamp,
        task_id: &TaskId,
        change: TaskChange,
    ) -> Result<Vec<NewRecord>, Refusal> {
        let (task, mut records) = (self.task(task_id)?, Vec::new());
        let task_id = || task_id.clone();
        if let Some(title) = change.title.filter(|title| *title != task.title) {
            records.push(NewRecord::new(now, TaskUpdated { task_id: task_id(), title }));
        }
        match (change.lifecycle, task.closed) {
            (Some(TaskLifecycle::Closed(outcome)), closed) if closed != Some(outcome) => {
                records.push(NewRecord::new(now, TaskClosed { task_id: task_id(), outcome }));
            }
            (Some(TaskLifecycle::Open), Some(_)) => {
                records.push(NewRecord::new(now, TaskReopened { task_id: task_id() }));
            }
            _ => {}
        }
        Ok(records)
    }

    /// Secrets whose time has passed make room for new ones.
    fn make_room(&self, now: Timestamp, records: &mut Vec<NewRecord>) -> Result<(), Refusal> {
        if self.access.len() < ACCESS_MAX {
            return Ok(());
        }
        let over = |access: &&Access| access.expires_at.is_some_and(|at| at <= now);
        let Some(over) = self.access.values().find(over) else {
            return Err(Refusal::LimitReached { what: "API tokens", max: ACCESS_MAX });
        };
        records.push(NewRecord::new(
            now,
            AccessTokenRevoked { access_token_id: over.access_token_id.clone() },
        ));
        Ok(())
    }
}
