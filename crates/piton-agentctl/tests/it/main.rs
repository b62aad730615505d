//! Tests of `piton-agentctl` from outside, as one program: a file for each subject.

mod agent;
mod ctl;
mod full_disk;
mod one_shot;
mod server;
mod standalone;
