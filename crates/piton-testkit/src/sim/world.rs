//! The simulated world: its dice, its disk, its boots, and what is known about them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use piton_core::decide::Probe;
use piton_core::id::{BootId, ExecutionId, SessionId};
use piton_core::{Code, Timestamp};
use piton_store::Store;
use piton_store::files::{Folder, ModelDisk};
use piton_store::memory::{Disk, MemoryStore};
use tokio::sync::Notify;

use super::ledger::{Ledger, Property, Violation};
use super::machine::{self, Fleet};
use super::resuming::{Habits, Memories};
use super::roster::Books;
use super::{On, Report, Stats, log_checks, on_files, parts};

/// Where simulated time begins.
const EPOCH_MS: i64 = 1_790_000_000_000;

/// One simulated process.
#[derive(Debug)]
pub(super) struct Boot {
    pub id: BootId,
    running: AtomicBool,
    pub died: Notify,
}

impl Boot {
    pub(super) fn is_running(&self) -> bool {
        self.running.load(Ordering::SeqCst)
    }

    /// The world's store; `None`, and a violation, if it cannot be opened.
    pub(super) fn store(self: &Arc<Self>, world: &Arc<World>) -> Option<Arc<dyn Store>> {
        let hooks = parts::hooks(world, self);
        let (liveness, entropy) = (parts::liveness(world), parts::entropy(world));
        let Some(files) = &world.files else {
            let disk = Arc::clone(&world.disk);
            return Some(Arc::new(MemoryStore::open(disk, liveness, entropy, hooks)));
        };
        match on_files::open(files, liveness, entropy) {
            Ok(folder) => {
                world.files_open.store(true, Ordering::SeqCst);
                let (files, world) = (files.clone(), Arc::clone(world));
                Some(Arc::new(on_files::FilesInWorld::new(folder, files, world, hooks)))
            }
            Err(e) => {
                world.violated(Property::ChainHolds, format!("the folder does not open: {e}"));
                None
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct World {
    /// What the store says. With files: the books of what is on their disk.
    pub disk: Arc<Mutex<Disk>>,
    pub(super) files: Option<ModelDisk>,
    /// A process has the files open: what it has not flushed is not there for anybody yet.
    files_open: AtomicBool,
    pub died: Notify,
    inner: Mutex<Inner>,
    /// Agents are beside agentctls, which outlive boots.
    pub agents: bool,
    /// How the runtime starts them again; `None`: only clients start them.
    pub habits: Option<Habits>,
    pub seed: u64,
    /// The permission rules that it has; see [`super::rules`].
    pub rules: u64,
    fleet: Mutex<Fleet>,
}

#[derive(Debug)]
pub(super) struct Inner {
    rng: fastrand::Rng,
    started: tokio::time::Instant,
    /// How far the wall clock is off.
    clock_offset_ms: i64,
    /// Boots whose lock is held.
    pub locked: BTreeSet<BootId>,
    /// What asking an execution would come to; not listed: gone.
    pub executions: BTreeMap<ExecutionId, Probe>,
    pub sessions: Vec<SessionId>,
    pub ledger: Ledger,
    /// Of what a store writes by itself.
    pub roster: Books,
    /// Failures that the world has caused; others have no excuse.
    pub injected: BTreeSet<Code>,
    pub stats: Stats,
    pub memories: Memories,
    boots: u64,
    /// Steps until some process dies.
    fuse: Option<u64>,
    faults: Faults,
    trace: Vec<String>,
    tracing: bool,
    hasher: blake3::Hasher,
}

/// Chances in a thousand.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    flush_fails: u32,
    disk_full: u32,
    hint_lost: u32,
    clock_jumps: u32,
    lock_lost: u32,
    agent_refuses: u32,
}

/// In two worlds of five, agents run beside agentctls and clients start them.
fn agents_in(seed: u64) -> bool {
    matches!(seed % 5, 2 | 3)
}

/// In one world of five, the runtime starts agents again as well.
fn resumes_in(seed: u64) -> bool {
    matches!(seed % 10, 1 | 4)
}

impl Inner {
    /// How many boots there have been.
    pub(super) fn boots(&self) -> u64 {
        self.boots
    }
}

impl World {
    pub(super) fn new(on: On, seed: u64, tracing: bool) -> Arc<Self> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut some = |max: u32| if rng.bool() { rng.u32(0..=max) } else { 0 };
        let faults = Faults {
            flush_fails: some(10),
            disk_full: some(30),
            hint_lost: some(500),
            clock_jumps: some(30),
            lock_lost: some(20),
            agent_refuses: some(100),
        };
        let agents = agents_in(seed) || resumes_in(seed);
        let faults_of_fleet =
            if agents { machine::Faults::draw(some) } else { machine::Faults::default() };
        let habits = resumes_in(seed).then(|| Habits::draw(&mut rng, seed));
        let inner = Inner {
            rng,
            started: tokio::time::Instant::now(),
            clock_offset_ms: 0,
            locked: BTreeSet::new(),
            executions: BTreeMap::new(),
            sessions: Vec::new(),
            ledger: Ledger::default(),
            roster: Books::default(),
            injected: BTreeSet::new(),
            stats: Stats::default(),
            memories: Memories::default(),
            boots: 0,
            fuse: None,
            faults,
            trace: Vec::new(),
            tracing,
            hasher: blake3::Hasher::new(),
        };
        let files = (on == On::Files).then(on_files::new_disk);
        let (disk, died, files_open) = (Arc::default(), Notify::new(), AtomicBool::new(false));
        let fleet = Mutex::new(Fleet::new(faults_of_fleet));
        let inner = Mutex::new(inner);
        let rules = super::rules::in_world(seed);
        Arc::new(Self { disk, files, files_open, died, inner, agents, habits, seed, rules, fleet })
    }

    /// Whether a process has the files open: then only what was flushed is found.
    pub(super) fn is_open(&self) -> bool {
        self.files_open.load(Ordering::SeqCst)
    }

    /// The folder as the next life would find it, opened on a copy; `None` on memory.
    pub(super) fn found(self: &Arc<Self>) -> Option<Folder> {
        let copy = self.files.as_ref()?.copied();
        if self.files_open.load(Ordering::SeqCst) {
            copy.power_loss(&mut |_| 0);
        }
        match on_files::open(&copy, parts::liveness(self), parts::entropy(self)) {
            Ok(folder) => Some(folder),
            Err(e) => {
                self.violated(Property::ChainHolds, format!("the folder does not open: {e}"));
                None
            }
        }
    }

    /// After a crash the books say what the files say.
    fn read_files(self: &Arc<Self>) {
        if self.files.is_none() {
            return;
        }
        let read = self.found().map(|folder| Disk::of_folder(&folder));
        match read {
            Some(Ok(disk)) => *self.disk() = disk,
            Some(Err(e)) => self.violated(Property::ChainHolds, format!("a log is not good: {e}")),
            None => {}
        }
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn fleet(&self) -> MutexGuard<'_, Fleet> {
        self.fleet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number from `low` to `high`, both included.
    pub(super) fn range(&self, low: u64, high: u64) -> u64 {
        self.inner().rng.u64(low..=high)
    }

    /// True in so many of a hundred cases.
    pub(super) fn chance(&self, percent: u32) -> bool {
        self.inner().rng.u32(0..100) < percent
    }

    pub(super) fn pick<T: Clone>(&self, from: &[T]) -> Option<T> {
        let mut inner = self.inner();
        (!from.is_empty()).then(|| from[inner.rng.usize(0..from.len())].clone())
    }

    pub(super) fn fill(&self, bytes: &mut [u8]) {
        self.inner().rng.fill(bytes);
    }

    pub(super) fn now(&self) -> Timestamp {
        let inner = self.inner();
        let elapsed = i64::try_from(inner.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(EPOCH_MS + elapsed + inner.clock_offset_ms)
    }

    /// Everything that happened goes into the digest, and into the trace if there is one.
    pub(super) fn note(&self, what: fmt::Arguments<'_>) {
        let mut inner = self.inner();
        let line = what.to_string();
        inner.hasher.update(line.as_bytes());
        inner.hasher.update(b"\n");
        if inner.tracing {
            inner.trace.push(line);
        }
    }

    pub(super) fn violated(&self, property: Property, detail: impl Into<String>) {
        let violation = Violation { property, detail: detail.into() };
        self.note(format_args!("VIOLATION {violation}"));
        self.inner().ledger.violations.push(violation);
    }

    pub(super) fn has_violations(&self) -> bool {
        !self.inner().ledger.violations.is_empty()
    }

    pub(super) fn new_boot(&self) -> Arc<Boot> {
        let mut inner = self.inner();
        inner.boots += 1;
        inner.stats.lives += 1;
        let mut random = [0; 10];
        random[..8].copy_from_slice(&inner.boots.to_be_bytes());
        let id = BootId::new(0, random);
        inner.locked.insert(id.clone());
        Arc::new(Boot { id, running: AtomicBool::new(true), died: Notify::new() })
    }

    /// Some process will die, some steps from now.
    pub(super) fn arm(&self) {
        let mut inner = self.inner();
        let steps = inner.rng.u64(1..if self.agents { 2_500 } else { 600 });
        inner.fuse = Some(steps);
    }

    /// No more faults.
    pub(super) fn calm(&self) {
        let mut inner = self.inner();
        inner.fuse = None;
        inner.faults = Faults::default();
        drop(inner);
        self.fleet().calm();
    }

    /// One step of a boot. False: it is dead, or died just now.
    pub(super) fn step(&self, boot: &Boot) -> bool {
        if !boot.is_running() {
            return false;
        }
        let blown = {
            let mut inner = self.inner();
            inner.stats.steps += 1;
            let jump = inner.rng.u32(0..1000) < inner.faults.clock_jumps;
            if jump {
                let hour = 3_600_000;
                let by = *inner.rng.choice(&[-hour, hour, 1_000, 8 * 24 * hour]).unwrap_or(&0);
                // Forwards it may go far, backwards never beyond where it began.
                inner.clock_offset_ms = (inner.clock_offset_ms + by).max(-hour);
            }
            if inner.rng.u32(0..1000) < inner.faults.lock_lost && inner.locked.len() > 1 {
                inner.locked.remove(&boot.id);
            }
            match &mut inner.fuse {
                Some(0) => {
                    inner.fuse = None;
                    true
                }
                Some(left) => {
                    *left -= 1;
                    false
                }
                None => false,
            }
        };
        if blown {
            self.die(boot);
        }
        !blown
    }

    /// The process stops where it is.
    pub(super) fn die(&self, boot: &Boot) {
        self.note(format_args!("{} dies", boot.id));
        boot.running.store(false, Ordering::SeqCst);
        boot.died.notify_one();
        self.died.notify_one();
    }

    /// A dead process: its lock is free, its unflushed writes are rolled back or were just in time.
    pub(super) fn kill(self: &Arc<Self>, boot: &Boot) {
        boot.running.store(false, Ordering::SeqCst);
        let mut inner = self.inner();
        inner.locked.remove(&boot.id);
        let rng = &mut inner.rng;
        // What a killed process wrote to files stays there, flushed or not.
        if self.files.is_none() {
            self.disk().process_killed(&boot.id, &mut |unflushed| rng.usize(0..=unflushed));
        }
        drop(inner);
        self.files_open.store(false, Ordering::SeqCst);
        self.read_files();
        // Before anybody writes over what was lost.
        self.check_promises();
    }

    /// The power of the agents' machines fails, too.
    pub(super) fn power_loss_everywhere(self: &Arc<Self>) {
        self.fleet().power_loss(self);
        self.power_loss();
    }

    /// The power fails: every lock is free, unflushed lines are lost, torn or kept.
    pub(super) fn power_loss(self: &Arc<Self>) {
        self.note(format_args!("the power fails"));
        let mut inner = self.inner();
        inner.locked.clear();
        inner.executions.clear();
        inner.roster.power_failed = true;
        let rng = &mut inner.rng;
        match &self.files {
            None => self.disk().power_loss(&mut |unflushed| rng.usize(0..=unflushed)),
            Some(files) => files.power_loss(&mut |limit| rng.usize(0..limit.max(1))),
        }
        drop(inner);
        self.read_files();
        self.check_promises();
    }

    /// What the world does while no process runs: agents live or die, snapshots are spoiled.
    pub(super) fn after_crash(&self) {
        let mut inner = self.inner();
        let Inner { rng, executions, roster, .. } = &mut *inner;
        for probe in executions.values_mut() {
            if *probe != Probe::Gone {
                *probe = match rng.u32(0..4) {
                    0 => Probe::Gone,
                    1 => Probe::Unreachable,
                    _ => Probe::Alive,
                };
            }
        }
        for path in self.files.iter().flat_map(ModelDisk::names) {
            // A snapshot, an index or an anchor with a wrong bit: it must not be believed.
            let is_cache = path.extension().is_some_and(|e| e == "json" || e == "anchor");
            let in_sessions = path.parent().is_some_and(|folder| folder.ends_with("sessions"));
            if is_cache && in_sessions && rng.u32(0..10) == 0 {
                roster.spoiled |= path.extension().is_some_and(|e| e == "anchor");
                let files = self.files.iter();
                for (files, mut bytes) in files.filter_map(|f| Some((f, f.content(&path)?))) {
                    let at = rng.usize(0..bytes.len().max(1));
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= 1 << rng.u32(0..8);
                    }
                    files.put(&path, &bytes);
                }
            }
        }
        let mut disk = self.disk();
        for log in disk.logs.values_mut() {
            if rng.u32(0..10) == 0
                && let Some(snapshot) = &mut log.snapshot
            {
                // A snapshot of some other history: it must not be believed.
                let mut state = log.state.clone();
                state.last_seq = snapshot.seq;
                state.facts.closed = Some(piton_core::event::Outcome::Failed);
                snapshot.body = serde_json::to_string(&state).unwrap_or_default();
                snapshot.chain = [0xee; 32];
            }
        }
        drop(disk);
        inner.faults.disk_full = 0;
    }

    pub(super) fn agent_refuses(&self) -> bool {
        let mut inner = self.inner();
        inner.rng.u32(0..1000) < inner.faults.agent_refuses
    }

    /// Every agent that was not given up can be reached again.
    pub(super) fn agents_return(&self) {
        for probe in self.inner().executions.values_mut() {
            if *probe == Probe::Unreachable {
                *probe = Probe::Alive;
            }
        }
    }

    pub(super) fn flush_fails(&self) -> bool {
        let mut inner = self.inner();
        inner.rng.u32(0..1000) < inner.faults.flush_fails
    }

    pub(super) fn disk_full(&self) -> bool {
        let mut inner = self.inner();
        inner.rng.u32(0..1000) < inner.faults.disk_full
    }

    pub(super) fn hint_lost(&self) -> bool {
        let mut inner = self.inner();
        inner.rng.u32(0..1000) < inner.faults.hint_lost
    }

    /// Checks all that the logs must show.
    pub(super) async fn check_logs(self: &Arc<Self>) {
        log_checks::all(self).await;
    }

    pub(super) fn report(&self, seed: u64) -> Report {
        let records = self.disk().logs.values().map(|log| log.flushed as u64).sum();
        let mut inner = self.inner();
        inner.stats.records = records;
        let stats = inner.stats;
        inner.hasher.update(format!("{stats:?}").as_bytes());
        for log in self.disk().logs.values() {
            inner.hasher.update(&log.last_chain(log.flushed));
        }
        let on = if self.files.is_some() { On::Files } else { On::Memory };
        Report {
            seed,
            on,
            violations: inner.ledger.violations.clone(),
            digest: inner.hasher.finalize().to_hex().to_string(),
            stats,
            trace: std::mem::take(&mut inner.trace),
        }
    }
}
