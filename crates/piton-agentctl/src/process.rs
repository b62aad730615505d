//! One agentctl's life, from its launch to its end.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use piton_core::mask::{KeyPatterns, Masker, MaskerTooLarge};
use piton_exec::leftovers::Mark;
use piton_exec::protocol::{Launch, files, spool_key};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::agent::AgentContext;
use crate::agentctl::Agentctl;
use crate::epoch::Epochs;
use crate::folder_watch;
use crate::host::Host;
use crate::log::LogFile;
use crate::server::{self, Gate};
use crate::spool::{self, Spool};
use crate::tree::{Tree, become_subreaper};
use crate::workspace::{self, Workspace};

/// A process that checks whether the lock is free holds it for a moment.
const LOCK_TRIES: u32 = 40;
const LOCK_PAUSE: Duration = Duration::from_millis(25);
/// For replies and streams to reach their readers, once all is over.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// For the end on SIGTERM, unless it is the disk that it waits for.
const TERM_WAIT: Duration = Duration::from_secs(10);

/// Why agentctl could not begin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("Cannot use the folder {}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("Another agentctl has the folder {}", path.display())]
    Taken { path: PathBuf },
    #[error("It is too late: the execution was said to be gone")]
    Late,
    #[error("The secret is not 32 bytes in hex")]
    Secret,
    #[error(transparent)]
    Mask(#[from] MaskerTooLarge),
    #[error(transparent)]
    Spool(#[from] spool::Error),
    #[error("Cannot bind the socket {}", path.display())]
    Socket { path: PathBuf, source: io::Error },
    #[error("Cannot use the workspace")]
    Workspace(#[source] workspace::Error),
    #[error("Cannot make a runtime")]
    Runtime(#[source] io::Error),
}

/// Runs until it is asked to end, or has had no client for too long. Makes the calling process what
/// an agentctl is: in a process session and folder of its own.
pub fn run(launch: Launch) -> Result<(), Error> {
    // Fails if this process leads a process group, as when a user starts agentctl from a shell; it
    // then stays in the shell's session.
    let _ = rustix::process::setsid();
    // The umask stays as it is, because the agent and all that it starts inherit it: what is our own
    // is made with a mode of its own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Error::Runtime)?;
    // Before the lock: who finds it held may send signals, which would kill us.
    let signals = {
        let _inside = runtime.enter();
        Signals {
            hangup: signal(SignalKind::hangup()).map_err(Error::Runtime)?,
            terminate: signal(SignalKind::terminate()).map_err(Error::Runtime)?,
        }
    };
    let folder = launch.folder.clone();
    let failed = |source| Error::Folder { path: folder.clone(), source };
    std::env::set_current_dir(&folder).map_err(failed)?;
    // From here on paths are relative: the data folder may be moved.
    let here = Path::new(".");
    let lock = lock(here).map_err(failed)?.ok_or_else(|| Error::Taken { path: folder.clone() })?;
    // Looked at under the lock: who says that it is gone looks at the lock afterwards.
    if here.join(files::GONE).exists() {
        return Err(Error::Late);
    }
    let keys = launch.mask_keys.as_deref().map_or_else(KeyPatterns::default, KeyPatterns::new);
    let masker = Arc::new(Masker::new(keys.clone(), &launch.mask_values)?);
    let log = LogFile::open(Path::new(files::LOG), masker.clone()).map_err(failed)?;
    // A second life in one process is one of a test's; it shares the log of the first.
    let _ = tracing::subscriber::set_global_default(log);
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    let done = runtime.block_on(live(launch, masker, keys, signals, &lock));
    if let Err(error) = &done {
        tracing::error!("agentctl could not start: {error}");
    }
    drop(lock);
    done
}

struct Signals {
    hangup: Signal,
    terminate: Signal,
}

/// `None`: another process holds it. The kernel lets go of it when the process ends, and no child
/// inherits it.
fn lock(folder: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    let path = folder.join(files::LOCK);
    let mut file = options.create(true).truncate(false).write(true).mode(0o600).open(path)?;
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => {
                file.set_len(0)?;
                writeln!(file, "{}", std::process::id())?;
                return Ok(Some(file));
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(e)) => return Err(e),
        }
    }
    Ok(None)
}

/// Beside the folder, the socket moves with it.
fn socket_path(launch: &Launch) -> PathBuf {
    match launch.socket.file_name() {
        Some(name) if launch.socket.parent() == launch.folder.parent() => {
            Path::new("..").join(name)
        }
        _ => launch.socket.clone(),
    }
}

async fn live(
    launch: Launch,
    masker: Arc<Masker>,
    keys: KeyPatterns,
    signals: Signals,
    lock: &File,
) -> Result<(), Error> {
    let here = Path::new(".");
    let failed = |source| Error::Folder { path: launch.folder.clone(), source };
    let mut secret = [0; 32];
    hex::decode_to_slice(&launch.secret, &mut secret).map_err(|_| Error::Secret)?;
    let epochs = Epochs::open(here, launch.epoch).map_err(failed)?;
    let folder = here.join(files::SPOOL);
    let spool = Spool::create(&folder, &spool_key(&secret), launch.limits.spool_bytes_max)?;
    if let Err(error) = become_subreaper() {
        tracing::warn!("Orphaned processes of the agent are not reparented to agentctl: {error}");
    }
    let tree = Tree::new(&Mark::of(&launch.execution_id, here).map_err(failed)?);
    tokio::spawn(tree.clone().reap_always());
    let workspace = Workspace::open(&launch.workspace, here, &tree).map_err(Error::Workspace)?;
    let context = AgentContext {
        session: launch.session_id.clone(),
        spool,
        masker,
        keys,
        host: Host::new(&workspace),
        workspace,
        limits: launch.limits,
    };
    let agentctl = Arc::new(Agentctl::new(&launch, &secret, context, epochs));
    let path = socket_path(&launch);
    let (rebind, asked) = mpsc::channel(1);
    let gate = Gate::bind(&path, asked);
    let gate = gate.map_err(|source| Error::Socket { path: launch.socket.clone(), source })?;
    tracing::info!("{launch:?} begins with protocol {:?}", agentctl.protocol);

    tokio::spawn(rebind_on(signals.hangup, rebind));
    tokio::spawn(end_on(signals.terminate, agentctl.clone()));
    tokio::spawn(end_when_lost(agentctl.clone(), identity(&lock.metadata().map_err(failed)?)));
    tokio::spawn(end_when_alone(agentctl.clone(), Duration::from_secs(launch.limits.idle_s_max)));
    let mut over = agentctl.over();
    let is_over = async move {
        let _ = over.wait_for(|over| *over).await;
    };
    let serving =
        axum::serve(gate, server::router(agentctl.clone())).with_graceful_shutdown(is_over);
    let mut serving = std::pin::pin!(serving.into_future());
    let mut over = agentctl.over();
    tokio::select! {
        _ = &mut serving => {}
        _ = over.wait_for(|over| *over) => {
            let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, shut_down(&agentctl, serving)).await;
        }
    }
    let _ = fs::remove_file(&path);
    tracing::info!("agentctl exits");
    Ok(())
}

/// Replies and the rest of the streams go out.
async fn shut_down(agentctl: &Agentctl, serving: impl Future<Output = io::Result<()>>) {
    let _ = serving.await;
    while agentctl.activity.present() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A client that finds the lock held and the socket gone asks for another one.
async fn rebind_on(mut hangup: Signal, rebind: mpsc::Sender<()>) {
    while hangup.recv().await.is_some() {
        tracing::info!("Recreating the socket");
        let _ = rebind.send(()).await;
    }
}

async fn end_on(mut terminate: Signal, agentctl: Arc<Agentctl>) {
    if terminate.recv().await.is_some() {
        tracing::info!("Ending on SIGTERM");
        let mut end = std::pin::pin!(agentctl.end());
        while tokio::time::timeout(TERM_WAIT, &mut end).await.is_err() {
            let Some(why) = agentctl.spool.refused() else {
                tracing::error!("A task of agentctl does not end; the spool is written");
                return agentctl.mark_ended();
            };
            // What was said and is not written is nowhere but here: when to give it up is not ours
            // to decide.
            tracing::error!(
                "{why}. agentctl stays until the spool is written; SIGKILL ends it and loses the rest"
            );
        }
    }
}

pub(crate) fn identity(file: &fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// When its folder was removed, also by a move to another file system, no server can find it, read
/// its spool, or know that its agent is at work: it must not keep running beside the next agent.
async fn end_when_lost(agentctl: Arc<Agentctl>, lock: (u64, u64)) {
    folder_watch::until_lost(&agentctl, lock).await;
    tracing::error!("The folder of this agentctl was removed: no server can find it any more");
    agentctl.end().await;
}

/// One sleep at a time, however long it is. What waits in the spool stays on the disk, where a
/// server finds it.
async fn end_when_alone(agentctl: Arc<Agentctl>, idle_max: Duration) {
    loop {
        let alone = agentctl.activity.alone_for();
        if alone >= idle_max && !agentctl.is_working().await {
            tracing::info!("agentctl exits: no server connected for {} s", alone.as_secs());
            agentctl.end().await;
            return;
        }
        // Clients that came and went since have moved the deadline.
        let left = idle_max.saturating_sub(alone);
        tokio::time::sleep(if left.is_zero() { idle_max } else { left }).await;
    }
}
