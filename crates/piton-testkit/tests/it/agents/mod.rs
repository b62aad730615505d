//! Real servers, real agentctls and real agents, killed with SIGKILL. What the agent said is in
//! the log once and in order, a pending question can still be answered, nothing is left running.

#![expect(clippy::print_stdout, reason = "seeds, for who has to replay them")]

mod at;
mod clocks;
mod copies;
mod deaths;
mod fixture;
mod full_disks;
mod leftover_processes;
mod long_messages;
mod long_paths;
mod mixed_kills;
mod not_agents;
mod one_shot;
mod outliving;
mod two_servers;
mod unreachable;
mod upgrade;
