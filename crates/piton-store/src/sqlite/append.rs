//! One batch within the writer's transaction: check, then insert. Nothing is written before all
//! checks have passed, so a refused batch leaves its neighbours alone.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use piton_core::event::SessionRegistered;
use piton_core::id::{BootId, SessionId};
use piton_core::planted::{self, Bug};
use piton_core::state::{Lease, Summary};
use piton_core::{Content, Event, NewRecord, Record, Seq, chain, token};
use rusqlite::{CachedStatement, Connection, OptionalExtension};
use zeroize::Zeroizing;

use super::anchor::Anchors;
use super::caches::Columns;
use super::content::Kept;
use super::failure::{self, Failure};
use super::prepare::{ChainKeys, Prepared};
use super::schema::{Form, rid};
use super::{content, logs, rebuild, removal, schema};
use crate::append_rules;
use crate::contract::{
    Appended, Batch, CopiedRecord, Durability, Entropy, Guard, Liveness, Snapshot,
};
use crate::crypto::{ContentBinding, Subkeys};
use crate::error::{Cause, Error};
use crate::keys::Keys;
use crate::writer::WritableRecords;

/// Sessions whose end the writer remembers.
const SESSIONS_CACHED_MAX: usize = 4_096;

/// Where a log ends. Valid as long as no other process writes to the database.
#[derive(Debug)]
pub(super) struct End {
    pub(super) no: i64,
    pub(super) last_seq: Seq,
    /// The generation that the log's last record lies in.
    generation: Option<i64>,
    chain: chain::Hash,
    pub(super) lease: Lease,
    chain_key: chain::Key,
}

/// Why a batch was not appended.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Nothing was written for it.
    Refused(Error),
    /// Something may have been: the transaction must be rolled back.
    Failed(Failure),
}

impl Trouble {
    /// For a transaction that is rolled back in any case.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Refused(e) | Self::Failed(Failure::Full(e) | Failure::Other(e)) => e,
            Self::Failed(Failure::Flush(cause)) => Error::Poisoned(Some(cause)),
        }
    }
}

/// Appends batches to a database; the caller begins and ends the transaction.
#[derive(Debug)]
pub(crate) struct Appender {
    pub(crate) path: PathBuf,
    pub(crate) keys: Arc<Keys>,
    pub(crate) liveness: Arc<dyn Liveness>,
    pub(crate) entropy: Arc<dyn Entropy>,
    /// Of the sessions in `ends`, for those who seal contents before they queue them.
    pub(super) chain_keys: Arc<ChainKeys>,
    anchors: Arc<Anchors>,
    pub(super) ends: HashMap<SessionId, End>,
    /// Sessions whose end was moved by the open transaction.
    pub(super) moved: Vec<SessionId>,
    /// The open transaction took something out.
    pub(super) took_out: bool,
    /// What the transaction appended to the metadata log by itself.
    pub(super) noted: Vec<Record>,
}

impl Appender {
    pub(crate) fn new(
        path: PathBuf,
        keys: Arc<Keys>,
        liveness: Arc<dyn Liveness>,
        entropy: Arc<dyn Entropy>,
        chain_keys: Arc<ChainKeys>,
        anchors: Arc<Anchors>,
    ) -> Self {
        Self {
            path,
            keys,
            liveness,
            entropy,
            chain_keys,
            anchors,
            ends: HashMap::new(),
            moved: Vec::new(),
            took_out: false,
            noted: Vec::new(),
        }
    }

    /// Clears the caches, which are stale once another process has written to the database.
    pub(crate) fn forget(&mut self) {
        self.ends.clear();
        self.moved.clear();
        self.chain_keys.forget();
    }

    /// A transaction begins: what was remembered may be forgotten, if it is too much.
    pub(crate) fn begun(&mut self) {
        if self.ends.len() > SESSIONS_CACHED_MAX {
            self.forget();
        }
    }

    /// Says whether something was taken out.
    pub(crate) fn committed(&mut self) -> bool {
        self.moved.clear();
        std::mem::take(&mut self.took_out)
    }

    pub(crate) fn rolled_back(&mut self) {
        self.took_out = false;
        self.noted.clear();
        for session in self.moved.drain(..) {
            self.ends.remove(&session);
        }
    }

    /// The end that a committed batch left, for the anchor.
    pub(crate) fn end_of(&self, session: &SessionId) -> Option<(Seq, chain::Hash)> {
        self.ends.get(session).map(|end| (end.last_seq, end.chain))
    }

    pub(super) fn failed(&self, e: rusqlite::Error) -> Trouble {
        Trouble::Failed(failure::before_commit(&self.path, e))
    }

    /// Appends a batch; the caller commits.
    pub(crate) fn append(
        &mut self,
        inserts: &mut Inserts<'_>,
        batch: &Batch,
        prepared: Option<&Prepared>,
    ) -> Result<Appended, Trouble> {
        let conn = inserts.conn;
        append_rules::check_form(batch).map_err(Trouble::Refused)?;
        let known = self.find_end(conn, &batch.session)?;
        let (last_seq, lease) = match self.ends.get(&batch.session).filter(|_| known) {
            Some(end) => (end.last_seq, end.lease.clone()),
            None => (0, Lease::default()),
        };
        let new_lease = append_rules::check(batch, last_seq, &lease, &*self.liveness)
            .map_err(Trouble::Refused)?;
        let registers = !known && !batch.session.is_metadata_log();
        if !known {
            self.refuse_lost(conn, &batch.session)?;
        }
        if registers && !self.find_end(conn, &SessionId::metadata_log())? {
            self.refuse_lost(conn, &SessionId::metadata_log())?;
        }
        let current = self.keys.current();
        self.moved.push(batch.session.clone());
        if !known {
            let chain_key = self.fresh_chain_key()?;
            self.create_log(conn, &batch.session, chain_key, &current)?;
        }
        let appended = self.insert(inserts, batch, prepared, new_lease, &current)?;
        if let (true, Some(first)) = (registers, batch.records.first()) {
            let session_id = batch.session.clone();
            let registered = NewRecord::new(first.ts, SessionRegistered { session_id });
            self.note(inserts, WritableRecords::verbatim(vec![registered]))?;
        }
        Ok(appended)
    }

    /// Appends to the metadata log, within the open transaction and without a flush of its own.
    pub(super) fn note(
        &mut self,
        inserts: &mut Inserts<'_>,
        records: WritableRecords,
    ) -> Result<(), Trouble> {
        let metadata = SessionId::metadata_log();
        if !self.find_end(inserts.conn, &metadata)? {
            let (chain_key, current) = (self.fresh_chain_key()?, self.keys.current());
            self.moved.push(metadata.clone());
            self.create_log(inserts.conn, &metadata, chain_key, &current)?;
        }
        let expected = self.ends.get(&metadata).map_or(0, |end| end.last_seq);
        let batch = Batch {
            session: metadata,
            expected,
            guard: Guard::Shared,
            records,
            durability: Durability::Synced,
            summary: None,
        };
        let appended = self.append(inserts, &batch, None).map_err(|trouble| match trouble {
            // What the note is about is written already.
            Trouble::Refused(e) => Trouble::Failed(Failure::Other(e)),
            failed @ Trouble::Failed(_) => failed,
        })?;
        let seqs = appended.first..;
        self.noted.extend(seqs.zip(&batch.records).map(|(seq, record)| record.at(seq)));
        Ok(())
    }

    /// Refuses to begin a log in the place of one that was there.
    pub(super) fn refuse_lost(
        &self,
        conn: &Connection,
        session: &SessionId,
    ) -> Result<(), Trouble> {
        let has_logs = || conn.prepare_cached("SELECT 1 FROM logs")?.exists([]);
        let is_lost = self.anchors.of(session).is_some()
            // The metadata log is made together with the first session, or before it.
            || (session.is_metadata_log() && has_logs().map_err(|e| self.failed(e))?);
        if is_lost {
            return Err(Trouble::Refused(Error::ChainBroken { session: session.clone(), seq: 1 }));
        }
        Ok(())
    }

    /// Whether the log is there; if so its end is remembered.
    pub(super) fn find_end(
        &mut self,
        conn: &Connection,
        session: &SessionId,
    ) -> Result<bool, Trouble> {
        if self.ends.contains_key(session) {
            return Ok(true);
        }
        let Some(log) = logs::find(conn, &self.path, session).map_err(Trouble::Refused)? else {
            return Ok(false);
        };
        // A log that is shorter than it was must not grow over what is missing.
        let last_noticed = log.last_seq + u64::from(planted::is(Bug::CutByOneUnnoticed));
        if self.anchors.of(session).is_some_and(|anchor| anchor.seq > last_noticed) {
            let seq = log.last_seq + 1;
            return Err(Trouble::Refused(Error::ChainBroken { session: session.clone(), seq }));
        }
        let chain_key = logs::chain_key(&self.keys, session, &log.chain_key, &log.key_id)
            .map_err(Trouble::Refused)?;
        let lease = if let Some(lease) = log.lease {
            lease
        } else {
            // The caches were emptied: this session's are rebuilt before the append.
            self.moved.push(session.clone());
            rebuild::session(conn, &self.path, session, log.no)
                .map_err(|e| Trouble::Failed(Failure::Other(e)))?
        };
        let end = End {
            no: log.no,
            last_seq: log.last_seq,
            generation: Some(schema::generation(log.last_pos)),
            chain: log.chain,
            lease,
            chain_key,
        };
        self.chain_keys.know(session, &end.chain_key);
        self.ends.insert(session.clone(), end);
        Ok(true)
    }

    fn fresh_chain_key(&self) -> Result<chain::Key, Trouble> {
        let mut bytes = Zeroizing::new([0; 32]);
        self.entropy.fill(bytes.as_mut_slice()).map_err(Trouble::Refused)?;
        Ok(chain::Key::new(*bytes))
    }

    /// Makes an empty log; answers its number.
    pub(super) fn create_log(
        &mut self,
        conn: &Connection,
        session: &SessionId,
        chain_key: chain::Key,
        current: &Subkeys,
    ) -> Result<i64, Trouble> {
        let wrapped = current
            .wrap_chain_key(session.as_str(), &chain_key, &*self.entropy)
            .map_err(Trouble::Refused)?;
        let insert = || {
            let mut insert =
                conn.prepare_cached("INSERT INTO logs(id, chain_key, key_id) VALUES (?1, ?2, ?3)")?;
            insert.insert((session.as_str(), wrapped, &**current.id()))
        };
        let no = insert().map_err(|e| self.failed(e))?;
        let lease = Lease::default();
        save_lease(conn, no, &lease).map_err(|e| self.failed(e))?;
        let (chain, generation) = (chain::GENESIS, None);
        let end = End { no, last_seq: 0, generation, chain, lease, chain_key };
        self.chain_keys.know(session, &end.chain_key);
        self.ends.insert(session.clone(), end);
        Ok(no)
    }

    fn insert(
        &mut self,
        inserts: &mut Inserts<'_>,
        batch: &Batch,
        prepared: Option<&Prepared>,
        new_lease: Option<Lease>,
        current: &Subkeys,
    ) -> Result<Appended, Trouble> {
        let conn = inserts.conn;
        let failed = |e| Trouble::Failed(failure::before_commit(&self.path, e));
        let Some(end) = self.ends.get_mut(&batch.session) else {
            // Unreachable: the caller found or made it.
            return Err(Trouble::Refused(Error::SessionNotFound {
                session: batch.session.clone(),
            }));
        };
        let first = end.last_seq + 1;
        let prepared = prepared.filter(|prepared| prepared.fits(current, &end.chain_key));
        for (index, record) in batch.records.iter().enumerate() {
            let left = u32::try_from(batch.records.len() - 1 - index).unwrap_or(u32::MAX);
            let kept = prepared.and_then(|prepared| prepared.get(index));
            let (seq, compress_above) = (end.last_seq + 1, batch.records.compress_above());
            let row = Row { session: &batch.session, seq, left, record, kept, compress_above };
            row.insert(inserts, end, current, &*self.entropy).map_err(|e| match e {
                content::Trouble::Sql(e) => failed(e),
                content::Trouble::Store(e) => Trouble::Failed(Failure::Other(e)),
                content::Trouble::Damaged | content::Trouble::BlobMissing => {
                    Trouble::Failed(Failure::Other(logs::damaged(&batch.session, first)))
                }
            })?;
            if let Event::RecordRedacted(e) = &record.event {
                self.took_out = true;
                removal::begin(conn)
                    .and_then(|()| removal::content(conn, end.no, e.target_seq))
                    .map_err(failed)?;
            }
            if token::subject(&record.event).is_some() {
                advance_token(conn, end.no, end.last_seq, &record.event).map_err(failed)?;
            }
        }
        if let Some(lease) = new_lease {
            save_lease(conn, end.no, &lease).map_err(failed)?;
            end.lease = lease;
        }
        if let Some(summary) = &batch.summary {
            save_summary(conn, end.no, &batch.session, summary).map_err(failed)?;
        }
        Ok(Appended { first, last: end.last_seq })
    }

    pub(super) fn insert_copied(
        &mut self,
        inserts: &mut Inserts<'_>,
        session: &SessionId,
        copied: &CopiedRecord,
        current: &Subkeys,
    ) -> Result<(), Trouble> {
        let Some(end) = self.ends.get_mut(session) else {
            // Unreachable: the caller made it.
            return Err(Trouble::Refused(Error::SessionNotFound { session: session.clone() }));
        };
        let record = &copied.record;
        let damaged = || Trouble::Failed(Failure::Other(logs::damaged(session, record.seq)));
        let payload = match &record.content {
            Content::Json(json) => Some(json.as_bytes()),
            Content::None | Content::Omitted | Content::Redacted => None,
        };
        let new = NewRecord::from_bytes(record.ts, &record.kind, record.header.as_bytes(), payload)
            .map_err(|_| damaged())?;
        let tombstone;
        let kept = if record.content == Content::Redacted {
            tombstone = Kept { form: Form::Tombstone, hash: copied.payload_hash, bytes: None };
            Some(&tombstone)
        } else {
            None
        };
        // The first record of an adopted log has a seq of its own.
        end.last_seq = record.seq - 1;
        let left = copied.batch_left;
        let row = Row { session, seq: record.seq, left, record: &new, kept, compress_above: None };
        let path = &self.path;
        row.insert(inserts, end, current, &*self.entropy).map_err(|e| match e {
            content::Trouble::Sql(e) => Trouble::Failed(failure::before_commit(path, e)),
            content::Trouble::Store(e) => Trouble::Failed(Failure::Other(e)),
            content::Trouble::Damaged | content::Trouble::BlobMissing => damaged(),
        })?;
        if end.chain != copied.chain {
            return Err(damaged());
        }
        Ok(())
    }

    pub(crate) fn save_snapshot(
        &self,
        conn: &Connection,
        session: &SessionId,
        snapshot: &Snapshot,
    ) -> Result<(), Trouble> {
        let save = || {
            let mut save = conn.prepare_cached(
                "INSERT INTO snapshots(no, seq, projector, chain, body)
                 SELECT no, ?2, ?3, ?4, ?5 FROM logs WHERE id = ?1
                 ON CONFLICT(no) DO UPDATE SET seq = excluded.seq,
                   projector = excluded.projector, chain = excluded.chain, body = excluded.body",
            )?;
            save.execute((
                session.as_str(),
                snapshot.seq.cast_signed(),
                snapshot.projector,
                snapshot.chain.as_slice(),
                &snapshot.body,
            ))
        };
        match save().map_err(|e| self.failed(e))? {
            0 => Err(Trouble::Refused(Error::SessionNotFound { session: session.clone() })),
            _ => Ok(()),
        }
    }
}

/// One record on its way into the table.
struct Row<'a> {
    session: &'a SessionId,
    seq: Seq,
    left: u32,
    record: &'a NewRecord,
    /// Its content, if it was sealed before.
    kept: Option<&'a Kept>,
    compress_above: Option<usize>,
}

/// The statements that every record needs, found once per transaction.
pub(crate) struct Inserts<'c> {
    pub(crate) conn: &'c Connection,
    record: CachedStatement<'c>,
    place: CachedStatement<'c>,
}

impl<'c> Inserts<'c> {
    pub(crate) fn new(conn: &'c Connection) -> rusqlite::Result<Self> {
        let record = conn.prepare_cached(
            "INSERT INTO records(rid, ts, batch_left, kind, header, form, key_id, payload_hash,
               chain, payload) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?;
        let place =
            conn.prepare_cached("INSERT INTO places(generation, rid, pos) VALUES (?1, ?2, ?3)")?;
        Ok(Self { conn, record, place })
    }
}

impl Row<'_> {
    fn insert(
        &self,
        inserts: &mut Inserts<'_>,
        end: &mut End,
        current: &Subkeys,
        entropy: &dyn Entropy,
    ) -> Result<(), content::Trouble> {
        let record = self.record;
        let binding =
            ContentBinding { session: self.session.as_str(), seq: self.seq, kind: &record.kind };
        let payload = record.payload.as_deref();
        let fresh;
        let kept = if let Some(kept) = self.kept {
            kept
        } else {
            let (conn, key) = (inserts.conn, &end.chain_key);
            let above = self.compress_above;
            fresh = content::keep(conn, current, key, binding, payload, above, entropy)?;
            &fresh
        };
        let link = chain::LinkInput {
            seq: self.seq,
            ts: record.ts,
            kind: &record.kind,
            header: &record.header,
            payload_hash: kept.hash,
            batch_left: self.left,
        };
        let chain = end.chain_key.link(&end.chain, link);
        let rid = rid(end.no, self.seq);
        let pos = inserts.record.insert((
            rid,
            record.ts.as_millis(),
            self.left,
            &*record.kind,
            &*record.header,
            kept.form.to_i64(),
            kept.bytes.is_some().then_some(&**current.id()),
            kept.hash.as_ref().map(<[u8; 32]>::as_slice),
            chain.as_slice(),
            kept.bytes.as_deref(),
        ))?;
        let generation = schema::generation(pos);
        if end.generation != Some(generation) {
            insert_span(inserts.conn, rid, generation)?;
            end.generation = Some(generation);
        }
        inserts.place.execute((generation, rid, pos))?;
        end.last_seq = self.seq;
        end.chain = chain;
        Ok(())
    }
}

/// A log's first record in a generation.
fn insert_span(conn: &Connection, first_rid: i64, generation: i64) -> rusqlite::Result<()> {
    let mut insert =
        conn.prepare_cached("INSERT INTO spans(first_rid, generation) VALUES (?1, ?2)")?;
    insert.execute((first_rid, generation))?;
    Ok(())
}

pub(crate) fn save_lease(conn: &Connection, no: i64, lease: &Lease) -> rusqlite::Result<()> {
    let mut save =
        conn.prepare_cached("INSERT OR REPLACE INTO heads(no, epoch, owner) VALUES (?1, ?2, ?3)")?;
    let owner = lease.owner.as_ref().map(BootId::as_str);
    save.execute((no, lease.epoch.cast_signed(), owner))?;
    Ok(())
}

pub(crate) fn save_summary(
    conn: &Connection,
    no: i64,
    session: &SessionId,
    summary: &Summary,
) -> rusqlite::Result<()> {
    if session.is_metadata_log() {
        return Ok(());
    }
    let mut save = conn.prepare_cached(
        "INSERT INTO sessions(no, id, active_at, task_id, closed, needs_recovery, deadline_at,
           summary) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
         ON CONFLICT(no) DO UPDATE SET active_at = excluded.active_at,
           task_id = excluded.task_id, closed = excluded.closed,
           needs_recovery = excluded.needs_recovery, deadline_at = excluded.deadline_at,
           summary = excluded.summary",
    )?;
    let columns = Columns::of(session, summary);
    save.execute((
        no,
        columns.id,
        columns.active_at,
        columns.task_id,
        columns.closed,
        columns.needs_recovery,
        columns.deadline_at,
        to_json(summary)?,
    ))?;
    Ok(())
}

/// Carries an event over into its token's entry. An id that another session minted first stays
/// that session's.
pub(crate) fn advance_token(
    conn: &Connection,
    no: i64,
    seq: Seq,
    event: &Event,
) -> rusqlite::Result<()> {
    let Some(id) = token::subject(event) else { return Ok(()) };
    let mut select = conn.prepare_cached("SELECT no, entry FROM tokens WHERE id = ?1")?;
    let found: Option<(i64, String)> =
        select.query_row([id.as_str()], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let entry = match found {
        Some((owner, _)) if owner != no => return Ok(()),
        // An entry that cannot be read is as good as none: a cache.
        Some((_, entry)) => serde_json::from_str(&entry).ok(),
        None => None,
    };
    let Some(entry) = token::transition(entry, seq, event) else { return Ok(()) };
    let mut save =
        conn.prepare_cached("INSERT OR REPLACE INTO tokens(id, no, entry) VALUES (?1, ?2, ?3)")?;
    save.execute((id.as_str(), no, to_json(&entry)?))?;
    Ok(())
}

fn to_json(value: &impl serde::Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|e| {
        let cause: Cause = Arc::new(e);
        rusqlite::Error::ToSqlConversionFailure(Box::new(cause))
    })
}
