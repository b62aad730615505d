//! What this process knows to be secret. What was given is masked in all logs. What is learned from
//! the records of one log is masked in this log only, since content comes from anywhere and must not
//! change what others write; and for as long as the process lives: it cannot be kept, since it must
//! not be written.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use piton_core::NewRecord;
use piton_core::event::ParseError;
use piton_core::id::SessionId;
use piton_core::mask::Masker;

/// Sessions of which it is kept what they taught; beyond it the longest unused are forgotten.
const SESSIONS_MAX: usize = 256;
/// All that is looked for in these sessions, in bytes.
const BYTES_MAX: usize = 4 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Masking {
    given: Arc<Masker>,
    learned: Mutex<Learned>,
}

#[derive(Debug, Default)]
struct Learned {
    sessions: HashMap<SessionId, Known>,
    bytes: usize,
    uses: u64,
}

#[derive(Debug)]
struct Known {
    masker: Arc<Masker>,
    used: u64,
}

impl Masking {
    pub(crate) fn new(given: Arc<Masker>) -> Self {
        Self { given, learned: Mutex::default() }
    }

    /// What is known in a session.
    pub(crate) fn current(&self, session: &SessionId) -> Arc<Masker> {
        let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        learned.uses += 1;
        let uses = learned.uses;
        let Some(known) = learned.sessions.get_mut(session) else {
            return Arc::clone(&self.given);
        };
        known.used = uses;
        Arc::clone(&known.masker)
    }

    /// Masks in place; returns the originals of the records that changed, by their index. A value
    /// under an excluded key in one of them is masked in all of them, and from now on.
    pub(crate) fn mask(
        &self,
        session: &SessionId,
        records: &mut [NewRecord],
    ) -> Result<BTreeMap<usize, NewRecord>, ParseError> {
        let mut masker = self.current(session);
        let values: Vec<String> =
            records.iter().flat_map(|record| masker.unknown_values(record)).collect();
        if !values.is_empty() {
            masker = self.learn(session, &masker, &values);
        }
        let mut originals = BTreeMap::new();
        for (at, record) in records.iter_mut().enumerate() {
            if masker.may_change(record) {
                let safe = masker.record(record.clone())?;
                originals.insert(at, std::mem::replace(record, safe));
            }
        }
        Ok(originals)
    }

    /// Only a session's one writer learns for it.
    fn learn(&self, session: &SessionId, masker: &Arc<Masker>, values: &[String]) -> Arc<Masker> {
        let learned = match masker.learn(values) {
            Ok(learned) => learned,
            // What was known stays known, and these are masked under their keys.
            Err(error) => {
                tracing::error!(%session, %error, "values of excluded keys are not masked elsewhere");
                return Arc::clone(masker);
            }
        };
        if learned.forgotten > 0 {
            tracing::warn!(
                %session,
                forgotten = learned.forgotten,
                "more values of excluded keys than are remembered: the oldest are no longer masked elsewhere"
            );
        }
        let masker = Arc::new(learned.masker);
        let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        let forgotten = learned.keep(session, &masker);
        if forgotten > 0 {
            tracing::warn!(
                sessions = forgotten,
                "values of excluded keys in more sessions than are remembered: those of the longest unused are no longer masked elsewhere"
            );
        }
        masker
    }
}

impl Learned {
    /// How many other sessions were forgotten to make room.
    fn keep(&mut self, session: &SessionId, masker: &Arc<Masker>) -> usize {
        self.uses += 1;
        let known = Known { masker: Arc::clone(masker), used: self.uses };
        self.bytes += masker.bytes();
        if let Some(before) = self.sessions.insert(session.clone(), known) {
            self.bytes -= before.masker.bytes();
        }
        let mut forgotten = 0;
        while self.sessions.len() > SESSIONS_MAX || self.bytes > BYTES_MAX {
            let others = self.sessions.iter().filter(|(id, _)| *id != session);
            let oldest = others.min_by_key(|(_, known)| known.used).map(|(id, _)| id.clone());
            let Some(gone) = oldest.and_then(|id| self.sessions.remove(&id)) else { break };
            self.bytes -= gone.masker.bytes();
            forgotten += 1;
        }
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_learned_is_limited_over_all_sessions() {
        let masking = Masking::new(Arc::default());
        let session = |i: usize| format!("s-{i}").parse::<SessionId>().unwrap();
        let value = |i: usize| format!("value-of-{i}-{}", "x".repeat(4_000));
        let knows = |i: usize| masking.current(&session(i)).text(&value(i)) != value(i);
        let learn = |i: usize, values: &[String]| {
            masking.learn(&session(i), &masking.current(&session(i)), values);
        };
        for i in 0..=SESSIONS_MAX {
            learn(i, &[value(i)]);
            assert!(knows(0), "what is used is kept");
        }
        assert!(!knows(1));
        assert!(knows(SESSIONS_MAX));
        for i in 0..80 {
            let values: Vec<_> = (0..15).map(|n| value(i + n)).collect();
            learn(i, &values);
            assert!(knows(i));
            let learned = masking.learned.lock().unwrap();
            assert!(learned.bytes <= BYTES_MAX && learned.sessions.len() <= SESSIONS_MAX);
        }
        assert!(masking.learned.lock().unwrap().sessions.len() < SESSIONS_MAX, "by bytes, too");
    }
}
