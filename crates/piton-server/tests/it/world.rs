//! A server over a memory store, with an executor that does what a test says. No process is started.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use piton_agent::profiles::Profile;
use piton_api::access::NewAccessToken;
use piton_api::client::Client;
use piton_api::server::{Examination, Reloaded};
use piton_core::access::{Bearer, Scope};
use piton_core::decide::{Command, Probe};
use piton_core::event::Event;
use piton_core::id::{BootId, ExecutionId, SessionId};
use piton_exec::executor::{Error, Executor, Fault, LaunchSpec, ListedExecution, Located};
use piton_runtime::{
    Clock, Engine, EngineOptions, Handle, Ids, Options, RunningEngine, SystemClock,
};
use piton_server::{Doctor, Reload, ReloadError, Server};
use piton_store::memory::{Disk, Hooks, MemoryStore};
use piton_store::{BoxFuture as StoreFuture, Liveness, OsEntropy, Store};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::agentctl::Fleet;

type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// All of this test's boots live.
#[derive(Debug)]
struct Alive;

impl Liveness for Alive {
    fn is_alive(&self, _boot: &BootId) -> bool {
        true
    }
}

/// An executor that launches nothing.
#[derive(Clone, Debug)]
pub(crate) struct ScriptedExecutor {
    pub(crate) probe: Arc<Mutex<Probe>>,
    /// Why launches fail.
    pub(crate) fault: &'static str,
}

fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

impl Executor for ScriptedExecutor {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn launch(&self, _spec: LaunchSpec) -> BoxFuture<'_, Result<(), Fault>> {
        ready(Err(Fault::unreachable(self.fault)))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<ListedExecution>, Error>> {
        ready(Ok(Vec::new()))
    }

    fn find<'a>(&'a self, _: &'a ExecutionId) -> BoxFuture<'a, Result<Option<Located>, Error>> {
        ready(Ok(None))
    }

    fn probe<'a>(&'a self, _: &'a ExecutionId) -> BoxFuture<'a, Probe> {
        ready(*self.probe.lock().unwrap())
    }

    fn stop<'a>(&'a self, _: &'a ExecutionId, _: u64) -> BoxFuture<'a, Result<(), Fault>> {
        ready(Ok(()))
    }

    fn spool<'a>(&'a self, _: &'a ExecutionId) -> BoxFuture<'a, Result<PathBuf, Error>> {
        ready(Ok(PathBuf::new()))
    }

    fn set_aside<'a>(&'a self, _: &'a ExecutionId) -> BoxFuture<'a, Result<(), Error>> {
        ready(Ok(()))
    }

    fn forget<'a>(&'a self, _: &'a ExecutionId) -> BoxFuture<'a, Result<(), Error>> {
        ready(Ok(()))
    }

    fn tidy(&self) -> BoxFuture<'_, Result<(), Error>> {
        ready(Ok(()))
    }
}

/// There is nothing to complain about.
#[derive(Debug)]
struct Healthy;

impl Doctor for Healthy {
    fn examine(
        &self,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<Examination, String>> + Send>> {
        Box::pin(std::future::ready(Ok(Examination { good: true, findings: Vec::new() })))
    }
}

/// The settings are as they were.
#[derive(Debug)]
struct Unchanged;

impl Reload for Unchanged {
    fn reload(&self) -> Result<Reloaded, ReloadError> {
        Ok(Reloaded { changed: Vec::new(), restart_required: Vec::new() })
    }
}

/// A disk that can be full.
#[derive(Debug, Default)]
struct FullDisk(AtomicBool);

impl Hooks for FullDisk {
    fn disk_full(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) handle: Handle,
    pub(crate) address: String,
    full: Arc<FullDisk>,
    // Ended by being dropped.
    _server: Server,
    _running: RunningEngine,
    folder: tempfile::TempDir,
}

impl World {
    pub(crate) async fn start() -> Self {
        let probe = Arc::new(Mutex::new(Probe::Unreachable));
        let fault = "there is no machine";
        Self::on(Arc::new(ScriptedExecutor { probe, fault })).await
    }

    /// With an executor whose agents do what their prompts say.
    pub(crate) async fn with_agents() -> (Self, Fleet) {
        let fleet = Fleet::default();
        (Self::on(Arc::new(fleet.clone())).await, fleet)
    }

    async fn on(executor: Arc<dyn Executor>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let ids = Ids::new(Arc::clone(&clock), Arc::new(OsEntropy));
        let (disk, full): (Arc<Mutex<Disk>>, Arc<FullDisk>) = Default::default();
        let liveness: Arc<dyn Liveness> = Arc::new(Alive);
        let store: Arc<dyn Store> = Arc::new(MemoryStore::open(
            disk,
            Arc::clone(&liveness),
            Arc::new(OsEntropy),
            Arc::<FullDisk>::clone(&full),
        ));
        let boot = ids.boot().unwrap();
        let options = Options {
            clock: Arc::clone(&clock),
            ..Options::new(boot, store, liveness, Arc::new(OsEntropy))
        };
        let options = EngineOptions {
            profiles: vec![profile()],
            snapshots: Some(folder.path().join("snapshots")),
            ..EngineOptions::new(options, folder.path())
        };
        let running = Engine::start(options, executor).await.unwrap();
        let local = Bearer { id: ids.access().unwrap(), secret: ids.token().unwrap().secret };
        let handle = running.engine().handle().unwrap().clone();
        let options = piton_server::Options {
            engine: running.engine(),
            local: Some(local.clone()),
            hosts: Vec::new(),
            origins: Vec::new(),
            rate: piton_server::Rate::default(),
            connections: piton_server::ConnectionLimits::default(),
            version: "0.0.0".to_owned(),
            doctor: Some(Arc::new(Healthy)),
            web: piton_server::WebFiles::Folder(folder.path().join("web")),
            reload: Some(Arc::new(Unchanged)),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server::start(listener, None, options).unwrap();
        let address = format!("http://{}", server.address());
        let client = Client::new(&address, local.reveal());
        Self { client, handle, address, full, _server: server, _running: running, folder }
    }

    /// Where the web app is looked for; it is not there until a test makes it.
    pub(crate) fn web_folder(&self) -> std::path::PathBuf {
        self.folder.path().join("web")
    }

    /// Resolves when the session's log has such a record.
    pub(crate) async fn wait_for_record(
        &self,
        session: &SessionId,
        is_meant: impl Fn(&Value) -> bool,
    ) {
        let mut records = self.client.records_from(session, 0);
        let found = async {
            loop {
                let record = records.next().await.unwrap();
                if is_meant(&serde_json::to_value(&record).unwrap()) {
                    return;
                }
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), found).await.unwrap();
    }

    pub(crate) fn set_full(&self, is_full: bool) {
        self.full.0.store(is_full, Ordering::SeqCst);
    }

    /// A client with an access token of these scopes.
    pub(crate) async fn client_with(&self, scopes: &BTreeSet<Scope>) -> Client {
        let scopes = scopes.iter().copied().map(Into::into).collect();
        let new = NewAccessToken { name: "test".to_owned(), scopes, expires_in_s: None };
        let issued = self.client.create_access_token(&new).await.unwrap();
        Client::new(&self.address, issued.token)
    }

    /// Kills every agentctl and agent. Returns when the log of this session says so: a request that
    /// comes before finds an agent that still runs, for all the server knows.
    pub(crate) async fn kill_agents(&self, fleet: &Fleet, session: &SessionId) {
        let deaths = |records: &Value| records.to_string().matches("\"executor.stopped\"").count();
        let path = format!("/api/v1/sessions/{session}/records");
        let before = deaths(&self.client.raw("GET", &path, "").await.unwrap());
        fleet.kill();
        let mut records = self.client.records_from(session, 0);
        while deaths(&self.client.raw("GET", &path, "").await.unwrap()) == before {
            let next = records.next();
            tokio::time::timeout(std::time::Duration::from_secs(30), next).await.unwrap().unwrap();
        }
    }

    /// A record of what an executor or agent was seen to do.
    pub(crate) async fn observe(
        &self,
        session: &SessionId,
        event: impl Into<Event>,
        message: Option<&str>,
    ) {
        let message = message.map(str::to_owned);
        let command = Command::Observe { event: event.into(), message };
        self.handle.execute(session, command).await.unwrap();
    }
}

/// An agent that no test starts.
fn profile() -> Profile {
    let mut profiles = piton_agent::profiles::built_in();
    let mut profile = profiles.remove(0);
    "echo".clone_into(&mut profile.id);
    profile
}

/// Futures of stores and executors are the same thing.
const _: fn(StoreFuture<()>) = |_| ();
