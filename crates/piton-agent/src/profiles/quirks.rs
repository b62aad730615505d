//! Where an agent differs from what the protocol says, as data.

use crate::acp::Wording;

/// Nothing special, unless it says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quirks {
    /// How it says that it does not know a conversation.
    pub wording: Wording,
    pub loads: Loads,
    /// What it tells again of a loaded conversation may come after its answer.
    pub replays_late: bool,
    /// What people should know; a sentence each.
    pub notes: &'static [&'static str],
}

/// When a conversation may be loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loads {
    #[default]
    AtOnce,
    /// Not in the minute in which it was opened.
    InAnotherMinute,
}
