//! Opening: what lies in the data folder is looked at before anything is written, and a store is
//! made whole under another name before it gets its own. Nothing here grows with the number of
//! sessions.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use piton_core::id::SessionId;
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::{Access, Options, anchor, failure, rebuild, schema};
use crate::contract::Entropy;
use crate::error::{Cause, Error, Result};
use crate::folder;
use crate::keys::{KeySource, Keys};

/// Held while a store is made, so that two processes do not make two.
const CREATION_LOCK: &str = "store.lock";

/// SQLite's file header: its beginning, and where our mark and our format stand in it.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const HEADER_BYTES: usize = 100;
const APPLICATION_ID_AT: usize = 68;
const USER_VERSION_AT: usize = 60;

/// An opened database and its keys.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) path: PathBuf,
    pub(crate) conn: Connection,
    pub(crate) keys: Arc<Keys>,
}

pub(crate) fn open(options: &Options) -> Result<Opened> {
    let path = options.data.join(schema::FILE);
    match options.access {
        Access::ReadWrite => {
            folder::create(&options.data)?;
            folder::refuse_exposed(&options.data)?;
            folder::refuse_network(&options.data)?;
            writable(&options.data)?;
            create_if_missing(options, &path)?;
        }
        Access::ReadOnly => {
            folder::refuse_exposed(&options.data)?;
            folder::refuse_network(&options.data)?;
        }
    }
    refuse_foreign(&path)?;
    let conn = match options.access {
        Access::ReadWrite => connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?,
        Access::ReadOnly => connect_reader(&path)?,
    };
    let failed = |e| failure::to_error(&path, e);
    check_format(&conn, &path)?;
    let keys = find_keys(&conn, options, &path)?;
    if options.access == Access::ReadWrite {
        if conn.is_readonly("main").map_err(failed)? {
            return Err(Error::ReadOnly { path, source: None });
        }
        schema::configure_writer(&conn).map_err(failed)?;
        restore_caches(&conn, &path)?;
    }
    Ok(Opened { path, conn, keys: Arc::new(keys) })
}

fn connect(path: &Path, access: OpenFlags) -> Result<Connection> {
    // One thread uses a connection at a time; SQLite's own locks would only cost.
    let conn = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(|e| failure::to_error(path, e))?;
    schema::configure(&conn).map_err(|e| failure::to_error(path, e))?;
    Ok(conn)
}

/// A connection that cannot write.
pub(crate) fn connect_reader(path: &Path) -> Result<Connection> {
    let read_only = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let conn = if is_frozen(path) {
        // SQLite would want to make the shared memory of the write-ahead log.
        let uri = format!("file:{}?immutable=1", percent_encoded(path));
        connect(Path::new(&uri), read_only | OpenFlags::SQLITE_OPEN_URI)?
    } else {
        connect(path, read_only)?
    };
    conn.pragma_update(None, "query_only", true).map_err(|e| failure::to_error(path, e))?;
    Ok(conn)
}

/// Whether no process can write to the database: the file system is read-only and the database is
/// whole in one file.
fn is_frozen(path: &Path) -> bool {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    let whole = fs::metadata(wal).map_or(true, |wal| wal.len() == 0);
    whole
        && rustix::fs::statvfs(path)
            .is_ok_and(|found| found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

/// A path as SQLite's `file:` names want it.
fn percent_encoded(path: &Path) -> String {
    use std::fmt::Write as _;
    let mut out = String::new();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                out.push(char::from(*byte));
            }
            // Writing to a string does not fail.
            _ => drop(write!(out, "%{byte:02x}")),
        }
    }
    out
}

fn unreadable(path: &Path, e: io::Error) -> Error {
    Error::Unreadable { path: path.to_owned(), source: Some(Arc::new(e) as Cause) }
}

fn writable(folder: &Path) -> Result<()> {
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)
        .map_err(|e| folder::write_failed(folder, e.into()))
}

/// Looks at the file's first bytes before SQLite does: a foreign file is not touched at all, not
/// even to roll back its journal.
fn refuse_foreign(path: &Path) -> Result<()> {
    let foreign = || Error::Foreign { path: path.to_owned() };
    let file = File::open(path).map_err(|e| unreadable(path, e))?;
    if !file.metadata().map_err(|e| unreadable(path, e))?.is_file() {
        return Err(foreign());
    }
    let mut header = Vec::with_capacity(HEADER_BYTES);
    file.take(HEADER_BYTES as u64).read_to_end(&mut header).map_err(|e| unreadable(path, e))?;
    // Never ours as it is: a store gets its name only when it is whole.
    if header.is_empty() || (header.len() < HEADER_BYTES && header.starts_with(MAGIC)) {
        return Err(Error::Damaged { path: path.to_owned(), source: None });
    }
    let word = |at: usize| header.get(at..at + 4);
    if !header.starts_with(MAGIC)
        || word(APPLICATION_ID_AT) != Some(&schema::APPLICATION_ID.to_be_bytes())
    {
        return Err(foreign());
    }
    // SQLite would make files beside it only to say the same. 0 is no version of ours: see below.
    let found = word(USER_VERSION_AT).and_then(|word| word.try_into().ok());
    match found.map(u32::from_be_bytes) {
        Some(found @ 1..schema::FORMAT) => Err(Error::TooOld { found, supported: schema::FORMAT }),
        _ => Ok(()),
    }
}

fn check_format(conn: &Connection, path: &Path) -> Result<()> {
    let failed = |e| failure::to_error(path, e);
    let id: i32 = conn.query_row("PRAGMA application_id", [], |r| r.get(0)).map_err(failed)?;
    if id != schema::APPLICATION_ID {
        return Err(Error::Foreign { path: path.to_owned() });
    }
    let found: u32 = conn.query_row("PRAGMA user_version", [], |r| r.get(0)).map_err(failed)?;
    if found > schema::FORMAT {
        return Err(Error::Newer { found, supported: schema::FORMAT });
    }
    if found > 0 && found < schema::FORMAT {
        return Err(Error::TooOld { found, supported: schema::FORMAT });
    }
    if found == 0 || !has_tables(conn, &schema::TRUTH).map_err(failed)? {
        return Err(Error::Damaged { path: path.to_owned(), source: None });
    }
    Ok(())
}

fn has_tables(conn: &Connection, tables: &[&str]) -> rusqlite::Result<bool> {
    let mut find =
        conn.prepare_cached("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1")?;
    for table in tables {
        if !find.exists([table])? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Rebuilds caches that were dropped or emptied. Costs a few look-ups otherwise.
fn restore_caches(conn: &Connection, path: &Path) -> Result<()> {
    let failed = |e| failure::to_error(path, e);
    let emptied = || {
        Ok(!has_tables(conn, &schema::CACHES)?
            || conn.query_row(
                "SELECT EXISTS (SELECT 1 FROM logs) AND NOT EXISTS (SELECT 1 FROM heads)",
                [],
                |row| row.get(0),
            )?
            || is_unplaced(conn)?
            || is_unlisted(conn)?)
    };
    if !emptied().map_err(failed)? {
        return Ok(());
    }
    tracing::warn!(path = %path.display(), "The caches are missing and are rebuilt");
    let tx = rusqlite::Transaction::new_unchecked(conn, rusqlite::TransactionBehavior::Immediate)
        .map_err(failed)?;
    tx.execute_batch(schema::CREATE_CACHES).map_err(failed)?;
    rebuild::all(&tx, path)?;
    tx.commit().map_err(failed)
}

/// Whether the last record cannot be found by its log and seq.
fn is_unplaced(conn: &Connection) -> rusqlite::Result<bool> {
    let last = conn
        .query_row("SELECT pos, rid FROM records ORDER BY pos DESC LIMIT 1", [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        })
        .optional()?;
    let Some((pos, rid)) = last else { return Ok(false) };
    let place =
        conn.query_row(schema::SELECT_PLACE, [rid], |row| row.get::<_, i64>(0)).optional()?;
    Ok(place != Some(pos))
}

/// Whether there are logs that belong into the list of sessions, and nothing is in it.
fn is_unlisted(conn: &Connection) -> rusqlite::Result<bool> {
    if conn.prepare("SELECT 1 FROM sessions")?.exists([])? {
        return Ok(false);
    }
    // Ends at the first log that is not one of the few reserved ones.
    let mut select = conn.prepare("SELECT id FROM logs")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let id = row.get_ref(0)?.as_str().ok().and_then(|id| id.parse::<SessionId>().ok());
        if id.is_some_and(|id| !id.is_metadata_log()) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn find_keys(conn: &Connection, options: &Options, path: &Path) -> Result<Keys> {
    let damaged = || Error::Damaged { path: path.to_owned(), source: None };
    let meta = |name: &str| -> Result<String> {
        conn.query_row("SELECT value FROM meta WHERE name = ?1", [name], |row| row.get(0))
            .optional()
            .map_err(|e| failure::to_error(path, e))?
            .ok_or_else(damaged)
    };
    let source = KeySource::parse(&meta("key_source")?).ok_or_else(damaged)?;
    let settings = options.keys.clone();
    Keys::open(&options.data, settings, meta("store_id")?, source, &meta("key_id")?)
}

fn create_if_missing(options: &Options, path: &Path) -> Result<()> {
    let data = &options.data;
    let failed = |e: io::Error| folder::write_failed(data, e);
    let missing = || match fs::symlink_metadata(path) {
        Ok(_) => Ok(false),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(e) => Err(unreadable(path, e)),
    };
    if !missing()? {
        return Ok(());
    }
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(data.join(CREATION_LOCK))
        .map_err(failed)?;
    lock.lock().map_err(failed)?;
    if !missing()? {
        return Ok(());
    }
    // Anchors without a store: it was lost, and an empty one in its place would hide that.
    if anchor::exist(data).map_err(|e| unreadable(data, e))? {
        return Err(Error::Damaged { path: path.to_owned(), source: None });
    }
    create(options, path)
}

fn create(options: &Options, path: &Path) -> Result<()> {
    let data = &options.data;
    let failed = |e: io::Error| folder::write_failed(data, e);
    let store_id = random_id(&*options.entropy)?;
    let keys = Keys::create(data, options.keys.clone(), store_id.clone(), &*options.entropy)?;
    let new = path.with_extension("new");
    remove_database(&new).map_err(failed)?;
    // Made by us and not by SQLite, so that only its owner can read it; SQLite gives its companions
    // the same mode.
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)
        .map_err(failed)?;
    fill(&new, &store_id, &keys).map_err(|e| failure::to_error(&new, e))?;
    file.sync_all().map_err(failed)?;
    fs::hard_link(&new, path).map_err(failed)?;
    fs::remove_file(&new).map_err(failed)?;
    folder::sync(data)
}

fn fill(path: &Path, store_id: &str, keys: &Keys) -> rusqlite::Result<()> {
    let conn = Connection::open(path)?;
    let (id, format) = (schema::APPLICATION_ID, schema::FORMAT);
    conn.execute_batch(&format!(
        "BEGIN; PRAGMA application_id = {id}; PRAGMA user_version = {format};
         {}{} COMMIT;",
        schema::CREATE_TRUTH,
        schema::CREATE_CACHES
    ))?;
    for (name, value) in [
        ("store_id", store_id),
        ("key_id", keys.current().id()),
        ("key_source", keys.source().as_str()),
    ] {
        conn.execute("INSERT INTO meta(name, value) VALUES (?1, ?2)", [name, value])?;
    }
    conn.execute_batch("PRAGMA journal_mode = WAL;")?;
    conn.close().map_err(|(_, e)| e)
}

/// Removes what a process that died while making a store left behind.
fn remove_database(path: &Path) -> io::Result<()> {
    for suffix in ["", "-journal", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        match fs::remove_file(name) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

fn random_id(entropy: &dyn Entropy) -> Result<String> {
    let mut bytes = [0; 8];
    entropy.fill(&mut bytes)?;
    Ok(hex::encode(bytes))
}
