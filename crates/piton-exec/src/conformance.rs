//! What every executor must do. Run it on one: `conformance::all(|| executor, workspace)`.
//!
//! `make` gives an executor over the same place each time it is called, as a server that was
//! started again would have it.

#![expect(clippy::missing_panics_doc, reason = "a test says what is wrong by panicking")]

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use piton_core::Code;
use piton_core::decide::Probe;
use piton_core::id::ExecutionId;
use piton_core::spool::Fact;

use crate::executor::{Executor, LaunchSpec, Located};
use crate::protocol::{Act, Command, Limits, spool_key};
use crate::spool::SpoolReader;

const SECRET: [u8; 32] = [0x5e; 32];

/// All of it.
pub async fn all(make: impl Fn() -> Arc<dyn Executor>, workspace: &Path) {
    an_execution_that_never_was_is_gone(&*make()).await;
    a_life_from_launch_to_forget(&make, workspace).await;
    an_execution_is_launched_once(&*make(), workspace).await;
    one_ends_and_another_goes_on(&*make(), workspace).await;
    what_was_kept_is_there_after_the_end(&*make(), workspace).await;
    one_that_closes_itself_is_gone(&*make(), workspace).await;
    tidying_disturbs_nobody(&*make(), workspace).await;
}

/// A launch of a new execution.
pub fn spec(workspace: &Path) -> LaunchSpec {
    LaunchSpec {
        session: "sess_conformance".parse().expect("an id"),
        execution: new_execution(),
        epoch: 1,
        workspace: workspace.to_owned(),
        secret: SECRET,
        mask_values: Vec::new(),
        mask_keys: None,
        limits: Limits::default(),
        ready_timeout: crate::executor::READY_TIMEOUT,
        protocol_max: None,
    }
}

fn new_execution() -> ExecutionId {
    let mut random = [0; 10];
    getrandom::fill(&mut random).expect("randomness");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    ExecutionId::new(u64::try_from(now).unwrap_or(0), random)
}

async fn launch(executor: &dyn Executor, workspace: &Path) -> Located {
    let spec = spec(workspace);
    let execution = spec.execution.clone();
    executor.launch(spec).await.expect("the launch");
    let located = executor.find(&execution).await.expect("the search").expect("the execution");
    assert_eq!(located.execution, execution);
    located
}

async fn end(executor: &dyn Executor, execution: &ExecutionId) {
    executor.stop(execution, 1).await.expect("the stop");
    assert_eq!(executor.probe(execution).await, Probe::Gone);
    executor.forget(execution).await.expect("the forgetting");
}

async fn an_execution_that_never_was_is_gone(executor: &dyn Executor) {
    let execution = new_execution();
    assert_eq!(executor.find(&execution).await.expect("the search"), None);
    end(executor, &execution).await;
}

/// Another executor over the same place, as after a restart of the server, finds it alive.
async fn a_life_from_launch_to_forget(make: &impl Fn() -> Arc<dyn Executor>, workspace: &Path) {
    let located = launch(&*make(), workspace).await;
    let execution = &located.execution;
    let executor = make();
    assert_eq!(executor.find(execution).await.expect("the search"), Some(located.clone()));
    assert_eq!(executor.probe(execution).await, Probe::Alive);
    let health = located.client(&SECRET, 1).health().await.expect("health");
    assert_eq!(health.execution_id, *execution);
    assert_eq!(executor.forget(execution).await.expect_err("alive").code(), Code::ExecutorAlive);
    executor.stop(execution, 1).await.expect("the stop");
    assert_eq!(executor.probe(execution).await, Probe::Gone);
    assert!(executor.find(execution).await.expect("the search").is_some(), "forgotten too early");
    executor.stop(execution, 1).await.expect("the stop of a dead one");
    executor.forget(execution).await.expect("the forgetting");
    assert_eq!(executor.find(execution).await.expect("the search"), None);
}

async fn an_execution_is_launched_once(executor: &dyn Executor, workspace: &Path) {
    let spec = spec(workspace);
    executor.launch(spec.clone()).await.expect("the launch");
    let located = executor.find(&spec.execution).await.expect("the search");
    let located = located.expect("the execution");
    let client = located.client(&SECRET, 1);
    let before = client.health().await.expect("health");
    let twice = executor.launch(spec.clone()).await.expect_err("a second launch");
    assert_eq!(twice.code(), Code::ExecutorAlive);
    assert_eq!(client.health().await.expect("health").pid, before.pid);
    let command = Command { id: "one".to_owned(), act: Act::Stop {} };
    client.command(&command).await.expect("the command");
    executor.stop(&spec.execution, 1).await.expect("the stop");
    let twice = executor.launch(spec.clone()).await.expect_err("a launch over an old spool");
    assert_eq!(twice.code(), Code::ExecutionExists);
    end(executor, &spec.execution).await;
}

async fn one_ends_and_another_goes_on(executor: &dyn Executor, workspace: &Path) {
    let (one, other) = (launch(executor, workspace).await, launch(executor, workspace).await);
    executor.stop(&one.execution, 1).await.expect("the stop");
    assert_eq!(executor.probe(&one.execution).await, Probe::Gone);
    assert_eq!(executor.probe(&other.execution).await, Probe::Alive);
    end(executor, &one.execution).await;
    end(executor, &other.execution).await;
}

async fn what_was_kept_is_there_after_the_end(executor: &dyn Executor, workspace: &Path) {
    let located = launch(executor, workspace).await;
    let client = located.client(&SECRET, 1);
    let spool_id = client.health().await.expect("health").spool.spool_id;
    let command = Command { id: "kept".to_owned(), act: Act::Stop {} };
    client.command(&command).await.expect("the command");
    executor.stop(&located.execution, 1).await.expect("the stop");
    let folder = executor.spool(&located.execution).await.expect("the spool");
    let reader = SpoolReader::open(&folder, &spool_key(&SECRET)).expect("the spool");
    assert_eq!(reader.spool_id(), Some(spool_id.as_str()));
    let first = reader.after(0).next().expect("an entry").expect("a readable entry");
    let fact = Fact::CommandAccepted { command_id: "kept".to_owned(), command: "stop".to_owned() };
    assert_eq!(first.fact, fact);
    end(executor, &located.execution).await;
}

async fn tidying_disturbs_nobody(executor: &dyn Executor, workspace: &Path) {
    let located = launch(executor, workspace).await;
    executor.tidy().await.expect("the tidying");
    assert_eq!(executor.probe(&located.execution).await, Probe::Alive);
    let next = launch(executor, workspace).await;
    executor.tidy().await.expect("the tidying");
    end(executor, &located.execution).await;
    end(executor, &next.execution).await;
}

async fn one_that_closes_itself_is_gone(executor: &dyn Executor, workspace: &Path) {
    let located = launch(executor, workspace).await;
    let command = Command { id: "close".to_owned(), act: Act::Close {} };
    located.client(&SECRET, 1).command(&command).await.expect("the reply to a close");
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    while executor.probe(&located.execution).await != Probe::Gone {
        assert!(tokio::time::Instant::now() < deadline, "it closed and lives");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    end(executor, &located.execution).await;
}
