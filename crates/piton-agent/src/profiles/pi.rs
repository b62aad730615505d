//! Pi, through the adapter that speaks the protocol for it.

use super::{Profile, Quirks, npm};

pub(super) fn profile() -> Profile {
    Profile {
        install: npm("pi-acp").trim_end_matches('.').to_owned() + ", beside `pi` itself.",
        quirks: Quirks {
            notes: &["Its models are in ~/.pi/agent/models.json."],
            ..Quirks::default()
        },
        ..Profile::known("pi", "Pi", &["pi-acp"])
    }
}
