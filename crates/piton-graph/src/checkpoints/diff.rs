//! What changed between two checkpoints.

use std::collections::BTreeMap;
use std::sync::Arc;

use piton_core::id::{CheckpointId, SessionId};
use piton_store::Store;
use serde::Serialize;
use serde_json::Value;

use super::{accumulated, entry_of};
use crate::error::Result;
use crate::log::Reader;

/// What changed from one checkpoint to another. The two may be of different lineages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckpointDiff {
    pub session_id: SessionId,
    pub from_checkpoint_id: CheckpointId,
    pub to_checkpoint_id: CheckpointId,
    /// Nodes that completed on the way; those of a branch that was left are in `nodes_undone`.
    pub nodes_completed: Vec<String>,
    pub nodes_undone: Vec<String>,
    pub memory: KeyChanges,
    pub outputs: KeyChanges,
    /// Keys that were set on the way and whose values are never saved.
    pub excluded_keys: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KeyChanges {
    pub added: BTreeMap<String, Value>,
    pub changed: BTreeMap<String, Changed>,
    pub removed: BTreeMap<String, Value>,
}

impl KeyChanges {
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }

    fn between(mut old: BTreeMap<String, Value>, new: BTreeMap<String, Value>) -> Self {
        let mut changes = Self::default();
        for (key, to) in new {
            match old.remove(&key) {
                None => {
                    changes.added.insert(key, to);
                }
                Some(from) if from != to => {
                    changes.changed.insert(key, Changed { from, to });
                }
                Some(_) => {}
            }
        }
        changes.removed = old;
        changes
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Changed {
    pub from: Value,
    pub to: Value,
}

/// Compares two checkpoints; `to`: the newest one if it is left out.
pub async fn diff(
    store: &Arc<dyn Store>,
    session: &SessionId,
    from: &CheckpointId,
    to: Option<&CheckpointId>,
) -> Result<CheckpointDiff> {
    let log = Reader::new(store, session.clone());
    let (folded, events) = log.load_readable().await?;
    let (from, to) = (entry_of(&folded, Some(from))?, entry_of(&folded, to)?);
    let before = folded.fold_at(&events, from.lineage, from.seq);
    let after = folded.fold_at(&events, to.lineage, to.seq);
    let owned = |memory: BTreeMap<String, Arc<Value>>| {
        memory.into_iter().map(|(key, value)| (key, (*value).clone())).collect()
    };
    let memory =
        KeyChanges::between(owned(log.memory(&before).await?), owned(log.memory(&after).await?));
    let outputs = KeyChanges::between(
        accumulated(&log, &before).await?.0,
        accumulated(&log, &after).await?.0,
    );
    let shared =
        before.execution_path.iter().zip(&after.execution_path).take_while(|(a, b)| a == b);
    let shared = shared.count();
    let is_set = |(key, value): &(&String, &piton_core::graph::MemoryEntry)| {
        value.excluded && before.memory.get(*key) != Some(value)
    };
    Ok(CheckpointDiff {
        session_id: session.clone(),
        from_checkpoint_id: from.checkpoint_id,
        to_checkpoint_id: to.checkpoint_id,
        nodes_completed: after.execution_path[shared..].to_vec(),
        nodes_undone: before.execution_path[shared..].to_vec(),
        memory,
        outputs,
        excluded_keys: after.memory.iter().filter(is_set).map(|(key, _)| key.clone()).collect(),
    })
}
