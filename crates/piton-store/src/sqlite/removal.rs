//! Taking out: one record's content, or a whole log. What is taken out must be gone from the file,
//! not only from sight: freed space is overwritten with zeros, and the write-ahead log, which holds
//! pages as they were, is emptied by the writer afterwards.

use piton_core::Seq;
use piton_core::id::SessionId;
use piton_core::limits::SEQ_MAX;
use piton_core::planted::{self, Bug};
use rusqlite::{Connection, OptionalExtension};

use super::append::{Appender, Inserts, Trouble};
use super::schema::{self, Form, rid};
use crate::append_rules::{self, Removal};
use crate::error::Error;

impl Appender {
    /// Removes a log and notes it in the metadata log; the caller commits, or rolls back.
    pub(crate) fn delete(&mut self, conn: &Connection, removal: &Removal) -> Result<(), Trouble> {
        let session = &removal.session;
        let known = self.find_end(conn, session)?;
        let Some(end) = self.ends.get(session).filter(|_| known) else {
            return Err(Trouble::Refused(Error::SessionNotFound { session: session.clone() }));
        };
        append_rules::check_removal(removal, end.last_seq, &end.lease, &*self.liveness)
            .map_err(Trouble::Refused)?;
        let (no, last_seq) = (end.no, end.last_seq);
        if !self.find_end(conn, &SessionId::metadata_log())? {
            self.refuse_lost(conn, &SessionId::metadata_log())?;
        }
        self.took_out = true;
        begin(conn).and_then(|()| log(conn, session, no, last_seq)).map_err(|e| self.failed(e))?;
        self.ends.remove(session);
        self.chain_keys.forget_one(session);
        let mut inserts = Inserts::new(conn).map_err(|e| self.failed(e))?;
        self.note(&mut inserts, removal.notes.clone())
    }
}

/// Something is about to be taken out: freed space is overwritten until [`overwrite`] says
/// otherwise, and the database notes that its write-ahead log has to be emptied.
pub(crate) fn begin(conn: &Connection) -> rusqlite::Result<()> {
    overwrite(conn, true)?;
    conn.execute("INSERT OR REPLACE INTO meta(name, value) VALUES ('removed', '')", [])?;
    Ok(())
}

/// Whether content was taken out and the write-ahead log was not emptied since.
pub(crate) fn is_unfinished(conn: &Connection) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT 1 FROM meta WHERE name = 'removed'")?.exists([])
}

pub(crate) fn finished(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute("DELETE FROM meta WHERE name = 'removed'", [])?;
    Ok(())
}

pub(crate) fn overwrite(conn: &Connection, on: bool) -> rusqlite::Result<()> {
    conn.pragma_update(None, "secure_delete", on && !planted::is(Bug::RedactedInFreePages))
}

/// Puts a tombstone in place of a record's content; says whether there was one to take out.
pub(crate) fn content(conn: &Connection, no: i64, seq: Seq) -> rusqlite::Result<bool> {
    let place = conn
        .prepare_cached(schema::SELECT_PLACE)?
        .query_row([rid(no, seq)], |row| row.get::<_, i64>(0))
        .optional()?;
    let Some(pos) = place else { return Ok(false) };
    let mut find = conn.prepare_cached("SELECT form, payload FROM records WHERE pos = ?1")?;
    let (form, payload): (i64, Option<Vec<u8>>) =
        find.query_row([pos], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let form = Form::from_i64(form);
    if !matches!(form, Some(Form::Inline | Form::Blob)) {
        return Ok(false);
    }
    conn.prepare_cached(
        "UPDATE records SET form = ?2, key_id = NULL, payload = NULL WHERE pos = ?1",
    )?
    .execute((pos, Form::Tombstone.to_i64()))?;
    if let (Some(Form::Blob), Some(address)) = (form, payload) {
        blob_if_unused(conn, &address)?;
    }
    Ok(true)
}

/// Removes a blob that no record refers to any more.
fn blob_if_unused(conn: &Connection, address: &[u8]) -> rusqlite::Result<()> {
    let blob = Form::Blob.to_i64();
    debug_assert_eq!(blob, 2, "as the index of the blobs' records says");
    conn.prepare_cached(
        "DELETE FROM blobs WHERE address = ?1
         AND NOT EXISTS (SELECT 1 FROM records WHERE payload = ?1 AND form = 2)",
    )?
    .execute([address])?;
    Ok(())
}

/// Removes a log with everything that is its own; the caller commits.
fn log(conn: &Connection, session: &SessionId, no: i64, last_seq: Seq) -> rusqlite::Result<()> {
    let blobs = blobs_of(conn, no)?;
    let (first, end) = (rid(no, 0), rid(no, SEQ_MAX + 1));
    let spans: Vec<(i64, i64)> = conn
        .prepare(
            "SELECT first_rid, generation FROM spans WHERE first_rid >= ?1 AND first_rid < ?2",
        )?
        .query_map((first, end), |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let first_seq = spans.iter().map(|(rid, _)| schema::seq_of(*rid)).min().unwrap_or(1);
    let mut removed = 0;
    for (_, generation) in spans {
        let of_span = "generation = ?1 AND rid >= ?2 AND rid < ?3";
        let records =
            format!("DELETE FROM records WHERE pos IN (SELECT pos FROM places WHERE {of_span})");
        removed += conn.prepare_cached(&records)?.execute((generation, first, end))?;
        let places = format!("DELETE FROM places WHERE {of_span}");
        conn.prepare_cached(&places)?.execute((generation, first, end))?;
    }
    if removed as u64 != last_seq + 1 - first_seq {
        // The index did not lead to all of them: everything is looked at.
        conn.execute("DELETE FROM records WHERE rid >= ?1 AND rid < ?2", (first, end))?;
    }
    conn.execute("DELETE FROM spans WHERE first_rid >= ?1 AND first_rid < ?2", (first, end))?;
    for table in ["heads", "sessions", "tokens", "snapshots"] {
        conn.execute(&format!("DELETE FROM {table} WHERE no = ?1"), [no])?;
    }
    conn.execute("DELETE FROM logs WHERE id = ?1", [session.as_str()])?;
    for address in blobs {
        blob_if_unused(conn, &address)?;
    }
    Ok(())
}

fn blobs_of(conn: &Connection, no: i64) -> rusqlite::Result<Vec<Vec<u8>>> {
    let sql = schema::records_of_log("r.payload", "r.form = 2");
    let mut select = conn.prepare(&sql)?;
    let found = select.query_map((rid(no, 0), rid(no, SEQ_MAX + 1)), |row| row.get(0))?;
    let mut blobs = found.collect::<rusqlite::Result<Vec<Vec<u8>>>>()?;
    blobs.sort_unstable();
    blobs.dedup();
    Ok(blobs)
}
