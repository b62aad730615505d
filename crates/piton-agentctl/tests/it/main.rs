//! Tests of `piton-agentctl` from outside, as one program: a file for each subject.

mod agent;
mod by_turn;
mod ctl;
mod full_disk;
mod server;
mod standalone;
