//! Tests of `piton-workspace` from outside, as one program: a file for each subject.

mod files;
mod finish;
mod git;
mod snapshot;
mod snapshot_faults;
mod snapshot_git;
mod snapshot_kills;
mod truth;
mod worktree;
