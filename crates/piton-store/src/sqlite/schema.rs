//! The database's form. Truth: `logs`, `records`, `blobs`, `meta`. Caches: `places`, `spans`,
//! `heads`, `sessions`, `tokens`, `snapshots`.
//!
//! Records lie in the order of arrival: in the order of their logs, those that grow at the same
//! time would push each other's records from page to page. An index by log and seq would have the
//! same trouble, a leaf for every log that grows. So it is kept in generations of [`GENERATION`]
//! records: `places` has a generation's records by log and seq, all on a few neighbouring pages,
//! and `spans` says in which generation a log's records lie, from which seq on. An ordinary append
//! dirties two pages, and sixty-four of them at a time hardly more than their records' own.
//!
//! Neither the last seq nor the chain's head is written a second time: both are read off the last
//! record. Lease and index rows are written only when they change.

use piton_core::limits::SEQ_MAX;
use piton_core::planted::{self, Bug};
use rusqlite::Connection;
use rusqlite::config::DbConfig;

/// Marks a database as ours: “Pitn”.
pub(crate) const APPLICATION_ID: i32 = 0x5069_746e;
/// The format that this program writes.
pub(crate) const FORMAT: u32 = 2;

pub(crate) const FILE: &str = "store.sqlite3";
pub(crate) const ANCHORS_FILE: &str = "anchors.sqlite3";

/// How long a transaction waits for another process's.
pub(crate) const BUSY_MS: u32 = 10_000;

/// Statements kept prepared per connection.
const STATEMENTS_CACHED: usize = 64;

pub(crate) const CREATE_TRUTH: &str = "
CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE logs(
  no INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  chain_key BLOB NOT NULL,
  key_id TEXT NOT NULL
);
CREATE TABLE records(
  pos INTEGER PRIMARY KEY,
  rid INTEGER NOT NULL,
  ts INTEGER NOT NULL,
  batch_left INTEGER NOT NULL,
  kind TEXT NOT NULL,
  header TEXT NOT NULL,
  form INTEGER NOT NULL,
  key_id TEXT,
  payload_hash BLOB,
  chain BLOB NOT NULL,
  payload BLOB
);
CREATE INDEX records_blobs ON records(payload) WHERE form = 2;
CREATE TABLE blobs(
  no INTEGER PRIMARY KEY,
  address BLOB NOT NULL UNIQUE,
  key_id TEXT NOT NULL,
  compression INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  data BLOB NOT NULL
);
";

/// Tables that can be made again from the ones above.
pub(crate) const CREATE_CACHES: &str = "
CREATE TABLE IF NOT EXISTS places(
  generation INTEGER NOT NULL,
  rid INTEGER NOT NULL,
  pos INTEGER NOT NULL,
  PRIMARY KEY(generation, rid)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spans(first_rid INTEGER PRIMARY KEY, generation INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS heads(no INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, owner TEXT);
CREATE TABLE IF NOT EXISTS sessions(
  no INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  active_at INTEGER NOT NULL,
  task_id TEXT,
  closed INTEGER NOT NULL,
  needs_recovery INTEGER NOT NULL,
  deadline_at INTEGER,
  summary TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS sessions_active ON sessions(active_at, id);
CREATE INDEX IF NOT EXISTS sessions_task ON sessions(task_id, active_at, id) WHERE task_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS sessions_unclosed ON sessions(active_at, id) WHERE closed = 0;
CREATE INDEX IF NOT EXISTS sessions_recovery ON sessions(active_at, id) WHERE needs_recovery = 1;
CREATE INDEX IF NOT EXISTS sessions_deadline ON sessions(deadline_at, id) WHERE deadline_at IS NOT NULL;
CREATE TABLE IF NOT EXISTS tokens(id TEXT PRIMARY KEY, no INTEGER NOT NULL, entry TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tokens_log ON tokens(no);
CREATE TABLE IF NOT EXISTS snapshots(
  no INTEGER PRIMARY KEY,
  seq INTEGER NOT NULL,
  projector INTEGER NOT NULL,
  chain BLOB NOT NULL,
  body TEXT NOT NULL
);
";

pub(crate) const TRUTH: [&str; 4] = ["blobs", "logs", "meta", "records"];
pub(crate) const CACHES: [&str; 6] =
    ["heads", "places", "sessions", "snapshots", "spans", "tokens"];

/// Records per generation of the index, as a power of two. Smaller, and more appends open a new
/// span; larger, and a group of appends dirties more of the generation's pages.
const GENERATION_BITS: u32 = 10;

/// The generation of a record by its place in the order of arrival.
pub(crate) fn generation(pos: i64) -> i64 {
    pos >> GENERATION_BITS
}

/// The first place of a generation.
pub(crate) fn first_of(generation: i64) -> i64 {
    generation << GENERATION_BITS
}

/// Selects a log's records, as `r`, in the order of their seqs. `?1` is the first rid that is
/// wanted, `?2` the first that is not; `filter` is a further condition.
pub(crate) fn records_of_log(columns: &str, filter: &str) -> String {
    format!(
        "SELECT {columns} FROM spans s CROSS JOIN places p CROSS JOIN records r
         WHERE s.first_rid >= ifnull((SELECT first_rid FROM spans
                 WHERE first_rid <= ?1 AND first_rid > (?1 >> 32) << 32
                 ORDER BY first_rid DESC LIMIT 1), ?1)
           AND s.first_rid < ?2
           AND p.generation = s.generation AND p.rid >= max(s.first_rid, ?1) AND p.rid < ?2
           AND r.pos = p.pos AND ({filter})
         ORDER BY s.first_rid, p.rid"
    )
}

/// The place of a log's last record, as `rid` or `pos`; `no` is the log's number.
pub(crate) fn last_place(column: &str, no: &str) -> String {
    format!(
        "(SELECT p.{column} FROM places p WHERE p.generation = (
            SELECT generation FROM spans
            WHERE first_rid > ({no} << 32) AND first_rid < (({no} + 1) << 32)
            ORDER BY first_rid DESC LIMIT 1)
          AND p.rid > ({no} << 32) AND p.rid < (({no} + 1) << 32)
          ORDER BY p.rid DESC LIMIT 1)"
    )
}

/// Where a record lies, by its rid `?1`.
pub(crate) const SELECT_PLACE: &str = "
SELECT p.pos FROM places p WHERE p.generation = (
  SELECT generation FROM spans WHERE first_rid <= ?1 AND first_rid > (?1 >> 32) << 32
  ORDER BY first_rid DESC LIMIT 1)
AND p.rid = ?1";

/// How a record's content is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    None,
    Inline,
    Blob,
    /// Taken out; a `record.redacted` says why.
    Tombstone,
}

impl Form {
    pub(crate) fn to_i64(self) -> i64 {
        match self {
            Self::None => 0,
            Self::Inline => 1,
            Self::Blob => 2,
            Self::Tombstone => 3,
        }
    }

    pub(crate) fn from_i64(form: i64) -> Option<Self> {
        [Self::None, Self::Inline, Self::Blob, Self::Tombstone]
            .into_iter()
            .find(|known| known.to_i64() == form)
    }
}

// A record's key gives its seq 32 bits.
const _: () = assert!(SEQ_MAX < (1 << 32) - 1);

/// The key of a record. `seq` 0 is before a log's first record, [`SEQ_MAX`] + 1 after its last.
pub(crate) fn rid(no: i64, seq: u64) -> i64 {
    debug_assert!(seq <= SEQ_MAX + 1, "checked when the batch was admitted");
    (no << 32) | seq.min(SEQ_MAX + 1).cast_signed()
}

pub(crate) fn seq_of(rid: i64) -> u64 {
    (rid & 0xffff_ffff).cast_unsigned()
}

/// Settings that every connection has.
pub(crate) fn configure(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
    conn.busy_timeout(std::time::Duration::from_millis(u64::from(BUSY_MS)))?;
    // Otherwise SQLite plans a statement with a range again for every value that is bound to it.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    conn.execute_batch("PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF;")
}

/// Settings of the one connection that writes. The write-ahead log is never cut
/// (`journal_size_limit`), because overwriting a file is cheaper to flush than growing it, and is
/// checkpointed by the writer when that delays no caller.
pub(crate) fn configure_writer(conn: &Connection) -> rusqlite::Result<()> {
    configure(conn)?;
    conn.execute_batch(
        "PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA journal_size_limit = -1;
         PRAGMA wal_autocheckpoint = 0;",
    )?;
    if planted::is(Bug::SqliteUnflushed) {
        conn.execute_batch("PRAGMA synchronous = NORMAL;")?;
    }
    if cfg!(target_os = "macos") {
        // A plain fsync there does not reach the platter.
        conn.execute_batch("PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;")?;
    }
    Ok(())
}
