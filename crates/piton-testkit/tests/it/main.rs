//! Tests of `piton-testkit` from outside, as one program: a file for each subject.

mod agents;
mod flushes;
mod kill;
mod tidy;
mod tokens;
