//! Tests of `piton-agent` from outside, as one program: a file for each subject.

mod again;
mod common;
mod printed;
mod process;
mod profiles;
mod puppet;
mod sdk;
mod sessions;
mod with_echo;
