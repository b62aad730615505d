//! Real agentctl processes for tests.
#![allow(dead_code, reason = "not every test file needs all of it")]
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use piton_core::id::ExecutionId;
use piton_core::spool::{Entry, Fact};
use piton_exec::client::{Client, Stream};
use piton_exec::conformance;
use piton_exec::executor::{Address, Executor, LaunchSpec, Located};
use piton_exec::leftovers::{self, Mark, Process};
use piton_exec::protocol::spool_key;
use piton_exec::spool::SpoolReader;
use piton_exec::standalone::Standalone;
use rustix::process::{Pid, Signal, kill_process};

/// The example that is agentctl, and the built-in agent.
pub(crate) fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().parent().unwrap().join("examples/agentctl");
    assert!(path.exists(), "cargo build -p piton-agentctl --examples");
    path
}

/// A data folder with a workspace. What was launched in it ends with it.
pub(crate) struct World {
    temp: tempfile::TempDir,
    data: PathBuf,
}

impl World {
    pub(crate) fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let data = temp.path().join("data");
        std::fs::create_dir(temp.path().join("workspace")).unwrap();
        Self { temp, data }
    }

    /// With a path that no socket's would fit.
    pub(crate) fn deep() -> Self {
        let mut world = Self::new();
        world.data = world.temp.path().join("d".repeat(100));
        world
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.temp.path().join("workspace")
    }

    pub(crate) fn rename_data(&mut self) {
        let moved = self.temp.path().join("moved");
        std::fs::rename(&self.data, &moved).unwrap();
        self.data = moved;
    }

    pub(crate) fn copy_data(&mut self) {
        let mut copy = self.data.clone().into_os_string();
        copy.push(".copy");
        let copied = std::process::Command::new("cp").arg("-r").arg(&self.data).arg(&copy).status();
        assert!(copied.unwrap().success());
        self.data = copy.into();
    }

    pub(crate) fn executor(&self) -> Standalone {
        self.executor_of(program())
    }

    pub(crate) fn executor_of(&self, program: PathBuf) -> Standalone {
        Standalone::new(&self.data, program, Vec::new())
            .with_scope_program(None)
            .with_temp_folder(self.temp.path().to_owned())
    }

    pub(crate) fn spec(&self) -> LaunchSpec {
        conformance::spec(&self.workspace())
    }

    pub(crate) async fn launch(&self) -> Run {
        self.launch_with(self.spec()).await
    }

    pub(crate) async fn launch_with(&self, spec: LaunchSpec) -> Run {
        self.launch_on(&self.executor(), spec).await
    }

    pub(crate) async fn launch_on(&self, executor: &Standalone, spec: LaunchSpec) -> Run {
        let (secret, epoch) = (spec.secret, spec.epoch);
        let execution = spec.execution.clone();
        executor.launch(spec).await.unwrap();
        let located = executor.find(&execution).await.unwrap().unwrap();
        let health = located.client(&secret, epoch).health_of_any().await.unwrap();
        let folder = self.data.join("run").join(located.execution.as_str());
        Run {
            execution: located.execution.clone(),
            mark: Mark::of(&located.execution, &folder).unwrap(),
            folder,
            located,
            secret,
            pid: health.pid,
            spool_id: health.spool.spool_id,
        }
    }
}

/// One execution; killed when it is dropped, with all that it started.
pub(crate) struct Run {
    pub(crate) execution: ExecutionId,
    pub(crate) located: Located,
    pub(crate) secret: [u8; 32],
    pub(crate) pid: u32,
    pub(crate) spool_id: String,
    folder: PathBuf,
    mark: Mark,
}

impl Run {
    /// Its living processes, without agentctl.
    pub(crate) fn processes(&self) -> Vec<Process> {
        leftovers::find(&self.mark).unwrap()
    }

    pub(crate) fn client(&self, epoch: u64) -> Client {
        self.located.client(&self.secret, epoch)
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.clone()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        Socket::of(&self.located).0
    }

    pub(crate) async fn stream(&self, epoch: u64, after: u64) -> Stream {
        self.client(epoch).stream(&self.spool_id, after).await.unwrap()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let is_ours = std::fs::read_to_string(format!("/proc/{}/cmdline", self.pid))
            .is_ok_and(|cmdline| cmdline.contains("piton-"));
        if is_ours {
            kill(self.pid);
        }
        for process in leftovers::find(&self.mark).unwrap_or_default() {
            kill(process.pid);
        }
    }
}

pub(crate) struct Socket(pub(crate) PathBuf);

impl Socket {
    pub(crate) fn of(located: &Located) -> Self {
        match &located.address {
            Address::Socket(path) => Self(path.clone()),
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let _ = kill_process(pid, signal);
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What a dead agentctl left.
pub(crate) fn facts_on_disk(folder: &Path, secret: &[u8; 32]) -> Vec<Fact> {
    let reader = SpoolReader::open(folder, &spool_key(secret)).unwrap();
    reader.after(0).map(|entry| entry.unwrap().fact).collect()
}

/// Reads a stream until an entry is as wanted; gives all up to it.
pub(crate) async fn entries_until(
    stream: &mut Stream,
    mut wanted: impl FnMut(&Fact) -> bool,
) -> Vec<Entry> {
    let mut entries = Vec::new();
    let reading = async {
        loop {
            let frame = stream.next().await.unwrap().expect("agentctl ended");
            for entry in frame.entries {
                let is_wanted = wanted(&entry.fact);
                entries.push(entry);
                if is_wanted {
                    return;
                }
            }
        }
    };
    let done = tokio::time::timeout(Duration::from_secs(30), reading).await;
    assert!(done.is_ok(), "only {entries:#?}");
    entries
}
