//! The caches again, from nothing but logs and records.

use std::path::Path;
use std::sync::LazyLock;

use piton_core::id::SessionId;
use piton_core::limits::SEQ_MAX;
use piton_core::record::may_follow;
use piton_core::state::Lease;
use piton_core::{Content, Record, State, Timestamp, token};
use rusqlite::Connection;

use super::schema::{self, rid, seq_of};
use super::{append, failure, logs};
use crate::error::{Error, Result};

static HEADERS: LazyLock<String> =
    LazyLock::new(|| schema::records_of_log("r.rid, r.ts, r.kind, r.header", "TRUE"));

/// Deletes every cache row and makes them again; the caller commits. A session whose records
/// cannot be read stays without caches (each access to it says so) and does not stop the others.
pub(crate) fn all(conn: &Connection, path: &Path) -> Result<()> {
    let failed = |e| failure::to_error(path, e);
    conn.execute_batch(
        "DELETE FROM heads; DELETE FROM sessions; DELETE FROM tokens; DELETE FROM snapshots;",
    )
    .map_err(failed)?;
    places(conn).map_err(failed)?;
    let mut after = 0;
    // One log at a time, by number: nothing grows with the number of sessions.
    loop {
        let next = conn.query_row(
            "SELECT no, id FROM logs WHERE no > ?1 ORDER BY no LIMIT 1",
            [after],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)),
        );
        let (no, id) = match next {
            Ok(next) => next,
            Err(rusqlite::Error::QueryReturnedNoRows) => return Ok(()),
            Err(e) => return Err(failed(e)),
        };
        after = no;
        let Ok(id) = id.parse::<SessionId>() else {
            tracing::warn!(no, "A log's id is not an id; it is passed over");
            continue;
        };
        match session(conn, path, &id, no) {
            Ok(_) => {}
            Err(e @ Error::RecordDamaged { .. }) => {
                tracing::warn!(session = %id, error = %e, "The caches of a damaged session are not built");
                clear(conn, no).map_err(failed)?;
            }
            Err(e) => return Err(e),
        }
    }
}

/// The index of the records again.
fn places(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute_batch("DELETE FROM places; DELETE FROM spans;")?;
    let mut next = 0;
    // A generation at a time: nothing grows with the number of records.
    loop {
        let first = conn
            .prepare_cached("SELECT min(pos) FROM records WHERE pos >= ?1")?
            .query_row([next], |row| row.get::<_, Option<i64>>(0))?;
        let Some(first) = first else { return Ok(()) };
        let generation = schema::generation(first);
        next = schema::first_of(generation + 1);
        let range = (generation, schema::first_of(generation), next);
        // Of two records with one rid, which only tampering makes, the first stays.
        conn.prepare_cached(
            "INSERT OR IGNORE INTO places(generation, rid, pos)
             SELECT ?1, rid, pos FROM records WHERE pos >= ?2 AND pos < ?3 ORDER BY rid, pos",
        )?
        .execute(range)?;
        conn.prepare_cached(
            "INSERT OR IGNORE INTO spans(first_rid, generation)
             SELECT min(rid), ?1 FROM places WHERE generation = ?1 GROUP BY rid >> 32",
        )?
        .execute([generation])?;
    }
}

fn clear(conn: &Connection, no: i64) -> rusqlite::Result<()> {
    for sql in [
        "DELETE FROM heads WHERE no = ?1",
        "DELETE FROM sessions WHERE no = ?1",
        "DELETE FROM tokens WHERE no = ?1",
    ] {
        conn.prepare_cached(sql)?.execute([no])?;
    }
    Ok(())
}

/// Makes one session's caches again; answers its lease. A snapshot is left: it says itself
/// whether it fits.
pub(crate) fn session(
    conn: &Connection,
    path: &Path,
    session: &SessionId,
    no: i64,
) -> Result<Lease> {
    let failed = |e| failure::to_error(path, e);
    clear(conn, no).map_err(failed)?;
    let mut state = State::default();
    let mut select = conn.prepare_cached(&HEADERS).map_err(failed)?;
    let mut rows = select.query((rid(no, 0), rid(no, SEQ_MAX + 1))).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let seq = seq_of(row.get(0).map_err(failed)?);
        let record = read(row, seq).ok_or_else(|| logs::damaged(session, seq))?;
        if !may_follow(state.last_seq, seq, &record.kind) {
            return Err(logs::damaged(session, state.last_seq + 1));
        }
        let event = record.event().map_err(|_| logs::damaged(session, seq))?;
        state.apply(seq, record.ts, &event);
        if token::subject(&event).is_some() {
            append::advance_token(conn, no, seq, &event).map_err(failed)?;
        }
    }
    append::save_lease(conn, no, &state.lease).map_err(failed)?;
    if let Some(summary) = state.summary() {
        append::save_summary(conn, no, session, &summary).map_err(failed)?;
    }
    Ok(state.lease)
}

fn read(row: &rusqlite::Row<'_>, seq: u64) -> Option<Record> {
    Some(Record {
        seq,
        ts: Timestamp::from_millis(row.get(1).ok()?),
        kind: row.get_ref(2).ok()?.as_str().ok()?.into(),
        header: row.get_ref(3).ok()?.as_str().ok()?.into(),
        content: Content::Omitted,
    })
}
