//! A data folder, agents that outlive engines, and engines that can be killed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use piton_agent::profiles::Profile;
use piton_core::id::{BootId, SessionId};
use piton_core::resume::{AgentRestart, Policy, StartContext};
use piton_runtime::{
    Caller, Engine, EngineOptions, Options, ResumeSpec, RunningEngine, SessionReport, SessionSpec,
    Settings,
};
use piton_store::{Liveness, OsEntropy, SqliteStore, Store, sqlite};

use super::agentctl::Fleet;

/// What takes longer than this hangs.
const WAIT_MAX: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub(crate) struct World {
    folder: tempfile::TempDir,
    alive: Arc<Alive>,
    pub(crate) fleet: Fleet,
    pub(crate) policy: Policy,
    pub(crate) settings: Settings,
}

#[derive(Debug, Default)]
struct Alive(Mutex<BTreeSet<BootId>>);

impl Liveness for Alive {
    fn is_alive(&self, boot: &BootId) -> bool {
        self.0.lock().unwrap().contains(boot)
    }
}

/// An engine of one boot.
pub(crate) struct Boot {
    pub(crate) engine: Engine,
    running: RunningEngine,
    id: BootId,
}

impl World {
    pub(crate) fn new() -> Self {
        let policy = Policy { agent_restart: AgentRestart::OnPrompt, ..Policy::default() };
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings::default();
        let fleet = Fleet::default();
        Self { folder, alive: Arc::default(), fleet, policy, settings }
    }

    pub(crate) fn data(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn scratch(&self, session: &SessionId) -> PathBuf {
        self.data().join("workspaces").join(session.as_str())
    }

    fn store(&self) -> Arc<dyn Store> {
        let liveness: Arc<dyn Liveness> = self.alive.clone();
        let options = sqlite::Options { liveness, ..sqlite::Options::new(self.data()) };
        Arc::new(SqliteStore::open(options).unwrap())
    }

    fn options(&self, boot: &str) -> (EngineOptions, BootId) {
        let id: BootId = boot.parse().unwrap();
        self.alive.0.lock().unwrap().insert(id.clone());
        let liveness: Arc<dyn Liveness> = self.alive.clone();
        let service = Options::new(id.clone(), self.store(), liveness, Arc::new(OsEntropy));
        let service = Options { settings: self.settings, ..service };
        let profiles = vec![
            Profile::configured("echo", vec!["echo-agent".to_owned()]),
            Profile::configured("other", vec!["other-agent".to_owned(), "{session}".to_owned()]),
        ];
        let options = EngineOptions::new(service, self.data());
        (EngineOptions { profiles, policy: self.policy, ..options }, id)
    }

    pub(crate) async fn start(&self, boot: &str) -> Boot {
        let (options, id) = self.options(boot);
        let running = Engine::start(options, Arc::new(self.fleet.clone())).await.unwrap();
        Boot { engine: running.engine(), running, id }
    }

    pub(crate) fn offline(&self, boot: &str) -> Engine {
        Engine::offline(self.options(boot).0)
    }

    /// The process is gone from one moment to the next; agents are not.
    pub(crate) fn kill(&self, boot: Boot) {
        let Boot { engine, running, id } = boot;
        drop((running, engine));
        self.alive.0.lock().unwrap().remove(&id);
    }

    pub(crate) async fn end(&self, boot: Boot) {
        boot.running.shut_down().await;
        self.alive.0.lock().unwrap().remove(&boot.id);
    }
}

/// Resumes, and continues the interrupted run.
pub(crate) const CONTINUE: ResumeSpec =
    ResumeSpec { continue_run: Some(true), context: StartContext::Native };

pub(crate) fn caller() -> Caller {
    Caller::new("ada")
}

pub(crate) fn keyed(key: &str) -> Caller {
    caller().with_key(Some(key)).unwrap()
}

pub(crate) async fn created(engine: &Engine) -> SessionId {
    let created = engine.create(&caller(), SessionSpec::default()).await.unwrap();
    created.response.session_id
}

/// Waits until the log says it.
pub(crate) async fn until(
    engine: &Engine,
    session: &SessionId,
    is: impl Fn(&SessionReport) -> bool,
) -> SessionReport {
    let waiting = async {
        let mut tail = engine.view().tail(session, 0);
        loop {
            let report = engine.session(session).await.unwrap();
            if is(&report) {
                return report;
            }
            tail.seek(report.overview.state.last_seq);
            // What is waited for may be in no log: the agents' own state is looked at, too.
            if let Ok(more) = tokio::time::timeout(POLL_INTERVAL, tail.next()).await {
                more.unwrap();
            }
        }
    };
    match tokio::time::timeout(WAIT_MAX, waiting).await {
        Ok(report) => report,
        Err(elapsed) => {
            panic!(
                "{elapsed}: {:?}\n{:?}",
                engine.session(session).await,
                kinds(engine, session).await
            )
        }
    }
}

pub(crate) async fn until_named(engine: &Engine, session: &SessionId, name: &str) -> SessionReport {
    until(engine, session, |report| report.overview.status.name.as_str() == name).await
}

pub(crate) async fn kinds(engine: &Engine, session: &SessionId) -> Vec<String> {
    let records = engine.view().records(session, 0, 1_000).await.unwrap();
    records.iter().map(|record| record.kind.to_string()).collect()
}

pub(crate) async fn count(engine: &Engine, session: &SessionId, kind: &str) -> usize {
    kinds(engine, session).await.iter().filter(|known| *known == kind).count()
}
