//! Resume tokens: what a holder may do with one, and what a retry is answered.

use super::{AnswerByToken, Context, Decision, Refusal, Verdict, revoke_all, wait};
use crate::event::{TokenMinted, TokenPurpose};
use crate::planted::{self, Bug};
use crate::reason::Reason;
use crate::record::NewRecord;
use crate::state::{Phase, State};
use crate::status::is_past;
use crate::time::Timestamp;
use crate::token::{Entry, NewToken, State as TokenState};

/// The token's entry, if the secret is the right one.
fn entry(answer: &AnswerByToken) -> Result<&Entry, Refusal> {
    let entry = answer.entry.as_ref().ok_or(Refusal::ResumeTokenNotFound)?;
    if entry.token_id != answer.token.id || !answer.token.secret.matches(&entry.hash) {
        return Err(Refusal::ResumeTokenMismatch);
    }
    Ok(entry)
}

/// The same token with the same answer gets the first result again, whenever it comes; with
/// another answer it is refused. A pure read: it needs no lease.
pub(super) fn replay(answer: &AnswerByToken) -> Result<Option<Decision>, Refusal> {
    match &entry(answer)?.state {
        TokenState::Consumed { .. } if planted::is(Bug::TokenCheckSkipped) => Ok(None),
        TokenState::Consumed { answer_digest, result_seq } => {
            if *answer_digest == answer.token.secret.answer_key().digest(&answer.answer) {
                let outcome = Verdict::Replayed { result_seq: *result_seq };
                Ok(Some(Decision { records: Vec::new(), outcome }))
            } else {
                Err(Refusal::ResumeTokenConsumed)
            }
        }
        TokenState::Active | TokenState::Revoked { .. } | TokenState::Expired => Ok(None),
    }
}

pub(super) fn answer(
    state: &State,
    cx: &Context,
    answer: AnswerByToken,
) -> Result<Decision, Refusal> {
    let entry = entry(&answer)?;
    match entry.state {
        TokenState::Revoked { reason } => return Err(Refusal::ResumeTokenRevoked { reason }),
        TokenState::Expired => return Err(Refusal::ResumeTokenExpired),
        TokenState::Active | TokenState::Consumed { .. } => {}
    }
    let run = state.facts.run.as_ref().filter(|run| run.run_id == entry.run_id);
    let run = run.ok_or(Refusal::ResumeTokenRevoked { reason: Reason::RunEnded })?;
    let reusable = planted::is(Bug::TokenCheckSkipped);
    if !state.tokens.contains_key(&entry.token_id) && !reusable {
        return Err(Refusal::ResumeTokenRevoked { reason: Reason::RunEnded });
    }
    // A wait's deadline may have been extended since its token was minted; the wait decides.
    let deadline = match &entry.wait_id {
        Some(wait_id) => run.waits.get(wait_id).map_or(entry.expires_at, |wait| wait.deadline_at),
        None => entry.expires_at,
    };
    if is_past(deadline, cx.now) {
        return Err(Refusal::ResumeTokenExpired);
    }
    match (entry.purpose, run.phase) {
        (TokenPurpose::Wait, Phase::Open)
            if reusable || entry.wait_id.as_ref().is_some_and(|id| run.waits.contains_key(id)) => {}
        (TokenPurpose::Interruption, Phase::Interrupted { .. }) => {}
        (TokenPurpose::Wait | TokenPurpose::Interruption, _) => {
            return Err(Refusal::ResumeTokenMismatch);
        }
    }
    let (run_id, wait_id) = (entry.run_id.clone(), entry.wait_id.clone());
    let used = wait::Used {
        digest: answer.token.secret.answer_key().digest(&answer.answer),
        token_id: answer.token.id,
        answer: answer.answer,
    };
    Ok(wait::consume(state, cx, Vec::new(), run_id, wait_id, used))
}

/// Only on request, for a caller who will see it.
pub(super) fn mint_interruption(
    state: &State,
    cx: &Context,
    fresh: NewToken,
    expires_at: Option<Timestamp>,
) -> Result<Decision, Refusal> {
    let run = state.facts.run.as_ref().ok_or(Refusal::NeverRun)?;
    if !matches!(run.phase, Phase::Interrupted { .. }) {
        return Err(Refusal::NoInterruption { run: run.run_id.clone() });
    }
    if state.tokens.contains_key(&fresh.id) {
        // The caller did not get the first answer; revoked, the token could not return.
        return Ok(Decision::already());
    }
    let mut records = Vec::new();
    revoke_all(state, cx, Reason::Rotated, &mut records);
    let minted = TokenMinted {
        token_id: fresh.id,
        run_id: run.run_id.clone(),
        purpose: TokenPurpose::Interruption,
        wait_id: None,
        wait_kind: None,
        hash: fresh.hash,
        expires_at,
    };
    records.push(NewRecord::new(cx.now, minted));
    Ok(Decision::done(records))
}
