//! Executions as detached processes on this machine.
//!
//! Each has a folder `run/EXECUTION` in the data folder. agentctl holds the lock in it for as long
//! as it lives: a free lock, and no process left with the execution's mark, is the proof of
//! death. A folder that was renamed is the same, one that was copied is another's: the original's
//! agent is none of its business ([`leftovers::Mark`]). Two servers may do all this at once; the epochs sort out which of them is heard.

mod paths;
mod program;
mod start;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use piton_core::decide::Probe;
use piton_core::id::ExecutionId;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;

use crate::client::alive;
use crate::executor::{
    Connections, Error, Executor, Fault, LaunchSpec, ListedExecution, Located, Result,
};
use crate::leftovers::{self, Mark};
use crate::protocol::files;

use paths::ExecutionFolder;

/// For an answer of an agentctl that holds its lock.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// For a socket to come back after it was asked for, or for one that takes no more connections to
/// end: it gives its readers 5 s.
const SETTLE_WAIT: Duration = Duration::from_secs(7);
/// For agentctl to end its agent and itself.
const STOP_WAIT: Duration = Duration::from_secs(15);
/// For a killed process to let go of its lock.
const KILL_WAIT: Duration = Duration::from_secs(5);
/// Between SIGTERM and SIGKILL, for what a dead agentctl left.
const LEFTOVERS_TERM: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(10);

/// Launches agentctls on this machine.
#[derive(Clone, Debug)]
pub struct Standalone {
    data: PathBuf,
    program: PathBuf,
    args: Vec<String>,
    /// `systemd-run`, where there is a systemd to ask.
    scope_program: Option<PathBuf>,
    temp: PathBuf,
    protocol_max: Option<u32>,
    connections: Arc<Connections>,
}

impl Standalone {
    /// `program` with `args` runs an agentctl that reads its launch from stdin.
    pub fn new(data: &Path, program: PathBuf, args: Vec<String>) -> Self {
        // What is launched must know it whatever folder it works in.
        let data = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
        let temp = std::env::temp_dir();
        let (scope_program, protocol_max) = (start::scope_program(), None);
        let connections = Arc::default();
        Self { data, program, args, scope_program, temp, protocol_max, connections }
    }

    /// The program that puts a command into a scope of its own; `None`: none does.
    pub fn with_scope_program(mut self, scope_program: Option<PathBuf>) -> Self {
        self.scope_program = scope_program;
        self
    }

    /// Where sockets go whose path in the data folder would be too long.
    pub fn with_temp_folder(mut self, temp: PathBuf) -> Self {
        self.temp = temp;
        self
    }

    /// The newest protocol that agentctls may speak, and we with them; for tests of an upgrade.
    pub fn with_protocol_max(mut self, protocol_max: Option<u32>) -> Self {
        self.protocol_max = protocol_max;
        self
    }

    fn place(&self, execution: &ExecutionId) -> ExecutionFolder {
        ExecutionFolder::new(&self.data, execution)
    }

    async fn probe_now(&self, execution: &ExecutionId) -> Probe {
        let place = self.place(execution);
        let deadline = Instant::now() + SETTLE_WAIT;
        let mut has_asked = false;
        loop {
            // Looked at each time: one that is about to end answers no more, and is soon gone.
            if !place.is_locked()
                && let Some(probe) = Self::bury(&place).await
            {
                return probe;
            }
            let asked = Instant::now();
            if answers(&place, ANSWER_WAIT).await {
                return Probe::Alive;
            }
            if !place.is_locked() {
                continue;
            }
            let is_silent = asked.elapsed() >= ANSWER_WAIT;
            if is_silent || Instant::now() >= deadline {
                return Probe::Unreachable;
            }
            if !has_asked && !place.is_bound() {
                // The socket's file was removed; agentctl makes another on `SIGHUP`.
                signal(&place, Signal::HUP);
                has_asked = true;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Marks an execution whose lock is free as gone. `None`: an agentctl took the lock meanwhile.
    async fn bury(place: &ExecutionFolder) -> Option<Probe> {
        let execution = &place.execution;
        if let Err(error) = place.condemn() {
            tracing::warn!("Execution {execution} is not proven dead: {error}");
            return Some(Probe::Unreachable);
        }
        if place.is_locked() {
            return None;
        }
        Some(match end_leftovers(place).await {
            Ok(()) => Probe::Gone,
            Err(error) => {
                tracing::warn!("Leftover processes of execution {execution} do not end: {error}");
                Probe::Unreachable
            }
        })
    }

    async fn stop_now(&self, execution: &ExecutionId) -> Result<()> {
        let place = self.place(execution);
        for (with, wait) in [(Signal::TERM, STOP_WAIT), (Signal::KILL, KILL_WAIT)] {
            if place.is_locked() {
                signal(&place, with);
                // One that is stopped hears of it only then.
                signal(&place, Signal::CONT);
                unlocked(&place, wait).await;
            }
        }
        place.condemn()?;
        if place.is_locked() {
            return Err(Error::Stuck { execution: execution.clone() });
        }
        end_leftovers(&place).await?;
        place.remove_socket();
        Ok(())
    }

    async fn forget_now(&self, execution: &ExecutionId) -> Result<()> {
        let place = self.place(execution);
        if place.is_locked() {
            return Err(Error::Alive { execution: execution.clone() });
        }
        end_leftovers(&place).await?;
        place.remove_socket();
        match fs::remove_dir_all(&place.folder) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(Error::Io { what: "remove", path: place.folder, source: e })
            }
            _ => Ok(()),
        }
    }
}

/// Ends the leftover processes of the execution in this very folder. If the folder is a copy, the
/// original's processes are not touched. Without a folder, no process can be recognised as its own.
async fn end_leftovers(place: &ExecutionFolder) -> Result<()> {
    if let Some(mark) = place.mark()? {
        leftovers::end(&mark, LEFTOVERS_TERM).await?;
    }
    Ok(())
}

/// Whether the agentctl of this very folder does.
async fn answers(place: &ExecutionFolder, wait: Duration) -> bool {
    let (Ok(Some(socket)), Ok(Some(mark))) = (place.socket(), place.mark()) else { return false };
    match tokio::time::timeout(wait, alive(&socket)).await {
        Ok(Ok(alive)) => alive.execution_id == place.execution && alive.folder == mark.folder(),
        _ => false,
    }
}

async fn unlocked(place: &ExecutionFolder, wait: Duration) {
    let deadline = Instant::now() + wait;
    while place.is_locked() && Instant::now() < deadline {
        tokio::time::sleep(POLL).await;
    }
}

/// Signals the process that holds the lock. Checks the lock again right before, since pids are
/// reused.
fn signal(place: &ExecutionFolder, signal: Signal) {
    if let Some(pid) = place.holder().and_then(Pid::from_raw)
        && place.is_locked()
        && let Err(error) = kill_process(pid, signal)
    {
        tracing::warn!("{} cannot be signalled: {error}", place.execution);
    }
}

impl Executor for Standalone {
    fn name(&self) -> &'static str {
        "standalone"
    }

    fn launch(&self, spec: LaunchSpec) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(async { Ok(self.launch_now(spec).await?) })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<ListedExecution>>> {
        Box::pin(async {
            let found = |(session, execution)| ListedExecution { session, execution };
            Ok(ExecutionFolder::all(&self.data)?.into_iter().map(found).collect())
        })
    }

    fn memory(&self) -> BoxFuture<'_, BTreeMap<ExecutionId, u64>> {
        Box::pin(async {
            let executions = ExecutionFolder::all(&self.data).unwrap_or_default();
            let marks = executions.into_iter().filter_map(|(_, execution)| {
                Mark::of(&execution, &self.place(&execution).folder).ok()
            });
            let marks: Vec<Mark> = marks.collect();
            // Reading the list of processes may block.
            let counting = tokio::task::spawn_blocking(move || leftovers::memory(&marks));
            counting.await.ok().and_then(Result::ok).unwrap_or_default()
        })
    }

    fn find<'a>(&'a self, execution: &'a ExecutionId) -> BoxFuture<'a, Result<Option<Located>>> {
        Box::pin(async {
            let located = self.place(execution).located()?;
            Ok(located.map(|located| Located { protocol_max: self.protocol_max, ..located }))
        })
    }

    fn probe<'a>(&'a self, execution: &'a ExecutionId) -> BoxFuture<'a, Probe> {
        Box::pin(self.probe_now(execution))
    }

    fn stop<'a>(
        &'a self,
        execution: &'a ExecutionId,
        _epoch: u64,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        self.connections.remove(execution);
        Box::pin(async { self.stop_now(execution).await.map_err(Fault::unreachable) })
    }

    fn connections(&self) -> Option<&Connections> {
        Some(&self.connections)
    }

    fn spool<'a>(&'a self, execution: &'a ExecutionId) -> BoxFuture<'a, Result<PathBuf>> {
        Box::pin(async { Ok(self.place(execution).folder.join(files::SPOOL)) })
    }

    fn set_aside<'a>(&'a self, execution: &'a ExecutionId) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            let place = self.place(execution);
            // No execution has a name like that.
            let aside = place.folder.with_extension("damaged");
            let renamed = fs::rename(&place.folder, &aside);
            renamed.map_err(|source| Error::Io { what: "rename", path: place.folder, source })
        })
    }

    fn tidy(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(program::tidy(&self.data, &self.program))
    }

    fn forget<'a>(&'a self, execution: &'a ExecutionId) -> BoxFuture<'a, Result<()>> {
        self.connections.remove(execution);
        Box::pin(self.forget_now(execution))
    }
}
