//! The caches again, from nothing but logs and records.

use std::path::Path;

use piton_core::id::SessionId;
use piton_core::limits::SEQ_MAX;
use piton_core::state::Lease;
use piton_core::{Content, Record, State, Timestamp, token};
use rusqlite::Connection;

use super::schema::{rid, seq_of};
use super::{append, failure, logs};
use crate::error::{Error, Result};

/// Deletes every cache row and makes them again; the caller commits. A session whose records
/// cannot be read stays without caches (each access to it says so) and does not stop the others.
pub(crate) fn all(conn: &Connection, path: &Path) -> Result<()> {
    let failed = |e| failure::to_error(path, e);
    conn.execute_batch(
        "DELETE FROM heads; DELETE FROM sessions; DELETE FROM tokens; DELETE FROM snapshots;",
    )
    .map_err(failed)?;
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
                tracing::warn!(session = %id, error = %e, "No caches for a damaged session");
                clear(conn, no).map_err(failed)?;
            }
            Err(e) => return Err(e),
        }
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
    let mut select = conn
        .prepare_cached(
            "SELECT rid, ts, kind, header FROM records WHERE rid > ?1 AND rid < ?2 ORDER BY rid",
        )
        .map_err(failed)?;
    let mut rows = select.query((rid(no, 0), rid(no, SEQ_MAX + 1))).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let seq = seq_of(row.get(0).map_err(failed)?);
        if seq != state.last_seq + 1 {
            return Err(logs::damaged(session, state.last_seq + 1));
        }
        let record = read(row, seq).ok_or_else(|| logs::damaged(session, seq))?;
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
