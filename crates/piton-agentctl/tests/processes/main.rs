//! The parts of agentctl that start processes, in this process, which plays agentctl: it owns what
//! descends from it and makes itself the subreaper of orphans. A program of its own, because the other
//! tests start processes that are none of an execution's.
#![cfg(target_os = "linux")]

mod common;
mod host;
mod shells;
mod tree;
