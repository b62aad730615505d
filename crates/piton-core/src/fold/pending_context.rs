//! What an agent does not know: because it started without its conversation, or because it was interrupted.

use super::Change;
use crate::event::{AgentInitialized, AgentUpdated, PromptPrepared, RunInterrupted, Seq};
use crate::id::RunId;
use crate::interruption::Activity;
use crate::limits::{FAILED_STARTS_MAX, LOST_CALLS_MAX, LOST_QUESTIONS_MAX};
use crate::reason::Reason;
use crate::spool::{OpenedAs, REFUSAL};
use crate::state::{
    AgentStatus, Effect, InterruptedWork, MessageRef, PendingContext, Prepared, State,
    UndeliveredPrompt,
};

impl State {
    /// A client wants something of the agent: failed starts count from zero.
    pub(super) fn reset_failed_starts(&mut self) {
        if let Some(agent) = &mut self.facts.agent {
            agent.failed_starts = 0;
        }
    }

    /// A prompt is to be delivered. After a run whose agent could not be started, one more start is
    /// tried.
    pub(super) fn mark_prompted(&mut self, follows_failure: bool) {
        if let Some(agent) = &mut self.facts.agent {
            agent.failed_starts = if follows_failure { FAILED_STARTS_MAX - 1 } else { 0 };
        }
    }

    pub(super) fn mark_prepared(&mut self, seq: Seq, e: &PromptPrepared) {
        let (of_seq, execution_id, history) = (e.of_seq, e.execution_id.clone(), e.history);
        self.prepared = Some(Prepared { of_seq, seq, execution_id, history });
    }

    /// An effect was carried out. If it was a prompt, the agent was given with it what was prepared.
    pub(super) fn done(&mut self, of_seq: Seq) -> Change {
        let prepared = self.prepared.take_if(|prepared| prepared.of_seq == of_seq);
        // It was given after all, and with it every prompt that what was prepared for it carries.
        let carried = prepared.as_ref().map_or(0, |prepared| prepared.seq);
        self.pending_context.undelivered.retain(|u| u.of_seq != of_seq && u.said.seq > carried);
        if !self.pending.remove(&of_seq).is_some_and(|effect| effect.is_prompt()) {
            return Change::Inner;
        }
        self.reset_failed_starts();
        let carried_history = prepared.is_some_and(|prepared| prepared.history);
        // It may have become pending after this prompt was made: then the next one carries it.
        self.pending_context = PendingContext {
            history: self.pending_context.history && !carried_history,
            ..PendingContext::default()
        };
        match self.facts.agent.as_mut().filter(|_| carried_history) {
            Some(agent) => {
                (agent.restored, agent.is_history_unconfirmed) = (Some(true), true);
                agent.is_injected = true;
                Change::Summary
            }
            None => Change::Inner,
        }
    }

    /// A turn ended well: what the agent was told with it, or before, it has kept. One that is
    /// killed in its turn may have kept nothing, and what it refuses it drops by the protocol's rule.
    pub(super) fn mark_history_kept(&mut self, stop_reason: Option<&str>) {
        if stop_reason == Some(REFUSAL) {
            self.mark_history_lost();
        } else if let Some(agent) =
            self.facts.agent.as_mut().filter(|agent| agent.is_history_unconfirmed)
        {
            (agent.is_history_unconfirmed, agent.lacks_history) = (false, false);
        }
    }

    /// What it was told and has not kept it may not know.
    pub(super) fn mark_history_lost(&mut self) {
        if self.facts.agent.as_ref().is_some_and(|agent| agent.is_history_unconfirmed) {
            self.keep_conversation();
        }
    }

    /// It refused a prompt in a turn that was stopped.
    pub(super) fn apply_refusal(&mut self, e: &AgentUpdated) -> Change {
        if !self.is_current(&e.execution_id) {
            return Change::Inner;
        }
        self.mark_history_lost();
        Change::Summary
    }

    pub(super) fn apply_initialized(&mut self, e: &AgentInitialized) {
        if !self.is_current(&e.execution_id) {
            return;
        }
        if self.facts.agent.is_none() {
            self.set_agent_status(&e.execution_id, AgentStatus::Starting);
        }
        if let Some(agent) = &mut self.facts.agent {
            agent.capabilities = Some(e.capabilities);
        }
        if e.opened_as == OpenedAs::New {
            let has_history = self.has_history();
            if let Some(agent) = &mut self.facts.agent {
                let can_resume = e.capabilities.resume || e.capabilities.load;
                let reason = match (&agent.session_id, agent.context_reason) {
                    // It said so itself, just now or when it was started before.
                    (None, Some(reason)) => reason,
                    _ if e.requested_session_id.is_some() => Reason::SessionRefused,
                    (Some(_), _) if can_resume => Reason::UserRequest,
                    (Some(_), _) => Reason::NotResumable,
                    (None, None) => Reason::MissingResumeToken,
                };
                agent.context_reason = has_history.then_some(reason);
                agent.clear_session_id();
            }
            self.mark_fresh_start();
        } else {
            if let Some(agent) = self.facts.agent.as_mut().filter(|agent| !agent.lacks_history) {
                agent.context_reason = None;
            }
            self.keep_conversation();
        }
    }

    /// The agent has a conversation in which nothing was said.
    pub(super) fn mark_fresh_start(&mut self) {
        let has_history = self.has_history();
        if let Some(agent) = &mut self.facts.agent {
            agent.lacks_history = has_history;
        }
        self.keep_conversation();
    }

    /// The agent has the conversation that it had, whatever it knows of the rest.
    fn keep_conversation(&mut self) {
        let has_history = self.has_history();
        let Some(agent) = &mut self.facts.agent else { return };
        (agent.is_history_unconfirmed, agent.is_injected) = (false, false);
        agent.restored = has_history.then_some(!agent.lacks_history);
        let promised = self.facts.executor.as_ref().and_then(|executor| executor.promised);
        let may_tell = promised.is_some_and(|promised| promised.history);
        self.pending_context.history = agent.lacks_history && may_tell;
    }

    /// Whether it matters to the log that agentctl accepted the command of this record: the command is
    /// demanded, or an agent may have been given a prompt with it that counts as undelivered.
    pub(crate) fn awaits_delivery(&self, of_seq: Seq) -> bool {
        self.pending.contains_key(&of_seq)
            || self.pending_context.undelivered.iter().any(|prompt| prompt.of_seq == of_seq)
            || !self.pending_context.undelivered.is_empty()
                && self.prepared.as_ref().is_some_and(|prepared| prepared.of_seq == of_seq)
    }

    /// Whether an agent was given anything in this session.
    pub fn has_history(&self) -> bool {
        let is_pending = |run_id: &RunId| {
            self.pending
                .values()
                .any(|effect| matches!(effect, Effect::Begin { .. }) && effect.run_id() == run_id)
        };
        let is_given =
            |run_id: &RunId| !is_pending(run_id) && !self.pending_context.is_undelivered(run_id);
        self.recent_runs.iter().any(is_given)
    }

    /// A run is interrupted: what is cut off now?
    pub(super) fn note_interrupted_work(
        &mut self,
        seq: Seq,
        e: &RunInterrupted,
        activity: Option<Activity>,
    ) {
        self.keep_undelivered();
        let Some(run) = &self.facts.run else { return };
        if self.pending_context.is_undelivered(&run.run_id) {
            return;
        }
        let mut calls: Vec<_> = self.calls.values().map(|call| call.seq).collect();
        calls.sort_unstable();
        let calls_total = calls.len() as u64;
        calls.truncate(LOST_CALLS_MAX);
        let mut questions: Vec<_> = run.waits.values().map(|wait| wait.since_seq).collect();
        questions.sort_unstable();
        questions.truncate(LOST_QUESTIONS_MAX);
        // Ids are ordered by time.
        let open = self.messages.keys().next_back().cloned();
        // An agent that ended its turn has ended its message, too, wherever it was in it.
        let last = || self.last_answer.clone().filter(|_| e.stop_reason.is_some());
        self.pending_context.note = Some(InterruptedWork {
            run_id: run.run_id.clone(),
            seq,
            reason: e.reason,
            activity,
            prompt_seq: run.message_seq,
            message: open.or_else(last),
            calls,
            calls_total,
            questions,
        });
    }

    /// What the current run begins with is about to be forgotten, and no agent was given it. Only
    /// where agents live outside of our boots can that be known: their spools have been read.
    pub(super) fn keep_undelivered(&mut self) {
        let outside = self.facts.executor.is_some()
            || self.info.as_ref().is_some_and(|info| info.agent_profile_id.is_some());
        let run = self.facts.run.as_ref().filter(|run| run.is_unfinished() && outside);
        let Some(run_id) = run.map(|run| run.run_id.clone()) else { return };
        let Some(of_seq) = self.prompts(&run_id).next() else { return };
        let first = self.pending.get(&of_seq);
        if let Some(Effect::Begin { message_id: Some(id), message_seq: Some(seq), .. }) = first {
            let said = MessageRef { message_id: id.clone(), seq: *seq };
            if !self.pending_context.is_undelivered(&run_id) {
                let executor = self.facts.executor.as_ref().filter(|executor| executor.may_live());
                let execution_id = executor.map(|executor| executor.execution_id.clone());
                let prompt = UndeliveredPrompt { run_id, of_seq, execution_id, said };
                self.pending_context.undelivered.push(prompt);
            }
        }
    }
}
