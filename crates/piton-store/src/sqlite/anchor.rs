//! Where each log stood, kept outside the log: a cut of the log's end would otherwise look like a
//! shorter log. Written behind the appends, about once a second and at the end, and only about
//! what is already durable; so it trails, and costs no append a flush.
//!
//! The file counts its rows in the transaction that adds or removes them, so a removal by another
//! program is noticed. The file exists before the store's first log, so a store without the file
//! lost it.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use piton_core::id::SessionId;
use piton_core::{Seq, chain};
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::schema;
use crate::contract::Problem;

/// How far the anchors trail.
const ANCHOR_INTERVAL: Duration = Duration::from_secs(1);

/// Marks the file as ours: “Pita”.
const APPLICATION_ID: i32 = 0x5069_7461;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Anchor {
    pub(crate) seq: Seq,
    pub(crate) chain: chain::Hash,
}

#[derive(Debug)]
pub(crate) struct Anchors {
    path: PathBuf,
    /// Held while the file is written: what is forgotten must not be written a moment later.
    file: Mutex<()>,
    /// For looking things up; opened when it is first needed.
    reader: Mutex<Option<Connection>>,
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    /// Committed, and not yet in the file.
    pending: HashMap<SessionId, Anchor>,
    closed: bool,
}

impl Anchors {
    pub(crate) fn new(folder: &Path) -> Self {
        let path = folder.join(schema::ANCHORS_FILE);
        Self {
            path,
            file: Mutex::default(),
            reader: Mutex::default(),
            inner: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes ends that are durable.
    pub(crate) fn note(&self, ends: impl IntoIterator<Item = (SessionId, Anchor)>) {
        let mut inner = self.lock();
        let was_empty = inner.pending.is_empty();
        inner.pending.extend(ends);
        if was_empty && !inner.pending.is_empty() {
            self.changed.notify_all();
        }
    }

    /// Forgets where a log stood, because it is about to be removed.
    pub(crate) fn forget(&self, session: &SessionId) {
        let _writing = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        self.lock().pending.remove(session);
        let forget = || {
            let conn = try_open(&self.path)?;
            let tx = conn.unchecked_transaction()?;
            let removed =
                tx.execute("DELETE FROM anchors WHERE session = ?1", [session.as_str()])?;
            count(&tx, -i64::try_from(removed).unwrap_or(i64::MAX))?;
            tx.commit()
        };
        if let Err(e) = forget() {
            tracing::warn!(path = %self.path.display(), error = %e, "An anchor was not removed");
        }
    }

    pub(crate) fn close(&self) {
        // The thread's own connection is to be the last.
        drop(self.reader.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// The thread that writes anchors, until [`Anchors::close`]. A failure is logged and costs only
    /// the anchor: the log does not depend on it.
    pub(crate) fn run(&self, mut conn: Option<Connection>) {
        let mut inner = self.lock();
        loop {
            while inner.pending.is_empty() && !inner.closed {
                inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
            }
            if !inner.closed {
                let waited = self.changed.wait_timeout_while(inner, ANCHOR_INTERVAL, |i| !i.closed);
                inner = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            drop(inner);
            let writing = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            let (pending, closed) = {
                let inner = self.lock();
                (inner.pending.clone(), inner.closed)
            };
            if !pending.is_empty() {
                conn = conn.or_else(|| try_open(&self.path).ok());
                if let Some(Err(e)) = conn.as_ref().map(|conn| write(conn, &pending)) {
                    tracing::warn!(path = %self.path.display(), error = %e, "Anchors not written");
                }
            }
            drop(writing);
            inner = self.lock();
            // What moved on meanwhile stays for the next time.
            inner.pending.retain(|session, anchor| pending.get(session) != Some(anchor));
            if closed {
                return;
            }
        }
    }

    /// The last position that was anchored.
    pub(crate) fn of(&self, session: &SessionId) -> Option<Anchor> {
        if let Some(anchor) = self.lock().pending.get(session) {
            return Some(*anchor);
        }
        let found = self.read(|conn| {
            conn.prepare_cached("SELECT seq, chain FROM anchors WHERE session = ?1")?
                .query_row([session.as_str()], |row| {
                    Ok((row.get::<_, i64>(0)?, row.get::<_, [u8; 32]>(1)?))
                })
                .optional()
        });
        let (seq, chain) = found.flatten()?;
        Some(Anchor { seq: seq.cast_unsigned(), chain })
    }

    /// The names of anchored logs, in order, after one: also of those whose log is gone.
    pub(crate) fn names(&self, after: &str, limit: i64) -> Vec<String> {
        let found = self.read(|conn| {
            conn.prepare_cached(
                "SELECT session FROM anchors WHERE session > ?1 ORDER BY session LIMIT ?2",
            )?
            .query_map((after, limit), |row| row.get(0))?
            .collect::<rusqlite::Result<Vec<String>>>()
        });
        found.unwrap_or_default()
    }

    /// A failure is logged and returns `None`: without anchors only cuts are not noticed.
    fn read<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Option<T> {
        let done = self.try_read(read);
        if let Err(e) = &done {
            tracing::warn!(path = %self.path.display(), error = %e, "Anchors not readable");
        }
        done.ok()
    }

    fn try_read<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = || -> rusqlite::Result<Connection> {
            let conn = Connection::open_with_flags(&self.path, flags)?;
            schema::configure(&conn)?;
            Ok(conn)
        };
        reader.take().map_or_else(open, Ok).and_then(|conn| {
            let done = read(&conn)?;
            *reader = Some(conn);
            Ok(done)
        })
    }

    /// What is wrong with the file as a whole, without looking at each row.
    pub(crate) fn examine(&self) -> Option<Problem> {
        if !fs::exists(&self.path).unwrap_or(true) {
            return Some(Problem::AnchorsMissing);
        }
        let damaged = |why: String| Some(Problem::AnchorsDamaged { why });
        match self.try_read(|conn| Ok((application_id(conn)?, counted(conn)?))) {
            Ok((APPLICATION_ID, _)) => None,
            Ok(_) => damaged("something else wrote it".to_owned()),
            Err(e) => damaged(e.to_string()),
        }
    }

    /// The same with every row.
    pub(crate) fn verify(&self) -> Option<Problem> {
        if let Some(problem) = self.examine() {
            return Some(problem);
        }
        let damaged = |why: String| Some(Problem::AnchorsDamaged { why });
        let looked = self.try_read(|conn| {
            // As of one moment: others write meanwhile.
            let tx = conn.unchecked_transaction()?;
            let said: String = tx.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
            let there: i64 = tx.query_row("SELECT count(*) FROM anchors", [], |row| row.get(0))?;
            Ok((said, counted(&tx)?, there))
        });
        match looked {
            Ok((said, _, _)) if said != "ok" => damaged(said),
            Ok((_, None, _)) => damaged("it does not say how many anchors it has".to_owned()),
            Ok((_, Some(counted), there)) if counted != there => {
                damaged(format!("it had {counted} anchors and has {there}"))
            }
            Ok(_) => None,
            Err(e) => damaged(e.to_string()),
        }
    }

    /// Opens the file for the thread; a damaged one is logged and replaced, a missing one created.
    pub(crate) fn open(&self) -> Option<Connection> {
        open(&self.path)
    }

    /// Writes down where logs stand now, at once.
    pub(crate) fn write_now(
        &self,
        conn: &Connection,
        ends: &HashMap<SessionId, Anchor>,
    ) -> rusqlite::Result<()> {
        let _writing = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        write(conn, ends)
    }
}

/// How many anchors there are, by the file's own count.
fn counted(conn: &Connection) -> rusqlite::Result<Option<i64>> {
    if !has_table(conn, "meta")? {
        return Ok(None);
    }
    conn.query_row("SELECT value FROM meta WHERE name = 'anchors'", [], |row| row.get(0)).optional()
}

/// Changes the count; within the transaction that adds or removes rows.
fn count(conn: &Connection, by: i64) -> rusqlite::Result<()> {
    if by != 0 {
        conn.prepare_cached("UPDATE meta SET value = value + ?1 WHERE name = 'anchors'")?
            .execute([by])?;
    }
    Ok(())
}

fn open(path: &Path) -> Option<Connection> {
    let first = match try_open(path) {
        Ok(conn) => return Some(conn),
        Err(e) => e,
    };
    let aside = path.with_extension("damaged");
    tracing::warn!(
        path = %path.display(), aside = %aside.display(), error = %first,
        "The anchors cannot be read: put aside and recreated; earlier cuts are not noticed"
    );
    let moved = fs::rename(path, &aside);
    for suffix in ["-wal", "-shm"] {
        let [from, to] = [path, &aside].map(|path| {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            name
        });
        // Belongs to the file that was put aside; mostly it is not there.
        let _ = fs::rename(from, to);
    }
    let again =
        moved.map_err(|e| e.to_string()).and_then(|()| try_open(path).map_err(|e| e.to_string()));
    match again {
        Ok(conn) => Some(conn),
        Err(e) => {
            tracing::warn!(path = %path.display(), error = e, "No anchors are kept");
            None
        }
    }
}

fn try_open(path: &Path) -> rusqlite::Result<Connection> {
    let is_new = !fs::exists(path).unwrap_or(true);
    create_private(path);
    let conn = Connection::open(path)?;
    schema::configure(&conn)?;
    refuse_foreign(&conn)?;
    conn.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")?;
    create(&conn)?;
    if let (true, Some(folder)) = (is_new, path.parent()) {
        // It must not be lost to a power cut that the store's first log survives.
        if let Err(e) = crate::folder::sync(folder) {
            tracing::warn!(path = %path.display(), error = %e, "The anchors' name is not durable");
        }
    }
    conn.execute_batch("PRAGMA synchronous = NORMAL;")?;
    Ok(conn)
}

/// Made by us and not by SQLite, so that only its owner can read it; its companions inherit that.
fn create_private(path: &Path) {
    // One that exists stays as it is; of any other failure SQLite says more.
    let _ = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
}

/// Before anything is written: a file that is neither ours nor empty belongs to another program.
fn refuse_foreign(conn: &Connection) -> rusqlite::Result<()> {
    // In this order: a process that creates the file at the same time marks it first.
    let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0))?;
    let id = application_id(conn)?;
    if id == APPLICATION_ID || (id == 0 && tables == 0) {
        return Ok(());
    }
    let error = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_NOTADB);
    Err(rusqlite::Error::SqliteFailure(error, Some("Made by something else".to_owned())))
}

fn application_id(conn: &Connection) -> rusqlite::Result<i32> {
    conn.query_row("PRAGMA application_id", [], |row| row.get(0))
}

fn create(conn: &Connection) -> rusqlite::Result<()> {
    if application_id(conn)? != APPLICATION_ID {
        conn.execute_batch(&format!("PRAGMA application_id = {APPLICATION_ID};"))?;
    }
    if has_table(conn, "meta")? {
        return Ok(());
    }
    // Two processes may come here at once.
    conn.execute_batch(
        "BEGIN IMMEDIATE;
         CREATE TABLE IF NOT EXISTS anchors(
           session TEXT PRIMARY KEY, seq INTEGER NOT NULL, chain BLOB NOT NULL) WITHOUT ROWID;
         CREATE TABLE IF NOT EXISTS meta(
           name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
         INSERT OR IGNORE INTO meta(name, value) VALUES ('anchors', (SELECT count(*) FROM anchors));
         COMMIT;",
    )
}

fn has_table(conn: &Connection, name: &str) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1")?
        .exists([name])
}

fn write(conn: &Connection, pending: &HashMap<SessionId, Anchor>) -> rusqlite::Result<()> {
    let tx = conn.unchecked_transaction()?;
    {
        // Never backwards: a log that was cut must not take its anchor with it.
        let mut advance = tx.prepare_cached(
            "UPDATE anchors SET seq = ?2, chain = ?3 WHERE session = ?1 AND seq < ?2",
        )?;
        let mut add = tx.prepare_cached(
            "INSERT OR IGNORE INTO anchors(session, seq, chain) VALUES (?1, ?2, ?3)",
        )?;
        let mut added = 0;
        for (session, anchor) in pending {
            let row = (session.as_str(), anchor.seq.cast_signed(), anchor.chain.as_slice());
            if advance.execute(row)? == 0 {
                added += i64::try_from(add.execute(row)?).unwrap_or(i64::MAX);
            }
        }
        count(&tx, added)?;
    }
    tx.commit()
}

/// Whether a file of anchors lies in the folder: then there was a store.
pub(crate) fn exist(folder: &Path) -> io::Result<bool> {
    fs::exists(folder.join(schema::ANCHORS_FILE))
}
