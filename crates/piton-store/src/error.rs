//! What can go wrong with a store, each with its code. Cloneable, because one failed flush fails
//! every batch that shared it.

use std::path::PathBuf;
use std::sync::Arc;

use piton_core::id::{BootId, SessionId};
use piton_core::{Code, Seq};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The cause of an error, shared by all callers that receive it.
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("There is no session {session}")]
    SessionNotFound { session: SessionId },
    #[error("There is a session {session} already")]
    SessionExists { session: SessionId },
    #[error("Session {session} is at record {actual}, not {expected}")]
    SeqConflict { session: SessionId, expected: Seq, actual: Seq },
    #[error(
        "The lease of session {session} moved on to epoch {actual}; epoch {presented} is stale"
    )]
    EpochStale { session: SessionId, presented: u64, actual: u64 },
    #[error("Session {session} is owned by {owner}, which is alive")]
    SessionOwned { session: SessionId, owner: BootId },
    #[error("The batch cannot be appended: {why}")]
    BatchInvalid { why: &'static str },
    #[error("{what} of {bytes} bytes is larger than {max}")]
    PayloadTooLarge { what: &'static str, bytes: usize, max: usize },
    #[error("{batches} batches ({bytes} bytes) already wait to be written")]
    Overloaded { batches: usize, bytes: usize },
    #[error("The store stopped writing after a failed flush")]
    Poisoned(#[source] Option<Cause>),
    #[error("The store is closed")]
    Closed,
    #[error("No space is left for the store")]
    DiskFull(#[source] Option<Cause>),
    #[error("The store at {} cannot be written", path.display())]
    ReadOnly {
        path: PathBuf,
        #[source]
        source: Option<Cause>,
    },
    #[error("The store at {} cannot be opened", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: Option<Cause>,
    },
    #[error("The file {} is not a Piton store", path.display())]
    Foreign { path: PathBuf },
    #[error("The store at {} is damaged", path.display())]
    Damaged {
        path: PathBuf,
        #[source]
        source: Option<Cause>,
    },
    #[error("The store has format {found}; this version reads up to {supported}")]
    Newer { found: u32, supported: u32 },
    #[error("The store has format {found}; this version reads format {supported} only")]
    TooOld { found: u32, supported: u32 },
    #[error("The store is held by another process")]
    Busy(#[source] Option<Cause>),
    #[error("The store at {} is in use by {holder}", path.display())]
    InUse { path: PathBuf, holder: String },
    #[error("The data folder {} is on a network file system ({filesystem})", path.display())]
    NetworkFilesystem { path: PathBuf, filesystem: &'static str },
    #[error("The store's key {key_id} was not found in its {place}")]
    KeyMissing { key_id: String, place: String },
    #[error("The key in {place} is not the store's key {key_id}")]
    KeyWrong { key_id: String, place: String },
    #[error("What {place} holds is not a key")]
    KeyInvalid { place: String },
    #[error("The key file {} can be read by others", path.display())]
    KeyPermissions { path: PathBuf },
    #[error("Others than its owner can write to {}", path.display())]
    FilePermissions { path: PathBuf },
    #[error("Line {line} of {} is damaged: {why}", path.display())]
    LineDamaged { path: PathBuf, line: u64, why: &'static str },
    #[error("Record {seq} of session {session} is damaged")]
    RecordDamaged {
        session: SessionId,
        seq: Seq,
        #[source]
        source: Option<Cause>,
    },
    #[error("The chain of session {session} is broken at record {seq}")]
    ChainBroken { session: SessionId, seq: Seq },
    #[error("The content of record {seq} of session {session} is missing from the blobs")]
    BlobMissing { session: SessionId, seq: Seq },
    #[error("The system gave no random numbers")]
    Entropy,
    #[error(transparent)]
    Bundle(#[from] crate::bundle::Error),
}

impl Error {
    pub fn code(&self) -> Code {
        match self {
            Self::SessionNotFound { .. } => Code::SessionNotFound,
            Self::SessionExists { .. } => Code::SessionExists,
            Self::SeqConflict { .. } => Code::SeqConflict,
            Self::EpochStale { .. } => Code::EpochStale,
            Self::SessionOwned { .. } => Code::SessionOwned,
            Self::BatchInvalid { .. } => Code::BatchInvalid,
            Self::PayloadTooLarge { .. } => Code::PayloadTooLarge,
            Self::Overloaded { .. } => Code::StoreOverloaded,
            Self::Poisoned(_) => Code::StorePoisoned,
            Self::Closed => Code::StoreClosed,
            Self::DiskFull(_) => Code::DiskFull,
            Self::ReadOnly { .. } => Code::StoreReadOnly,
            Self::Unreadable { .. } => Code::StoreUnreadable,
            Self::Foreign { .. } => Code::StoreNotPiton,
            Self::Damaged { .. } => Code::StoreDamaged,
            Self::Newer { .. } => Code::StoreNewer,
            Self::TooOld { .. } => Code::StoreTooOld,
            Self::Busy(_) => Code::StoreBusy,
            Self::InUse { .. } => Code::StoreInUse,
            Self::NetworkFilesystem { .. } => Code::NetworkFilesystem,
            Self::KeyMissing { .. } => Code::KeyMissing,
            Self::KeyWrong { .. } => Code::KeyWrong,
            Self::KeyInvalid { .. } => Code::KeyInvalid,
            Self::KeyPermissions { .. } => Code::KeyPermissions,
            Self::FilePermissions { .. } => Code::FilePermissions,
            Self::LineDamaged { .. } => Code::LineDamaged,
            Self::RecordDamaged { .. } => Code::RecordDamaged,
            Self::ChainBroken { .. } => Code::ChainBroken,
            Self::BlobMissing { .. } => Code::BlobMissing,
            Self::Entropy => Code::EntropyUnavailable,
            Self::Bundle(error) => error.code(),
        }
    }
}
