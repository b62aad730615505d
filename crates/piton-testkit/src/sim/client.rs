//! What people, agents and readers do, at random: sensible things, stale things and nonsense.

use std::sync::Arc;
use std::time::Duration;

use piton_core::Code;
use piton_core::decide::{Command, Message, Probe, Refusal};
use piton_core::event::{
    AgentReady, ExecutorReady, ExecutorStarting, Outcome, ToolStatus, WaitKind,
};
use piton_core::id::{RunId, SessionId};
use piton_core::token::NewToken;
use piton_core::{Reason, State};
use piton_runtime::{Ack, Error, Handle, Ids, NewSession, OfflineWriter, Question};
use serde_json::{Value, json};

use super::ledger::Property;
use super::queueing;
use super::world::{Boot, World};

/// Of the worlds without agents, in one in four clients also repeat questions that were settled: they did
/// not hear so. By its number and not by the dice: other worlds stay what they are.
fn repeats_settled(seed: u64) -> bool {
    matches!(seed % 40, 10 | 16 | 25 | 29)
}

/// One client at one boot: some operations, then it leaves.
pub(super) async fn work(world: Arc<World>, boot: Arc<Boot>, handle: Handle) {
    for _ in 0..world.range(4, 24) {
        let Some(session) = session(&world, &handle).await else { continue };
        world.inner().stats.operations += 1;
        if let Err(error) = operate(&world, &handle, &session).await {
            world.note(format_args!("{} on {session}: {error}", boot.id));
            honest(&world, &session, &error);
        }
        if world.chance(20) {
            tokio::time::sleep(Duration::from_millis(world.range(1, 2_000))).await;
        }
    }
}

/// An offline writer: changes sessions that no process runs, and is refused for the others.
pub(super) async fn visit(world: Arc<World>, boot: Arc<Boot>, writer: OfflineWriter, ids: Ids) {
    for _ in 0..world.range(1, 8) {
        let sessions = world.inner().sessions.clone();
        let Some(session) = world.pick(&sessions) else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        world.inner().stats.operations += 1;
        match change(&world, &writer, &ids, &session).await {
            Ok(()) => world.inner().stats.visits += 1,
            Err(error) => {
                world.note(format_args!("writer {} on {session}: {error}", boot.id));
                honest(&world, &session, &error);
            }
        }
    }
}

async fn change(
    world: &World,
    writer: &OfflineWriter,
    ids: &Ids,
    session: &SessionId,
) -> Result<(), Error> {
    let run = writer.view().state(session).await?.facts.run;
    let waits: Vec<_> = run.iter().flat_map(|run| run.waits.keys().cloned()).collect();
    let latest = || run.as_ref().map(|run| run.run_id.clone()).ok_or(Refusal::NeverRun);
    let (command, token) = match (world.range(0, 3), world.pick(&waits)) {
        (0, _) => (Command::Cancel { run_id: latest()?, reason: Reason::UserRequest }, None),
        (1, _) => (Command::Dismiss { run_id: latest()? }, None),
        (_, Some(wait_id)) => {
            let token = ids.token()?;
            let fresh = NewToken::from(&token);
            (Command::RotateToken { wait_id, fresh }, Some(token))
        }
        (_, None) => {
            let token = ids.token()?;
            let fresh = NewToken::from(&token);
            (Command::MintInterruption { fresh, expires_at: None }, Some(token))
        }
    };
    let ack = writer.execute(session, command).await?;
    match token {
        Some(token) => world.inner().ledger.tokens.push((session.clone(), token)),
        None => settled(world, session, &ack),
    }
    Ok(())
}

/// A reader that continues where it stopped in its last life.
pub(super) async fn read(world: Arc<World>, boot: Arc<Boot>, handle: Handle, reader: u64) {
    for _ in 0..world.range(1, 12) {
        let sessions = world.inner().sessions.clone();
        let Some(session) = world.pick(&sessions) else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let place = (reader, session.clone());
        let position = world.inner().ledger.positions.get(&place).copied().unwrap_or(0);
        let mut tail = handle.tail(&session, position);
        for _ in 0..world.range(1, 6) {
            match tokio::time::timeout(Duration::from_secs(3), tail.next()).await {
                Ok(Ok(records)) if boot.is_running() => {
                    world.delivered(reader, &session, &records);
                }
                _ => break,
            }
            if world.chance(30) {
                // A slow reader: hints pile up, and some fall out.
                tokio::time::sleep(Duration::from_millis(world.range(1, 500))).await;
            }
        }
    }
}

/// One of the sessions; at first, and now and then, a new one.
pub(super) async fn session(world: &Arc<World>, handle: &Handle) -> Option<SessionId> {
    let sessions = world.inner().sessions.clone();
    if !sessions.is_empty() && (sessions.len() >= 4 || !world.chance(15)) {
        return world.pick(&sessions);
    }
    match handle.create(NewSession { title: Some("sim".into()), ..NewSession::default() }).await {
        Ok(session) => {
            world.inner().sessions.push(session.clone());
            Some(session)
        }
        Err(_) => None,
    }
}

/// Failures must have a cause that the world knows of.
pub(super) fn honest(world: &World, session: &SessionId, error: &Error) {
    let expected = match error {
        // The rules' own refusals are what clients deserve for nonsense.
        Error::Refused(_) | Error::ShuttingDown => true,
        // What an agentctl refuses, or does not answer to, is another model's business.
        Error::Agentctl(_) => world.agents,
        Error::StartError(_) | Error::StartFailed(_) | Error::AgentLate => world.habits.is_some(),
        // The handle has no arguments to check, no keys, no catalog and no workspaces.
        Error::Worktree(_)
        | Error::WorktreePending { .. }
        | Error::Invalid(_)
        | Error::Id(_)
        | Error::AgentNotFound { .. }
        | Error::Graph(_)
        | Error::GraphRunning { .. }
        | Error::SessionIsGraph { .. }
        | Error::AgentProfileRequired { .. }
        | Error::Folder(_)
        | Error::Finish(_)
        | Error::Snapshot(_)
        | Error::RestoreFailed { .. }
        | Error::CheckpointNotFound { .. }
        | Error::SnapshotNotFound { .. }
        | Error::WorkspaceConflict { .. }
        | Error::AgentNotRunning
        | Error::ExecutorInUse { .. }
        | Error::ContentNotSupported { .. }
        | Error::ResponseNotKept
        | Error::ServerRequired
        | Error::CursorInvalid
        | Error::TaskTooLarge { .. }
        | Error::LinkInvalid
        | Error::ShellNotFound
        | Error::FileExists { .. }
        | Error::Workspace(_) => false,
        Error::Store(error) => match error.code() {
            code @ (Code::StorePoisoned | Code::DiskFull) => world.inner().injected.contains(&code),
            Code::SessionOwned | Code::EpochStale | Code::SeqConflict => world.inner().boots() > 1,
            _ => false,
        },
    };
    if !expected {
        world.violated(Property::ErrorsAreHonest, format!("{session}: {error:?}"));
    }
}

async fn operate(world: &Arc<World>, handle: &Handle, session: &SessionId) -> Result<(), Error> {
    let state = handle.state(session).await?;
    if world.chance(20) {
        return queueing::operate(world, handle, session, &state).await;
    }
    let run = state.facts.run.as_ref().map(|run| run.run_id.clone());
    let ack = match (world.range(0, 21), run) {
        (0..=2, _) | (_, None) => start(world, handle, session).await?,
        (3 | 4, Some(run_id)) => return ask(world, handle, session, &state, run_id).await,
        (5..=7, Some(_)) => return answer_with_token(world, handle, session).await,
        (8, Some(_)) => return answer_wait(world, handle, session, &state).await,
        (9, Some(run_id)) => handle.execute(session, Command::Resume { run_id }).await?,
        (10, Some(run_id)) => handle.execute(session, Command::Pause { run_id }).await?,
        (11, Some(run_id)) => handle.execute(session, Command::Complete { run_id }).await?,
        (12, Some(run_id)) => finish_badly(world, handle, session, run_id).await?,
        (13 | 14, Some(_)) => say(world, handle, session, &state).await?,
        (15 | 16, Some(run_id)) => use_tool(world, handle, session, &state, run_id).await?,
        (17, Some(_)) => return tokens(world, handle, session, &state).await,
        (18, Some(_)) => executor(world, handle, session, &state).await?,
        (19, Some(_)) => {
            handle.sweep().await?;
            return Ok(());
        }
        (20, Some(_)) if world.chance(10) => {
            handle.execute(session, Command::Close { outcome: Outcome::Completed }).await?
        }
        (_, Some(_)) => {
            handle.recover(|_| {}).await?;
            return Ok(());
        }
    };
    settled(world, session, &ack);
    Ok(())
}

pub(super) fn settled(world: &World, session: &SessionId, ack: &Ack) {
    world.note(format_args!("{session}: {ack:?}"));
    world.acknowledged(session, ack);
}

async fn start(world: &World, handle: &Handle, session: &SessionId) -> Result<Ack, Error> {
    let (run_id, message_id) = (handle.ids().run()?, handle.ids().message()?);
    let content = format!("do {}", world.range(0, 99)).into();
    let command = Command::Start { run_id, message: Some(Message { message_id, content }) };
    // Now and then the client did not hear the answer and asks again.
    if world.chance(20) {
        let first = handle.execute(session, command.clone()).await?;
        settled(world, session, &first);
    }
    handle.execute(session, command).await
}

async fn ask(
    world: &World,
    handle: &Handle,
    session: &SessionId,
    state: &State,
    run_id: RunId,
) -> Result<(), Error> {
    let known: Vec<_> = state.facts.run.iter().flat_map(|run| run.waits.keys().cloned()).collect();
    if let Some(wait_id) = world.pick(&known)
        && world.chance(25)
    {
        let ack = handle.execute(session, Command::Block { run_id, wait_id }).await?;
        settled(world, session, &ack);
        return Ok(());
    }
    let mut wait_id = if world.chance(10) { world.pick(&known) } else { None };
    let place = (session.clone(), run_id.clone());
    if repeats_settled(world.seed) && world.chance(40) {
        // Any that was asked in this run, whatever became of it.
        let asked = world.inner().ledger.asked.get(&place).cloned().unwrap_or_default();
        wait_id = world.pick(&asked);
    }
    let kind = if world.chance(50) { WaitKind::Permission } else { WaitKind::ToolResult };
    let timeout = world.chance(40).then(|| Duration::from_secs(world.range(1, 30)));
    let question = json!({ "may I": world.range(0, 9) });
    let question = Question { run_id, wait_id, kind, timeout, question };
    let asked = handle.ask(session, question).await?;
    if repeats_settled(world.seed) {
        world.inner().ledger.asked.entry(place).or_default().push(asked.wait_id);
    }
    if let Some(token) = asked.token {
        world.inner().ledger.tokens.push((session.clone(), token));
    }
    Ok(())
}

pub(super) fn some_answer(world: &World) -> Value {
    // One that fits the questions with options, too.
    json!({ "option_id": "yes", "yes": world.range(0, 1) })
}

/// Any token that was ever given out, at any time, to any session, perhaps more than once.
pub(super) async fn answer_with_token(
    world: &World,
    handle: &Handle,
    session: &SessionId,
) -> Result<(), Error> {
    let tokens = world.inner().ledger.tokens.clone();
    let recent = tokens.len().saturating_sub(3);
    let from = if world.chance(70) { &tokens[recent..] } else { &tokens[..] };
    let Some((owner, token)) = world.pick(from) else { return Ok(()) };
    let answer = some_answer(world);
    for _ in 0..world.range(1, 2) {
        let within = world.chance(50).then_some(session);
        let result = handle.answer_with_token(within, token.clone(), answer.clone()).await;
        match result {
            Ok(answered) => {
                world.note(format_args!("{answered:?}"));
                world.answer_settled(&answered, &answer);
                if answered.session != owner {
                    let detail = format!("{} answered in {session}", token.id);
                    world.violated(Property::RetryGetsFirstResult, detail);
                }
            }
            Err(error) => {
                match error.code() {
                    Code::ResumeTokenConsumed => world.answer_refused(&token.id, &answer),
                    Code::ResumeTokenRevoked | Code::ResumeTokenNotFound => {
                        world.token_refused(&owner, &token.id);
                    }
                    _ => {}
                }
                return Err(error);
            }
        }
    }
    Ok(())
}

pub(super) async fn answer_wait(
    world: &World,
    handle: &Handle,
    session: &SessionId,
    state: &State,
) -> Result<(), Error> {
    let waits: Vec<_> = state.facts.run.iter().flat_map(|run| run.waits.keys().cloned()).collect();
    let Some(wait_id) = world.pick(&waits) else { return Ok(()) };
    let ack = handle.answer_wait(session, wait_id, some_answer(world)).await?;
    settled(world, session, &ack);
    Ok(())
}

pub(super) async fn finish_badly(
    world: &World,
    handle: &Handle,
    session: &SessionId,
    run_id: RunId,
) -> Result<Ack, Error> {
    let command = match world.range(0, 3) {
        0 => Command::Fail { run_id, code: None, error: "no luck".into() },
        1 => Command::Cancel { run_id, reason: Reason::UserRequest },
        2 => Command::Dismiss { run_id },
        _ => Command::Interrupt { run_id, reason: Reason::ProcessExit },
    };
    handle.execute(session, command).await
}

async fn say(
    world: &World,
    handle: &Handle,
    session: &SessionId,
    state: &State,
) -> Result<Ack, Error> {
    let streaming: Vec<_> = state.messages.keys().cloned().collect();
    let message_id = match world.pick(&streaming) {
        Some(id) if world.chance(70) => id,
        _ => handle.ids().message()?,
    };
    if world.chance(20) {
        let hash = "0".repeat(64);
        return handle.execute(session, Command::EndMessage { message_id, hash }).await;
    }
    let text = "word ".repeat(usize::try_from(world.range(1, 9)).unwrap_or(1));
    let command = Command::Say { message_id, offset: None, text };
    handle.execute_buffered(session, command).await
}

async fn use_tool(
    world: &World,
    handle: &Handle,
    session: &SessionId,
    state: &State,
    run_id: RunId,
) -> Result<Ack, Error> {
    let open: Vec<_> = state.calls.keys().cloned().collect();
    let command = match world.pick(&open) {
        Some(call_id) if world.chance(60) => {
            let status = ToolStatus::Succeeded;
            Command::Conclude { run_id, call_id, status, result: json!("done") }
        }
        _ => {
            let call_id = handle.ids().call()?;
            let (name, arguments) = ("shell".to_owned(), json!({ "command": "make" }));
            Command::Intend { run_id, call_id, name, arguments }
        }
    };
    handle.execute(session, command).await
}

pub(super) async fn tokens(
    world: &World,
    handle: &Handle,
    session: &SessionId,
    state: &State,
) -> Result<(), Error> {
    let waits: Vec<_> = state.facts.run.iter().flat_map(|run| run.waits.keys().cloned()).collect();
    let token = if let Some(wait_id) = world.pick(&waits) {
        handle.rotate_token(session, wait_id).await?
    } else {
        let valid_for = world.chance(50).then(|| Duration::from_secs(world.range(1, 60)));
        handle.interruption_token(session, valid_for).await?
    };
    world.inner().ledger.tokens.push((session.clone(), token));
    Ok(())
}

/// An executor starts, becomes ready, or is given up.
async fn executor(
    world: &World,
    handle: &Handle,
    session: &SessionId,
    state: &State,
) -> Result<Ack, Error> {
    let executor = state.facts.executor.as_ref().filter(|executor| executor.may_live());
    let Some(executor) = executor else {
        let execution_id = handle.ids().execution()?;
        world.inner().executions.insert(execution_id.clone(), Probe::Alive);
        let event = ExecutorStarting { execution_id: execution_id.clone(), runtime: "sim".into() };
        let command = Command::Observe { event: event.into(), message: None };
        settled(world, session, &handle.execute(session, command).await?);
        let event = ExecutorReady { execution_id }.into();
        return handle.execute(session, Command::Observe { event, message: None }).await;
    };
    let execution_id = executor.execution_id.clone();
    if world.chance(30) {
        world.inner().executions.insert(execution_id.clone(), Probe::Gone);
        return handle.execute(session, Command::Abandon { execution_id }).await;
    }
    let event = AgentReady { execution_id, agent_session_id: Some("s1".into()) }.into();
    handle.execute(session, Command::Observe { event, message: None }).await
}
