//! What an executor and its agent were seen to do.

use std::collections::BTreeSet;

use crate::code::AnyCode;
use crate::event::{Event, Seq};
use crate::id::ExecutionId;
use crate::reason::Reason;
use crate::resume;
use crate::state::{
    Agent, AgentStatus, AgentWait, Executor, ExecutorStatus, PromisedContext, State,
};

impl State {
    #[expect(clippy::too_many_lines, reason = "one arm for each kind of record")]
    pub(super) fn apply_execution(&mut self, seq: Seq, event: &Event) {
        match event {
            Event::ExecutorStarting(e) => {
                self.facts.executor = Some(Executor {
                    execution_id: e.execution_id.clone(),
                    runtime: e.runtime.clone(),
                    status: ExecutorStatus::Starting,
                    code: None,
                    reason: None,
                    error_seq: None,
                    promised: None,
                    expects_agent: false,
                });
                // A new execution has no agent yet; what the old one knew itself by stays.
                if let Some(agent) = &mut self.facts.agent {
                    agent.status = AgentStatus::Exited;
                    (agent.error, agent.error_seq, agent.ending_seq) = (None, None, None);
                }
            }
            Event::ExecutorReady(e) => self.executor_is(&e.execution_id, ExecutorStatus::Ready),
            Event::ExecutorUnreachable(e) => {
                let (code, reason) = (e.code.clone(), None);
                self.executor_fails(
                    seq,
                    &e.execution_id,
                    ExecutorStatus::Unreachable,
                    code,
                    reason,
                );
            }
            Event::ExecutorError(e) => {
                let status = ExecutorStatus::Error;
                self.executor_fails(seq, &e.execution_id, status, None, e.reason);
            }
            Event::ExecutorStopped(e) => self.executor_is(&e.execution_id, ExecutorStatus::Stopped),
            Event::ExecutorAbandoned(e) => {
                let executor = self.facts.executor.as_ref().filter(|executor| executor.may_live());
                if executor.is_some_and(|executor| executor.execution_id == e.execution_id) {
                    // It is not known whether it was given them: given to another one they might
                    // be done twice.
                    self.pending.clear();
                }
                self.executor_is(&e.execution_id, ExecutorStatus::Stopped);
            }
            Event::AgentWaiting(e) => {
                self.facts.agent_waits = Some(AgentWait { until: e.until, reason: e.reason });
            }
            Event::AgentResuming(e) => {
                self.facts.agent_waits = None;
                if let Some(executor) = &mut self.facts.executor
                    && executor.execution_id == e.execution_id
                {
                    let (strategy, history, note) = (e.strategy, e.history, e.interruption_summary);
                    executor.promised = Some(PromisedContext { strategy, history, note });
                    executor.expects_agent = executor.may_live();
                    // From now on it is the new start that fails or not.
                    if let Some(agent) = &mut self.facts.agent
                        && agent.status == AgentStatus::Error
                        && executor.expects_agent
                    {
                        agent.status = AgentStatus::Exited;
                        (agent.error, agent.error_seq) = (None, None);
                    }
                    self.features.resuming(seq);
                }
            }
            Event::AgentStarting(e) => {
                let before = self.facts.agent.as_ref().map(|agent| agent.status);
                let agent = self.set_agent_status(&e.execution_id, AgentStatus::Starting);
                // Told twice, it has started once.
                if let Some(agent) = agent.filter(|_| before != Some(AgentStatus::Starting)) {
                    agent.restored = None;
                    agent.failed_starts = agent.failed_starts.saturating_add(1);
                }
            }
            Event::AgentInitialized(e) => self.apply_initialized(e),
            Event::AgentReady(e) => {
                if self.is_current(&e.execution_id) {
                    self.features.ready();
                }
                let agent = self.set_agent_status(&e.execution_id, AgentStatus::Ready);
                if let (Some(agent), Some(id)) = (agent, &e.agent_session_id) {
                    agent.set_session_id(id);
                }
            }
            Event::AgentSessionAssigned(e) => {
                if self.is_current(&e.execution_id)
                    && let Some(agent) = &mut self.facts.agent
                {
                    agent.set_session_id(&e.agent_session_id);
                }
            }
            Event::AgentError(e) => {
                let before = self.facts.agent.as_ref().map(|agent| (agent.error, agent.error_seq));
                if let Some(agent) = self.set_agent_status(&e.execution_id, AgentStatus::Error) {
                    agent.error = Some(resume::agent_error(e.code.as_ref()));
                    // Said twice, it failed once.
                    let reported = before.filter(|(error, _)| *error == agent.error);
                    agent.error_seq = reported.and_then(|(_, reported)| reported).or(Some(seq));
                }
            }
            Event::AgentExited(e) => {
                self.set_agent_status(&e.execution_id, AgentStatus::Exited);
            }
            Event::AgentEnding(e) => {
                if self.is_current(&e.execution_id)
                    && let Some(agent) = &mut self.facts.agent
                {
                    agent.ending_seq = (agent.status == AgentStatus::Ready).then_some(seq);
                }
            }
            Event::WorkspaceRecreated(e) => {
                let has_history = self.has_history();
                if self.is_current(&e.execution_id)
                    && let Some(agent) = &mut self.facts.agent
                {
                    agent.clear_session_id();
                    agent.context_reason = has_history.then_some(Reason::WorkspaceRecreated);
                }
            }
            Event::AgentSessionCleared(e) => {
                let has_history = self.has_history();
                if self.is_current(&e.execution_id)
                    && let Some(agent) = &mut self.facts.agent
                {
                    let had_one = agent.session_id.is_some();
                    agent.apply_session_cleared(e.agent_session_id.as_deref());
                    // Whatever it calls itself next is another conversation.
                    if had_one && agent.session_id.is_none() {
                        let reason = e.reason.unwrap_or(Reason::SessionRefused);
                        agent.context_reason = has_history.then_some(reason);
                        self.mark_fresh_start();
                    }
                }
            }
            _ => {}
        }
    }

    /// The executor failed, or does not respond.
    fn executor_fails(
        &mut self,
        seq: Seq,
        execution_id: &ExecutionId,
        status: ExecutorStatus,
        code: Option<AnyCode>,
        reason: Option<Reason>,
    ) {
        let before = self.facts.executor.clone();
        self.executor_is(execution_id, status);
        if let Some(executor) = &mut self.facts.executor
            && executor.execution_id == *execution_id
            && executor.status == status
        {
            (executor.code, executor.reason) = (code, reason);
            // Said twice, it failed once.
            let same = |old: &Executor| {
                old.status == status && old.code == executor.code && old.reason == executor.reason
            };
            let reported = before.filter(same).and_then(|old| old.error_seq);
            executor.error_seq = reported.or(Some(seq));
        }
    }

    /// An execution is one life: what was stopped or given up does not come back under its id.
    fn executor_is(&mut self, execution_id: &ExecutionId, status: ExecutorStatus) {
        let Some(executor) = &mut self.facts.executor else { return };
        if executor.execution_id != *execution_id || executor.status == ExecutorStatus::Stopped {
            return;
        }
        executor.status = status;
        (executor.code, executor.reason, executor.error_seq) = (None, None, None);
        executor.expects_agent &= executor.may_live();
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
            agent.ending_seq = None;
            agent.status = AgentStatus::Exited;
        }
    }

    /// Whether what is said about an execution's agent is about the session's agent.
    pub(super) fn is_current(&self, execution_id: &ExecutionId) -> bool {
        self.facts.executor.as_ref().is_none_or(|e| e.execution_id == *execution_id)
    }

    /// The agent, if the event is about it. One whose executor is stopped does not start any more;
    /// what it called itself is still worth knowing.
    pub(super) fn set_agent_status(
        &mut self,
        execution_id: &ExecutionId,
        status: AgentStatus,
    ) -> Option<&mut Agent> {
        if !self.is_current(execution_id) {
            return None;
        }
        if let Some(executor) = &mut self.facts.executor {
            executor.expects_agent = false;
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
        agent.ending_seq = None;
        (agent.error, agent.error_seq) = (None, None);
        Some(agent)
    }
}
