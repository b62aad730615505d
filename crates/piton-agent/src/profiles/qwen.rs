//! Qwen Code, which speaks the protocol itself.

use super::{Profile, Quirks, npm};

pub(super) fn profile() -> Profile {
    Profile {
        install: npm("@qwen-code/qwen-code"),
        node_major_min: Some(20),
        quirks: Quirks {
            notes: &["OPENAI_API_KEY, OPENAI_BASE_URL and OPENAI_MODEL point it at another model."],
            ..Quirks::default()
        },
        ..Profile::known("qwen", "Qwen Code", &["qwen", "--acp"])
    }
}
