//! What the parts of a node are given: an item of a map, an iteration of a loop. They can ask for what a
//! node can, and each of their questions has its place, so that a later attempt gets the same answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::error::NodeError;
use crate::node::{
    Asked, Attempt, Reads, Request, artifact_of, ask, event_of, text_of, to_value, undeclared, wait,
};

/// What the body of a map is given.
#[derive(Debug)]
pub struct ItemContext {
    pub(crate) of: Attempt,
    pub(crate) reads: Reads,
    pub(crate) index: u32,
    pub(crate) item: Value,
    pub(crate) waits: AtomicU32,
    pub(crate) requests: mpsc::Sender<Request>,
}

impl ItemContext {
    pub fn item(&self) -> &Value {
        &self.item
    }

    pub fn index(&self) -> u32 {
        self.index
    }

    pub fn attempt(&self) -> u32 {
        self.of.attempt
    }

    /// The same for every attempt at this item.
    pub fn idempotency_key(&self) -> String {
        format!("{}/{}", self.of.idempotency_key, self.index)
    }

    /// The value of a declared key; `null` if it has none.
    pub fn value(&self, key: &str) -> Result<&Value, NodeError> {
        value(&self.reads, key, &self.of)
    }

    /// Asks a person about this item; see [`NodeContext::wait_for`](crate::NodeContext::wait_for). The
    /// other items go on.
    pub async fn wait_for(
        &self,
        question: &str,
        options: &[String],
        deadline: Option<Duration>,
    ) -> Result<Value, NodeError> {
        let number = self.waits.fetch_add(1, Ordering::Relaxed);
        let number = format!("item/{}/{number}", self.index);
        self.ask(wait(number, question, options, deadline)).await
    }

    /// See [`NodeContext::emit`](crate::NodeContext::emit).
    pub async fn emit(&self, event: impl Serialize) -> Result<(), NodeError> {
        self.ask(event_of(event)?).await.map(drop)
    }

    /// See [`NodeContext::stream`](crate::NodeContext::stream). Items that run side by side share the
    /// node's text, whose offsets count on.
    pub async fn stream(&self, text: impl Into<String>) -> Result<(), NodeError> {
        self.ask(text_of(text)?).await.map(drop)
    }

    /// See [`NodeContext::artifact`](crate::NodeContext::artifact).
    pub async fn artifact(&self, name: &str, bytes: impl Into<Vec<u8>>) -> Result<(), NodeError> {
        self.ask(artifact_of(name, bytes)?).await.map(drop)
    }

    /// A checkpoint of the type `safe_point`, where a pause stops the item. Nothing is restored from
    /// it: what an item comes to is durable when it is complete.
    pub async fn safe_point(&self, why: &str) -> Result<(), NodeError> {
        let (description, writes, messages) = (why.to_owned(), Map::new(), Vec::new());
        self.ask(Asked::SafePoint { description, writes, messages }).await.map(drop)
    }

    async fn ask(&self, asked: Asked) -> Result<Value, NodeError> {
        ask(&self.requests, &self.of, asked).await
    }
}

/// What the body of a loop is given.
#[derive(Debug)]
pub struct LoopContext {
    pub(crate) of: Attempt,
    pub(crate) reads: Reads,
    pub(crate) iteration: u32,
    pub(crate) conversation: Arc<Vec<Value>>,
    pub(crate) outputs: Arc<Map<String, Value>>,
    pub(crate) added: Vec<Value>,
    pub(crate) changed: Map<String, Value>,
    pub(crate) safe_point: Option<String>,
    pub(crate) waits: u32,
    pub(crate) requests: mpsc::Sender<Request>,
}

impl LoopContext {
    /// Counts from 0.
    pub fn iteration(&self) -> u32 {
        self.iteration
    }

    pub fn attempt(&self) -> u32 {
        self.of.attempt
    }

    /// The same for every attempt at this iteration.
    pub fn idempotency_key(&self) -> String {
        format!("{}/{}", self.of.idempotency_key, self.iteration)
    }

    /// The messages of the iterations before this one.
    pub fn conversation(&self) -> &[Value] {
        &self.conversation
    }

    /// What this iteration has added to the conversation; after a safe point of an attempt that was cut
    /// off, what it had added.
    pub fn added(&self) -> &[Value] {
        &self.added
    }

    /// What the iterations before this one accumulated.
    pub fn outputs(&self) -> &Map<String, Value> {
        &self.outputs
    }

    pub fn value(&self, key: &str) -> Result<&Value, NodeError> {
        value(&self.reads, key, &self.of)
    }

    /// Adds a message to the conversation.
    pub fn say(&mut self, message: impl Serialize) -> Result<(), NodeError> {
        self.added.push(to_value("message", message)?);
        Ok(())
    }

    /// Sets an output of the loop. Those that the node declares in `writes` are written when it is done.
    pub fn set_output(&mut self, key: &str, value: impl Serialize) -> Result<(), NodeError> {
        let value = to_value(key, value)?;
        self.changed.insert(key.to_owned(), value);
        Ok(())
    }

    /// Asks a person in the middle of this iteration; see
    /// [`NodeContext::wait_for`](crate::NodeContext::wait_for).
    pub async fn wait_for(
        &mut self,
        question: &str,
        options: &[String],
        deadline: Option<Duration>,
    ) -> Result<Value, NodeError> {
        let number = format!("iteration/{}/{}", self.iteration, self.waits);
        self.waits += 1;
        self.ask(wait(number, question, options, deadline)).await
    }

    /// See [`NodeContext::emit`](crate::NodeContext::emit).
    pub async fn emit(&mut self, event: impl Serialize) -> Result<(), NodeError> {
        self.ask(event_of(event)?).await.map(drop)
    }

    /// See [`NodeContext::stream`](crate::NodeContext::stream).
    pub async fn stream(&mut self, text: impl Into<String>) -> Result<(), NodeError> {
        self.ask(text_of(text)?).await.map(drop)
    }

    /// See [`NodeContext::artifact`](crate::NodeContext::artifact).
    pub async fn artifact(
        &mut self,
        name: &str,
        bytes: impl Into<Vec<u8>>,
    ) -> Result<(), NodeError> {
        self.ask(artifact_of(name, bytes)?).await.map(drop)
    }

    /// Makes what this iteration said and set until here durable: should the attempt be cut off, the
    /// next one begins the iteration with it, and [`Self::last_safe_point`] says so.
    pub async fn safe_point(&mut self, why: &str) -> Result<(), NodeError> {
        let (description, writes) = (why.to_owned(), self.changed.clone());
        let messages = self.added.clone();
        self.ask(Asked::SafePoint { description, writes, messages }).await.map(drop)
    }

    /// What the last safe point of this iteration was called, in an attempt that was cut off.
    pub fn last_safe_point(&self) -> Option<&str> {
        self.safe_point.as_deref()
    }

    async fn ask(&self, asked: Asked) -> Result<Value, NodeError> {
        ask(&self.requests, &self.of, asked).await
    }
}

fn value<'a>(reads: &'a Reads, key: &str, of: &Attempt) -> Result<&'a Value, NodeError> {
    match reads.get(key) {
        Some(value) => Ok(value),
        None => Err(undeclared("reads", key, &of.path, reads.keys())),
    }
}
