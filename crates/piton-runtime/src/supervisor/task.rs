//! One session's supervisor: it looks at the log and at what it knows of the execution, asks the table
//! for the next step, carries it out, and looks again. With nothing to do it waits to be woken.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use piton_core::decide::{Command, Probe, Verdict};
use piton_core::id::{BootId, ExecutionId, SessionId};
use piton_core::planted::{self, Bug};
use piton_core::resume::{self, AgentRestart, StartContext, StartTrigger};
use piton_core::supervise::{self, Known, Link, Owner, Step};
use piton_core::{Code, State};
use piton_exec::executor::{Fault, Found};
use piton_store::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::starting::Starter;
use super::{Message, Outcome, StartRequest, Supervisors, Wake};
use crate::error::{Error, Result};
use crate::executions::{Executions, Over, is_not_ours, pump};
use crate::service::Handle;

/// How long an executor may take to say that it lives.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection that lasted so long was a good one: the delays begin from the first again.
const GOOD_CONNECTION: Duration = Duration::from_secs(1);
/// Until something is tried again that did not work.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// A step that changes nothing is not repeated for ever.
const REPEATED_STEPS_MAX: u32 = 8;

/// A task of the supervisor's that runs while it follows.
enum JobDone {
    Leftover(ExecutionId),
    Launch,
    Choices,
}

/// What to do after a look.
enum Next {
    Look,
    /// Until it is woken, a job ends, the connection is lost, or this moment has come.
    Wait(Option<Instant>),
    End,
}

pub(super) struct Supervisor {
    shared: Supervisors,
    handle: Handle,
    session: SessionId,
    inbox: mpsc::Receiver<Message>,
    /// The execution that all below is about.
    execution: Option<ExecutionId>,
    link: Link,
    /// Since when it has not answered.
    silent_since: Option<Instant>,
    /// Connections in a row that were not made, or did not last.
    failures: u32,
    /// When the next one is tried.
    retry_at: Option<Instant>,
    connected_at: Instant,
    following: Option<BoxFuture<Result<Over>>>,
    /// Until then the agent stays, though the log says that it has nothing to do.
    in_use_until: Option<Instant>,
    starts: VecDeque<StartRequest>,
    /// A prompt has no agent to be given to.
    is_undelivered: bool,
    starting: Option<BoxFuture<()>>,
    jobs: FuturesUnordered<BoxFuture<JobDone>>,
    /// Leftover executions that are being ended.
    ending: HashSet<ExecutionId>,
    /// Callers that wait until it is settled, and how much was written when they came.
    settlers: Vec<(oneshot::Sender<Result<Outcome>>, u64)>,
    /// How often something was written down about the execution.
    written: u64,
    repeated: u32,
}

impl Supervisor {
    pub(super) fn new(
        shared: Supervisors,
        handle: Handle,
        session: SessionId,
        inbox: mpsc::Receiver<Message>,
    ) -> Self {
        Self {
            shared,
            handle,
            session,
            inbox,
            execution: None,
            link: Link::Unknown,
            silent_since: None,
            failures: 0,
            retry_at: None,
            connected_at: Instant::now(),
            following: None,
            in_use_until: None,
            starts: VecDeque::new(),
            is_undelivered: false,
            starting: None,
            jobs: FuturesUnordered::new(),
            ending: HashSet::new(),
            settlers: Vec::new(),
            written: 0,
            repeated: 0,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            while let Ok(message) = self.inbox.try_recv() {
                self.take(message);
            }
            let next = match self.advance().await {
                Ok(next) => next,
                Err(error) => self.fail(&error),
            };
            match next {
                Next::Look => {}
                Next::Wait(until) => self.wait(until).await,
                Next::End => {
                    let shared = self.shared.clone();
                    match shared.end(&self.session, &mut self.inbox) {
                        Some(message) => self.take(message),
                        None => break,
                    }
                }
            }
        }
        self.disconnect();
        if let Some(executions) = self.executions() {
            executions.forget_secrets(&self.session);
        }
    }

    fn executions(&self) -> Option<&Executions> {
        self.shared.0.executions.as_ref()
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Wake(cause) => self.take_cause(cause),
            Message::Settle(cause, answer) => {
                self.settlers.push((answer, self.written));
                self.take_cause(cause);
            }
            Message::Start(request) => {
                self.probe_again();
                self.starts.push_back(request);
            }
            Message::Launch(workspace, answer) => {
                let Some(executions) = self.executions().cloned() else { return };
                let session = self.session.clone();
                self.jobs.push(Box::pin(async move {
                    // The caller may have left; the log says it, too.
                    let _ = answer.send(executions.launch_now(&session, workspace, None).await);
                    JobDone::Launch
                }));
            }
        }
    }

    fn take_cause(&mut self, cause: Wake) {
        match cause {
            Wake::Boot | Wake::Sweep | Wake::Command => self.probe_again(),
            Wake::Undelivered => self.is_undelivered = true,
            Wake::Stopped => {
                self.disconnect();
                (self.link, self.retry_at) = (Link::Unknown, None);
            }
            Wake::LaunchEnded => self.retry_at = None,
            Wake::Closed | Wake::Abandoned | Wake::Deleted | Wake::Settings => {}
            Wake::Leftover(execution) => self.end_leftover(execution),
        }
    }

    /// A silent execution is asked again at once: somebody wants to know.
    fn probe_again(&mut self) {
        if matches!(self.link, Link::Silent { .. }) {
            self.link = Link::Unknown;
        }
    }

    /// One look and one step.
    async fn advance(&mut self) -> Result<Next> {
        let state = match self.handle.state(&self.session).await {
            Ok(state) => state,
            Err(error) if error.code() == Code::SessionNotFound => {
                self.changed_to(None);
                self.refuse(&error);
                return Ok(self.end());
            }
            Err(error) => return Err(error),
        };
        self.look(&state);
        let known = self.known(&state);
        let step = supervise::next(&state.facts, &known);
        tracing::trace!(session = %self.session, ?known, ?step, "next");
        let is_settled =
            !matches!(step, Step::Probe | Step::Settle(_)) && known.link != Link::Launching;
        if is_settled {
            self.answer_settlers(known.owner);
        }
        if !matches!(step, Step::Settle(_)) {
            self.repeated = 0;
        }
        let next = match step {
            Step::Probe => self.probe().await,
            Step::Settle(probe) => self.settle(&state, &known, probe).await?,
            Step::Start(trigger) => self.start(trigger),
            Step::End => self.end(),
            // Executions that are only asked about are asked again by a later look.
            _ if self.executions().is_none() => self.end(),
            Step::Abandon => self.abandon().await?,
            Step::Connect => self.connect(&state).await?,
            Step::StopExecution => self.stop_execution(&state).await?,
            Step::Follow => Next::Wait(self.idle_look_at(&state)),
            Step::EndIdleAgent => self.end_idle_agent(&state).await?,
            Step::StopAgent => self.stop_agent(),
            Step::Wait => self.wait_for_retry(&known),
        };
        Ok(next)
    }

    /// The execution that the log names now. What was known is about the one before.
    fn look(&mut self, state: &State) {
        let executor = state.facts.executor.as_ref().filter(|executor| executor.may_live());
        self.changed_to(executor.map(|executor| &executor.execution_id));
        let now = Instant::now();
        let is_due = self.retry_at.is_none_or(|at| at <= now);
        if matches!(self.link, Link::Silent { .. }) && is_due {
            self.link = Link::Unknown;
        }
    }

    fn changed_to(&mut self, current: Option<&ExecutionId>) {
        if self.execution.as_ref() == current {
            return;
        }
        self.disconnect();
        let before = std::mem::replace(&mut self.execution, current.cloned());
        (self.link, self.silent_since, self.retry_at) = (Link::Unknown, None, None);
        self.failures = 0;
        if let Some(before) = before {
            self.end_leftover(before);
        }
    }

    fn known(&mut self, state: &State) -> Known {
        let env = self.handle.env();
        let owner = match &state.lease.owner {
            Some(owner) if *owner == env.boot => Owner::Ours,
            Some(owner) if env.is_alive(owner) => Owner::Other,
            _ => Owner::Nobody,
        };
        let boot = state.facts.run.iter().map(|run| run.boot_id.clone());
        let dead: BTreeSet<BootId> = boot.filter(|boot| !env.is_alive(boot)).collect();
        let now = Instant::now();
        let is_launching = |execution: &ExecutionId| {
            self.executions().is_some_and(|executions| executions.is_launching(execution))
        };
        let link = match self.link {
            _ if self.execution.as_ref().is_some_and(is_launching) => Link::Launching,
            Link::Alive { .. } => {
                Link::Alive { rests: self.retry_at.is_some_and(|retry_at| retry_at > now) }
            }
            Link::Silent { .. } => Link::Silent { for_long: self.silent_until() <= now },
            link => link,
        };
        // What another start is about may be settled by the one that is under way.
        let start = self.starting.is_none().then(|| self.wanted(state)).flatten();
        let is_given_up = self.given_up_at().is_some_and(|at| at <= now);
        let is_idle =
            self.starting.is_none() && self.idle_until(state, now).is_some_and(|at| at <= now);
        let is_awaited = !self.settlers.is_empty();
        Known { owner, dead, link, is_awaited, is_given_up, start, is_idle }
    }

    /// When to look whether the agent is idle: nothing wakes the supervisor when a run ends.
    fn idle_look_at(&self, state: &State) -> Option<Instant> {
        let timeout = self.shared.0.settings.get().agent_idle_timeout?;
        let now = Instant::now();
        self.idle_until(state, now).or_else(|| Some(now + timeout))
    }

    /// When the agent will have had nothing to do for as long as it may; `None`: it has, it may for
    /// ever, or nothing would start it again.
    fn idle_until(&self, state: &State, now: Instant) -> Option<Instant> {
        let timeout = self.shared.0.settings.get().agent_idle_timeout?;
        if self.shared.policy().agent_restart == AgentRestart::Manual {
            return None;
        }
        let idle_for = self.handle.view().now().since(supervise::idle_since(state)?);
        let until = now + timeout.saturating_sub(idle_for);
        Some(self.in_use_until.map_or(until, |in_use| until.max(in_use)))
    }

    /// When silence has lasted too long.
    fn silent_until(&self) -> Instant {
        let after = self.shared.0.settings.get().unreachable_after;
        self.silent_since.unwrap_or_else(Instant::now) + after
    }

    /// When silence has lasted so long that the execution is given up; `None`: never.
    fn given_up_at(&self) -> Option<Instant> {
        let after = self.shared.0.settings.get().abandon_after?;
        Some(self.silent_since? + after)
    }

    fn wanted(&mut self, state: &State) -> Option<StartTrigger> {
        if let Some(request) = self.starts.front() {
            return Some(request.trigger);
        }
        self.is_undelivered &= resume::is_stranded(state);
        if !self.is_undelivered {
            return None;
        }
        let tries = state.facts.agent.as_ref().map_or(0, |agent| agent.failed_starts);
        Some(if tries == 0 { StartTrigger::Prompt } else { StartTrigger::Retry })
    }

    fn answer_settlers(&mut self, owner: Owner) {
        for (answer, written) in self.settlers.drain(..) {
            let outcome = match owner {
                _ if self.written > written => Outcome::Settled,
                Owner::Other => Outcome::Owned,
                Owner::Ours | Owner::Nobody => Outcome::Unchanged,
            };
            // The caller may have left.
            let _ = answer.send(Ok(outcome));
        }
    }

    async fn probe(&mut self) -> Next {
        let Some(execution) = self.execution.clone() else { return Next::Look };
        let env = self.handle.env();
        let mut probe = tokio::select! {
            biased;
            probe = self.shared.0.executors.probe(&self.session, &execution) => probe,
            () = env.clock.sleep(PROBE_TIMEOUT) => Probe::Unreachable,
        };
        if planted::is(Bug::SilenceIsDeath) && probe == Probe::Unreachable {
            probe = Probe::Gone;
        }
        self.link = match probe {
            // Where there is nothing to connect to, that it lives is all there is to know.
            Probe::Alive if self.executions().is_none() => Link::Connected,
            Probe::Alive => Link::Alive { rests: false },
            Probe::Gone => Link::Gone,
            Probe::Unreachable => {
                self.silent_since.get_or_insert_with(Instant::now);
                self.delay_retry();
                Link::Silent { for_long: false }
            }
        };
        Next::Look
    }

    /// Writes down what became of the execution; complete, so that the writer asks nobody.
    async fn settle(&mut self, state: &State, known: &Known, probe: Option<Probe>) -> Result<Next> {
        let execution = self.execution.clone();
        if let (Some(Probe::Gone), Some(execution)) = (probe, &execution) {
            // What it wrote down comes before its end.
            self.drain(execution).await?;
        }
        let dead = known.dead.clone();
        let takes_over = probe == Some(Probe::Alive) && known.owner != Owner::Ours;
        let command = match probe {
            None => supervise::orphaned_run(&state.facts, &dead),
            probe => Some(Command::Recover { dead, probe, takes_over }),
        };
        let Some(command) = command else { return Ok(Next::Look) };
        let ack = self.handle.execute_settled(&self.session, command).await?;
        if ack.verdict == Verdict::Already {
            self.repeated += 1;
            if self.repeated > REPEATED_STEPS_MAX {
                tracing::error!(session = %self.session, ?known, ?probe, "settled again and again");
                self.repeated = 0;
                self.delay_retry();
                return Ok(Next::Wait(self.retry_at));
            }
        } else {
            self.written += 1;
        }
        Ok(Next::Look)
    }

    /// Imports what a dead execution wrote down.
    async fn drain(&mut self, execution: &ExecutionId) -> Result<()> {
        let (handle, session) = (&self.handle, &self.session);
        loop {
            let after = handle.state(session).await?.spools.get(execution).cloned();
            let drained = self.shared.0.executors.drain(session, execution, after).await;
            if drained.is_empty() {
                return Ok(());
            }
            let is_last = drained.damage.is_some();
            let import = Command::Import(drained.import(execution.clone()));
            match handle.execute_settled(session, import).await {
                Ok(ack) if ack.verdict == Verdict::Already || is_last => return Ok(()),
                Ok(_) => {}
                Err(error @ Error::Refused(_)) => {
                    tracing::error!(%session, %execution, code = %error.code(), "a dead execution's spool was not imported");
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Shakes hands and follows. One that refuses lives, and the log must not say that all is well.
    async fn connect(&mut self, state: &State) -> Result<Next> {
        let (Some(executions), Some(execution)) = (self.executions(), &self.execution) else {
            return Ok(Next::Look);
        };
        let (executions, handle) = (executions.clone(), self.handle.clone());
        let at = executions.at(&self.session, execution, state.lease.epoch).await?;
        match executions.follow(&at, state.spools.get(execution).cloned()).await {
            Ok(stream) => {
                executions.set_connected(&self.session, execution);
                executions.note_seen(&self.session, handle.view().now());
                (self.link, self.silent_since, self.retry_at) = (Link::Connected, None, None);
                self.connected_at = Instant::now();
                self.following = Some(Box::pin(pump(executions.clone(), handle, at, stream)));
                self.apply_choices(executions);
                return Ok(Next::Look);
            }
            Err(Fault::Problem(problem)) => {
                executions.refused(&handle, &at, state, &problem).await?;
            }
            Err(fault) => {
                tracing::debug!(session = %self.session, %execution, %fault, "not connected");
            }
        }
        // Whether it lives decides what comes next.
        self.link = Link::Unknown;
        self.delay_retry();
        Ok(Next::Look)
    }

    /// What was chosen and then not given to the agent, because the process that was to do it died.
    fn apply_choices(&mut self, executions: Executions) {
        let session = self.session.clone();
        self.jobs.push(Box::pin(async move {
            if let Err(error) = executions.apply_choices(&session).await {
                tracing::warn!(%session, code = %error.code(), %error, "not as it was chosen");
            }
            JobDone::Choices
        }));
    }

    /// Nobody waits for the execution any longer. Should it return it is ended.
    async fn abandon(&mut self) -> Result<Next> {
        let Some(execution_id) = self.execution.clone() else { return Ok(Next::Look) };
        tracing::warn!(session = %self.session, %execution_id, "abandoned: silent for too long");
        let command = Command::Abandon { execution_id };
        self.handle.execute_settled(&self.session, command).await?;
        Ok(Next::Look)
    }

    /// A closed session needs no agent. What it said is read from its spool when it is gone.
    async fn stop_execution(&mut self, state: &State) -> Result<Next> {
        let (Some(executions), Some(execution)) = (self.executions(), &self.execution) else {
            return Ok(Next::Look);
        };
        let (executions, execution) = (executions.clone(), execution.clone());
        self.disconnect();
        let at = executions.at(&self.session, &execution, state.lease.epoch).await?;
        self.link = match executions.stop_at(&at).await {
            Ok(()) => Link::Unknown,
            Err(fault) => {
                tracing::warn!(session = %self.session, %execution, %fault, "a closed session's agent was not ended");
                self.delay_retry();
                Link::Alive { rests: true }
            }
        };
        Ok(Next::Look)
    }

    /// Decides that the agent is to be ended, unless somebody uses a shell beside it.
    async fn end_idle_agent(&mut self, state: &State) -> Result<Next> {
        let idle_for = self.shared.0.settings.get().agent_idle_timeout;
        let (Some(executions), Some(execution_id), Some(idle_for)) =
            (self.executions().cloned(), self.execution.clone(), idle_for)
        else {
            return Ok(Next::Look);
        };
        let at = executions.at(&self.session, &execution_id, state.lease.epoch).await?;
        let in_use_for = match executions.has_shells(&at).await {
            Ok(false) => {
                let command = Command::EndIdleAgent { execution_id, idle_for };
                let ack = self.handle.execute_settled(&self.session, command).await?;
                // Something came up meanwhile: the log says since when it is idle now.
                if ack.verdict == Verdict::Already { LOOK_AGAIN } else { Duration::ZERO }
            }
            Ok(true) => idle_for,
            Err(fault) => {
                tracing::debug!(session = %self.session, %fault, "not known whether it is in use");
                LOOK_AGAIN
            }
        };
        self.in_use_until = Some(Instant::now() + in_use_for);
        Ok(Next::Look)
    }

    /// Ends the agent as was decided. Whoever wants one meanwhile waits for it, and gets another.
    fn stop_agent(&mut self) -> Next {
        let (Some(executions), Some(agents)) = (self.executions(), self.shared.agents()) else {
            return Next::Wait(None);
        };
        if self.starting.is_some() {
            return Next::Wait(None);
        }
        let (handle, executions) = (self.handle.clone(), executions.clone());
        let session = self.session.clone();
        let ending = Starter {
            handle,
            executions,
            agents,
            session: session.clone(),
            auth_method: None,
            context: StartContext::Native,
        };
        self.starting = Some(Box::pin(async move {
            if let Err(error) = ending.end_agent().await {
                tracing::warn!(%session, code = %error.code(), %error, "an idle agent was not ended");
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }));
        Next::Look
    }

    fn start(&mut self, trigger: StartTrigger) -> Next {
        let request = self.starts.pop_front();
        let (context, auth_method, answer) = match request {
            Some(request) => (request.context, request.auth_method, Some(request.answer)),
            None => (StartContext::Native, None, None),
        };
        self.is_undelivered = false;
        let session = self.session.clone();
        let (Some(executions), Some(agents)) = (self.executions(), self.shared.agents()) else {
            match answer {
                Some(answer) => {
                    let _ = answer.send(Err(super::agents::unknown().into()));
                }
                None => self.shared.keep_undelivered(&session),
            }
            return Next::Look;
        };
        let (handle, executions) = (self.handle.clone(), executions.clone());
        let session_id = session.clone();
        let start =
            Starter { handle, executions, agents, session: session_id, auth_method, context };
        self.starting = Some(Box::pin(async move {
            let outcome = start.start(trigger).await;
            if let Err(error) = &outcome {
                tracing::warn!(%session, code = %error.code(), %error, "no agent");
            }
            if let Some(answer) = answer {
                // The caller may have left.
                let _ = answer.send(outcome);
            }
        }));
        Next::Look
    }

    /// Ends an execution that is not the session's any more.
    fn end_leftover(&mut self, execution: ExecutionId) {
        let Some(executions) = self.executions().cloned() else { return };
        if self.execution.as_ref() == Some(&execution) || !self.ending.insert(execution.clone()) {
            return;
        }
        let (handle, session) = (self.handle.clone(), self.session.clone());
        self.jobs.push(Box::pin(async move {
            let found = Found { session, execution };
            executions.launched(&found.execution).await;
            if let Err(error) = executions.end_leftover(&handle, &found).await {
                let Found { session, execution } = &found;
                tracing::warn!(%session, %execution, code = %error.code(), %error, "a leftover execution was not ended");
            }
            JobDone::Leftover(found.execution)
        }));
    }

    fn end(&self) -> Next {
        let is_busy = self.starting.is_some() || !self.jobs.is_empty();
        if is_busy { Next::Wait(None) } else { Next::End }
    }

    /// Until the next try, or until silence has lasted too long.
    fn wait_for_retry(&self, known: &Known) -> Next {
        let for_long = match known.link {
            Link::Silent { for_long: false } => Some(self.silent_until()),
            Link::Silent { for_long: true } => self.given_up_at(),
            _ => None,
        };
        let retry_at = self.retry_at.filter(|_| known.link != Link::Launching);
        Next::Wait(retry_at.into_iter().chain(for_long).min())
    }

    fn delay_retry(&mut self) {
        let mut random = [0; 4];
        // Without randomness the delay is only more regular.
        let _ = self.shared.0.entropy.fill(&mut random);
        let delay = supervise::reconnect_delay(self.failures, u32::from_le_bytes(random));
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(Instant::now() + delay);
    }

    fn disconnect(&mut self) {
        self.following = None;
        if let (Some(executions), Some(execution)) = (self.executions(), &self.execution) {
            executions.set_disconnected(&self.session, execution);
        }
    }

    /// The connection is over, one way or the other.
    fn lost(&mut self, over: &Result<Over>) {
        self.disconnect();
        self.link = Link::Unknown;
        if self.connected_at.elapsed() >= GOOD_CONNECTION {
            self.failures = 0;
        }
        if let Err(error) = over
            && !is_not_ours(error)
        {
            let (session, execution) = (&self.session, self.execution.as_ref());
            tracing::error!(%session, ?execution, code = %error.code(), %error, "execution not followed");
        }
        self.delay_retry();
    }

    /// The store or the log is in the way. What passes by itself is tried again; what was wanted is
    /// answered with it.
    fn fail(&mut self, error: &Error) -> Next {
        let session = &self.session;
        if is_not_ours(error) {
            for (answer, _) in self.settlers.drain(..) {
                let _ = answer.send(Ok(Outcome::Owned));
            }
        } else {
            tracing::error!(%session, code = %error.code(), %error, "session not supervised");
        }
        self.refuse(error);
        self.disconnect();
        self.link = Link::Unknown;
        let passes = matches!(
            error.code(),
            Code::DiskFull | Code::StoreBusy | Code::StoreOverloaded | Code::SeqConflict
        );
        if passes || self.starting.is_some() || !self.jobs.is_empty() {
            self.delay_retry();
            return Next::Wait(self.retry_at);
        }
        Next::End
    }

    /// Everybody who waits is told why it came to nothing.
    fn refuse(&mut self, error: &Error) {
        for (answer, _) in self.settlers.drain(..) {
            let _ = answer.send(Err(error.clone()));
        }
        for request in self.starts.drain(..) {
            let _ = request.answer.send(Err(error.clone()));
        }
    }

    async fn wait(&mut self, until: Option<Instant>) {
        let wake = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            message = self.inbox.recv() => match message {
                Some(message) => self.take(message),
                None => std::future::pending().await,
            },
            () = optional(&mut self.starting) => self.starting = None,
            Some(done) = self.jobs.next(), if !self.jobs.is_empty() => {
                if let JobDone::Leftover(execution) = done {
                    self.ending.remove(&execution);
                }
            }
            over = optional(&mut self.following) => self.lost(&over),
            () = wake => {}
        }
    }
}

/// Ends with the future; never, if there is none.
async fn optional<T>(future: &mut Option<BoxFuture<T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

impl Supervisors {
    /// The prompt waits until it is known how agents are started.
    fn keep_undelivered(&self, session: &SessionId) {
        let mut kept = self.0.undelivered.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        kept.insert(session.clone());
        drop(kept);
        // It may have become known meanwhile.
        if self.agents().is_some() {
            self.wake(session, Wake::Undelivered);
        }
    }
}
