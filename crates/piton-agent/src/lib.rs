//! Talking to an agent over a byte stream. Nothing here spawns a process or touches a disk:
//! [`Journal`] keeps what happened, [`ToolHost`] does what the agent asks its client to do.

pub mod acp;
pub mod echo;
mod host;
mod journal;
mod lines;
mod sniff;

pub use host::{HostError, TerminalExit, TerminalOutput, TerminalSpec, ToolHost};
pub use journal::{Journal, JournalClosed};
