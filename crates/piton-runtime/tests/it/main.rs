//! Tests of `piton-runtime` from outside, as one program: a file for each subject.

mod common;
mod engine;
mod masking;
mod offline;
mod removal;
mod repo;
mod service;
mod supervisor;
mod worktrees;
mod worktrees_cleanup;
