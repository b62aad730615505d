//! The one task that runs a graph.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use piton_core::Code;
use piton_core::event::{NodeFailed, NodeStarted};
use piton_core::graph::{CheckpointConfig, CheckpointType, NodePhase, Topology};
use piton_core::id::{CheckpointId, RunId, WaitId};
use piton_core::mask::KeyPatterns;
use piton_core::{NewRecord, Timestamp};
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Failure, GivenAnswer, GivenCommand, Outcome, Progress, Stop, idempotency_key};
use crate::agent::AgentHost;
use crate::error::{NodeError, Result};
use crate::graph::Graph;
use crate::kinds;
use crate::log::Log;
use crate::node::{Attempt, NodeContext, Request};
use crate::policy::{CheckpointPolicy as _, PolicyContext, SmartPolicy};
use crate::spec::{Effects, NodeKind, split, within};
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
    /// What it waits for: the items of a map each for themselves.
    pub(super) waits: Vec<LiveWait>,
    /// It stands at a safe point, because the run pauses: what it would be answered by.
    pub(super) held: Vec<oneshot::Sender<Result<Value, NodeError>>>,
    /// How many parts of it run side by side.
    pub(super) parts: usize,
    /// Bytes of text that it streamed.
    pub(super) streamed: u64,
}

impl Live {
    /// Whether some of it runs.
    fn is_at_work(&self) -> bool {
        self.waits.len() + self.held.len() < self.parts
    }
}

#[derive(Debug)]
pub(super) struct LiveWait {
    pub(super) id: WaitId,
    pub(super) deadline_at: Option<Timestamp>,
    pub(super) reply: oneshot::Sender<Result<Value, NodeError>>,
}

/// A node that is about to run.
struct Start {
    path: String,
    visit: u32,
    attempt: u32,
    /// Its start is durable before it runs.
    needs_flush: bool,
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
    /// When subgraphs began that run.
    pub(super) entered: BTreeMap<String, Instant>,
    /// When the next attempt of a failed node begins.
    pub(super) retries: BTreeMap<String, Instant>,
    /// Excluded values that nodes wrote before their last safe points.
    pub(super) lost_writes: BTreeMap<String, Map<String, Value>>,
    /// Answers that must not be written, as long as this process lives.
    pub(super) secret_answers: BTreeMap<WaitId, Value>,
    /// Keys that a user set with this resume.
    pub(super) set_keys: BTreeSet<String>,
    /// The outputs of this run, as they were meant.
    pub(super) outputs: BTreeMap<String, Value>,
    pub(super) failure: Option<Failure>,
    tasks: JoinSet<Ended>,
    paths: HashMap<tokio::task::Id, String>,
    sender: mpsc::Sender<Request>,
    requests: mpsc::Receiver<Request>,
    pub(super) stop: watch::Receiver<Stop>,
    answers: mpsc::UnboundedReceiver<GivenAnswer>,
    commands: mpsc::UnboundedReceiver<GivenCommand>,
    agents: Option<Arc<dyn AgentHost>>,
    /// A handle is left that could.
    can_be_stopped: bool,
    progress: Option<mpsc::UnboundedSender<Progress>>,
    /// The newest checkpoint: the next one's parent.
    pub(super) parent: Option<CheckpointId>,
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
    pub(super) commands: mpsc::UnboundedReceiver<GivenCommand>,
    pub(super) agents: Option<Arc<dyn AgentHost>>,
    pub(super) parent: Option<CheckpointId>,
}

impl Scheduler {
    pub(super) fn new(begin: Beginning) -> Self {
        let Beginning { graph, log, config, run_id, memory, .. } = begin;
        let (progress, working_dir, parent) = (begin.progress, begin.working_dir, begin.parent);
        let (stop, answers) = (begin.stop, begin.answers);
        let (commands, agents) = (begin.commands, begin.agents);
        let state = &log.folded.graph;
        let mut again = BTreeSet::new();
        let mut retries = BTreeMap::new();
        for path in graph.topology().nodes() {
            // A subgraph that runs needs no other attempt, and what is in one that has ended gets none.
            let is_entered =
                graph.topology().is_subgraph(path) && state.phase(path) == NodePhase::Running;
            if is_entered || !Topology::is_enclosed_by_running(state, path) {
                continue;
            }
            match state.phase(path) {
                NodePhase::Failed { .. } if state.node(path).is_some_and(|node| node.handled) => {}
                // Its next attempt keeps its time, by which process it is made.
                NodePhase::Failed { retry_at: Some(at), .. } => {
                    retries.insert(path.to_owned(), Instant::now() + at.since(now()));
                }
                NodePhase::Running | NodePhase::Failed { retry_at: None, .. } => {
                    again.insert(path.to_owned());
                }
                NodePhase::Pending | NodePhase::Completed | NodePhase::Skipped => {}
            }
        }
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
            entered: BTreeMap::new(),
            retries,
            lost_writes: BTreeMap::new(),
            secret_answers: BTreeMap::new(),
            set_keys: BTreeSet::new(),
            outputs: BTreeMap::new(),
            failure: None,
            tasks: JoinSet::new(),
            paths: HashMap::new(),
            sender,
            requests,
            stop,
            answers,
            commands,
            agents,
            can_be_stopped: true,
            progress,
            parent,
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
            let is_at_work = self.live.values().any(Live::is_at_work);
            let is_idle = !is_at_work && (!is_starting || self.retries.is_empty());
            // The node of a wait whose time has passed fails first, and the graph may continue.
            if is_idle && !(is_starting && self.has_passed_wait()) {
                return self.end(stop).await;
            }
            let wake = self.next_wake(is_starting);
            let mut replies = Vec::new();
            let mut reply_to = None;
            let mut decided = None;
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
                Some(given) = self.commands.recv() => {
                    decided = self.decide_given(given);
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
            if let Some((reply, decided)) = decided {
                let _ = reply.send(Ok(decided));
                self.deliver_answers().await?;
            }
        }
    }

    /// Makes the batch durable, then reports what is in it.
    pub(super) async fn commit(&mut self) -> Result<()> {
        let is_stopping = *self.stop.borrow() != Stop::No;
        self.log.commit_or_stop(&mut self.stop, is_stopping).await?;
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
        let mut starting = Vec::new();
        // A subgraph that begins has nodes that are ready, and one that ends leads on.
        while self.push_starts(&mut starting)? | self.close_subgraphs()? {}
        if starting.iter().any(|start| start.needs_flush) {
            self.commit().await?;
        }
        for Start { path, visit, attempt, .. } in starting {
            self.spawn(path, visit, attempt).await?;
        }
        Ok(())
    }

    /// Adds the start of every node that can run now. True: a subgraph began.
    fn push_starts(&mut self, starting: &mut Vec<Start>) -> Result<bool> {
        let mut has_entered = false;
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
        for path in ready {
            self.retries.remove(&path);
            let Some(node) = self.graph.node(&path).cloned() else { continue };
            let state = &self.log.folded.graph;
            let visit = state.visit(&path);
            let known = state.node(&path).map_or(0, |node| node.attempts);
            // A question that was asked is not asked by another attempt: this one waits on.
            let is_asked = matches!(node.kind, NodeKind::Human(_))
                && state.phase(&path) == NodePhase::Running
                && self.has_wait(&path, visit);
            let attempt = if is_asked { known.max(1) } else { known + 1 };
            if !is_asked {
                let of = PolicyContext {
                    boundary: CheckpointType::NodeStart,
                    node: &path,
                    tags: &node.tags,
                    attempt,
                    latency: None,
                    changed_keys: 0,
                    iteration: None,
                };
                if self.wants(&of) {
                    let description = format!("Before `{path}` starts");
                    self.push_checkpoint(CheckpointType::NodeStart, &path, None, &description)?;
                }
                self.log.push_event(NodeStarted { path: path.clone(), visit, attempt });
            }
            if matches!(node.kind, NodeKind::Subgraph(_)) {
                self.enter(&path, attempt, visit)?;
                has_entered = true;
                continue;
            }
            let needs_flush = node.effects == Effects::External;
            starting.push(Start { path, visit, attempt, needs_flush });
        }
        Ok(has_entered)
    }

    async fn spawn(&mut self, path: String, visit: u32, attempt: u32) -> Result<()> {
        let Some(node) = self.graph.node(&path) else { return Ok(()) };
        let (scope, _) = split(&path);
        let (session, lineage) = (&self.log.id, self.log.lineage());
        let idempotency_key = idempotency_key(session, lineage, &path, visit);
        let nothing = Arc::new(Value::Null);
        let value = |key: &String| self.memory.get(&within(scope, key)).unwrap_or(&nothing).clone();
        let reads = node.reads.iter().map(|key| (key.clone(), value(key))).collect();
        let timeout = node.timeout_ms.map(Duration::from_millis);
        let restored = self.log.reader.restored(&self.log.folded.graph, &path).await?;
        let writes = restored.safe_point.as_ref().map(|(_, writes)| {
            let mut writes = writes.clone();
            // What the safe point could not keep: known here still, or set by a user.
            let state = self.log.folded.graph.node(&path).and_then(|node| node.safe_point.as_ref());
            let lost = self.lost_writes.get(&path);
            let redacted = state.is_some_and(|state| state.redacted).then_some(&node.writes);
            let not_kept = state.into_iter().flat_map(|state| &state.excluded_keys);
            for key in not_kept.chain(redacted.into_iter().flatten()) {
                let known = lost.and_then(|lost| lost.get(key)).cloned();
                let set = self.memory.get(&within(scope, key)).map(|value| (**value).clone());
                writes.extend(known.or(set).map(|value| (key.clone(), value)));
            }
            writes
        });
        let mut ctx = NodeContext {
            of: Attempt {
                session: session.clone(),
                path: path.clone(),
                visit,
                attempt,
                idempotency_key,
                working_dir: self.working_dir.clone(),
                agents: self.agents.clone(),
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
        let (began, waits, held) = (Instant::now(), Vec::new(), Vec::new());
        let live = Live { attempt, visit, began, task, waits, held, parts: 1, streamed: 0 };
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
        for wait in live.waits {
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
        self.close_subgraphs()?;
        Ok(())
    }

    pub(super) fn fail(
        &mut self,
        path: &str,
        (attempt, visit, _): (u32, u32, Instant),
        error: NodeError,
    ) {
        let retry = self.graph.node(path).map(|node| node.retry).unwrap_or_default();
        let failures = self.log.folded.graph.node(path).map_or(0, |node| node.retried) + 1;
        let delay = (error.is_retryable && failures <= retry.times).then(|| retry.delay(failures));
        // A condition that cannot be evaluated leads nowhere.
        let edges = match delay {
            None => self.taken_edges(path, &Map::new(), true).unwrap_or_default(),
            Some(_) => Vec::new(),
        };
        // Else the failure is that of a graph around it, if that leads on.
        let outer = match delay {
            None if edges.is_empty() => self.edges_of_enclosing(path),
            _ => None,
        };
        let retry_at = delay.map(|delay| now().after(delay));
        let event = NodeFailed {
            path: path.to_owned(),
            visit,
            attempt,
            code: Some(error.code.clone()),
            retry_at,
            handled: !edges.is_empty() || outer.is_some(),
        };
        let message = error.message.clone();
        self.log.push(NewRecord::with_content(now(), event, "error", message.clone().into()));
        let node = path.to_owned();
        self.report(Progress::NodeFailed { node, error: message, retry_at });
        match delay {
            Some(delay) => {
                self.retries.insert(path.to_owned(), Instant::now() + delay);
            }
            None if !edges.is_empty() => self.push_edges(&edges),
            None if outer.is_some() => {
                if let Some((outer, edges)) = outer {
                    self.fail_subgraph(&outer, &error);
                    self.push_edges(&edges);
                }
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
            turn: None,
        };
        let record = NewRecord::with_content(now(), event, "description", description.into());
        self.log.push(record);
        Ok(())
    }

    /// Whether a checkpoint is made that a run makes by itself: by the options, and by the policy.
    pub(super) fn wants(&self, of: &PolicyContext<'_>) -> bool {
        self.config.wants(of.boundary, of.iteration.unwrap_or(0))
            && (!self.config.smart || SmartPolicy.should_checkpoint(of))
            && self.graph.policy().is_none_or(|policy| policy.should_checkpoint(of))
    }
}

/// A moment that is not waited for.
fn far() -> Instant {
    Instant::now() + Duration::from_hours(24)
}
