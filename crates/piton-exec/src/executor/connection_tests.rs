//! Wants to show: agentctl is asked for its version once for each connection, not before each command.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use piton_core::decide::Probe;
use piton_core::id::ExecutionId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::{At, Connections, Fault};
use crate::executor::{Address, Error, Executor, LaunchSpec, ListedExecution, Located, Result};
use crate::protocol::{Act, AgentHealth, Command, Health, PROTOCOL, SpoolHealth};

/// An executor whose agentctl is a socket.
#[derive(Debug)]
struct OneSocket {
    path: PathBuf,
    connections: Connections,
}

fn unused<'a, T: Send + 'a>() -> BoxFuture<'a, Result<T>> {
    let (what, path, source) = ("use", PathBuf::new(), io::Error::other("not in this test"));
    Box::pin(std::future::ready(Err(Error::Io { what, path, source })))
}

impl Executor for OneSocket {
    fn name(&self) -> &'static str {
        "test"
    }

    fn launch(&self, _spec: LaunchSpec) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(std::future::ready(Err(Fault::unreachable("not in this test"))))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<ListedExecution>>> {
        unused()
    }

    fn find<'a>(&'a self, execution: &'a ExecutionId) -> BoxFuture<'a, Result<Option<Located>>> {
        let (execution, address) = (execution.clone(), Address::Socket(self.path.clone()));
        Box::pin(std::future::ready(Ok(Some(Located { execution, address, protocol_max: None }))))
    }

    fn probe<'a>(&'a self, _execution: &'a ExecutionId) -> BoxFuture<'a, Probe> {
        Box::pin(std::future::ready(Probe::Alive))
    }

    fn stop<'a>(
        &'a self,
        _execution: &'a ExecutionId,
        _epoch: u64,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn connections(&self) -> Option<&Connections> {
        Some(&self.connections)
    }

    fn spool<'a>(&'a self, _execution: &'a ExecutionId) -> BoxFuture<'a, Result<PathBuf>> {
        unused()
    }

    fn set_aside<'a>(&'a self, _execution: &'a ExecutionId) -> BoxFuture<'a, Result<()>> {
        unused()
    }

    fn forget<'a>(&'a self, _execution: &'a ExecutionId) -> BoxFuture<'a, Result<()>> {
        unused()
    }

    fn tidy(&self) -> BoxFuture<'_, Result<()>> {
        unused()
    }
}

#[derive(Debug, Default)]
struct Asked {
    health: AtomicUsize,
    commands: AtomicUsize,
    /// The next command is not answered.
    is_silent: std::sync::atomic::AtomicBool,
}

async fn answer(mut stream: UnixStream, asked: Arc<Asked>) -> io::Result<()> {
    let (mut text, mut bytes) = (String::new(), [0; 4_096]);
    while !text.contains("\r\n\r\n") {
        let read = stream.read(&mut bytes).await?;
        text.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
    let body = if text.starts_with("GET /health") {
        asked.health.fetch_add(1, Ordering::Relaxed);
        let (session_id, execution_id) = ("sess_1".parse().unwrap(), "exec_1".parse().unwrap());
        let spool = SpoolHealth {
            spool_id: "s".into(),
            first: 1,
            last: 0,
            acked: 0,
            bytes: 0,
            blocked: None,
        };
        let health = Health {
            protocol: (PROTOCOL, PROTOCOL),
            version: "test".into(),
            session_id,
            execution_id,
            pid: 1,
            epoch: 1,
            spool,
            agent: AgentHealth::default(),
            run_id: None,
            asking: Vec::new(),
            shells: 0,
        };
        serde_json::to_string(&health).unwrap()
    } else {
        asked.commands.fetch_add(1, Ordering::Relaxed);
        if asked.is_silent.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        r#"{"id":"c","replayed":false,"result":null}"#.to_owned()
    };
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(answer.as_bytes()).await
}

#[tokio::test]
async fn the_handshake_is_made_once_per_connection() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let (listener, asked) = (UnixListener::bind(&path).unwrap(), Arc::new(Asked::default()));
    let served = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, Arc::clone(&served)));
        }
    });
    let agentctl = OneSocket { path, connections: Connections::default() };
    let at = |epoch| At {
        session: "sess_1".parse().unwrap(),
        execution: "exec_1".parse().unwrap(),
        secret: [7; 32],
        epoch,
    };
    let command = || Command { id: "c".into(), act: Act::Stop {} };
    let counts = || (asked.health.load(Ordering::Relaxed), asked.commands.load(Ordering::Relaxed));
    for _ in 0..3 {
        agentctl.command(&at(1), command()).await.unwrap();
    }
    assert_eq!(counts(), (1, 3), "one handshake for three commands");
    // Another lease is another connection.
    agentctl.command(&at(2), command()).await.unwrap();
    assert_eq!(counts(), (2, 4));
    // So is the one after silence.
    asked.is_silent.store(true, Ordering::Relaxed);
    agentctl.command(&at(2), command()).await.unwrap_err();
    assert_eq!(counts(), (2, 5));
    agentctl.command(&at(2), command()).await.unwrap();
    agentctl.command(&at(2), command()).await.unwrap();
    assert_eq!(counts(), (3, 7));
}
