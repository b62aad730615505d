//! The contract that every store keeps, in terms of plain data.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::str::FromStr;
use std::time::Duration;

use piton_core::chain;
use piton_core::id::{BootId, SessionId, TaskId, TokenId};
use piton_core::state::{Lease, Summary};
use piton_core::{NewRecord, Record, Seq, Timestamp, token};

use crate::error::Result;
use crate::hub::{Changes, Hints};
use crate::load::LoadedState;
use crate::writer::WritableRecords;

pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Contents beyond which a read stops early.
pub(crate) const READ_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A store of logs.
///
/// # Appending
/// - [`Store::append`] takes its place in the store's order when it is *called*, before its future
///   is first polled. Batches of one session are appended in the order of the calls; dropping the
///   future does not take the batch back.
/// - A batch is atomic: all of its records are in the log or none.
/// - The future resolves to `Ok` only after the batch, and everything appended before it, was
///   flushed to stable storage. [`Durability::Synced`] asks for that flush at once;
///   [`Durability::Buffered`] may wait up to 50 ms to share one.
/// - A batch is refused, and nothing of it is written, if the session is not at
///   [`Batch::expected`] (`SeqConflict`) or the guard does not hold (`EpochStale`,
///   `SessionOwned`). Both are checked in the transaction that appends.
/// - After a failed flush the store is poisoned: every further append fails with `Poisoned`.
///   Running out of space is not a failed flush: nothing of the batch is written, and appends
///   succeed again when there is space.
///
/// # Leases
/// A session's writer is the boot that its last `session.leased` record names, until a
/// `session.released` of the same epoch. A batch whose first lease record is `session.leased`
/// takes the lease: its epoch must be the current one plus one, its boot the guard's, and the
/// session must have no owner, or one that is the same boot or dead by [`Liveness`]. Any other
/// batch must present the current owner and epoch. The metadata log has no lease:
/// [`Guard::Shared`].
///
/// # Taking out
/// A `record.redacted` takes out its target's content together with the append that writes it:
/// afterwards the content is nowhere in the store's files, and a tombstone is in its place. The
/// target must be an earlier record of the same log (`BatchInvalid`); one without content, or whose
/// content is gone already, stays as it is.
///
/// # The metadata log lists every session
/// The store registers a session by itself when its log begins: `session.registered` in the metadata
/// log, without a flush of its own. What was deleted, archived or imported has a record there, too.
/// So [`Store::verify_store`] finds a session that was taken away. No crash makes it see one that
/// was not.
///
/// # What is appended
/// [`WritableRecords`] are masked, or copied as they were: [`crate::Writer`] makes them.
///
/// # Adopted logs
/// A log that began elsewhere starts with `session.adopted`, whose seq may be more than 1 and which
/// stands for what came before. Every other log starts with seq 1.
///
/// # Reading
/// - Reads see what was acknowledged, and may see what is durable but not yet acknowledged; never
///   anything that is not durable.
/// - [`Store::subscribe`] gives hints after commits. Hints may be lost and carry no authority; see
///   [`crate::Tail`].
///
/// # Caches
/// Snapshots, index rows, heads, leases and token entries are caches:
/// [`Store::rebuild_caches`] deletes them all and makes them again from the records.
pub trait Store: Send + Sync + fmt::Debug + 'static {
    fn append(&self, batch: Batch) -> BoxFuture<Result<Appended>>;

    /// Whether an append would be taken now: refused as an append would be after a failed flush, on a
    /// full disk, or where nothing can be written. Costs a small write and its flush.
    fn check_writable(&self) -> BoxFuture<Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// Where a session's log stands; `None` if there is no such session.
    fn head(&self, session: &SessionId) -> BoxFuture<Result<Option<Head>>>;

    /// Up to `limit` records after a position, in order. Stops early, but never empty-handed, when
    /// the contents grow large: an answer shorter than `limit` is not the end of the log.
    fn read(
        &self,
        session: &SessionId,
        after: Seq,
        limit: usize,
        detail: Detail,
    ) -> BoxFuture<Result<Vec<Record>>>;

    /// The chain's hash at a record; `GENESIS` at 0; `None` if there is no such record.
    fn chain_at(&self, session: &SessionId, seq: Seq) -> BoxFuture<Result<Option<chain::Hash>>>;

    fn subscribe(&self, session: &SessionId) -> Hints;

    /// Hints after commits to any log, for callers that show the index. They can be lost, too.
    fn changes(&self) -> Changes;

    /// The last saved snapshot, whether or not it still fits the log.
    fn snapshot(&self, session: &SessionId) -> BoxFuture<Result<Option<Snapshot>>>;

    /// Saves a snapshot, without waiting for a flush of its own.
    fn save_snapshot(&self, session: &SessionId, snapshot: Snapshot) -> BoxFuture<Result<()>>;

    /// The state that the durable records fold into; `None` if there is no such session. A
    /// snapshot saves replaying if it fits; one that does not is passed over.
    fn load(&self, session: &SessionId) -> BoxFuture<Result<Option<LoadedState>>>;

    /// The names of all logs, the metadata log's too, in their order, after one. Asked of the logs
    /// themselves: an index that lost a session does not hide it here.
    fn logs(&self, after: Option<&SessionId>, limit: usize) -> BoxFuture<Result<Vec<SessionId>>>;

    fn list(&self, query: Query) -> BoxFuture<Result<Page>>;

    /// What the records say about a token, and whose it is.
    fn token(&self, token: &TokenId) -> BoxFuture<Result<Option<(SessionId, token::Entry)>>>;

    /// Walks a session's chain, its blobs and its anchor.
    fn verify(&self, session: &SessionId) -> BoxFuture<Result<Verification>>;

    /// Looks for what no single log shows: sessions that the metadata log lists and that are not
    /// there, anchors that were removed or damaged, an index of sessions that is damaged. Reads the
    /// metadata log and one row per session; changes nothing.
    fn verify_store(&self) -> BoxFuture<Result<Vec<Finding>>>;

    fn rebuild_caches(&self) -> BoxFuture<Result<()>>;

    /// Removes a log with everything that belongs to it alone (contents, caches, anchor, blobs that
    /// no other log refers to) and appends `notes` to the metadata log, both or neither. The guard is
    /// checked as for an append, and so is that nothing was appended after `expected`. The metadata
    /// log cannot be removed.
    fn delete(
        &self,
        session: &SessionId,
        expected: Seq,
        guard: Guard,
        notes: WritableRecords,
    ) -> BoxFuture<Result<()>>;

    /// What a copy of a log needs beside its records; `None` if there is no such session.
    fn copy_head(&self, session: &SessionId) -> BoxFuture<Result<Option<CopyHead>>>;

    /// Like [`Store::read`] with full detail, with everything that the chain covers.
    fn copy_records(
        &self,
        session: &SessionId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<Result<Vec<CopiedRecord>>>;

    /// Makes a log from a copy, all of it or nothing, durable when this resolves. Records are copied
    /// byte for byte, unmasked: the chain covers them as they were first written. Each link is
    /// checked as it comes, and the copy's last record must be its head's (`ChainBroken`,
    /// `RecordDamaged`). A log of that name must not exist (`SessionExists`).
    fn copy_in(&self, copy: LogCopy) -> BoxFuture<Result<()>>;

    fn stats(&self) -> Stats;
}

/// Records that are appended together.
#[derive(Clone, Debug)]
pub struct Batch {
    pub session: SessionId,
    /// The session's last seq; 0 for a session that does not exist yet.
    pub expected: Seq,
    pub guard: Guard,
    pub records: WritableRecords,
    pub durability: Durability,
    /// The session's index row after this batch, if the batch changes it.
    pub summary: Option<Summary>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The writer says who it is.
    Lease { boot: BootId, epoch: u64 },
    /// For the metadata log only.
    Shared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    Synced,
    Buffered,
}

/// The seqs that a batch got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub first: Seq,
    pub last: Seq,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub last_seq: Seq,
    pub chain: chain::Hash,
    pub lease: Lease,
}

/// Where a log that is copied stands, and the key that proves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyHead {
    pub session: SessionId,
    pub chain_key: chain::Key,
    pub last_seq: Seq,
    pub chain: chain::Hash,
    /// The last position that was anchored outside the log, with its hash.
    pub anchor: Option<(Seq, chain::Hash)>,
}

/// A record with everything that its link covers, as first written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedRecord {
    /// Its content is `None`, `Json` or `Redacted`, never `Omitted`.
    pub record: Record,
    pub batch_left: u32,
    pub payload_hash: Option<chain::Hash>,
    pub chain: chain::Hash,
}

/// A whole log on its way into a store.
pub struct LogCopy {
    pub head: CopyHead,
    /// In order; an error ends the copy and leaves nothing behind.
    pub records: Box<dyn Iterator<Item = Result<CopiedRecord>> + Send>,
    /// What the metadata log says about it, in one transaction with the copy where the store has
    /// any. `None` if the metadata log is copied as well.
    pub note: Option<NewRecord>,
}

impl fmt::Debug for LogCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogCopy").field("head", &self.head).finish_non_exhaustive()
    }
}

/// How much of each record to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Headers only: enough to fold. Contents come as `Omitted`.
    Headers,
    Full,
}

/// A folded state as of a record. Used only if projector and chain fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub seq: Seq,
    pub projector: u32,
    pub chain: chain::Hash,
    pub body: String,
}

/// Which sessions to list. The metadata log is never listed.
#[derive(Clone, Debug)]
pub struct Query {
    pub task_id: Option<TaskId>,
    pub select: Select,
    /// Where the last page ended.
    pub after: Option<Cursor>,
    pub limit: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// All, last active first.
    All,
    /// Those not closed, last active first.
    Unclosed,
    /// Those with an open run or an executor that may live ([`piton_core::state::Facts::needs_recovery`]), last active first.
    NeedsRecovery,
    /// Those with a wait whose deadline is at or before a moment, earliest first.
    DueBy(Timestamp),
}

/// A place in a list: the row's sort key and id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub millis: i64,
    pub session: SessionId,
}

/// As clients get it and give it back: they do not read it.
impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.millis, self.session)
    }
}

/// A text is not the cursor of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The cursor does not belong to an earlier list")]
pub struct CursorError;

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> std::result::Result<Self, CursorError> {
        let (millis, session) = text.split_once('.').ok_or(CursorError)?;
        let millis = millis.parse().map_err(|_| CursorError)?;
        Ok(Self { millis, session: session.parse().map_err(|_| CursorError)? })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    pub rows: Vec<Row>,
    /// Where the next page begins; `None` if this was the last page.
    pub next: Option<Cursor>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub session: SessionId,
    pub last_seq: Seq,
    pub lease: Lease,
    pub summary: Summary,
}

/// What `verify` found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// Records that are good, from the first on.
    pub good_to: Seq,
    /// The first thing that is wrong, if anything is.
    pub problem: Option<Problem>,
    /// The last position that was anchored outside the log, if any was.
    pub anchored_to: Option<Seq>,
}

/// What [`Store::verify_store`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whose it is; `None` if it is about the whole store.
    pub session: Option<SessionId>,
    pub problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The metadata log lists the session, and there is no log of it.
    SessionMissing,
    /// There are sessions, and the metadata log that lists them is gone.
    MetadataMissing,
    /// The anchor that is kept outside the log is gone or cannot be read.
    AnchorMissing,
    /// The store's anchors are gone.
    AnchorsMissing,
    /// The store's anchors cannot be read, or some of them are gone.
    AnchorsDamaged {
        why: String,
    },
    /// A cache knows a record that the log does not have: the log was cut, or the cache was edited.
    CutBehindCache {
        known: Seq,
        found: Seq,
    },
    /// The index by which sessions are listed does not fit together.
    IndexDamaged {
        why: String,
    },
    /// A link does not follow from its record and predecessor.
    ChainBroken {
        seq: Seq,
    },
    /// A record is missing.
    Gap {
        expected: Seq,
        found: Seq,
    },
    /// The last batch is not whole.
    BatchCut {
        seq: Seq,
    },
    /// The log ends before the position that was anchored.
    CutBehindAnchor {
        anchored: Seq,
        found: Seq,
    },
    /// The anchor's hash is not the log's.
    AnchorMismatch {
        seq: Seq,
    },
    /// A line of a store of plain files is not a record, or not in its place.
    LineDamaged {
        line: u64,
        why: &'static str,
    },
    /// A content cannot be read or is not what was written.
    PayloadDamaged {
        seq: Seq,
    },
    BlobMissing {
        seq: Seq,
    },
    /// A content is gone and no `record.redacted` says why.
    TombstoneUnjustified {
        seq: Seq,
    },
    /// The saved snapshot claims to fit the log and does not say what the log says.
    SnapshotDisagrees {
        seq: Seq,
    },
    /// The entry of a token, or the session's index row, is not what the log says.
    IndexDisagrees {
        what: IndexEntry,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SessionMissing => {
                f.write_str("the metadata log lists the session, but its log is not there")
            }
            Self::MetadataMissing => {
                f.write_str("the metadata log, which lists every session, is not there")
            }
            Self::AnchorMissing => f.write_str(
                "its anchor is missing or unreadable, so a log that was cut would not show it",
            ),
            Self::AnchorsMissing => f.write_str(
                "the file of anchors is missing, so logs that were cut would not show it",
            ),
            Self::AnchorsDamaged { why } => write!(
                f,
                "the file of anchors is damaged ({why}), so logs that were cut may not show it"
            ),
            Self::CutBehindCache { known, found } => {
                write!(f, "the log ends at record {found}, but a cache of it knows record {known}")
            }
            Self::IndexDamaged { why } => write!(f, "the index of sessions is damaged: {why}"),
            Self::ChainBroken { seq } => {
                write!(f, "record {seq} is not what was written, or not in its place")
            }
            Self::Gap { expected, found } => {
                write!(f, "record {expected} is missing; the next one is {found}")
            }
            Self::BatchCut { seq } => {
                write!(f, "the last batch is not whole: it breaks off after record {seq}")
            }
            Self::CutBehindAnchor { anchored, found } => {
                write!(f, "the log ends at record {found}, but had {anchored} records before")
            }
            Self::AnchorMismatch { seq } => {
                write!(f, "record {seq} is not the one that was anchored outside the log")
            }
            Self::LineDamaged { line, why } => {
                write!(f, "line {line} of its file is damaged: {why}")
            }
            Self::PayloadDamaged { seq } => {
                write!(f, "the content of record {seq} is not what was written")
            }
            Self::BlobMissing { seq } => {
                write!(f, "the content of record {seq} is missing from the blobs")
            }
            Self::TombstoneUnjustified { seq } => {
                write!(f, "the content of record {seq} was taken out, and no record says why")
            }
            Self::SnapshotDisagrees { seq } => {
                write!(f, "the snapshot at record {seq} does not say what the log says")
            }
            Self::IndexDisagrees { what } => write!(f, "{what} is not what the log says"),
        }
    }
}

impl fmt::Display for IndexEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session => f.write_str("the session's row in the index"),
            Self::Lease => f.write_str("the lease's entry in the index"),
            Self::Token(token) => write!(f, "the index entry of token {token}"),
            Self::Record(seq) => write!(f, "the index entry of record {seq}"),
        }
    }
}

/// A part of a store's indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexEntry {
    Session,
    Lease,
    Token(TokenId),
    /// A record is there, and the index does not lead to it.
    Record(Seq),
}

/// Counters since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub batches: u64,
    pub records: u64,
    /// Flushes for appends; checkpoints of the write-ahead log are not counted.
    pub flushes: u64,
    /// How long those took.
    pub latency: Latency,
}

/// How long something took, counted by limits in microseconds; what took longer than the last limit
/// is in `count` alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    pub within: [u64; Latency::LIMITS_US.len()],
    pub count: u64,
    pub sum_us: u64,
}

impl Latency {
    pub const LIMITS_US: [u64; 11] =
        [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000, 5_000_000];

    pub fn add(&mut self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        if let Some(at) = Self::LIMITS_US.iter().position(|limit| micros <= *limit) {
            self.within[at] += 1;
        }
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(micros);
    }
}

/// Which boots are alive. Once dead, a boot stays dead.
pub trait Liveness: Send + Sync + fmt::Debug + 'static {
    fn is_alive(&self, boot: &BootId) -> bool;

    /// The boots that there is a trace of, and whether each is alive: as long as this stays the same,
    /// no boot has died. `None`: it cannot be known so cheaply.
    fn known(&self) -> Option<BTreeMap<BootId, bool>> {
        None
    }
}

/// Where random bytes come from.
pub trait Entropy: Send + Sync + fmt::Debug + 'static {
    fn fill(&self, bytes: &mut [u8]) -> Result<()>;
}

/// The operating system's random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsEntropy;

impl Entropy for OsEntropy {
    fn fill(&self, bytes: &mut [u8]) -> Result<()> {
        getrandom::fill(bytes).map_err(|_| crate::Error::Entropy)
    }
}
