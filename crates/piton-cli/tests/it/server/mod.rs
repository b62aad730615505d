//! The server as people start it: the real binary, real agents, real kills.
#![expect(clippy::unwrap_used, reason = "test helpers")]
#![expect(clippy::print_stderr, reason = "seeds of what is random")]

mod agents;
mod attacks;
mod broadcast;
mod care;
mod commands;
mod cuts;
mod example;
mod fuzz;
mod hostile;
mod idle;
mod index;
mod limited;
mod limits;
mod matrix;
mod operations;
mod permissions;
mod prompt_cost;
mod pty;
mod resuming;
mod secrets;
mod socket;
mod sockets;
mod streams;
mod terminal;
mod tls;
mod watching;
mod workspace;
mod worktrees;
mod world;
