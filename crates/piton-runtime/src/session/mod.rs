//! One session's writer inside this process: a task that owns the folded state. It decides,
//! appends, and — only after the flush — answers and acts. Appends are pipelined: the next command
//! is decided while the last one is being flushed, and is answered after it.

mod delivering;
mod effects;
mod importing;
mod removing;
mod streaming;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use piton_core::decide::{self, AnswerByToken, Command, Context, Decision, Probe, Redact, Verdict};
use piton_core::event::{Event, SessionLeased};
use piton_core::fold::Change;
use piton_core::id::{RunId, SessionId};
use piton_core::planted::{self, Bug};
use piton_core::state::{Effect, Executor, PROJECTOR_VERSION, Phase};
use piton_core::{NewRecord, Seq, State, supervise};
use piton_store::{Appended, BoxFuture, Durability, MaskedRecords, Position, Snapshot};
use tokio::sync::{mpsc, oneshot};

use crate::counts::RunChange;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::interfaces::EffectJob;
use crate::messages::{Cut, Messages};
use crate::redaction;
use crate::supervisor::Wake;
use effects::message_of;

pub(crate) use removing::{Archive, Remove, removal_note};

/// Batches that may wait for their flush before no further command is taken.
const INFLIGHT_MAX: usize = 256;
/// How long a session stays in memory with nothing to do.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);
/// How long the possible beginning of a secret waits for what follows, if it may be written as it is.
const HOLD: Duration = Duration::from_secs(10);
/// Records read at a time.
const READ_MAX: usize = 256;

/// What a caller is answered once it is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    pub verdict: Verdict,
    /// The session's last record when this was decided.
    pub last_seq: Seq,
    /// Of a message's text, how many bytes at its end are not durable: they may be the beginning of
    /// a secret and wait for what follows. After a restart the log's offset leads back to them.
    pub held_bytes: u64,
}

pub(crate) struct Request {
    pub work: Work,
    /// The caller knows what became of the session's execution, as far as that can be known.
    pub is_settled: bool,
    pub reply: oneshot::Sender<Answer>,
}

/// What a session is asked for.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Execute(Box<Command>, Durability),
    /// Delivers the queued prompt that is due, if one is.
    Deliver,
    Remove(Remove),
}

pub(crate) enum Answer {
    Settled(Result<Ack>),
    /// Not looked at: the session left memory. Ask again.
    AskAgain,
    /// Not looked at: its supervisor has to find out what became of the execution first.
    Unsettled,
}

/// A batch on its way to the disk.
struct Inflight {
    appended: Option<piton_store::Result<Appended>>,
    answer: Result<Ack>,
    reply: Option<oneshot::Sender<Answer>>,
    jobs: Vec<EffectJob>,
    /// The supervisor has to know.
    wakes: Option<Wake>,
    happened: Vec<RunChange>,
}

pub(crate) struct Session {
    env: Arc<Env>,
    id: SessionId,
    state: State,
    inbox: mpsc::Receiver<Request>,
    inflight: FuturesOrdered<BoxFuture<Inflight>>,
    /// Durable and not yet carried out, in order.
    jobs: VecDeque<EffectJob>,
    /// The effect that is being carried out: at most one.
    effects: FuturesOrdered<BoxFuture<(Seq, bool)>>,
    /// The record that it follows from.
    running_effect: Option<Seq>,
    /// The snapshot that is being saved: at most one.
    saving: FuturesOrdered<BoxFuture<()>>,
    since_snapshot: u64,
    messages: Messages,
    /// When what waits has waited long enough.
    hold: Option<BoxFuture<()>>,
    /// An agent became ready, said something, or can be reached again: its effects are to be
    /// tried again.
    look_again: bool,
    /// The end of the log when a due prompt could not be delivered: tried again when the log has
    /// grown.
    undelivered_at: Option<Seq>,
    /// The log was removed: there is no session any more.
    removed: bool,
    /// The first failed append; nothing can follow it.
    broken: Option<piton_store::Error>,
}

impl Session {
    pub(crate) async fn run(env: Arc<Env>, id: SessionId, mut inbox: mpsc::Receiver<Request>) {
        let state = match piton_store::load(&*env.store, &id).await {
            Ok(loaded) => loaded.state,
            Err(piton_store::Error::SessionNotFound { .. }) => State::default(),
            Err(error) => {
                inbox.close();
                while let Some(request) = inbox.recv().await {
                    request.answer(Err(error.clone().into()));
                }
                return;
            }
        };
        let messages = Messages::after(&state);
        let mut session = Self {
            env,
            id,
            state,
            inbox,
            inflight: FuturesOrdered::new(),
            jobs: VecDeque::new(),
            effects: FuturesOrdered::new(),
            running_effect: None,
            saving: FuturesOrdered::new(),
            since_snapshot: 0,
            messages,
            hold: None,
            look_again: false,
            undelivered_at: None,
            removed: false,
            broken: None,
        };
        if session.holds_lease() {
            session.queue_pending().await;
        }
        session.serve().await;
        session.inbox.close();
        while let Some(request) = session.inbox.recv().await {
            // The caller may have stopped waiting; then the answer is not needed.
            let _ = request.reply.send(Answer::AskAgain);
        }
    }

    async fn serve(&mut self) {
        let mut served = false;
        while self.broken.is_none() && !self.removed {
            // An effect that is under way may still address the previous agent: wait for its end.
            if self.look_again && self.inflight.is_empty() && self.effects.is_empty() {
                self.look_again = false;
                self.queue_pending().await;
            }
            if self.may_deliver() {
                self.deliver(None).await;
            }
            self.act_next();
            self.messages.retain(&self.state);
            // Counted from the first byte that waits: bytes that come later do not restart the
            // timer.
            if !self.messages.any_harmless() {
                self.hold = None;
            } else if self.hold.is_none() {
                self.hold = Some(self.env.clock.sleep(HOLD));
            }
            let accepting = self.inflight.len() < INFLIGHT_MAX;
            // A session that leaves memory forgets what waits.
            let quiet = self.inflight.is_empty()
                && self.effects.is_empty()
                && self.saving.is_empty()
                && !self.messages.any_held();
            // Without the lease others may write: what is known here would go stale. (Nor may
            // questions about sessions that do not exist fill the memory.) A graph's host writes under
            // this very lease, beside this session.
            let others_write = !self.holds_lease() || self.state.facts.graph.is_some();
            let idle = if served && others_write { Duration::ZERO } else { IDLE_TIMEOUT };
            tokio::select! {
                biased;
                Some(done) = self.inflight.next(), if !self.inflight.is_empty() => {
                    self.settle(done);
                    self.snapshot_if_due();
                }
                Some((of_seq, done)) = self.effects.next(), if !self.effects.is_empty() => {
                    self.running_effect = None;
                    // What the agent reports of a prompt may have settled it already.
                    if self.state.pending.get(&of_seq).is_none_or(Effect::is_prompt) {
                        self.env.turns.prompt_delivered(&self.id);
                    }
                    if done {
                        let command = Command::Done { of_seq };
                        self.execute(command, Durability::Buffered, None, true).await;
                    }
                }
                Some(()) = self.saving.next(), if !self.saving.is_empty() => {}
                request = self.inbox.recv(), if accepting => match request {
                    Some(request) => {
                        served = true;
                        let Request { work, is_settled, reply } = request;
                        match work {
                            Work::Execute(command, durability) => {
                                self.execute(*command, durability, Some(reply), is_settled).await;
                            }
                            Work::Deliver => self.deliver_settled(reply, is_settled).await,
                            Work::Remove(removal) => self.remove(removal, reply, is_settled).await,
                        }
                    }
                    None => break,
                },
                () = over(&mut self.hold) => {
                    self.hold = None;
                    self.write_held(Cut::Harmless);
                }
                () = self.env.clock.sleep(idle), if quiet => break,
            }
        }
        // What waits still is not written: the log's offset leads its sender back to it.
        self.drain().await;
    }

    fn holds_lease(&self) -> bool {
        self.state.lease.owner.as_ref() == Some(&self.env.boot)
    }

    fn context(&self) -> Context {
        self.env.context()
    }

    /// What a dead boot left is settled before anything is decided. False: the session's supervisor
    /// has to ask the execution first.
    async fn settle_orphan(&mut self) -> bool {
        if self.holds_lease() || !self.state.facts.needs_recovery() {
            return true;
        }
        if self.state.facts.executor.as_ref().is_some_and(Executor::may_live) {
            return false;
        }
        let boot = self.state.facts.run.iter().map(|run| run.boot_id.clone());
        let dead = boot.filter(|boot| !self.env.is_alive(boot)).collect();
        if let Some(command) = supervise::orphaned_run(&self.state.facts, &dead) {
            self.recover(command, None).await;
        }
        true
    }

    async fn execute(
        &mut self,
        command: Command,
        durability: Durability,
        reply: Option<oneshot::Sender<Answer>>,
        is_settled: bool,
    ) {
        if !matches!(
            command,
            Command::Say { .. } | Command::EndMessage { .. } | Command::Done { .. }
        ) {
            // What follows comes after all that was said before it.
            self.write_held(Cut::All);
        }
        if matches!(command, Command::Recover { .. }) {
            return self.recover(command, reply).await;
        }
        if !is_settled && !self.settle_orphan().await {
            if let Some(reply) = reply {
                let _ = reply.send(Answer::Unsettled);
            }
            return;
        }
        let decided = match command {
            Command::AnswerByToken(answer) => self.answer(answer).await,
            command if self.continues_run(&command) => {
                let command = self.with_turn_start(command).await;
                self.decide(command)
            }
            Command::Say { message_id, offset, text } => {
                return self.say(message_id, offset, text, durability, reply);
            }
            Command::EndMessage { message_id, hash } => self.said(message_id, hash).await,
            Command::Redact(redact) => self.redact(redact).await,
            Command::Import(import) => self.import(import).await,
            command => self.decide(command),
        };
        match decided {
            Ok(decision) => self.append(decision, durability, reply),
            Err(error) => self.refuse(reply, error),
        }
    }

    /// A refusal rests on what may still be on its way to the disk: it waits its turn.
    fn refuse(&mut self, reply: Option<oneshot::Sender<Answer>>, error: Error) {
        let (answer, jobs) = (Err(error), Vec::new());
        let happened = Vec::new();
        let refused = Inflight { appended: None, answer, reply, jobs, wakes: None, happened };
        self.inflight.push_back(Box::pin(std::future::ready(refused)));
    }

    /// Decides, and takes the lease in the same batch if this boot does not hold it.
    fn decide(&mut self, command: Command) -> Result<Decision> {
        let cx = self.context();
        let decision = decide::decide(&self.state, &cx, command.clone())?;
        if decision.records.is_empty() || self.holds_lease() {
            return Ok(decision);
        }
        let claim = self.claim();
        // Decide again behind the claim, since a decision may name the seqs of its records.
        let mut behind = self.state.clone();
        behind.apply(self.state.last_seq + 1, claim.ts, &claim.event);
        let mut decision = decide::decide(&behind, &cx, command)?;
        decision.records.insert(0, claim);
        Ok(decision)
    }

    fn claim(&self) -> NewRecord {
        let (boot_id, epoch) = (self.env.boot.clone(), self.state.lease.epoch + 1);
        NewRecord::new(self.env.clock.now(), SessionLeased { boot_id, epoch })
    }

    /// Writes down what became of an execution and its run. One that lives is taken over: once that is
    /// durable, what the old boot had still to do for it is done, under the old keys.
    async fn recover(&mut self, command: Command, reply: Option<oneshot::Sender<Answer>>) {
        let is_alive = matches!(command, Command::Recover { probe: Some(Probe::Alive), .. });
        let takes_over = is_alive && !self.holds_lease();
        let decision = match self.decide(command) {
            Ok(decision) => decision,
            Err(error) => return self.refuse(reply, error),
        };
        self.look_again |= is_alive;
        self.append(decision, Durability::Synced, reply);
        if takes_over {
            self.drain().await;
            if self.broken.is_none() && self.holds_lease() {
                self.queue_pending().await;
            }
        }
    }

    /// Waits until everything appended so far is settled.
    async fn drain(&mut self) {
        while let Some(done) = self.inflight.next().await {
            self.settle(done);
        }
    }

    /// The index may lag behind what is being flushed: a token that is not active in the state is
    /// looked up again after the flush.
    async fn answer(&mut self, mut answer: AnswerByToken) -> Result<Decision> {
        if !self.state.tokens.contains_key(&answer.token.id) {
            self.drain().await;
            if let Some(error) = &self.broken {
                return Err(error.clone().into());
            }
            let found = self.env.store.token(&answer.token.id).await?;
            answer.entry = found.filter(|(session, _)| *session == self.id).map(|(_, entry)| entry);
            if let Some(entry) = &answer.entry
                && entry.minted_seq > self.state.last_seq
            {
                // Minted by another writer: what is known here is no longer the session.
                return Err(self.outdated(entry.minted_seq));
            }
        }
        let command = Command::AnswerByToken(answer);
        let command = self.with_turn_start(command).await;
        self.decide(command)
    }

    /// Whether a command continues a run that was interrupted.
    fn continues_run(&self, command: &Command) -> bool {
        match command {
            Command::Requested { command, .. } => self.continues_run(command),
            Command::Resume { run_id } => self.is_interrupted(run_id),
            Command::AnswerByToken(answer) => {
                let token = self.state.tokens.get(&answer.token.id);
                token.is_some_and(|token| token.wait_id.is_none())
            }
            _ => false,
        }
    }

    fn is_interrupted(&self, run_id: &RunId) -> bool {
        let run = self.state.facts.run.as_ref().filter(|run| run.run_id == *run_id);
        run.is_some_and(|run| matches!(run.phase, Phase::Interrupted { .. }))
    }

    /// With what the files are before the run continues: what changed since it was interrupted was
    /// changed by others.
    async fn with_turn_start(&mut self, command: Command) -> Command {
        if !self.continues_run(&command) {
            return command;
        }
        match self.env.turns.before_queued_turn(&self.id, &self.state).await {
            Some(start) => {
                let (start, command) = (Box::new(start), Box::new(command));
                Command::AtTurnStart { start, command }
            }
            None => command,
        }
    }

    /// What is on its way to the disk may take out the same contents: it is waited for.
    async fn redact(&mut self, redact: Redact) -> Result<Decision> {
        self.drain().await;
        if let Some(error) = &self.broken {
            return Err(error.clone().into());
        }
        let redact = redaction::fresh(&*self.env.store, &self.id, redact).await?;
        self.decide(Command::Redact(redact))
    }

    /// Another process wrote to the log: this writer ends, and the next one begins with the current
    /// log.
    fn outdated(&mut self, actual: Seq) -> Error {
        let (session, expected) = (self.id.clone(), self.state.last_seq);
        let error = piton_store::Error::SeqConflict { session, expected, actual };
        self.broken.get_or_insert(error).clone().into()
    }

    /// Applies and enqueues. The following commands see the new state at once; callers get their
    /// answers after the flush.
    fn append(
        &mut self,
        decision: Decision,
        durability: Durability,
        reply: Option<oneshot::Sender<Answer>>,
    ) {
        self.append_holding(decision, durability, reply, 0);
    }

    /// Like [`Self::append`], while some of what was said waits.
    fn append_holding(
        &mut self,
        decision: Decision,
        durability: Durability,
        reply: Option<oneshot::Sender<Answer>>,
        held_bytes: u64,
    ) {
        let Decision { records, outcome: verdict } = decision;
        let expected = self.state.last_seq;
        // What is folded, written and delivered to readers is masked.
        let masked = self.env.writer.mask(&self.id, expected, records);
        let MaskedRecords { records, originals } = match masked {
            Ok(masked) => masked,
            Err(error) => return self.refuse(reply, error.into()),
        };
        let mut summary_changed = false;
        let (mut jobs, mut happened) = (Vec::new(), Vec::new());
        for (at, record) in records.iter().enumerate() {
            let seq = self.state.last_seq + 1;
            happened.extend(RunChange::of(&self.state, record.ts, &record.event));
            let change = self.state.apply(seq, record.ts, &record.event);
            summary_changed |= change == Change::Summary;
            self.messages.appended(record);
            // A resumed run may still have a prompt that no agent has accepted.
            self.look_again |= matches!(
                record.event,
                Event::AgentReady(_)
                    | Event::SpoolImported(_)
                    | Event::RunResumed(_)
                    | Event::ExecutorStopped(_)
            );
            if matches!(record.event, Event::AgentReady(_)) && self.state.turns.is_empty() {
                self.env.turns.agent_started(&self.id);
            }
            if let Some(effect) = self.state.pending.get(&seq).cloned() {
                // The agent receives the unmasked text; only the disk does not.
                let meant = |at: usize| originals.get(&at).unwrap_or(&records[at]);
                let message = (0..at).rev().map(meant).find_map(|new| message_of(&effect, new));
                let cause = meant(at).at(seq);
                jobs.push(self.job(effect, cause, message));
            }
        }
        // An effect that a later record of the same batch took back is not carried out.
        jobs.retain(|job: &EffectJob| self.state.pending.contains_key(&job.cause.seq));
        self.since_snapshot += records.len() as u64;
        let ack = Ack { verdict, last_seq: self.state.last_seq, held_bytes };
        if records.is_empty() {
            // The answer depends on records that are still being flushed: it waits for them.
            let (answer, wakes) = (Ok(ack), None);
            let settled = Inflight { appended: None, answer, reply, jobs, wakes, happened };
            return self.inflight.push_back(Box::pin(std::future::ready(settled)));
        }
        if planted::is(Bug::ActBeforeCommit) {
            self.jobs.extend(jobs.drain(..));
        }
        let wakes = records.iter().find_map(|record| wake_of(&record.event));
        let summary = if summary_changed { self.state.summary() } else { None };
        let at = Position { expected, epoch: self.state.lease.epoch };
        let appending = self.env.writer.append(&self.id, at, records, durability, summary);
        self.inflight.push_back(Box::pin(async move {
            let appended = Some(appending.await);
            Inflight { appended, answer: Ok(ack), reply, jobs, wakes, happened }
        }));
    }

    /// A batch is durable, or never will be.
    fn settle(&mut self, done: Inflight) {
        if let (Some(Err(error)), None) = (&done.appended, &self.broken) {
            tracing::warn!(session = %self.id, code = %error.code(), "append failed");
            self.broken = Some(error.clone());
        }
        let answer = if let Some(error) = &self.broken {
            Err(error.clone().into())
        } else {
            self.jobs.extend(done.jobs);
            for change in &done.happened {
                if let RunChange::Ended { run_id, .. } | RunChange::Interrupted { run_id, .. } =
                    change
                {
                    self.env.turns.turn_ended(&self.id, run_id);
                }
            }
            if !done.happened.is_empty() {
                self.env.run_counter.add(done.happened);
            }
            if self.state.facts.restore.is_some() {
                self.env.turns.restore_open(&self.id);
            }
            self.env.deadlines.note(self.state.facts.deadline_at());
            if let Some(cause) = done.wakes {
                self.env.supervisors.wake(&self.id, cause);
            }
            done.answer
        };
        if let Some(reply) = done.reply {
            // The caller may have gone; what was decided stays decided.
            let _ = reply.send(Answer::Settled(answer));
        }
    }

    /// Saves replaying. Only of what is durable, so that it fits the log it is saved beside; and in
    /// the background, since no caller waits for it.
    fn snapshot_if_due(&mut self) {
        let durable = self.inflight.is_empty() && self.broken.is_none();
        let due = self.since_snapshot >= self.env.snapshot_every && self.saving.is_empty();
        if !due || !durable {
            return;
        }
        self.since_snapshot = 0;
        let Ok(body) = serde_json::to_string(&self.state) else { return };
        let (env, id, seq) = (Arc::clone(&self.env), self.id.clone(), self.state.last_seq);
        self.saving.push_back(Box::pin(async move {
            if let Err(error) = save_snapshot(&env, &id, seq, body).await {
                // A cache: its absence costs time, nothing else.
                tracing::warn!(session = %id, code = %error.code(), "snapshot not saved");
            }
        }));
    }
}

/// Ends with the sleep; never, if there is none.
async fn over(sleep: &mut Option<BoxFuture<()>>) {
    match sleep {
        Some(sleep) => sleep.await,
        None => std::future::pending().await,
    }
}

/// What the session's supervisor does something about.
fn wake_of(event: &Event) -> Option<Wake> {
    match event {
        Event::SessionClosed(_) => Some(Wake::Closed),
        Event::ExecutorAbandoned(_) => Some(Wake::Abandoned),
        _ => None,
    }
}

async fn save_snapshot(
    env: &Env,
    id: &SessionId,
    seq: Seq,
    body: String,
) -> piton_store::Result<()> {
    let Some(chain) = env.store.chain_at(id, seq).await? else { return Ok(()) };
    let snapshot = Snapshot { seq, projector: PROJECTOR_VERSION, chain, body };
    env.store.save_snapshot(id, snapshot).await
}

impl Request {
    fn answer(self, result: Result<Ack>) {
        let _ = self.reply.send(Answer::Settled(result));
    }
}
