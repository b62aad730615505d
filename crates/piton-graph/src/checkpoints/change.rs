//! Changes to a session that nothing runs: checkpoints deleted or pruned, waits answered.

use std::sync::Arc;

use piton_core::decide::{self, Command, Refusal};
use piton_core::event::{CheckpointDeleted, CheckpointPruned};
use piton_core::graph::CheckpointConfig;
use piton_core::id::{CheckpointId, SessionId, WaitId};
use piton_core::token::NewToken;
use piton_store::Store;
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::log::{Log, Reader};
use crate::store::{GraphStore, new_token};

/// Checkpoints that one record prunes.
pub(crate) const PRUNED_RECORD_MAX: usize = 500;

/// Changes a session that no living process owns: takes the lease, writes, gives it back.
async fn change<T>(
    store: &GraphStore,
    session: &SessionId,
    decide: impl AsyncFnOnce(&mut Log) -> Result<T>,
) -> Result<T> {
    let _claim = store.claim(session)?;
    let config = CheckpointConfig::default();
    let (mut log, _) = Log::load(store, session.clone(), &config).await?;
    let config = CheckpointConfig::of([store.checkpoint_options(), log.folded.index.options()]);
    log.configure(&config)?;
    log.take_lease()?;
    let decided = decide(&mut log).await?;
    log.release();
    log.commit().await?;
    Ok(decided)
}

/// Deletes a checkpoint. False: there was none of this id.
pub async fn delete(
    store: &GraphStore,
    session: &SessionId,
    checkpoint: &CheckpointId,
) -> Result<bool> {
    let (folded, _) = Reader::new(store.store(), session.clone()).load().await?;
    if folded.index.get(checkpoint).is_none() {
        return Ok(false);
    }
    // What may not be pruned may not be deleted.
    let all = folded.index.prune_plan(0, false);
    if !all.contains(checkpoint) {
        let (checkpoint, why) =
            (checkpoint.clone(), "a lineage, a wait or a resume begins with it");
        return Err(Error::CheckpointInUse { checkpoint, why });
    }
    let checkpoint_id = checkpoint.clone();
    change(store, session, async |log| {
        log.push_event(CheckpointDeleted { checkpoint_id });
        Ok(true)
    })
    .await
}

/// Prunes old checkpoints so that `keep_count` remain; says which.
pub async fn prune(
    store: &GraphStore,
    session: &SessionId,
    keep_count: usize,
    keep_clean_only: bool,
) -> Result<Vec<CheckpointId>> {
    change(store, session, async |log| {
        let plan = log.folded.index.prune_plan(keep_count, keep_clean_only);
        for checkpoint_ids in plan.chunks(PRUNED_RECORD_MAX) {
            let checkpoint_ids = checkpoint_ids.to_vec();
            log.push_event(CheckpointPruned { checkpoint_ids });
        }
        Ok(plan)
    })
    .await
}

/// What [`prune`] would prune now. Changes nothing.
pub async fn prune_plan(
    store: &Arc<dyn Store>,
    session: &SessionId,
    keep_count: usize,
    keep_clean_only: bool,
) -> Result<Vec<CheckpointId>> {
    let (folded, _) = Reader::new(store, session.clone()).load().await?;
    Ok(folded.index.prune_plan(keep_count, keep_clean_only))
}

/// Answers a wait of a graph that nothing runs. The graph continues when the session is resumed.
pub async fn answer(
    store: &GraphStore,
    session: &SessionId,
    wait_id: &WaitId,
    answer: Value,
) -> Result<()> {
    change(store, session, async |log| {
        let run = log.folded.session.facts.run.clone();
        let wait = run.as_ref().and_then(|run| run.waits.get(wait_id));
        let Some((run, wait)) = run.as_ref().zip(wait) else {
            return Err(Refusal::WaitNotFound { wait: wait_id.clone() }.into());
        };
        let question = log.field(wait.since_seq, "question").await?.unwrap_or(Value::Null);
        // Nothing that runs could take it, and it must not be written.
        let keys = excluded_keys(&question);
        if !keys.is_empty() {
            return Err(Error::ValuesRequired { keys });
        }
        let answer = chosen(&question, answer);
        if !decide::fits(&question, &answer) {
            return Err(Refusal::AnswerInvalid { wait: wait_id.clone() }.into());
        }
        let fresh = NewToken::from(&new_token()?);
        log.decide(Command::AnswerByWait { wait_id: wait_id.clone(), fresh, answer })?;
        let other = run.waits.keys().find(|id| *id != wait_id).cloned();
        let run_id = run.run_id.clone();
        match other {
            // It still waits for the others.
            Some(wait_id) => log.decide(Command::Block { run_id, wait_id })?,
            None => log.decide(Command::Pause { run_id })?,
        };
        Ok(())
    })
    .await
}

/// The excluded keys that the node which asked can write: the answer may be their value.
pub fn excluded_keys(question: &Value) -> Vec<String> {
    let keys = question.get("excluded_keys").and_then(Value::as_array).into_iter().flatten();
    keys.filter_map(|key| Some(key.as_str()?.to_owned())).collect()
}

/// An option can be named by its text alone.
pub(crate) fn chosen(question: &Value, answer: Value) -> Value {
    match answer {
        Value::String(option) if question.get("options").is_some() => {
            Value::Object(Map::from_iter([("option_id".to_owned(), option.into())]))
        }
        other => other,
    }
}
