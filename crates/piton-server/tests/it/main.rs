//! The server in this process: its router over a memory store and a scripted executor, on loopback.
#![expect(clippy::unwrap_used, reason = "tests")]

mod description;
mod problems;
mod same_methods;
mod scopes;
mod status;
mod world;
