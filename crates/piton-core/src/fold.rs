//! State from records. Tolerant by design: a record that makes no sense in its place (a late
//! outcome, an end of a run that is not the current one) changes nothing; it is never an error and
//! never a panic.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::event::{
    self, Event, Outcome, Seq, SessionAdopted, SessionCreated, SpoolImported, TokenPurpose,
};
use crate::id::{ExecutionId, RunId, TokenId, WaitId};
use crate::limits::{RUNS_KEPT, SPOOLS_KEPT};
use crate::reason::Reason;
use crate::record::Record;
use crate::spool::Spool;
use crate::state::{
    ActiveToken, Agent, AgentStatus, Effect, Executor, ExecutorStatus, Info, OpenCall, Phase, Run,
    State, Wait, WaitToken,
};
use crate::time::Timestamp;

/// Whether a record changed what the session index shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Summary,
    Inner,
}

/// Folds records into a fresh state.
pub fn replay<'a>(
    records: impl IntoIterator<Item = &'a Record>,
) -> Result<State, event::ParseError> {
    let mut state = State::default();
    for record in records {
        state.apply_record(record)?;
    }
    Ok(state)
}

impl State {
    pub fn apply_record(&mut self, record: &Record) -> Result<Change, event::ParseError> {
        let event = record.event()?;
        Ok(self.apply(record.seq, record.ts, &event))
    }

    pub fn apply(&mut self, seq: Seq, ts: Timestamp, event: &Event) -> Change {
        self.last_seq = seq;
        self.updated_at = Some(ts);
        match event {
            Event::MessageDelta(_)
            | Event::MessageCompleted(_)
            | Event::ToolIntent(_)
            | Event::ToolOutcome(_) => {
                self.apply_stream(seq, event);
                return Change::Inner;
            }
            Event::EffectDone(e) => {
                self.pending.remove(&e.of_seq);
                return Change::Inner;
            }
            Event::SpoolImported(e) => {
                self.imported(e);
                return Change::Inner;
            }
            Event::RequestTaken(e) => {
                self.requests.taken(seq, ts, e);
                return Change::Inner;
            }
            Event::ToolUpdated(_)
            | Event::AgentUpdated(_)
            | Event::AgentDescribed(_)
            | Event::AgentHistoryDiverged(_)
            | Event::StatusDerived(_)
            | Event::RecordRedacted(_)
            | Event::TaskCreated(_)
            | Event::AccessGranted(_)
            | Event::AccessUsed(_)
            | Event::AccessRevoked(_)
            | Event::AuditNoted(_)
            | Event::SessionDeleted(_)
            | Event::SessionArchived(_)
            | Event::SessionImported(_) => return Change::Inner,
            Event::SessionLeased(e) => {
                // An agent that lived inside a dead boot can be told nothing any more.
                let agent_lives = self.facts.executor.as_ref().is_some_and(Executor::may_live);
                if self.lease.owner.as_ref() != Some(&e.boot_id) && !agent_lives {
                    self.pending.clear();
                }
                self.lease.apply(event);
                return Change::Inner;
            }
            Event::SessionReleased(_) => {
                self.lease.apply(event);
                return Change::Inner;
            }
            Event::Unknown(unknown) => {
                if !unknown.critical {
                    return Change::Inner;
                }
                self.facts.unknown_critical.get_or_insert_with(|| unknown.kind.clone());
            }
            Event::SessionCreated(e) => self.info = Some(created(ts, e)),
            Event::SessionAdopted(e) => {
                // Only the first record stands for what came before it.
                if self.info.is_some() {
                    return Change::Inner;
                }
                self.adopt(seq, ts, e);
            }
            Event::SessionClosed(e) => self.facts.closed = Some(e.outcome),
            Event::MessageUser(_) => {}
            Event::RunStarted(_)
            | Event::RunWaiting(_)
            | Event::RunResumed(_)
            | Event::RunReattached(_)
            | Event::RunPaused(_)
            | Event::RunCompleted(_)
            | Event::RunFailed(_)
            | Event::RunCancelled(_)
            | Event::RunInterrupted(_)
            | Event::RunDismissed(_)
            | Event::WaitCancelled(_) => self.apply_run(seq, ts, event),
            Event::TokenMinted(_)
            | Event::TokenConsumed(_)
            | Event::TokenRevoked(_)
            | Event::TokenExpired(_) => self.apply_token(event),
            Event::ExecutorStarting(_)
            | Event::ExecutorReady(_)
            | Event::ExecutorUnreachable(_)
            | Event::ExecutorError(_)
            | Event::ExecutorStopped(_)
            | Event::ExecutorAbandoned(_)
            | Event::AgentStarting(_)
            | Event::AgentReady(_)
            | Event::AgentSession(_)
            | Event::AgentError(_)
            | Event::AgentExited(_)
            | Event::AgentSessionCleared(_) => self.apply_execution(event),
            Event::WorkspacePlanned(_)
            | Event::WorkspacePrepared(_)
            | Event::WorkspaceRemoved(_) => self.facts.apply_workspace(event),
        }
        if let Some(info) = &mut self.info {
            info.active_at = ts;
        }
        Change::Summary
    }

    fn imported(&mut self, e: &SpoolImported) {
        let spool = Spool { spool_id: e.spool_id.clone(), pos: e.pos };
        self.spools.insert(e.execution_id.clone(), spool);
        self.spools_order.retain(|id| *id != e.execution_id);
        self.spools_order.push_back(e.execution_id.clone());
        // Which one spoke last, and not which id is the youngest: clocks jump. The session's own is
        // never forgotten.
        let current = self.facts.executor.as_ref().map(|executor| &executor.execution_id);
        while self.spools.len() > SPOOLS_KEPT {
            let Some(oldest) = self.spools_order.iter().position(|id| Some(id) != current) else {
                break;
            };
            if let Some(oldest) = self.spools_order.remove(oldest) {
                self.spools.remove(&oldest);
            }
        }
    }

    /// What the records before the first one came to.
    fn adopt(&mut self, seq: Seq, ts: Timestamp, e: &SessionAdopted) {
        self.info = Some(Info {
            session_id: e.session_id.clone(),
            title: e.title.clone(),
            task_id: None,
            working_dir: e.working_dir.clone(),
            provider: e.provider.clone(),
            agent_profile_id: None,
            created_at: e.created_at,
            active_at: ts,
        });
        self.facts.run = e.run.as_ref().map(|run| Run {
            run_id: run.run_id.clone(),
            boot_id: run.boot_id.clone(),
            started_at: run.started_at,
            started_seq: seq,
            phase: Phase::Open,
            blocked: false,
            waits: BTreeMap::new(),
            settled_waits: VecDeque::new(),
        });
        self.recent_runs.extend(e.run.iter().map(|run| run.run_id.clone()));
    }

    /// What streamed ends with its run.
    fn forget_messages(&mut self) {
        self.messages.clear();
        self.messages_sent.clear();
    }

    fn apply_stream(&mut self, seq: Seq, event: &Event) {
        match event {
            Event::MessageDelta(e) => {
                // What comes late belongs to a run that streams no more.
                if e.run_id.as_ref().is_some_and(|run| !self.streams(run)) {
                    return;
                }
                let end = e.offset.saturating_add(e.length);
                let known = self.messages.insert(e.message_id.clone(), end);
                // What came before an interruption is not counted here, masked or not.
                let unknown = known.is_none() && e.offset > 0;
                if let Some(sent) = e.sent.or(unknown.then_some(end)) {
                    self.messages_sent.insert(e.message_id.clone(), sent);
                }
            }
            Event::MessageCompleted(e) => {
                self.messages.remove(&e.message_id);
                self.messages_sent.remove(&e.message_id);
            }
            Event::ToolIntent(e) => {
                if !self.streams(&e.run_id) {
                    return;
                }
                let call = OpenCall { run_id: e.run_id.clone(), name: e.name.clone(), seq };
                self.calls.insert(e.call_id.clone(), call);
            }
            Event::ToolOutcome(e) => {
                self.calls.remove(&e.call_id);
            }
            _ => {}
        }
    }

    /// Whether a run is the current one and has work left.
    fn streams(&self, run_id: &RunId) -> bool {
        self.facts.run.as_ref().is_some_and(|run| run.run_id == *run_id && run.is_unfinished())
    }

    /// The current run, if it is the one an event speaks of.
    fn run_named(&mut self, run_id: &RunId) -> Option<&mut Run> {
        self.facts.run.as_mut().filter(|run| run.run_id == *run_id)
    }

    fn apply_run(&mut self, seq: Seq, ts: Timestamp, event: &Event) {
        match event {
            Event::RunStarted(e) => {
                self.calls.clear();
                self.forget_messages();
                self.recent_runs.push_back(e.run_id.clone());
                if self.recent_runs.len() > RUNS_KEPT {
                    self.recent_runs.pop_front();
                }
                self.facts.run = Some(Run {
                    run_id: e.run_id.clone(),
                    boot_id: e.boot_id.clone(),
                    started_at: ts,
                    started_seq: seq,
                    phase: Phase::Open,
                    blocked: false,
                    waits: BTreeMap::new(),
                    settled_waits: VecDeque::new(),
                });
                let (run_id, message_id) = (e.run_id.clone(), e.message_id.clone());
                self.pending.insert(seq, Effect::Begin { run_id, message_id });
            }
            Event::RunWaiting(e) => {
                let by_token = || e.resume_token_id.as_ref().map(WaitId::from);
                let wait_id =
                    e.wait_id.clone().or_else(by_token).unwrap_or_else(|| WaitId::at(seq));
                let token = match &e.resume_token_id {
                    Some(id) if self.tokens.contains_key(id) => WaitToken::Active,
                    _ => WaitToken::Missing,
                };
                let Some(run) = self.run_named(&e.run_id).filter(|run| run.is_unfinished()) else {
                    return;
                };
                run.blocked = true;
                run.waits.entry(wait_id).or_insert_with(|| Wait {
                    kind: e.wait_kind,
                    since_seq: seq,
                    token_id: e.resume_token_id.clone(),
                    token,
                    deadline_at: e.deadline_at,
                });
            }
            Event::RunResumed(e) => {
                let Some(run) = self.run_named(&e.run_id) else { return };
                if matches!(run.phase, Phase::Ended(_) | Phase::Dismissed) {
                    return;
                }
                run.boot_id = e.boot_id.clone();
                run.phase = Phase::Open;
                run.blocked = false;
                let run_id = e.run_id.clone();
                let Some(wait_id) = &e.wait_id else { return self.go_on(seq, run_id) };
                run.settle_wait(wait_id);
                self.pending.insert(seq, Effect::Answer { run_id, wait_id: wait_id.clone() });
            }
            Event::RunReattached(e) => {
                let Some(run) = self.run_named(&e.run_id) else { return };
                run.boot_id = e.boot_id.clone();
                for new in &e.deadlines {
                    if let Some(wait) = run.waits.get_mut(&new.wait_id) {
                        wait.deadline_at = Some(new.deadline_at);
                    }
                }
            }
            Event::RunPaused(e) => {
                let Some(run) = self.run_named(&e.run_id).filter(|run| run.is_open()) else {
                    return;
                };
                run.phase = Phase::Paused;
                self.pending.insert(seq, Effect::Stop { run_id: e.run_id.clone() });
            }
            Event::WaitCancelled(e) => {
                let Some(run) = self.run_named(&e.run_id) else { return };
                if run.settle_wait(&e.wait_id) {
                    run.blocked = false;
                    let (run_id, wait_id) = (e.run_id.clone(), e.wait_id.clone());
                    self.pending.insert(seq, Effect::CancelWait { run_id, wait_id });
                }
            }
            Event::RunCompleted(e) => {
                self.end_run(seq, &e.run_id, Phase::Ended(Outcome::Completed));
            }
            Event::RunFailed(e) => self.end_run(seq, &e.run_id, Phase::Ended(Outcome::Failed)),
            Event::RunCancelled(e) => {
                self.end_run(seq, &e.run_id, Phase::Ended(Outcome::Cancelled));
            }
            Event::RunInterrupted(e) => {
                let Some(run) = self.run_named(&e.run_id).filter(|run| run.is_unfinished()) else {
                    return;
                };
                let was_waiting = e.reason == Reason::WaitTimeout || !run.waits.is_empty();
                self.end_run(seq, &e.run_id, Phase::Interrupted { reason: e.reason, was_waiting });
            }
            Event::RunDismissed(e) => self.end_run(seq, &e.run_id, Phase::Dismissed),
            _ => {}
        }
    }

    /// The run is to go on: with the prompt that it was paused before, if no agent can have been
    /// given that, else with one that says so. What a Stop that was not heard came after is not
    /// known yet; the spool's order will tell ([`crate::decide::Import`]).
    fn go_on(&mut self, seq: Seq, run_id: RunId) {
        let stop = Effect::Stop { run_id: run_id.clone() };
        let unheard = self.pending.values().any(|effect| *effect == stop);
        let may_know = unheard && self.facts.hears();
        if self.prompts(&run_id).next().is_some() && !may_know {
            self.pending.retain(|_, effect| *effect != stop);
        } else {
            self.pending.insert(seq, Effect::Continue { run_id });
        }
    }

    /// A run that is not the current one, or has ended, stays as it is.
    fn end_run(&mut self, seq: Seq, run_id: &RunId, phase: Phase) {
        let Some(run) = self.run_named(run_id) else { return };
        if matches!(run.phase, Phase::Ended(_)) {
            return;
        }
        run.phase = phase;
        run.blocked = false;
        run.waits.clear();
        self.forget_messages();
        // That somebody does not want to go on with it does not stop who is still at it.
        let stays =
            |effect: &Effect| phase == Phase::Dismissed && matches!(effect, Effect::Stop { .. });
        self.pending.retain(|_, effect| effect.run_id() != run_id || stays(effect));
        // An agent that is still at it is told to stop.
        let unasked = matches!(phase, Phase::Interrupted { .. } | Phase::Ended(Outcome::Failed));
        if phase == Phase::Ended(Outcome::Cancelled) || self.facts.hears() && unasked {
            self.pending.insert(seq, Effect::Stop { run_id: run_id.clone() });
        }
    }

    fn apply_token(&mut self, event: &Event) {
        match event {
            Event::TokenMinted(e) => {
                let token = ActiveToken {
                    run_id: e.run_id.clone(),
                    purpose: e.purpose,
                    wait_id: e.wait_id.clone(),
                    expires_at: e.expires_at,
                };
                self.tokens.insert(e.token_id.clone(), token);
                if e.purpose == TokenPurpose::Wait
                    && let Some(wait_id) = &e.wait_id
                    && let Some(run) = self.run_named(&e.run_id)
                    && let Some(wait) = run.waits.get_mut(wait_id)
                {
                    wait.token_id = Some(e.token_id.clone());
                    wait.token = WaitToken::Active;
                }
            }
            Event::TokenConsumed(e) => {
                self.tokens.remove(&e.token_id);
            }
            Event::TokenRevoked(e) => self.retire_token(&e.token_id, WaitToken::Revoked),
            Event::TokenExpired(e) => self.retire_token(&e.token_id, WaitToken::Expired),
            _ => {}
        }
        let alone = self.tokens.values().filter(|token| token.wait_id.is_none());
        self.facts.token_deadline_at = alone.filter_map(|token| token.expires_at).min();
    }

    fn retire_token(&mut self, token_id: &TokenId, to: WaitToken) {
        self.tokens.remove(token_id);
        let waits = self.facts.run.iter_mut().flat_map(|run| run.waits.values_mut());
        for wait in waits.filter(|wait| wait.token_id.as_ref() == Some(token_id)) {
            wait.token = to;
        }
    }

    fn apply_execution(&mut self, event: &Event) {
        match event {
            Event::ExecutorStarting(e) => {
                self.facts.executor = Some(Executor {
                    execution_id: e.execution_id.clone(),
                    runtime: e.runtime.clone(),
                    status: ExecutorStatus::Starting,
                    code: None,
                });
                // A new execution has no agent yet; what the old one knew itself by stays.
                if let Some(agent) = &mut self.facts.agent {
                    agent.status = AgentStatus::Exited;
                }
            }
            Event::ExecutorReady(e) => self.executor_is(&e.execution_id, ExecutorStatus::Ready),
            Event::ExecutorUnreachable(e) => {
                self.executor_is(&e.execution_id, ExecutorStatus::Unreachable);
                if let Some(executor) = &mut self.facts.executor
                    && executor.execution_id == e.execution_id
                    && executor.status == ExecutorStatus::Unreachable
                {
                    executor.code.clone_from(&e.code);
                }
            }
            Event::ExecutorError(e) => self.executor_is(&e.execution_id, ExecutorStatus::Error),
            Event::ExecutorStopped(e) => self.executor_is(&e.execution_id, ExecutorStatus::Stopped),
            Event::ExecutorAbandoned(e) => {
                let executor = self.facts.executor.as_ref().filter(|executor| executor.may_live());
                if executor.is_some_and(|executor| executor.execution_id == e.execution_id) {
                    // Nobody can tell whether it was given them: given to another one they might
                    // be done twice.
                    self.pending.clear();
                }
                self.executor_is(&e.execution_id, ExecutorStatus::Stopped);
            }
            Event::AgentStarting(e) => {
                self.agent_is(&e.execution_id, AgentStatus::Starting);
            }
            Event::AgentReady(e) => {
                let agent = self.agent_is(&e.execution_id, AgentStatus::Ready);
                if let (Some(agent), Some(id)) = (agent, &e.agent_session_id) {
                    agent.is_called(id);
                }
            }
            Event::AgentSession(e) => {
                if self.is_current(&e.execution_id)
                    && let Some(agent) = &mut self.facts.agent
                {
                    agent.is_called(&e.agent_session_id);
                }
            }
            Event::AgentError(e) => {
                self.agent_is(&e.execution_id, AgentStatus::Error);
            }
            Event::AgentExited(e) => {
                self.agent_is(&e.execution_id, AgentStatus::Exited);
            }
            Event::AgentSessionCleared(e) => {
                if self.is_current(&e.execution_id)
                    && let Some(agent) = &mut self.facts.agent
                {
                    agent.is_disowned(e.agent_session_id.as_deref());
                }
            }
            _ => {}
        }
    }

    /// An execution is one life: what was stopped or given up does not come back under its id.
    fn executor_is(&mut self, execution_id: &ExecutionId, status: ExecutorStatus) {
        let Some(executor) = &mut self.facts.executor else { return };
        if executor.execution_id != *execution_id || executor.status == ExecutorStatus::Stopped {
            return;
        }
        executor.status = status;
        executor.code = None;
        if status != ExecutorStatus::Stopped {
            return;
        }
        // What the gone agent was to be told is moot; what is still to be begun is not. Its spool
        // is in the log: of several prompts the first is the one that it was not given.
        let mut prompted = BTreeSet::new();
        self.pending
            .retain(|_, effect| effect.is_prompt() && prompted.insert(effect.run_id().clone()));
        // The agent ends with it. That it could not be started stays to be told.
        if let Some(agent) = &mut self.facts.agent
            && agent.status != AgentStatus::Error
        {
            agent.status = AgentStatus::Exited;
        }
    }

    /// Whether what is said about an execution's agent is about the session's agent.
    fn is_current(&self, execution_id: &ExecutionId) -> bool {
        self.facts.executor.as_ref().is_none_or(|e| e.execution_id == *execution_id)
    }

    /// The agent, if the event is about it. One whose executor is stopped does not start any more;
    /// what it called itself is still worth knowing.
    fn agent_is(&mut self, execution_id: &ExecutionId, status: AgentStatus) -> Option<&mut Agent> {
        if !self.is_current(execution_id) {
            return None;
        }
        let executor = self.facts.executor.as_ref().map(|executor| executor.status);
        let status = match status {
            AgentStatus::Starting | AgentStatus::Ready
                if executor == Some(ExecutorStatus::Stopped) =>
            {
                AgentStatus::Exited
            }
            status => status,
        };
        let agent = self.facts.agent.get_or_insert(Agent::new(status));
        agent.status = status;
        Some(agent)
    }
}

fn created(ts: Timestamp, e: &SessionCreated) -> Info {
    Info {
        session_id: e.session_id.clone(),
        title: e.title.clone(),
        task_id: e.task_id.clone(),
        working_dir: e.working_dir.clone(),
        provider: e.provider.clone(),
        agent_profile_id: e.agent_profile_id.clone(),
        created_at: ts,
        active_at: ts,
    }
}
