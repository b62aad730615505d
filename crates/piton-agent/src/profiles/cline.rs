//! Cline's command line. Several releases advertise `session/load` and then say that there is no such
//! method: the id is kept for a release that has it; until then a prompt can carry the history.

use piton_core::resume::Abilities;

use super::{Profile, Quirks, npm};

pub(super) fn profile() -> Profile {
    Profile {
        install: npm("cline"),
        abilities: Abilities { native: true, command_line: false, history: true },
        quirks: Quirks {
            notes: &["Some releases advertise that they load, and cannot."],
            ..Quirks::default()
        },
        ..Profile::known("cline", "Cline", &["cline", "--acp"])
    }
}
