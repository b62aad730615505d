//! Tests of `piton-core` from outside, as one program: a file for each subject.

mod acceptance;
mod common;
mod decisions;
mod folding;
mod format;
mod handles;
mod injected_text;
mod interruptions;
mod late_records;
mod permissions;
mod properties;
mod queue;
mod redaction;
mod registry;
mod resume_tokens;
mod resuming;
mod rewinding;
mod spool_import;
mod starts;
mod status_table;
mod summary_vectors;
mod supervise;
mod transcript;
mod undelivered;
mod worktrees;
