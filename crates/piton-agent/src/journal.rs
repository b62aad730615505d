//! Where what happened is kept before anybody acts on it.

use std::fmt;

use futures_util::future::BoxFuture;
use piton_core::spool::Note;

/// Keeps notes in order.
pub trait Journal: Send + Sync + fmt::Debug {
    /// Resolves when the notes are written, and flushed if one of them says that it must be
    /// ([`piton_core::spool::Fact::is_flushed`]). Takes as long as it takes: the agent is not read
    /// from meanwhile, which is how a full spool holds it back. Nothing is ever dropped.
    fn keep(&self, notes: Vec<Note>) -> BoxFuture<'_, Result<(), JournalClosed>>;
}

/// Nothing is kept any more: the execution ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The spool is closed")]
pub struct JournalClosed;
