//! Reading: everything that is asked of a store but its writes. Runs on the readers' threads.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use piton_core::id::{SessionId, TokenId};
use piton_core::limits::SEQ_MAX;
use piton_core::record::may_follow;
use piton_core::{Content, Record, Seq, Timestamp, chain, token};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row};

use super::anchor::Anchors;
use super::content::{self, Stored};
use super::schema::{Form, SELECT_PLACE, records_of_log, rid, seq_of};
use super::{failure, logs};
use crate::contract::{Detail, Head, READ_BYTES_MAX, Snapshot};
use crate::crypto::ContentBinding;
use crate::error::{Cause, Error, Result};
use crate::keys::Keys;
use crate::load::{Folding, LoadedState};

/// Most records in one answer.
const READ_RECORDS_MAX: usize = 10_000;

/// One reader's connection and what it needs beside it.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) conn: Connection,
    pub(crate) path: PathBuf,
    pub(crate) keys: Arc<Keys>,
    pub(crate) anchors: Arc<Anchors>,
}

/// A record as it lies in the table.
#[derive(Debug)]
pub(crate) struct Raw<'a> {
    pub(crate) seq: Seq,
    pub(crate) ts: Timestamp,
    pub(crate) left: u32,
    pub(crate) kind: &'a str,
    pub(crate) header: &'a str,
    pub(crate) chain: chain::Hash,
    pub(crate) content: Stored<'a>,
}

/// The columns of a [`Raw`], but for its content.
const RAW_COLUMNS: &str =
    "r.rid, r.ts, r.batch_left, r.kind, r.header, r.form, r.key_id, r.payload_hash, r.chain";

/// Selects whole records of a log; see [`records_of_log`].
pub(crate) static WALK: LazyLock<String> =
    LazyLock::new(|| records_of_log(&format!("{RAW_COLUMNS}, r.payload"), "TRUE"));

static RECORDS: LazyLock<String> = LazyLock::new(|| format!("{} LIMIT ?3", *WALK));

/// Without the contents, which may lie on pages of their own.
static HEADERS: LazyLock<String> = LazyLock::new(|| {
    format!("{} LIMIT ?3", records_of_log(&format!("{RAW_COLUMNS}, NULL"), "TRUE"))
});

static CHAIN_AT: LazyLock<String> =
    LazyLock::new(|| format!("SELECT chain FROM records WHERE pos = ({SELECT_PLACE})"));

impl<'a> Raw<'a> {
    /// `None` if a column is not what we write there: the row was edited.
    pub(crate) fn from_row(row: &'a Row<'_>) -> Option<Self> {
        let column = |at| row.get_ref(at).ok();
        Some(Self {
            seq: seq_of(row.get(0).ok()?),
            ts: Timestamp::from_millis(row.get(1).ok()?),
            left: row.get(2).ok()?,
            kind: column(3)?.as_str().ok()?,
            header: column(4)?.as_str().ok()?,
            chain: column(8)?.as_blob().ok()?.try_into().ok()?,
            content: Stored {
                form: Form::from_i64(row.get(5).ok()?)?,
                key_id: column(6)?.as_str_or_null().ok()?,
                hash: match column(7)? {
                    ValueRef::Null => None,
                    hash => Some(hash.as_blob().ok()?.try_into().ok()?),
                },
                bytes: column(9)?.as_blob_or_null().ok()?,
            },
        })
    }

    /// Whether the record's link follows from its predecessor's.
    pub(crate) fn follows(&self, key: &chain::Key, previous: &chain::Hash) -> bool {
        let link = chain::LinkInput {
            seq: self.seq,
            ts: self.ts,
            kind: self.kind,
            header: self.header,
            payload_hash: self.content.hash,
            batch_left: self.left,
        };
        key.link(previous, link) == self.chain
    }
}

/// Up to `limit` records of a log after a position.
pub(super) struct Walk<'a> {
    pub(super) session: &'a SessionId,
    pub(super) no: i64,
    pub(super) key: &'a chain::Key,
    pub(super) after: Seq,
    pub(super) limit: usize,
}

impl Reader {
    pub(crate) fn failed(&self, e: rusqlite::Error) -> Error {
        failure::to_error(&self.path, e)
    }

    pub(crate) fn head(&self, session: &SessionId) -> Result<Option<Head>> {
        let Some(log) = logs::find(&self.conn, &self.path, session)? else { return Ok(None) };
        self.head_of(session, log).map(Some)
    }

    /// Reads several things as of one moment.
    pub(super) fn together<T>(&self, read: impl FnOnce() -> Result<T>) -> Result<T> {
        let run = |sql| self.conn.prepare_cached(sql).and_then(|mut s| s.execute([]));
        run("BEGIN").map_err(|e| self.failed(e))?;
        let done = read();
        // SQLite ends it by itself after some errors; what was read stands in any case.
        if !self.conn.is_autocommit()
            && let Err(e) = run("COMMIT").or_else(|_| run("ROLLBACK"))
        {
            done?;
            return Err(self.failed(e));
        }
        done
    }

    pub(crate) fn load(&self, session: &SessionId) -> Result<Option<LoadedState>> {
        self.together(|| self.load_now(session))
    }

    pub(super) fn load_now(&self, session: &SessionId) -> Result<Option<LoadedState>> {
        let Some(log) = logs::find(&self.conn, &self.path, session)? else { return Ok(None) };
        let key = logs::chain_key(&self.keys, session, &log.chain_key, &log.key_id)?;
        let no = log.no;
        let head = self.head_of(session, log)?;
        let snapshot = match self.snapshot_of(no)? {
            Some(saved) => {
                let now = self.chain_of(session, no, saved.seq)?;
                Some((saved, now))
            }
            None => None,
        };
        let mut folding = Folding::new(session, head, snapshot);
        let walk = Walk { session, no, key: &key, after: folding.at(), limit: usize::MAX };
        self.walk(&walk, Detail::Headers, |raw| {
            folding.apply(raw.seq, raw.ts, raw.kind, raw.header)
        })?;
        folding.finish().map(Some)
    }

    fn head_of(&self, session: &SessionId, log: logs::Log) -> Result<Head> {
        let lease = match log.lease {
            Some(lease) => lease,
            None => logs::lease_from_records(&self.conn, &self.path, session, log.no)?,
        };
        Ok(Head { last_seq: log.last_seq, chain: log.chain, lease })
    }

    /// A log's number and chain key.
    pub(crate) fn log(&self, session: &SessionId) -> Result<Option<(i64, chain::Key)>> {
        let find = || {
            let mut find =
                self.conn.prepare_cached("SELECT no, chain_key, key_id FROM logs WHERE id = ?1")?;
            find.query_row([session.as_str()], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?, row.get::<_, String>(2)?))
            })
            .optional()
        };
        let Some((no, wrapped, key_id)) = find().map_err(|e| self.failed(e))? else {
            return Ok(None);
        };
        Ok(Some((no, logs::chain_key(&self.keys, session, &wrapped, &key_id)?)))
    }

    pub(crate) fn records(
        &self,
        session: &SessionId,
        after: Seq,
        limit: usize,
        detail: Detail,
    ) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        let mut bytes = 0;
        let Some((no, key)) = self.log(session)? else { return Ok(records) };
        let walk = Walk { session, no, key: &key, after, limit: limit.min(READ_RECORDS_MAX) };
        self.walk(&walk, detail, |raw| {
            let record = self.record(session, &key, raw, detail)?;
            bytes += record.header.len() + content_bytes(&record.content);
            records.push(record);
            Ok(bytes < READ_BYTES_MAX)
        })?;
        Ok(records)
    }

    /// Visits records in order, each with its link checked, until there are no more or the visitor
    /// has enough.
    pub(super) fn walk(
        &self,
        walk: &Walk<'_>,
        detail: Detail,
        mut visit: impl FnMut(&Raw<'_>) -> Result<bool>,
    ) -> Result<()> {
        let Walk { session, no, key, after, limit } = *walk;
        if limit == 0 || after > SEQ_MAX {
            return Ok(());
        }
        let sql = match detail {
            Detail::Headers => &*HEADERS,
            Detail::Full => &*RECORDS,
        };
        let mut select = self.conn.prepare_cached(sql).map_err(|e| self.failed(e))?;
        // The predecessor is read along: the first link is checked against it.
        let rows_max = i64::try_from(limit).unwrap_or(i64::MAX - 1) + i64::from(after > 0);
        let range = (rid(no, after), rid(no, SEQ_MAX + 1), rows_max);
        let mut rows = select.query(range).map_err(|e| self.failed(e))?;
        let mut previous = (after == 0).then_some((0, chain::GENESIS));
        while let Some(row) = rows.next().map_err(|e| self.failed(e))? {
            let found = row.get(0).map(seq_of).map_err(|e| self.failed(e))?;
            let raw = Raw::from_row(row).ok_or_else(|| logs::damaged(session, found))?;
            let Some((last, link)) = previous else {
                if raw.seq != after {
                    return Err(logs::damaged(session, after));
                }
                previous = Some((raw.seq, raw.chain));
                continue;
            };
            if !may_follow(last, raw.seq, raw.kind) {
                return Err(logs::damaged(session, last + 1));
            }
            if !raw.follows(key, &link) {
                return Err(Error::ChainBroken { session: session.clone(), seq: raw.seq });
            }
            previous = Some((raw.seq, raw.chain));
            if !visit(&raw)? {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn record(
        &self,
        session: &SessionId,
        key: &chain::Key,
        raw: &Raw<'_>,
        detail: Detail,
    ) -> Result<Record> {
        let content = match detail {
            Detail::Headers if raw.content.hash.is_none() => Content::None,
            Detail::Headers if raw.content.form == Form::Tombstone => Content::Redacted,
            Detail::Headers => Content::Omitted,
            Detail::Full => self.content(session, key, raw).map_err(|e| match e {
                content::Trouble::Damaged => logs::damaged(session, raw.seq),
                content::Trouble::BlobMissing => {
                    Error::BlobMissing { session: session.clone(), seq: raw.seq }
                }
                content::Trouble::Store(e) => e,
                content::Trouble::Sql(e) => self.failed(e),
            })?,
        };
        Ok(Record {
            seq: raw.seq,
            ts: raw.ts,
            kind: raw.kind.into(),
            header: raw.header.into(),
            content,
        })
    }

    pub(crate) fn content(
        &self,
        session: &SessionId,
        key: &chain::Key,
        raw: &Raw<'_>,
    ) -> Result<Content, content::Trouble> {
        let binding = ContentBinding { session: session.as_str(), seq: raw.seq, kind: raw.kind };
        content::fetch(&self.conn, &self.keys, key, binding, raw.content)
    }

    pub(crate) fn chain_at(&self, session: &SessionId, seq: Seq) -> Result<Option<chain::Hash>> {
        if seq == 0 {
            return Ok(Some(chain::GENESIS));
        }
        match self.no_of(session)? {
            Some(no) => self.chain_of(session, no, seq),
            None => Ok(None),
        }
    }

    pub(super) fn no_of(&self, session: &SessionId) -> Result<Option<i64>> {
        let find = || {
            let mut find = self.conn.prepare_cached("SELECT no FROM logs WHERE id = ?1")?;
            find.query_row([session.as_str()], |row| row.get(0)).optional()
        };
        find().map_err(|e| self.failed(e))
    }

    fn chain_of(&self, session: &SessionId, no: i64, seq: Seq) -> Result<Option<chain::Hash>> {
        if seq == 0 || seq > SEQ_MAX {
            return Ok((seq == 0).then_some(chain::GENESIS));
        }
        let find = || {
            let mut find = self.conn.prepare_cached(&CHAIN_AT)?;
            find.query_row([rid(no, seq)], |row| {
                Ok(row.get_ref(0)?.as_blob().ok().and_then(|bytes| bytes.try_into().ok()))
            })
            .optional()
        };
        match find().map_err(|e| self.failed(e))? {
            Some(None) => Err(logs::damaged(session, seq)),
            Some(found) => Ok(found),
            None => Ok(None),
        }
    }

    pub(crate) fn snapshot(&self, session: &SessionId) -> Result<Option<Snapshot>> {
        match self.no_of(session)? {
            Some(no) => self.snapshot_of(no),
            None => Ok(None),
        }
    }

    /// A snapshot whose row makes no sense is none: a cache.
    pub(super) fn snapshot_of(&self, no: i64) -> Result<Option<Snapshot>> {
        let find = || {
            let mut find = self.conn.prepare_cached(
                "SELECT seq, projector, chain, body FROM snapshots WHERE no = ?1",
            )?;
            find.query_row([no], |row| {
                let snapshot = || {
                    Some(Snapshot {
                        seq: row.get::<_, i64>(0).ok()?.cast_unsigned(),
                        projector: row.get(1).ok()?,
                        chain: row.get(2).ok()?,
                        body: row.get(3).ok()?,
                    })
                };
                Ok(snapshot())
            })
            .optional()
        };
        find().map(Option::flatten).map_err(|e| self.failed(e))
    }

    pub(crate) fn token(&self, id: &TokenId) -> Result<Option<(SessionId, token::Entry)>> {
        let find = || {
            let mut find = self.conn.prepare_cached(
                "SELECT l.id, t.entry FROM tokens t JOIN logs l ON l.no = t.no WHERE t.id = ?1",
            )?;
            find.query_row([id.as_str()], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
            })
            .optional()
        };
        let Some((session, entry)) = find().map_err(|e| self.failed(e))? else { return Ok(None) };
        let damaged =
            |source: Cause| Error::Damaged { path: self.path.clone(), source: Some(source) };
        let session = session.parse::<SessionId>().map_err(|e| damaged(Arc::new(e)))?;
        let entry = serde_json::from_str(&entry).map_err(|e| damaged(Arc::new(e)))?;
        Ok(Some((session, entry)))
    }
}

fn content_bytes(content: &Content) -> usize {
    match content {
        Content::Json(json) => json.len(),
        Content::None | Content::Omitted | Content::Redacted => 0,
    }
}
