//! The server as people start it: the real binary, real agents, real kills.
#![expect(clippy::unwrap_used, reason = "test helpers")]

mod attacks;
mod operations;
mod streams;
mod terminal;
mod world;
