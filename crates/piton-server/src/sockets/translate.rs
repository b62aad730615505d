//! Which events a record is. A pure function of the log: every reader of a record, whenever and from
//! wherever it reads, is given the same.

use piton_api::enums::{SessionState, StatusName};
use piton_api::record::FlatRecord;
use piton_api::socket_event::{
    AgentConfigured, AgentText, AgentUpdated, AgentctlError, AgentctlReady, AgentctlStarting,
    EventOrigin, MessageAdded, MessageCompleted, MessageRole, MessageUpdated, RecordEvent,
    SocketEvent, StateChanged, UserMessage,
};
use piton_core::event::Event;
use piton_core::reason::Reason;
use piton_core::status::Name;
use piton_core::status_cursor::{Derived, Transition};
use piton_core::{PromptContent, Record};
use piton_runtime::broadcast::{Entry, Owner};
use serde_json::Value;

/// The record that says what the status was.
const STATUS_DERIVED: &str = "status.derived";

/// The events that a record is, in order: at least one, and all but the last say that there is `more`
/// of the same record.
pub(crate) fn translate(owner: &Owner, entry: &Entry) -> Vec<SocketEvent> {
    let changed = state_changed(owner, entry);
    if &*entry.record.kind == STATUS_DERIVED {
        return changed
            .into_iter()
            .map(|changed| SocketEvent::StateChanged(changed.into()))
            .collect();
    }
    let changed = changed.map(|changed| StateChanged { more: true, ..changed });
    // A header that cannot be read: the record is shown as it is.
    let event = entry.record.event().ok();
    let own = Translating { owner, record: &entry.record }.own(event);
    changed
        .map(|changed| SocketEvent::StateChanged(changed.into()))
        .into_iter()
        .chain([own])
        .collect()
}

/// That the derived status is another one since a record, or that a record says what it is.
pub(crate) fn state_changed(owner: &Owner, entry: &Entry) -> Option<StateChanged> {
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
    fn origin(&self) -> EventOrigin {
        let (Owner { session, task }, record) = (self.owner, self.record);
        EventOrigin {
            session_id: session.clone(),
            task_id: task.clone(),
            seq: record.seq,
            ts: record.ts,
        }
    }

    fn text(&self, field: &str) -> Option<String> {
        match self.record.content_field(field)? {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    fn changed(
        &self,
        old: Derived,
        status: &str,
        name: Option<Name>,
        reason: Option<Reason>,
    ) -> StateChanged {
        StateChanged {
            origin: self.origin(),
            old_state: SessionState::from(old.name.wire()),
            new_state: name.map(|name| SessionState::from(name.wire())),
            old_status: old.name.into(),
            status: name.map_or_else(|| StatusName::Other(status.into()), Into::into),
            reason: reason.map(Into::into),
            sentence: reason.map(|reason| reason.sentence().to_owned()),
            more: false,
        }
    }

    /// What a record is beside a change of the state.
    fn own(&self, event: Option<Event>) -> SocketEvent {
        let (record, origin) = (self.record, self.origin());
        match event {
            Some(Event::ExecutorStarting(e)) => SocketEvent::AgentctlStarting(AgentctlStarting {
                origin,
                agent_execution_id: e.execution_id,
                runtime: e.runtime,
            }),
            Some(Event::ExecutorReady(e)) => SocketEvent::AgentctlReady(AgentctlReady {
                origin,
                agent_execution_id: e.execution_id,
            }),
            Some(Event::ExecutorError(e)) => {
                let error = AgentctlError {
                    origin,
                    agent_execution_id: e.execution_id,
                    code: e.code.map(Into::into),
                    reason: e.reason.map(Into::into),
                    message: self.text("message"),
                };
                SocketEvent::AgentctlError(error.into())
            }
            Some(Event::ExecutorUnreachable(e)) => {
                let error = AgentctlError {
                    origin,
                    agent_execution_id: e.execution_id,
                    code: e.code.map(Into::into),
                    reason: Some(Reason::ExecutorUnreachable.into()),
                    message: self.text("message"),
                };
                SocketEvent::AgentctlError(error.into())
            }
            Some(Event::AgentUpdated(e)) => {
                let updated = AgentUpdated {
                    origin,
                    agent_execution_id: e.execution_id,
                    run_id: e.run_id,
                    what: e.what,
                    update: record.content_field("update"),
                    truncated: e.truncated,
                };
                SocketEvent::AgentUpdated(updated.into())
            }
            Some(Event::AgentConfigured(e)) => {
                let configured = AgentConfigured { origin, chosen: e.choice.into() };
                SocketEvent::AgentConfigured(configured.into())
            }
            Some(Event::MessageUser(e)) => {
                let said = PromptContent::of(record, "content");
                // Text alone is all there is to say of it.
                let blocks = record.content_field("content").filter(Value::is_array);
                let message = UserMessage {
                    origin,
                    message_id: e.message_id,
                    run_id: e.run_id,
                    role: MessageRole::User,
                    offset: 0,
                    text: said.map(|said| said.text()),
                    complete: true,
                    content: blocks,
                };
                SocketEvent::MessageAdded(MessageAdded::User(message).into())
            }
            Some(Event::MessageDelta(e)) => {
                let is_first = e.offset == 0;
                let text = AgentText {
                    origin,
                    message_id: e.message_id,
                    run_id: e.run_id,
                    role: MessageRole::Agent,
                    channel: e.channel.into(),
                    offset: e.offset,
                    text: self.text("text"),
                    complete: false,
                };
                if is_first {
                    SocketEvent::MessageAdded(MessageAdded::Agent(text).into())
                } else {
                    SocketEvent::MessageUpdated(MessageUpdated::Agent(text).into())
                }
            }
            Some(Event::MessageCompleted(e)) => {
                let completed = MessageCompleted {
                    origin,
                    message_id: e.message_id,
                    role: MessageRole::Agent,
                    offset: e.length,
                    text: String::new(),
                    complete: true,
                    length: e.length,
                    hash: e.hash,
                };
                SocketEvent::MessageUpdated(MessageUpdated::Completed(completed).into())
            }
            _ => {
                // What cannot be shown still has its place: a reader must not see a gap.
                let kind = record.kind.to_string();
                let event = RecordEvent { origin, kind, record: FlatRecord::try_from(record).ok() };
                SocketEvent::Record(event.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use piton_core::Seq;
    use piton_core::status_cursor::StatusCursor;
    use serde_json::{Map, json};

    use super::*;

    /// An event as it is sent.
    #[derive(Clone, Debug, PartialEq)]
    struct Frame {
        event: String,
        payload: Map<String, Value>,
    }

    impl From<SocketEvent> for Frame {
        fn from(event: SocketEvent) -> Self {
            let sent = serde_json::to_value(event).unwrap();
            let payload = sent["payload"].as_object().unwrap().clone();
            Self { event: sent["event"].as_str().unwrap().to_owned(), payload }
        }
    }

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

    fn trail(after: usize) -> StatusCursor {
        StatusCursor::new(piton_core::fold::replay(&life()[..after]).unwrap())
    }

    fn frame(records: &[Record], mut trail: StatusCursor) -> Vec<Frame> {
        let owner = Owner { session: "s".parse().unwrap(), task: Some("task_1".parse().unwrap()) };
        let entries = records.iter().map(|record| {
            let transition = trail.pass(record);
            Entry { record: record.clone(), transition }
        });
        entries.flat_map(|entry| translate(&owner, &entry)).map(Frame::from).collect()
    }

    #[test]
    fn each_record_is_its_event() {
        let frame = frame(&life(), trail(0));
        let names: Vec<(&str, u64)> = frame
            .iter()
            .map(|frame| (frame.event.as_str(), frame.payload["seq"].as_u64().unwrap()))
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
        let owner = |task: Option<&str>| Owner {
            session: "s".parse().unwrap(),
            task: task.map(|task| task.parse().unwrap()),
        };
        let mut trail = trail(0);
        let life = life().into_iter().map(|record| {
            let transition = trail.pass(&record);
            (owner(Some("task_1")), Entry { record, transition })
        });
        let none = Derived { name: Name::Idle, reason: Reason::NeverRun };
        let transition = Transition { before: none, after: none };
        let oddities =
            oddities().into_iter().map(|record| (owner(None), Entry { record, transition }));
        let events = life.chain(oddities).flat_map(|(owner, entry)| translate(&owner, &entry));
        let sent: String =
            events.map(|event| serde_json::to_string(&event).unwrap() + "\n").collect();
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
