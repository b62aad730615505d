//! Whether an agent said that it does not know a session id. Agents disagree about the code
//! (-32002, -32602, -32603), so the words count too. In doubt the id is kept (law 9).

use piton_core::planted::{self, Bug};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The agent does not know the session.
    Refused,
    /// It may know it, and something else went wrong.
    Ambiguous,
}

pub(super) const RESOURCE_NOT_FOUND: i64 = -32002;
const INVALID_PARAMS: i64 = -32602;
const INTERNAL: i64 = -32603;

/// How one agent says it, where the general rule would take it for something else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusalPatterns {
    /// Errors that disown an id, though the general rule does not see it.
    pub refused: &'static [ErrorPattern],
    /// Errors that leave it open, though they may look like a refusal. These count more.
    pub unsure: &'static [ErrorPattern],
    /// It replays a conversation before it answers that it has loaded it. If it replays nothing, it has
    /// lost the conversation and began an empty one.
    pub silence: bool,
}

/// A part of an error's text, in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorPattern {
    /// Under this code alone; `None`: whatever the code.
    pub code: Option<i64>,
    pub text: &'static str,
}

impl RefusalPatterns {
    /// What an error of `session/load` or `session/resume` means for the id. Where neither these
    /// words nor the general rule are sure, the id is kept.
    pub fn refusal(&self, code: i64, message: &str) -> Refusal {
        let said = message.to_lowercase();
        let is_in = |words: &ErrorPattern| {
            words.code.is_none_or(|wanted| wanted == code) && said.contains(words.text)
        };
        if self.unsure.iter().any(is_in) {
            Refusal::Ambiguous
        } else if self.refused.iter().any(is_in) {
            Refusal::Refused
        } else {
            refusal(code, message)
        }
    }
}

/// `message` is the error's message and whatever text came with it.
pub fn refusal(code: i64, message: &str) -> Refusal {
    let message = message.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
    let is_conversation = has(&["session", "conversation", "thread", "rollout"]);
    let is_missing = has(&[
        "not found",
        "notfound",
        "not_found",
        "no such",
        "unknown",
        "does not exist",
        "doesn't exist",
        "not exist",
        "no conversation",
        "no rollout",
        "no session",
        "no previous sessions",
        "invalid session id",
        "invalid session identifier",
    ]);
    // A missing folder, file or command says nothing about the session.
    let is_other = has(&["cwd", "director", "folder", "enoent", "no such file", "mcp", "command"]);
    let refused = match code {
        RESOURCE_NOT_FOUND => !is_other,
        INVALID_PARAMS | INTERNAL => is_conversation && is_missing && !is_other,
        _ => false,
    };
    if refused || planted::is(Bug::AnyErrorDisowns) { Refusal::Refused } else { Refusal::Ambiguous }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_names_the_session_as_unknown_is_a_refusal() {
        for (code, message) in [
            (-32002, "Resource not found"),
            (-32002, "Resource not found: 3f2b"),
            (-32002, "Session not found"),
            (-32602, "Invalid params: unknown session abc"),
            (-32602, "Session \"abc\" does not exist"),
            (-32602, "Invalid session identifier \"abc\""),
            (-32603, "Internal error {\"details\":\"Session not found: abc\"}"),
            (-32603, "No conversation found with session ID: abc"),
            (-32603, "no rollout found for thread id abc"),
            (
                -32603,
                "Internal error {\"details\":\"No previous sessions found for this project.\"}",
            ),
        ] {
            assert_eq!(refusal(code, message), Refusal::Refused, "{code} {message}");
        }
        for (code, message) in [
            (-32002, "Resource not found: cwd /repo"),
            (-32002, "ENOENT: no such file or directory"),
            (-32602, "Invalid params"),
            (-32602, "Missing field mcpServers"),
            (-32602, "Unknown model"),
            (-32603, "Internal error"),
            (-32603, "Session is locked by another process"),
            (-32603, "Failed to load session: database is locked"),
            (-32603, "Session folder not found"),
            (-32000, "Authentication required"),
            (-32601, "Method not found: session/load"),
            (-32800, "Request cancelled"),
            (500, "Session not found"),
        ] {
            assert_eq!(refusal(code, message), Refusal::Ambiguous, "{code} {message}");
        }
    }
}
