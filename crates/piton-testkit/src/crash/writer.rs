//! The writer's life: lock, store, recovery, work.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use piton_runtime::{Driver, EffectJob, Ids, NoDriver, Options, Service, SystemClock};
use piton_store::{BootLocks, BoxFuture, OsEntropy};
use tokio::task::JoinSet;

use super::lines::Line;
use super::store::Kind;
use super::{serve, work};

/// The store was poisoned, and refused whatever was tried afterwards.
pub const EXIT_POISONED: u8 = 10;
/// The writer could not begin.
pub const EXIT_NO_START: u8 = 11;
/// Something was refused that should not have been; the last line says what.
pub const EXIT_REFUSED: u8 = 12;
/// The reader of its output is gone.
const EXIT_ALONE: i32 = 13;

/// How a writer works.
#[derive(Clone, Debug)]
pub struct Plan {
    pub data: PathBuf,
    pub store: Kind,
    pub mode: Mode,
    pub sessions: usize,
    /// The beginning of its sessions' ids.
    pub prefix: String,
    pub seed: u64,
    /// Ends by itself after so many steps of its sessions together.
    pub steps: Option<u64>,
    /// The size of every content; otherwise they vary.
    pub bytes: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All sessions at once, several commands of each at once.
    Concurrent,
    /// One session, one append at a time.
    Serial,
    /// Carries out the commands on its standard input.
    Serve,
}

/// Standard output without a buffer.
#[derive(Debug)]
pub(crate) struct Out(File);

impl Out {
    fn new() -> std::io::Result<Self> {
        Ok(Self(File::from(std::io::stdout().as_fd().try_clone_to_owned()?)))
    }

    /// One write(2): a line is read whole or not at all.
    pub(crate) fn say(&self, line: &Line) {
        let text = line.to_text();
        match (&self.0).write(text.as_bytes()) {
            Ok(written) if written == text.len() => {}
            _ => std::process::exit(EXIT_ALONE),
        }
    }
}

/// Carries everything out at once.
#[derive(Debug)]
struct Obedient;

impl Driver for Obedient {
    fn perform(&self, _job: EffectJob) -> BoxFuture<bool> {
        Box::pin(std::future::ready(true))
    }

    fn is_live(&self, _session: &piton_core::id::SessionId) -> bool {
        false
    }
}

/// Runs a writer until it is killed or has done its work.
pub fn run(plan: &Plan) -> ExitCode {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let lived = match runtime {
        Ok(runtime) => runtime.block_on(live(plan)),
        Err(error) => Err(error.to_string()),
    };
    lived.unwrap_or_else(|why| {
        // Nothing to do about a closed standard error.
        let _ = writeln!(std::io::stderr(), "piton-crash-writer: {why}");
        ExitCode::from(EXIT_NO_START)
    })
}

async fn live(plan: &Plan) -> Result<ExitCode, String> {
    let out = Arc::new(Out::new().map_err(|e| e.to_string())?);
    let said = |e: piton_store::Error| format!("{}: {e}", e.code());
    let ids = Ids::new(Arc::new(SystemClock), Arc::new(OsEntropy));
    let locks = BootLocks::new(&plan.data);
    let guard = locks.hold(ids.boot().map_err(said)?).map_err(said)?;
    out.say(&Line::Boot(guard.boot().to_string()));
    locks.sweep().map_err(said)?;
    let store = plan.store.open(&plan.data).map_err(said)?;
    let mut options = Options::new(
        guard.boot().clone(),
        Arc::clone(&store),
        Arc::new(locks),
        Arc::new(OsEntropy),
    );
    options.snapshot_every = 20;
    // Carrying out an effect writes an extra record, which must not happen when appends are
    // counted.
    options.driver = match plan.mode {
        Mode::Serial => Arc::new(NoDriver),
        Mode::Concurrent | Mode::Serve => Arc::new(Obedient),
    };
    let service = Service::start(options, |recovered| {
        let outcome = format!("{:?}", recovered.outcome);
        out.say(&Line::Recovered(recovered.session.to_string(), outcome));
    })
    .await
    .map_err(|e| format!("{}: {e}", e.code()))?;
    out.say(&Line::Ready);
    let code = match plan.mode {
        Mode::Serve => serve::serve(&service.handle(), &store, &out).await,
        Mode::Serial | Mode::Concurrent => work_all(plan, &service, &out).await,
    };
    service.shut_down().await;
    let stats = store.stats();
    out.say(&Line::Stats { batches: stats.batches, flushes: stats.flushes });
    drop(store);
    drop(guard);
    Ok(ExitCode::from(code))
}

/// Every session's work, until all is done or one of them finds that it cannot continue.
async fn work_all(plan: &Plan, service: &Service, out: &Arc<Out>) -> u8 {
    let left = Arc::new(AtomicU64::new(plan.steps.unwrap_or(u64::MAX)));
    let mut tasks = JoinSet::new();
    let sessions = if plan.mode == Mode::Serial { 1 } else { plan.sessions };
    for number in 0..sessions {
        let worker = work::Worker::new(plan, number, service.handle(), Arc::clone(out));
        tasks.spawn(worker.run(Arc::clone(&left)));
    }
    let mut code = 0;
    while let Some(done) = tasks.join_next().await {
        code = code.max(done.unwrap_or(EXIT_REFUSED));
    }
    code
}

/// Takes one of the steps that are left.
pub(crate) fn take(left: &AtomicU64) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}
