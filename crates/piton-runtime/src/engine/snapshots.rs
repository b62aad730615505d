//! Snapshots of sessions' workspaces: before a turn, after a turn, and for a rewind. The library in
//! `piton-workspace` keeps them in a repository per session in the data folder; here it is decided when,
//! and what the log says of it.
//!
//! All work on one session's repository is done under one lock, in a blocking thread. Who stops
//! waiting does not stop the work.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use piton_core::State;
use piton_core::decide::{
    Command, RestoredFiles, Rewind, SnapshotResult, TakenSnapshot, TurnEnd, TurnStart,
};
use piton_core::id::{RunId, SessionId};
use piton_core::workspace_identity::WorkspaceIdentity;
use piton_store::{BoxFuture, Store};
use piton_workspace::snapshot::tree::ObjectId;
use piton_workspace::snapshot::{self, Repository, SavedSnapshot, SkipReason, SnapshotKey};
use serde_json::{Value, json};
use tokio::sync::OwnedMutexGuard;

use super::snapshot_flush::FlushSignal;
use super::start_plan::StartPlans;
use crate::error::{Error, Result};
use crate::executions::Executions;
use crate::interfaces::TurnSnapshots;
use crate::service::Handle;
use crate::settings::SnapshotSettings;

/// The executor whose workspaces are on this machine.
pub(super) const LOCAL_RUNTIME: &str = "standalone";
/// Paths that one record names.
pub(super) const PATHS_NAMED_MAX: usize = 100;
/// After a snapshot that was too large no other one is tried for so long.
const RETRY_AFTER: Duration = Duration::from_mins(10);
/// Snapshots that were taken last and are not pruned: the log may not name them yet.
const RECENT_KEPT: usize = 32;
/// The names of repository and branch are waited for so long.
pub(super) const IDENTITY_TIMEOUT: Duration = Duration::from_millis(500);
/// A smaller repository is not packed again.
const PRUNE_BYTES_MIN: u64 = 16 * 1024 * 1024;

/// Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Snapshots(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    store: Arc<dyn Store>,
    attached: OnceLock<Attached>,
    /// What was to be done before that.
    early: Mutex<Early>,
    slots: Mutex<BTreeMap<SessionId, Arc<Slot>>>,
}

/// Where workspaces are found, and how the log is written to.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) handle: Handle,
    plans: StartPlans,
    pub(super) executions: Executions,
}

#[derive(Debug, Default)]
struct Early {
    restores: BTreeSet<SessionId>,
    ended: Vec<(SessionId, RunId)>,
}

/// What is known of a session's snapshots while the process lives.
#[derive(Debug, Default)]
pub(super) struct Slot {
    lock: Arc<tokio::sync::Mutex<()>>,
    flush: FlushSignal,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
pub(super) struct Known {
    /// The files at the end of this run, changed or not.
    after: Option<(RunId, String)>,
    /// Snapshots after turns that are under way.
    ending: usize,
    /// It was too large at this time.
    too_large: Option<Instant>,
    /// How large the repository was when it was last pruned.
    pruned_bytes: u64,
    /// The snapshots that were taken last.
    recent: VecDeque<ObjectId>,
    /// A restore is carried out.
    pub(super) restoring: bool,
    /// It was asked for again meanwhile.
    pub(super) restore_again: bool,
}

impl Slot {
    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
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
        let (attached, early) = (OnceLock::new(), Mutex::default());
        Self(Arc::new(Inner { root, store, attached, early, slots }))
    }

    /// From now on workspaces are found, and the log is written to.
    pub(super) fn attach(&self, handle: Handle, plans: StartPlans, executions: Executions) {
        // Attached once, by the engine that starts.
        let mut early = self.0.early.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.0.attached.set(Attached { handle, plans, executions });
        let Early { restores, ended } = std::mem::take(&mut *early);
        drop(early);
        for session in &restores {
            self.restore_later(session);
        }
        for (session, run_id) in &ended {
            self.turn_ended(session, run_id);
        }
    }

    pub(super) fn attached(&self) -> Option<&Attached> {
        self.0.attached.get()
    }

    /// Whether it is attached; if not, `what` is noted for then.
    fn attached_or(&self, what: impl FnOnce(&mut Early)) -> bool {
        let mut early = self.0.early.lock().unwrap_or_else(PoisonError::into_inner);
        let is_attached = self.0.attached.get().is_some();
        if !is_attached {
            what(&mut early);
        }
        is_attached
    }

    pub(super) fn slot(&self, session: &SessionId) -> Arc<Slot> {
        let mut slots = self.0.slots.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.entry(session.clone()).or_default())
    }

    fn settings(&self) -> SnapshotSettings {
        let attached = self.0.attached.get();
        attached.map_or_else(SnapshotSettings::default, |on| on.handle.settings().snapshots)
    }

    pub(super) fn folder(&self, session: &SessionId) -> PathBuf {
        self.0.root.join(session.as_str())
    }

    pub(super) async fn hold(&self, session: &SessionId) -> Held {
        let slot = self.slot(session);
        let _waiting = slot.flush.wait();
        Arc::clone(&slot.lock).lock_owned().await
    }

    /// Works on a session's repository. Not while a restore is open: the files are neither what they
    /// were nor what they will be.
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
        let mut is_recorded = false;
        if let (true, Some(on)) = (Repository::has_journal(&self.folder(session)), self.attached())
        {
            match on.handle.state(session).await {
                Ok(state) => is_recorded = state.facts.restore.is_none(),
                Err(error) => return (held, Err(error)),
            }
        }
        let workspace = workspace.to_owned();
        let work = move |repository: Repository| {
            if is_recorded && repository.is_applied()? {
                // A crash came between the record and this.
                repository.settle()?;
            }
            if Repository::has_journal(repository.folder()) {
                return Err(snapshot::Error::RestoreOpen);
            }
            work(repository, &workspace)
        };
        self.with_own_open(held, session, work).await
    }

    /// The same, whatever the log says of a restore.
    pub(super) async fn with_open<T: Send + 'static>(
        &self,
        held: Held,
        session: &SessionId,
        work: impl FnOnce(&mut Repository) -> Result<T, snapshot::Error> + Send + 'static,
    ) -> (Held, Result<T>) {
        let work = |mut repository: Repository| work(&mut repository);
        self.with_own_open(held, session, work).await
    }

    async fn with_own_open<T: Send + 'static>(
        &self,
        held: Held,
        session: &SessionId,
        work: impl FnOnce(Repository) -> Result<T, snapshot::Error> + Send + 'static,
    ) -> (Held, Result<T>) {
        let key = match self.key(session).await {
            Ok(key) => key,
            Err(error) => return (held, Err(error)),
        };
        let (folder, limits) = (self.folder(session), self.settings().limits());
        let begun = tokio::task::spawn_blocking(move || {
            let done = Repository::open(&folder, Some(key), limits).and_then(work);
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
        let plans = &self.0.attached.get()?.plans;
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
        let slot = self.slot(session);
        {
            // Before the repository is let go of: the log does not name it yet.
            let mut known = slot.known();
            known.recent.retain(|id| *id != taken.id);
            known.recent.push_back(taken.id);
            let over = known.recent.len().saturating_sub(RECENT_KEPT);
            known.recent.drain(..over);
        }
        if let Some(repository) = unflushed {
            tokio::spawn(slot.flush.clone().flush(session.clone(), held, repository));
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
        at: BeforeTurn,
    ) -> Option<TurnStart> {
        let handle = &self.0.attached.get()?.handle;
        if state.facts.graph.is_some() || state.facts.closed.is_some() || state.info.is_none() {
            return None;
        }
        let checkpoint_id = handle.ids().checkpoint().ok()?;
        self.slot(session).flush.set_delivered(false);
        let workspace = self.identity(session, state).await;
        let (this, session, of) = (self.clone(), session.clone(), state.clone());
        // In a task of its own, so that the snapshot is finished when the prompt goes ahead.
        let of_session = session.clone();
        let is_queued = at == BeforeTurn::InItsWriter;
        let taking = tokio::spawn(async move {
            if !is_queued && let Err(error) = this.save_ended_turn(&of_session, &of).await {
                tracing::debug!(code = %error.code(), "no snapshot after the turn");
            }
            this.try_take(&of_session, &of, Flush::Later).await
        });
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
        // Until the end of the last turn is known, what changed may be its own.
        let is_saved = run.is_none() || state.turns.saved_run.as_ref() == run;
        let last = state.turns.last_snapshot.clone().filter(|_| is_saved);
        let since_snapshot = after.or(last);
        Some(TurnStart { checkpoint_id, snapshot, since_snapshot, workspace })
    }

    /// Where in which repository the agent works. Only some small files are read.
    async fn identity(&self, session: &SessionId, state: &State) -> Option<WorkspaceIdentity> {
        let folder = self.workspace(session, state)?;
        let read = tokio::task::spawn_blocking(move || piton_workspace::identity(&folder));
        tokio::time::timeout(IDENTITY_TIMEOUT, read).await.ok()?.ok()?
    }

    /// Takes the first snapshot of a session before it is needed.
    fn prepare_later(&self, session: &SessionId) {
        let (this, session) = (self.clone(), session.clone());
        tokio::spawn(async move {
            let Some(on) = this.0.attached.get() else { return };
            let Ok(state) = on.handle.state(&session).await else { return };
            this.try_take(&session, &state, Flush::Now).await;
        });
    }

    /// Saves what a turn came to.
    pub(super) async fn after_turn(&self, session: &SessionId, run_id: RunId) -> Result<()> {
        let Some(Attached { handle, .. }) = self.attached() else { return Ok(()) };
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
            let checkpoint_id = handle.ids().checkpoint()?;
            let end = TurnEnd { run_id, checkpoint_id, snapshot };
            // Lost, it is looked at once more.
            return handle.execute_buffered(session, Command::TurnEnded(end)).await.map(drop);
        }
        self.record_end(handle, session, run_id, snapshot).await?;
        self.prune(handle, session).await
    }

    /// Saves what the last turn came to, if neither the log nor this process says that it was. A
    /// process that ended right after the turn did not.
    pub(super) async fn save_ended_turn(&self, session: &SessionId, state: &State) -> Result<()> {
        let run = state.facts.run.as_ref().filter(|run| !run.is_unfinished());
        let Some(run_id) = run.map(|run| run.run_id.clone()) else { return Ok(()) };
        let is_known = {
            let slot = self.slot(session);
            let known = slot.known();
            known.ending > 0 || known.after.as_ref().is_some_and(|(of, _)| *of == run_id)
        };
        if is_known || state.turns.is_empty() || state.turns.saved_run.as_ref() == Some(&run_id) {
            return Ok(());
        }
        self.after_turn(session, run_id).await
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
        // Held first: what is taken meanwhile, and is not in the log yet, must not be pruned.
        let held = self.hold(session).await;
        let state = handle.state(session).await?;
        let Some(workspace) = self.workspace(session, &state) else { return Ok(()) };
        let restore = state.facts.restore.iter();
        let restore = restore.flat_map(|open| [&open.snapshot, &open.safety_snapshot]).flatten();
        let needed = state.turns.needed_snapshots().chain(restore.map(String::as_str));
        let mut keep: Vec<ObjectId> = needed.filter_map(|id| id.parse().ok()).collect();
        let before = {
            let known = slot.known();
            keep.extend(&known.recent);
            known.pruned_bytes
        };
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
                    self.restore_later(&session);
                    if let Err(error) = self.recover(&session).await {
                        tracing::error!(%session, code = %error.code(), %error, "a restore was cut off and cannot be finished yet");
                    }
                }
                _ => {}
            }
        }
    }

    /// Finishes a restore that was cut off and that the log does not know of: an older program did not
    /// say what it was about to do.
    pub(super) async fn recover(&self, session: &SessionId) -> Result<()> {
        let Some(Attached { handle, .. }) = self.attached() else { return Ok(()) };
        let state = handle.state(session).await?;
        if state.facts.restore.is_some() {
            return Ok(());
        }
        let Some(workspace) = self.workspace(session, &state) else { return Ok(()) };
        let held = self.hold(session).await;
        let recover = move |repository: &mut Repository| {
            if repository.is_applied()? {
                // The log says so already.
                return repository.settle().map(|()| None);
            }
            let Some(recovered) = repository.recover(&workspace)? else { return Ok(None) };
            let after = repository.take(&workspace, &also())?;
            Ok(Some((recovered, after.id)))
        };
        let (held, recovered) = self.with_open(held, session, recover).await;
        let Some((recovered, after)) = recovered? else { return Ok(()) };
        let target = recovered.target.to_string();
        let of_target = state.turns.checkpoints.iter().rev();
        let checkpoint =
            of_target.clone().find(|entry| entry.turn.snapshot == Some(target.clone()));
        let checkpoint_id = match checkpoint {
            Some(entry) => entry.checkpoint_id.clone(),
            None => handle.ids().checkpoint()?,
        };
        let kept_checkpoint =
            if recovered.is_edited { Some(handle.ids().checkpoint()?) } else { None };
        let files = RestoredFiles {
            kept_checkpoint,
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
        let (restore_seq, files) = (None, Some(files));
        let rewind = Rewind { restore_seq, checkpoint_id, files, conversation: None };
        handle.execute(session, Command::Rewind(rewind)).await?;
        self.with_open(held, session, |repository| repository.settle()).await.1
    }
}

/// Who is about to begin a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BeforeTurn {
    /// A request: the log can be written to.
    InRequest,
    /// The session's writer, which waits.
    InItsWriter,
}

impl TurnSnapshots for Snapshots {
    fn before_queued_turn(
        &self,
        session: &SessionId,
        state: &State,
    ) -> BoxFuture<Option<TurnStart>> {
        let (this, session, state) = (self.clone(), session.clone(), state.clone());
        Box::pin(async move { this.before_turn(&session, &state, BeforeTurn::InItsWriter).await })
    }

    fn agent_started(&self, session: &SessionId) {
        self.prepare_later(session);
    }

    fn restore_open(&self, session: &SessionId) {
        let note = |early: &mut Early| {
            early.restores.insert(session.clone());
        };
        if self.attached_or(note) {
            self.restore_later(session);
        }
    }

    fn prompt_delivered(&self, session: &SessionId) {
        let slots = self.0.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get(session) {
            slot.flush.set_delivered(true);
        }
    }

    fn turn_ended(&self, session: &SessionId, run_id: &RunId) {
        if !self.attached_or(|early| early.ended.push((session.clone(), run_id.clone()))) {
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

pub(super) fn skip_reason(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::TooLarge => "too_large",
        SkipReason::NestedRepository => "nested_repository",
        SkipReason::NotAFile => "not_a_file",
        SkipReason::Unreadable => "unreadable",
    }
}

pub(super) fn described(taken: &SavedSnapshot) -> TakenSnapshot {
    let skipped = taken.skipped.iter().take(PATHS_NAMED_MAX).map(|skipped| {
        let path = String::from_utf8_lossy(&skipped.path);
        json!({"path": path, "reason": skip_reason(skipped.reason)})
    });
    TakenSnapshot {
        snapshot: taken.id.to_string(),
        files: taken.files as u64,
        skipped: Value::Array(skipped.collect()),
        skipped_count: taken.skipped.len() as u64,
    }
}
