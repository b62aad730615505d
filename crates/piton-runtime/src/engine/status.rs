//! How a session stands: derived by the core, gathered here, spelled by whoever asks.

use piton_core::id::{RunId, SessionId, WaitId};
use piton_core::resume::{self, Evaluation};
use piton_core::state::{Facts, Wait};
use piton_core::status::Status;
use piton_core::{State, Timestamp};
use piton_store::Detail;
use serde_json::Value;

use super::{Engine, Writer};
use crate::error::Result;
use crate::world::Driver as _;

/// Longer questions are read from the log.
const QUESTION_BYTES_MAX: usize = 64 * 1024;

/// Everything about how a session stands.
#[derive(Clone, Debug)]
pub struct SessionReport {
    pub session: SessionId,
    pub state: State,
    pub status: Status,
    pub evaluation: Evaluation,
    pub waits: Vec<OpenWait>,
    /// Another boot owns the session: its executor is probed, or will be.
    pub is_probed: bool,
    /// The agent can be given a prompt now.
    pub is_followed: bool,
    pub at: Timestamp,
}

/// A wait that can be answered.
#[derive(Clone, Debug)]
pub struct OpenWait {
    pub session: SessionId,
    pub run_id: RunId,
    pub wait_id: WaitId,
    pub wait: Wait,
    /// `None` if it was redacted, or is longer than 64 KiB: the record of `since_seq` has it.
    pub question: Option<Value>,
}

impl Engine {
    pub async fn session(&self, session: &SessionId) -> Result<SessionReport> {
        let state = self.view().state(session).await?;
        let status = self.view().status(&state.facts);
        let waits = self.waits_of(session, &state.facts).await?;
        let (abilities, is_probed, is_followed) = match &self.0.writer {
            Writer::Running(running) => {
                let is_probed = state.lease.owner.as_ref() != Some(running.handle.boot());
                let is_followed = running.executions.is_live(session);
                (running.agents.abilities(&state), is_probed, is_followed)
            }
            Writer::Offline(_) => {
                let profile = self.catalog().of(&state).ok();
                (profile.map(|profile| profile.abilities).unwrap_or_default(), true, false)
            }
        };
        let evaluation = resume::evaluate(&state, abilities, is_probed);
        let (session, at) = (session.clone(), self.view().now());
        Ok(SessionReport { session, state, status, evaluation, waits, is_probed, is_followed, at })
    }

    /// The open waits of a session, with their questions.
    pub(super) async fn waits_of(
        &self,
        session: &SessionId,
        facts: &Facts,
    ) -> Result<Vec<OpenWait>> {
        let run = facts.run.as_ref().filter(|run| run.is_unfinished() && facts.closed.is_none());
        let Some(run) = run else { return Ok(Vec::new()) };
        let mut waits = Vec::with_capacity(run.waits.len());
        for (wait_id, wait) in &run.waits {
            let read = self.0.store.read(session, wait.since_seq - 1, 1, Detail::Full).await;
            let question = match read {
                Ok(records) => records.first().and_then(|record| record.content_field("question")),
                // The wait is open all the same.
                Err(error) => {
                    tracing::warn!(%session, %wait_id, code = %error.code(), "no question");
                    None
                }
            };
            let is_short = |question: &Value| question.to_string().len() <= QUESTION_BYTES_MAX;
            waits.push(OpenWait {
                session: session.clone(),
                run_id: run.run_id.clone(),
                wait_id: wait_id.clone(),
                wait: wait.clone(),
                question: question.filter(is_short),
            });
        }
        Ok(waits)
    }
}
