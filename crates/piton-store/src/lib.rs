//! Where logs are kept. [`Store`] is the contract; `sqlite` is the default store, `files` keeps plain
//! lines; the `conformance` suite is what every store passes. With the feature `testing` there are a
//! store in memory and modelled disks that fail on demand: no product has them.
//!
//! This crate decides nothing about sessions: it keeps batches whole, in order, durable, and
//! written by one writer at a time.
//!
//! # The names
//!
//! - Writing: a [`Writer`] masks records and appends them as a [`Batch`] at a [`Position`] (last record
//!   and epoch). The batch's [`Guard`] is the lease that the store checks when it appends.
//!   [`MaskedRecords`] are records after masking, with the originals that an agent is given.
//! - Boots: a [`BootGuard`] holds the lock file of a process that runs sessions; the file names its
//!   [`Holder`], for messages.
//! - Lists: a [`Query`] asks for a [`Page`] of [`Row`]s; [`Select`] is its condition, [`Detail`] how much
//!   of each record is read.
//! - Following: after each flush a store gives its [`Hub`] the [`Commit`]. [`Hints`] deliver it to a
//!   reader of one log, [`Changes`] the session's id to a reader of all. A hint may be lost, so a
//!   reader compares positions; [`Tail`] does that for one log.
//! - Checking: a [`Verification`] says whether one log is whole; a [`Finding`] is a [`Problem`] of the
//!   store or of one of its sessions.

mod append_rules;
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
#[cfg(any(test, feature = "testing"))]
pub mod memory;
mod queue;
pub mod sqlite;
mod tail;
mod threads;
mod writer;

pub use boots::{BootGuard, BootLocks, Holder};

pub use contract::{
    Appended, Batch, BoxFuture, CopiedRecord, CopyHead, Cursor, CursorError, Detail, Durability,
    Entropy, Finding, Guard, Head, IndexEntry, Latency, Liveness, LogCopy, OsEntropy, Page,
    Problem, Query, Row, Select, Snapshot, Stats, Store, Verification,
};
pub use error::{Cause, Error, Result};
pub use files::FilesStore;
pub use folder::{refuse_exposed, refuse_network};
pub use hub::{Change, Changes, Commit, Hint, Hints, Hub};
#[cfg(feature = "keychain")]
pub use keychain::OsKeychain;
pub use keys::{KEY_FILE, KeySettings, KeySource, Keychain, KeychainUnavailable, SecretText};
pub use load::{LoadedState, load, load_at};
pub use sqlite::SqliteStore;
pub use tail::Tail;
pub use writer::{MaskedRecords, Position, WritableRecords, Writer};
