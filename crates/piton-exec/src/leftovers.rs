//! The processes that an execution left running. They are found by the marker in their environment
//! and by their cgroup, so that a server can end them after their agentctl was killed and they have
//! no parent that could.
//!
//! A process is its pid and the time it started: a pid that was given to another process in the
//! meantime is never signalled. agentctl itself must not carry the marker of its execution, or it
//! counts as a leftover too; the caller is never touched.

pub mod cgroup;
mod mark;
pub mod proc;
mod signals;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use piton_core::Code;
use piton_core::id::ExecutionId;
use piton_core::planted::{self, Bug};
use rustix::process::Signal;

pub use cgroup::Cgroup;
pub use mark::Mark;
pub use proc::Process;

use crate::protocol::MARKER;

/// Scans with SIGKILL before we give up; processes that fork may need several.
const KILL_ROUNDS_MAX: u32 = 200;
/// How long one round waits for what it killed; a process in the kernel may take longer.
const KILL_ROUND_WAIT: Duration = Duration::from_millis(100);
/// Scans in a row that must find nothing before nothing is there.
const SCANS_EMPTY: u32 = 3;
const SCANS_APART: Duration = Duration::from_millis(1);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("Cannot read the list of processes")]
    List(#[source] io::Error),
    #[error("{} processes of the execution do not end, among them {}", .remaining.len(), .remaining[0].pid)]
    Remain { remaining: Vec<Process> },
    #[error("The search for processes was cut off")]
    Interrupted,
}

impl Error {
    pub fn code(&self) -> Code {
        match self {
            Self::List(_) => Code::ProcessesUnlisted,
            Self::Remain { .. } => Code::ProcessesRemain,
            Self::Interrupted => Code::OperationInterrupted,
        }
    }
}

/// What [`end`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Every process that was found and ended.
    pub processes: Vec<Process>,
    /// Those of them that did not end when asked to.
    pub killed: Vec<Process>,
}

/// How the processes to be ended are found, and the cgroups that hold nothing else.
#[derive(Clone)]
pub struct Target {
    pub find: Arc<dyn Fn() -> io::Result<Vec<Process>> + Send + Sync>,
    /// Kills the cgroups of the target, where it has some.
    pub kill: Arc<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Target")
    }
}

/// The living processes of an execution, by marker and cgroup; never the caller.
pub fn find(mark: &Mark) -> io::Result<Vec<Process>> {
    let listed = in_cgroup(mark);
    let own = std::process::id();
    let found = proc::all()?.into_iter().filter(|process| {
        process.pid != own
            && !process.zombie
            && (listed.contains(&process.pid) || mark.is_on(process.pid))
    });
    Ok(found.collect())
}

/// How much memory the processes of these executions use, in bytes: those that carry their markers.
pub fn memory(marks: &[Mark]) -> io::Result<BTreeMap<ExecutionId, u64>> {
    let mut memory = BTreeMap::new();
    for process in proc::all()?.into_iter().filter(|process| !process.zombie) {
        let Some(execution) = proc::variable(process.pid, MARKER) else { continue };
        let mark = marks.iter().find(|mark| mark.execution().as_str() == execution);
        if let Some(mark) = mark.filter(|mark| mark.is_on(process.pid)) {
            let bytes = proc::resident_bytes(process.pid).unwrap_or(0);
            *memory.entry(mark.execution().clone()).or_default() += bytes;
        }
    }
    Ok(memory)
}

fn in_cgroup(mark: &Mark) -> HashSet<u32> {
    cgroup::locate(mark).iter().flat_map(Cgroup::pids).collect()
}

/// Whether any process of an execution is left.
pub fn any(mark: &Mark) -> io::Result<bool> {
    Ok(!surely(|| find(mark))?.is_empty())
}

/// Ends all that an execution left running: asks, waits for `term`, kills until none is found.
pub async fn end(mark: &Mark, term: Duration) -> Result<Ended, Error> {
    let (finding, killing) = (mark.clone(), mark.clone());
    let target = Target {
        find: Arc::new(move || find(&finding)),
        kill: Arc::new(move || cgroup::locate(&killing).iter().for_each(Cgroup::kill)),
    };
    let ended = end_target(target, term).await?;
    let mark = mark.clone();
    let removed = tokio::task::spawn_blocking(move || {
        cgroup::locate(&mark).iter().for_each(Cgroup::remove);
    });
    removed.await.map_err(|_| Error::Interrupted)?;
    Ok(ended)
}

/// Ends what `target` finds: SIGTERM and up to `term` of time, then SIGKILL until it finds nothing.
pub async fn end_target(target: Target, term: Duration) -> Result<Ended, Error> {
    let mut ended = Ended::default();
    let mut known: HashSet<(u32, u64)> = HashSet::new();
    let asked_until = Instant::now() + term;
    loop {
        let found = scan(&target).await?;
        if found.is_empty() {
            return Ok(ended);
        }
        for process in &found {
            if known.insert(process.identity()) {
                signals::send(process, Signal::TERM);
                // One that is stopped would not hear of it.
                signals::send(process, Signal::CONT);
                ended.processes.push(process.clone());
            }
        }
        let left = asked_until.saturating_duration_since(Instant::now());
        if left.is_zero() || !signals::wait_for_all(&found, left).await {
            break;
        }
    }
    let mut killed: HashSet<(u32, u64)> = HashSet::new();
    let mut found = Vec::new();
    for _ in 0..KILL_ROUNDS_MAX {
        found = scan(&target).await?;
        if found.is_empty() {
            return Ok(ended);
        }
        if planted::is(Bug::LateProcessSurvives) {
            found.retain(|process| known.contains(&process.identity()));
            if found.is_empty() {
                return Ok(ended);
            }
        }
        for process in &found {
            signals::send(process, Signal::KILL);
            if known.insert(process.identity()) {
                ended.processes.push(process.clone());
            }
            if killed.insert(process.identity()) {
                ended.killed.push(process.clone());
            }
        }
        let kill = target.kill.clone();
        tokio::task::spawn_blocking(move || kill()).await.map_err(|_| Error::Interrupted)?;
        signals::wait_for_all(&found, KILL_ROUND_WAIT).await;
    }
    Err(Error::Remain { remaining: found })
}

/// The list of processes is read from the kernel, which may block.
async fn scan(target: &Target) -> Result<Vec<Process>, Error> {
    let find = target.find.clone();
    let scanned = tokio::task::spawn_blocking(move || surely(|| find())).await;
    scanned.map_err(|_| Error::Interrupted)?.map_err(Error::List)
}

/// The list is not of one moment: a parent may have ended while its child had not yet begun when
/// we looked at each, and a process that is just being replaced by another program has no
/// environment. So that only what is not found several times in a row is not there.
fn surely(find: impl Fn() -> io::Result<Vec<Process>>) -> io::Result<Vec<Process>> {
    for _ in 1..SCANS_EMPTY {
        let found = find()?;
        if !found.is_empty() {
            return Ok(found);
        }
        std::thread::sleep(SCANS_APART);
    }
    find()
}
