//! What this process knows to be secret, and the one gate that every record passes on its way to
//! the disk. What is learned in one session is masked in all of them, for as long as the process
//! lives: it cannot be kept, since it must not be written.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use piton_core::NewRecord;
use piton_core::event::ParseError;
use piton_core::mask::Masker;

#[derive(Debug)]
pub(crate) struct Masking {
    current: RwLock<Arc<Masker>>,
}

impl Masking {
    pub(crate) fn new(masker: Arc<Masker>) -> Self {
        Self { current: RwLock::new(masker) }
    }

    pub(crate) fn current(&self) -> Arc<Masker> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes records as they may be written; gives those that changed as they were, by their place.
    /// What stands under an excluded key in one of them is masked in all of them, and from now on.
    pub(crate) fn mask(
        &self,
        records: &mut [NewRecord],
    ) -> Result<BTreeMap<usize, NewRecord>, ParseError> {
        let mut masker = self.current();
        let values: Vec<String> =
            records.iter().flat_map(|record| masker.unknown_values(record)).collect();
        if !values.is_empty() {
            masker = self.learn(&values);
        }
        let mut originals = BTreeMap::new();
        for (at, record) in records.iter_mut().enumerate() {
            if masker.may_concern(record) {
                let safe = masker.record(record.clone())?;
                originals.insert(at, std::mem::replace(record, safe));
            }
        }
        Ok(originals)
    }

    fn learn(&self, values: &[String]) -> Arc<Masker> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let learned = current.learn(values);
        if learned.forgotten > 0 {
            tracing::warn!(
                forgotten = learned.forgotten,
                "more values of excluded keys than are remembered: the oldest are no longer masked elsewhere"
            );
        }
        *current = Arc::new(learned.masker);
        Arc::clone(&current)
    }
}
