//! The one task that runs a graph.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use piton_core::Code;
use piton_core::event::{
    LoopIterated, MapItemCompleted, MapListed, NodeFailed, NodeSafePoint, NodeStarted,
};
use piton_core::graph::{CheckpointConfig, CheckpointType, NodePhase};
use piton_core::id::{CheckpointId, RunId, WaitId};
use piton_core::mask::KeyPatterns;
use piton_core::{NewRecord, Timestamp};
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Failure, GivenAnswer, Outcome, Progress, Stop};
use crate::error::{NodeError, Result};
use crate::graph::Graph;
use crate::kinds;
use crate::log::Log;
use crate::node::{Asked, Attempt, NodeContext, Request};
use crate::spec::{Effects, NodeKind};
use crate::store::{new_checkpoint, now};

/// Requests of nodes that may wait to be heard.
const REQUESTS_WAITING_MAX: usize = 256;

/// A node's task while it runs.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) attempt: u32,
    pub(super) visit: u32,
    pub(super) began: Instant,
    pub(super) task: tokio::task::AbortHandle,
    pub(super) wait: Option<LiveWait>,
    /// It stands at a safe point, because the run pauses: what it would be answered by.
    pub(super) held: Option<oneshot::Sender<Result<Value, NodeError>>>,
}

#[derive(Debug)]
pub(super) struct LiveWait {
    pub(super) id: WaitId,
    pub(super) deadline_at: Option<Timestamp>,
    pub(super) reply: oneshot::Sender<Result<Value, NodeError>>,
}

/// An answer that is sent when what it rests on is durable.
pub(super) type Reply = (oneshot::Sender<Result<Value, NodeError>>, Result<Value, NodeError>);

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
    pub(super) retries: BTreeMap<String, Instant>,
    failures: BTreeMap<String, u32>,
    pub(super) failure: Option<Failure>,
    tasks: JoinSet<Ended>,
    paths: HashMap<tokio::task::Id, String>,
    sender: mpsc::Sender<Request>,
    requests: mpsc::Receiver<Request>,
    stop: watch::Receiver<Stop>,
    answers: mpsc::UnboundedReceiver<GivenAnswer>,
    /// A handle is left that could.
    can_be_stopped: bool,
    progress: Option<mpsc::UnboundedSender<Progress>>,
    /// The newest checkpoint: the next one's parent.
    pub(super) parent: Option<CheckpointId>,
    /// The checkpoint before each open wait.
    pub(super) waits: BTreeMap<WaitId, CheckpointId>,
    working_dir: Option<String>,
    /// What is reported when the batch is durable.
    unreported: Vec<Progress>,
}

/// What a scheduler begins with.
pub(super) struct Beginning {
    pub(super) graph: Graph,
    pub(super) log: Log,
    pub(super) config: CheckpointConfig,
    pub(super) run_id: RunId,
    pub(super) memory: BTreeMap<String, Arc<Value>>,
    pub(super) progress: Option<mpsc::UnboundedSender<Progress>>,
    pub(super) working_dir: Option<String>,
    pub(super) stop: watch::Receiver<Stop>,
    pub(super) answers: mpsc::UnboundedReceiver<GivenAnswer>,
    pub(super) parent: Option<CheckpointId>,
}

impl Scheduler {
    pub(super) fn new(begin: Beginning) -> Self {
        let Beginning { graph, log, config, run_id, memory, .. } = begin;
        let (progress, working_dir, parent) = (begin.progress, begin.working_dir, begin.parent);
        let (stop, answers) = (begin.stop, begin.answers);
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
            answers,
            can_be_stopped: true,
            progress,
            parent,
            waits: BTreeMap::new(),
            working_dir,
            unreported: Vec::new(),
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
            let at_work = self
                .live
                .values()
                .filter(|live| live.wait.is_none() && live.held.is_none())
                .count();
            if at_work == 0 && (!is_starting || self.retries.is_empty()) {
                return self.end(stop).await;
            }
            let wake = self.next_wake(is_starting);
            let mut replies = Vec::new();
            let mut reply_to = None;
            tokio::select! {
                Some(ended) = self.tasks.join_next_with_id() => {
                    self.ended(ended, &mut replies)?;
                }
                Some(request) = self.requests.recv() => {
                    self.asked(request, &mut replies).await?;
                }
                Some(given) = self.answers.recv() => {
                    reply_to = self.answered(given, &mut replies).await?;
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
            self.commit().await?;
            for (reply, answer) in replies {
                // The node's task may have been ended.
                let _ = reply.send(answer);
            }
            if let Some(reply_to) = reply_to {
                // It may not wait for that.
                let _ = reply_to.send(Ok(()));
            }
        }
    }

    /// Makes the batch durable, then reports what is in it.
    pub(super) async fn commit(&mut self) -> Result<()> {
        self.log.commit().await?;
        for progress in std::mem::take(&mut self.unreported) {
            self.send(progress);
        }
        Ok(())
    }

    /// Reports something once the batch is durable.
    pub(super) fn report(&mut self, progress: Progress) {
        self.unreported.push(progress);
    }

    fn send(&self, progress: Progress) {
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
            self.commit().await?;
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
            of: Attempt {
                path: path.clone(),
                visit,
                attempt,
                idempotency_key,
                working_dir: self.working_dir.clone(),
            },
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
        // One without effects is not in the log before it completes.
        self.send(Progress::NodeStarted { node: path.clone(), attempt });
        let (began, held) = (Instant::now(), None);
        let live = Live { attempt, visit, began, task, wait: None, held };
        self.live.insert(path, live);
        Ok(())
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

    /// If the run pauses, a node that came to a safe point stays there: its next attempt continues
    /// behind it.
    fn hold_or_reply(
        &mut self,
        path: &str,
        reply: oneshot::Sender<Result<Value, NodeError>>,
        replies: &mut Vec<Reply>,
    ) {
        let is_pausing = *self.stop.borrow() == Stop::Pause;
        match self.live.get_mut(path).filter(|_| is_pausing) {
            Some(live) => live.held = Some(reply),
            None => replies.push((reply, Ok(Value::Null))),
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
                self.hold_or_reply(&path, reply, replies);
                return Ok(());
            }
            Asked::MapList { items } => {
                let count = u32::try_from(items.len()).unwrap_or(u32::MAX);
                let event = MapListed { path, visit, count };
                self.log.push(NewRecord::with_content(now(), event, "items", items.into()));
            }
            Asked::MapItem { index, value } => {
                let event = MapItemCompleted { path: path.clone(), visit, index };
                self.log.push(NewRecord::with_content(now(), event, "value", value));
                let map = self.log.folded.graph.node(&path).and_then(|node| node.map.as_ref());
                if let Some(map) = map {
                    let done = u32::try_from(map.items.len()).unwrap_or(u32::MAX);
                    let count = Some(map.count);
                    self.report(Progress::NodeAdvanced { node: path, done, count });
                }
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
                let (node, count) = (path.clone(), None);
                self.report(Progress::NodeAdvanced { node, done: iteration + 1, count });
                self.hold_or_reply(&path, reply, replies);
                return Ok(());
            }
            Asked::Wait { number, question, deadline } => {
                return self.wait(&path, visit, (number, question, deadline), reply, replies).await;
            }
        }
        replies.push((reply, Ok(Value::Null)));
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
}

/// A moment that is not waited for.
fn far() -> Instant {
    Instant::now() + Duration::from_hours(24)
}
