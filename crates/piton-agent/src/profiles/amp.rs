//! Amp. It does not speak the protocol: it is run once for each prompt, which it reads from its input,
//! and its command line continues a thread or copies one.
//!
//! A copy is made by a command of its own, which prints the new thread's id; that one is continued
//! then. What it says about a thread that it does not know was not seen.

use piton_core::resume::Abilities;

use super::{AGENT_SESSION_ID, CommandLine, Continuation, Output, Profile, Quirks, npm, texts};

pub(super) fn profile() -> Profile {
    Profile {
        install: npm("@sourcegraph/amp"),
        abilities: Abilities { command_line: true, history: true, ..Abilities::default() },
        continuation: Some(Continuation {
            command: Vec::new(),
            line: CommandLine {
                new: texts(&["--execute", "--stream-json"]),
                resume: texts(&[
                    "threads",
                    "continue",
                    AGENT_SESSION_ID,
                    "--execute",
                    "--stream-json",
                ]),
                fork: texts(&["threads", "fork", AGENT_SESSION_ID]),
                output: Output::StreamJson,
                ..CommandLine::default()
            },
        }),
        quirks: Quirks {
            notes: &["Its threads are kept by its makers' server: log in with `amp login`."],
            ..Quirks::default()
        },
        ..Profile::known("amp", "Amp", &["amp"])
    }
}
