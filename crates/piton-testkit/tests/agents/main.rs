//! Real servers, real agentctls and real agents, killed with SIGKILL. What the agent said is in
//! the log once and in order, a pending question can still be answered, nothing is left running.

#![expect(clippy::print_stdout, reason = "seeds, for who has to replay them")]

mod bench_of_work;
mod copies;
mod deaths;
mod misfits;
mod outliving;
mod upgrade;
