//! Brings a session's agent back: one at a time for each session, whoever asks. What is decided is
//! the core's ([`piton_core::resume`]); what becomes of it is in the log.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use piton_core::decide::{Command, Refusal};
use piton_core::event::{AgentResuming, Event};
use piton_core::id::SessionId;
use piton_core::reason::Reason;
use piton_core::resume::{self, Abilities, Leave, Opening, Plan, Policy, StartTrigger};
use piton_core::spool::OpenedAs;
use piton_core::state::{AgentStatus, Run};
use piton_core::{Code, Record, State, Timestamp};
use piton_exec::executor::Fault;
use piton_exec::protocol::Start;
use piton_store::{BoxFuture, Detail, Query, Select};
use tokio::sync::Mutex as Turn;

use crate::error::{Error, Result};
use crate::executions::Executions;
use crate::service::Handle;

/// How long an agent may take to be heard of.
const PATIENCE: Duration = Duration::from_secs(90);
/// Records in which the agent's past is looked for, and how many of its message ids are told.
const LOOKED_AT: u64 = 512;
const MESSAGES_MAX: usize = 64;
/// Agents that are started at the same time when the server starts.
const AT_ONCE: usize = 4;
const PAGE: usize = 256;

/// What is needed to start a session's agent.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Without the conversation: whether and which is decided here.
    pub start: Start,
    pub abilities: Abilities,
    /// Where it works.
    pub workspace: PathBuf,
}

/// Why an agent cannot be started, before anything was.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Obstacle {
    pub reason: Reason,
    pub code: Code,
    pub message: String,
}

/// Knows how agents are started.
pub trait Recipes: Send + Sync + fmt::Debug + 'static {
    /// What the session's agent can do, whether or not it can be started.
    fn abilities(&self, state: &State) -> Abilities;

    /// How long to wait before a conversation is gone on with that was opened at `opened_at`.
    fn settle(&self, _state: &State, _opened_at: Timestamp, _now: Timestamp) -> Option<Duration> {
        None
    }

    fn recipe(&self, session: &SessionId, state: &State) -> BoxFuture<Result<Recipe, Obstacle>>;
}

/// What is known of a conversation that is gone on with.
#[derive(Debug, Default, PartialEq, Eq)]
struct Past {
    /// The agent's own ids of its last messages: what it tells of them again is not news.
    message_ids: Vec<String>,
    /// The last one of a turn that is under way.
    in_turn: Option<String>,
    /// The last one of the last good turn, if that had any.
    finished_with: Option<String>,
    /// When it was opened, or, if that is longer ago than was looked, something later.
    opened_at: Option<Timestamp>,
}

impl Past {
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

/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Resumer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    handle: Handle,
    executions: Executions,
    recipes: Arc<dyn Recipes>,
    policy: Policy,
    turns: Mutex<HashMap<SessionId, Weak<Turn<()>>>>,
}

impl Resumer {
    pub fn new(
        handle: Handle,
        executions: Executions,
        recipes: Arc<dyn Recipes>,
        policy: Policy,
    ) -> Self {
        Self(Arc::new(Inner { handle, executions, recipes, policy, turns: Mutex::default() }))
    }

    pub fn policy(&self) -> Policy {
        self.0.policy
    }

    pub fn abilities(&self, state: &State) -> Abilities {
        self.0.recipes.abilities(state)
    }

    /// One at a time for a session.
    fn turn(&self, session: &SessionId) -> Arc<Turn<()>> {
        let mut turns = self.0.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(session).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(Turn::new(()));
        turns.insert(session.clone(), Arc::downgrade(&turn));
        turn
    }

    /// Sees to it that the session's agent runs, if this is an trigger for it; says what was decided.
    /// Returns when it was heard of.
    pub async fn ensure(&self, session: &SessionId, trigger: StartTrigger) -> Result<Plan> {
        let turn = self.turn(session);
        let _turn = turn.lock().await;
        self.carry_out(session, trigger, |opening| opening).await
    }

    /// The same by somebody's wish, and without the conversation that the agent had. One that runs
    /// and has nothing to do is ended first; one that is at work is not.
    pub async fn ensure_afresh(&self, session: &SessionId) -> Result<Plan> {
        let turn = self.turn(session);
        let _turn = turn.lock().await;
        let state = self.0.handle.state(session).await?;
        if state.facts.closed.is_none() && resume::is_running(&state.facts) {
            if let Some(run) = state.facts.run.filter(Run::is_open) {
                return Err(Refusal::RunInProgress { run: run.run_id }.into());
            }
            self.0.executions.stop_agent(session).await?;
            self.until(session, |state| !resume::is_running(&state.facts)).await?;
        }
        self.carry_out(session, StartTrigger::Manual, Opening::afresh).await
    }

    async fn carry_out(
        &self,
        session: &SessionId,
        trigger: StartTrigger,
        change: impl Fn(Opening) -> Opening,
    ) -> Result<Plan> {
        let Inner { handle, recipes, policy, .. } = &*self.0;
        let mut state = handle.state(session).await?;
        let planned =
            |state: &State| match resume::plan(state, recipes.abilities(state), *policy, trigger) {
                Plan::Start(opening) => Plan::Start(change(opening)),
                leave @ Plan::Leave(_) => leave,
            };
        let (mut plan, mut past) = (planned(&state), Past::default());
        if let Plan::Start(Opening { agent_session_id: Some(_), .. }) = &plan {
            past = self.past(session, &state).await?;
            let now = handle.view().now();
            if let Some(settle) = past.opened_at.and_then(|at| recipes.settle(&state, at, now)) {
                tracing::info!(%session, ?settle, "its conversation cannot be opened again yet");
                tokio::time::sleep(settle).await;
                state = handle.state(session).await?;
                (plan, past) = (planned(&state), self.past(session, &state).await?);
            }
        }
        match &plan {
            Plan::Leave(Leave::Running) => self.heard_of(session).await?,
            Plan::Leave(Leave::Closed) => return Err(Refusal::SessionClosed.into()),
            Plan::Leave(Leave::InVain) => self.give_up(session, &state).await?,
            Plan::Leave(Leave::Unproven | Leave::NotNow) => {}
            Plan::Start(opening) => self.start(session, &state, opening, past, trigger).await?,
        }
        Ok(plan)
    }

    async fn start(
        &self,
        session: &SessionId,
        state: &State,
        opening: &Opening,
        past: Past,
        trigger: StartTrigger,
    ) -> Result<()> {
        let Inner { handle, executions, .. } = &*self.0;
        let recipe = match self.0.recipes.recipe(session, state).await {
            Ok(recipe) => recipe,
            Err(obstacle) => {
                executions.cannot_launch(session, &obstacle).await?;
                return Err(Error::Obstacle(obstacle));
            }
        };
        if opening.launch {
            match executions.launch(session, recipe.workspace).await {
                // Somebody who only wanted the workspace was faster: theirs is the one.
                Err(error) if error.code() == Code::ExecutorAlive => {}
                launched => {
                    launched?;
                }
            }
        }
        let current = handle.state(session).await?;
        let executor = current.facts.executor.as_ref().filter(|executor| executor.may_live());
        let executor = executor.ok_or(Error::Refused(Refusal::ExecutorNotFound))?;
        let event = AgentResuming {
            execution_id: executor.execution_id.clone(),
            trigger,
            strategy: opening.strategy,
            history: opening.history,
            interruption_summary: opening.note,
        };
        handle.execute(session, Command::Observe { event: event.into(), message: None }).await?;
        let mut start = recipe.start;
        start.agent_session_id.clone_from(&opening.agent_session_id);
        if start.agent_session_id.is_some() {
            start.seen_message_ids = past.message_ids;
            if let Some(line) = &mut start.command_line {
                line.agent_message_id = past.finished_with;
            }
        }
        match executions.start_agent(session, start).await {
            Err(Error::Agentctl(Fault::Problem(problem))) if problem.code == "agent_running" => {}
            started => started?,
        }
        self.heard_of(session).await?;
        if let (Some(run_id), true) = (&opening.go_on, trigger != StartTrigger::Manual) {
            // Nobody is there to ask for it; who asks does so under their own name.
            let command = Command::Resume { run_id: run_id.clone() };
            match handle.execute(session, command).await {
                Err(Error::Refused(refusal)) => {
                    tracing::info!(%session, %refusal, "the run went on or ended meanwhile");
                }
                resumed => {
                    resumed?;
                }
            }
        }
        Ok(())
    }

    /// What the newest records say of the agent's conversation.
    async fn past(&self, session: &SessionId, state: &State) -> Result<Past> {
        let store = self.0.handle.view().store();
        let mut after = state.last_seq.saturating_sub(LOOKED_AT);
        let mut past = Past::default();
        while after < state.last_seq {
            let limit = usize::try_from(state.last_seq - after).unwrap_or(usize::MAX);
            let records = store.read(session, after, limit, Detail::Full).await?;
            let Some(last) = records.last() else { break };
            after = last.seq;
            for record in &records {
                past.take(record);
            }
        }
        let over = past.message_ids.len().saturating_sub(MESSAGES_MAX);
        past.message_ids.drain(..over);
        Ok(past)
    }

    /// Waits until the log says what became of the agent: who is answered may prompt it.
    async fn heard_of(&self, session: &SessionId) -> Result<()> {
        let mut has_started = false;
        let is_heard_of = |state: &State| {
            let agent = state.facts.agent.as_ref().map(|agent| agent.status);
            let runs = resume::is_running(&state.facts);
            let starts = runs && agent == Some(AgentStatus::Starting);
            has_started |= starts;
            // One that has not begun to start is still what it was before.
            agent == Some(AgentStatus::Error) || !starts && (runs || has_started)
        };
        self.until(session, is_heard_of).await
    }

    /// Waits until the log says it.
    async fn until(
        &self,
        session: &SessionId,
        mut is: impl FnMut(&State) -> bool + Send,
    ) -> Result<()> {
        let waiting = async {
            let mut tail = self.0.handle.tail(session, 0);
            loop {
                let state = self.0.handle.state(session).await?;
                if is(&state) {
                    return Ok(());
                }
                tail.seek(state.last_seq);
                tail.next().await?;
            }
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(heard) => heard,
            Err(_) => Err(Error::AgentLate),
        }
    }

    /// What was said was given to nobody, and nobody lives long enough to be given it.
    async fn give_up(&self, session: &SessionId, state: &State) -> Result<()> {
        let run = state.facts.run.as_ref().filter(|run| run.is_open());
        let Some(run_id) = run.map(|run| run.run_id.clone()) else { return Ok(()) };
        let command = Command::Interrupt { run_id, reason: Reason::AgentGaveUp };
        self.0.handle.execute(session, command).await.map(drop)
    }

    /// The same as [`Self::ensure`], without waiting for it.
    pub fn ensure_later(&self, session: &SessionId, trigger: StartTrigger) {
        let (resumer, session) = (self.clone(), session.clone());
        tokio::spawn(async move {
            if let Err(error) = resumer.ensure(&session, trigger).await {
                tracing::warn!(%session, code = %error.code(), %error, "no agent");
            }
        });
    }

    /// Sees to runs that no agent works on, for as long as the service runs.
    pub async fn watch(&self) {
        while let Some(session) = self.0.executions.stranded().await {
            let resumer = self.clone();
            tokio::spawn(async move { resumer.rescue(&session).await });
        }
    }

    async fn rescue(&self, session: &SessionId) {
        let rescued = async {
            let state = self.0.handle.state(session).await?;
            if !resume::is_stranded(&state) {
                return Ok(());
            }
            let vain = state.facts.agent.as_ref().map_or(0, |agent| agent.failed_starts);
            let trigger = if vain == 0 { StartTrigger::Prompt } else { StartTrigger::Retry };
            self.ensure(session, trigger).await.map(drop)
        };
        if let Err(error) = rescued.await {
            tracing::warn!(%session, code = %error.code(), %error, "nobody works on its run");
        }
    }

    /// Starts the agents that ran before the server did, if that is wanted: a few at the same time.
    pub async fn on_boot(&self) -> Result<()> {
        if self.0.policy.agent_restart != resume::AgentRestart::OnBoot {
            return Ok(());
        }
        let (mut after, mut starting) = (None, tokio::task::JoinSet::new());
        loop {
            let query = Query { task_id: None, select: Select::Unclosed, after, limit: PAGE };
            let page = self.0.handle.view().store().list(query).await?;
            for row in page.rows {
                if row.summary.facts.executor.is_none() {
                    continue;
                }
                if starting.len() >= AT_ONCE {
                    starting.join_next().await;
                }
                let (resumer, session) = (self.clone(), row.session);
                starting.spawn(async move {
                    // What a dead boot left is settled first.
                    let settled = resumer.0.handle.execute(&session, crate::executions::recover());
                    let ensured = async {
                        settled.await?;
                        resumer.ensure(&session, StartTrigger::Boot).await
                    };
                    if let Err(error) = ensured.await {
                        tracing::warn!(%session, code = %error.code(), %error, "no agent");
                    }
                });
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        while starting.join_next().await.is_some() {}
        Ok(())
    }
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
        let event = AgentUpdated { execution_id, what, run_id: None };
        let update = json!({ "agent_message_id": id });
        NewRecord::with_content(Timestamp::from_millis(0), event, "update", update).at(seq)
    }

    fn taken(events: Vec<Event>) -> Past {
        let mut past = Past::default();
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
        AgentUpdated { execution_id, what: id.to_owned(), run_id: None }.into()
    }

    fn started() -> Event {
        let (run_id, boot_id) = ("run_1".parse().unwrap(), "boot_1".parse().unwrap());
        RunStarted { run_id, boot_id, message_id: None }.into()
    }

    fn completed() -> Event {
        RunCompleted { run_id: "run_1".parse().unwrap(), stop_reason: None }.into()
    }

    /// What came after the last good turn is not gone on from.
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
