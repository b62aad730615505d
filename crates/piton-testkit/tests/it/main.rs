//! Tests of `piton-testkit` from outside, as one program: a file for each subject.

mod agents;
mod dependencies;
mod flushes;
mod kill;
mod names;
mod regressions;
mod tidy;
mod tokens;
