//! What a node is, and what it is given while it runs. A node never touches the log: what it wants
//! written it asks the scheduler for, which is the session's one writer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use piton_core::Code;
use piton_core::id::SessionId;
use piton_core::limits::PAYLOAD_BYTES_MAX;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};

use crate::agent::AgentHost;
use crate::error::{NodeError, nearest};
use crate::expression::Variables;
pub use crate::parts::{ItemContext, LoopContext};

/// A node of your own. Its writes are private until it returns `Ok`.
#[async_trait]
pub trait Node: Send + Sync + 'static {
    async fn run(&self, ctx: &mut NodeContext) -> Result<(), NodeError>;
}

/// What a map node does with one item.
#[async_trait]
pub trait MapBody: Send + Sync + 'static {
    /// The result takes the item's place in the list that the node writes.
    async fn item(&self, ctx: &ItemContext) -> Result<Value, NodeError>;
}

/// What a loop node does in one iteration. What it adds to the conversation and to the outputs is
/// durable when the iteration is complete, and never before.
#[async_trait]
pub trait LoopBody: Send + Sync + 'static {
    async fn iterate(&self, ctx: &mut LoopContext) -> Result<LoopStep, NodeError>;
}

/// Whether a loop continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopStep {
    Continue,
    Done,
}

/// What a node asks the scheduler for.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) attempt: u32,
    pub(crate) asked: Asked,
    pub(crate) reply: oneshot::Sender<Result<Value, NodeError>>,
}

#[derive(Debug)]
pub(crate) enum Asked {
    SafePoint {
        description: String,
        writes: Map<String, Value>,
        /// Of a loop's iteration: what it added to the conversation until here.
        messages: Vec<Value>,
    },
    /// So many parts of the attempt run side by side: items of a map.
    Parts {
        running: usize,
    },
    Wait {
        /// Which of the attempt's waits it is: the same in every attempt.
        number: String,
        question: Value,
        deadline: Option<Duration>,
    },
    /// The session that the node works through, before anything is sent to it.
    AssignSession {
        child_session_id: SessionId,
    },
    MapList {
        items: Vec<Value>,
    },
    MapItem {
        index: u32,
        value: Value,
    },
    Event {
        event: Value,
    },
    Text {
        text: String,
    },
    Artifact {
        name: String,
        bytes: Vec<u8>,
    },
    Iteration {
        iteration: u32,
        messages: Vec<Value>,
        outputs: Map<String, Value>,
        done: bool,
    },
}

/// Which attempt of which node runs.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) session: SessionId,
    pub(crate) path: String,
    pub(crate) visit: u32,
    pub(crate) attempt: u32,
    pub(crate) idempotency_key: String,
    /// Where commands run.
    pub(crate) working_dir: Option<String>,
    pub(crate) agents: Option<Arc<dyn AgentHost>>,
}

/// What the log knows of earlier attempts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Restored {
    pub(crate) child_session_id: Option<SessionId>,
    /// Attempts of this visit that failed.
    pub(crate) failures: u32,
    pub(crate) safe_point: Option<(String, Map<String, Value>)>,
    /// What the safe point of a loop's iteration has of the conversation.
    pub(crate) messages: Vec<Value>,
    pub(crate) map: Option<RestoredMap>,
    pub(crate) conversation: Vec<Value>,
    pub(crate) outputs: Map<String, Value>,
    pub(crate) iterations: u32,
    pub(crate) is_done: bool,
}

/// How far earlier attempts of a map came.
#[derive(Clone, Debug)]
pub(crate) struct RestoredMap {
    /// Items of the list.
    pub(crate) count: u32,
    /// `None`: masking changed the list.
    pub(crate) items: Option<Vec<Value>>,
    pub(crate) results: BTreeMap<u32, Value>,
}

/// The keys that a node may read, with their values when it started.
pub(crate) type Reads = BTreeMap<String, Arc<Value>>;

/// What a node is given.
#[derive(Debug)]
pub struct NodeContext {
    pub(crate) of: Attempt,
    pub(crate) reads: Reads,
    pub(crate) may_write: BTreeSet<String>,
    pub(crate) writes: Map<String, Value>,
    pub(crate) outputs: Map<String, Value>,
    pub(crate) restored: Restored,
    pub(crate) waits: u32,
    pub(crate) requests: mpsc::Sender<Request>,
}

impl NodeContext {
    /// The node's name.
    pub fn node(&self) -> &str {
        &self.of.path
    }

    /// Counts attempts from 1, also those that a crash cut off.
    pub fn attempt(&self) -> u32 {
        self.of.attempt
    }

    /// How often a cycle led to the node; the first visit is 1.
    pub fn visit(&self) -> u32 {
        self.of.visit
    }

    /// The same for every attempt of this visit, over crashes too: another service can recognise a
    /// repetition by it.
    pub fn idempotency_key(&self) -> &str {
        &self.of.idempotency_key
    }

    /// The value of a declared key; an error if it is missing or of another type.
    pub fn read<T: DeserializeOwned>(&self, key: &str) -> Result<T, NodeError> {
        let value = self.value(key)?;
        T::deserialize(value).map_err(|error| {
            let why = if value.is_null() { "it is not set".to_owned() } else { error.to_string() };
            NodeError::new(format!("`{key}` cannot be read: {why}")).permanent()
        })
    }

    /// The value of a declared key; `null` if it has none. What the node wrote itself counts.
    pub fn value(&self, key: &str) -> Result<&Value, NodeError> {
        if let Some(value) = self.writes.get(key) {
            return Ok(value);
        }
        match self.reads.get(key) {
            Some(value) => Ok(value),
            None => Err(undeclared("reads", key, &self.of.path, self.reads.keys())),
        }
    }

    /// Writes a declared key. Others see it when the node completes. With a reducer: what is added.
    pub fn write(&mut self, key: &str, value: impl Serialize) -> Result<(), NodeError> {
        if !self.may_write.contains(key) {
            return Err(undeclared("writes", key, &self.of.path, self.may_write.iter()));
        }
        let value = to_value(key, value)?;
        self.writes.insert(key.to_owned(), value);
        Ok(())
    }

    /// Adds an output of the graph, beside the memory.
    pub fn output(&mut self, key: &str, value: impl Serialize) -> Result<(), NodeError> {
        let value = to_value(key, value)?;
        self.outputs.insert(key.to_owned(), value);
        Ok(())
    }

    /// Makes the writes until here durable: should this attempt be cut off, the next one has them, and
    /// [`Self::last_safe_point`] says so. A checkpoint of the type `safe_point`.
    pub async fn safe_point(&mut self, why: &str) -> Result<(), NodeError> {
        let (description, writes) = (why.to_owned(), self.writes.clone());
        let messages = Vec::new();
        self.ask(Asked::SafePoint { description, writes, messages }).await?;
        Ok(())
    }

    /// What the last safe point of an earlier attempt was called. Its writes are made already.
    pub fn last_safe_point(&self) -> Option<&str> {
        self.restored.safe_point.as_ref().map(|(why, _)| why.as_str())
    }

    /// Asks a person and waits for the answer. An attempt that runs again after a crash gets the answer
    /// that was given, and does not ask twice. `options`: what can be answered; empty: anything.
    pub async fn wait_for(
        &mut self,
        question: &str,
        options: &[String],
        deadline: Option<Duration>,
    ) -> Result<Value, NodeError> {
        let number = self.waits.to_string();
        self.waits += 1;
        self.ask(wait(number, question, options, deadline)).await
    }

    /// Tells readers of the session's log something, as the record `node.event`. Nothing is restored
    /// from it: an attempt that runs again tells it again.
    pub async fn emit(&mut self, event: impl Serialize) -> Result<(), NodeError> {
        self.ask(event_of(event)?).await?;
        Ok(())
    }

    /// Streams text to readers of the session's log, as the records `node.text`.
    pub async fn stream(&mut self, text: impl Into<String>) -> Result<(), NodeError> {
        self.ask(text_of(text)?).await?;
        Ok(())
    }

    /// Keeps a file with the session, by its name. It is durable when this returns; a file of the same
    /// name takes its place.
    pub async fn artifact(
        &mut self,
        name: &str,
        bytes: impl Into<Vec<u8>>,
    ) -> Result<(), NodeError> {
        self.ask(artifact_of(name, bytes)?).await?;
        Ok(())
    }

    pub(crate) async fn ask(&self, asked: Asked) -> Result<Value, NodeError> {
        ask(&self.requests, &self.of, asked).await
    }

    /// The node's variables in templates.
    pub(crate) fn variables(&self) -> Variables<'_> {
        self.reads.iter().map(|(key, value)| (key.as_str(), &**value)).collect()
    }
}

pub(crate) fn wait(
    number: String,
    question: &str,
    options: &[String],
    deadline: Option<Duration>,
) -> Asked {
    let mut object = Map::new();
    object.insert("question".to_owned(), question.into());
    if !options.is_empty() {
        let option = |name: &String| serde_json::json!({"option_id": name, "name": name});
        object.insert("options".to_owned(), options.iter().map(option).collect());
    }
    Asked::Wait { number, question: object.into(), deadline }
}

pub(crate) fn event_of(event: impl Serialize) -> Result<Asked, NodeError> {
    Ok(Asked::Event { event: to_value("event", event)? })
}

pub(crate) fn text_of(text: impl Into<String>) -> Result<Asked, NodeError> {
    let text = text.into();
    check_size("text", &Value::String(text.clone()))?;
    Ok(Asked::Text { text })
}

pub(crate) fn artifact_of(name: &str, bytes: impl Into<Vec<u8>>) -> Result<Asked, NodeError> {
    let bytes = bytes.into();
    check_artifact(name, bytes.len())?;
    Ok(Asked::Artifact { name: name.to_owned(), bytes })
}

pub(crate) async fn ask(
    requests: &mpsc::Sender<Request>,
    of: &Attempt,
    asked: Asked,
) -> Result<Value, NodeError> {
    let (reply, answer) = oneshot::channel();
    let (path, attempt) = (of.path.clone(), of.attempt);
    let ended = || NodeError::new("The run has ended");
    let request = Request { path, attempt, asked, reply };
    requests.send(request).await.map_err(|_| ended())?;
    answer.await.map_err(|_| ended())?
}

pub(crate) fn undeclared<'a>(
    what: &str,
    key: &str,
    path: &str,
    known: impl Iterator<Item = &'a String>,
) -> NodeError {
    let near = nearest(key, known.map(String::as_str));
    let hint = near.map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
    NodeError::new(format!("The node `{path}` does not declare `{key}` in `{what}`{hint}"))
        .with_code(Code::MemoryKeyUndeclared)
        .permanent()
}

/// Largest file that a node can leave: not text, it takes twice as much in its record.
pub(crate) const ARTIFACT_BYTES_MAX: usize = PAYLOAD_BYTES_MAX / 2 - 1_024;
const ARTIFACT_NAME_BYTES_MAX: usize = 128;

/// A name that is a file's name everywhere, and a size that fits.
pub(crate) fn check_artifact(name: &str, bytes: usize) -> Result<(), NodeError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let fits = (1..=ARTIFACT_NAME_BYTES_MAX).contains(&name.len())
        && name.chars().all(allowed)
        && !name.starts_with('.');
    if !fits {
        let message = format!(
            "`{name}` is no name of an artifact: 1 to {ARTIFACT_NAME_BYTES_MAX} letters, digits, `_`, `-` or `.`, and no `.` first"
        );
        return Err(NodeError::new(message).with_code(Code::NodeOutputInvalid).permanent());
    }
    if bytes > ARTIFACT_BYTES_MAX {
        let message =
            format!("The artifact `{name}` has {bytes} bytes; {ARTIFACT_BYTES_MAX} are the limit");
        return Err(NodeError::new(message).with_code(Code::PayloadTooLarge).permanent());
    }
    Ok(())
}

/// A value as JSON, within the limit of one record.
pub(crate) fn to_value(key: &str, value: impl Serialize) -> Result<Value, NodeError> {
    let value = serde_json::to_value(value).map_err(|error| {
        NodeError::new(format!("The value of `{key}` cannot be written as JSON: {error}"))
            .permanent()
    })?;
    check_size(key, &value)?;
    Ok(value)
}

/// Refuses a value that no record could hold.
pub(crate) fn check_size(key: &str, value: &Value) -> Result<(), NodeError> {
    // Room for the field's name around it.
    let max = PAYLOAD_BYTES_MAX - 1_024;
    let bytes = json_bytes(value);
    if bytes > max {
        let message =
            format!("The value of `{key}` has {bytes} bytes as JSON; {max} are the limit");
        return Err(NodeError::new(message).with_code(Code::PayloadTooLarge).permanent());
    }
    Ok(())
}

/// How long a value is as JSON, without making the text.
pub(crate) fn json_bytes(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting does not fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}
