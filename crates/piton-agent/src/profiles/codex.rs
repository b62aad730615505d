//! Codex, through the adapter that speaks the protocol for it.

use super::{Profile, Quirks, npm};
use crate::acp::{ErrorPattern, RefusalPatterns};

/// JSON-RPC's “invalid request”, under which its server says several things.
const INVALID_REQUEST: i64 = -32600;

pub(super) fn profile() -> Profile {
    Profile {
        install: npm("@agentclientprotocol/codex-acp"),
        quirks: Quirks {
            wording: RefusalPatterns {
                // What its server says, where an adapter hands it on as it is. A conversation in
                // which nothing was said yet has no rollout either: nothing is lost with it.
                refused: &[ErrorPattern {
                    code: Some(INVALID_REQUEST),
                    text: "no rollout found for thread id",
                }],
                // Another Codex has it open: it is there.
                unsure: &[
                    ErrorPattern { code: None, text: "already has an active writer" },
                    ErrorPattern { code: None, text: "in use by another codex client" },
                ],
                silence: false,
            },
            notes: &[
                "INITIAL_AGENT_MODE=workspace-write makes it ask before it does something.",
                "CODEX_HOME is where it keeps its conversations.",
            ],
            ..Quirks::default()
        },
        ..Profile::known("codex", "Codex", &["codex-acp"])
    }
}
