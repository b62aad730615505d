//! Waits: asking, answering by id, and giving out a new token.

use serde_json::Value;

use super::{Context, Decision, Refusal, Verdict, Wait, open_run, room_for_effects};
use crate::event::{
    RunResumed, RunWaiting, TokenConsumed, TokenMinted, TokenPurpose, TokenRevoked,
};
use crate::id::{RunId, TokenId, WaitId};
use crate::limits;
use crate::limits::WAITS_OPEN_MAX;
use crate::permission::option_id;
use crate::planted::{self, Bug};
use crate::reason::Reason;
use crate::record::NewRecord;
use crate::state::{self, Run, State};
use crate::status::is_past;
use crate::token::NewToken;

/// Options that reject are remembered by their ids, so many of them.
const REJECT_OPTIONS_MAX: usize = 8;
const OPTION_ID_BYTES_MAX: usize = 128;

pub(super) fn wait(state: &State, cx: &Context, wait: Wait) -> Result<Decision, Refusal> {
    let run = open_run(state, &wait.run_id)?;
    let (wait_id, wait_kind) = (wait.wait_id, wait.kind);
    if run.waits.contains_key(&wait_id)
        || (run.settled_waits.contains(&wait_id) && !planted::is(Bug::SettledWaitAsked))
    {
        // The caller did not get the first answer.
        return Ok(Decision::already());
    }
    if run.waits.len() >= WAITS_OPEN_MAX {
        return Err(Refusal::LimitReached { what: "waits", max: limits::WAITS_OPEN_MAX });
    }
    room_for_effects(state)?;
    let minted = TokenMinted {
        token_id: wait.fresh.id.clone(),
        run_id: wait.run_id.clone(),
        purpose: TokenPurpose::Wait,
        wait_id: Some(wait_id.clone()),
        wait_kind: Some(wait_kind),
        hash: wait.fresh.hash,
        expires_at: Some(wait.deadline_at),
    };
    let waiting = RunWaiting {
        run_id: wait.run_id,
        wait_id: Some(wait_id),
        wait_kind,
        resume_token_id: Some(wait.fresh.id),
        deadline_at: Some(wait.deadline_at),
        reject_options: reject_options(&wait.question),
    };
    let records = vec![
        NewRecord::new(cx.now, minted),
        NewRecord::with_content(cx.now, waiting, "question", wait.question),
    ];
    Ok(Decision { records, outcome: Verdict::Asked })
}

/// Blocked again; nothing new is asked.
pub(super) fn block(
    state: &State,
    cx: &Context,
    run_id: RunId,
    wait_id: WaitId,
) -> Result<Decision, Refusal> {
    let run = open_run(state, &run_id)?;
    let Some(wait) = run.waits.get(&wait_id) else {
        return Err(Refusal::WaitNotFound { wait: wait_id });
    };
    if run.blocked {
        return Ok(Decision::already());
    }
    let event = RunWaiting {
        run_id,
        wait_id: Some(wait_id),
        wait_kind: wait.kind,
        resume_token_id: wait.token_id.clone(),
        deadline_at: wait.deadline_at,
        reject_options: wait.reject_options.clone(),
    };
    Ok(Decision::done(vec![NewRecord::new(cx.now, event)]))
}

/// An open wait that can still be answered, with its run.
fn answerable<'a>(
    state: &'a State,
    cx: &Context,
    wait_id: &WaitId,
) -> Result<(&'a Run, &'a state::Wait), Refusal> {
    let unknown = || Refusal::WaitNotFound { wait: wait_id.clone() };
    let run = state.facts.run.as_ref().filter(|run| run.is_open()).ok_or_else(unknown)?;
    let wait = run.waits.get(wait_id).ok_or_else(unknown)?;
    if is_past(wait.deadline_at, cx.now) && !planted::is(Bug::WaitAnsweredLate) {
        return Err(Refusal::WaitExpired { wait: wait_id.clone() });
    }
    Ok((run, wait))
}

pub(super) fn rotate(
    state: &State,
    cx: &Context,
    wait_id: &WaitId,
    fresh: NewToken,
) -> Result<Decision, Refusal> {
    let (run, wait) = answerable(state, cx, wait_id)?;
    let records = rotated(state, cx, run, wait_id, wait, fresh);
    // The caller did not get the first answer.
    Ok(if records.is_empty() { Decision::already() } else { Decision::done(records) })
}

/// No records if the fresh token is the wait's token already: revoked, it could not return.
fn rotated(
    state: &State,
    cx: &Context,
    run: &Run,
    wait_id: &WaitId,
    wait: &state::Wait,
    fresh: NewToken,
) -> Vec<NewRecord> {
    let old = wait.token_id.as_ref().filter(|id| state.tokens.contains_key(*id));
    if old == Some(&fresh.id) {
        return Vec::new();
    }
    let minted = TokenMinted {
        token_id: fresh.id,
        run_id: run.run_id.clone(),
        purpose: TokenPurpose::Wait,
        wait_id: Some(wait_id.clone()),
        wait_kind: Some(wait.kind),
        hash: fresh.hash,
        expires_at: wait.deadline_at,
    };
    // In this order: who looks in between must not find a wait that nothing answers.
    let mut records = vec![NewRecord::new(cx.now, minted)];
    records.extend(old.map(|old| {
        let event = TokenRevoked { token_id: old.clone(), reason: Reason::Rotated };
        NewRecord::new(cx.now, event)
    }));
    records
}

/// An answer from a caller who may control the session: a token is minted and consumed for the
/// record, in one batch.
pub(super) fn answer(
    state: &State,
    cx: &Context,
    wait_id: WaitId,
    fresh: NewToken,
    answer: Value,
) -> Result<Decision, Refusal> {
    let (run, wait) = answerable(state, cx, &wait_id)?;
    let digest = fresh.answer_key.digest(&answer);
    let used = Used { token_id: fresh.id.clone(), digest, answer };
    let records = rotated(state, cx, run, &wait_id, wait, fresh);
    let run_id = run.run_id.clone();
    Ok(consume(state, cx, records, run_id, Some(wait_id), used))
}

/// A token with the answer it was used for.
pub(super) struct Used {
    pub(super) token_id: TokenId,
    pub(super) digest: String,
    pub(super) answer: Value,
}

/// Appends the use of a token and the run's going on because of it. The two name each other, so
/// that a retry finds the first result.
pub(super) fn consume(
    state: &State,
    cx: &Context,
    mut records: Vec<NewRecord>,
    run_id: RunId,
    wait_id: Option<WaitId>,
    used: Used,
) -> Decision {
    let Used { token_id, digest, answer } = used;
    let result_seq = state.last_seq + records.len() as u64 + 2;
    let consumed = TokenConsumed {
        token_id: token_id.clone(),
        run_id: run_id.clone(),
        answer_digest: digest,
        result_seq,
    };
    let rejected = wait_id.as_ref().is_some_and(|wait_id| is_rejected(state, wait_id, &answer));
    let (boot_id, resume_token_id) = (cx.boot.clone(), Some(token_id));
    let resumed = RunResumed { run_id, boot_id, wait_id, resume_token_id, rejected };
    records.push(NewRecord::new(cx.now, consumed));
    records.push(NewRecord::with_content(cx.now, resumed, "answer", answer));
    Decision { records, outcome: Verdict::Resumed { result_seq } }
}

/// The ids of the options that reject what is asked, as far as a header holds them.
fn reject_options(question: &Value) -> Vec<String> {
    let options = question.get("options").and_then(Value::as_array);
    let rejects = |option: &&Value| {
        let kind = option.get("kind").and_then(Value::as_str);
        kind.is_some_and(|kind| kind.starts_with("reject"))
    };
    let ids = options.into_iter().flatten().filter(rejects).filter_map(option_id);
    let ids = ids.filter(|id| id.len() <= OPTION_ID_BYTES_MAX).take(REJECT_OPTIONS_MAX);
    ids.map(str::to_owned).collect()
}

/// Whether an answer rejects what a wait asks.
fn is_rejected(state: &State, wait_id: &WaitId, answer: &Value) -> bool {
    let wait = state.facts.run.as_ref().and_then(|run| run.waits.get(wait_id));
    let chosen = option_id(answer);
    wait.zip(chosen).is_some_and(|(wait, chosen)| {
        wait.reject_options.iter().any(|rejecting| rejecting == chosen)
    })
}

/// Whether an answer is one of those that a question offers. A question that offers none takes all;
/// `{"outcome": "cancelled"}` is always one.
pub fn fits(question: &Value, answer: &Value) -> bool {
    let Some(options) = question.get("options").and_then(Value::as_array) else { return true };
    if answer.get("outcome").is_some_and(|outcome| outcome == "cancelled") {
        return true;
    }
    let chosen = option_id(answer);
    planted::is(Bug::AnswerNotOffered)
        || chosen.is_some() && options.iter().any(|option| option_id(option) == chosen)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_one_that_was_offered() {
        let question = json!({"options": [{"optionId": "yes"}, {"optionId": "no"}]});
        assert!(fits(&question, &json!({"option_id": "no"})));
        assert!(fits(&json!({"options": [{"option_id": "no"}]}), &json!({"optionId": "no"})));
        assert!(fits(&question, &json!({"outcome": "cancelled"})));
        for answer in [json!(null), json!("yes"), json!({}), json!({"option_id": "perhaps"})] {
            assert!(!fits(&question, &answer), "{answer}");
        }
        assert!(fits(&json!({"question": "How many?"}), &json!(7)));
    }
}
