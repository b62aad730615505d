//! A store in memory. It keeps the contract on a modelled disk, so that a simulator can decide
//! what fails, what is lost, and when the process dies.

mod disk;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use piton_core::id::{SessionId, TokenId};
use piton_core::planted::{self, Bug};
use piton_core::{Content, Event, Record, Seq, chain, token};

pub use disk::{Disk, Line, Log};

use crate::append_rules::{self, Removal};
use crate::contract::READ_BYTES_MAX;
use crate::contract::{
    Appended, Batch, BoxFuture, CopiedRecord, CopyHead, Detail, Durability, Entropy, Finding,
    Guard, Head, Latency, Liveness, LogCopy, Page, Problem, Query, Snapshot, Stats, Store,
    Verification,
};
use crate::error::{Error, Result};
use crate::hub::{Changes, Hints, Hub};
use crate::list;
use crate::load::{Folding, LoadedState};
use crate::writer::WritableRecords;

/// How long a buffered batch may wait for company.
const BUFFERED_WAIT: Duration = Duration::from_millis(50);

/// Where a process can be when it dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    Written,
    Flushed,
    Reading,
}

/// What the simulator decides. The defaults are a disk that never fails.
pub trait Hooks: Send + Sync + fmt::Debug + 'static {
    /// Called at each point; a future that never resolves is a process that died there.
    fn step(&self, _point: Point) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }

    fn flush_fails(&self) -> bool {
        false
    }

    fn disk_full(&self) -> bool {
        false
    }

    fn hint_lost(&self) -> bool {
        false
    }

    /// A batch was checked and written; not yet flushed.
    fn wrote(&self, _batch: &Batch) {}
}

/// A disk that never fails.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reliable;

impl Hooks for Reliable {}

/// One process's handle on a modelled disk.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    disk: Arc<Mutex<Disk>>,
    liveness: Arc<dyn Liveness>,
    entropy: Arc<dyn Entropy>,
    hooks: Arc<dyn Hooks>,
    hub: Arc<Hub>,
    poisoned: AtomicBool,
    batches: AtomicU64,
    records: AtomicU64,
    flushes: AtomicU64,
}

impl MemoryStore {
    /// A handle on a disk; `hub` is shared by the handles that hear of each other's commits.
    pub fn open(
        disk: Arc<Mutex<Disk>>,
        liveness: Arc<dyn Liveness>,
        entropy: Arc<dyn Entropy>,
        hooks: Arc<dyn Hooks>,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                disk,
                liveness,
                entropy,
                hooks,
                hub: Arc::default(),
                poisoned: AtomicBool::new(false),
                batches: AtomicU64::new(0),
                records: AtomicU64::new(0),
                flushes: AtomicU64::new(0),
            }),
        }
    }

    /// Answers a read from what is durable, as another thread would.
    fn query<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut Disk) -> Result<T> + Send + 'static,
    ) -> BoxFuture<Result<T>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            shared.hooks.step(Point::Reading).await;
            read(&mut shared.disk())
        })
    }
}

impl Shared {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks and writes at the time of the call; flushing comes later.
    fn write(&self, batch: &Batch) -> Result<()> {
        if self.poisoned.load(Ordering::SeqCst) {
            return Err(Error::Poisoned(None));
        }
        append_rules::check_form(batch)?;
        if self.hooks.disk_full() {
            return Err(Error::DiskFull(None));
        }
        self.disk().write(batch, &*self.liveness, || self.fresh_key())?;
        self.hooks.wrote(batch);
        Ok(())
    }

    fn fresh_key(&self) -> Result<chain::Key> {
        let mut key = [0; 32];
        self.entropy.fill(&mut key)?;
        Ok(chain::Key::new(key))
    }

    fn is_flushed(&self, session: &SessionId, seq: Seq) -> bool {
        self.disk().logs.get(session).is_some_and(|log| log.base + log.flushed as Seq >= seq)
    }

    async fn flush(&self, batch: &Batch, appended: Appended) -> Result<()> {
        if batch.durability == Durability::Buffered {
            tokio::time::sleep(BUFFERED_WAIT).await;
        }
        self.hooks.step(Point::Written).await;
        if self.poisoned.load(Ordering::SeqCst) {
            return Err(Error::Poisoned(None));
        }
        if !self.is_flushed(&batch.session, appended.last) && !planted::is(Bug::FlushLeftOut) {
            if self.hooks.flush_fails() {
                self.poisoned.store(true, Ordering::SeqCst);
                return Err(Error::Poisoned(None));
            }
            self.disk().flush();
            self.flushes.fetch_add(1, Ordering::Relaxed);
            self.hooks.step(Point::Flushed).await;
        }
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.records.fetch_add(batch.records.len() as u64, Ordering::Relaxed);
        if !self.hooks.hint_lost() {
            let records = || {
                let numbered = (appended.first..).zip(&batch.records);
                numbered.map(|(seq, record)| record.at(seq)).collect()
            };
            self.hub.committed(&batch.session, appended.first, records);
        }
        Ok(())
    }
}

impl Store for MemoryStore {
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

    fn check_writable(&self) -> BoxFuture<Result<()>> {
        let refusal = if self.shared.poisoned.load(Ordering::SeqCst) {
            Err(Error::Poisoned(None))
        } else if self.shared.hooks.disk_full() {
            Err(Error::DiskFull(None))
        } else {
            Ok(())
        };
        Box::pin(async move { refusal })
    }

    fn head(&self, session: &SessionId) -> BoxFuture<Result<Option<Head>>> {
        let session = session.clone();
        self.query(move |disk| {
            let log = disk.logs.get(&session).filter(|log| log.flushed > 0);
            Ok(log.map(|log| Head {
                last_seq: log.state.last_seq,
                chain: log.last_chain(log.flushed),
                lease: log.state.lease.clone(),
            }))
        })
    }

    fn read(
        &self,
        session: &SessionId,
        after: Seq,
        limit: usize,
        detail: Detail,
    ) -> BoxFuture<Result<Vec<Record>>> {
        let session = session.clone();
        self.query(move |disk| {
            let Some(log) = disk.logs.get(&session) else { return Ok(Vec::new()) };
            let after = log.lines_to(after).min(log.flushed);
            let mut bytes = 0;
            let mut records = Vec::new();
            for line in log.lines[after..log.flushed].iter().take(limit) {
                let record = with_detail(&line.record, detail);
                if let Content::Json(json) = &record.content {
                    bytes += json.len();
                }
                records.push(record);
                if bytes >= READ_BYTES_MAX {
                    break;
                }
            }
            Ok(records)
        })
    }

    fn chain_at(&self, session: &SessionId, seq: Seq) -> BoxFuture<Result<Option<chain::Hash>>> {
        let session = session.clone();
        self.query(move |disk| {
            let there =
                |log: &&Log| seq == 0 || (seq > log.base && log.lines_to(seq) <= log.flushed);
            let log = disk.logs.get(&session).filter(there);
            Ok(log.map(|log| log.last_chain(log.lines_to(seq))))
        })
    }

    fn subscribe(&self, session: &SessionId) -> Hints {
        self.shared.hub.subscribe(session)
    }

    fn changes(&self) -> Changes {
        self.shared.hub.changes()
    }

    fn snapshot(&self, session: &SessionId) -> BoxFuture<Result<Option<Snapshot>>> {
        let session = session.clone();
        self.query(move |disk| Ok(disk.logs.get(&session).and_then(|log| log.snapshot.clone())))
    }

    fn save_snapshot(&self, session: &SessionId, snapshot: Snapshot) -> BoxFuture<Result<()>> {
        let session = session.clone();
        self.query(move |disk| {
            let unknown = || Error::SessionNotFound { session: session.clone() };
            disk.logs.get_mut(&session).ok_or_else(unknown)?.snapshot = Some(snapshot);
            Ok(())
        })
    }

    fn load(&self, session: &SessionId) -> BoxFuture<Result<Option<LoadedState>>> {
        let session = session.clone();
        self.query(move |disk| {
            let log = disk.logs.get(&session).filter(|log| log.flushed > 0);
            let Some(log) = log else { return Ok(None) };
            let flushed = &log.lines[..log.flushed];
            let head = Head {
                last_seq: log.base + log.flushed as Seq,
                chain: log.last_chain(log.flushed),
                lease: log.state.lease.clone(),
            };
            let snapshot = log.snapshot.clone().map(|saved| {
                let count = log.lines_to(saved.seq);
                let now = (count <= log.flushed).then(|| log.last_chain(count));
                (saved, now)
            });
            let mut folding = Folding::new(&session, head, snapshot);
            let after = log.lines_to(folding.at()).min(flushed.len());
            for Line { record, .. } in &flushed[after..] {
                folding.apply(record.seq, record.ts, &record.kind, &record.header)?;
            }
            folding.finish().map(Some)
        })
    }

    fn logs(&self, after: Option<&SessionId>, limit: usize) -> BoxFuture<Result<Vec<SessionId>>> {
        let after = after.cloned();
        self.query(move |disk| {
            let flushed = disk.logs.iter().filter(|(_, log)| log.flushed > 0).map(|(id, _)| id);
            let next = flushed.filter(|id| after.as_ref().is_none_or(|after| *id > after));
            Ok(next.take(limit).cloned().collect())
        })
    }

    fn list(&self, query: Query) -> BoxFuture<Result<Page>> {
        self.query(move |disk| {
            Ok(list::page(disk.logs.iter().map(|(session, log)| (session, &log.state)), &query))
        })
    }

    fn token(&self, token: &TokenId) -> BoxFuture<Result<Option<(SessionId, token::Entry)>>> {
        let token = token.clone();
        self.query(move |disk| {
            let found = disk.logs.iter().find_map(|(session, log)| {
                log.tokens.get(&token).map(|entry| (session.clone(), entry.clone()))
            });
            Ok(found)
        })
    }

    fn verify(&self, session: &SessionId) -> BoxFuture<Result<Verification>> {
        let session = session.clone();
        self.query(move |disk| {
            let unknown = || Error::SessionNotFound { session: session.clone() };
            Ok(verify(disk.logs.get(&session).ok_or_else(unknown)?))
        })
    }

    fn verify_store(&self) -> BoxFuture<Result<Vec<Finding>>> {
        self.query(|disk| {
            let missing = disk.missing().into_iter().map(Some);
            let finding = |session| Finding { session, problem: Problem::SessionMissing };
            Ok(missing.map(finding).collect())
        })
    }

    fn rebuild_caches(&self) -> BoxFuture<Result<()>> {
        self.query(|disk| {
            disk.logs.values_mut().for_each(Log::rebuild);
            Ok(())
        })
    }

    fn delete(
        &self,
        session: &SessionId,
        expected: Seq,
        guard: Guard,
        notes: WritableRecords,
    ) -> BoxFuture<Result<()>> {
        let removal = Removal { session: session.clone(), expected, guard, notes };
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            shared.hooks.step(Point::Written).await;
            if shared.poisoned.load(Ordering::SeqCst) {
                return Err(Error::Poisoned(None));
            }
            if shared.hooks.flush_fails() {
                shared.poisoned.store(true, Ordering::SeqCst);
                return Err(Error::Poisoned(None));
            }
            shared.disk().delete(&removal, &*shared.liveness, || shared.fresh_key())?;
            shared.hub.look();
            shared.hooks.step(Point::Flushed).await;
            Ok(())
        })
    }

    fn copy_head(&self, session: &SessionId) -> BoxFuture<Result<Option<CopyHead>>> {
        let session = session.clone();
        self.query(move |disk| {
            let log = disk.logs.get(&session).filter(|log| log.flushed > 0);
            Ok(log.map(|log| CopyHead {
                session: session.clone(),
                chain_key: log.key.clone(),
                last_seq: log.base + log.flushed as Seq,
                chain: log.last_chain(log.flushed),
                anchor: None,
            }))
        })
    }

    fn copy_records(
        &self,
        session: &SessionId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<Result<Vec<CopiedRecord>>> {
        let session = session.clone();
        self.query(move |disk| {
            let Some(log) = disk.logs.get(&session) else { return Ok(Vec::new()) };
            let after = log.lines_to(after).min(log.flushed);
            let lines = log.lines[after..log.flushed].iter().take(limit);
            let copied = lines.map(|line| CopiedRecord {
                record: line.record.clone(),
                batch_left: line.batch_left,
                payload_hash: line.payload_hash,
                chain: line.chain,
            });
            Ok(copied.collect())
        })
    }

    fn copy_in(&self, copy: LogCopy) -> BoxFuture<Result<()>> {
        self.query(move |disk| disk.copy_in(copy))
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

fn with_detail(record: &Record, detail: Detail) -> Record {
    let mut record = record.clone();
    if detail == Detail::Headers && matches!(record.content, Content::Json(_)) {
        record.content = Content::Omitted;
    }
    record
}

fn verify(log: &Log) -> Verification {
    let mut previous = chain::GENESIS;
    let mut good_to = 0;
    let mut problem = None;
    let mut tombstones = BTreeSet::new();
    for line in &log.lines[..log.flushed] {
        let record = &line.record;
        let link = chain::LinkInput {
            seq: record.seq,
            ts: record.ts,
            kind: &record.kind,
            header: &record.header,
            payload_hash: line.payload_hash,
            batch_left: line.batch_left,
        };
        if log.key.link(&previous, link) != line.chain {
            problem = Some(Problem::ChainBroken { seq: record.seq });
            break;
        }
        let plaintext = match &record.content {
            Content::Json(json) => Some(log.key.payload_hash(json.as_bytes())),
            Content::Redacted => {
                tombstones.insert(record.seq);
                line.payload_hash
            }
            Content::None | Content::Omitted => None,
        };
        if plaintext != line.payload_hash {
            problem = Some(Problem::PayloadDamaged { seq: record.seq });
            break;
        }
        if let Ok(Event::RecordRedacted(e)) = record.event() {
            tombstones.remove(&e.target_seq);
        }
        previous = line.chain;
        good_to = record.seq;
    }
    if let (None, Some(seq)) = (&problem, tombstones.first()) {
        problem = Some(Problem::TombstoneUnjustified { seq: *seq });
        good_to = seq - 1;
    }
    Verification { good_to, problem, anchored_to: None }
}
