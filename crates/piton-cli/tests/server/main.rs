//! The server as people start it: the real binary, real agents, real kills.
#![expect(clippy::unwrap_used, reason = "test helpers")]
#![expect(clippy::print_stderr, reason = "seeds of what is random")]

mod attacks;
mod cuts;
mod index;
mod operations;
mod socket;
mod sockets;
mod streams;
mod terminal;
mod workspace;
mod world;
