//! Tests of `piton-graph` from outside, on a real store, as one program: a file for each subject.
#![expect(
    clippy::unwrap_used,
    clippy::large_futures,
    clippy::print_stdout,
    clippy::duration_suboptimal_units,
    reason = "tests"
)]

mod artifacts;
mod bad_graphs;
mod checkpoints;
mod closed;
mod damage;
mod examples;
mod expiry;
mod failures;
mod killed;
mod leftovers;
mod options;
mod parts;
mod redacted;
mod running;
mod samples;
mod secrets;
mod subgraphs;
mod waiting;
mod world;
