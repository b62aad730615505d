//! The store of plain files on a modelled disk, without threads: the same worlds, another store.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use piton_core::id::{SessionId, TokenId};
use piton_core::{Record, Seq, chain, token};
use piton_store::files::{Access, Folder, ModelDisk};
use piton_store::memory::{Hooks, Point};
use piton_store::{
    Appended, Batch, BoxFuture, Changes, CopiedRecord, CopyHead, Detail, Durability, Entropy,
    Error, Finding, Guard, Head, Hints, Hub, Latency, Liveness, LoadedState, LogCopy, Page, Query,
    Result, Snapshot, Stats, Store, Verification, WritableRecords,
};

use super::world::World;

/// How long a buffered batch may wait for company.
const BUFFERED_WAIT: Duration = Duration::from_millis(50);
const DATA: &str = "/data";

/// A disk with an empty folder.
pub(super) fn new_disk() -> ModelDisk {
    use piton_store::files::Disk as _;
    let disk = ModelDisk::default();
    // In memory: it cannot fail before anybody has made it.
    drop(disk.make_folder(Path::new(DATA)));
    disk
}

pub(super) fn open(
    disk: &ModelDisk,
    liveness: Arc<dyn Liveness>,
    entropy: Arc<dyn Entropy>,
) -> Result<Folder> {
    Folder::open(Arc::new(disk.clone()), Path::new(DATA), Access::ReadWrite, liveness, entropy)
}

/// One process's handle on the folder. The world's disk in memory keeps the books of it.
#[derive(Debug)]
pub(super) struct FilesInWorld {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    folder: Folder,
    disk: ModelDisk,
    world: Arc<World>,
    hooks: Arc<dyn Hooks>,
    hub: Hub,
    batches: AtomicU64,
    records: AtomicU64,
    flushes: AtomicU64,
}

impl FilesInWorld {
    pub(super) fn new(
        folder: Folder,
        disk: ModelDisk,
        world: Arc<World>,
        hooks: Arc<dyn Hooks>,
    ) -> Self {
        let (batches, records, flushes) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let hub = Hub::default();
        let shared = Shared { folder, disk, world, hooks, hub, batches, records, flushes };
        Self { shared: Arc::new(shared) }
    }

    fn query<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Folder) -> Result<T> + Send + 'static,
    ) -> BoxFuture<Result<T>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            shared.hooks.step(Point::Reading).await;
            read(&shared.folder)
        })
    }
}

impl Shared {
    /// Checks and writes at the time of the call; flushing comes later.
    fn write(&self, batch: &Batch) -> Result<()> {
        if self.hooks.disk_full() {
            // Somewhere within the line.
            self.disk.set_space(Some(self.world.range(0, 600)));
        }
        let staged = self.folder.stage(batch);
        let failed = self.folder.write_out().into_iter().next();
        self.disk.set_space(None);
        staged?;
        if let Some((_, e)) = failed {
            return Err(e);
        }
        if let Some(key) = self.folder.chain_key(&batch.session) {
            self.world.disk().follow(batch, &key);
        }
        self.hooks.wrote(batch);
        Ok(())
    }

    async fn flush(&self, batch: &Batch, appended: Appended) -> Result<()> {
        if batch.durability == Durability::Buffered {
            tokio::time::sleep(BUFFERED_WAIT).await;
        }
        self.hooks.step(Point::Written).await;
        if self.folder.is_poisoned() {
            return Err(Error::Poisoned(None));
        }
        let head = self.folder.head(&batch.session)?;
        if head.is_none_or(|head| head.last_seq < appended.last) {
            self.disk.set_flush_fails(self.hooks.flush_fails());
            let flushed = self.folder.sync();
            self.disk.set_flush_fails(false);
            flushed?;
            self.world.disk().flush();
            self.flushes.fetch_add(1, Ordering::Relaxed);
            if self.world.chance(30) {
                self.folder.write_behind();
                // What cannot be registered now is tried again later, as in the real store.
                drop(self.folder.register());
            }
            self.hooks.step(Point::Flushed).await;
        }
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.records.fetch_add(batch.records.len() as u64, Ordering::Relaxed);
        if !self.hooks.hint_lost() {
            self.hub.committed(&batch.session, appended.first, || {
                let numbered = (appended.first..).zip(&batch.records);
                numbered.map(|(seq, record)| record.at(seq)).collect()
            });
        }
        Ok(())
    }
}

/// No world removes or copies anything; the store's own tests do.
fn not_here<T: Send + 'static>() -> BoxFuture<Result<T>> {
    Box::pin(std::future::ready(Err(Error::Closed)))
}

impl Store for FilesInWorld {
    fn append(&self, batch: Batch) -> BoxFuture<Result<Appended>> {
        let written = self.shared.write(&batch);
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            written?;
            let last = batch.expected + batch.records.len() as Seq;
            let appended = Appended { first: batch.expected + 1, last };
            shared.flush(&batch, appended).await?;
            Ok(appended)
        })
    }

    fn head(&self, session: &SessionId) -> BoxFuture<Result<Option<Head>>> {
        let session = session.clone();
        self.query(move |folder| folder.head(&session))
    }

    fn read(
        &self,
        session: &SessionId,
        after: Seq,
        limit: usize,
        detail: Detail,
    ) -> BoxFuture<Result<Vec<Record>>> {
        let session = session.clone();
        self.query(move |folder| folder.read(&session, after, limit, detail))
    }

    fn chain_at(&self, session: &SessionId, seq: Seq) -> BoxFuture<Result<Option<chain::Hash>>> {
        let session = session.clone();
        self.query(move |folder| folder.chain_at(&session, seq))
    }

    fn subscribe(&self, session: &SessionId) -> Hints {
        self.shared.hub.subscribe(session)
    }

    fn changes(&self) -> Changes {
        self.shared.hub.changes()
    }

    fn snapshot(&self, session: &SessionId) -> BoxFuture<Result<Option<Snapshot>>> {
        let session = session.clone();
        self.query(move |folder| Ok(folder.snapshot(&session)))
    }

    fn save_snapshot(&self, session: &SessionId, snapshot: Snapshot) -> BoxFuture<Result<()>> {
        let session = session.clone();
        self.query(move |folder| folder.save_snapshot(&session, snapshot))
    }

    fn load(&self, session: &SessionId) -> BoxFuture<Result<Option<LoadedState>>> {
        let session = session.clone();
        self.query(move |folder| folder.load(&session))
    }

    fn logs(&self, after: Option<&SessionId>, limit: usize) -> BoxFuture<Result<Vec<SessionId>>> {
        let after = after.cloned();
        self.query(move |folder| Ok(folder.names(after.as_ref(), limit)))
    }

    fn list(&self, query: Query) -> BoxFuture<Result<Page>> {
        self.query(move |folder| Ok(folder.list(&query)))
    }

    fn token(&self, token: &TokenId) -> BoxFuture<Result<Option<(SessionId, token::Entry)>>> {
        let token = token.clone();
        self.query(move |folder| Ok(folder.token(&token)))
    }

    fn verify(&self, session: &SessionId) -> BoxFuture<Result<Verification>> {
        let session = session.clone();
        self.query(move |folder| folder.verify(&session))
    }

    fn verify_store(&self) -> BoxFuture<Result<Vec<Finding>>> {
        self.query(|folder| Ok(folder.verify_store()))
    }

    fn rebuild_caches(&self) -> BoxFuture<Result<()>> {
        self.query(Folder::rebuild)
    }

    fn delete(
        &self,
        _session: &SessionId,
        _expected: Seq,
        _guard: Guard,
        _notes: WritableRecords,
    ) -> BoxFuture<Result<()>> {
        not_here()
    }

    fn copy_head(&self, session: &SessionId) -> BoxFuture<Result<Option<CopyHead>>> {
        let session = session.clone();
        self.query(move |folder| folder.copy_head(&session))
    }

    fn copy_records(
        &self,
        session: &SessionId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<Result<Vec<CopiedRecord>>> {
        let session = session.clone();
        self.query(move |folder| folder.copy_records(&session, after, limit))
    }

    fn copy_in(&self, _copy: LogCopy) -> BoxFuture<Result<()>> {
        not_here()
    }

    fn stats(&self) -> Stats {
        Stats {
            batches: self.shared.batches.load(Ordering::Relaxed),
            records: self.shared.records.load(Ordering::Relaxed),
            flushes: self.shared.flushes.load(Ordering::Relaxed),
            // A simulated disk takes no time.
            latency: Latency::default(),
        }
    }
}
