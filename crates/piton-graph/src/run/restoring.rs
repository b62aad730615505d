//! What earlier attempts of a node left in the log.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::scheduler::Scheduler;
use crate::error::Result;
use crate::node::Restored;

impl Scheduler {
    /// What earlier attempts of a node left in the log.
    pub(super) async fn restore(&self, path: &str) -> Result<Restored> {
        let mut restored = Restored::default();
        let Some(node) = self.log.folded.graph.node(path).cloned() else { return Ok(restored) };
        if let Some(safe_point) = &node.safe_point {
            let mut fields = self.log.reader.fields(safe_point.seq).await?;
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
}
