//! The derived status along a log: what it was before and after each record, as the records alone say
//! it. No boot is taken for dead here: the process that finds one dead writes a record.

use std::collections::BTreeSet;

use crate::event::{Event, Seq};
use crate::reason::Reason;
use crate::record::Record;
use crate::state::State;
use crate::status::{self, Name};
use crate::time::Timestamp;

/// The kind that most of a log consists of. It changes nothing that a status is derived from, so it
/// is not parsed.
const DELTA: &str = "message.delta";

/// A status by its name and reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Derived {
    pub name: Name,
    pub reason: Reason,
}

/// The status around one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    pub before: Derived,
    pub after: Derived,
}

impl Transition {
    pub fn is_change(&self) -> bool {
        self.before != self.after
    }
}

/// A position in a log, and the status there.
#[derive(Clone, Debug)]
pub struct StatusCursor {
    state: State,
    status: Derived,
}

impl StatusCursor {
    /// Continues after a state's last record.
    pub fn new(state: State) -> Self {
        let status = derive(&state);
        Self { state, status }
    }

    /// The seq of the last record.
    pub fn position(&self) -> Seq {
        self.state.last_seq
    }

    /// Passes the next record. One whose header cannot be read changes nothing but the position.
    pub fn pass(&mut self, record: &Record) -> Transition {
        self.state.last_seq = record.seq;
        if &*record.kind == DELTA {
            self.state.updated_at = Some(record.ts);
        } else if let Ok(event) = record.event() {
            self.apply(record, &event);
        }
        let after = derive(&self.state);
        Transition { before: std::mem::replace(&mut self.status, after), after }
    }

    fn apply(&mut self, record: &Record, event: &Event) {
        self.state.apply(record.seq, record.ts, event);
    }
}

/// At the moment of the last record.
fn derive(state: &State) -> Derived {
    let now = state.updated_at.unwrap_or(Timestamp::from_millis(0));
    let status = status::derive(&state.facts, &BTreeSet::new(), now);
    Derived { name: status.name, reason: status.reason }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn record(seq: Seq, flat: Value) -> Record {
        let Value::Object(mut flat) = flat else { panic!("{flat}") };
        flat.insert("seq".into(), seq.into());
        flat.insert("ts".into(), format!("2026-02-21T10:01:{seq:02}.000Z").into());
        Record::from_flat(flat).unwrap()
    }

    fn log() -> Vec<Record> {
        let wait = json!({"kind": "run.waiting", "run_id": "r1", "wait_id": "w1",
            "wait_kind": "input", "deadline_at": "2026-02-21T10:01:06.500Z"});
        let lines = [
            json!({"kind": "session.created", "session_id": "s"}),
            json!({"kind": "run.started", "run_id": "r1", "boot_id": "b1"}),
            json!({"kind": "message.delta", "message_id": "m", "offset": 0, "length": 1, "text": "x"}),
            wait,
            json!({"kind": "message.delta", "message_id": "m", "offset": 1, "length": 1, "text": "x"}),
            json!({"kind": "tool.intent", "call_id": "c", "run_id": "r1", "name": "n"}),
            // After the deadline.
            json!({"kind": "message.delta", "message_id": "m", "offset": 2, "length": 1, "text": "x"}),
            json!({"kind": "run.completed", "run_id": "r1"}),
        ];
        (1..).zip(lines).map(|(seq, line)| record(seq, line)).collect()
    }

    /// Wherever one begins, and although deltas are not parsed, it is the status of the folded state.
    #[test]
    fn it_is_the_status_of_the_folded_state() {
        let log = log();
        for from in 0..=log.len() {
            let mut trail = StatusCursor::new(crate::fold::replay(&log[..from]).unwrap());
            for at in from..log.len() {
                let expected = |to: usize| derive(&crate::fold::replay(&log[..to]).unwrap());
                let transition = trail.pass(&log[at]);
                assert_eq!(transition.before, expected(at), "{from} {at}");
                assert_eq!(transition.after, expected(at + 1), "{from} {at}");
                assert_eq!(trail.position(), log[at].seq);
            }
        }
        let mut trail = StatusCursor::new(State::default());
        let changed: Vec<Seq> =
            log.iter().filter(|record| trail.pass(record).is_change()).map(|r| r.seq).collect();
        assert!(changed.contains(&2) && changed.contains(&7), "{changed:?}");
    }
}
