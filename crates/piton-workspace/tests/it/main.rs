//! Tests of `piton-workspace` from outside, as one program: a file for each subject.

mod files;
mod git;
mod worktree;
