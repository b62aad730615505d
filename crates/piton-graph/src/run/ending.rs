//! How a run ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use piton_core::Reason;
use piton_core::decide::Command;
use serde_json::Value;

use super::scheduler::Scheduler;
use super::{Finished, OpenWait, Outcome, Stop};
use crate::error::Result;

impl Scheduler {
    /// Nothing runs any more: how the run ends, or what it waits for.
    pub(super) async fn end(mut self, stop: Stop) -> Result<Outcome> {
        let waits: Vec<OpenWait> = self
            .live
            .iter()
            .flat_map(|(node, live)| live.waits.iter().map(move |wait| (node, wait)))
            .map(|(node, wait)| {
                let (wait_id, deadline_at) = (wait.id.clone(), wait.deadline_at);
                OpenWait { wait_id, node: node.clone(), deadline_at }
            })
            .collect();
        for live in self.live.values() {
            live.task.abort();
        }
        self.push_pruned_over_maximum();
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
        self.commit().await?;
        Ok(outcome)
    }

    async fn finished(&self) -> Result<Finished> {
        let mut outputs = BTreeMap::new();
        for (key, seq) in &self.log.folded.graph.outputs {
            // Those of this run are known as they were, whatever masking made of them in the log.
            let value = match self.outputs.get(key) {
                Some(value) => Some(value.clone()),
                None => self.log.field(*seq, "value").await?,
            };
            outputs.insert(key.clone(), value.unwrap_or(Value::Null));
        }
        // Those of subgraphs are their own.
        let is_own = |key: &str| !key.contains('/');
        outputs.retain(|key, _| is_own(key));
        let memory = self.memory.iter().filter(|(key, _)| is_own(key));
        let memory = memory.map(|(key, value)| (key.clone(), Arc::clone(value))).collect();
        Ok(Finished { memory, outputs })
    }
}
