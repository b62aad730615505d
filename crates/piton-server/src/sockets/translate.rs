//! Which events a record is. A pure function of the log: every reader of a record, whenever and from
//! wherever it reads, is given the same.

use piton_api::enums::SessionState;
use piton_core::event::Event;
use piton_core::id::TaskId;
use piton_core::reason::Reason;
use piton_core::spool::Channel;
use piton_core::status::Name;
use piton_core::trail::{Derived, Transition};
use piton_core::{PromptContent, Record};
use piton_runtime::broadcast::{Entry, Owner};
use serde_json::{Map, Value, json};

/// The record that says what the status was.
const STATUS_DERIVED: &str = "status.derived";

/// An event on its way to a client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) event: &'static str,
    pub(crate) payload: Map<String, Value>,
}

impl Frame {
    pub(crate) fn text(self) -> String {
        json!({"event": self.event, "payload": self.payload}).to_string()
    }
}

/// The events that a record is, in order: at least one, and all but the last say that there is `more`
/// of the same record.
pub(crate) fn translate(owner: &Owner, entry: &Entry) -> Vec<Frame> {
    let mut all: Vec<Frame> = state_changed(owner, entry).into_iter().collect();
    if &*entry.record.kind != STATUS_DERIVED {
        if let Some(changed) = all.last_mut() {
            changed.payload.insert("more".into(), true.into());
        }
        // A header that cannot be read: the record is shown as it is.
        let event = entry.record.event().ok();
        all.push(Translating { owner, record: &entry.record }.own(event.as_ref()));
    }
    all
}

/// That the derived status is another one since a record, or that a record says what it is.
pub(crate) fn state_changed(owner: &Owner, entry: &Entry) -> Option<Frame> {
    let Entry { record, transition: Transition { before, after } } = entry;
    let translating = Translating { owner, record };
    if &*record.kind == STATUS_DERIVED
        && let Ok(Event::StatusDerived(e)) = record.event()
    {
        let name = Name::ALL.iter().copied().find(|name| name.as_str() == e.status);
        return Some(translating.changed(*before, &e.status, name, e.reason));
    }
    let Derived { name, reason } = *after;
    let changed = || translating.changed(*before, name.as_str(), Some(name), Some(reason));
    (before != after).then(changed)
}

/// A record that becomes an event.
struct Translating<'a> {
    owner: &'a Owner,
    record: &'a Record,
}

impl Translating<'_> {
    fn payload(&self) -> Map<String, Value> {
        let (Owner { session, task }, record) = (self.owner, self.record);
        let mut payload = Map::new();
        payload.insert("session_id".into(), session.as_str().into());
        payload.insert("task_id".into(), task.as_ref().map(TaskId::as_str).into());
        payload.insert("seq".into(), record.seq.into());
        payload.insert("ts".into(), record.ts.to_string().into());
        payload
    }

    fn frame(&self, event: &'static str, fields: Value) -> Frame {
        let mut payload = self.payload();
        if let Value::Object(fields) = fields {
            payload.extend(fields);
        }
        Frame { event, payload }
    }

    fn changed(
        &self,
        old: Derived,
        status: &str,
        name: Option<Name>,
        reason: Option<Reason>,
    ) -> Frame {
        let fields = json!({
            "old_state": SessionState::from(old.name.wire()),
            "new_state": name.map(|name| SessionState::from(name.wire())),
            "old_status": old.name.as_str(),
            "status": status,
            "reason": reason.map(Reason::as_str),
            "sentence": reason.map(Reason::sentence),
        });
        self.frame("session.state_changed", fields)
    }

    /// What a record is beside a change of the state.
    fn own(&self, event: Option<&Event>) -> Frame {
        let record = self.record;
        let content = |name: &str| record.content_field(name);
        match event {
            Some(Event::ExecutorStarting(e)) => {
                let fields = json!({"agent_execution_id": e.execution_id, "runtime": e.runtime});
                self.frame("session.agentctl_starting", fields)
            }
            Some(Event::ExecutorReady(e)) => {
                let fields = json!({"agent_execution_id": e.execution_id});
                self.frame("session.agentctl_ready", fields)
            }
            Some(Event::ExecutorError(e)) => {
                let fields = json!({
                    "agent_execution_id": e.execution_id,
                    "code": e.code,
                    "reason": e.reason.map(Reason::as_str),
                    "message": content("message"),
                });
                self.frame("session.agentctl_error", fields)
            }
            Some(Event::ExecutorUnreachable(e)) => {
                let fields = json!({
                    "agent_execution_id": e.execution_id,
                    "code": e.code,
                    "reason": Reason::ExecutorUnreachable.as_str(),
                    "message": content("message"),
                });
                self.frame("session.agentctl_error", fields)
            }
            Some(Event::AgentUpdated(e)) => {
                let mut fields = json!({
                    "agent_execution_id": e.execution_id,
                    "run_id": e.run_id,
                    "what": e.what,
                    "update": content("update"),
                });
                if e.truncated {
                    fields["truncated"] = true.into();
                }
                self.frame("session.agent_updated", fields)
            }
            Some(Event::AgentConfigured(e)) => {
                self.frame("session.agent_configured", json!({"chosen": e.choice}))
            }
            Some(Event::MessageUser(e)) => {
                let said = PromptContent::of(record, "content");
                let mut fields = json!({
                    "message_id": e.message_id,
                    "run_id": e.run_id,
                    "role": "user",
                    "offset": 0,
                    "text": said.map(|said| said.text()),
                    "complete": true,
                });
                // Text alone is all there is to say of it.
                if let Some(blocks @ Value::Array(_)) = content("content") {
                    fields["content"] = blocks;
                }
                self.frame("session.message.added", fields)
            }
            Some(Event::MessageDelta(e)) => {
                let first = e.offset == 0;
                let name = if first { "session.message.added" } else { "session.message.updated" };
                let channel = match e.channel {
                    Channel::Answer => "answer",
                    Channel::Thought => "thought",
                };
                let fields = json!({
                    "message_id": e.message_id,
                    "run_id": e.run_id,
                    "role": "agent",
                    "channel": channel,
                    "offset": e.offset,
                    "text": content("text"),
                    "complete": false,
                });
                self.frame(name, fields)
            }
            Some(Event::MessageCompleted(e)) => {
                let fields = json!({
                    "message_id": e.message_id,
                    "role": "agent",
                    "offset": e.length,
                    "text": "",
                    "complete": true,
                    "length": e.length,
                    "hash": e.hash,
                });
                self.frame("session.message.updated", fields)
            }
            _ => {
                // What cannot be shown still has its place: a reader must not see a gap.
                let flat = record.to_flat().ok();
                let fields = json!({"kind": record.kind, "record": flat});
                self.frame("session.record", fields)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use piton_core::Seq;
    use piton_core::trail::Trail;

    use super::*;

    fn record(seq: Seq, flat: Value) -> Record {
        let Value::Object(mut flat) = flat else { panic!("{flat}") };
        flat.insert("seq".into(), seq.into());
        flat.insert("ts".into(), "2026-02-21T10:01:10.000Z".into());
        Record::from_flat(flat).unwrap()
    }

    /// A life: made, launched, prompted, answered, interrupted, found, closed.
    fn life() -> Vec<Record> {
        let lines = [
            json!({"kind": "session.created", "session_id": "s", "task_id": "task_1"}),
            json!({"kind": "executor.starting", "execution_id": "exec_1", "runtime": "standalone"}),
            json!({"kind": "executor.ready", "execution_id": "exec_1"}),
            json!({"kind": "message.user", "message_id": "m1", "content": "hello"}),
            json!({"kind": "run.started", "run_id": "r1", "boot_id": "b1"}),
            json!({"kind": "message.delta", "message_id": "m2", "offset": 0, "length": 2, "text": "he"}),
            json!({"kind": "message.delta", "message_id": "m2", "offset": 2, "length": 3, "text": "llo"}),
            json!({"kind": "message.completed", "message_id": "m2", "length": 5, "hash": "h"}),
            json!({"kind": "run.interrupted", "run_id": "r1", "reason": "process_exit"}),
            json!({"kind": "status.derived", "status": "interrupted_startup", "reason": "process_exit"}),
            json!({"kind": "executor.unreachable", "execution_id": "exec_1", "message": "away"}),
            json!({"kind": "executor.error", "execution_id": "exec_1", "code": "x", "message": "no"}),
            json!({"kind": "graph.node", "anything": 1}),
            json!({"kind": "session.closed", "outcome": "failed"}),
        ];
        (1..).zip(lines).map(|(seq, line)| record(seq, line)).collect()
    }

    fn trail(after: usize) -> Trail {
        Trail::new(piton_core::fold::replay(&life()[..after]).unwrap())
    }

    fn frame(records: &[Record], mut trail: Trail) -> Vec<Frame> {
        let owner = Owner { session: "s".parse().unwrap(), task: Some("task_1".parse().unwrap()) };
        let entries = records.iter().map(|record| {
            let transition = trail.pass(record);
            Entry { record: record.clone(), transition }
        });
        entries.flat_map(|entry| translate(&owner, &entry)).collect()
    }

    #[test]
    fn each_record_is_its_event() {
        let frame = frame(&life(), trail(0));
        let names: Vec<(&str, u64)> = frame
            .iter()
            .map(|frame| (frame.event, frame.payload["seq"].as_u64().unwrap()))
            .collect();
        assert_eq!(
            names,
            [
                ("session.record", 1),
                ("session.state_changed", 2),
                ("session.agentctl_starting", 2),
                ("session.state_changed", 3),
                ("session.agentctl_ready", 3),
                ("session.message.added", 4),
                ("session.state_changed", 5),
                ("session.record", 5),
                ("session.message.added", 6),
                ("session.message.updated", 7),
                ("session.message.updated", 8),
                ("session.state_changed", 9),
                ("session.record", 9),
                ("session.state_changed", 10),
                ("session.state_changed", 11),
                ("session.agentctl_error", 11),
                ("session.state_changed", 12),
                ("session.agentctl_error", 12),
                ("session.record", 13),
                ("session.state_changed", 14),
                ("session.record", 14),
            ]
        );
        for frame in &frame {
            assert_eq!(frame.payload["session_id"], "s");
            assert_eq!(frame.payload["task_id"], "task_1");
        }
        // All but the last of a record say that there is more of it.
        for pair in frame.windows(2) {
            let same = pair[0].payload["seq"] == pair[1].payload["seq"];
            assert_eq!(pair[0].payload.get("more"), same.then_some(&json!(true)), "{pair:?}");
        }
    }

    #[test]
    fn what_the_events_say() {
        let frame = frame(&life(), trail(0));
        let of = |event: &str, seq: u64| {
            let found = frame.iter().find(|t| t.event == event && t.payload["seq"] == seq);
            Value::Object(found.unwrap().payload.clone())
        };
        let changed = of("session.state_changed", 5);
        assert_eq!(changed["old_state"], "WAITING_FOR_INPUT");
        assert_eq!(changed["new_state"], "RUNNING");
        assert_eq!(
            (&changed["status"], &changed["reason"]),
            (&json!("running"), &json!("run_open"))
        );
        let added = of("session.message.added", 6);
        assert_eq!((&added["offset"], &added["text"]), (&json!(0), &json!("he")));
        assert_eq!((&added["role"], &added["channel"]), (&json!("agent"), &json!("answer")));
        let updated = of("session.message.updated", 7);
        assert_eq!((&updated["offset"], &updated["text"]), (&json!(2), &json!("llo")));
        let done = of("session.message.updated", 8);
        assert_eq!((&done["length"], &done["hash"]), (&json!(5), &json!("h")));
        assert_eq!(done["complete"], true);
        let derived = of("session.state_changed", 10);
        assert_eq!(derived["status"], "interrupted_startup");
        assert_eq!(derived["new_state"], "WAITING_FOR_INPUT");
        assert_eq!(of("session.agentctl_error", 11)["message"], "away");
        assert_eq!(of("session.agentctl_error", 12)["code"], "x");
        assert_eq!(of("session.record", 13)["record"]["anything"], 1);
        assert_eq!(of("session.state_changed", 14)["new_state"], "FAILED");
    }

    /// Kinds and shapes that a plain life has not: fields that are absent, content that is no string or
    /// was taken out, codes and kinds of a newer program.
    fn oddities() -> Vec<Record> {
        let lines = [
            json!({"kind": "session.created", "session_id": "s"}),
            json!({"kind": "agent.updated", "execution_id": "e", "run_id": "r", "what": "plan",
                   "truncated": true, "update": {"z": 1, "a": [null]}}),
            json!({"kind": "agent.updated", "execution_id": "e", "what": "usage"}),
            json!({"kind": "agent.configured", "mode": "plan", "options": {"b": true, "a": "x"}}),
            json!({"kind": "message.user", "message_id": "m1", "run_id": "r1",
                   "content": [{"type": "text", "text": "look"}, {"type": "resource_link", "uri": "u", "name": "n"}]}),
            json!({"kind": "message.user", "message_id": "m2", "redacted": true}),
            json!({"kind": "message.delta", "message_id": "m3", "run_id": "r1", "offset": 0, "length": 2,
                   "channel": "thought", "text": "hm"}),
            json!({"kind": "message.delta", "message_id": "m3", "offset": 2, "length": 2, "redacted": true}),
            json!({"kind": "executor.error", "execution_id": "e", "reason": "launch_failed", "code": "of_tomorrow"}),
            json!({"kind": "executor.unreachable", "execution_id": "e"}),
            json!({"kind": "status.derived", "status": "of_tomorrow"}),
            json!({"kind": "run.completed", "run_id": 7}),
            json!({"kind": "of.tomorrow", "critical": true, "b": {"d": 1, "c": 2}, "a": "x"}),
        ];
        let record = |(seq, line): (Seq, Value)| {
            let text = line.to_string();
            // One that its kind does not allow is read as a store has it.
            let damaged = |kind: &str| Record {
                seq,
                ts: "2026-02-21T10:01:10.000Z".parse().unwrap(),
                kind: kind.into(),
                header: text.clone().into(),
                content: piton_core::record::Content::None,
            };
            match line["kind"].as_str() {
                Some(kind @ "run.completed") => damaged(kind),
                _ => record(seq, line),
            }
        };
        (1..).zip(lines).map(record).collect()
    }

    /// Clients of every version read these: what is sent for a record does not change by a byte.
    /// `PITON_UPDATE=1` writes the file.
    #[test]
    fn the_wire_is_as_it_was() {
        let sent = |records: &[Record]| {
            let owner = Owner { session: "s".parse().unwrap(), task: None };
            let none = Derived { name: Name::Idle, reason: Reason::NeverRun };
            let transition = Transition { before: none, after: none };
            let entries = records.iter().map(|record| Entry { record: record.clone(), transition });
            let frames = entries.flat_map(|entry| translate(&owner, &entry));
            frames.map(|frame| frame.text() + "\n").collect::<String>()
        };
        let life: String =
            frame(&life(), trail(0)).into_iter().map(|frame| frame.text() + "\n").collect();
        let sent = life + &sent(&oddities());
        if std::env::var_os("PITON_UPDATE").is_some() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/sockets/wire.jsonl");
            std::fs::write(path, &sent).unwrap();
        }
        assert_eq!(sent, include_str!("wire.jsonl"));
    }

    /// From wherever one reads on, the rest is the same.
    #[test]
    fn it_does_not_matter_where_one_begins() {
        let (life, whole) = (life(), frame(&life(), trail(0)));
        for after in 0..=life.len() {
            let rest: Vec<Frame> = whole
                .iter()
                .filter(|frame| frame.payload["seq"].as_u64().unwrap() > after as u64)
                .cloned()
                .collect();
            assert_eq!(frame(&life[after..], trail(after)), rest, "after {after}");
        }
    }
}
