//! What there is. Nothing is judged here, and nothing is changed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use piton_api::server::ServerInfo;
use piton_core::{Code, Timestamp};
use piton_exec::executor::{Executor as _, ListedExecution};
use piton_exec::leftovers::{self, Mark};
use piton_exec::protocol::files;
use piton_exec::standalone::Standalone;
use piton_store::KEY_FILE;
use piton_store::sqlite::Access;
use rustix::process::{Resource, getrlimit};

use super::system::{self, Systemd};
use crate::agents;
use crate::config::AgentSetting;
use crate::context::Context;
use crate::programs;
use crate::server;
use crate::stores::{self, Kind};

/// How long a server may take to say that it is ready.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) data: PathBuf,
    pub(super) folder: Folder,
    /// Of the data folder, or of the nearest folder above it.
    pub(super) filesystem: FileSystem,
    pub(super) free_bytes: Option<u64>,
    pub(super) store: StoreFact,
    pub(super) key: KeyFact,
    pub(super) server: ServerFact,
    pub(super) own_version: String,
    /// Of a socket in the data folder, and of one in the temp folder.
    pub(super) socket_bytes: (usize, usize),
    /// What `git --version` says.
    pub(super) git: Option<String>,
    pub(super) agents: Vec<AgentFact>,
    pub(super) executions: Executions,
    pub(super) systemd: Option<Systemd>,
    /// What says that this is a container.
    pub(super) container: Option<String>,
    /// The name of the first process.
    pub(super) first_process: Option<String>,
    pub(super) now: Timestamp,
    /// When the store was written last, as its file says.
    pub(super) written_at: Option<Timestamp>,
    /// How many files may be open; `None` if any number.
    pub(super) open_files_max: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Folder {
    Missing,
    Unreadable { why: String },
    Other,
    There { mode: u32, own: bool },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileSystem {
    /// `ext4`; `None` if the system does not say.
    pub(super) kind: Option<String>,
    /// Why the store would refuse it.
    pub(super) refused: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoreFact {
    None { next: &'static str },
    Opens { kind: &'static str },
    Fails { code: Option<Code>, why: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyFact {
    /// What a new store would use.
    pub(super) setting: &'static str,
    /// The key file's mode, if there is one.
    pub(super) file_mode: Option<u32>,
    pub(super) in_environment: bool,
    /// A store of plain files has none.
    pub(super) is_needed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ServerFact {
    None,
    Answers { address: String, pid: u32, version: String },
    Silent { address: String, pid: u32, why: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AgentFact {
    pub(super) id: String,
    pub(super) program: String,
    pub(super) found: Option<PathBuf>,
    /// How to install it, if its profile says so.
    pub(super) install: Option<String>,
}

/// Executions that have a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Executions {
    pub(super) alive: usize,
    /// Their agentctl is gone, and something that they started is not.
    pub(super) with_leftovers: usize,
    pub(super) gone: usize,
}

impl Facts {
    pub(super) async fn gather(cx: &Context) -> Self {
        let data = std::path::absolute(&cx.settings.data.value)
            .unwrap_or_else(|_| cx.settings.data.value.clone());
        let there = nearest(&data);
        let server = server_fact(&data).await;
        let server_pid = match &server {
            ServerFact::Answers { pid, .. } | ServerFact::Silent { pid, .. } => Some(*pid),
            ServerFact::None => None,
        };
        Self {
            folder: folder(&data),
            filesystem: filesystem(&there),
            free_bytes: rustix::fs::statvfs(&there)
                .ok()
                .map(|found| found.f_bavail.saturating_mul(found.f_frsize)),
            store: store(cx),
            key: key(cx, &data),
            own_version: env!("CARGO_PKG_VERSION").to_owned(),
            socket_bytes: socket_bytes(&data),
            git: programs::said("git", &["--version"]),
            agents: agents(cx),
            executions: executions(&data).await,
            systemd: system::systemd(server_pid),
            container: system::container(),
            first_process: fs::read_to_string("/proc/1/comm").ok().map(|n| n.trim().to_owned()),
            now: cx.now(),
            written_at: written_at(&data),
            open_files_max: getrlimit(Resource::Nofile).current,
            server,
            data,
        }
    }
}

/// The folder itself, or the first above it that is there.
fn nearest(path: &Path) -> PathBuf {
    path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/")).to_owned()
}

fn folder(data: &Path) -> Folder {
    match fs::metadata(data) {
        Ok(found) if !found.is_dir() => Folder::Other,
        Ok(found) => Folder::There {
            mode: found.mode() & 0o7777,
            own: found.uid() == rustix::process::geteuid().as_raw(),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Folder::Missing,
        Err(error) => Folder::Unreadable { why: error.to_string() },
    }
}

fn filesystem(there: &Path) -> FileSystem {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok();
    let real = fs::canonicalize(there).unwrap_or_else(|_| there.to_owned());
    FileSystem {
        kind: mounts.and_then(|mounts| system::kind_of_mount(&mounts, &real)),
        refused: piton_store::refuse_network(there).err().map(|error| error.to_string()),
    }
}

fn store(cx: &Context) -> StoreFact {
    let fails = |error: &crate::error::Error| StoreFact::Fails {
        code: error.code(),
        why: error.message().to_owned(),
    };
    let kind = match stores::detect(&cx.settings.data.value) {
        Ok(Some(kind)) => kind,
        Ok(None) => return StoreFact::None { next: cx.settings.store.value.as_str() },
        Err(error) => return fails(&error),
    };
    // Read-only: another process may be writing.
    match stores::open_kind(&cx.settings, kind, Access::ReadOnly) {
        Ok(_) => StoreFact::Opens { kind: kind.as_str() },
        Err(error) => fails(&error),
    }
}

fn key(cx: &Context, data: &Path) -> KeyFact {
    let kind = stores::detect(data).ok().flatten().unwrap_or(cx.settings.store.value);
    let file = fs::metadata(data.join(KEY_FILE)).ok();
    KeyFact {
        setting: stores::key_source_name(&cx.settings.key_source.value),
        file_mode: file.map(|found| found.mode() & 0o7777),
        in_environment: std::env::var_os("PITON_KEY").is_some_and(|key| !key.is_empty()),
        is_needed: kind == Kind::Sqlite,
    }
}

async fn server_fact(data: &Path) -> ServerFact {
    let (Some(info), Some(client)) = (server::find(data), server::connect(data)) else {
        return ServerFact::None;
    };
    let ServerInfo { address, pid, version, .. } = info;
    match tokio::time::timeout(ANSWER_WAIT, client.ready()).await {
        Ok(Ok(_)) => ServerFact::Answers { address, pid, version },
        Ok(Err(error)) => ServerFact::Silent { address, pid, why: error.to_string() },
        Err(_) => {
            let why = format!("no answer within {} s", ANSWER_WAIT.as_secs());
            ServerFact::Silent { address, pid, why }
        }
    }
}

/// Of sockets with the longest name that an execution has.
fn socket_bytes(data: &Path) -> (usize, usize) {
    let name = format!("exec_{}.sock", "0".repeat(32));
    let beside = data.join("run").join(&name);
    let uid = rustix::process::geteuid().as_raw();
    let temp = std::env::temp_dir().join(format!("piton-{uid}")).join(&name);
    (beside.as_os_str().len(), temp.as_os_str().len())
}

/// The agents of the settings: an agent that is not configured need not be installed.
fn agents(cx: &Context) -> Vec<AgentFact> {
    let facts = cx.settings.agents.iter().map(|AgentSetting { profile, .. }| AgentFact {
        id: profile.id.clone(),
        program: agents::program(profile).to_owned(),
        found: agents::installed(profile),
        install: Some(profile.install.clone()).filter(|install| !install.is_empty()),
    });
    facts.collect()
}

async fn executions(data: &Path) -> Executions {
    let standalone = Standalone::new(data, PathBuf::new(), Vec::new());
    let mut counted = Executions::default();
    for ListedExecution { execution, .. } in standalone.list().await.unwrap_or_default() {
        let folder = data.join("run").join(execution.as_str());
        let lock = File::open(folder.join(files::LOCK));
        // Shared, so that two who ask do not take each other for the holder.
        let is_alive = lock.is_ok_and(|lock| lock.try_lock_shared().is_err());
        let left = || Mark::of(&execution, &folder).and_then(|mark| leftovers::any(&mark));
        if is_alive {
            counted.alive += 1;
        } else if left().unwrap_or(false) {
            counted.with_leftovers += 1;
        } else {
            counted.gone += 1;
        }
    }
    counted
}

fn written_at(data: &Path) -> Option<Timestamp> {
    let names = ["store.sqlite3", "store.sqlite3-wal", "files.json", "sessions"];
    let newest: SystemTime = names
        .iter()
        .filter_map(|name| fs::metadata(data.join(name)).ok()?.modified().ok())
        .max()?;
    let millis = newest.duration_since(UNIX_EPOCH).ok()?.as_millis();
    i64::try_from(millis).ok().map(Timestamp::from_millis)
}
