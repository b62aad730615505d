//! Whole logs out of a store and into one.

use piton_core::id::SessionId;
use piton_core::{Content, Seq};
use rusqlite::Connection;

use super::append::{Appender, Inserts, Trouble};
use super::failure::Failure;
use super::read::{Reader, Walk};
use super::{logs, rebuild};
use crate::append_rules::CopyCheck;
use crate::contract::{CopiedRecord, CopyHead, Detail, LogCopy, READ_BYTES_MAX};
use crate::error::{Error, Result};
use crate::writer::WritableRecords;

/// Most records in one answer.
const RECORDS_MAX: usize = 10_000;

impl Reader {
    pub(crate) fn copy_head(&self, session: &SessionId) -> Result<Option<CopyHead>> {
        // Asked first: it trails the log and must not be ahead of what is read here.
        let anchor = self.anchors.of(session).map(|anchor| (anchor.seq, anchor.chain));
        let Some(log) = logs::find(&self.conn, &self.path, session)? else { return Ok(None) };
        let chain_key = logs::chain_key(&self.keys, session, &log.chain_key, &log.key_id)?;
        Ok(Some(CopyHead {
            session: session.clone(),
            chain_key,
            last_seq: log.last_seq,
            chain: log.chain,
            anchor,
        }))
    }

    pub(crate) fn copy_records(
        &self,
        session: &SessionId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<CopiedRecord>> {
        let mut copied = Vec::new();
        let mut bytes = 0;
        let Some((no, key)) = self.log(session)? else { return Ok(copied) };
        let walk = Walk { session, no, key: &key, after, limit: limit.min(RECORDS_MAX) };
        self.walk(&walk, Detail::Full, |raw| {
            let record = self.record(session, &key, raw, Detail::Full)?;
            bytes += record.header.len();
            if let Content::Json(json) = &record.content {
                bytes += json.len();
            }
            copied.push(CopiedRecord {
                record,
                batch_left: raw.left,
                payload_hash: raw.content.hash,
                chain: raw.chain,
            });
            Ok(bytes < READ_BYTES_MAX)
        })?;
        Ok(copied)
    }
}

impl Appender {
    /// Makes a log from a copy; the caller commits, or rolls back if this fails.
    pub(crate) fn copy_in(&mut self, conn: &Connection, copy: LogCopy) -> Result<(), Trouble> {
        let session = copy.head.session.clone();
        if self.find_end(conn, &session)? {
            return Err(Trouble::Refused(Error::SessionExists { session }));
        }
        let failed = |e| Trouble::Failed(Failure::Other(e));
        let current = self.keys.current();
        let mut inserts = Inserts::new(conn).map_err(|e| self.failed(e))?;
        let LogCopy { head, records, note } = copy;
        let mut check = CopyCheck::new(head);
        self.moved.push(session.clone());
        let no = self.create_log(conn, &session, check.head().chain_key.clone(), &current)?;
        for copied in records {
            let copied = copied.map_err(failed)?;
            check.next(&copied).map_err(failed)?;
            self.insert_copied(&mut inserts, &session, &copied, &current)?;
        }
        check.end().map_err(failed)?;
        let lease = rebuild::session(conn, &self.path, &session, no).map_err(failed)?;
        if let Some(end) = self.ends.get_mut(&session) {
            end.lease = lease;
        }
        note.map_or(Ok(()), |note| self.note(&mut inserts, WritableRecords::verbatim(vec![note])))
    }
}
