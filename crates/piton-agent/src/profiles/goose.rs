//! Goose, which speaks the protocol itself. It says that a session is not found whatever kept it from
//! reading that session; there is nothing to tell the cases apart by.

use super::{Profile, Quirks};

pub(super) fn profile() -> Profile {
    Profile {
        install: "Install it with `brew install block-goose-cli`, or as its documentation says."
            .to_owned(),
        quirks: Quirks {
            notes: &[
                "Choose a model once with `goose configure`.",
                "It may give the id of a deleted session to a new one.",
            ],
            ..Quirks::default()
        },
        ..Profile::known("goose", "Goose", &["goose", "acp"])
    }
}
