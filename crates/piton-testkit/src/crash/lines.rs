//! What a writer says on its standard output: one line for one thing, written at once.

use std::fmt::Write as _;

use piton_core::event::Event;
use piton_core::{Record, Seq};

/// One line of a writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// The lock of this boot is held from here on.
    Boot(String),
    /// A session that an earlier boot left was looked at: its id and what became of it.
    Recovered(String, String),
    /// Recovery is over, work begins.
    Ready,
    Ack(Ack),
    /// A command was refused: session and code.
    Refused(String, String),
    /// The store's counters at the end: batches and flushes.
    Stats {
        batches: u64,
        flushes: u64,
    },
    /// A wait and its token.
    Asked(String, String),
    /// An answer was taken: session, result seq, and whether it was the first answer's result.
    Answered {
        session: String,
        result_seq: Seq,
        replayed: bool,
    },
}

/// A command was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    pub session: String,
    /// The session's last record as of the acknowledged command.
    pub last_seq: Seq,
    /// Bytes of the record's content, if it has one.
    pub bytes: usize,
    /// How the record is found: see [`mark`].
    pub mark: String,
}

impl Line {
    pub fn to_text(&self) -> String {
        match self {
            Self::Boot(boot) => format!("boot {boot}\n"),
            Self::Recovered(session, outcome) => format!("recovered {session} {outcome}\n"),
            Self::Ready => "ready\n".into(),
            Self::Ack(ack) => {
                format!("ack {} {} {} {}\n", ack.session, ack.last_seq, ack.bytes, ack.mark)
            }
            Self::Refused(session, code) => format!("refused {session} {code}\n"),
            Self::Stats { batches, flushes } => format!("stats {batches} {flushes}\n"),
            Self::Asked(wait, token) => format!("asked {wait} {token}\n"),
            Self::Answered { session, result_seq, replayed } => {
                format!("answered {session} {result_seq} {replayed}\n")
            }
        }
    }

    /// A line without its end; `None` if no writer writes such a line.
    pub fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        Some(match words.as_slice() {
            ["boot", boot] => Self::Boot((*boot).to_owned()),
            ["recovered", session, outcome] => {
                Self::Recovered((*session).to_owned(), (*outcome).to_owned())
            }
            ["ready"] => Self::Ready,
            ["ack", session, last_seq, bytes, mark] => Self::Ack(Ack {
                session: (*session).to_owned(),
                last_seq: last_seq.parse().ok()?,
                bytes: bytes.parse().ok()?,
                mark: (*mark).to_owned(),
            }),
            ["refused", session, code] => Self::Refused((*session).to_owned(), (*code).to_owned()),
            ["stats", batches, flushes] => {
                Self::Stats { batches: batches.parse().ok()?, flushes: flushes.parse().ok()? }
            }
            ["asked", wait, token] => Self::Asked((*wait).to_owned(), (*token).to_owned()),
            ["answered", session, result_seq, replayed] => Self::Answered {
                session: (*session).to_owned(),
                result_seq: result_seq.parse().ok()?,
                replayed: replayed.parse().ok()?,
            },
            _ => return None,
        })
    }
}

/// The beginning of a record as it lies in the store in the clear: its kind, then its header up to
/// the id that makes it the only one.
pub fn mark(kind: &str, fields: &[(&str, &str)]) -> String {
    let mut text = kind.to_owned();
    for (index, (name, id)) in fields.iter().enumerate() {
        let open = if index == 0 { '{' } else { ',' };
        // Writing to a string does not fail.
        let _ = write!(text, "{open}\"{name}\":\"{id}\"");
    }
    text
}

/// The mark of a record and the id that its content is made from, if its kind has a mark.
pub(crate) fn mark_of(record: &Record, event: &Event) -> Option<(String, String)> {
    let (fields, of): (Vec<(&str, String)>, String) = match event {
        Event::SessionCreated(e) => {
            (vec![("session_id", e.session_id.to_string())], e.session_id.to_string())
        }
        Event::MessageUser(e) => {
            (vec![("message_id", e.message_id.to_string())], e.message_id.to_string())
        }
        Event::MessageDelta(e) => {
            (vec![("message_id", e.message_id.to_string())], e.message_id.to_string())
        }
        Event::MessageCompleted(e) => {
            (vec![("message_id", e.message_id.to_string())], e.message_id.to_string())
        }
        Event::ToolIntent(e) => (vec![("call_id", e.call_id.to_string())], e.call_id.to_string()),
        Event::ToolOutcome(e) => (vec![("call_id", e.call_id.to_string())], e.call_id.to_string()),
        Event::RunCompleted(e) => (vec![("run_id", e.run_id.to_string())], e.run_id.to_string()),
        Event::RunWaiting(e) => {
            let wait = e.wait_id.as_ref()?.to_string();
            (vec![("run_id", e.run_id.to_string()), ("wait_id", wait.clone())], wait)
        }
        Event::RunResumed(e) => {
            let mut fields =
                vec![("run_id", e.run_id.to_string()), ("boot_id", e.boot_id.to_string())];
            fields.extend(e.wait_id.as_ref().map(|wait| ("wait_id", wait.to_string())));
            let of = e.wait_id.as_ref().map_or_else(|| e.run_id.to_string(), ToString::to_string);
            (fields, of)
        }
        _ => return None,
    };
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, id)| (*name, &**id)).collect();
    Some((mark(&record.kind, &fields), of))
}

/// A content that only this id has, of a given length; compresses badly.
pub fn filler(id: &str, bytes: usize) -> String {
    let seed = blake3::hash(id.as_bytes());
    let seed = u64::from_le_bytes(std::array::from_fn(|index| seed.as_bytes()[index]));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut text: String = id.chars().take(bytes).collect();
    while text.len() < bytes {
        text.push(random.alphanumeric());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_written() {
        for line in [
            Line::Boot("boot_1".into()),
            Line::Recovered("s".into(), "Settled".into()),
            Line::Ready,
            Line::Ack(Ack {
                session: "s".into(),
                last_seq: 7,
                bytes: 9,
                mark: mark("run.completed", &[("run_id", "r")]),
            }),
            Line::Refused("s".into(), "disk_full".into()),
            Line::Stats { batches: 1, flushes: 2 },
            Line::Asked("w".into(), "rt.00".into()),
            Line::Answered { session: "s".into(), result_seq: 3, replayed: true },
        ] {
            let text = line.to_text();
            assert_eq!(Line::parse(text.strip_suffix('\n').unwrap()), Some(line));
        }
        assert_eq!(Line::parse("ack s 1"), None);
    }

    #[test]
    fn a_mark_is_how_a_record_begins() {
        let mark = mark("run.waiting", &[("run_id", "r"), ("wait_id", "w")]);
        assert_eq!(mark, r#"run.waiting{"run_id":"r","wait_id":"w""#);
    }
}
