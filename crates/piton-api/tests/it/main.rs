//! Tests of `piton-api` from outside, as one program: a file for each subject.

#[path = "../../../piton-core/tests/it/common/mod.rs"]
mod common;
mod fold_vectors;
