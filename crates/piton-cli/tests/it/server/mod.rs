//! The server as people start it: the real binary, real agents, real kills.
#![expect(clippy::unwrap_used, reason = "test helpers")]
#![expect(clippy::print_stderr, reason = "seeds of what is random")]

mod adopted;
mod agents;
pub(crate) mod attacks;
pub(crate) mod broadcast;
mod care;
mod commands;
mod cuts;
mod drawn;
mod drawn_graphs;
mod drawn_keys;
mod drawn_requests;
mod example;
mod features;
mod fuzz;
mod graphs;
pub(crate) mod hostile;
mod idle;
mod index;
mod interruptions;
mod limited;
pub(crate) mod limits;
mod lines;
mod matrix;
mod notify;
mod operations;
pub(crate) mod permissions;
mod prompt_cost;
mod pty;
mod queue;
mod queue_kills;
mod resuming;
mod rewind;
mod rewind_faults;
mod rules;
pub(crate) mod secrets;
pub(crate) mod settings;
mod socket;
mod sockets;
mod streams;
pub(crate) mod terminal;
mod tls;
mod watching;
mod workspace;
mod worktrees;
mod world;
