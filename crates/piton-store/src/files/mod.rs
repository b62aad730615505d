//! A store of plain files: one log of lines per session, which `tail` and `jq` can
//! read, with a snapshot and a token index beside it.
//!
//! **Nothing here is encrypted.** The only protection is the file mode: only the owner can read the
//! files. Use the SQLite store to keep secrets from a person who gets the disk. A `README` in the
//! folder says so, too.
//!
//! One process at a time writes to the folder: a second writer gets an error that names the first.
//! Any number of processes read beside it, without a lock. An append costs one write and one flush
//! of the session's log; everything else (snapshot, token index, anchor) is written behind it and
//! made again from the log when it is missing or damaged.
//!
//! [`Folder`] is the whole store without threads, on any [`Disk`]; [`FilesStore`] puts threads and
//! the contract around it.

mod adopt;
mod append;
mod blobs;
mod disk;
mod folder;
mod line;
mod log;
#[cfg(any(test, feature = "testing"))]
mod model;
mod open;
mod paths;
mod read;
mod reading;
mod register;
mod remove;
mod rewrite;
mod scan;
mod sealed;
mod snapshot;
mod threads;
mod verify;
mod work;

#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

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
use crate::folder as data_folder;
use crate::hub::{Changes, Hints, Hub};
use crate::load::LoadedState;
use crate::queue::{Queue, Reply};
use crate::threads::{READERS, Readers, spawn};
use crate::writer::WritableRecords;

pub use self::disk::{Disk, DiskFile, Entry, RealDisk};
pub use self::folder::Folder;
#[cfg(any(test, feature = "testing"))]
pub use self::model::{Crash, ModelDisk};
pub use crate::sqlite::Access;

use self::threads::{Behind, Counters, Writer};
use self::work::Work;

/// How to open a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// The data folder; made if it is not there.
    pub data: PathBuf,
    /// Reading needs no lock and works beside a writer.
    pub access: Access,
    pub liveness: Arc<dyn Liveness>,
    pub entropy: Arc<dyn Entropy>,
}

impl Options {
    /// For writing, with lock files and the system's random numbers.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        let data = data.into();
        Self {
            liveness: Arc::new(BootLocks::new(&data)),
            data,
            access: Access::ReadWrite,
            entropy: Arc::new(OsEntropy),
        }
    }
}

/// A store of plain files. Closed when dropped; that waits until what was queued is written.
#[derive(Debug)]
pub struct FilesStore {
    folder: Arc<Folder>,
    queue: Arc<Queue<Work>>,
    hub: Arc<Hub>,
    counters: Arc<Counters>,
    readers: Arc<Readers<Arc<Folder>>>,
    behind: Arc<Behind>,
    open: Mutex<Open>,
}

/// What goes when the store is closed.
#[derive(Debug, Default)]
struct Open {
    writer: Option<JoinHandle<()>>,
    behind: Option<JoinHandle<()>>,
    lock: Option<File>,
}

impl FilesStore {
    /// Opens a store, or makes one. Blocks on the disk.
    pub fn open(options: Options) -> Result<Self> {
        let Options { data, access, liveness, entropy } = options;
        if access == Access::ReadWrite {
            data_folder::create(&data)?;
        }
        data_folder::refuse_exposed(&data)?;
        data_folder::refuse_network(&data)?;
        let disk = Arc::new(RealDisk::new(access == Access::ReadOnly));
        // Before the lock's file is made.
        open::check_format(&*disk, &paths::Paths::new(&data))?;
        let lock = match access {
            Access::ReadWrite => Some(lock(&paths::Paths::new(&data).lock())?),
            Access::ReadOnly => None,
        };
        let folder = Arc::new(Folder::open(disk, &data, access, liveness, entropy)?);
        Self::start(&folder, lock)
    }

    fn start(folder: &Arc<Folder>, lock: Option<File>) -> Result<Self> {
        let no_thread = |e: std::io::Error| Error::Unreadable {
            path: folder.paths.data.clone(),
            source: Some(Arc::new(e) as Cause),
        };
        // One process writes at a time, and nothing tells a reader when it does.
        let hub = match folder.access {
            Access::ReadWrite => Hub::default(),
            Access::ReadOnly => Hub::without_hints(),
        };
        let store = Self {
            folder: folder.clone(),
            queue: Arc::default(),
            hub: Arc::new(hub),
            counters: Arc::default(),
            readers: Arc::new(Readers::start(vec![folder.clone(); READERS]).map_err(no_thread)?),
            behind: Arc::default(),
            open: Mutex::new(Open { lock, ..Open::default() }),
        };
        if folder.access == Access::ReadOnly {
            store.queue.close();
            return Ok(store);
        }
        let writer = Writer {
            folder: folder.clone(),
            queue: store.queue.clone(),
            hub: store.hub.clone(),
            behind: store.behind.clone(),
            counters: store.counters.clone(),
        };
        let mut open = store.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.writer = Some(spawn("piton-write", move || writer.run()).map_err(no_thread)?);
        let behind = store.behind.clone();
        if folder.is_dirty() {
            behind.wake();
        }
        let (behind_folder, queue) = (folder.clone(), store.queue.clone());
        let run = move || behind.run(&behind_folder, &queue);
        open.behind = Some(spawn("piton-behind", run).map_err(no_thread)?);
        drop(open);
        Ok(store)
    }

    /// Writes what was queued and the caches, lets go of the folder, and ends. Blocks; later calls
    /// fail with `Closed`.
    pub fn close(&self) {
        let open = std::mem::take(&mut *self.open.lock().unwrap_or_else(PoisonError::into_inner));
        self.queue.close();
        self.readers.close();
        if let Some(Err(_)) = open.writer.map(JoinHandle::join) {
            tracing::error!("The writer's thread panicked");
        }
        self.behind.close();
        if let Some(Err(_)) = open.behind.map(JoinHandle::join) {
            tracing::error!("The thread that writes caches panicked");
        }
        if let Some(lock) = open.lock {
            // Closing would do, but for a child that another thread forks right now: until its exec
            // it has the file open, too.
            let _ = lock.unlock();
        }
    }

    fn ask_writer<T: Send + 'static>(
        &self,
        work: impl FnOnce(Reply<T>) -> Work,
    ) -> BoxFuture<Result<T>> {
        if self.folder.access == Access::ReadOnly {
            let path = self.folder.paths.data.clone();
            return Box::pin(std::future::ready(Err(Error::ReadOnly { path, source: None })));
        }
        let (reply, answer) = oneshot::channel();
        self.queue.push(work(reply));
        Box::pin(async move { answer.await.map_err(|_| Error::Closed)? })
    }

    /// Something that a writer answers from memory; a reader looks at the files first.
    fn know<T: Send + 'static>(
        &self,
        about: Option<&SessionId>,
        question: impl FnOnce(&Folder) -> Result<T> + Send + 'static,
    ) -> BoxFuture<Result<T>> {
        if self.folder.access == Access::ReadOnly {
            let about = about.cloned();
            return self.readers.ask(move |folder| {
                match about {
                    Some(session) => folder.refresh(&session)?,
                    None => folder.refresh_all()?,
                }
                question(folder)
            });
        }
        let folder = self.folder.clone();
        Box::pin(async move { question(&folder) })
    }

    /// Something about one log that takes reading.
    fn ask<T: Send + 'static>(
        &self,
        about: &SessionId,
        question: impl FnOnce(&Folder, &SessionId) -> Result<T> + Send + 'static,
    ) -> BoxFuture<Result<T>> {
        let about = about.clone();
        self.readers.ask(move |folder| {
            folder.refresh(&about)?;
            question(folder, &about)
        })
    }
}

impl Drop for FilesStore {
    fn drop(&mut self) {
        self.close();
    }
}

/// The folder's lock. It belongs to the open file, which is closed on exec: no child inherits it.
fn lock(path: &Path) -> Result<File> {
    let failed = |e| data_folder::write_failed(path, e);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Only for the message; the pid proves nothing.
            let _ = file.take(32).read_to_string(&mut holder);
            let holder = match holder.trim() {
                "" => "another process".to_owned(),
                pid => format!("process {pid}"),
            };
            return Err(Error::InUse { path: path.to_owned(), holder });
        }
        Err(TryLockError::Error(e)) => return Err(failed(e)),
    }
    let written = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    written.map_err(failed)?;
    Ok(file)
}

impl Store for FilesStore {
    fn append(&self, batch: Batch) -> BoxFuture<Result<Appended>> {
        self.ask_writer(|reply| Work::Append { batch: Box::new(batch), reply })
    }

    fn check_writable(&self) -> BoxFuture<Result<()>> {
        self.readers.ask(|folder| {
            folder.check_writable()?;
            data_folder::check_writable(&folder.paths.data)
        })
    }

    fn head(&self, session: &SessionId) -> BoxFuture<Result<Option<Head>>> {
        let id = session.clone();
        self.know(Some(session), move |folder| folder.head(&id))
    }

    fn read(
        &self,
        session: &SessionId,
        after: Seq,
        limit: usize,
        detail: Detail,
    ) -> BoxFuture<Result<Vec<Record>>> {
        self.ask(session, move |folder, session| folder.read(session, after, limit, detail))
    }

    fn chain_at(&self, session: &SessionId, seq: Seq) -> BoxFuture<Result<Option<chain::Hash>>> {
        self.ask(session, move |folder, session| folder.chain_at(session, seq))
    }

    fn subscribe(&self, session: &SessionId) -> Hints {
        self.hub.subscribe(session)
    }

    fn changes(&self) -> Changes {
        self.hub.changes()
    }

    fn snapshot(&self, session: &SessionId) -> BoxFuture<Result<Option<Snapshot>>> {
        let id = session.clone();
        self.know(Some(session), move |folder| Ok(folder.snapshot(&id)))
    }

    fn save_snapshot(&self, session: &SessionId, snapshot: Snapshot) -> BoxFuture<Result<()>> {
        let id = session.clone();
        let behind = self.behind.clone();
        self.know(Some(session), move |folder| {
            folder.save_snapshot(&id, snapshot)?;
            behind.wake();
            Ok(())
        })
    }

    fn load(&self, session: &SessionId) -> BoxFuture<Result<Option<LoadedState>>> {
        self.ask(session, Folder::load)
    }

    fn logs(&self, after: Option<&SessionId>, limit: usize) -> BoxFuture<Result<Vec<SessionId>>> {
        let after = after.cloned();
        self.know(None, move |folder| Ok(folder.names(after.as_ref(), limit)))
    }

    fn list(&self, query: Query) -> BoxFuture<Result<Page>> {
        self.know(None, move |folder| Ok(folder.list(&query)))
    }

    fn token(&self, token: &TokenId) -> BoxFuture<Result<Option<(SessionId, token::Entry)>>> {
        let token = token.clone();
        self.know(None, move |folder| Ok(folder.token(&token)))
    }

    fn verify(&self, session: &SessionId) -> BoxFuture<Result<Verification>> {
        let session = session.clone();
        self.readers.ask(move |folder| folder.verify_beside(&session))
    }

    fn verify_store(&self) -> BoxFuture<Result<Vec<Finding>>> {
        self.know(None, move |folder| Ok(folder.verify_store()))
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
        let id = session.clone();
        if self.folder.is_upgradable(session) {
            return self.ask_writer(|reply| Work::CopyHead { session: id, reply });
        }
        self.know(Some(session), move |folder| folder.copy_head(&id))
    }

    fn copy_records(
        &self,
        session: &SessionId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<Result<Vec<CopiedRecord>>> {
        self.ask(session, move |folder, session| folder.copy_records(session, after, limit))
    }

    fn copy_in(&self, copy: LogCopy) -> BoxFuture<Result<()>> {
        let copy = Box::new(copy);
        self.ask_writer(|reply| Work::CopyIn { copy, reply })
    }

    fn stats(&self) -> Stats {
        Stats {
            batches: self.counters.batches.load(Ordering::Relaxed),
            records: self.counters.records.load(Ordering::Relaxed),
            flushes: self.folder.flushes(),
            latency: self.folder.latency(),
        }
    }
}
