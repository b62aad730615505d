//! Titles that were derived from prompts, so that a page of sessions does not read every log. A cache:
//! what is redacted is forgotten.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use piton_core::id::SessionId;

/// Over this the cache begins again.
const TITLES_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Titles(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    titles: HashMap<SessionId, String>,
    /// Counts what was forgotten.
    generation: u64,
}

/// When a log was read: what is forgotten after it is not kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadAt(u64);

impl Titles {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before a log is read.
    pub(crate) fn begin(&self) -> ReadAt {
        ReadAt(self.lock().generation)
    }

    pub(crate) fn keep(&self, session: &SessionId, title: Option<String>, read: ReadAt) {
        let mut kept = self.lock();
        let Some(title) = title.filter(|_| kept.generation == read.0) else { return };
        if kept.titles.len() >= TITLES_MAX {
            kept.titles.clear();
        }
        kept.titles.insert(session.clone(), title);
    }

    pub(crate) fn get(&self, session: &SessionId) -> Option<String> {
        self.lock().titles.get(session).cloned()
    }

    pub(crate) fn forget(&self, session: &SessionId) {
        let mut kept = self.lock();
        kept.generation += 1;
        kept.titles.remove(session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that read the log before the redaction must not bring the text back.
    #[test]
    fn what_was_read_before_it_was_forgotten_is_not_kept() {
        let (titles, session) = (Titles::default(), "s".parse::<SessionId>().unwrap());
        titles.keep(&session, Some("one".to_owned()), titles.begin());
        assert_eq!(titles.get(&session).as_deref(), Some("one"));
        let read = titles.begin();
        titles.forget(&session);
        titles.keep(&session, Some("one".to_owned()), read);
        assert_eq!(titles.get(&session), None);
        titles.keep(&session, None, titles.begin());
        assert_eq!(titles.get(&session), None, "a session without a prompt may get one");
    }
}
