//! A new current key. Contents stay under the key they were written with; what has to be readable
//! with the current key alone, the chain keys, is wrapped again.

use std::path::Path;
use std::sync::Arc;

use piton_core::id::SessionId;
use rusqlite::Connection;

use super::append::Appender;
use super::{failure, logs};
use crate::crypto::Subkeys;
use crate::error::{Error, Result};

/// The key that the store names.
pub(crate) fn current(conn: &Connection, path: &Path) -> Result<String> {
    conn.prepare_cached("SELECT value FROM meta WHERE name = 'key_id'")
        .and_then(|mut select| select.query_row([], |row| row.get(0)))
        .map_err(|e| failure::to_error(path, e))
}

/// Stages a new key and makes it the store's, inside a write transaction that the caller commits:
/// of several processes that rotate at once, each adds its key to what the one before left.
pub(crate) fn rotate(conn: &Connection, appender: &Appender) -> Result<Arc<Subkeys>> {
    appender.keys.follow(&current(conn, &appender.path)?)?;
    let next = appender.keys.stage_next(&*appender.entropy)?;
    rewrap(conn, appender, &next)?;
    Ok(next)
}

/// Wraps every chain key under `next` and makes it the store's key.
fn rewrap(conn: &Connection, appender: &Appender, next: &Arc<Subkeys>) -> Result<()> {
    let failed = |e| failure::to_error(&appender.path, e);
    let mut after = 0;
    loop {
        let row = conn.query_row(
            "SELECT no, id, chain_key, key_id FROM logs WHERE no > ?1 ORDER BY no LIMIT 1",
            [after],
            |row| {
                let id: String = row.get(1)?;
                let key_id: String = row.get(3)?;
                Ok((row.get::<_, i64>(0)?, id, row.get::<_, Vec<u8>>(2)?, key_id))
            },
        );
        let (no, id, wrapped, key_id) = match row {
            Ok(row) => row,
            Err(rusqlite::Error::QueryReturnedNoRows) => break,
            Err(e) => return Err(failed(e)),
        };
        after = no;
        let session: SessionId =
            id.parse().map_err(|_| Error::Damaged { path: appender.path.clone(), source: None })?;
        let chain_key = logs::chain_key(&appender.keys, &session, &wrapped, &key_id)?;
        let wrapped = next.wrap_chain_key(&id, &chain_key, &*appender.entropy)?;
        conn.prepare_cached("UPDATE logs SET chain_key = ?2, key_id = ?3 WHERE no = ?1")
            .and_then(|mut update| update.execute((no, wrapped, &**next.id())))
            .map_err(failed)?;
    }
    conn.execute("UPDATE meta SET value = ?1 WHERE name = 'key_id'", [&**next.id()])
        .map_err(failed)?;
    Ok(())
}
