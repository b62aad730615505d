//! Snapshots of sessions' workspaces: before a turn, after a turn, and for a rewind. The library in
//! `piton-workspace` keeps them in a repository per session in the data folder; here it is decided when,
//! and what the log says of it.
//!
//! All work on one session's repository is done under one lock, in a blocking thread. Who stops
//! waiting does not stop the work.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use piton_core::State;
use piton_core::decide::{
    Command, RestoredFiles, Rewind, SnapshotResult, TakenSnapshot, TurnEnd, TurnStart,
};
use piton_core::id::{RunId, SessionId};
use piton_store::{BoxFuture, Store};
use piton_workspace::snapshot::tree::ObjectId;
use piton_workspace::snapshot::{self, Repository, SkipReason, SnapshotKey, Taken};
use serde_json::{Value, json};
use tokio::sync::OwnedMutexGuard;

use super::snapshot_flush::FlushSignal;
use super::start_plan::StartPlans;
use crate::error::{Error, Result};
use crate::service::Handle;
use crate::settings::SnapshotSettings;
use crate::world::TurnSnapshots;

/// The executor whose workspaces are on this machine.
const LOCAL_RUNTIME: &str = "standalone";
/// Paths that one record names.
pub(super) const PATHS_NAMED_MAX: usize = 100;
/// After a snapshot that was too large no other one is tried for so long.
const RETRY_AFTER: Duration = Duration::from_mins(10);
/// A smaller repository is not packed again.
const PRUNE_BYTES_MIN: u64 = 16 * 1024 * 1024;

/// Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Snapshots(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    store: Arc<dyn Store>,
    attached: OnceLock<(Handle, StartPlans)>,
    slots: Mutex<BTreeMap<SessionId, Arc<Slot>>>,
}

/// What is known of a session's snapshots while the process lives.
#[derive(Debug, Default)]
struct Slot {
    lock: Arc<tokio::sync::Mutex<()>>,
    flush: FlushSignal,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The files at the end of this run, changed or not.
    after: Option<(RunId, String)>,
    /// Snapshots after turns that are under way.
    ending: usize,
    /// It was too large at this time.
    too_large: Option<Instant>,
    /// How large the repository was when it was last pruned.
    pruned_bytes: u64,
}

impl Slot {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When a snapshot is flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flush {
    /// Before it is named in the log.
    Now,
    /// After the prompt that follows it was delivered.
    Later,
}

/// The right to work on one session's repository.
pub(super) type Held = OwnedMutexGuard<()>;

impl Snapshots {
    pub(super) fn new(root: PathBuf, store: Arc<dyn Store>) -> Self {
        let slots = Mutex::default();
        Self(Arc::new(Inner { root, store, attached: OnceLock::new(), slots }))
    }

    /// From now on workspaces are found, and the log is written to.
    pub(super) fn attach(&self, handle: Handle, plans: StartPlans) {
        // Attached once, by the engine that starts.
        let _ = self.0.attached.set((handle, plans));
    }

    fn slot(&self, session: &SessionId) -> Arc<Slot> {
        let mut slots = self.0.slots.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.entry(session.clone()).or_default())
    }

    fn settings(&self) -> SnapshotSettings {
        let attached = self.0.attached.get();
        attached.map_or_else(SnapshotSettings::default, |(handle, _)| handle.settings().snapshots)
    }

    fn folder(&self, session: &SessionId) -> PathBuf {
        self.0.root.join(session.as_str())
    }

    pub(super) async fn hold(&self, session: &SessionId) -> Held {
        let slot = self.slot(session);
        let _waiting = slot.flush.wait();
        Arc::clone(&slot.lock).lock_owned().await
    }

    /// Works on a session's repository. A restore that was cut off is finished first.
    pub(super) async fn with_repository<T: Send + 'static>(
        &self,
        held: Held,
        session: &SessionId,
        workspace: &Path,
        work: impl FnOnce(&mut Repository, &Path) -> Result<T, snapshot::Error> + Send + 'static,
    ) -> (Held, Result<T>) {
        let work = |mut repository: Repository, folder: &Path| work(&mut repository, folder);
        self.with_own_repository(held, session, workspace, work).await
    }

    /// The same for work that may keep the repository open.
    async fn with_own_repository<T: Send + 'static>(
        &self,
        held: Held,
        session: &SessionId,
        workspace: &Path,
        work: impl FnOnce(Repository, &Path) -> Result<T, snapshot::Error> + Send + 'static,
    ) -> (Held, Result<T>) {
        let key = match self.key(session).await {
            Ok(key) => key,
            Err(error) => return (held, Err(error)),
        };
        let (folder, limits) = (self.folder(session), self.settings().limits());
        let workspace = workspace.to_owned();
        let begun = tokio::task::spawn_blocking(move || {
            let done = || {
                let mut repository = Repository::open(&folder, Some(key), limits)?;
                let recovered = repository.recover(&workspace)?;
                if let Some(recovered) = recovered {
                    tracing::warn!(files = recovered.paths.len(), "a cut-off restore was finished");
                }
                work(repository, &workspace)
            };
            let done = done();
            (held, done)
        });
        match begun.await {
            Ok((held, done)) => (held, done.map_err(Error::from)),
            Err(_) => (self.hold(session).await, Err(Error::ShuttingDown)),
        }
    }

    async fn key(&self, session: &SessionId) -> Result<SnapshotKey> {
        let head = self.0.store.copy_head(session).await?;
        let not_found = || piton_store::Error::SessionNotFound { session: session.clone() };
        let secret = head.ok_or_else(not_found)?.chain_key.derive("workspace snapshots");
        Ok(SnapshotKey::derive(&secret))
    }

    /// The folder of a session whose files can be saved: on this machine, and not one that has the
    /// snapshots in it.
    pub(super) fn workspace(&self, session: &SessionId, state: &State) -> Option<PathBuf> {
        let (_, plans) = self.0.attached.get()?;
        let runtime = state.facts.executor.as_ref().map(|executor| executor.runtime.as_str());
        if state.facts.graph.is_some() || runtime.is_some_and(|runtime| runtime != LOCAL_RUNTIME) {
            return None;
        }
        let folder = plans.folder(session, state).ok()?.canonicalize().ok()?;
        let root = self.0.root.canonicalize().unwrap_or_else(|_| self.0.root.clone());
        let is_home = std::env::var_os("HOME").is_some_and(|home| folder == Path::new(&home));
        (!root.starts_with(&folder) && !is_home).then_some(folder)
    }

    /// Takes a snapshot. The work continues if the caller stops waiting.
    async fn take(
        &self,
        session: &SessionId,
        workspace: &Path,
        flush: Flush,
    ) -> Result<TakenSnapshot> {
        let held = self.hold(session).await;
        let take = move |mut repository: Repository, workspace: &Path| {
            let taken = repository.take_unflushed(workspace, &also())?;
            if flush == Flush::Later && repository.has_unflushed() {
                return Ok((taken, Some(repository)));
            }
            repository.flush()?;
            Ok((taken, None))
        };
        let (held, taken) = self.with_own_repository(held, session, workspace, take).await;
        let (taken, unflushed) = taken?;
        if let Some(repository) = unflushed {
            let signal = self.slot(session).flush.clone();
            tokio::spawn(signal.flush(session.clone(), held, repository));
        }
        Ok(described(&taken))
    }

    async fn try_take(&self, session: &SessionId, state: &State, flush: Flush) -> SnapshotResult {
        let slot = self.slot(session);
        let is_too_large = slot.known().too_large.is_some_and(|at| at.elapsed() < RETRY_AFTER);
        let workspace = match self.workspace(session, state) {
            Some(workspace) if self.settings().enabled && !is_too_large => workspace,
            _ => return SnapshotResult::Off,
        };
        match self.take(session, &workspace, flush).await {
            Ok(taken) => {
                slot.known().too_large = None;
                SnapshotResult::Taken(taken)
            }
            Err(error) => {
                if let Error::Snapshot(fault) = &error
                    && matches!(**fault, snapshot::Error::TooManyFiles { .. })
                {
                    slot.known().too_large = Some(Instant::now());
                }
                SnapshotResult::Failed { code: error.code().into(), message: error.to_string() }
            }
        }
    }

    /// What a turn that is about to begin begins with. Waits no longer than the setting says.
    pub(super) async fn before_turn(
        &self,
        session: &SessionId,
        state: &State,
        is_queued: bool,
    ) -> Option<TurnStart> {
        let (handle, _) = self.0.attached.get()?;
        if state.facts.graph.is_some() || state.facts.closed.is_some() || state.info.is_none() {
            return None;
        }
        let checkpoint_id = handle.ids().checkpoint().ok()?;
        self.slot(session).flush.set_delivered(false);
        let (this, session, of) = (self.clone(), session.clone(), state.clone());
        // In a task of its own, so that the snapshot is finished when the prompt goes ahead.
        let of_session = session.clone();
        let taking =
            tokio::spawn(async move { this.try_take(&of_session, &of, Flush::Later).await });
        let timeout = self.settings().timeout;
        let snapshot = match tokio::time::timeout(timeout, taking).await {
            Ok(taken) => taken.unwrap_or(SnapshotResult::Off),
            Err(_) => SnapshotResult::Late {
                waited_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            },
        };
        let run = state.facts.run.as_ref().map(|run| &run.run_id);
        let after = self.slot(&session).known().after.clone();
        let after = after.filter(|(of, _)| Some(of) == run).map(|(_, snapshot)| snapshot);
        // A queued prompt follows at once: what changed was changed by the turn before.
        let since_snapshot = if is_queued { None } else { after }
            .or_else(|| state.turns.last_snapshot.clone().filter(|_| !is_queued));
        Some(TurnStart { checkpoint_id, snapshot, since_snapshot })
    }

    /// Takes the first snapshot of a session before it is needed.
    fn prepare_later(&self, session: &SessionId) {
        let (this, session) = (self.clone(), session.clone());
        tokio::spawn(async move {
            let Some((handle, _)) = this.0.attached.get() else { return };
            let Ok(state) = handle.state(&session).await else { return };
            this.try_take(&session, &state, Flush::Now).await;
        });
    }

    /// Saves what a turn came to.
    pub(super) async fn after_turn(&self, session: &SessionId, run_id: RunId) -> Result<()> {
        let Some((handle, _)) = self.0.attached.get() else { return Ok(()) };
        let state = handle.state(session).await?;
        let run = state.facts.run.as_ref().filter(|run| run.run_id == run_id);
        if run.is_none_or(piton_core::state::Run::is_unfinished) {
            return Ok(());
        }
        let snapshot = self.try_take(session, &state, Flush::Now).await;
        let SnapshotResult::Taken(taken) = &snapshot else {
            if matches!(snapshot, SnapshotResult::Off) {
                return Ok(());
            }
            return self.record_end(handle, session, run_id, snapshot).await;
        };
        self.slot(session).known().after = Some((run_id.clone(), taken.snapshot.clone()));
        if state.turns.last_snapshot.as_ref() == Some(&taken.snapshot) {
            return Ok(());
        }
        self.record_end(handle, session, run_id, snapshot).await?;
        self.prune(handle, session).await
    }

    /// Whether a turn has ended and its files are not saved yet.
    pub(super) fn is_turn_ending(&self, session: &SessionId) -> bool {
        self.slot(session).known().ending > 0
    }

    async fn record_end(
        &self,
        handle: &Handle,
        session: &SessionId,
        run_id: RunId,
        snapshot: SnapshotResult,
    ) -> Result<()> {
        let checkpoint_id = handle.ids().checkpoint()?;
        let end = TurnEnd { run_id, checkpoint_id, snapshot };
        handle.execute(session, Command::TurnEnded(end)).await.map(drop)
    }

    /// Removes what no checkpoint needs, when the repository has grown to twice its size.
    async fn prune(&self, handle: &Handle, session: &SessionId) -> Result<()> {
        let slot = self.slot(session);
        let state = handle.state(session).await?;
        let Some(workspace) = self.workspace(session, &state) else { return Ok(()) };
        let keep: Vec<ObjectId> =
            state.turns.needed_snapshots().filter_map(|id| id.parse().ok()).collect();
        let before = slot.known().pruned_bytes;
        let held = self.hold(session).await;
        let prune = move |repository: &mut Repository, _: &Path| {
            if repository.bytes() < PRUNE_BYTES_MIN.max(before.saturating_mul(2)) {
                return Ok(None);
            }
            let keep: Vec<_> = keep.into_iter().filter(|id| repository.contains(*id)).collect();
            repository.prune(&keep)?;
            Ok(Some(repository.bytes()))
        };
        let (_held, pruned) = self.with_repository(held, session, &workspace, prune).await;
        if let Some(bytes) = pruned? {
            slot.known().pruned_bytes = bytes;
        }
        Ok(())
    }

    /// Removes all snapshots of a session.
    pub(super) async fn remove_all(&self, session: &SessionId) {
        let _held = self.hold(session).await;
        let folder = self.folder(session);
        let removed = tokio::task::spawn_blocking(move || remove_folder(&folder)).await;
        self.slot(session).known().after = None;
        if !matches!(removed, Ok(Ok(()))) {
            tracing::warn!(%session, "snapshots are not removed yet");
        }
    }

    /// After a start: finishes restores that a crash cut off, and removes the snapshots of sessions that
    /// are gone.
    pub(super) async fn settle_all(&self) {
        let root = self.0.root.clone();
        let listed = tokio::task::spawn_blocking(move || {
            let entries = std::fs::read_dir(&root).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        });
        for folder in listed.await.unwrap_or_default() {
            let name = folder.file_name().and_then(|name| name.to_str());
            let Some(session) = name.and_then(|name| name.parse::<SessionId>().ok()) else {
                continue;
            };
            match self.0.store.head(&session).await {
                Ok(None) => self.remove_all(&session).await,
                Ok(Some(_)) if Repository::has_journal(&folder) => {
                    if let Err(error) = self.recover(&session).await {
                        tracing::error!(%session, code = %error.code(), %error, "a restore was cut off and cannot be finished yet");
                    }
                }
                _ => {}
            }
        }
    }

    /// Finishes a restore that was cut off, and says so in the log.
    pub(super) async fn recover(&self, session: &SessionId) -> Result<()> {
        if !Repository::has_journal(&self.folder(session)) {
            return Ok(());
        }
        let Some((handle, _)) = self.0.attached.get() else { return Ok(()) };
        let state = handle.state(session).await?;
        let Some(workspace) = self.workspace(session, &state) else { return Ok(()) };
        let held = self.hold(session).await;
        let (key, folder) = (self.key(session).await?, self.folder(session));
        let limits = self.settings().limits();
        let recovering = tokio::task::spawn_blocking(move || {
            let mut repository = Repository::open(&folder, Some(key), limits)?;
            let recovered = repository.recover(&workspace)?;
            let after = repository.take(&workspace, &also())?;
            Ok::<_, snapshot::Error>(recovered.map(|recovered| (recovered, after.id)))
        });
        let recovered = recovering.await.map_err(|_| Error::ShuttingDown)?;
        drop(held);
        let Some((recovered, after)) = recovered.map_err(Error::from)? else { return Ok(()) };
        let target = recovered.target.to_string();
        let of_target = state.turns.checkpoints.iter().rev();
        let checkpoint =
            of_target.clone().find(|entry| entry.turn.snapshot == Some(target.clone()));
        let checkpoint_id = match checkpoint {
            Some(entry) => entry.checkpoint_id.clone(),
            None => handle.ids().checkpoint()?,
        };
        let files = RestoredFiles {
            snapshot: target,
            // What was changed since the crash is in it, too.
            safety_snapshot: recovered.safety.to_string(),
            snapshot_after: after.to_string(),
            kept_snapshot: recovered.found.map(|found| found.to_string()),
            paths: named(recovered.paths.iter().map(Vec::as_slice)),
            paths_count: recovered.paths.len() as u64,
            forced: false,
            recovered: true,
        };
        let rewind = Rewind { checkpoint_id, files: Some(files), conversation: None };
        handle.execute(session, Command::Rewind(rewind)).await.map(drop)
    }
}

impl TurnSnapshots for Snapshots {
    fn before_queued_turn(
        &self,
        session: &SessionId,
        state: &State,
    ) -> BoxFuture<Option<TurnStart>> {
        let (this, session, state) = (self.clone(), session.clone(), state.clone());
        Box::pin(async move { this.before_turn(&session, &state, true).await })
    }

    fn agent_started(&self, session: &SessionId) {
        self.prepare_later(session);
    }

    fn prompt_delivered(&self, session: &SessionId) {
        let slots = self.0.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get(session) {
            slot.flush.set_delivered(true);
        }
    }

    fn turn_ended(&self, session: &SessionId, run_id: &RunId) {
        if self.0.attached.get().is_none() {
            return;
        }
        self.slot(session).known().ending += 1;
        let (this, session, run_id) = (self.clone(), session.clone(), run_id.clone());
        tokio::spawn(async move {
            if let Err(error) = this.after_turn(&session, run_id).await {
                tracing::debug!(%session, code = %error.code(), "no snapshot was taken after the turn");
            }
            let slot = this.slot(&session);
            let mut known = slot.known();
            known.ending = known.ending.saturating_sub(1);
        });
    }

    fn remove(&self, session: &SessionId) {
        let mut slots = self.0.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.remove(session);
        drop(slots);
        if let Err(error) = remove_folder(&self.folder(session)) {
            tracing::warn!(%session, %error, "snapshots are removed at the next start");
        }
    }
}

fn remove_folder(folder: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Files that are taken though an ignore rule leaves them out: none by name.
pub(super) fn also() -> BTreeSet<Vec<u8>> {
    BTreeSet::new()
}

/// The first of some paths, as text.
pub(super) fn named<'a>(paths: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    paths.take(PATHS_NAMED_MAX).map(text).collect()
}

pub(super) fn described(taken: &Taken) -> TakenSnapshot {
    let reason = |reason: SkipReason| match reason {
        SkipReason::TooLarge => "too_large",
        SkipReason::NestedRepository => "nested_repository",
        SkipReason::NotAFile => "not_a_file",
        SkipReason::Unreadable => "unreadable",
    };
    let skipped = taken.skipped.iter().take(PATHS_NAMED_MAX).map(|skipped| {
        json!({"path": String::from_utf8_lossy(&skipped.path), "reason": reason(skipped.reason)})
    });
    TakenSnapshot {
        snapshot: taken.id.to_string(),
        files: taken.files as u64,
        skipped: Value::Array(skipped.collect()),
        skipped_count: taken.skipped.len() as u64,
    }
}
