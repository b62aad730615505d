//! The default store: one SQLite database in the data folder, written by one thread with group
//! commit, read by a few others. Contents are encrypted, records are chained, and the chain's end
//! is anchored in a second file.
//!
//! Several processes may have the same store open and write to sessions of their own; a lease is
//! checked inside the transaction, so they cannot write to the same one.

mod anchor;
mod append;
mod caches;
mod content;
mod copy;
mod failure;
mod list;
mod logs;
mod open;
mod parallel_checks;
mod prepare;
mod read;
mod rebuild;
mod removal;
mod rotate;
mod schema;
mod verify;
mod verify_store;
mod wal;
mod watch;
mod work;
mod writer;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use piton_core::id::{SessionId, TokenId};
use piton_core::{Record, Seq, chain, token};
use tokio::sync::oneshot;

use crate::append_rules::Removal;
use crate::boots::BootLocks;
use crate::contract::{
    Appended, Batch, BoxFuture, CopiedRecord, CopyHead, Detail, Entropy, Finding, Guard, Head,
    Liveness, LogCopy, OsEntropy, Page, Query, Snapshot, Stats, Store, Verification,
};
use crate::error::{Cause, Error, Result};
use crate::folder;
use crate::hub::{Changes, Hints, Hub};
use crate::keys::{KeySettings, Keys};
use crate::load::LoadedState;
use crate::queue::{Queue, Reply, Work as _};
use crate::threads::{READERS, Readers, spawn};
use crate::writer::WritableRecords;

use self::anchor::Anchors;
use self::append::Appender;
use self::prepare::{ChainKeys, Prepared};
use self::read::Reader;
use self::wal::Ahead;
use self::watch::Watch;
use self::work::Work;
use self::writer::{Counters, Writer};

/// How to open a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// The data folder; made if it is not there.
    pub data: PathBuf,
    pub access: Access,
    pub keys: KeySettings,
    pub liveness: Arc<dyn Liveness>,
    pub entropy: Arc<dyn Entropy>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    ReadWrite,
    /// Beside a writer, or without one; makes and changes nothing.
    ReadOnly,
}

impl Options {
    /// For writing, with the key file, lock files and the system's random numbers.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        let data = data.into();
        Self {
            liveness: Arc::new(BootLocks::new(&data)),
            data,
            access: Access::ReadWrite,
            keys: KeySettings::default(),
            entropy: Arc::new(OsEntropy),
        }
    }
}

/// A store in a SQLite database. Closed when dropped; that waits until what was queued is written.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    access: Access,
    keys: Arc<Keys>,
    entropy: Arc<dyn Entropy>,
    chain_keys: Arc<ChainKeys>,
    queue: Arc<Queue<Work>>,
    hub: Arc<Hub>,
    counters: Arc<Counters>,
    readers: Arc<Readers<Reader>>,
    anchors: Arc<Anchors>,
    watch: Arc<Watch>,
    threads: Mutex<Threads>,
}

#[derive(Debug, Default)]
struct Threads {
    writer: Option<JoinHandle<()>>,
    anchors: Option<JoinHandle<()>>,
    watch: Option<JoinHandle<()>>,
}

impl SqliteStore {
    /// Contents of fewer bytes are never compressed.
    pub const COMPRESSES_ABOVE: usize = content::COMPRESSED_BYTES_MIN;

    /// Where the store's key comes from.
    pub fn key_source(&self) -> crate::keys::KeySource {
        self.keys.source()
    }

    /// Opens a store, or makes one. Blocks on the disk, and on the keychain if there is one.
    pub fn open(options: Options) -> Result<Self> {
        Self::open_with(options, writer::State::default())
    }

    fn open_with(options: Options, state: writer::State) -> Result<Self> {
        let open::Opened { path, conn, keys } = open::open(&options)?;
        let anchors = Arc::new(Anchors::new(&options.data));
        let mut readers = Vec::new();
        for _ in 0..READERS {
            let conn = open::connect_reader(&path)?;
            let (path, keys, anchors) = (path.clone(), keys.clone(), anchors.clone());
            readers.push(Reader { conn, path, keys, anchors });
        }
        let no_thread = |e: std::io::Error| Error::Unreadable {
            path: path.clone(),
            source: Some(Arc::new(e) as Cause),
        };
        let store = Self {
            path: path.clone(),
            access: options.access,
            keys: keys.clone(),
            entropy: options.entropy.clone(),
            chain_keys: Arc::default(),
            queue: Arc::default(),
            hub: Arc::default(),
            counters: Arc::default(),
            readers: Arc::new(Readers::start(readers).map_err(no_thread)?),
            anchors,
            watch: Arc::new(Watch::new().map_err(no_thread)?),
            threads: Mutex::default(),
        };
        match options.access {
            Access::ReadWrite => {
                let (liveness, chain_keys) = (options.liveness, store.chain_keys.clone());
                let (entropy, anchors) = (options.entropy, store.anchors.clone());
                let appender =
                    Appender::new(path.clone(), keys, liveness, entropy, chain_keys, anchors);
                store.start_writing(conn, appender, state).map_err(no_thread)?;
            }
            Access::ReadOnly => {
                store.queue.close();
                let (mut seen, hub) = (watch::version(&conn), store.hub.clone());
                let look = move || {
                    let now = watch::version(&conn);
                    let others_wrote = std::mem::replace(&mut seen, now) != now;
                    if others_wrote {
                        hub.look();
                    }
                    others_wrote
                };
                store.start_watching(watch::READER_PAUSE_MAX, look).map_err(no_thread)?;
            }
        }
        Ok(store)
    }

    fn start_writing(
        &self,
        conn: rusqlite::Connection,
        appender: Appender,
        state: writer::State,
    ) -> std::io::Result<()> {
        let mut writer = Writer {
            conn,
            appender,
            queue: self.queue.clone(),
            hub: self.hub.clone(),
            anchors: self.anchors.clone(),
            counters: self.counters.clone(),
            ahead: Ahead::open(&self.path),
            state,
        };
        // If it cannot look now, the first transaction will say why.
        let _ = writer.look();
        let anchors = self.anchors.clone();
        // Before the writer begins: where there is a log, there are anchors.
        let conn = writer.open_anchors();
        let mut threads = self.threads();
        threads.writer = Some(spawn("piton-write", move || writer.run())?);
        threads.anchors = Some(spawn("piton-anchor", move || anchors.run(conn))?);
        drop(threads);
        // The writer looks: its connection alone can tell its own commits from those of others.
        let (queue, hub, mut looks) = (self.queue.clone(), self.hub.clone(), 0);
        self.start_watching(watch::WRITER_PAUSE_MAX, move || {
            queue.look();
            let before = std::mem::replace(&mut looks, hub.looks());
            before != looks
        })
    }

    fn start_watching(
        &self,
        pause_max: Duration,
        look: impl FnMut() -> bool + Send + 'static,
    ) -> std::io::Result<()> {
        let (watch, hub) = (self.watch.clone(), self.hub.clone());
        let folder = self.path.parent().unwrap_or(&self.path).to_owned();
        let run = move || watch.run(&folder, &hub, pause_max, look);
        self.threads().watch = Some(spawn("piton-watch", run)?);
        Ok(())
    }

    fn threads(&self) -> std::sync::MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what was queued, anchors it, and ends. Blocks; later calls fail with `Closed`.
    pub fn close(&self) {
        let threads = std::mem::take(&mut *self.threads());
        self.watch.close();
        // The writer last among the connections: only it can leave the database in one file.
        self.readers.close();
        self.queue.close();
        let join = |thread: Option<JoinHandle<()>>| thread.map(JoinHandle::join);
        if let Some(Err(_)) = join(threads.writer) {
            tracing::error!("The writer's thread panicked");
        }
        self.anchors.close();
        let _ = join(threads.anchors);
        let _ = join(threads.watch);
    }

    /// Makes a new key the current one. Old contents stay under their old keys and stay readable.
    /// With the environment as source, the new key must already stand before the old one there.
    pub fn rotate_key(&self) -> BoxFuture<Result<()>> {
        self.ask_writer(|reply| Work::Rotate { reply })
    }

    /// Enqueues before it returns.
    fn ask_writer<T: Send + 'static>(
        &self,
        work: impl FnOnce(Reply<T>) -> Work,
    ) -> BoxFuture<Result<T>> {
        let (reply, answer) = oneshot::channel();
        let work = work(reply);
        match self.access {
            Access::ReadWrite => self.queue.push(work),
            Access::ReadOnly => {
                work.refuse(Error::ReadOnly { path: self.path.clone(), source: None });
            }
        }
        Box::pin(async move { answer.await.unwrap_or(Err(Error::Closed)) })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.close();
    }
}

impl Store for SqliteStore {
    fn append(&self, batch: Batch) -> BoxFuture<Result<Appended>> {
        let (key, entropy) = (self.keys.current(), &*self.entropy);
        let prepared = Prepared::new(&batch, &self.chain_keys, key, entropy);
        let batch = Box::new(batch);
        self.ask_writer(|reply| Work::Append { batch, prepared, reply })
    }

    fn check_writable(&self) -> BoxFuture<Result<()>> {
        let (access, path, counters) = (self.access, self.path.clone(), self.counters.clone());
        self.readers.ask(move |_| {
            if access == Access::ReadOnly {
                return Err(Error::ReadOnly { path, source: None });
            }
            counters.check_writable()?;
            folder::check_writable(path.parent().unwrap_or(&path))
        })
    }

    fn head(&self, session: &SessionId) -> BoxFuture<Result<Option<Head>>> {
        let session = session.clone();
        self.readers.ask(move |reader| reader.head(&session))
    }

    fn read(
        &self,
        session: &SessionId,
        after: Seq,
        limit: usize,
        detail: Detail,
    ) -> BoxFuture<Result<Vec<Record>>> {
        let session = session.clone();
        self.readers.ask(move |reader| reader.records(&session, after, limit, detail))
    }

    fn chain_at(&self, session: &SessionId, seq: Seq) -> BoxFuture<Result<Option<chain::Hash>>> {
        let session = session.clone();
        self.readers.ask(move |reader| reader.chain_at(&session, seq))
    }

    fn subscribe(&self, session: &SessionId) -> Hints {
        let hints = self.hub.subscribe(session);
        // The watch thread sleeps while there are no listeners.
        self.watch.wake();
        hints
    }

    fn changes(&self) -> Changes {
        let changes = self.hub.changes();
        self.watch.wake();
        changes
    }

    fn snapshot(&self, session: &SessionId) -> BoxFuture<Result<Option<Snapshot>>> {
        let session = session.clone();
        self.readers.ask(move |reader| reader.snapshot(&session))
    }

    fn save_snapshot(&self, session: &SessionId, snapshot: Snapshot) -> BoxFuture<Result<()>> {
        let session = session.clone();
        self.ask_writer(|reply| Work::Snapshot { session, snapshot, reply })
    }

    fn load(&self, session: &SessionId) -> BoxFuture<Result<Option<LoadedState>>> {
        let session = session.clone();
        self.readers.ask(move |reader| reader.load(&session))
    }

    fn logs(&self, after: Option<&SessionId>, limit: usize) -> BoxFuture<Result<Vec<SessionId>>> {
        let after = after.cloned();
        self.readers.ask(move |reader| reader.logs(after.as_ref(), limit))
    }

    fn list(&self, query: Query) -> BoxFuture<Result<Page>> {
        self.readers.ask(move |reader| reader.list(&query))
    }

    fn token(&self, token: &TokenId) -> BoxFuture<Result<Option<(SessionId, token::Entry)>>> {
        let token = token.clone();
        self.readers.ask(move |reader| reader.token(&token))
    }

    fn verify(&self, session: &SessionId) -> BoxFuture<Result<Verification>> {
        let session = session.clone();
        self.readers.ask(move |reader| reader.verify(&session))
    }

    fn verify_store(&self) -> BoxFuture<Result<Vec<Finding>>> {
        self.readers.ask(Reader::verify_store)
    }

    fn rebuild_caches(&self) -> BoxFuture<Result<()>> {
        self.ask_writer(|reply| Work::Rebuild { reply })
    }

    fn delete(
        &self,
        session: &SessionId,
        expected: Seq,
        guard: Guard,
        notes: WritableRecords,
    ) -> BoxFuture<Result<()>> {
        let removal = Box::new(Removal { session: session.clone(), expected, guard, notes });
        self.ask_writer(|reply| Work::Delete { removal, reply })
    }

    fn copy_head(&self, session: &SessionId) -> BoxFuture<Result<Option<CopyHead>>> {
        let session = session.clone();
        self.readers.ask(move |reader| reader.copy_head(&session))
    }

    fn copy_records(
        &self,
        session: &SessionId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<Result<Vec<CopiedRecord>>> {
        let session = session.clone();
        self.readers.ask(move |reader| reader.copy_records(&session, after, limit))
    }

    fn copy_in(&self, copy: LogCopy) -> BoxFuture<Result<()>> {
        let copy = Box::new(copy);
        self.ask_writer(|reply| Work::CopyIn { copy, reply })
    }

    fn stats(&self) -> Stats {
        self.counters.read()
    }
}
