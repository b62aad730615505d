//! Contents are sealed by those who append them, before they queue: there are many of them and only
//! one writer. What was prepared is checked by the writer and made again if it does not fit.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use piton_core::chain;
use piton_core::id::SessionId;

use super::content::{self, Kept};
use crate::contract::{Batch, Entropy};
use crate::crypto::{ContentBinding, Subkeys};

/// Bytes of contents that are sealed beforehand: the caller may be a task among others, which must
/// not be held up.
const BYTES_MAX: usize = 64 * 1024;

/// The chain keys that the writer knows. Used only to prepare; the writer's word counts.
#[derive(Debug, Default)]
pub(crate) struct ChainKeys(RwLock<HashMap<SessionId, chain::Key>>);

impl ChainKeys {
    fn get(&self, session: &SessionId) -> Option<chain::Key> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(session).cloned()
    }

    pub(crate) fn know(&self, session: &SessionId, key: &chain::Key) {
        let mut keys = self.0.write().unwrap_or_else(PoisonError::into_inner);
        keys.insert(session.clone(), key.clone());
    }

    pub(crate) fn forget_one(&self, session: &SessionId) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(session);
    }

    pub(crate) fn forget(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// The contents of a batch's first records, sealed.
#[derive(Debug)]
pub(crate) struct Prepared {
    key: Arc<Subkeys>,
    chain_key: chain::Key,
    kept: Vec<Kept>,
}

impl Prepared {
    /// As much as can be prepared for a batch; `None` if nothing can.
    pub(crate) fn new(
        batch: &Batch,
        chain_keys: &ChainKeys,
        key: Arc<Subkeys>,
        entropy: &dyn Entropy,
    ) -> Option<Self> {
        let chain_key = chain_keys.get(&batch.session)?;
        let mut kept = Vec::with_capacity(batch.records.len());
        let mut bytes = 0;
        for (seq, record) in (batch.expected.saturating_add(1)..).zip(&batch.records) {
            bytes += record.payload.as_ref().map_or(0, |payload| payload.len());
            if bytes > BYTES_MAX {
                break;
            }
            let binding =
                ContentBinding { session: batch.session.as_str(), seq, kind: &record.kind };
            let payload = record.payload.as_deref();
            // What does not succeed here is tried again, and told, by the writer.
            let above = batch.records.compress_above();
            let Ok(Some(one)) =
                content::keep_inline(&key, &chain_key, binding, payload, above, entropy)
            else {
                break;
            };
            kept.push(one);
        }
        Some(Self { key, chain_key, kept })
    }

    /// Whether it was made for these keys.
    pub(crate) fn fits(&self, key: &Subkeys, chain_key: &chain::Key) -> bool {
        self.key.id() == key.id() && self.chain_key == *chain_key
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Kept> {
        self.kept.get(index)
    }
}
