//! What happened in a graph's session, in order, in one line each: runs, nodes, waits, checkpoints and
//! lineages.

use std::sync::Arc;

use piton_core::event::Event;
use piton_core::id::{CheckpointId, SessionId};
use piton_core::{Seq, Timestamp};
use piton_store::Store;
use serde::Serialize;

use crate::error::Result;
use crate::log::Reader;

/// One line of a timeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimelineEntry {
    pub seq: Seq,
    pub ts: Timestamp,
    /// The lineage that it belongs to.
    pub lineage: u32,
    /// False: a later lineage began before it, so it counts no more.
    pub is_current: bool,
    /// The record's kind.
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<CheckpointId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The type of a checkpoint, the reason of an interruption, the edge that was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// What happened in a session, oldest first.
pub async fn timeline(store: &Arc<dyn Store>, session: &SessionId) -> Result<Vec<TimelineEntry>> {
    let log = Reader::new(store, session.clone());
    let (folded, events) = log.load_readable().await?;
    let current = folded.lineages.segments(folded.lineage(), folded.session.last_seq);
    let mut lineage = 1;
    let mut entries = Vec::new();
    for (seq, ts, event) in &events {
        if let Event::LineageStarted(e) = event {
            lineage = e.lineage;
        }
        let is_current = current.iter().any(|segment| segment.contains(seq));
        let mut entry = TimelineEntry {
            seq: *seq,
            ts: *ts,
            lineage,
            is_current,
            kind: event.kind().to_owned(),
            node: None,
            checkpoint_id: None,
            latency_ms: None,
            attempt: None,
            detail: None,
        };
        if entry.fill(event) {
            entries.push(entry);
        }
    }
    Ok(entries)
}

impl TimelineEntry {
    /// What the event says; false: it is no line of a timeline.
    fn fill(&mut self, event: &Event) -> bool {
        match event {
            Event::RunStarted(_)
            | Event::RunResumed(_)
            | Event::RunReattached(_)
            | Event::RunPaused(_)
            | Event::RunCompleted(_)
            | Event::RunWaiting(_)
            | Event::RunFailed(_) => {}
            Event::RunInterrupted(e) => self.detail = Some(e.reason.as_str().to_owned()),
            Event::RunCancelled(e) => {
                self.detail = e.reason.map(|reason| reason.as_str().to_owned());
            }
            Event::GraphBound(e) => self.detail = Some(e.name.clone()),
            Event::GraphForked(e) => self.checkpoint_id = Some(e.from_checkpoint_id.clone()),
            Event::NodeStarted(e) => self.set_node(&e.path, Some(e.attempt)),
            Event::NodeCompleted(e) => {
                self.set_node(&e.path, Some(e.attempt));
                self.latency_ms = Some(e.latency_ms);
            }
            Event::NodeFailed(e) => {
                self.set_node(&e.path, Some(e.attempt));
                self.detail = e.code.as_ref().map(|code| code.as_str().to_owned());
            }
            Event::NodeSkipped(e) => self.set_node(&e.path, None),
            Event::NodeSessionAssigned(e) => {
                self.set_node(&e.path, None);
                self.detail = Some(e.child_session_id.to_string());
            }
            Event::EdgeTaken(e) => self.detail = Some(format!("{} -> {}", e.from, e.to)),
            Event::LoopIterated(e) => {
                self.set_node(&e.path, None);
                self.detail = Some(format!("iteration {}", e.iteration + 1));
            }
            Event::MapItemCompleted(e) => {
                self.set_node(&e.path, None);
                self.detail = Some(format!("item {}", e.index + 1));
            }
            Event::CheckpointCreated(e) => {
                self.node.clone_from(&e.current_node);
                self.checkpoint_id = Some(e.checkpoint_id.clone());
                self.detail = Some(e.checkpoint_type.as_str().to_owned());
            }
            Event::CheckpointDamaged(e) => self.checkpoint_id = Some(e.checkpoint_id.clone()),
            Event::CheckpointDeleted(e) => self.checkpoint_id = Some(e.checkpoint_id.clone()),
            Event::CheckpointPruned(e) => {
                self.detail = Some(format!("{} checkpoints", e.checkpoint_ids.len()));
            }
            Event::LineageStarted(e) => {
                self.checkpoint_id = Some(e.from_checkpoint_id.clone());
                self.detail = Some(format!("lineage {}", e.lineage));
            }
            _ => return false,
        }
        true
    }

    fn set_node(&mut self, path: &str, attempt: Option<u32>) {
        self.node = Some(path.to_owned());
        self.attempt = attempt;
    }
}
