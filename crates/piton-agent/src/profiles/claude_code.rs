//! Claude Code, through the adapter that speaks the protocol for it.
//!
//! The adapter resumes natively. `claude` itself is continued by its command line;
//! `--resume-session-at` is not in its help, and counts with `-p` alone.

use super::{
    AGENT_MESSAGE_ID, AGENT_SESSION_ID, CommandLine, Continuation, Output, Profile, Quirks, npm,
    texts,
};

pub(super) fn profile() -> Profile {
    Profile {
        install: npm("@agentclientprotocol/claude-agent-acp"),
        // It takes this for a sign that it was started by itself, and refuses.
        env_remove: texts(&["CLAUDECODE"]),
        continuation: Some(Continuation {
            command: texts(&["claude", "-p", "--verbose", "--output-format", "stream-json"]),
            line: CommandLine {
                resume: texts(&["--resume", AGENT_SESSION_ID]),
                resume_at: texts(&[
                    "--resume",
                    AGENT_SESSION_ID,
                    "--resume-session-at",
                    AGENT_MESSAGE_ID,
                ]),
                fork: texts(&["--resume", AGENT_SESSION_ID, "--fork-session"]),
                output: Output::StreamJson,
                ..CommandLine::default()
            },
        }),
        node_major_min: Some(22),
        quirks: Quirks {
            notes: &[
                "An older Node.js makes npm install an old release without a word.",
                "ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL and CLAUDE_CONFIG_DIR are its own settings.",
            ],
            ..Quirks::default()
        },
        ..Profile::known("claude-code", "Claude Code", &["claude-agent-acp"])
    }
}
