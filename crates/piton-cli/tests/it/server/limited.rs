//! A server in this process, over a store on a real disk and with the real agentctl, whose limits are
//! so small that a test reaches them.

use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use piton_core::access::Bearer;
use piton_runtime::{Engine, EngineOptions, Ids, Options, RunningEngine, SystemClock};
use piton_server::{ConnectionLimits, Rate, Server};
use piton_store::{BootGuard, BootLocks, OsEntropy, SqliteStore, Store, sqlite};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::server::world::{Answer, answer, end_leftovers, send};
use crate::tools;

pub(crate) struct Limited {
    folder: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    pub(crate) address: String,
    pub(crate) token: String,
    running: Option<(Server, RunningEngine)>,
    _alive: BootGuard,
}

/// Nothing that a test does reaches these.
pub(crate) const UNLIMITED: Rate = Rate { per_second: 1e6, burst: 1e6 };

impl Limited {
    pub(crate) fn new(rate: Rate, connections: ConnectionLimits) -> Self {
        Self::over(rate, connections, |data| {
            Arc::new(SqliteStore::open(sqlite::Options::new(data)).unwrap())
        })
    }

    /// The same over another store.
    pub(crate) fn over(
        rate: Rate,
        connections: ConnectionLimits,
        open: impl FnOnce(&Path) -> Arc<dyn Store>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let data = folder.path().join("data");
        let ids = Ids::new(Arc::new(SystemClock), Arc::new(OsEntropy));
        let locks = BootLocks::new(&data);
        let alive = locks.hold(ids.boot().unwrap()).unwrap();
        let store = open(&data);
        let local = Bearer { id: ids.access().unwrap(), secret: ids.token().unwrap().secret };
        let token = local.reveal();
        let options =
            Options::new(alive.boot().clone(), store, Arc::new(locks), Arc::new(OsEntropy));
        let running = runtime.block_on(start(&data, options, local, rate, connections));
        let address = format!("http://{}", running.0.address());
        Self { folder, runtime, address, token, running: Some(running), _alive: alive }
    }

    pub(crate) fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> TcpStream {
        let body = body.map(ToString::to_string);
        send(&self.address, method, path, body.as_deref().map(str::as_bytes), headers)
    }

    /// Without a token, unless a header has one.
    pub(crate) fn raw(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> Answer {
        answer(self.send(method, path, body, headers), &format!("{method} {path}"))
    }

    /// As the data folder's owner.
    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let bearer = format!("Bearer {}", self.token);
        self.raw(method, path, body, &[("authorization", &bearer)])
    }

    /// A token with these scopes, as a header has it.
    pub(crate) fn bearer(&self, scopes: &[&str]) -> String {
        let body = json!({"name": "x", "scopes": scopes});
        let made = self.ask("POST", "/api/v1/access-tokens", Some(&body)).good();
        format!("Bearer {}", made["token"].as_str().unwrap())
    }
}

async fn start(
    data: &Path,
    options: Options,
    local: Bearer,
    rate: Rate,
    connections: ConnectionLimits,
) -> (Server, RunningEngine) {
    let program = tools::piton().into();
    let standalone =
        piton_exec::standalone::Standalone::new(data, program, vec!["agentctl".into()]);
    let options = EngineOptions::new(options, data);
    let running = Engine::start(options, Arc::new(standalone)).await.unwrap();
    let options = piton_server::Options {
        engine: running.engine(),
        local: Some(local),
        hosts: Vec::new(),
        origins: Vec::new(),
        rate,
        connections,
        version: "0".to_owned(),
        doctor: None,
        web: piton_server::WebFiles::None,
        reload: None,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    (Server::start(listener, None, options).unwrap(), running)
}

impl Drop for Limited {
    fn drop(&mut self) {
        if let Some((server, running)) = self.running.take() {
            self.runtime.block_on(async {
                server.shut_down().await;
                running.shut_down().await;
            });
        }
        end_leftovers(&self.data());
    }
}
