//! Tests of `piton-graph` from outside, on a real store, as one program: a file for each subject.

mod bad_graphs;
mod checkpoints;
mod examples;
mod killed;
mod running;
mod waiting;
mod world;
