//! Starting a session's agent: one at a time for each session, since its supervisor does it. Whether
//! and how is the core's to decide ([`piton_core::resume`]); what becomes of it is in the log.

use std::time::Duration;

use piton_core::decide::{Command, Refusal};
use piton_core::event::{AgentResuming, AgentWaiting, Event, WorkspaceRecreated};
use piton_core::id::{ExecutionId, SessionId};
use piton_core::reason::Reason;
use piton_core::resume::{
    self, AfterFailure, Plan, SkipReason, StartContext, StartPlan, StartTrigger,
};
use piton_core::spool::OpenedAs;
use piton_core::state::Run;
use piton_core::{Code, Record, State, Timestamp};
use piton_exec::executor::Fault;
use piton_store::Detail;

use super::{Agents, LaunchConfig, LaunchConfigs, StartError};
use crate::error::{Error, Result, StartFailure};
use crate::executions::Executions;
use crate::service::Handle;

/// Starts for one prompt, the first included, and the delay before the second.
const START_RETRIES_MAX: u32 = 3;
const START_RETRY_DELAY: Duration = Duration::from_millis(500);
/// The newest records, in which the agent's conversation is looked for.
const CONVERSATION_RECORDS_MAX: u64 = 512;
/// How many of its message ids an agent is given.
const MESSAGE_IDS_MAX: usize = 64;

/// What is known of a conversation that is continued.
#[derive(Debug, Default, PartialEq, Eq)]
struct Conversation {
    /// The agent's own ids of its last messages: what it repeats of them is not new.
    message_ids: Vec<String>,
    /// The last one of a turn that is under way.
    in_turn: Option<String>,
    /// The last one of the last good turn, if that had any.
    finished_with: Option<String>,
    /// When it was opened, or, if that is longer ago than was looked, something later.
    opened_at: Option<Timestamp>,
}

impl Conversation {
    /// Takes the next record, in their order.
    fn take(&mut self, record: &Record) {
        match record.event() {
            Ok(Event::AgentUpdated(e)) if e.what == "message_id" => {
                let update = record.content_field("update");
                let id = update.and_then(|u| Some(u.get("agent_message_id")?.as_str()?.to_owned()));
                self.in_turn.clone_from(&id);
                self.message_ids.extend(id);
            }
            Ok(Event::RunStarted(_) | Event::RunInterrupted(_)) => self.in_turn = None,
            Ok(Event::RunCompleted(_)) => self.finished_with = self.in_turn.take(),
            // What was said in another conversation is no place in this one.
            Ok(Event::AgentInitialized(e)) if e.opened_as == OpenedAs::New => self.begins(),
            Ok(Event::AgentSessionCleared(_)) => self.begins(),
            Ok(Event::AgentReady(_)) => self.opened_at = Some(record.ts),
            _ => {}
        }
        self.opened_at.get_or_insert(record.ts);
    }

    fn begins(&mut self) {
        (self.in_turn, self.finished_with) = (None, None);
    }
}

/// Starts one session's agent.
pub(super) struct Starter {
    pub(super) handle: Handle,
    pub(super) executions: Executions,
    pub(super) agents: Agents,
    pub(super) session: SessionId,
    /// How the agent is to log in before it opens a conversation.
    pub(super) auth_method: Option<String>,
    /// What the agent is to know of what was said before.
    pub(super) context: StartContext,
}

impl Starter {
    /// Decides, starts if that is what was decided, and returns when the log says what became of it.
    /// A prompt that waits for the agent has the start retried within limits; then its run is
    /// interrupted.
    pub(super) async fn start(self, trigger: StartTrigger) -> Result<Plan> {
        let mut outcome = self.attempt(trigger).await;
        for retry in 0..START_RETRIES_MAX {
            let Err(error @ (Error::StartFailed(_) | Error::StartError(_) | Error::Agentctl(_))) =
                &outcome
            else {
                return outcome;
            };
            let state = self.handle.state(&self.session).await?;
            match resume::after_failed_start(&state) {
                AfterFailure::Retry if retry + 1 < START_RETRIES_MAX => {
                    tracing::warn!(session = %self.session, code = %error.code(), %error, retry, "the agent is started again");
                    tokio::time::sleep(START_RETRY_DELAY * 2_u32.pow(retry)).await;
                    outcome = self.attempt(StartTrigger::Retry).await;
                }
                AfterFailure::Retry => self.give_up(&state, Reason::AgentStartFailed).await?,
                AfterFailure::Interrupt(_) => {
                    self.give_up(&state, Reason::AgentStartFailed).await?;
                    return outcome;
                }
                AfterFailure::DoNothing => return outcome,
            }
        }
        outcome
    }

    async fn attempt(&self, trigger: StartTrigger) -> Result<Plan> {
        if self.context == StartContext::Native {
            return self.carry_out(trigger).await;
        }
        let session = &self.session;
        let state = self.handle.state(session).await?;
        if state.facts.closed.is_none() && resume::is_running(&state.facts) {
            if let Some(run) = state.facts.run.filter(Run::is_open) {
                return Err(Refusal::RunInProgress { run: run.run_id }.into());
            }
            self.executions.stop_agent(session).await?;
            wait_until(&self.handle, session, |state| !resume::is_running(&state.facts)).await?;
        }
        self.carry_out(trigger).await
    }

    async fn carry_out(&self, trigger: StartTrigger) -> Result<Plan> {
        let Self { handle, agents, session, .. } = self;
        let catalog = &agents.catalog;
        let mut state = handle.state(session).await?;
        let planned = |state: &State| match resume::plan(
            state,
            catalog.abilities(state),
            agents.policy,
            trigger,
        ) {
            Plan::Start(opening) => Plan::Start(opening.with_context(self.context)),
            leave @ Plan::Skip(_) => leave,
        };
        let mut has_settled = false;
        let (plan, conversation) = loop {
            let plan = planned(&state);
            let mut conversation = Conversation::default();
            if plan == Plan::Skip(SkipReason::Ending) {
                // The supervisor ends it. Another one beside it would be refused.
                wait_until(handle, session, |state| !resume::is_ending(&state.facts)).await?;
                state = handle.state(session).await?;
                continue;
            }
            if plan == Plan::Skip(SkipReason::Restoring) {
                wait_until(handle, session, |state| state.facts.restore.is_none()).await?;
                state = handle.state(session).await?;
                continue;
            }
            if matches!(plan, Plan::Start(_))
                && let Some(event) = workspace_gone(catalog.as_ref(), session, &state)
            {
                tracing::warn!(%session, "the workspace is gone; the agent starts fresh");
                handle.execute(session, Command::Observe { event, message: None }).await?;
                state = handle.state(session).await?;
                continue;
            }
            if let Plan::Start(StartPlan { agent_session_id: Some(_), .. }) = &plan {
                conversation = self.conversation(&state).await?;
                let now = handle.view().now();
                let settle = conversation.opened_at.and_then(|at| catalog.settle(&state, at, now));
                if let Some(settle) = settle.filter(|_| !has_settled) {
                    tracing::info!(%session, ?settle, "the conversation of the session cannot be opened again yet");
                    let (until, reason) = (now.after(settle), Reason::AgentWaitingToLoad);
                    let event = AgentWaiting { until, reason }.into();
                    handle.execute(session, Command::Observe { event, message: None }).await?;
                    tokio::time::sleep(settle).await;
                    state = handle.state(session).await?;
                    has_settled = true;
                    continue;
                }
            }
            break (plan, conversation);
        };
        match &plan {
            Plan::Skip(SkipReason::Running) => self.wait_for_agent().await?,
            Plan::Skip(SkipReason::Closed) => return Err(Refusal::SessionClosed.into()),
            Plan::Skip(SkipReason::RetriesExhausted) => {
                self.give_up(&state, Reason::AgentGaveUp).await?;
            }
            Plan::Skip(SkipReason::Unproven) => return Err(self.failure(&state).await.into()),
            // The end of an agent was waited for.
            Plan::Skip(SkipReason::NotNow | SkipReason::Ending | SkipReason::Restoring) => {}
            Plan::Start(opening) => {
                self.start_agent(&state, opening, conversation, trigger).await?;
            }
        }
        Ok(plan)
    }

    async fn start_agent(
        &self,
        state: &State,
        opening: &StartPlan,
        conversation: Conversation,
        trigger: StartTrigger,
    ) -> Result<()> {
        let Self { handle, executions, session, .. } = self;
        let launch_config = match self.launch_config(state).await? {
            Ok(launch_config) => launch_config,
            Err(start_error) => {
                executions.cannot_launch(session, &start_error).await?;
                return Err(Error::StartError(start_error));
            }
        };
        let resuming = |execution_id: &ExecutionId| AgentResuming {
            execution_id: execution_id.clone(),
            trigger,
            strategy: opening.strategy,
            history: opening.history,
            interruption_summary: opening.note,
            context: None,
            context_reason: None,
        };
        let mut is_recorded = false;
        if opening.launch {
            match executions.launch_now(session, launch_config.workspace, Some(&resuming)).await {
                // A caller who only wanted the workspace was faster: that execution is the one.
                Err(error) if error.code() == Code::ExecutorAlive => {}
                launched => {
                    launched?;
                    is_recorded = true;
                }
            }
        }
        let current = handle.state(session).await?;
        let executor = current.facts.executor.as_ref().filter(|executor| executor.may_live());
        let executor = executor.ok_or(Error::Refused(Refusal::ExecutorNotFound))?;
        if !is_recorded {
            let event = resuming(&executor.execution_id).into();
            handle.execute(session, Command::Observe { event, message: None }).await?;
        }
        let mut start = launch_config.start;
        start.agent_session_id.clone_from(&opening.agent_session_id);
        if start.agent_session_id.is_some() {
            start.seen_message_ids = conversation.message_ids;
            if let Some(line) = &mut start.command_line {
                line.agent_message_id = conversation.finished_with;
            }
        }
        let agent = current.facts.agent.as_ref();
        let has_conversation = agent.is_some_and(|agent| {
            agent.session_id.is_some() || !agent.earlier_session_ids.is_empty()
        });
        if let Some(fork) =
            current.features.fork.as_ref().filter(|_| self.context == StartContext::Native)
            && start.agent_session_id.is_none()
            && !has_conversation
        {
            // The copy is made once; from then on the session has a conversation of its own.
            start.agent_session_id = Some(fork.from_agent_session_id.clone());
            start.fork = true;
        }
        if self.auth_method.is_some() {
            start.auth_method.clone_from(&self.auth_method);
        }
        // As of now: what was chosen since the record above is given to it a second time.
        start.choice = handle.state(session).await?.features.choices.all();
        match executions.start_agent(session, start).await {
            Ok(()) => {}
            Err(Error::Agentctl(Fault::Problem(problem))) if problem.code == Code::AgentRunning => {
            }
            Err(error) => {
                self.record_failure(&executor.execution_id, &error).await;
                // Only the answer may have been lost.
                let facts = handle.state(session).await?.facts;
                if !facts.can_receive() && !resume::is_starting(&facts) {
                    return Err(error);
                }
            }
        }
        self.wait_for_agent().await?;
        if let Err(error) = executions.apply_choices(session).await {
            tracing::warn!(%session, code = %error.code(), %error, "the agent was not configured as chosen");
        }
        if let (Some(run_id), true) = (&opening.run_to_continue, trigger != StartTrigger::Manual) {
            // No caller is there to ask for it; one that asks does so under its own name.
            let command = Command::Resume { run_id: run_id.clone() };
            match handle.execute(session, command).await {
                Err(Error::Refused(refusal)) => {
                    tracing::info!(%session, %refusal, "the run was continued or ended meanwhile");
                }
                resumed => {
                    resumed?;
                }
            }
        }
        Ok(())
    }

    /// The start came to nothing before agentctl knew of it, unless the spool says otherwise.
    async fn record_failure(&self, execution: &ExecutionId, error: &Error) {
        let Error::Agentctl(fault) = error else { return };
        let (execution_id, code) = (execution.clone(), fault.code());
        let command = Command::FailStart { execution_id, code, message: fault.to_string() };
        if let Err(error) = self.handle.execute(&self.session, command).await {
            let session = &self.session;
            tracing::warn!(%session, code = %error.code(), %error, "a failed start was not recorded");
        }
    }

    /// How the agent is started, with the session's own MCP servers.
    async fn launch_config(&self, state: &State) -> Result<Result<LaunchConfig, StartError>> {
        let Self { handle, agents, session, .. } = self;
        let mut launch_config = match agents.catalog.launch_config(session, state).await {
            Ok(launch_config) => launch_config,
            Err(start_error) => return Ok(Err(start_error)),
        };
        for server in handle.view().mcp_servers(session, state).await? {
            match server.resolve(|name| std::env::var(name).ok()) {
                Ok(server) => launch_config.start.mcp_servers.push(server),
                Err(message) => {
                    let (reason, code) = (Reason::ExecutorError, Code::ConfigInvalid);
                    return Ok(Err(StartError { reason, code, message }));
                }
            }
        }
        Ok(Ok(launch_config))
    }

    /// What the newest records say of the agent's conversation.
    async fn conversation(&self, state: &State) -> Result<Conversation> {
        let store = self.handle.view().store();
        let mut after = state.last_seq.saturating_sub(CONVERSATION_RECORDS_MAX);
        let mut conversation = Conversation::default();
        while after < state.last_seq {
            let limit = usize::try_from(state.last_seq - after).unwrap_or(usize::MAX);
            let records = store.read(&self.session, after, limit, Detail::Full).await?;
            let Some(last) = records.last() else { break };
            after = last.seq;
            for record in &records {
                conversation.take(record);
            }
        }
        let over = conversation.message_ids.len().saturating_sub(MESSAGE_IDS_MAX);
        conversation.message_ids.drain(..over);
        Ok(conversation)
    }

    /// Waits until the log says what became of the agent. That it runs is success: the caller may
    /// prompt it then.
    async fn wait_for_agent(&self) -> Result<()> {
        wait_until(&self.handle, &self.session, |s| !resume::is_starting(&s.facts)).await?;
        let state = self.handle.state(&self.session).await?;
        if state.facts.can_receive() {
            return Ok(());
        }
        Err(self.failure(&state).await.into())
    }

    /// Why the agent does not run.
    async fn failure(&self, state: &State) -> StartFailure {
        self.handle.view().start_failure(&self.session, state).await
    }

    /// The prompt was given to no agent, and no agent lives long enough to be given it.
    async fn give_up(&self, state: &State, reason: Reason) -> Result<()> {
        let run = state.facts.run.as_ref().filter(|run| run.is_open());
        let Some(run_id) = run.map(|run| run.run_id.clone()) else { return Ok(()) };
        let command = Command::Interrupt { run_id, reason };
        self.handle.execute(&self.session, command).await.map(drop)
    }
}

/// Waits until the log says it, for as long as a start may take.
pub(super) async fn wait_until(
    handle: &Handle,
    session: &SessionId,
    mut is_so: impl FnMut(&State) -> bool + Send,
) -> Result<()> {
    let waiting = async {
        let mut tail = handle.tail(session, 0);
        loop {
            let state = handle.state(session).await?;
            if is_so(&state) {
                return Ok(());
            }
            tail.seek(state.last_seq);
            tail.next().await?;
        }
    };
    match tokio::time::timeout(handle.settings().agent_start_timeout, waiting).await {
        Ok(waited) => waited,
        Err(_) => Err(Error::AgentLate),
    }
}

/// What to record if the workspace that an agent's conversation is about is gone: the agent must not go
/// on as if its files were there.
pub(crate) fn workspace_gone(
    catalog: &dyn LaunchConfigs,
    session: &SessionId,
    state: &State,
) -> Option<Event> {
    let executor = state.facts.executor.as_ref()?;
    let event = WorkspaceRecreated { execution_id: executor.execution_id.clone() };
    catalog.is_workspace_gone(session, state).then(|| event.into())
}

#[cfg(test)]
mod tests {
    use piton_core::NewRecord;
    use piton_core::event::{
        AgentInitialized, AgentReady, AgentUpdated, RunCompleted, RunInterrupted, RunStarted,
    };
    use serde_json::json;

    use super::*;

    fn message(seq: u64, id: &str) -> Record {
        let (execution_id, what) = ("exec_1".parse().unwrap(), "message_id".to_owned());
        let event = AgentUpdated { execution_id, what, run_id: None, truncated: false };
        let update = json!({ "agent_message_id": id });
        NewRecord::with_content(Timestamp::from_millis(0), event, "update", update).at(seq)
    }

    fn taken(events: Vec<Event>) -> Conversation {
        let mut past = Conversation::default();
        for (seq, event) in (1..).zip(events) {
            let at = Timestamp::from_millis(i64::try_from(seq).unwrap());
            let record = match event {
                Event::AgentUpdated(e) => message(seq, &e.what),
                event => NewRecord::new(at, event).at(seq),
            };
            past.take(&record);
        }
        past
    }

    fn said(id: &str) -> Event {
        let execution_id = "exec_1".parse().unwrap();
        AgentUpdated { execution_id, what: id.to_owned(), run_id: None, truncated: false }.into()
    }

    fn started() -> Event {
        let (run_id, boot_id) = ("run_1".parse().unwrap(), "boot_1".parse().unwrap());
        RunStarted { run_id, boot_id, message_id: None }.into()
    }

    fn completed() -> Event {
        RunCompleted { run_id: "run_1".parse().unwrap(), stop_reason: None, truncated: false }
            .into()
    }

    /// An agent does not resume from messages after the last good turn.
    #[test]
    fn a_conversation_is_gone_on_with_where_its_last_good_turn_ended() {
        let ready = AgentReady { execution_id: "exec_1".parse().unwrap(), agent_session_id: None };
        let past = taken(vec![started(), said("m1"), completed(), ready.into(), said("m2")]);
        assert_eq!(past.message_ids, ["m1", "m2"]);
        assert_eq!(past.finished_with.as_deref(), Some("m1"));
        assert_eq!(past.opened_at, Some(Timestamp::from_millis(4)));
    }

    #[test]
    fn a_good_turn_without_messages_ends_nowhere_that_could_be_named() {
        let past = taken(vec![started(), said("m1"), completed(), started(), completed()]);
        assert_eq!(past.finished_with, None, "m1 comes before the last good turn");
    }

    #[test]
    fn a_turn_that_was_cut_off_is_no_part_of_the_good_one_that_follows() {
        let interrupted = RunInterrupted {
            run_id: "run_1".parse().unwrap(),
            reason: Reason::ProcessExit,
            boot_id: None,
            phase: None,
            stop_reason: None,
        };
        let past = taken(vec![started(), said("m1"), interrupted.into(), completed()]);
        assert_eq!(past.finished_with, None);
    }

    #[test]
    fn what_another_conversation_ended_with_is_no_place_in_this_one() {
        let described = AgentInitialized {
            execution_id: "exec_2".parse().unwrap(),
            opened_as: OpenedAs::New,
            agent: None,
            capabilities: piton_core::spool::SessionCapabilities::default(),
            requested_session_id: None,
            context_restored: None,
        };
        let past = taken(vec![started(), said("m1"), completed(), described.into()]);
        assert_eq!(past.finished_with, None);
    }
}
