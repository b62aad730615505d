//! What must hold between the logs and the agents beside them.

use std::collections::{BTreeMap, BTreeSet};

use piton_core::event::Event;
use piton_core::id::{CallId, ExecutionId, MessageId, RunId, SessionId, WaitId};
use piton_core::resume::AgentRestart;
use piton_core::spool::{Fact, Pos};
use piton_core::state::{AgentStatus, Effect, Executor, ExecutorStatus, Phase, Run};
use piton_core::{Reason, Record, State};

use super::MASKER;
use super::ledger::Property;
use super::machine::Machine;
use super::world::World;

/// What a log has of its agents.
#[derive(Debug, Default)]
struct Heard {
    texts: BTreeMap<MessageId, String>,
    /// Length and hash, as often as the message was said to be complete.
    completed: BTreeMap<MessageId, Vec<(u64, String)>>,
    intents: BTreeMap<CallId, u64>,
    outcomes: BTreeMap<CallId, u64>,
    cursors: BTreeMap<ExecutionId, Pos>,
    lost: Vec<(ExecutionId, Pos, Pos)>,
}

/// One log, as far as it is durable.
pub(super) fn log(world: &World, session: &SessionId, records: &[Record]) {
    let broken = |what: String| world.violated(Property::SaidOnce, format!("{session}: {what}"));
    let heard = match heard(records) {
        Ok(heard) => heard,
        Err(what) => return broken(what),
    };
    let mut said: BTreeMap<MessageId, String> = BTreeMap::new();
    {
        let fleet = world.fleet();
        for (execution, machine) in fleet.machines.iter().filter(|(_, m)| m.session == *session) {
            if let Err(what) = compare(&heard, execution, machine, &mut said) {
                broken(what);
            }
        }
    }
    for (message, text) in &heard.texts {
        let expected = said.remove(message).unwrap_or_default();
        if *text != expected {
            broken(format!("{message} is {text:?} in the log and was {expected:?}"));
        }
    }
    if let Some((message, text)) = said.into_iter().next() {
        broken(format!("{message} is not in the log and was {text:?}"));
    }
    interruptions(world, session, records);
    super::rules::check(world, session, records);
}

fn heard(records: &[Record]) -> Result<Heard, String> {
    let mut heard = Heard::default();
    for record in records {
        match record.event() {
            Ok(Event::MessageDelta(e)) => {
                let text = record.content_field("text");
                let text = text.as_ref().and_then(|text| text.as_str()).unwrap_or_default();
                if text.len() as u64 != e.length {
                    return Err(format!("{} is not as long as it says", record.seq));
                }
                heard.texts.entry(e.message_id).or_default().push_str(text);
            }
            Ok(Event::MessageCompleted(e)) => {
                heard.completed.entry(e.message_id).or_default().push((e.length, e.hash));
            }
            Ok(Event::ToolIntent(e)) => *heard.intents.entry(e.call_id).or_default() += 1,
            Ok(Event::ToolOutcome(e)) => *heard.outcomes.entry(e.call_id).or_default() += 1,
            Ok(Event::SpoolImported(e)) => {
                let cursor = heard.cursors.entry(e.execution_id.clone()).or_default();
                if *cursor >= e.pos {
                    return Err(format!("{} is imported again to {}", e.execution_id, e.pos));
                }
                *cursor = e.pos;
                heard.lost.extend(e.lost.map(|(from, to)| (e.execution_id, from, to)));
            }
            _ => {}
        }
    }
    Ok(heard)
}

/// What one execution wrote down, up to the cursor, is in the log once.
fn compare(
    heard: &Heard,
    execution: &ExecutionId,
    machine: &Machine,
    said: &mut BTreeMap<MessageId, String>,
) -> Result<(), String> {
    let cursor = heard.cursors.get(execution).copied().unwrap_or(0);
    let is_lost = |pos: Pos| {
        heard.lost.iter().any(|(of, from, to)| of == execution && (*from..=*to).contains(&pos))
    };
    let mut wrong = Ok(());
    let imported = machine.written.iter().take_while(|entry| entry.pos <= cursor);
    for entry in imported.filter(|entry| !is_lost(entry.pos)) {
        let at = format!("{execution}, {}", entry.pos);
        match &entry.fact {
            Fact::Text { message_id, text, .. } => {
                said.entry(message_id.clone()).or_default().push_str(&MASKER.text(text));
            }
            Fact::TextEnd { message_id, .. } => {
                let text = heard.texts.get(message_id).cloned().unwrap_or_default();
                let hash = blake3::hash(text.as_bytes()).to_hex().to_string();
                let expected = vec![(text.len() as u64, hash)];
                let completed = heard.completed.get(message_id);
                if completed != Some(&expected) {
                    wrong = Err(format!("{at}: {message_id} ends with {completed:?}"));
                }
            }
            Fact::ToolCall { call_id, .. } if heard.intents.get(call_id) != Some(&1) => {
                wrong = Err(format!("{at}: {call_id} is not in the log once"));
            }
            Fact::ToolResult { call_id, .. } if heard.outcomes.get(call_id) != Some(&1) => {
                wrong = Err(format!("{at}: the outcome of {call_id} is not in the log once"));
            }
            _ => {}
        }
    }
    wrong
}

/// An agent was given the run.
fn begun(state: &State, run: &Run) -> bool {
    run.is_open() && state.prompts(&run.run_id).next().is_none()
}

/// Whatever ends an execution, or its agent, interrupts the run that it had begun, for that reason.
fn interruptions(world: &World, session: &SessionId, records: &[Record]) {
    let mut state = State::default();
    for (at, record) in records.iter().enumerate() {
        let Ok(event) = record.event() else { return };
        if let Some((run, reasons)) = must_interrupt(&state, &event) {
            let mut rest = records[at + 1..].iter().filter_map(|record| record.event().ok());
            let found = rest.find_map(|event| match event {
                Event::RunInterrupted(e) if e.run_id == run => Some(Some(e.reason)),
                Event::RunCompleted(e) if e.run_id == run => Some(None),
                Event::RunFailed(e) if e.run_id == run => Some(None),
                Event::RunCancelled(e) if e.run_id == run => Some(None),
                Event::RunStarted(_) => Some(None),
                _ => None,
            });
            if !found.flatten().is_some_and(|reason| reasons.contains(&reason)) {
                let detail = format!("{session}: {run} continues behind {}: {found:?}", record.seq);
                world.violated(Property::GoneIsInterrupted, detail);
            }
        }
        if state.apply_record(record).is_err() {
            return;
        }
    }
}

fn must_interrupt(state: &State, event: &Event) -> Option<(RunId, &'static [Reason])> {
    let executor = state.facts.executor.as_ref().filter(|executor| executor.may_live())?;
    let run = state.facts.run.as_ref().filter(|_| state.facts.closed.is_none())?;
    let is = |execution: &ExecutionId| *execution == executor.execution_id;
    match event {
        Event::ExecutorAbandoned(e) if is(&e.execution_id) && run.is_open() => {
            Some((run.run_id.clone(), &[Reason::Abandoned]))
        }
        Event::ExecutorStopped(e) if is(&e.execution_id) && begun(state, run) => {
            Some((run.run_id.clone(), &[Reason::ProcessRestart, Reason::ProcessExit]))
        }
        Event::AgentExited(e) if is(&e.execution_id) && begun(state, run) => {
            Some((run.run_id.clone(), &[Reason::ProcessExit]))
        }
        _ => None,
    }
}

/// After a while without faults, with one boot that has all sessions: what agents said is in the
/// logs, pending effects are done, only those agents live that a log knows, and every begun run has
/// an agent.
pub(super) fn calm(world: &World) {
    let states = super::log_checks::durable_states(world);
    let mut found = Vec::new();
    let fleet = world.fleet();
    for (execution, machine) in &fleet.machines {
        let session = &machine.session;
        let state = states.iter().find(|(id, _)| id == session).map(|(_, state)| state);
        let executor = state.and_then(|state| state.facts.executor.as_ref());
        let current = executor.filter(|e| e.execution_id == *execution && e.may_live());
        if machine.lives() && current.is_none() {
            let detail = format!("{session}: {execution} lives, and no log knows it");
            found.push((Property::OneAgent, detail));
        }
        let imported =
            state.and_then(|state| state.spools.get(execution)).map_or(0, |spool| spool.pos);
        if imported < machine.kept && !machine.is_forgotten {
            let detail = format!("{session}: {execution} said {}, {imported} known", machine.kept);
            found.push((Property::SaidOnce, detail));
        }
    }
    for (session, state) in &states {
        let executor = state.facts.executor.as_ref().filter(|executor| executor.may_live());
        let machine = executor.and_then(|executor| fleet.machines.get(&executor.execution_id));
        let agent = machine.filter(|m| m.is_up).and_then(|m| m.agent.as_ref());
        let ready = agent.filter(|agent| agent.is_ready);
        // A paused run is begun when it is resumed.
        let run = state.facts.run.as_ref();
        let paused = run.filter(|run| run.phase == Phase::Paused).map(|run| &run.run_id);
        let waits = |effect: &Effect| effect.is_prompt() && paused == Some(effect.run_id());
        if ready.is_some() && state.pending.values().any(|effect| !waits(effect)) {
            let (executor, agent) = (&state.facts.executor, &state.facts.agent);
            let detail = format!(
                "{session}: {:?} is pending with {run:?}, {executor:?}, {agent:?}",
                state.pending
            );
            found.push((Property::PendingEffectsAreDone, detail));
        }
        if state.facts.closed.is_some() {
            continue;
        }
        let at_work = ready.and_then(|agent| agent.turn.as_ref()).map(|turn| &turn.run_id);
        if run.is_some_and(|run| begun(state, run) && at_work != Some(&run.run_id)) {
            let detail = format!("{session}: no agent works on {run:?}");
            found.push((Property::GoneIsInterrupted, detail));
        }
        super::resuming::calm(world, session, state);
        let restarts = world.habits.map(|habits| habits.policy.agent_restart);
        if restarts.is_some_and(|restart| restart != AgentRestart::Manual) {
            let given = fleet.given(session).map(|(run, _)| run.clone()).collect();
            let mut of_session = fleet.machines.values().filter(|m| m.session == *session);
            let has_agent = of_session.any(|machine| machine.agent.is_some());
            if let Some(run) = world.awaiting_agent(session, &given).filter(|_| !has_agent) {
                let detail = format!("{session}: no agent is given the prompt of {run}");
                found.push((Property::PendingEffectsAreDone, detail));
            }
        }
        if let Some(conversation) = ready.and_then(|agent| agent.conversation.as_ref()) {
            // The fate of an abandoned agent cannot be known.
            let given = fleet.given(session);
            let known = given.filter(|(_, execution)| !world.is_abandoned(session, execution));
            let known: Vec<_> = known.map(|(run, _)| run.clone()).collect();
            world.check_memory(session, state, conversation, &known);
        }
        let known = state.facts.agent.as_ref().map(|agent| agent.status);
        if ready.is_some() != (known == Some(AgentStatus::Ready)) {
            let detail = format!("{session}: the agent is said to be {known:?}");
            found.push((Property::StatusExplained, detail));
        }
    }
    drop(fleet);
    for (property, detail) in found {
        world.violated(property, detail);
    }
}

impl World {
    pub(super) fn is_abandoned(&self, session: &SessionId, execution: &ExecutionId) -> bool {
        let disk = self.disk();
        let Some(log) = disk.logs.get(session) else { return false };
        let mut durable = log.lines[..log.flushed].iter().map(|line| &line.record);
        durable.any(|record| {
            &*record.kind == "executor.abandoned"
                && matches!(record.event(), Ok(Event::ExecutorAbandoned(e)) if e.execution_id == *execution)
        })
    }

    fn awaiting_agent(&self, session: &SessionId, given: &BTreeSet<RunId>) -> Option<RunId> {
        let disk = self.disk();
        let log = disk.logs.get(session)?;
        let durable = log.lines[..log.flushed].iter().map(|line| &line.record);
        super::resuming::awaiting_agent(durable, given)
    }

    /// Questions that agents of open runs wait for an answer to.
    pub(super) fn open_asks(&self) -> Vec<(SessionId, ExecutionId, WaitId)> {
        let states = super::log_checks::durable_states(self);
        let fleet = self.fleet();
        let mut asks = Vec::new();
        for (session, state) in states {
            let executor = state.facts.executor.filter(Executor::may_live);
            let Some(executor) = executor else { continue };
            let agent = fleet.machines.get(&executor.execution_id).and_then(|m| m.agent.as_ref());
            let run = state.facts.run.filter(|run| run.is_open() && state.facts.closed.is_none());
            let (Some(agent), Some(run)) = (agent, run) else { continue };
            if agent.turn.as_ref().is_some_and(|turn| turn.run_id == run.run_id) {
                let ask = |wait| (session.clone(), executor.execution_id.clone(), wait);
                asks.extend(agent.asks.iter().cloned().map(ask));
            }
        }
        asks
    }

    /// A log that calls an execution stopped must be right, unless a client abandoned the
    /// execution.
    pub(super) fn check_stopped(&self) {
        for (session, state) in super::log_checks::durable_states(self) {
            let executor = state.facts.executor.filter(|e| e.status == ExecutorStatus::Stopped);
            let Some(executor) = executor else { continue };
            let execution = executor.execution_id;
            let lives = self.fleet().machines.get(&execution).is_some_and(|m| m.agent.is_some());
            if lives && !self.is_abandoned(&session, &execution) {
                let detail = format!("{session}: {execution} is stopped, and its agent lives");
                self.violated(Property::GoneIsInterrupted, detail);
            }
        }
    }
}
