//! Auggie, of Augment Code. It starts without its conversation, and its first prompt carries the
//! history. Later releases are said to load; if they advertise it, that counts.

use piton_core::resume::Abilities;

use super::{Profile, Quirks, npm};

pub(super) fn profile() -> Profile {
    Profile {
        install: npm("@augmentcode/auggie"),
        abilities: Abilities { history: true, ..Abilities::default() },
        quirks: Quirks {
            notes: &["Log in with `auggie login`, or set AUGMENT_SESSION_AUTH."],
            ..Quirks::default()
        },
        ..Profile::known("auggie", "Auggie", &["auggie", "--acp"])
    }
}
