//! Decisions: state and command in, records out, or a named refusal. The caller makes the records
//! durable and only then carries out the effects that follow from them (they are in the state's
//! `pending` after the records are applied).

mod command;
mod execution;
mod import;
mod queue;
mod recovery;
mod redact;
mod refusal;
mod run;
mod session;
mod stream;
mod token;
mod turn;
mod wait;
mod workspace;

use std::collections::BTreeSet;

use serde_json::Value;

use crate::event::Seq;
use crate::id::{BootId, RunId};
use crate::limits::{EFFECTS_PENDING_MAX, Limits};
use crate::reason::Reason;
use crate::record::NewRecord;
use crate::request::Request;
use crate::state::{Run, State};
use crate::status;
use crate::time::Timestamp;

pub use command::{
    AnswerByToken, Command, Create, IfBusy, Message, Prepare, Probe, Prompt, QueuePosition, Redact,
    RedactTarget, Setup, Wait,
};
pub use import::{Import, asks};
pub use refusal::Refusal;
pub use turn::{
    FailRestore, FilesToRestore, RestoredFiles, Rewind, SnapshotResult, StartRestore,
    TakenSnapshot, TurnEnd, TurnStart,
};
pub use wait::fits;

/// What every decision knows about the world.
#[derive(Clone, Debug)]
pub struct Context {
    pub now: Timestamp,
    /// The boot that asks, and that would run what is started.
    pub boot: BootId,
    pub limits: Limits,
}

/// The records that make it so, in order; none if it already is so.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub records: Vec<NewRecord>,
    pub outcome: Verdict,
}

/// What the caller is answered once the records are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is so now.
    Done,
    /// The wait is open and its token minted.
    Asked,
    /// It was so already.
    Already,
    /// This token was used for this very answer; the record with its result.
    Replayed { result_seq: Seq },
    /// The answer was taken; the record with its result.
    Resumed { result_seq: Seq },
    /// This very request was fulfilled before; the record that says so has what was answered.
    Repeated { seq: Seq },
    /// The prompt waits for the run to end; the first in the queue has position 1.
    Queued { position: u32 },
}

/// Decides. Pure: the same arguments give the same answer.
#[expect(clippy::too_many_lines, reason = "one arm for each command")]
pub fn decide(state: &State, cx: &Context, command: Command) -> Result<Decision, Refusal> {
    if let Command::Requested { request, command } = command {
        return requested(state, cx, request, *command);
    }
    if let Command::AtTurnStart { start, command } = command {
        let decision = decide(state, cx, *command)?;
        return Ok(turn::start(state, cx, *start, decision));
    }
    if let Command::Create(create) = command {
        return session::create(state, cx, create);
    }
    if let Command::CreateInWorktree(create, plan) = command {
        let mut decision = session::create(state, cx, create)?;
        decision.records.push(workspace::planned(cx, *plan));
        return Ok(decision);
    }
    if state.info.is_none() {
        return Err(Refusal::SessionNotFound);
    }
    // A replay is a read: it is answered whatever became of the session.
    if let Command::AnswerByToken(answer) = &command
        && let Some(replayed) = token::replay(answer)?
    {
        return Ok(replayed);
    }
    if let Some(kind) = &state.facts.unknown_critical {
        return Err(Refusal::SessionReadOnly { kind: kind.clone() });
    }
    if let Command::Close { outcome } = command {
        return session::close(state, cx, outcome);
    }
    // What the world did, and that an effect was carried out, is recorded even after the end.
    match command {
        Command::Done { of_seq } => return Ok(stream::done(state, cx, of_seq)),
        Command::Observe { event, message } => {
            return execution::observe(state, cx, event, message);
        }
        Command::FailStart { execution_id, code, message } => {
            return Ok(execution::fail_start(state, cx, execution_id, code, message));
        }
        Command::Abandon { execution_id } => {
            return execution::abandon(state, cx, &execution_id);
        }
        // What must still reach a closed session's agent is delivered.
        Command::Recover { dead, probe, takes_over } => {
            return Ok(recovery::recover(state, cx, &dead, probe, takes_over));
        }
        Command::Redact(redact) => return redact::redact(state, cx, redact),
        Command::Rename { title } => return Ok(session::rename(state, cx, title)),
        Command::AssignAgent { agent_profile_id } if state.facts.closed.is_none() => {
            return session::assign_agent(state, cx, agent_profile_id);
        }
        Command::Import(import) => return import::import(state, cx, import),
        Command::WorkspacePrepared(plan) => return workspace::prepared(state, cx, plan),
        // What began before the session was closed has its end in the log, too.
        Command::Rewind(rewind) => return turn::rewind(state, cx, rewind),
        Command::FailRestore(failed) => return Ok(turn::fail_restore(state, cx, failed)),
        // A closed session's worktree is cleaned up, too.
        Command::WorkspaceRemoved { kept_branch } => {
            return workspace::removed(state, cx, kept_branch);
        }
        _ if state.facts.closed.is_some() => return Err(Refusal::SessionClosed),
        _ => {}
    }
    match command {
        Command::Nothing => Ok(Decision::already()),
        Command::Start { run_id, message } => run::start(state, cx, run_id, message),
        Command::Prompt(prompt) => queue::prompt(state, cx, prompt),
        Command::Deliver { seq, content } => queue::deliver(state, cx, seq, content),
        Command::EditQueued { message_id, version, content } => {
            queue::edit(state, cx, message_id, version, &content)
        }
        Command::MoveQueued { message_id, position } => {
            queue::reorder(state, cx, message_id, position)
        }
        Command::RemoveQueued { message_id, version } => {
            queue::remove(state, cx, message_id, version)
        }
        Command::ReleaseQueue => Ok(queue::release(state, cx)),
        Command::Wait(wait) => wait::wait(state, cx, wait),
        Command::Block { run_id, wait_id } => wait::block(state, cx, run_id, wait_id),
        Command::AnswerByToken(answer) => token::answer(state, cx, answer),
        Command::AnswerByWait { wait_id, fresh, answer } => {
            wait::answer(state, cx, wait_id, fresh, answer)
        }
        Command::AnswerWithMessage { wait_id, fresh, answer, prompt } => {
            let answered = wait::answer(state, cx, wait_id, fresh, answer)?;
            queue::behind(state, cx, answered, prompt)
        }
        Command::RotateToken { wait_id, fresh } => wait::rotate(state, cx, &wait_id, fresh),
        Command::MintInterruption { fresh, expires_at } => {
            token::mint_interruption(state, cx, fresh, expires_at)
        }
        Command::Resume { run_id } => run::resume(state, cx, run_id),
        Command::Pause { run_id } => run::pause(state, cx, run_id),
        Command::Complete { run_id } => run::complete(state, cx, &run_id),
        Command::Fail { run_id, code, error } => run::fail(state, cx, &run_id, code, error),
        Command::Cancel { run_id, reason } => run::cancel(state, cx, run_id, reason),
        Command::Dismiss { run_id } => run::dismiss(state, cx, run_id),
        Command::Interrupt { run_id, reason } => recovery::interrupt(state, cx, &run_id, reason),
        Command::Say { message_id, offset, text } => {
            stream::say(state, cx, message_id, offset, text)
        }
        Command::EndMessage { message_id, hash } => stream::said(state, cx, message_id, hash),
        Command::Intend { run_id, call_id, name, arguments } => {
            stream::intend(state, cx, run_id, call_id, name, arguments)
        }
        Command::Conclude { run_id, call_id, status, result } => {
            stream::conclude(state, cx, run_id, call_id, status, result)
        }
        Command::Sweep { live } => Ok(recovery::sweep(state, cx, live)),
        Command::Prepare(prepare) => execution::prepare(state, cx, prepare),
        Command::EndIdleAgent { execution_id, idle_for } => {
            Ok(execution::end_idle(state, cx, execution_id, idle_for))
        }
        Command::EndAgent { execution_id } => execution::end_agent(state, cx, execution_id),
        Command::PlanWorkspace(plan) => workspace::plan(state, cx, plan),
        Command::Configure(choice) => session::configure(cx, choice),
        Command::TurnEnded(end) => Ok(turn::complete(state, cx, end)),
        Command::StartRestore(start) => turn::start_restore(state, cx, start),
        Command::Create(_)
        | Command::CreateInWorktree(..)
        | Command::WorkspacePrepared(_)
        | Command::WorkspaceRemoved { .. }
        | Command::Rewind(_)
        | Command::FailRestore(_)
        | Command::Close { .. }
        | Command::Done { .. }
        | Command::Observe { .. }
        | Command::FailStart { .. }
        | Command::Abandon { .. }
        | Command::Redact(_)
        | Command::Rename { .. }
        | Command::AssignAgent { .. }
        | Command::Import(_)
        | Command::Requested { .. }
        | Command::AtTurnStart { .. }
        | Command::Recover { .. } => Err(Refusal::SessionClosed),
    }
}

fn requested(
    state: &State,
    cx: &Context,
    request: Request,
    command: Command,
) -> Result<Decision, Refusal> {
    if let Some(seq) = state.requests.find(&request, cx.now, cx.limits.request_kept_for)? {
        return Ok(Decision { records: Vec::new(), outcome: Verdict::Repeated { seq } });
    }
    let mut decision = decide(state, cx, command)?;
    // Under a key also what had nothing to change: asked again, later, it must still change nothing.
    // In a closed session nothing ever will.
    let is_kept = request.key.is_some() && state.facts.closed.is_none();
    if !decision.records.is_empty() || is_kept {
        let mut request = request;
        // Whether it is queued is known only now, and a repetition gets the same answer.
        if let (Verdict::Queued { position }, Some(Value::Object(response))) =
            (decision.outcome, &mut request.response)
        {
            response.insert("queued".to_owned(), true.into());
            response.insert("position".to_owned(), position.into());
        }
        decision.records.push(request.record(cx.now));
    }
    Ok(decision)
}

/// How a session's log leaves the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    Delete,
    /// Whatever is still at work in it.
    DeleteForced,
    /// Into a bundle; for closed sessions.
    Archive,
}

/// Whether a session's log may leave the store.
pub fn may_remove(state: &State, removal: Removal) -> Result<(), Refusal> {
    session::may_remove(state, removal)
}

/// The answer to a holder who presents a token that was used before; `None` if it was not. A pure
/// read: it needs neither the session's state nor its lease.
pub fn replay_token(answer: &AnswerByToken) -> Result<Option<Decision>, Refusal> {
    token::replay(answer)
}

impl Decision {
    fn done(records: Vec<NewRecord>) -> Self {
        Self { records, outcome: Verdict::Done }
    }

    fn already() -> Self {
        Self { records: Vec::new(), outcome: Verdict::Already }
    }
}

/// The session's current run, which must be the one that is meant.
fn run_named<'a>(state: &'a State, run_id: &RunId) -> Result<&'a Run, Refusal> {
    let unknown = || Refusal::RunNotFound { run: run_id.clone() };
    state.facts.run.as_ref().filter(|run| run.run_id == *run_id).ok_or_else(unknown)
}

fn open_run<'a>(state: &'a State, run_id: &RunId) -> Result<&'a Run, Refusal> {
    let run = run_named(state, run_id)?;
    if run.is_open() { Ok(run) } else { Err(Refusal::RunNotOpen { run: run_id.clone() }) }
}

/// What is begun now will cause effects; those that are not carried out must not pile up.
fn room_for_effects(state: &State) -> Result<(), Refusal> {
    if state.pending.len() >= EFFECTS_PENDING_MAX {
        return Err(Refusal::LimitReached { what: "effects", max: EFFECTS_PENDING_MAX });
    }
    Ok(())
}

/// Revokes every token of the session that is still good. The list is short: tokens belong to the
/// current run.
fn revoke_all(state: &State, cx: &Context, reason: Reason, records: &mut Vec<NewRecord>) {
    for token_id in state.tokens.keys() {
        let event = crate::event::TokenRevoked { token_id: token_id.clone(), reason };
        records.push(NewRecord::new(cx.now, event));
    }
}

/// Appends what the status is after the records, for readers who did not ask for the change.
fn with_status(state: &State, cx: &Context, mut records: Vec<NewRecord>) -> Vec<NewRecord> {
    let mut after = facts_only(state);
    for record in &records {
        after.apply(after.last_seq + 1, record.ts, &record.event);
    }
    let status = status::derive(&after.facts, &BTreeSet::new(), cx.now);
    let event = crate::event::StatusDerived {
        status: status.name.as_str().to_owned(),
        reason: Some(status.reason),
    };
    records.push(NewRecord::new(cx.now, event));
    records
}

/// As much of a state as the status depends on, to try records on.
fn facts_only(state: &State) -> State {
    State {
        facts: state.facts.clone(),
        tokens: state.tokens.clone(),
        queue: state.queue.clone(),
        ..State::default()
    }
}
