//! Resume tokens as a service: made here, validated here, consumed by the session they belong to.

use std::sync::Arc;

use piton_core::Seq;
use piton_core::decide::{AnswerByToken, Command, Refusal, Verdict, replay_token};
use piton_core::id::{SessionId, TokenId};
use piton_core::token::{Entry, ResumeToken};
use piton_store::Durability;
use serde_json::Value;

use crate::coordinator::Coordinator;
use crate::env::Env;
use crate::error::Result;

/// The result for the holder of a token. A retry gets the same result, except for `replayed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    pub session: SessionId,
    pub token: TokenId,
    /// The record that took the answer in.
    pub result_seq: Seq,
    pub replayed: bool,
}

#[derive(Debug)]
pub(crate) struct TokenService {
    env: Arc<Env>,
    coordinator: Arc<Coordinator>,
}

impl TokenService {
    pub(crate) fn new(env: Arc<Env>, coordinator: Arc<Coordinator>) -> Self {
        Self { env, coordinator }
    }

    pub(crate) fn mint(&self) -> Result<ResumeToken> {
        Ok(self.env.ids.token()?)
    }

    async fn lookup(&self, token: &ResumeToken) -> Result<(SessionId, Entry)> {
        Ok(self.env.store.token(&token.id).await?.ok_or(Refusal::ResumeTokenNotFound)?)
    }

    /// Answers a wait, or resumes an interruption. `within`: the session the holder names, if any.
    pub(crate) async fn answer(
        &self,
        within: Option<&SessionId>,
        token: ResumeToken,
        answer: Value,
    ) -> Result<Answered> {
        let (session, entry) = self.lookup(&token).await?;
        if within.is_some_and(|within| *within != session) {
            return Err(Refusal::ResumeTokenMismatch.into());
        }
        let id = token.id.clone();
        let answer = AnswerByToken { token, entry: Some(entry), answer };
        // A replay reads the log; it needs no lease and no owner.
        let verdict = if let Some(decision) = replay_token(&answer)? {
            decision.outcome
        } else {
            let command = Command::AnswerByToken(answer);
            self.coordinator.execute(&session, command, Durability::Synced).await?.verdict
        };
        let (result_seq, replayed) = match verdict {
            Verdict::Replayed { result_seq } => (result_seq, true),
            Verdict::Resumed { result_seq } => (result_seq, false),
            Verdict::Done
            | Verdict::Asked
            | Verdict::Already
            | Verdict::Queued { .. }
            | Verdict::Repeated { .. } => {
                return Err(Refusal::ResumeTokenMismatch.into());
            }
        };
        Ok(Answered { session, token: id, result_seq, replayed })
    }
}
