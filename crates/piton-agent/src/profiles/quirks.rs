//! Where an agent differs from what the protocol says, as data.

/// Nothing special, unless it says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quirks {
    /// Errors that disown an id, though the general rule does not see it.
    pub refused: &'static [Words],
    /// Errors that leave it open, though they may look like a refusal. These count more.
    pub unsure: &'static [Words],
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

/// A part of an error's text, in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// Under this code alone; `None`: whatever the code.
    pub code: Option<i64>,
    pub text: &'static str,
}

impl Words {
    /// `said` is in lower case.
    pub(super) fn are_in(&self, code: i64, said: &str) -> bool {
        self.code.is_none_or(|wanted| wanted == code) && said.contains(self.text)
    }
}
