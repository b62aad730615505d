//! The built-in agent as a real process: what only a process can do.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use crate::common::{Host, Ids, Notes, TEST_TIMEOUT, run, soon};
use piton_agent::acp::{Begin, Connection, Limits, Options};
use piton_core::Code;
use piton_core::mask::Masker;
use piton_core::spool::Fact;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

/// Cargo builds the examples of a package with all of its tests, beside them; not with one alone.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().parent().unwrap().join("examples").join("echo");
    assert!(program.exists(), "build it first: cargo build -p piton-agent --example echo");
    program
}

struct Agent {
    child: Child,
    connection: Connection,
    notes: Arc<Notes>,
}

async fn start(cwd: &Path, args: &[&str]) -> Agent {
    let mut child = Command::new(program())
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let notes = Arc::new(Notes::default());
    let options = Options {
        masker: Arc::new(Masker::default()),
        journal: Arc::clone(&notes) as _,
        host: Arc::new(Host::default()),
        ids: Arc::new(Ids::default()),
        limits: Limits::default(),
    };
    let (stdout, stdin) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
    let (connection, driver) = Connection::open(stdout, stdin, options);
    tokio::spawn(driver);
    soon(connection.initialize()).await.unwrap();
    let begin = Begin { cwd: cwd.to_owned(), ..Begin::default() };
    Box::pin(soon(connection.begin(begin))).await.unwrap();
    Agent { child, connection, notes }
}

impl Agent {
    async fn turn(&self, prompt: &str) -> Result<String, piton_agent::acp::Error> {
        soon(soon(self.connection.prompt(run(1), prompt)).await.unwrap().ended()).await
    }

    /// How it ends by itself.
    async fn ended(&mut self) -> ExitStatus {
        soon(self.child.wait()).await.unwrap()
    }
}

#[tokio::test]
async fn it_exits_when_its_input_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut agent = start(folder.path(), &[]).await;
    agent.turn("run pwd").await.unwrap();
    agent.connection.close();
    assert_eq!(agent.ended().await.code(), Some(0));
}

#[tokio::test]
async fn it_exits_and_crashes_on_request_with_its_last_words_written() {
    use std::os::unix::process::ExitStatusExt;

    let folder = tempfile::tempdir().unwrap();
    let mut agent = start(folder.path(), &[]).await;
    agent.turn("stderr last words\nsay partial\nexit 7").await.unwrap_err();
    assert_eq!(agent.ended().await.code(), Some(7));
    assert_eq!(agent.notes.answers(), ["partial"]);
    let mut stderr = String::new();
    agent.child.stderr.take().unwrap().read_to_string(&mut stderr).await.unwrap();
    assert_eq!(stderr, "last words\n");

    let mut agent = start(folder.path(), &[]).await;
    agent.turn("crash").await.unwrap_err();
    assert_eq!(agent.ended().await.signal(), Some(6));
}

#[tokio::test]
async fn what_escapes_outlives_it() {
    let folder = tempfile::tempdir().unwrap();
    // A pipe to the escaped process: it can be written to only while that process waits.
    let fifo = folder.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut agent = start(folder.path(), &[]).await;
    agent.turn("escape read line < fifo; echo \"$line\" > got.new; mv got.new got").await.unwrap();
    agent.connection.close();
    agent.ended().await;
    // Opening it waits for a reader.
    let write = tokio::task::spawn_blocking(move || std::fs::write(fifo, "alive\n"));
    soon(write).await.unwrap().unwrap();
    let got = folder.path().join("got");
    let said = async {
        loop {
            match std::fs::read_to_string(&got) {
                Ok(text) => return text,
                Err(_) => tokio::time::sleep(TEST_TIMEOUT / 1_000).await,
            }
        }
    };
    assert_eq!(soon(said).await, "alive\n");
}

#[tokio::test]
async fn it_can_be_deaf_to_everything_but_sigkill() {
    use std::os::unix::process::ExitStatusExt;

    let folder = tempfile::tempdir().unwrap();
    let mut agent = start(folder.path(), &[]).await;
    let prompt = "ignore-term\nsay deaf\nwait 3600000\nhang";
    let turn = agent.connection.prompt(run(1), prompt).await.unwrap();
    agent.notes.until(|fact| matches!(fact, Fact::Text { .. }).then_some(())).await;
    agent.connection.cancel(&run(1)).await.unwrap();
    agent.connection.close();
    let pid = agent.child.id().unwrap().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    // A sign of life behind the signal: had it ended, its output would have.
    let waited = tokio::time::timeout(TEST_TIMEOUT / 40, agent.child.wait()).await;
    assert!(waited.is_err(), "{waited:?}");
    agent.child.start_kill().unwrap();
    assert_eq!(agent.ended().await.signal(), Some(9));
    soon(turn.ended()).await.unwrap_err();
}

#[tokio::test]
async fn it_can_close_its_input_and_continue() {
    let folder = tempfile::tempdir().unwrap();
    let agent = start(folder.path(), &[]).await;
    assert_eq!(agent.turn("close-stdin\nsay still here").await.unwrap(), "end_turn");
    assert_eq!(agent.notes.answers(), ["still here"]);
    assert_eq!(agent.turn("say x").await.unwrap_err().code(), Code::AgentClosed);
}
