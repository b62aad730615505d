//! A data folder (real SQLite) or a modelled disk, boots that can be killed, and an agent that
//! records the effects it receives.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use piton_core::decide::Probe;
use piton_core::id::{BootId, ExecutionId, SessionId};
use piton_core::mask::Masker;
use piton_core::{Record, Timestamp};
use piton_runtime::{Clock, Driver, EffectJob, Executors, Handle, Options, Recovered, Service};
use piton_store::memory::{Disk, MemoryStore, Reliable};
use piton_store::{BoxFuture, Liveness, OsEntropy, SqliteStore, Store, sqlite};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    Sqlite,
}

/// What outlives a process.
#[derive(Debug)]
pub(crate) struct Place {
    kind: Kind,
    folder: tempfile::TempDir,
    disk: Arc<Mutex<Disk>>,
    pub outside: Arc<Outside>,
    masker: Arc<Masker>,
}

/// Clock, liveness, executors and the agent.
#[derive(Debug)]
pub(crate) struct Outside {
    now_ms: Mutex<i64>,
    alive: Mutex<BTreeSet<BootId>>,
    pub probe: Mutex<Probe>,
    pub performed: Mutex<Vec<(String, String)>>,
    /// The records that caused these effects.
    pub causes: Mutex<Vec<Record>>,
    /// Whether the agent accepts effects.
    pub listens: Mutex<bool>,
    pub live: Mutex<bool>,
    /// Time passes at once for those who wait.
    pub hurries: Mutex<bool>,
}

/// One process.
pub(crate) struct Process {
    pub service: Service,
    pub handle: Handle,
    pub store: Arc<dyn Store>,
    pub boot: BootId,
    pub recovered: Vec<Recovered>,
}

impl Place {
    pub(crate) fn new(kind: Kind) -> Self {
        let outside = Outside {
            now_ms: Mutex::new(1_790_000_000_000),
            alive: Mutex::default(),
            probe: Mutex::new(Probe::Gone),
            performed: Mutex::default(),
            causes: Mutex::default(),
            listens: Mutex::new(true),
            live: Mutex::new(false),
            hurries: Mutex::new(false),
        };
        let folder = tempfile::tempdir().unwrap();
        Self {
            kind,
            folder,
            disk: Arc::default(),
            outside: Arc::new(outside),
            masker: Arc::default(),
        }
    }

    pub(crate) fn with_masker(self, masker: Arc<Masker>) -> Self {
        Self { masker, ..self }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        let liveness: Arc<dyn Liveness> = self.outside.clone();
        match self.kind {
            Kind::Memory => Arc::new(MemoryStore::open(
                Arc::clone(&self.disk),
                liveness,
                Arc::new(OsEntropy),
                Arc::new(Reliable),
            )),
            Kind::Sqlite => {
                let options =
                    sqlite::Options { liveness, ..sqlite::Options::new(self.folder.path()) };
                Arc::new(SqliteStore::open(options).unwrap())
            }
        }
    }

    /// Starts a process; it recovers what dead ones left.
    pub(crate) async fn start(&self, boot: &str) -> Process {
        let boot: BootId = boot.parse().unwrap();
        self.live(&boot);
        let store = self.store();
        let options = Options {
            clock: self.outside.clone(),
            driver: self.outside.clone(),
            executors: self.outside.clone(),
            masker: Arc::clone(&self.masker),
            // Sweeps are asked for: no test waits for one.
            sweep_every: Duration::from_hours(24),
            ..Options::new(
                boot.clone(),
                Arc::clone(&store),
                self.outside.clone(),
                Arc::new(OsEntropy),
            )
        };
        let mut recovered = Vec::new();
        let service = Service::start(options, |one| recovered.push(one)).await.unwrap();
        let handle = service.handle();
        Process { service, handle, store, boot, recovered }
    }

    /// The process is gone from one moment to the next; only the disk is left.
    pub(crate) fn kill(&self, process: Process) {
        let Process { service, boot, .. } = process;
        drop(service);
        self.killed(&boot);
    }

    pub(crate) fn live(&self, boot: &BootId) {
        self.outside.alive.lock().unwrap().insert(boot.clone());
    }

    pub(crate) fn killed(&self, boot: &BootId) {
        self.outside.alive.lock().unwrap().remove(boot);
        self.disk.lock().unwrap().process_killed(boot, &mut |_| 0);
    }

    /// Makes a record of a session on the modelled disk unreadable.
    pub(crate) fn damage(&self, session: &SessionId) {
        let mut disk = self.disk.lock().unwrap();
        let log = disk.logs.get_mut(session).unwrap();
        log.lines[1].record.header = "{".into();
        log.snapshot = None;
    }

    pub(crate) fn pass(&self, span: Duration) {
        *self.outside.now_ms.lock().unwrap() += i64::try_from(span.as_millis()).unwrap();
    }
}

impl Outside {
    /// A process that ended, in order.
    pub(crate) fn alive_no_more(&self, boot: &str) {
        self.alive.lock().unwrap().remove(&boot.parse().unwrap());
    }
}

impl Clock for Outside {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(*self.now_ms.lock().unwrap())
    }

    fn sleep(&self, span: Duration) -> BoxFuture<()> {
        let hurries = *self.hurries.lock().unwrap();
        let span = if hurries { span.min(Duration::from_millis(5)) } else { span };
        Box::pin(tokio::time::sleep(span))
    }
}

impl Liveness for Outside {
    fn is_alive(&self, boot: &BootId) -> bool {
        self.alive.lock().unwrap().contains(boot)
    }
}

impl Driver for Outside {
    fn perform(&self, job: EffectJob) -> BoxFuture<bool> {
        let listens = *self.listens.lock().unwrap();
        if listens {
            self.causes.lock().unwrap().push(job.cause);
            self.performed.lock().unwrap().push((job.key, format!("{:?}", job.effect)));
        }
        Box::pin(std::future::ready(listens))
    }

    fn is_live(&self, _session: &SessionId) -> bool {
        *self.live.lock().unwrap()
    }
}

impl Executors for Outside {
    fn probe(&self, _session: &SessionId, _execution: &ExecutionId) -> BoxFuture<Probe> {
        Box::pin(std::future::ready(*self.probe.lock().unwrap()))
    }
}

/// Runs a case on each store.
pub(crate) fn on_both<F: Future<Output = ()>>(case: impl Fn(Place) -> F) {
    for kind in [Kind::Memory, Kind::Sqlite] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(case(Place::new(kind)));
    }
}
