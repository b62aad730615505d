//! GitHub Copilot's command line.

use super::{Profile, Quirks, npm};

pub(super) fn profile() -> Profile {
    Profile {
        install: npm("@github/copilot"),
        node_major_min: Some(22),
        quirks: Quirks {
            notes: &[
                "COPILOT_OFFLINE=true keeps it from calling home.",
                "COPILOT_PROVIDER_BASE_URL, _TYPE and _API_KEY point it at another model.",
            ],
            ..Quirks::default()
        },
        ..Profile::known("copilot", "GitHub Copilot", &["copilot", "--acp"])
    }
}
