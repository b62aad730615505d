//! State from records. Tolerant by design: a record that makes no sense in its place (a late
//! outcome, an end of a run that is not the current one) changes nothing; it is never an error and
//! never a panic.

mod execution;
mod pending_context;
mod queue;
mod run;

use std::collections::{BTreeMap, VecDeque};

use crate::event::{
    self, Event, LineageStarted, Seq, SessionAdopted, SessionCreated, SpoolImported, TokenPurpose,
};
use crate::id::{BootId, RunId, TokenId};
use crate::limits::{LINEAGES_KEPT, SPOOLS_KEPT};
use crate::reason::Reason;
use crate::record::Record;
use crate::spool::{REFUSAL, Spool};
use crate::state::{
    ActiveToken, Executor, Info, MessageRef, OpenCall, Phase, Run, State, WaitToken,
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

    #[expect(clippy::too_many_lines, reason = "one arm for each kind of record")]
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
            Event::EffectDone(e) => return self.done(e.of_seq),
            Event::PromptPrepared(e) => {
                self.mark_prepared(seq, e);
                return Change::Inner;
            }
            Event::SpoolImported(e) => {
                self.imported(e);
                return Change::Inner;
            }
            Event::RequestAccepted(e) => {
                self.requests.taken(seq, ts, e);
                return Change::Inner;
            }
            Event::AgentUpdated(e) if e.what == REFUSAL => return self.apply_refusal(e),
            Event::AgentUpdated(e) => {
                if self.is_current(&e.execution_id) {
                    self.features.updated(seq, e);
                }
                return self.mark_truncated(e);
            }
            Event::SessionForked(e) => {
                self.features.fork = Some(e.fork.clone());
                return Change::Inner;
            }
            Event::AgentMcpServersSet(_) => {
                self.features.mcp_servers = Some(seq);
                return Change::Inner;
            }
            Event::AgentConfigured(e) => {
                self.features.configured(seq, e);
                return Change::Inner;
            }
            Event::GraphBound(e) => self.facts.graph = Some(e.name.clone()),
            Event::GraphHosted(e) => self.facts.graph_on_server = e.by_server,
            // What a graph did is folded beside the session: `graph::GraphState`.
            Event::GraphConfigured(_)
            | Event::GraphForked(_)
            | Event::NodeStarted(_)
            | Event::NodeCompleted(_)
            | Event::NodeFailed(_)
            | Event::NodeSkipped(_)
            | Event::NodeSafePoint(_)
            | Event::NodeEvent(_)
            | Event::NodeText(_)
            | Event::ArtifactAdded(_)
            | Event::NodeSessionAssigned(_)
            | Event::EdgeTaken(_)
            | Event::MemoryChanged(_)
            | Event::OutputAdded(_)
            | Event::LoopIterated(_)
            | Event::MapListed(_)
            | Event::MapItemCompleted(_)
            | Event::CheckpointDamaged(_)
            | Event::ToolUpdated(_)
            | Event::PermissionDecided(_)
            | Event::PermissionAsked(_)
            | Event::AgentHistoryDiverged(_)
            | Event::StatusDerived(_)
            | Event::TaskCreated(_)
            | Event::TaskUpdated(_)
            | Event::TaskClosed(_)
            | Event::TaskReopened(_)
            | Event::TaskDeleted(_)
            | Event::AccessTokenCreated(_)
            | Event::AccessTokenUsed(_)
            | Event::AccessTokenRevoked(_)
            | Event::AuditRecorded(_)
            | Event::SessionDeleted(_)
            | Event::SessionArchived(_)
            | Event::SessionImported(_)
            | Event::SessionRegistered(_)
            | Event::AnchorsRecreated(_) => return Change::Inner,
            Event::WorkspaceRestoreStarted(_) | Event::WorkspaceRestoreFailed(_) => {
                self.facts.apply_restore(seq, event);
            }
            Event::CheckpointCreated(_)
            | Event::CheckpointPruned(_)
            | Event::CheckpointDeleted(_)
            | Event::WorkspaceSnapshotTaken(_)
            | Event::WorkspaceSnapshotLate(_)
            | Event::WorkspaceSnapshotFailed(_)
            | Event::WorkspaceUnchanged(_)
            | Event::WorkspaceRestored(_)
            | Event::LineageStarted(_) => return self.apply_turns(seq, ts, event),
            Event::SessionLeased(_) | Event::SessionReleased(_) => {
                let change = match event {
                    Event::SessionLeased(e) => self.apply_lease(&e.boot_id),
                    _ => Change::Inner,
                };
                self.lease.apply(event);
                return change;
            }
            Event::Unknown(unknown) => {
                if !unknown.critical {
                    return Change::Inner;
                }
                self.facts.unknown_critical.get_or_insert_with(|| unknown.kind.clone());
            }
            Event::SessionCreated(_)
            | Event::SessionRenamed(_)
            | Event::SessionAgentAssigned(_) => self.apply_info(ts, event),
            Event::SessionAdopted(e) => {
                // Only the first record stands for what came before it.
                if self.info.is_some() {
                    return Change::Inner;
                }
                self.adopt(seq, ts, e);
            }
            Event::SessionClosed(e) => self.facts.closed = Some(e.outcome),
            Event::PromptQueued(_)
            | Event::PromptEdited(_)
            | Event::PromptMoved(_)
            | Event::PromptRemoved(_)
            | Event::QueueReleased(_) => self.apply_queue(seq, ts, event),
            Event::RecordRedacted(e) => {
                // What was taken out cannot be delivered.
                if !self.remove_queued(|prompt| prompt.seq == e.target_seq) {
                    return Change::Inner;
                }
            }
            Event::MessageUser(e) => {
                self.mark_dequeued(&e.message_id);
                self.last_said = Some(MessageRef { message_id: e.message_id.clone(), seq });
            }
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
            | Event::AgentResuming(_)
            | Event::AgentWaiting(_)
            | Event::AgentStarting(_)
            | Event::AgentInitialized(_)
            | Event::AgentReady(_)
            | Event::AgentSessionAssigned(_)
            | Event::AgentError(_)
            | Event::AgentExited(_)
            | Event::AgentSessionCleared(_)
            | Event::WorkspaceRecreated(_)
            | Event::AgentEnding(_) => self.apply_execution(seq, event),
            Event::WorkspacePlanned(_)
            | Event::WorkspacePrepared(_)
            | Event::WorkspaceRemoved(_) => self.facts.apply_workspace(event),
        }
        if let Some(info) = &mut self.info {
            info.active_at = ts;
        }
        Change::Summary
    }

    /// What a graph did is folded beside the session.
    fn apply_turns(&mut self, seq: Seq, ts: Timestamp, event: &Event) -> Change {
        if self.facts.graph.is_some() {
            return Change::Inner;
        }
        let left = self.turns.lineages.current();
        let run = self.facts.run.as_ref().map(|run| &run.run_id);
        self.turns.apply(seq, ts, event, run);
        let was_restoring = self.facts.restore.is_some();
        self.facts.apply_restore(seq, event);
        match event {
            Event::LineageStarted(e) => self.leave_conversation(seq, left, e),
            _ if was_restoring => Change::Summary,
            _ => Change::Inner,
        }
    }

    /// The agent's own conversation has what was left behind: its next start is a fresh one. Undone, it
    /// has the conversation again that it had.
    fn leave_conversation(&mut self, seq: Seq, left: u32, e: &LineageStarted) -> Change {
        let pending = std::mem::take(&mut self.pending_context);
        let kept = &mut self.kept_conversations;
        let back = kept.get(&e.from_lineage).filter(|kept| kept.seq == e.from_seq).cloned();
        if let Some(agent) = &mut self.facts.agent {
            kept.insert(left, agent.keep_conversation(seq - 1, pending));
            while kept.len() > LINEAGES_KEPT {
                kept.pop_first();
            }
            agent.clear_session_id();
            agent.context_reason = Some(Reason::UserRequest);
            if let Some(back) = back {
                agent.return_to(&back);
                self.pending_context = back.pending_context;
            }
        }
        self.prepared = None;
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

    /// An agent that lived inside a dead boot can be told nothing any more, and one that the boot was
    /// about to start is started by no supervisor.
    fn apply_lease(&mut self, boot: &BootId) -> Change {
        if self.lease.owner.as_ref() == Some(boot) {
            return Change::Inner;
        }
        let agent_lives = self.facts.executor.as_ref().is_some_and(Executor::may_live);
        if !agent_lives {
            self.keep_undelivered();
            self.pending.clear();
        }
        match &mut self.facts.executor {
            Some(executor) if executor.expects_agent => {
                executor.expects_agent = false;
                Change::Summary
            }
            _ => Change::Inner,
        }
    }

    fn apply_info(&mut self, ts: Timestamp, event: &Event) {
        match (event, &mut self.info) {
            (Event::SessionCreated(e), info) => *info = Some(created(ts, e)),
            (Event::SessionRenamed(e), Some(info)) => info.title.clone_from(&e.title),
            (Event::SessionAgentAssigned(e), Some(info)) => {
                info.agent_profile_id = Some(e.agent_profile_id.clone());
            }
            _ => {}
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
            is_adopted: true,
            created_at: e.created_at,
            active_at: ts,
        });
        self.facts.run = e.run.as_ref().map(|run| Run {
            run_id: run.run_id.clone(),
            boot_id: run.boot_id.clone(),
            started_at: run.started_at,
            started_seq: seq,
            ended_at: None,
            phase: Phase::Open,
            blocked: false,
            waits: BTreeMap::new(),
            settled_waits: VecDeque::new(),
            truncated: false,
            message_seq: None,
            wait_timed_out: false,
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
                if e.channel.is_answer() {
                    self.last_answer = Some(e.message_id.clone());
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
                self.rejected_run = None;
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
}

fn created(ts: Timestamp, e: &SessionCreated) -> Info {
    Info {
        session_id: e.session_id.clone(),
        title: e.title.clone(),
        task_id: e.task_id.clone(),
        working_dir: e.working_dir.clone(),
        provider: e.provider.clone(),
        agent_profile_id: e.agent_profile_id.clone(),
        is_adopted: false,
        created_at: ts,
        active_at: ts,
    }
}
