//! Real servers, real agentctls and real agents, killed with SIGKILL. What the agent said is in
//! the log once and in order, a pending question can still be answered, nothing is left running.

#![expect(clippy::print_stdout, reason = "seeds, for who has to replay them")]

mod at;
mod bench_of_work;
mod by_turn;
mod clocks;
mod copies;
mod deaths;
mod full_disks;
mod long_messages;
mod long_paths;
mod misfits;
mod mixed_kills;
mod outliving;
mod strays;
mod two_servers;
mod unreachable;
mod upgrade;
