//! What people do with sessions whose agents are beside an agentctl.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use piton_core::decide::Command;
use piton_core::event::Outcome;
use piton_core::id::SessionId;
use piton_core::state::{AgentStatus, ExecutorStatus};
use piton_core::{Reason, State};
use piton_exec::protocol::Start;
use piton_runtime::{Error, Executions, Handle, Supervisors};

use super::agentctl::PROMPT;
use super::client::{
    answer_wait, answer_with_token, finish_badly, honest, session, settled, some_answer, tokens,
};
use super::ledger::Property;
use super::queueing;
use super::resuming;
use super::world::{Boot, World};

/// One client at one boot: some operations, then it leaves.
pub(super) async fn work(
    world: Arc<World>,
    boot: Arc<Boot>,
    handle: Handle,
    executions: Executions,
    supervisors: Option<Supervisors>,
) {
    for _ in 0..world.range(8, 48) {
        let Some(session) = session(&world, &handle).await else { continue };
        world.inner().stats.operations += 1;
        let operated = match &supervisors {
            None => operate(&world, &handle, &executions, &session).await,
            Some(supervisors) => {
                match resuming::operate(&world, &handle, &executions, supervisors, &session).await {
                    Ok(false) => operate(&world, &handle, &executions, &session).await,
                    other => other.map(drop),
                }
            }
        };
        if let Err(error) = operated {
            world.note(format_args!("{} on {session}: {error}", boot.id));
            honest(&world, &session, &error);
        }
        let pause = if world.chance(70) { world.range(1, 400) } else { world.range(1, 4_000) };
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

async fn operate(
    world: &Arc<World>,
    handle: &Handle,
    executions: &Executions,
    session: &SessionId,
) -> Result<(), Error> {
    let state = handle.state(session).await?;
    if world.chance(20) {
        return queueing::operate(world, handle, session, &state).await;
    }
    let executor = state.facts.executor.as_ref().filter(|executor| executor.may_live());
    let agent = state.facts.agent.as_ref().map(|agent| agent.status);
    // Where agents are brought back hardly anybody starts one by hand.
    let by_hand = world.habits.is_none() || world.chance(5);
    if executor.is_none() && state.facts.closed.is_none() && by_hand && world.chance(80) {
        executions.launch(session, PathBuf::from("/workspace")).await?;
        return Ok(());
    }
    let works = matches!(agent, Some(AgentStatus::Ready | AgentStatus::Starting));
    if executor.is_some() && !works && by_hand && world.chance(70) {
        return executions.start_agent(session, Start::default()).await;
    }
    let waits = state.facts.run.as_ref().is_some_and(|run| !run.waits.is_empty());
    if waits && world.chance(40) {
        return answer_wait(world, handle, session, &state).await;
    }
    let run = state.facts.run.as_ref().map(|run| run.run_id.clone());
    let ack = match (world.range(0, 29), run) {
        (0..=11, _) | (_, None) => {
            // Part of it is a secret now and then, which the agent receives and the disk does not.
            let secret = if world.chance(10) { "word word word" } else { "it" };
            let content = format!("{PROMPT}{secret} {}", world.range(0, 99));
            handle.prompt(session, &content).await?;
            return Ok(());
        }
        (12 | 13, Some(run_id)) => handle.execute(session, Command::Resume { run_id }).await?,
        (14 | 15, Some(run_id)) => {
            let paused = handle.execute(session, Command::Pause { run_id: run_id.clone() }).await?;
            if world.chance(50) {
                settled(world, session, &paused);
                return Ok(());
            }
            // A user who changes their mind at once.
            handle.execute(session, Command::Resume { run_id }).await?
        }
        (16, Some(run_id)) => {
            let reason = Reason::UserRequest;
            handle.execute(session, Command::Cancel { run_id, reason }).await?
        }
        (17, Some(run_id)) => finish_badly(world, handle, session, run_id).await?,
        (18 | 19, Some(_)) => return answer_with_token(world, handle, session).await,
        (20, Some(_)) => return tokens(world, handle, session, &state).await,
        (21 | 22, Some(_)) => return give_up(world, handle, session, &state).await,
        (23, Some(_)) => return executions.stop(session).await,
        (24, Some(_)) => {
            handle.sweep().await?;
            return Ok(());
        }
        (25, Some(_)) => {
            handle.recover(|_| {}).await?;
            return Ok(());
        }
        (26, Some(_)) if world.chance(10) => {
            handle.execute(session, Command::Close { outcome: Outcome::Completed }).await?
        }
        (27, Some(_)) => {
            // Nonsense: there is one already, or none that could be meant.
            executions.launch(session, PathBuf::from("/workspace")).await?;
            return Ok(());
        }
        (_, Some(_)) => return executions.start_agent(session, Start::default()).await,
    };
    settled(world, session, &ack);
    Ok(())
}

/// Mostly what cannot be reached is given up.
async fn give_up(
    world: &World,
    handle: &Handle,
    session: &SessionId,
    state: &State,
) -> Result<(), Error> {
    let Some(executor) = &state.facts.executor else { return Ok(()) };
    if executor.status == ExecutorStatus::Unreachable || world.chance(20) {
        let execution_id = executor.execution_id.clone();
        let ack = handle.execute(session, Command::Abandon { execution_id }).await?;
        settled(world, session, &ack);
    }
    Ok(())
}

/// Every question that an agent still asks is answered, however many boots have died since.
pub(super) async fn answer_all(world: &Arc<World>, handle: &Handle) {
    let mut given = Vec::new();
    for (session, execution, wait_id) in world.open_asks() {
        match handle.answer_wait(&session, wait_id.clone(), some_answer(world)).await {
            Ok(ack) => {
                settled(world, &session, &ack);
                given.push((session, execution, wait_id));
            }
            Err(error) => {
                let detail = format!("{session}: {wait_id} is asked and not answerable: {error}");
                world.violated(Property::QuestionKept, detail);
            }
        }
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    for (session, execution, wait_id) in given {
        let fleet = world.fleet();
        let machine = fleet.machines.get(&execution);
        let agent = machine.and_then(|machine| machine.agent.as_ref());
        if agent.is_some_and(|agent| agent.answers.get(&wait_id) != Some(&true)) {
            let detail = format!("{session}: the answer to {wait_id} does not reach the agent");
            drop(fleet);
            world.violated(Property::QuestionKept, detail);
        }
    }
}
