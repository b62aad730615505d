//! Everything about where a session stands, gathered once: what every answer about its status is spelled
//! from. Values only; callers that have a store fill in what only contents say.

use serde_json::Value;

use crate::code::AnyCode;
use crate::event::{Event, Seq};
use crate::id::{RunId, SessionId, WaitId};
use crate::permission::PermissionRequest;
use crate::record::Record;
use crate::resume::{Abilities, Evaluation};
use crate::state::{Facts, Info, State, Wait};
use crate::status::Status;

#[derive(Clone, Debug, PartialEq)]
pub struct Overview {
    pub session_id: SessionId,
    pub info: Info,
    pub state: State,
    pub status: Status,
    pub evaluation: Evaluation,
    /// What the agent's profile says of it.
    pub abilities: Abilities,
    /// Open waits, the one that is shown first.
    pub waits: Vec<OpenWait>,
    /// Why the executor or the agent is in error.
    pub error: Option<ErrorCause>,
}

/// What a record says of an executor's or agent's error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorCause {
    pub code: Option<AnyCode>,
    /// `None` if it was redacted.
    pub message: Option<String>,
}

impl ErrorCause {
    /// The cause that a record of an error names.
    pub fn of(record: &Record) -> Self {
        let code = match record.event() {
            Ok(Event::ExecutorError(e)) => e.code,
            Ok(Event::ExecutorUnreachable(e)) => e.code,
            Ok(Event::AgentError(e)) => e.code,
            _ => None,
        };
        let message = record.content_field("message");
        Self { code, message: message.and_then(|text| text.as_str().map(str::to_owned)) }
    }
}

/// A wait that is open.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenWait {
    pub wait_id: WaitId,
    pub run_id: RunId,
    pub wait: Wait,
    /// As it was asked; `None` if it was redacted, or is too long to be shown here.
    pub question: Option<Value>,
    /// Of a permission: what is asked for, as far as it is shown here.
    pub permission: Option<PermissionRequest>,
}

impl OpenWait {
    /// The open waits of a session, earliest first, without their questions.
    pub fn of(facts: &Facts) -> Vec<Self> {
        let run = facts.run.as_ref().filter(|run| run.is_unfinished() && facts.closed.is_none());
        let Some(run) = run else { return Vec::new() };
        let mut waits: Vec<Self> = run
            .waits
            .iter()
            .map(|(wait_id, wait)| Self {
                wait_id: wait_id.clone(),
                run_id: run.run_id.clone(),
                wait: wait.clone(),
                question: None,
                permission: None,
            })
            .collect();
        waits.sort_by_key(|open| {
            let Wait { deadline_at, since_seq, .. } = open.wait;
            (deadline_at.is_none(), deadline_at, since_seq)
        });
        waits
    }

    /// Where its question stands.
    pub fn since_seq(&self) -> Seq {
        self.wait.since_seq
    }
}
