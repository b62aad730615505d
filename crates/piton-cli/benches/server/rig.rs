//! A server in this process, over a store on a real disk.

use std::path::Path;
use std::sync::Arc;

use piton_core::access::Bearer;
use piton_core::decide::Command;
use piton_core::id::{MessageId, SessionId};
use piton_runtime::{
    Engine, EngineOptions, Handle, Ids, NewSession, Options, RunningEngine, SystemClock,
};
use piton_server::{Rate, Server};
use piton_store::{BootGuard, BootLocks, OsEntropy, SqliteStore, Store, sqlite};
use tokio::net::TcpListener;

use crate::Result;

pub(crate) struct Rig {
    pub(crate) handle: Handle,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) address: String,
    pub(crate) token: String,
    running: RunningEngine,
    server: Server,
    _alive: BootGuard,
}

/// A folder beside the build, because the usual place for temporary files is often only memory.
pub(crate) fn folder() -> Result<tempfile::TempDir> {
    Ok(tempfile::TempDir::with_prefix_in("bench-server-", env!("CARGO_TARGET_TMPDIR"))?)
}

pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

impl Rig {
    pub(crate) async fn start(data: &Path) -> Result<Self> {
        let ids = Ids::new(Arc::new(SystemClock), Arc::new(OsEntropy));
        let locks = BootLocks::new(data);
        let alive = locks.hold(ids.boot()?)?;
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(sqlite::Options::new(data))?);
        let program = env!("CARGO_BIN_EXE_piton").into();
        let standalone =
            piton_exec::standalone::Standalone::new(data, program, vec!["agentctl".into()]);
        let options =
            Options::new(alive.boot().clone(), store.clone(), Arc::new(locks), Arc::new(OsEntropy));
        let options = EngineOptions::new(options, data);
        let running = Engine::start(options, Arc::new(standalone)).await?;
        let local = Bearer { id: ids.access()?, secret: ids.token()?.secret };
        let options = piton_server::Options {
            engine: running.engine(),
            local: Some(local.clone()),
            hosts: Vec::new(),
            origins: Vec::new(),
            // As fast as it goes.
            rate: Rate { per_second: 1e6, burst: 1e6 },
            connections: piton_server::ConnectionLimits::default(),
            version: "0".to_owned(),
            doctor: None,
            web: piton_server::WebFiles::None,
            reload: None,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let server = Server::start(listener, None, options)?;
        Ok(Self {
            handle: running.engine().handle()?.clone(),
            store,
            address: server.address().to_string(),
            token: local.reveal(),
            running,
            server,
            _alive: alive,
        })
    }

    pub(crate) async fn session(&self) -> Result<SessionId> {
        let session = self.handle.create(NewSession::default()).await?;
        let run_id = self.handle.ids().run()?;
        self.handle.execute(&session, Command::Start { run_id, message: None }).await?;
        Ok(session)
    }

    /// Publishes one event: durable when this returns.
    pub(crate) async fn say(
        &self,
        session: &SessionId,
        message: &MessageId,
        offset: u64,
        text: &str,
    ) -> Result<()> {
        let (message_id, text) = (message.clone(), text.to_owned());
        let say = Command::Say { message_id, offset: Some(offset), text };
        self.handle.execute(session, say).await?;
        Ok(())
    }

    pub(crate) async fn end(self) {
        self.server.shut_down().await;
        self.running.shut_down().await;
    }
}
