//! What both the writer and the readers ask of one log: its number, chain key, end and lease.

use std::path::Path;
use std::sync::LazyLock;

use piton_core::id::{BootId, SessionId};
use piton_core::limits::SEQ_MAX;
use piton_core::state::Lease;
use piton_core::{Event, Seq, chain};
use rusqlite::{Connection, OptionalExtension, Row};

use super::failure;
use super::schema::{self, rid, seq_of};
use crate::error::{Error, Result};
use crate::keys::Keys;

/// A log's row, and its end as the last record says it.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub(crate) no: i64,
    pub(crate) last_seq: Seq,
    pub(crate) last_pos: i64,
    pub(crate) chain: chain::Hash,
    /// `None` if the cache has no row: the records must be asked.
    pub(crate) lease: Option<Lease>,
    pub(crate) chain_key: Vec<u8>,
    pub(crate) key_id: String,
}

/// One statement, hence one moment.
static FIND: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT l.no, l.chain_key, l.key_id, r.rid, r.chain, h.epoch, h.owner, r.pos
         FROM logs l
         LEFT JOIN heads h ON h.no = l.no
         LEFT JOIN records r ON r.pos = {}
         WHERE l.id = ?1",
        schema::last_place("pos", "l.no")
    )
});

pub(crate) fn damaged(session: &SessionId, seq: Seq) -> Error {
    Error::RecordDamaged { session: session.clone(), seq, source: None }
}

pub(crate) fn find(conn: &Connection, path: &Path, session: &SessionId) -> Result<Option<Log>> {
    let row = || {
        let mut statement = conn.prepare_cached(&FIND)?;
        statement
            .query_row([session.as_str()], |row| {
                let chain = match row.get_ref(4)? {
                    rusqlite::types::ValueRef::Blob(bytes) => bytes.try_into().ok(),
                    _ => None,
                };
                let end: Option<(i64, i64)> = row.get::<_, Option<i64>>(3)?.zip(row.get(7)?);
                Ok((
                    row.get::<_, i64>(0)?,
                    row.get::<_, Vec<u8>>(1)?,
                    row.get::<_, String>(2)?,
                    end,
                    chain,
                    lease(row, 5)?,
                ))
            })
            .optional()
    };
    let Some((no, chain_key, key_id, end, chain, lease)) =
        row().map_err(|e| failure::to_error(path, e))?
    else {
        return Ok(None);
    };
    // A log is created together with its first record: without one, its records were removed.
    let (rid, last_pos) = end.ok_or_else(|| damaged(session, 1))?;
    let last_seq = seq_of(rid);
    let chain = chain.ok_or_else(|| damaged(session, last_seq))?;
    Ok(Some(Log { no, last_seq, last_pos, chain, lease, chain_key, key_id }))
}

/// The columns `epoch, owner` of `heads`; `None` if there is no row or no sense in it.
pub(crate) fn lease(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Lease>> {
    let epoch: Option<i64> = row.get(at)?;
    let owner: Option<String> = row.get(at + 1)?;
    let Some(epoch) = epoch.and_then(|epoch| u64::try_from(epoch).ok()) else { return Ok(None) };
    Ok(match owner.map(|owner| owner.parse::<BootId>()) {
        None => Some(Lease { owner: None, epoch }),
        Some(Ok(owner)) => Some(Lease { owner: Some(owner), epoch }),
        Some(Err(_)) => None,
    })
}

static LEASES: LazyLock<String> = LazyLock::new(|| {
    let filter = "r.kind IN ('session.leased', 'session.released')";
    schema::records_of_log("r.rid, r.kind, r.header", filter)
});

/// The lease as the records say it.
pub(crate) fn lease_from_records(
    conn: &Connection,
    path: &Path,
    session: &SessionId,
    no: i64,
) -> Result<Lease> {
    let rows = || {
        let mut statement = conn.prepare_cached(&LEASES)?;
        let rows = statement.query_map((rid(no, 0), rid(no, SEQ_MAX + 1)), |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
        })?;
        rows.collect::<rusqlite::Result<Vec<_>>>()
    };
    let mut lease = Lease::default();
    for (rid, kind, header) in rows().map_err(|e| failure::to_error(path, e))? {
        let event = Event::parse(&kind, &header).map_err(|_| damaged(session, seq_of(rid)))?;
        lease.apply(&event);
    }
    Ok(lease)
}

pub(crate) fn chain_key(
    keys: &Keys,
    session: &SessionId,
    wrapped: &[u8],
    key_id: &str,
) -> Result<chain::Key> {
    // A wrapped key that does not open proves no link, from the first record on.
    keys.get(key_id)?
        .unwrap_chain_key(session.as_str(), wrapped)
        .map_err(|_| Error::ChainBroken { session: session.clone(), seq: 1 })
}
