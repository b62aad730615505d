//! Tests of `piton-exec` from outside, as one program: a file for each subject.

mod formats;
mod leftovers;
