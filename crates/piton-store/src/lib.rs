//! Where logs are kept. [`Store`] is the contract; `sqlite` is the default store, `files`
//! keeps plain lines, `memory` models a disk for the simulator; the `conformance` suite is what every store passes.
//!
//! This crate decides nothing about sessions: it keeps batches whole, in order, durable, and
//! written by one writer at a time.

mod admit;
mod boots;
pub mod bundle;
#[cfg(feature = "conformance")]
pub mod conformance;
mod contract;
mod crypto;
mod error;
pub mod files;
mod folder;
mod hub;
#[cfg(feature = "keychain")]
mod keychain;
mod keys;
mod list;
mod load;
mod masking;
pub mod memory;
pub mod sqlite;
mod tail;
mod writer;

pub use boots::{BootGuard, BootLocks, Holder};

pub use contract::{
    Appended, Batch, BoxFuture, CopiedRecord, CopyHead, Cursor, Detail, Durability, Entropy,
    Finding, Guard, Head, IndexEntry, Latency, Liveness, LogCopy, OsEntropy, Page, Problem, Query,
    Row, Select, Snapshot, Stats, Store, Verification,
};
pub use error::{Cause, Error, Result};
pub use files::FilesStore;
pub use folder::{refuse_exposed, refuse_network};
pub use hub::{Change, Changes, Commit, Hint, Hints, Hub};
#[cfg(feature = "keychain")]
pub use keychain::OsKeychain;
pub use keys::{KEY_FILE, KeySettings, KeySource, Keychain, KeychainUnavailable, SecretText};
pub use load::{LoadedState, load};
pub use sqlite::SqliteStore;
pub use tail::{POLL, Tail};
pub use writer::{Masked, Position, WritableRecords, Writer};
