//! Talking to an agent over a byte stream. The client ([`acp`]) spawns no process and touches no
//! disk: [`Journal`] keeps what happened, [`ToolHost`] does what the agent asks its client to do.
//! An agent that speaks no protocol is read by [`one_shot`], into the same words. What is
//! known of agents before they are asked is in [`profiles`].

pub mod acp;
mod envelope;
mod host;
mod journal;
mod lines;
pub mod one_shot;
pub mod profiles;

pub use host::{HostError, TerminalExit, TerminalOutput, TerminalSpec, ToolHost};
pub use journal::{Journal, JournalClosed};
