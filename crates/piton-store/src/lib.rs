//! Where logs are kept. [`Store`] is the contract; `sqlite` is the default store, `memory` models
//! a disk for the simulator; the `conformance` suite is what every store passes.
//!
//! This crate decides nothing about sessions: it keeps batches whole, in order, durable, and
//! written by one writer at a time.

mod contract;
mod error;
mod hub;
mod load;
pub mod memory;
mod tail;

pub use contract::{
    Appended, Batch, BoxFuture, Cursor, Detail, Durability, Entropy, Guard, Head, Liveness,
    OsEntropy, Page, Problem, Query, Row, Select, Snapshot, Stats, Store, Verification,
};
pub use error::{Cause, Error, Result};
pub use hub::{Commit, Hint, Hints, Hub};
pub use load::{LoadedState, load};
pub use tail::{POLL, Tail};
