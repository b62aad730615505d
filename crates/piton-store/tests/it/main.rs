//! Tests of `piton-store` from outside, as one program: a file for each subject.

mod formats;
