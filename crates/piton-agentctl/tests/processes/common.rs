//! What several tests need.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::path::Path;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use piton_agentctl::tree::{ProcessRole, Program, Streams, Tree};
use piton_exec::leftovers::Mark;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

/// Descent is from this program's own process: who leaves orphans without a mark in it is alone.
static ORPHANS: RwLock<()> = RwLock::new(());

/// Held by a test whose processes all have marks.
pub(crate) struct Marked(#[expect(dead_code, reason = "held")] RwLockReadGuard<'static, ()>);

/// Held by a test that leaves orphans.
pub(crate) struct Alone(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>);

pub(crate) fn marked() -> Marked {
    Marked(ORPHANS.read().unwrap_or_else(PoisonError::into_inner))
}

pub(crate) fn alone() -> Alone {
    Alone(ORPHANS.write().unwrap_or_else(PoisonError::into_inner))
}

/// An execution of this test; any folder will do for its own.
pub(crate) fn execution(name: &str) -> Mark {
    let id = format!("exe_{name}-{}", std::process::id()).parse().unwrap();
    Mark::of(&id, &std::env::temp_dir()).unwrap()
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Starts a shell script as a part of the execution, and waits until it says `ready`.
pub(crate) async fn start(tree: &Tree, part: ProcessRole, script: &str) -> Child {
    let command = vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()];
    let mut child = tree
        .spawn(Program {
            command,
            cwd: Path::new("/").to_owned(),
            env: Vec::new(),
            env_remove: Vec::new(),
            part,
            streams: Streams::Piped,
        })
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
    assert_eq!(line, "ready\n");
    child
}
