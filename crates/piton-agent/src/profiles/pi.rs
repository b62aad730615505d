//! Pi, through the adapter that speaks the protocol for it.

use super::{Profile, Quirks, npm};
use crate::acp::RefusalPatterns;

pub(super) fn profile() -> Profile {
    Profile {
        install: npm("pi-acp").trim_end_matches('.').to_owned() + ", beside `pi` itself.",
        quirks: Quirks {
            // With a conversation's file gone it says that it has loaded it, and begins an empty one.
            wording: RefusalPatterns { silence: true, ..RefusalPatterns::default() },
            notes: &["Its models are in ~/.pi/agent/models.json."],
            ..Quirks::default()
        },
        ..Profile::known("pi", "Pi", &["pi-acp"])
    }
}
