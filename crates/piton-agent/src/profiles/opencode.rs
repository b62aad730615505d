//! The agent of that name, which speaks the protocol itself.

use super::{Profile, Quirks, npm};

pub(super) fn profile() -> Profile {
    Profile {
        install: npm("opencode-ai"),
        quirks: Quirks { notes: &["It takes 700 to 850 MiB of memory."], ..Quirks::default() },
        ..Profile::known("opencode", "OpenCode", &["opencode", "acp"])
    }
}
