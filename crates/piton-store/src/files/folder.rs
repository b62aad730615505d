//! The store without its threads: everything here runs on the caller's thread, so that a simulator
//! can decide the order of operations and which of them fail.
//!
//! One caller at a time writes; readers look at what is durable and never wait for a flush.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use piton_core::expected_sessions::ExpectedSessions;
use piton_core::id::{SessionId, TokenId};
use piton_core::{Seq, chain, token};

use super::append::Staged;
use super::disk::{self, Disk, DiskFile};
use super::log::Log;
use super::paths::{self, Paths};
use super::scan::Form;
use super::{Access, snapshot};
use crate::contract::{Entropy, Head, Latency, Liveness, Page, Query, Snapshot};
use crate::error::{Cause, Error, Result};
use crate::list;

/// Files that the writer keeps open.
const HANDLES_MAX: usize = 256;
/// Blobs that are remembered as durable; a forgotten one costs a flush of its folder.
const BLOBS_KNOWN_MAX: usize = 16_384;

/// A data folder, opened.
#[derive(Debug)]
pub struct Folder {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) paths: Paths,
    pub(super) access: Access,
    pub(super) liveness: Arc<dyn Liveness>,
    pub(super) entropy: Arc<dyn Entropy>,
    logs: Mutex<Logs>,
    writer: Mutex<Writer>,
    /// Held while caches are written and while a log is replaced or removed.
    behind: Mutex<()>,
    /// Why nothing is written any more.
    poisoned: OnceLock<Cause>,
    flushes: AtomicU64,
    latency: Mutex<Latency>,
    /// Blobs that are known to be durable.
    blobs: Mutex<HashSet<chain::Hash>>,
}

#[derive(Debug, Default)]
pub(super) struct Logs {
    pub(super) by_id: BTreeMap<SessionId, Log>,
    pub(super) tokens: HashMap<TokenId, SessionId>,
    /// Logs whose caches on the disk are older than they are.
    pub(super) dirty: BTreeSet<SessionId>,
    /// Logs that are not there, though something beside them says that they were.
    pub(super) lost: BTreeSet<SessionId>,
    /// What the metadata log lists.
    pub(super) roster: ExpectedSessions,
    /// Durable logs that it does not list yet.
    pub(super) unregistered: BTreeSet<SessionId>,
}

/// What only the writer knows.
#[derive(Debug, Default)]
pub(super) struct Writer {
    pub(super) staged: BTreeMap<SessionId, Staged>,
    handles: HashMap<SessionId, Arc<dyn DiskFile>>,
}

impl Logs {
    pub(super) fn insert(&mut self, log: Log) {
        for id in log.folded.tokens.keys() {
            self.tokens.entry(id.clone()).or_insert_with(|| log.session.clone());
        }
        self.lost.remove(&log.session);
        self.by_id.insert(log.session.clone(), log);
    }

    pub(super) fn remove(&mut self, session: &SessionId) {
        self.by_id.remove(session);
        self.tokens.retain(|_, owner| owner != session);
        self.dirty.remove(session);
        self.lost.remove(session);
        self.unregistered.remove(session);
    }
}

impl Writer {
    pub(super) fn forget(&mut self, session: &SessionId) {
        self.handles.remove(session);
    }
}

impl Folder {
    pub(super) fn with(
        disk: Arc<dyn Disk>,
        data: &Path,
        access: Access,
        liveness: Arc<dyn Liveness>,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        Self {
            disk,
            paths: Paths::new(data),
            access,
            liveness,
            entropy,
            logs: Mutex::default(),
            writer: Mutex::default(),
            behind: Mutex::default(),
            poisoned: OnceLock::new(),
            flushes: AtomicU64::new(0),
            latency: Mutex::default(),
            blobs: Mutex::default(),
        }
    }

    pub(super) fn logs(&self) -> MutexGuard<'_, Logs> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn behind(&self) -> MutexGuard<'_, ()> {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn fresh_key(&self) -> Result<chain::Key> {
        let mut key = [0; 32];
        self.entropy.fill(&mut key)?;
        Ok(chain::Key::new(key))
    }

    /// Nothing is written any more after a failed flush, or by a reader.
    pub(super) fn check_writable(&self) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Err(Error::ReadOnly { path: self.paths.data.clone(), source: None });
        }
        match self.poisoned.get() {
            Some(cause) => Err(Error::Poisoned(Some(cause.clone()))),
            None => Ok(()),
        }
    }

    /// The end of all writing.
    pub(super) fn poison(&self, e: io::Error) -> Error {
        tracing::error!(error = %e, "A flush failed: the store stops writing");
        Error::Poisoned(Some(self.poisoned.get_or_init(|| Arc::new(e)).clone()))
    }

    /// What a flush came to. Its failure is the end of all writing.
    pub(super) fn settle(&self, flushed: io::Result<()>) -> Result<()> {
        flushed.map_err(|e| self.poison(e))
    }

    fn known_blobs(&self) -> MutexGuard<'_, HashSet<chain::Hash>> {
        self.blobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_known_blob(&self, address: &chain::Hash) -> bool {
        self.known_blobs().contains(address)
    }

    pub(super) fn know_blob(&self, address: chain::Hash) {
        let mut known = self.known_blobs();
        if known.len() >= BLOBS_KNOWN_MAX {
            known.clear();
        }
        known.insert(address);
    }

    pub(super) fn forget_blob(&self, address: &chain::Hash) {
        self.known_blobs().remove(address);
    }

    pub(super) fn count_flush(&self, took: Duration) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.latency.lock().unwrap_or_else(PoisonError::into_inner).add(took);
    }

    /// Whether a flush has failed.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.get().is_some()
    }

    pub(super) fn handle(
        &self,
        writer: &mut Writer,
        session: &SessionId,
    ) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(handle) = writer.handles.get(session) {
            return Ok(handle.clone());
        }
        let file = self.disk.open(&self.paths.log(session))?;
        self.keep_handle(writer, session, &file);
        Ok(file)
    }

    #[expect(clippy::unused_self, reason = "beside `handle`")]
    pub(super) fn keep_handle(
        &self,
        writer: &mut Writer,
        session: &SessionId,
        file: &Arc<dyn DiskFile>,
    ) {
        if writer.handles.len() >= HANDLES_MAX {
            writer.handles.clear();
        }
        writer.handles.insert(session.clone(), file.clone());
    }

    /// Makes a small file whole under another name first, and flushes it. Its name is durable after
    /// the folder's next flush.
    pub(super) fn write_flushed(&self, path: &Path, text: &[u8]) -> io::Result<()> {
        let new = paths::unfinished(path);
        let file = self.disk.create(&new)?;
        file.write_at(text, 0)?;
        file.sync()?;
        self.disk.rename(&new, path)
    }

    /// The same without a flush: for what can be made again.
    fn write_cache(&self, path: &Path, text: &str) -> io::Result<()> {
        let new = paths::unfinished(path);
        self.disk.create(&new)?.write_at(text.as_bytes(), 0)?;
        self.disk.rename(&new, path)
    }

    /// Writes down what has changed since the last time: snapshots, token indexes and anchors. A
    /// failure is said and tried again with the next change: they are caches.
    pub fn write_behind(&self) {
        if self.access == Access::ReadOnly {
            return;
        }
        let _behind = self.behind();
        let dirty = std::mem::take(&mut self.logs().dirty);
        for session in dirty {
            let (files, anchor) = {
                let logs = self.logs();
                let Some(log) = logs.by_id.get(&session) else { continue };
                // An anchor never goes back, whatever the log says now.
                let is_behind = log.anchor.is_some_and(|(seq, _)| seq > log.end.seq);
                if log.trouble().is_some() || log.form == Form::Foreign || is_behind {
                    continue;
                }
                let Some(files) = snapshot::make(log) else { continue };
                (files, (log.end.seq, log.end.chain))
            };
            if let Err(e) = self.write_caches(&session, &files) {
                tracing::warn!(%session, error = %e, "The snapshot cannot be written");
                self.logs().dirty.insert(session);
            } else if let Some(log) = self.logs().by_id.get_mut(&session) {
                log.anchor = Some(anchor);
            }
        }
    }

    fn write_caches(&self, session: &SessionId, files: &snapshot::Files) -> io::Result<()> {
        self.write_cache(&self.paths.anchor(session), &files.anchor)?;
        match &files.tokens {
            Some(text) => self.write_cache(&self.paths.tokens(session), text)?,
            None => disk::remove(&*self.disk, &self.paths.tokens(session))?,
        }
        self.write_cache(&self.paths.snapshot(session), &files.snapshot)
    }

    /// Whether caches wait to be written.
    pub(super) fn is_dirty(&self) -> bool {
        !self.logs().dirty.is_empty()
    }

    pub(super) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    pub(super) fn latency(&self) -> Latency {
        *self.latency.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn head(&self, session: &SessionId) -> Result<Option<Head>> {
        let logs = self.logs();
        let Some(log) = logs.by_id.get(session) else { return Ok(None) };
        match log.broken() {
            Some(e) => Err(e.clone()),
            None => Ok(Some(Head {
                last_seq: log.end.seq,
                chain: log.end.chain,
                lease: log.lease().clone(),
            })),
        }
    }

    pub fn snapshot(&self, session: &SessionId) -> Option<Snapshot> {
        self.logs().by_id.get(session).and_then(|log| log.saved.clone())
    }

    pub fn save_snapshot(&self, session: &SessionId, snapshot: Snapshot) -> Result<()> {
        self.check_writable()?;
        let mut logs = self.logs();
        let unknown = || Error::SessionNotFound { session: session.clone() };
        let log = logs.by_id.get_mut(session).ok_or_else(unknown)?;
        if snapshot.seq == log.end.seq {
            // From here on the next life reads the log.
            let mark = log.end.mark();
            log.marks.insert(mark.seq, mark);
        }
        log.saved = Some(snapshot);
        logs.dirty.insert(session.clone());
        Ok(())
    }

    /// The names of all logs after one, the broken ones' and those that are gone, too.
    pub fn names(&self, after: Option<&SessionId>, limit: usize) -> Vec<SessionId> {
        let logs = self.logs();
        let first = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = (first, Bound::Unbounded);
        let there = logs.by_id.range::<SessionId, _>(range).map(|(session, _)| session);
        let mut names: Vec<SessionId> = there.take(limit).cloned().collect();
        names.extend(logs.lost.range::<SessionId, _>(range).take(limit).cloned());
        names.sort_unstable();
        names.truncate(limit);
        names
    }

    pub fn list(&self, query: &Query) -> Page {
        let logs = self.logs();
        let sound = logs.by_id.values().filter(|log| log.broken().is_none());
        list::page(sound.map(|log| (&log.session, &log.folded.state)), query)
    }

    pub fn token(&self, token: &TokenId) -> Option<(SessionId, token::Entry)> {
        let logs = self.logs();
        let session = logs.tokens.get(token)?;
        let log = logs.by_id.get(session).filter(|log| log.broken().is_none())?;
        Some((session.clone(), log.folded.tokens.get(token)?.clone()))
    }

    /// Every log that can be relied on, with its last seq.
    pub fn sessions(&self) -> Vec<(SessionId, Seq)> {
        let logs = self.logs();
        logs.by_id.values().map(|log| (log.session.clone(), log.end.seq)).collect()
    }

    /// The key of a log's chain, whether or not anything of the log is durable.
    pub fn chain_key(&self, session: &SessionId) -> Option<chain::Key> {
        let staged = self.writer().staged.get(session).map(|staged| staged.key.clone());
        staged.or_else(|| self.logs().by_id.get(session).map(|log| log.key.clone()))
    }

    /// The error for a file that cannot be read.
    pub(super) fn unreadable(path: &Path, e: io::Error) -> Error {
        Error::Unreadable { path: path.to_owned(), source: Some(Arc::new(e) as Cause) }
    }

    pub(super) fn log_path(&self, session: &SessionId) -> PathBuf {
        self.paths.log(session)
    }
}
