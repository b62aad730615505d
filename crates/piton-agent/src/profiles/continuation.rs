//! How an agent's own command line continues a conversation.

use piton_core::command_line::CommandLine;

/// A command line, and the program that it is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Continuation {
    /// The program and what always follows it, where it is another than the profile's command, as
    /// with an adapter that speaks the protocol for it. Empty: it is the same.
    pub command: Vec<String>,
    pub line: CommandLine,
}
