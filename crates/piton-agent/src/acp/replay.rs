//! The history that an agent replays when it loads a conversation.
//!
//! `session/load` replays the whole history before it is answered, and some agents continue the
//! replay for a moment after the answer. The log has this history already. So, from the request
//! until the first prompt, messages, tool calls and plans are replay:
//!
//! - Nothing is ever merged by comparing texts. Only the agent's own message ids count.
//! - If the log knows no ids of this agent, or the agent gives none, nothing can be compared, and
//!   the replay is dropped. That is most agents, and no reason for a record at every start.
//! - What comes up to the last message that the log knows is history, and dropped. Calls and plans
//!   right behind it belong to the same turn.
//! - What comes behind it from the first unknown message of the agent on, each message with an id,
//!   happened without us: it is imported as if it were said now. User messages alone are not: the
//!   log has our own prompts, under no id of the agent's.
//! - All else is one [`Fact::HistoryDiverged`] with the rest as it was said, up to a limit: ids that
//!   the log does not know and none that it does, or messages without ids among those with.
//! - What trails in behind the answer is dropped: by then it was decided.

use std::collections::HashSet;

use piton_core::planted::{self, Bug};
use piton_core::spool::Fact;
use serde_json::{Value, json};

use super::wire;

#[derive(Debug, Default)]
enum Phase {
    /// What is said now is said now.
    #[default]
    Live,
    /// The agent replays the history.
    Replaying(Replayed),
    /// The replay was answered, but updates of it may still follow.
    Trailing,
}

#[derive(Debug, Default)]
struct Replayed {
    seen: HashSet<String>,
    /// Something of the conversation came.
    has_begun: bool,
    /// A message that the log knows came.
    is_anchored: bool,
    has_ids: bool,
    /// What came behind the last known message.
    rest: Vec<Value>,
    rest_bytes: usize,
    left_out: u64,
    /// Messages of the agent's in it that have an id, and messages that have none.
    unseen: HashSet<String>,
    without_id: u64,
}

#[derive(Debug)]
pub(super) struct Replay {
    phase: Phase,
    bytes_max: usize,
}

/// What to do with the replayed history.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    Known,
    /// To be taken as said now.
    Import(Vec<Value>),
    Diverged(Fact),
}

impl Replay {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { phase: Phase::Live, bytes_max }
    }

    pub(super) fn begin(&mut self, seen: impl IntoIterator<Item = String>) {
        self.phase =
            Phase::Replaying(Replayed { seen: seen.into_iter().collect(), ..Replayed::default() });
    }

    /// Whether the agent has replayed nothing so far.
    pub(super) fn is_silent(&self) -> bool {
        matches!(&self.phase, Phase::Replaying(replayed) if !replayed.has_begun)
    }

    /// From now on everything is said now.
    pub(super) fn live(&mut self) {
        self.phase = Phase::Live;
    }

    /// Gives the update back if it is no replay.
    pub(super) fn pass(&mut self, update: Value) -> Option<Value> {
        let kind = update.get("sessionUpdate").and_then(Value::as_str).unwrap_or_default();
        let is_user = kind == "user_message_chunk";
        let is_agent = matches!(kind, "agent_message_chunk" | "agent_thought_chunk");
        if !(is_user || is_agent || matches!(kind, "tool_call" | "tool_call_update" | "plan")) {
            return Some(update);
        }
        match &mut self.phase {
            Phase::Live => return Some(update),
            Phase::Trailing => {}
            Phase::Replaying(replayed) => {
                replayed.has_begun = true;
                let id = wire::text_at(&update, "messageId").filter(|_| is_user || is_agent);
                replayed.has_ids |= id.is_some();
                match id {
                    Some(id)
                        if replayed.seen.contains(&id) && !planted::is(Bug::ReplayImported) =>
                    {
                        replayed.is_anchored = true;
                        replayed.rest.clear();
                        replayed.unseen.clear();
                        (replayed.rest_bytes, replayed.left_out, replayed.without_id) = (0, 0, 0);
                        return None;
                    }
                    Some(id) if is_agent => {
                        replayed.unseen.insert(id);
                    }
                    Some(_) => {}
                    None => replayed.without_id += u64::from(is_user || is_agent),
                }
                // Without ids in the log nothing will be made of it.
                if !replayed.seen.is_empty() {
                    replayed.hold(update, self.bytes_max);
                }
            }
        }
        None
    }

    /// The answer came. The caller masks the rest before it writes it.
    pub(super) fn finish(&mut self) -> Verdict {
        match std::mem::replace(&mut self.phase, Phase::Trailing) {
            Phase::Replaying(replayed) => replayed.verdict(),
            Phase::Live | Phase::Trailing => Verdict::Known,
        }
    }
}

impl Replayed {
    fn hold(&mut self, update: Value, bytes_max: usize) {
        let bytes = update.to_string().len();
        if self.left_out > 0 || self.rest_bytes + bytes > bytes_max {
            self.left_out += 1;
        } else {
            self.rest_bytes += bytes;
            self.rest.push(update);
        }
    }

    fn verdict(mut self) -> Verdict {
        if self.seen.is_empty() || !self.has_ids {
            return Verdict::Known;
        }
        if self.unseen.is_empty() && (self.is_anchored && self.without_id == 0) {
            return Verdict::Known;
        }
        if self.is_anchored && self.without_id == 0 && self.left_out == 0 {
            let kind = |update: &Value| wire::text_at(update, "sessionUpdate").unwrap_or_default();
            let first = self.rest.iter().position(|update| kind(update).ends_with("_chunk"));
            let rest = self.rest.split_off(first.unwrap_or_default());
            return Verdict::Import(rest);
        }
        let unseen = self.unseen.len() as u64;
        let rest = json!({ "updates": self.rest, "left_out": self.left_out });
        Verdict::Diverged(Fact::HistoryDiverged { unseen, rest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(kind: &str, id: Option<&str>) -> Value {
        json!({ "sessionUpdate": kind, "messageId": id, "content": { "type": "text", "text": "x" } })
    }

    fn agent(id: &str) -> Value {
        said("agent_message_chunk", Some(id))
    }

    fn user(id: &str) -> Value {
        said("user_message_chunk", Some(id))
    }

    fn call() -> Value {
        json!({ "sessionUpdate": "tool_call", "toolCallId": "c1", "title": "t" })
    }

    fn verdict(seen: &[&str], updates: Vec<Value>) -> Verdict {
        let mut replay = Replay::new(100_000);
        replay.begin(seen.iter().map(|id| (*id).to_owned()));
        for update in updates {
            assert_eq!(replay.pass(update), None);
        }
        let verdict = replay.finish();
        assert_eq!(replay.pass(agent("later")), None, "what trails in is dropped");
        replay.live();
        assert_eq!(replay.pass(agent("live")), Some(agent("live")));
        verdict
    }

    #[test]
    fn without_ids_on_either_side_nothing_is_known() {
        assert_eq!(verdict(&[], vec![user("u1"), agent("a1")]), Verdict::Known);
        let none = said("agent_message_chunk", None);
        assert_eq!(verdict(&["a1"], vec![none, call()]), Verdict::Known);
    }

    #[test]
    fn known_messages_and_what_belongs_to_them_are_dropped() {
        let all = vec![user("u1"), call(), agent("a1"), user("u2"), agent("a2"), call()];
        assert_eq!(verdict(&["a1", "a2"], all), Verdict::Known);
        assert_eq!(verdict(&["a1"], vec![agent("a1"), user("u2")]), Verdict::Known);
    }

    #[test]
    fn unknown_messages_behind_known_ones_are_imported() {
        let all = vec![user("u1"), agent("a1"), call(), user("u2"), call(), agent("a2")];
        assert_eq!(verdict(&["a1"], all), Verdict::Import(vec![user("u2"), call(), agent("a2")]));
    }

    #[test]
    fn what_does_not_fit_is_one_record() {
        let other = vec![user("u9"), agent("a9")];
        let rest = json!({ "updates": other, "left_out": 0 });
        let diverged = Verdict::Diverged(Fact::HistoryDiverged { unseen: 1, rest });
        assert_eq!(verdict(&["a1"], other), diverged, "nothing that the log knows");

        let none = said("agent_message_chunk", None);
        let mixed = vec![agent("a1"), agent("a2"), none.clone()];
        let rest = json!({ "updates": [agent("a2"), none], "left_out": 0 });
        let diverged = Verdict::Diverged(Fact::HistoryDiverged { unseen: 1, rest });
        assert_eq!(verdict(&["a1"], mixed), diverged, "a message without an id");
    }

    #[test]
    fn a_long_rest_is_counted_and_not_imported() {
        let mut replay = Replay::new(agent("a2").to_string().len());
        replay.begin(["a1".to_owned()]);
        for id in ["a1", "a2", "a3", "a4"] {
            replay.pass(agent(id));
        }
        let rest = json!({ "updates": [agent("a2")], "left_out": 2 });
        let diverged = Verdict::Diverged(Fact::HistoryDiverged { unseen: 3, rest });
        assert_eq!(replay.finish(), diverged);
    }

    #[test]
    fn what_is_no_history_passes() {
        let mut replay = Replay::new(1_000);
        replay.begin(["a1".to_owned()]);
        let mode = json!({ "sessionUpdate": "current_mode_update", "currentModeId": "m" });
        assert_eq!(replay.pass(mode.clone()), Some(mode));
    }
}
