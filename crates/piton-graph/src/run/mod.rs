//! Running a graph: one scheduler owns the session's log and starts, hears and ends the nodes' tasks.

mod asking;
mod completing;
mod ending;
mod nesting;
mod resume;
mod scheduler;
mod waiting;

use std::collections::BTreeMap;
use std::sync::Arc;

use piton_core::decide::{Command, Verdict};
use piton_core::graph::{CheckpointConfig, CheckpointOptions};
use piton_core::id::{CheckpointId, SessionId, WaitId};
use piton_core::{AnyCode, Seq, Timestamp};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot, watch};

use crate::agent::AgentHost;
use crate::error::{Error, Result, nearest};
use crate::graph::Graph;
use crate::store::{Claim, GraphStore};
use scheduler::Scheduler;

/// How to run a graph.
#[derive(Debug)]
pub struct Runner {
    graph: Graph,
    store: GraphStore,
    options: CheckpointOptions,
    session: Option<SessionId>,
    working_dir: Option<String>,
    is_on_server: bool,
    progress: Option<mpsc::UnboundedSender<Progress>>,
    agents: Option<Arc<dyn AgentHost>>,
}

/// What a run reports while it runs, each when it is durable. For people; the log has it all.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Progress {
    NodeStarted {
        node: String,
        attempt: u32,
    },
    NodeCompleted {
        node: String,
        latency_ms: u64,
    },
    NodeFailed {
        node: String,
        error: String,
        retry_at: Option<Timestamp>,
    },
    NodeSkipped {
        node: String,
    },
    /// Of a map: items that are complete; of a loop: iterations.
    NodeAdvanced {
        node: String,
        done: u32,
        count: Option<u32>,
    },
    NodeWaiting {
        node: String,
        wait_id: WaitId,
    },
}

/// How a run ended, or where it stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Completed(Finished),
    /// It waits for people; nothing runs. Answer with [`crate::answer`], then resume.
    Waiting {
        waits: Vec<OpenWait>,
    },
    /// It was asked to pause, and everything that ran has completed.
    Paused,
    Cancelled,
    Failed(Failure),
}

/// What a graph leaves behind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Finished {
    pub memory: BTreeMap<String, Arc<Value>>,
    pub outputs: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenWait {
    pub wait_id: WaitId,
    pub node: String,
    pub deadline_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub node: String,
    pub code: AnyCode,
    pub error: String,
    /// Where a resume begins.
    pub checkpoint: Option<CheckpointId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stop {
    #[default]
    No,
    Pause,
    Cancel,
}

/// A run that was started or resumed, and is durable. Nothing runs before [`Run::finish`].
#[derive(Debug)]
pub struct Run {
    session: SessionId,
    resumed_from: Option<CheckpointId>,
    masked: Vec<String>,
    scheduler: Scheduler,
    stop: Arc<watch::Sender<Stop>>,
    answers: mpsc::UnboundedSender<GivenAnswer>,
    commands: mpsc::UnboundedSender<GivenCommand>,
    /// Held as long as it runs.
    _claim: Claim,
}

/// Stops a run from elsewhere, or answers what it asks. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RunHandle {
    stop: Arc<watch::Sender<Stop>>,
    answers: mpsc::UnboundedSender<GivenAnswer>,
    commands: mpsc::UnboundedSender<GivenCommand>,
}

/// A command about the session that runs, on its way to the session's one writer.
#[derive(Debug)]
struct GivenCommand {
    command: Command,
    reply: oneshot::Sender<Result<Decided>>,
}

/// What a command came to, once it is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    pub verdict: Verdict,
    /// The session's last record when it was decided.
    pub last_seq: Seq,
}

/// An answer on its way to the run that asked.
#[derive(Debug)]
struct GivenAnswer {
    wait_id: WaitId,
    answer: Value,
    reply: oneshot::Sender<Result<()>>,
}

impl RunHandle {
    /// Starts no more nodes; the run is paused when those that run have completed.
    pub fn pause(&self) {
        self.stop.send_replace(Stop::Pause);
    }

    /// Answers a wait of a node while other nodes run. False: the run has ended, and the answer is for
    /// [`crate::answer`].
    pub async fn answer(&self, wait_id: WaitId, answer: Value) -> Result<bool> {
        let (reply, answered) = oneshot::channel();
        if self.answers.send(GivenAnswer { wait_id, answer, reply }).is_err() {
            return Ok(false);
        }
        match answered.await {
            Ok(done) => done.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    /// Has the run decide a command about its session: an answer, a token, a title. What would change
    /// the run itself is refused with `run_in_progress`. `None`: the run has ended, and another caller
    /// may write to the session.
    pub async fn execute(&self, command: Command) -> Result<Option<Decided>> {
        let (reply, decided) = oneshot::channel();
        if self.commands.send(GivenCommand { command, reply }).is_err() {
            return Ok(None);
        }
        match decided.await {
            Ok(decided) => decided.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Ends the nodes that run, and the run.
    pub fn cancel(&self) {
        self.stop.send_replace(Stop::Cancel);
    }
}

impl Run {
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// The checkpoint that it was resumed from.
    pub fn resumed_from(&self) -> Option<&CheckpointId> {
        self.resumed_from.as_ref()
    }

    /// What a resume restored and masking had changed in the log: parts of conversations and outputs, by
    /// name. They have the mask in the secret's place.
    pub fn masked(&self) -> &[String] {
        &self.masked
    }

    pub fn handle(&self) -> RunHandle {
        RunHandle {
            stop: Arc::clone(&self.stop),
            answers: self.answers.clone(),
            commands: self.commands.clone(),
        }
    }

    /// Runs until it ends or waits.
    pub async fn finish(self) -> Result<Outcome> {
        self.scheduler.run().await
    }
}

impl Graph {
    /// A runner for this graph.
    pub fn runner(&self, store: &GraphStore) -> Runner {
        Runner {
            graph: self.clone(),
            store: store.clone(),
            options: CheckpointOptions::default(),
            session: None,
            working_dir: None,
            is_on_server: false,
            progress: None,
            agents: None,
        }
    }
}

impl Runner {
    /// Options of this execution: they win over the runtime's and the graph's.
    pub fn checkpoints(mut self, options: CheckpointOptions) -> Self {
        self.options = options;
        self
    }

    /// The id of the session that [`Self::start`] makes.
    pub fn session(mut self, id: SessionId) -> Self {
        self.session = Some(id);
        self
    }

    /// The folder in which commands run, now and when the session is resumed; without one, that of
    /// this process.
    pub fn working_dir(mut self, folder: impl Into<String>) -> Self {
        self.working_dir = Some(folder.into());
        self
    }

    /// A server runs it, and continues it after a restart.
    pub fn on_server(mut self) -> Self {
        self.is_on_server = true;
        self
    }

    /// What runs the agents of `agent` nodes; a graph that has none needs no host.
    pub fn agents(mut self, host: Arc<dyn AgentHost>) -> Self {
        self.agents = Some(host);
        self
    }

    /// Where progress is reported.
    pub fn progress(mut self, to: mpsc::UnboundedSender<Progress>) -> Self {
        self.progress = Some(to);
        self
    }

    /// How this execution is checkpointed; `recorded`: what earlier ones of the session were given, which
    /// was checked when they were.
    fn config(&self, recorded: &CheckpointOptions) -> Result<CheckpointConfig> {
        let (graph, runtime) = (&self.graph.spec().checkpoint, self.store.checkpoint_options());
        CheckpointConfig::check([graph, runtime, &self.options], self.store.features())?;
        Ok(CheckpointConfig::of_execution([graph, runtime], recorded, &self.options))
    }

    /// Starts the graph in a new session.
    pub async fn start(self, inputs: Map<String, Value>) -> Result<Run> {
        resume::start(self, inputs).await
    }

    /// Resumes a session: where its log ends, or from a checkpoint, with some keys of the memory set
    /// to other values. Work that came after the checkpoint stays in the log, as an abandoned branch.
    pub async fn resume(
        self,
        session: &SessionId,
        checkpoint: Option<&CheckpointId>,
        modifications: Map<String, Value>,
    ) -> Result<Run> {
        resume::resume(self, session, checkpoint, modifications).await
    }
}

/// The inputs, with defaults; an error if one is missing, unknown or of another type.
fn complete_inputs(graph: &Graph, mut given: Map<String, Value>) -> Result<Map<String, Value>> {
    let spec = graph.spec();
    let known = || spec.inputs.keys().map(String::as_str);
    if let Some(unknown) = given.keys().find(|key| !spec.inputs.contains_key(*key)) {
        let hint = nearest(unknown, known()).map(|name| format!("Did you mean `{name}`?"));
        return Err(Error::Input { message: format!("The graph has no input `{unknown}`"), hint });
    }
    for (name, input) in &spec.inputs {
        let value = given.get(name).filter(|value| !value.is_null());
        match (value, &input.default) {
            (Some(value), _) => check_type(graph, name, value)?,
            (None, Some(default)) => {
                given.insert(name.clone(), default.clone());
            }
            (None, None) if input.required => {
                let message = format!("The input `{name}` is required");
                return Err(Error::Input { message, hint: None });
            }
            (None, None) => {
                given.remove(name);
            }
        }
    }
    Ok(given)
}

/// A value of an input has the type that the graph declares.
fn check_type(graph: &Graph, name: &str, value: &Value) -> Result<()> {
    let of_type = graph.spec().input(name).and_then(|input| input.of_type);
    match of_type.filter(|of_type| !of_type.fits(value)) {
        Some(of_type) => {
            let message = format!("`{name}` has to be of the type `{}`", of_type.as_str());
            Err(Error::Input { message, hint: None })
        }
        None => Ok(()),
    }
}

/// What all attempts of a visit have in common.
fn idempotency_key(session: &SessionId, lineage: u32, path: &str, visit: u32) -> String {
    format!("{session}/{lineage}/{path}/{visit}")
}
