//! The server as people start it: the real binary, real agents, real kills.
#![expect(clippy::unwrap_used, reason = "test helpers")]

mod agents;
mod attacks;
mod care;
mod commands;
mod operations;
mod pty;
mod streams;
mod terminal;
mod tls;
mod world;
