//! Where an agent differs from what the protocol says, as data.

use crate::acp::RefusalPatterns;

/// Nothing special, unless it says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quirks {
    /// How it says that it does not know a conversation.
    pub wording: RefusalPatterns,
    pub loads: LoadTiming,
    /// What it tells again of a loaded conversation may come after its answer.
    pub replays_late: bool,
    /// It fails where the client offers to read and write files, and works where it does not.
    pub no_client_files: bool,
    /// The setting that its conversations depend on, if it has one.
    pub retention: Option<Retention>,
    /// What people should know; a sentence each.
    pub notes: &'static [&'static str],
}

/// A setting without which an agent deletes conversations by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Its settings, below the home folder; JSON.
    pub file: &'static str,
    /// Where the setting is in them.
    pub pointer: &'static str,
    /// As people write it.
    pub setting: &'static str,
    /// What keeps the conversations.
    pub keeps: bool,
}

/// When a conversation may be loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadTiming {
    #[default]
    AtOnce,
    /// Not in the minute in which it was opened.
    InAnotherMinute,
}
