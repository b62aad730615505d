//! agentctl on a disk that takes nothing more.
#![expect(clippy::unwrap_used, reason = "test helpers")]
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::ctl::{self, Run, World, entries_until};
use piton_core::decide::Probe;
use piton_core::spool::Fact;
use piton_exec::executor::Executor;
use piton_exec::protocol::{Act, Command, Start};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

/// No file of agentctl's can grow beyond this while its disk is full.
const FULL_BYTES: u64 = 100_000;

/// agentctl as it is on a disk that can be full: a write beyond its limit is an error, and no signal.
fn program(world: &World) -> PathBuf {
    let real = world.workspace().join("piton-agentctl");
    fs::copy(ctl::program(), &real).unwrap();
    let script = world.workspace().join("wrapper");
    let text = format!("#!/bin/sh\ntrap '' XFSZ\nexec {} \"$@\"\n", real.display());
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    script
}

fn limit(run: &Run, current: Option<u64>) {
    let pid = Pid::from_raw(i32::try_from(run.pid).unwrap());
    prlimit(pid, Resource::Fsize, Rlimit { current, maximum: None }).unwrap();
}

async fn act(run: &Run, id: &str, act: Act) {
    run.client(1).command(&Command { id: id.to_owned(), act }).await.unwrap();
}

/// Wants to show: told to end while the disk refuses, agentctl ends its agent, and stays until all
/// that the agent had said is written.
#[tokio::test]
async fn nothing_is_lost_by_an_end_on_a_full_disk() {
    let world = World::new();
    let executor = world.executor_of(program(&world));
    let run = world.launch_on(&executor, world.spec()).await;
    let client = run.client(1);
    let mut stream = run.stream(1, 0).await;
    let command = vec![ctl::program().display().to_string(), "echo".to_owned()];
    act(&run, "start", Act::Start(Start { command, ..Start::default() })).await;
    entries_until(&mut stream, |fact| matches!(fact, Fact::AgentReady { .. })).await;
    drop(stream);
    limit(&run, Some(FULL_BYTES));
    let run_id = "run_1".parse().unwrap();
    act(&run, "prompt", Act::Prompt { run_id, content: "flood 1000000".into() }).await;
    let refuses = async || {
        let blocked = client.health().await.unwrap().spool.blocked;
        blocked.is_some_and(|why| why.starts_with("The disk refuses"))
    };
    ctl::until("the disk is full", refuses).await;
    let written = client.health().await.unwrap().spool.last;

    ctl::signal(run.pid, Signal::TERM);
    let log = run.folder().join("agentctl.log");
    let says = |words: &str| fs::read_to_string(&log).unwrap().contains(words);
    ctl::until("it says that it stays", async || says("agentctl stays until the spool is written"))
        .await;
    assert_eq!(executor.probe(&run.execution).await, Probe::Alive);
    assert_eq!(client.health().await.unwrap().spool.last, written, "nothing could be written");
    let agents: Vec<_> = run.processes().into_iter().filter(|left| left.pid != run.pid).collect();
    assert!(agents.is_empty(), "the agent has ended: {agents:?}");

    limit(&run, None);
    ctl::until("gone", async || executor.probe(&run.execution).await == Probe::Gone).await;
    let kept = ctl::facts_on_disk(&run.folder().join("spool"), &run.secret);
    assert!(kept.len() as u64 > written, "{} entries, {written} before", kept.len());
    assert!(matches!(kept.last(), Some(Fact::AgentExited { requested: true, .. })), "{kept:#?}");
    let mut bytes = 0;
    for fact in &kept {
        if let Fact::Text { offset, text, .. } = fact {
            assert_eq!(*offset, bytes, "text is missing");
            bytes += text.len() as u64;
        }
        assert!(!matches!(fact, Fact::Dropped { why, .. } if why == "last_words_cut"));
    }
    assert!(bytes > FULL_BYTES / 2, "{bytes}");
}
