//! The one task that runs a graph.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use piton_core::Code;
use piton_core::decide::{self, Command, Verdict};
use piton_core::event::{
    LoopIterated, MapItemCompleted, MapListed, NodeFailed, NodeSafePoint, NodeStarted, WaitKind,
};
use piton_core::graph::{Answer, CheckpointConfig, CheckpointType, NodePhase};
use piton_core::id::{CheckpointId, RunId, WaitId};
use piton_core::mask::KeyPatterns;
use piton_core::token::NewToken;
use piton_core::{NewRecord, Reason, Timestamp, limits};
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Failure, Finished, OpenWait, Outcome, Progress, Stop};
use crate::error::{NodeError, Result};
use crate::graph::Graph;
use crate::kinds;
use crate::log::Log;
use crate::node::{Asked, Attempt, NodeContext, Request, Restored};
use crate::spec::{Effects, NodeKind};
use crate::store::{new_checkpoint, new_token, now};

/// Requests of nodes that may wait to be heard.
const REQUESTS_WAITING_MAX: usize = 256;

/// A node's task while it runs.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) attempt: u32,
    pub(super) visit: u32,
    pub(super) began: Instant,
    task: tokio::task::AbortHandle,
    wait: Option<LiveWait>,
}

#[derive(Debug)]
struct LiveWait {
    id: WaitId,
    deadline_at: Option<Timestamp>,
    reply: oneshot::Sender<Result<Value, NodeError>>,
}

/// An answer that is sent when what it rests on is durable.
type Reply = (oneshot::Sender<Result<Value, NodeError>>, Result<Value, NodeError>);

/// What a node's task came to.
type Ended = Result<NodeContext, NodeError>;

#[derive(Debug)]
pub(super) struct Scheduler {
    pub(super) graph: Graph,
    pub(super) log: Log,
    pub(super) config: CheckpointConfig,
    pub(super) excluded: KeyPatterns,
    pub(super) run_id: RunId,
    pub(super) memory: BTreeMap<String, Arc<Value>>,
    pub(super) live: BTreeMap<String, Live>,
    /// Nodes that an earlier process left running or failed, and that are to run again.
    again: BTreeSet<String>,
    /// When the next attempt of a failed node begins.
    retries: BTreeMap<String, Instant>,
    failures: BTreeMap<String, u32>,
    failure: Option<Failure>,
    tasks: JoinSet<Ended>,
    paths: HashMap<tokio::task::Id, String>,
    sender: mpsc::Sender<Request>,
    requests: mpsc::Receiver<Request>,
    stop: watch::Receiver<Stop>,
    /// A handle is left that could.
    can_be_stopped: bool,
    progress: Option<mpsc::UnboundedSender<Progress>>,
    /// The newest checkpoint: the next one's parent.
    pub(super) parent: Option<CheckpointId>,
    waits: BTreeMap<WaitId, CheckpointId>,
}

/// What a scheduler begins with.
pub(super) struct Beginning {
    pub(super) graph: Graph,
    pub(super) log: Log,
    pub(super) config: CheckpointConfig,
    pub(super) run_id: RunId,
    pub(super) memory: BTreeMap<String, Arc<Value>>,
    pub(super) progress: Option<mpsc::UnboundedSender<Progress>>,
    pub(super) stop: watch::Receiver<Stop>,
    pub(super) parent: Option<CheckpointId>,
}

impl Scheduler {
    pub(super) fn new(begin: Beginning) -> Self {
        let Beginning { graph, log, config, run_id, memory, progress, stop, parent } = begin;
        let state = &log.folded.graph;
        let unfinished = graph.topology().nodes().filter(|node| {
            matches!(state.phase(node), NodePhase::Running | NodePhase::Failed { .. })
        });
        let again = unfinished.map(str::to_owned).collect();
        let (sender, requests) = mpsc::channel(REQUESTS_WAITING_MAX);
        Self {
            excluded: KeyPatterns::new(&config.exclude_memory_keys),
            graph,
            log,
            config,
            run_id,
            memory,
            live: BTreeMap::new(),
            again,
            retries: BTreeMap::new(),
            failures: BTreeMap::new(),
            failure: None,
            tasks: JoinSet::new(),
            paths: HashMap::new(),
            sender,
            requests,
            stop,
            can_be_stopped: true,
            progress,
            parent,
            waits: BTreeMap::new(),
        }
    }

    pub(super) async fn run(mut self) -> Result<Outcome> {
        loop {
            let stop = *self.stop.borrow_and_update();
            if stop == Stop::Cancel {
                return self.end(stop).await;
            }
            let is_starting = stop == Stop::No && self.failure.is_none();
            if is_starting {
                self.start_ready().await?;
            }
            let at_work = self.live.values().filter(|live| live.wait.is_none()).count();
            if at_work == 0 && (!is_starting || self.retries.is_empty()) {
                return self.end(stop).await;
            }
            let wake = self.next_wake(is_starting);
            let mut replies = Vec::new();
            tokio::select! {
                Some(ended) = self.tasks.join_next_with_id() => {
                    self.ended(ended, &mut replies)?;
                }
                Some(request) = self.requests.recv() => {
                    self.asked(request, &mut replies).await?;
                }
                () = tokio::time::sleep_until(wake.unwrap_or_else(far)), if wake.is_some() => {
                    self.expire_waits(&mut replies)?;
                }
                changed = self.stop.changed(), if self.can_be_stopped => {
                    self.can_be_stopped = changed.is_ok();
                }
            }
            // What else happened meanwhile shares the flush.
            while self.log.has_room()
                && let Some(ended) = self.tasks.try_join_next_with_id()
            {
                self.ended(ended, &mut replies)?;
            }
            while self.log.has_room()
                && let Ok(request) = self.requests.try_recv()
            {
                self.asked(request, &mut replies).await?;
            }
            self.log.commit().await?;
            for (reply, answer) in replies {
                // The node's task may have been ended.
                let _ = reply.send(answer);
            }
        }
    }

    pub(super) fn report(&self, progress: Progress) {
        if let Some(to) = &self.progress {
            // The listener may have gone.
            let _ = to.send(progress);
        }
    }

    /// Starts every node that can run now. Those with effects are durable first.
    async fn start_ready(&mut self) -> Result<()> {
        self.push_skipped();
        let ready: Vec<String> = {
            let state = &self.log.folded.graph;
            let fresh = self.graph.topology().ready(state).into_iter().map(str::to_owned);
            let due = self.retries.iter().filter(|(_, at)| **at <= Instant::now());
            let due = due.map(|(path, _)| path.clone());
            let all: BTreeSet<String> = fresh.chain(due).chain(self.again.clone()).collect();
            all.into_iter().filter(|path| !self.live.contains_key(path)).collect()
        };
        self.again.clear();
        let mut needs_flush = false;
        let mut starting = Vec::new();
        for path in ready {
            self.retries.remove(&path);
            let Some(node) = self.graph.spec().nodes.get(&path).cloned() else { continue };
            let state = &self.log.folded.graph;
            let visit = state.visit(&path);
            let known = state.node(&path).map_or(0, |node| node.attempts);
            // A question that was asked is not asked by another attempt: this one waits on.
            let is_asked = matches!(node.kind, NodeKind::Human(_))
                && state.phase(&path) == NodePhase::Running
                && self.has_wait(&path, visit);
            let attempt = if is_asked { known.max(1) } else { known + 1 };
            if !is_asked {
                let names = node.tags.iter().map(String::as_str).chain([path.as_str()]);
                let is_worth = !self.config.smart || CheckpointConfig::is_worth(names, None);
                if is_worth && self.config.wants(CheckpointType::NodeStart, 0) {
                    let description = format!("Before `{path}` starts");
                    self.push_checkpoint(CheckpointType::NodeStart, &path, None, &description)?;
                }
                self.log.push_event(NodeStarted { path: path.clone(), visit, attempt });
            }
            needs_flush |= node.effects == Effects::External;
            starting.push((path, visit, attempt));
        }
        if needs_flush {
            self.log.commit().await?;
        }
        for (path, visit, attempt) in starting {
            self.spawn(path, visit, attempt).await?;
        }
        Ok(())
    }

    async fn spawn(&mut self, path: String, visit: u32, attempt: u32) -> Result<()> {
        let Some(node) = self.graph.spec().nodes.get(&path) else { return Ok(()) };
        let (session, lineage) = (&self.log.id, self.log.lineage());
        let idempotency_key = format!("{session}/{lineage}/{path}/{visit}");
        let nothing = Arc::new(Value::Null);
        let value = |key: &String| self.memory.get(key).unwrap_or(&nothing).clone();
        let reads = node.reads.iter().map(|key| (key.clone(), value(key))).collect();
        let timeout = node.timeout_ms.map(Duration::from_millis);
        let restored = self.restore(&path).await?;
        let writes = restored.safe_point.as_ref().map(|(_, writes)| writes.clone());
        let mut ctx = NodeContext {
            of: Attempt { path: path.clone(), visit, attempt, idempotency_key },
            reads,
            may_write: node.writes.clone(),
            writes: writes.unwrap_or_default(),
            outputs: Map::new(),
            restored,
            waits: 0,
            requests: self.sender.clone(),
        };
        let graph = self.graph.clone();
        let task = self.tasks.spawn(async move {
            let running = kinds::run(&graph, &mut ctx);
            let ran = match timeout {
                Some(timeout) => {
                    tokio::time::timeout(timeout, running).await.unwrap_or_else(|_| {
                        let message = format!("It did not end within {} ms", timeout.as_millis());
                        Err(NodeError::new(message).with_code(Code::NodeTimeout))
                    })
                }
                None => running.await,
            };
            ran.map(|()| ctx)
        });
        self.paths.insert(task.id(), path.clone());
        self.report(Progress::NodeStarted { node: path.clone(), attempt });
        let live = Live { attempt, visit, began: Instant::now(), task, wait: None };
        self.live.insert(path, live);
        Ok(())
    }

    /// What earlier attempts of a node left in the log.
    async fn restore(&self, path: &str) -> Result<Restored> {
        let mut restored = Restored::default();
        let Some(node) = self.log.folded.graph.node(path).cloned() else { return Ok(restored) };
        if let Some(safe_point) = &node.safe_point {
            let mut fields = self.log.fields(safe_point.seq).await?;
            let why = fields.remove("description").and_then(|why| Some(why.as_str()?.to_owned()));
            let writes = match fields.remove("writes") {
                Some(Value::Object(writes)) => writes,
                _ => Map::new(),
            };
            restored.safe_point = Some((why.unwrap_or_default(), writes));
        }
        if let Some(map) = &node.map {
            let items = match self.log.field(map.list_seq, "items").await? {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            };
            let mut results = BTreeMap::new();
            for (index, seq) in &map.items {
                let value = self.log.field(*seq, "value").await?;
                results.insert(*index, value.unwrap_or(Value::Null));
            }
            restored.map = Some((items, results));
        }
        for seq in &node.iterations.seqs {
            let Some(Value::Object(mut step)) = self.log.field(*seq, "step").await? else {
                continue;
            };
            if let Some(Value::Array(messages)) = step.remove("messages") {
                restored.conversation.extend(messages);
            }
            if let Some(Value::Object(outputs)) = step.remove("outputs") {
                restored.outputs.extend(outputs);
            }
        }
        restored.iterations = u32::try_from(node.iterations.seqs.len()).unwrap_or(u32::MAX);
        restored.is_done = node.iterations.done;
        Ok(restored)
    }

    fn ended(
        &mut self,
        ended: Result<(tokio::task::Id, Ended), tokio::task::JoinError>,
        replies: &mut Vec<Reply>,
    ) -> Result<()> {
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let Some(path) = self.paths.remove(&id) else { return Ok(()) };
        let Some(live) = self.live.remove(&path) else { return Ok(()) };
        if let Some(wait) = live.wait {
            replies.push((wait.reply, Err(NodeError::new("The node has ended"))));
        }
        let began = (live.attempt, live.visit, live.began);
        let result = match ended {
            Ok((_, result)) => result,
            Err(error) if error.is_panic() => Err(NodeError::new("The node's code panicked")),
            Err(error) => Err(NodeError::new(error.to_string())),
        };
        let completed = match result {
            Ok(ctx) => self.complete(&path, began, ctx)?,
            Err(error) => Err(error),
        };
        if let Err(error) = completed {
            self.fail(&path, began, error);
        }
        Ok(())
    }

    fn fail(&mut self, path: &str, (attempt, visit, _): (u32, u32, Instant), error: NodeError) {
        let retry = self.graph.spec().nodes.get(path).map(|node| node.retry).unwrap_or_default();
        let failures = self.failures.entry(path.to_owned()).or_default();
        *failures += 1;
        let delay =
            (error.is_retryable && *failures <= retry.times).then(|| retry.delay(*failures));
        let retry_at = delay.map(|delay| now().after(delay));
        let event = NodeFailed {
            path: path.to_owned(),
            visit,
            attempt,
            code: Some(error.code.clone()),
            retry_at,
        };
        let message = error.message.clone();
        self.log.push(NewRecord::with_content(now(), event, "error", message.clone().into()));
        let node = path.to_owned();
        self.report(Progress::NodeFailed { node, error: message, retry_at });
        match delay {
            Some(delay) => {
                self.retries.insert(path.to_owned(), Instant::now() + delay);
            }
            None => {
                let index = &self.log.folded.index;
                let point = index.resume_point(self.log.lineage(), Some(path));
                let checkpoint = point.map(|entry| entry.checkpoint_id.clone());
                let node = path.to_owned();
                let failure = Failure { node, code: error.code, error: error.message, checkpoint };
                self.failure.get_or_insert(failure);
            }
        }
    }

    /// What a node asks for. Answered when it is durable.
    async fn asked(&mut self, request: Request, replies: &mut Vec<Reply>) -> Result<()> {
        let Request { path, attempt, asked, reply } = request;
        let Some(live) = self.live.get(&path).filter(|live| live.attempt == attempt) else {
            replies.push((reply, Err(NodeError::new("The attempt has ended"))));
            return Ok(());
        };
        let visit = live.visit;
        match asked {
            Asked::SafePoint { description, writes } => {
                // An excluded value stays out of the disk here, too: the next attempt writes it again.
                let writes: Map<String, Value> =
                    writes.into_iter().filter(|(key, _)| !self.excluded.matches(key)).collect();
                let event = NodeSafePoint { path: path.clone(), visit, attempt };
                let content = Map::from_iter([
                    ("description".to_owned(), Value::from(description.clone())),
                    ("writes".to_owned(), writes.into()),
                ]);
                self.log.push(NewRecord::with_fields(now(), event, content));
                if self.config.wants(CheckpointType::SafePoint, 0) {
                    self.push_checkpoint(CheckpointType::SafePoint, &path, None, &description)?;
                }
            }
            Asked::MapList { items } => {
                let count = u32::try_from(items.len()).unwrap_or(u32::MAX);
                let event = MapListed { path, visit, count };
                self.log.push(NewRecord::with_content(now(), event, "items", items.into()));
            }
            Asked::MapItem { index, value } => {
                let event = MapItemCompleted { path, visit, index };
                self.log.push(NewRecord::with_content(now(), event, "value", value));
            }
            Asked::Iteration { iteration, messages, outputs, done } => {
                let count = u32::try_from(messages.len()).unwrap_or(u32::MAX);
                let event =
                    LoopIterated { path: path.clone(), visit, iteration, messages: count, done };
                let step = Map::from_iter([
                    ("messages".to_owned(), Value::Array(messages)),
                    ("outputs".to_owned(), outputs.into()),
                ]);
                self.log.push(NewRecord::with_content(now(), event, "step", step.into()));
                if self.config.wants(CheckpointType::LoopIteration, iteration) {
                    let description = format!("Iteration {} of `{path}`", iteration + 1);
                    self.push_checkpoint(CheckpointType::LoopIteration, &path, None, &description)?;
                }
            }
            Asked::Wait { number, question, deadline } => {
                return self.wait(&path, visit, (number, question, deadline), reply, replies).await;
            }
        }
        replies.push((reply, Ok(Value::Null)));
        Ok(())
    }

    /// The id of a node's wait: the same for every attempt, so that an answer is found again.
    fn wait_id(&self, path: &str, visit: u32, number: u32, round: u32) -> WaitId {
        let name = format!("{}/{path}/{visit}/{number}/{round}", self.log.id);
        let digest = piton_core::canonical::digest(&name.into());
        let text = format!("{}{}", WaitId::PREFIX, &digest[..32]);
        // Hex digits behind a prefix are an id.
        text.parse().unwrap_or_else(|_| WaitId::at(0))
    }

    /// Whether a node asked a person in this visit.
    fn has_wait(&self, path: &str, visit: u32) -> bool {
        let id = self.wait_id(path, visit, 0, 0);
        let run = self.log.folded.session.facts.run.as_ref();
        self.log.folded.graph.answers.contains_key(&id)
            || run.is_some_and(|run| run.waits.contains_key(&id))
    }

    async fn wait(
        &mut self,
        path: &str,
        visit: u32,
        (number, question, deadline): (u32, Value, Option<Duration>),
        reply: oneshot::Sender<Result<Value, NodeError>>,
        replies: &mut Vec<Reply>,
    ) -> Result<()> {
        // A question whose time passed is asked again under another id.
        let mut round = 0;
        let id = loop {
            let id = self.wait_id(path, visit, number, round);
            match self.log.folded.graph.answers.get(&id) {
                Some(Answer::Given { seq }) => {
                    let answer = self.log.field(*seq, "answer").await?;
                    replies.push((reply, Ok(answer.unwrap_or(Value::Null))));
                    return Ok(());
                }
                Some(Answer::Cancelled) => round += 1,
                None => break id,
            }
        };
        let run = self.log.folded.session.facts.run.as_ref();
        let open = run.and_then(|run| run.waits.get(&id));
        let deadline_at = match open {
            Some(wait) => wait.deadline_at,
            None => {
                let span = deadline.unwrap_or_else(|| limits::wait_default(WaitKind::Human));
                let deadline_at = now().after(span);
                if self.config.wants(CheckpointType::UserCheckpoint, 0) {
                    let description = format!("Before `{path}` waits for an answer");
                    let kind = CheckpointType::UserCheckpoint;
                    self.push_checkpoint(kind, path, None, &description)?;
                    self.waits.extend(self.parent.clone().map(|parent| (id.clone(), parent)));
                }
                let fresh = NewToken::from(&new_token()?);
                let (run_id, wait_id) = (self.run_id.clone(), id.clone());
                let kind = WaitKind::Human;
                let wait = decide::Wait { run_id, wait_id, kind, deadline_at, fresh, question };
                let verdict = self.log.decide(Command::Wait(wait))?;
                debug_assert_eq!(verdict, Verdict::Asked, "the wait was not known");
                Some(deadline_at)
            }
        };
        let node = path.to_owned();
        self.report(Progress::NodeWaiting { node, wait_id: id.clone() });
        if let Some(live) = self.live.get_mut(path) {
            live.wait = Some(LiveWait { id, deadline_at, reply });
        }
        Ok(())
    }

    /// The next moment at which something is due without anybody asking.
    fn next_wake(&self, is_starting: bool) -> Option<Instant> {
        let retries = self.retries.values().copied().filter(|_| is_starting);
        let deadlines = self.live.values().filter_map(|live| live.wait.as_ref()?.deadline_at);
        let deadlines = deadlines.map(|at| Instant::now() + at.since(now()));
        retries.chain(deadlines).min()
    }

    /// Waits whose time has passed end, and their nodes fail.
    fn expire_waits(&mut self, replies: &mut Vec<Reply>) -> Result<()> {
        self.log.decide(Command::Sweep { live: true })?;
        for live in self.live.values_mut() {
            let is_over = live.wait.as_ref().is_some_and(|wait| {
                self.log.folded.graph.answers.get(&wait.id) == Some(&Answer::Cancelled)
            });
            if is_over && let Some(wait) = live.wait.take() {
                let error = NodeError::new("No answer came in time");
                replies.push((wait.reply, Err(error.with_code(Code::WaitExpired).permanent())));
            }
        }
        Ok(())
    }

    /// Adds a checkpoint of what is folded so far.
    pub(super) fn push_checkpoint(
        &mut self,
        kind: CheckpointType,
        current: &str,
        next: Option<&str>,
        description: &str,
    ) -> Result<()> {
        let checkpoint_id = new_checkpoint()?;
        let event = piton_core::event::CheckpointCreated {
            checkpoint_id: checkpoint_id.clone(),
            checkpoint_type: kind,
            lineage: self.log.lineage(),
            parent: self.parent.replace(checkpoint_id),
            current_node: Some(current.to_owned()),
            next_node: next.map(str::to_owned),
            is_clean: self.log.folded.graph.is_clean(),
            can_resume_from: true,
            without_memory: !self.config.include_full_memory,
            without_conversations: !self.config.include_conversation_snapshots,
        };
        let record = NewRecord::with_content(now(), event, "description", description.into());
        self.log.push(record);
        Ok(())
    }

    /// Checkpoints that a wait needs: they are not pruned.
    pub(super) fn needed(&self) -> BTreeSet<CheckpointId> {
        let open = self.live.values().filter_map(|live| live.wait.as_ref());
        open.filter_map(|wait| self.waits.get(&wait.id).cloned()).collect()
    }

    /// Nothing runs any more: how the run ends, or what it waits for.
    async fn end(mut self, stop: Stop) -> Result<Outcome> {
        let waits: Vec<OpenWait> = self
            .live
            .iter()
            .filter_map(|(node, live)| {
                let wait = live.wait.as_ref()?;
                let (wait_id, deadline_at) = (wait.id.clone(), wait.deadline_at);
                Some(OpenWait { wait_id, node: node.clone(), deadline_at })
            })
            .collect();
        for live in self.live.values() {
            live.task.abort();
        }
        let run_id = self.run_id.clone();
        let outcome = if stop == Stop::Cancel {
            self.log.decide(Command::Cancel { run_id, reason: Reason::UserRequest })?;
            Outcome::Cancelled
        } else if let Some(failure) = self.failure.take() {
            let (code, node) = (Some(failure.code.clone()), &failure.node);
            let error = format!("Node `{node}` failed: {}", failure.error);
            self.log.decide(Command::Fail { run_id, code, error })?;
            Outcome::Failed(failure)
        } else if self.graph.topology().is_complete(&self.log.folded.graph) {
            let finished = self.finished().await?;
            self.log.decide(Command::Complete { run_id })?;
            Outcome::Completed(finished)
        } else if stop == Stop::Pause {
            self.log.decide(Command::Pause { run_id })?;
            Outcome::Paused
        } else {
            if let Some(wait) = waits.first() {
                let wait_id = wait.wait_id.clone();
                self.log.decide(Command::Block { run_id, wait_id })?;
            }
            Outcome::Waiting { waits }
        };
        self.log.release();
        self.log.commit().await?;
        Ok(outcome)
    }

    async fn finished(&self) -> Result<Finished> {
        let mut outputs = BTreeMap::new();
        for (key, seq) in &self.log.folded.graph.outputs {
            let value = self.log.field(*seq, "value").await?;
            outputs.insert(key.clone(), value.unwrap_or(Value::Null));
        }
        Ok(Finished { memory: self.memory.clone(), outputs })
    }
}

/// A moment that is not waited for.
fn far() -> Instant {
    Instant::now() + Duration::from_hours(24)
}
