//! Tests of `piton-agent` from outside, as one program: a file for each subject.

mod again;
mod common;
mod one_shot;
mod process;
mod profiles;
mod scripted;
mod sdk;
mod sessions;
mod with_echo;
