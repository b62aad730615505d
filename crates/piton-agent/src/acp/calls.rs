//! Tool calls: one id of ours for each, and what became known of it until its outcome.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use piton_core::event::ToolStatus;
use piton_core::id::CallId;
use piton_core::spool::Fact;
use serde_json::{Map, Value, json};

use super::MakeIds;
use super::wire::{self, Tool};

/// Calls that are remembered, so that later updates find them; beyond it the oldest are forgotten.
const CALLS_KEPT: usize = 4_096;
/// Ids of the agent's that are taken over as they are; after so many all ids are ours.
const USED_MAX: usize = 100_000;
/// What is held of calls without outcome, for their result. Beyond it the result says less; the
/// updates have said it all.
const HELD_BYTES_MAX: usize = 8 * 1024 * 1024;
/// What a question about a call needs: our name of the part, and the protocol's.
const ASKED_PARTS: &[(&str, &str)] =
    &[("raw_input", "rawInput"), ("content", "content"), ("locations", "locations")];
/// Longer names are cut; `raw` has all of it.
const NAME_BYTES_MAX: usize = 200;

#[derive(Debug)]
struct Call {
    id: CallId,
    turn: u64,
    has_ended: bool,
    /// Its name, title and kind, as last said.
    words: Map<String, Value>,
    /// Content, output and so on, as last said.
    parts: Map<String, Value>,
    bytes: usize,
    /// Parts of which something later was said than what is held, and its size.
    unheld: BTreeMap<&'static str, usize>,
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    by_agent_id: HashMap<String, Call>,
    order: VecDeque<String>,
    used: HashSet<CallId>,
    held_bytes: usize,
}

impl Calls {
    /// What a `tool_call` or `tool_call_update` (masked) comes to. `outputs`: what the terminals it
    /// shows had written.
    pub(super) fn said(
        &mut self,
        update: &Value,
        tool: Tool,
        turn: u64,
        outputs: Map<String, Value>,
        ids: &dyn MakeIds,
    ) -> Vec<Fact> {
        let mut facts = Vec::new();
        let is_new_call = text(update, "sessionUpdate") == Some("tool_call");
        let known = self.by_agent_id.get(&tool.id);
        // An agent may repeat a call to say more of it; in a later turn the same id is another call.
        let is_known = known.is_some_and(|call| !is_new_call || call.turn == turn);
        if !is_known {
            let call_id = self.begin(&tool.id, turn, ids);
            let name = cut(tool.name.as_deref().unwrap_or("tool")).to_owned();
            let arguments = tool.raw_input.clone().unwrap_or_else(|| json!({}));
            facts.push(Fact::ToolCall { call_id, name, arguments });
        }
        let status = tool.status.as_deref().and_then(outcome);
        let room = HELD_BYTES_MAX.saturating_sub(self.held_bytes);
        let Some(call) = self.by_agent_id.get_mut(&tool.id) else { return facts };
        if call.has_ended {
            facts.push(Fact::ToolUpdate { call_id: call.id.clone(), update: update.clone() });
            return facts;
        }
        let before = call.bytes;
        call.hold(tool, room);
        self.held_bytes = self.held_bytes + call.bytes - before;
        match status {
            Some(status) => {
                call.has_ended = true;
                self.held_bytes -= std::mem::take(&mut call.bytes);
                let mut result = std::mem::take(&mut call.parts);
                if !outputs.is_empty() {
                    result.insert("terminals".to_owned(), outputs.into());
                }
                let call_id = call.id.clone();
                facts.push(Fact::ToolResult { call_id, status, result: result.into() });
            }
            None if is_known => {
                let call_id = call.id.clone();
                facts.push(Fact::ToolUpdate { call_id, update: update.clone() });
            }
            None => {}
        }
        facts
    }

    /// The terminals whose output belongs to the result that this update brings.
    pub(super) fn terminals_of(&self, tool: &Tool) -> Vec<String> {
        if tool.status.as_deref().and_then(outcome).is_none() {
            return Vec::new();
        }
        let held = || self.by_agent_id.get(&tool.id).and_then(|call| call.parts.get("content"));
        tool.content
            .as_ref()
            .or_else(held)
            .map(|c| wire::terminals(c).collect())
            .unwrap_or_default()
    }

    /// What was said of a call so far, in the protocol's words, with our id of it: what a question
    /// about the call is about. What is not held any more is counted.
    pub(super) fn so_far(&self, agent_id: &str) -> Option<(&CallId, Map<String, Value>)> {
        let call = self.by_agent_id.get(agent_id)?;
        let mut said = call.words.clone();
        for (name, spelled) in ASKED_PARTS {
            if let Some(part) = call.parts.get(*name) {
                said.insert((*spelled).to_owned(), part.clone());
            }
        }
        let is_asked = |name: &&str| ASKED_PARTS.iter().any(|(asked, _)| asked == name);
        let missing = call.unheld.iter().filter(|(name, _)| is_asked(name));
        let missing: usize = missing.map(|(_, bytes)| bytes).sum();
        if missing > 0 {
            said.insert("missing_bytes".to_owned(), missing.into());
        }
        Some((&call.id, said))
    }

    fn begin(&mut self, agent_id: &str, turn: u64, ids: &dyn MakeIds) -> CallId {
        let own: Option<CallId> = agent_id.parse().ok();
        let is_free = |id: &CallId| self.used.len() < USED_MAX && !self.used.contains(id);
        let call_id = match own.filter(is_free) {
            Some(id) => {
                self.used.insert(id.clone());
                id
            }
            None => ids.call(),
        };
        let call = Call {
            id: call_id.clone(),
            turn,
            has_ended: false,
            words: Map::new(),
            parts: Map::new(),
            bytes: 0,
            unheld: BTreeMap::new(),
        };
        match self.by_agent_id.insert(agent_id.to_owned(), call) {
            Some(before) => self.held_bytes -= before.bytes,
            None => self.order.push_back(agent_id.to_owned()),
        }
        if self.order.len() > CALLS_KEPT
            && let Some(oldest) = self.order.pop_front()
            && let Some(call) = self.by_agent_id.remove(&oldest)
        {
            self.held_bytes -= call.bytes;
        }
        call_id
    }
}

impl Call {
    fn hold(&mut self, tool: Tool, mut room: usize) {
        for (key, word) in [("name", tool.name), ("title", tool.title), ("kind", tool.kind)] {
            // The first name stays: an update says its title for want of one.
            let is_new = key != "name" || !self.words.contains_key(key);
            if let Some(word) = word.filter(|_| is_new) {
                self.words.insert(key.to_owned(), word.into());
            }
        }
        let parts = [
            ("content", tool.content),
            ("raw_output", tool.raw_output),
            ("raw_input", tool.raw_input),
            ("locations", tool.locations),
        ];
        // Of what brings the outcome nothing is left out: it is not held, but written at once.
        let ends = tool.status.as_deref().and_then(outcome).is_some();
        for (name, part) in parts {
            let Some(part) = part else { continue };
            let bytes = part.to_string().len();
            if ends || bytes <= room {
                room = room.saturating_sub(bytes);
                self.bytes += bytes;
                self.parts.insert(name.to_owned(), part);
                self.unheld.remove(name);
            } else {
                self.unheld.insert(name, bytes);
            }
        }
    }
}

fn outcome(status: &str) -> Option<ToolStatus> {
    match status {
        "completed" => Some(ToolStatus::Succeeded),
        "failed" => Some(ToolStatus::Failed),
        // Not in version 1; said by some.
        "cancelled" | "canceled" => Some(ToolStatus::Cancelled),
        _ => None,
    }
}

fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(NAME_BYTES_MAX)]
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}
