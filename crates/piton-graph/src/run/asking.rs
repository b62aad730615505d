//! What nodes ask the scheduler for while they run.

use piton_core::NewRecord;
use piton_core::event::{
    ArtifactAdded, LoopIterated, MapItemCompleted, MapListed, NodeEvent, NodeSafePoint,
    NodeSessionAssigned, NodeText,
};
use piton_core::graph::CheckpointType;
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use super::scheduler::{Reply, Scheduler};
use super::{Progress, Stop};
use crate::error::{NodeError, Result};
use crate::node::{Asked, Request};
use crate::policy::PolicyContext;
use crate::store::now;

impl Scheduler {
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
            Some(live) => live.held.push(reply),
            None => replies.push((reply, Ok(Value::Null))),
        }
    }

    /// What a node asks for. Answered when it is durable.
    pub(super) async fn asked(&mut self, request: Request, replies: &mut Vec<Reply>) -> Result<()> {
        let Request { path, attempt, asked, reply } = request;
        let live = self.live.get_mut(&path).filter(|live| live.attempt == attempt);
        let Some(live) = live else {
            replies.push((reply, Err(NodeError::new("The attempt has ended"))));
            return Ok(());
        };
        let visit = live.visit;
        match asked {
            Asked::Parts { running } => live.parts = running,
            Asked::SafePoint { description, writes, messages } => {
                // An excluded value stays out of the disk here, too: a resume asks for it.
                let is_excluded = |(key, _): &(String, Value)| self.excluded.matches(key);
                let (excluded, writes): (Map<_, _>, Map<_, _>) =
                    writes.into_iter().partition(is_excluded);
                for (key, value) in &excluded {
                    self.log.teach(key, value)?;
                }
                let excluded_keys = excluded.keys().cloned().collect();
                self.lost_writes.insert(path.clone(), excluded);
                let event = NodeSafePoint { path: path.clone(), visit, attempt, excluded_keys };
                let mut content = Map::from_iter([
                    ("description".to_owned(), Value::from(description.clone())),
                    ("writes".to_owned(), writes.into()),
                ]);
                if !messages.is_empty() {
                    content.insert("messages".to_owned(), messages.into());
                }
                self.log.push(NewRecord::with_fields(now(), event, content));
                if self.config.wants(CheckpointType::SafePoint, 0) {
                    self.push_checkpoint(CheckpointType::SafePoint, &path, None, &description)?;
                    self.push_pruned_over_maximum();
                }
                self.hold_or_reply(&path, reply, replies);
                return Ok(());
            }
            Asked::AssignSession { child_session_id } => {
                self.log.push_event(NodeSessionAssigned { path, visit, child_session_id });
            }
            Asked::MapList { items } => {
                let count = u32::try_from(items.len()).unwrap_or(u32::MAX);
                let event = MapListed { path, visit, count, excluded: false };
                self.log.push(NewRecord::with_content(now(), event, "items", items.into()));
            }
            Asked::MapItem { index, value } => {
                let event = MapItemCompleted { path: path.clone(), visit, index, excluded: false };
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
                let event = LoopIterated {
                    path: path.clone(),
                    visit,
                    iteration,
                    messages: count,
                    done,
                    excluded: false,
                };
                let step = Map::from_iter([
                    ("messages".to_owned(), Value::Array(messages)),
                    ("outputs".to_owned(), outputs.into()),
                ]);
                self.log.push(NewRecord::with_content(now(), event, "step", step.into()));
                let tags = self.graph.node(&path).map(|node| node.tags.clone()).unwrap_or_default();
                let of = PolicyContext {
                    boundary: CheckpointType::LoopIteration,
                    node: &path,
                    tags: &tags,
                    attempt,
                    latency: None,
                    changed_keys: 0,
                    iteration: Some(iteration),
                };
                if self.wants(&of) {
                    let description = format!("Iteration {} of `{path}`", iteration + 1);
                    self.push_checkpoint(CheckpointType::LoopIteration, &path, None, &description)?;
                    self.push_pruned_over_maximum();
                }
                let (node, count) = (path.clone(), None);
                self.report(Progress::NodeAdvanced { node, done: iteration + 1, count });
                self.hold_or_reply(&path, reply, replies);
                return Ok(());
            }
            Asked::Event { event } => {
                let record = NodeEvent { path, visit, attempt };
                self.log.push(NewRecord::with_content(now(), record, "event", event));
            }
            Asked::Text { text } => {
                let offset = live.streamed;
                live.streamed += text.len() as u64;
                let record = NodeText { path, visit, attempt, offset };
                self.log.push(NewRecord::with_content(now(), record, "text", text.into()));
            }
            Asked::Artifact { name, bytes } => {
                let count = bytes.len() as u64;
                let (data, is_hex) = match String::from_utf8(bytes) {
                    Ok(text) => (text, false),
                    Err(error) => (hex::encode(error.as_bytes()), true),
                };
                let event = ArtifactAdded { path, name, bytes: count, is_hex, excluded: false };
                self.log.push(NewRecord::with_content(now(), event, "data", data.into()));
            }
            Asked::Wait { number, question, deadline } => {
                return self.wait(&path, visit, (number, question, deadline), reply, replies).await;
            }
        }
        replies.push((reply, Ok(Value::Null)));
        Ok(())
    }
}
