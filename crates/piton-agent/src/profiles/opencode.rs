//! The agent of that name, which speaks the protocol itself.

use super::{Profile, Quirks, npm};
use crate::acp::{ErrorPattern, RefusalPatterns};

const INTERNAL: i64 = -32603;

pub(super) fn profile() -> Profile {
    Profile {
        install: npm("opencode-ai"),
        quirks: Quirks {
            wording: RefusalPatterns {
                // Its session service does not find the session; the error's data says no more.
                refused: &[ErrorPattern { code: Some(INTERNAL), text: r#"{"service":"session"}"# }],
                ..RefusalPatterns::default()
            },
            notes: &["It takes 700 to 850 MiB of memory."],
            ..Quirks::default()
        },
        ..Profile::known("opencode", "OpenCode", &["opencode", "acp"])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acp::Refusal;

    #[test]
    fn its_session_service_disowns_an_id_without_words() {
        let refusal = |message| profile().refusal(INTERNAL, message);
        assert_eq!(refusal(r#"Internal error {"service":"session"}"#), Refusal::Refused);
        assert_eq!(refusal(r#"Internal error {"service":"provider"}"#), Refusal::Ambiguous);
    }
}
