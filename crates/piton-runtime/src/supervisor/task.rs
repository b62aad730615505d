//! One session's supervisor: it looks at the log and at what it knows of the execution, asks the table
//! for the next step, carries it out, and looks again. With nothing to do it waits to be woken.

mod connecting;
mod ending;

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use piton_core::id::{BootId, ExecutionId, SessionId};

use piton_core::resume::{self, StartContext, StartTrigger};
use piton_core::supervise::{self, ExecutionContact, LeaseHolder, LiveFacts, Step};
use piton_core::{Code, State};

use piton_store::BoxFuture;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use super::late;
use super::starting::Starter;
use super::{Message, Outcome, StartRequest, StopRequest, Supervisors, Wake};
use crate::error::{Error, Result};
use crate::executions::{Executions, Over, is_not_ours};
use crate::service::Handle;

/// How long an executor may take to say that it lives.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection that lasted so long was a good one: the delays begin from the first again.
const GOOD_CONNECTION: Duration = Duration::from_secs(1);
/// Until something is tried again that did not work.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// A step that changes nothing is not repeated for ever.
const REPEATED_STEPS_MAX: u32 = 8;

/// A task of the supervisor's that runs while it follows.
enum JobDone {
    Leftover(ExecutionId),
    Launch,
    Choices,
    AgentStopped,
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
    link: ExecutionContact,
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
    stops: VecDeque<StopRequest>,
    /// A prompt has no agent to be given to.
    is_undelivered: bool,
    starting: Option<BoxFuture<()>>,
    /// Tells a start that waits for others that a caller wants it now.
    hurry: Arc<Notify>,
    jobs: FuturesUnordered<BoxFuture<JobDone>>,
    /// The agent that is to be ended is being ended.
    is_stopping: bool,
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
            link: ExecutionContact::Unknown,
            silent_since: None,
            failures: 0,
            retry_at: None,
            connected_at: Instant::now(),
            following: None,
            in_use_until: None,
            starts: VecDeque::new(),
            stops: VecDeque::new(),
            is_undelivered: false,
            starting: None,
            hurry: Arc::default(),
            jobs: FuturesUnordered::new(),
            is_stopping: false,
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
                if request.trigger != StartTrigger::Boot {
                    self.hurry.notify_one();
                }
                self.starts.push_back(request);
            }
            Message::Stop(request) => self.stops.push_back(request),
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
                (self.link, self.retry_at) = (ExecutionContact::Unknown, None);
            }
            Wake::LaunchEnded => self.retry_at = None,
            Wake::Closed | Wake::Abandoned | Wake::Deleted | Wake::Settings => {}
            Wake::Leftover(execution) => self.end_leftover(execution),
        }
    }

    /// Probes a silent execution again at once, without waiting for its next retry.
    fn probe_again(&mut self) {
        if matches!(self.link, ExecutionContact::Silent { .. }) {
            self.link = ExecutionContact::Unknown;
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
        if let Some(request) = self.stops.pop_front() {
            let stopped = self.stop_on_request(&state, &request.execution).await;
            // The caller may have left.
            let _ = request.answer.send(stopped);
            return Ok(Next::Look);
        }
        let known = self.known(&state);
        let step = supervise::next(&state.facts, &known);
        tracing::trace!(session = %self.session, ?known, ?step, "next");
        let is_settled = !matches!(step, Step::Probe | Step::Settle(_))
            && known.link != ExecutionContact::Launching;
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
            Step::StopAgent => self.stop_agent(&state),
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
        if matches!(self.link, ExecutionContact::Silent { .. }) && is_due {
            self.link = ExecutionContact::Unknown;
        }
    }

    fn changed_to(&mut self, current: Option<&ExecutionId>) {
        if self.execution.as_ref() == current {
            return;
        }
        self.disconnect();
        let before = std::mem::replace(&mut self.execution, current.cloned());
        (self.link, self.silent_since, self.retry_at) = (ExecutionContact::Unknown, None, None);
        self.failures = 0;
        if let Some(before) = before {
            self.end_leftover(before);
        }
    }

    fn known(&mut self, state: &State) -> LiveFacts {
        let env = self.handle.env();
        let owner = match &state.lease.owner {
            Some(owner) if *owner == env.boot => LeaseHolder::Ours,
            Some(owner) if env.is_alive(owner) => LeaseHolder::Other,
            _ => LeaseHolder::NoLiveBoot,
        };
        let boot = state.facts.run.iter().map(|run| run.boot_id.clone());
        let dead: BTreeSet<BootId> = boot.filter(|boot| !env.is_alive(boot)).collect();
        let now = Instant::now();
        let is_launching = |execution: &ExecutionId| {
            self.executions().is_some_and(|executions| executions.is_launching(execution))
        };
        let link = match self.link {
            _ if self.execution.as_ref().is_some_and(is_launching) => ExecutionContact::Launching,
            ExecutionContact::Alive { .. } => ExecutionContact::Alive {
                rests: self.retry_at.is_some_and(|retry_at| retry_at > now),
            },
            ExecutionContact::Silent { .. } => {
                ExecutionContact::Silent { for_long: self.silent_until() <= now }
            }
            link => link,
        };
        // What another start is about may be settled by the one that is under way.
        let start = self.starting.is_none().then(|| self.wanted(state)).flatten();
        let is_given_up = self.given_up_at().is_some_and(|at| at <= now);
        let is_idle =
            self.starting.is_none() && self.idle_until(state, now).is_some_and(|at| at <= now);
        let is_awaited = !self.settlers.is_empty();
        let is_stopping = self.is_stopping;
        LiveFacts { owner, dead, link, is_awaited, is_given_up, start, is_idle, is_stopping }
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

    fn answer_settlers(&mut self, owner: LeaseHolder) {
        for (answer, written) in self.settlers.drain(..) {
            let outcome = match owner {
                _ if self.written > written => Outcome::Settled,
                LeaseHolder::Other => Outcome::Owned,
                LeaseHolder::Ours | LeaseHolder::NoLiveBoot => Outcome::Unchanged,
            };
            // The caller may have left.
            let _ = answer.send(Ok(outcome));
        }
    }

    fn start(&mut self, trigger: StartTrigger) -> Next {
        let request = self.starts.pop_front();
        let (context, auth_method, answer) = match request {
            Some(request) => (request.context, request.auth_method, Some(request.answer)),
            None => (StartContext::Native, None, None),
        };
        self.is_undelivered = false;
        let session = self.session.clone();
        // A caller that waits for the answer asked this boot.
        let is_asked_for = answer.is_some() && trigger != StartTrigger::Boot;
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
        let service = handle.clone();
        let session_id = session.clone();
        let start =
            Starter { handle, executions, agents, session: session_id, auth_method, context };
        let is_left = self.shared.0.boot_starts.take_left(&session);
        let is_limited = !is_asked_for && (is_left || trigger == StartTrigger::Boot);
        self.hurry = Arc::default();
        let (shared, hurry) = (self.shared.clone(), Arc::clone(&self.hurry));
        self.starting = Some(Box::pin(async move {
            let _permit = if is_limited {
                tokio::select! {
                    permit = shared.0.boot_starts.acquire() => Some(permit),
                    () = hurry.notified() => None,
                }
            } else {
                None
            };
            let outcome = Box::pin(start.start(trigger)).await;
            if let Err(error) = &outcome {
                tracing::warn!(%session, code = %error.code(), %error, "the agent was not started");
            }
            if matches!(outcome, Err(Error::AgentLate)) && trigger != StartTrigger::Manual {
                let policy = shared.policy();
                shared.spawn(async move {
                    let continued = late::continue_run(&service, policy, &session, trigger).await;
                    if let Err(error) = continued {
                        tracing::warn!(%session, code = %error.code(), %error, "a run was not continued");
                    }
                });
            }
            if let Some(answer) = answer {
                // The caller may have left.
                let _ = answer.send(outcome);
            }
        }));
        Next::Look
    }

    fn end(&self) -> Next {
        let is_busy = self.starting.is_some() || !self.jobs.is_empty();
        if is_busy { Next::Wait(None) } else { Next::End }
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
        self.link = ExecutionContact::Unknown;
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

    /// Sends the error to all callers that wait.
    fn refuse(&mut self, error: &Error) {
        for (answer, _) in self.settlers.drain(..) {
            let _ = answer.send(Err(error.clone()));
        }
        for request in self.starts.drain(..) {
            let _ = request.answer.send(Err(error.clone()));
        }
        for request in self.stops.drain(..) {
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
                match done {
                    JobDone::Leftover(execution) => {
                        self.ending.remove(&execution);
                    }
                    JobDone::AgentStopped => self.is_stopping = false,
                    JobDone::Launch | JobDone::Choices => {}
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
