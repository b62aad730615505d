//! One line of a log. A record keeps the header bytes as they were first written (the chain covers
//! them); [`Record::event`] is the typed view.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::Code;
use crate::event::{self, Event, Seq};
use crate::time::Timestamp;

/// In the flat form: stands in place of the content that was taken out.
const REDACTED: &str = "redacted";

const ADOPTED: &str = "session.adopted";

/// The content of a record as the reader got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The kind has none, or none was given.
    None,
    /// It exists and was not asked for.
    Omitted,
    /// A JSON object with the kind's content fields, as first written.
    Json(Box<str>),
    /// It was taken out; a `record.redacted` says why.
    Redacted,
}

/// A record as it is in the log.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    pub seq: Seq,
    pub ts: Timestamp,
    pub kind: Box<str>,
    /// A JSON object, as first written.
    pub header: Box<str>,
    pub content: Content,
}

/// A record that is to be appended; the store gives it its seq.
#[derive(Clone, PartialEq)]
pub struct NewRecord {
    pub ts: Timestamp,
    pub kind: Box<str>,
    pub header: Box<str>,
    pub payload: Option<Box<str>>,
    pub event: Event,
}

/// Why something is not a record.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Header(#[from] event::ParseError),
    #[error("The record is not a JSON object")]
    NotAnObject(#[source] serde_json::Error),
    #[error("The record's field {0:?} is missing or of the wrong type")]
    Field(&'static str),
    #[error("The record's {what} is not UTF-8")]
    NotUtf8 {
        what: &'static str,
        #[source]
        source: std::str::Utf8Error,
    },
}

impl Error {
    pub fn code(&self) -> Code {
        match self {
            Self::Header(_) | Self::NotAnObject(_) | Self::Field(_) => Code::RecordDamaged,
            Self::NotUtf8 { .. } => Code::Utf8Invalid,
        }
    }
}

impl NewRecord {
    /// A record without content.
    pub fn new(ts: Timestamp, event: impl Into<Event>) -> Self {
        Self::build(ts, event.into(), None)
    }

    /// A record with content fields, as its kind declares them.
    pub fn with_content(ts: Timestamp, event: impl Into<Event>, field: &str, value: Value) -> Self {
        let event = event.into();
        debug_assert!(event::content_fields(event.kind()).contains(&field), "undeclared content");
        let mut content = Map::new();
        content.insert(field.to_owned(), value);
        Self::build(ts, event, Some(Value::Object(content).to_string().into()))
    }

    /// A record with several content fields.
    pub fn with_fields(
        ts: Timestamp,
        event: impl Into<Event>,
        content: Map<String, Value>,
    ) -> Self {
        let event = event.into();
        let declared = event::content_fields(event.kind());
        debug_assert!(
            content.keys().all(|field| declared.contains(&field.as_str())),
            "undeclared content"
        );
        Self::build(ts, event, Some(Value::Object(content).to_string().into()))
    }

    /// Like [`Self::with_content`], without a copy of what may be large.
    pub fn with_serialized(
        ts: Timestamp,
        event: impl Into<Event>,
        field: &str,
        value: &impl Serialize,
    ) -> Self {
        let event = event.into();
        debug_assert!(event::content_fields(event.kind()).contains(&field), "undeclared content");
        let content = serde_json::to_string(&std::collections::BTreeMap::from([(field, value)]));
        Self::build(ts, event, content.ok().map(Into::into))
    }

    fn build(ts: Timestamp, event: Event, payload: Option<Box<str>>) -> Self {
        let header = event.header_json().unwrap_or_else(|| "{}".to_owned());
        Self { ts, kind: event.kind().into(), header: header.into(), payload, event }
    }

    /// A record whose bytes come from elsewhere (import, conversion): they are kept as they are,
    /// but must be text, as everything in a log is.
    pub fn from_bytes(
        ts: Timestamp,
        kind: &str,
        header: &[u8],
        payload: Option<&[u8]>,
    ) -> Result<Self, Error> {
        let text = |what, bytes| {
            std::str::from_utf8(bytes).map_err(|source| Error::NotUtf8 { what, source })
        };
        let header = text("header", header)?;
        let payload = payload.map(|payload| text("content", payload)).transpose()?;
        let event = Event::parse(kind, header)?;
        Ok(Self {
            ts,
            kind: kind.into(),
            header: header.into(),
            payload: payload.map(Into::into),
            event,
        })
    }

    pub fn at(&self, seq: Seq) -> Record {
        let content = self.payload.clone().map_or(Content::None, Content::Json);
        Record { seq, ts: self.ts, kind: self.kind.clone(), header: self.header.clone(), content }
    }
}

/// Whether a record may follow the one with seq `last` (0: none). Seqs have no gaps; only a log that
/// began elsewhere starts later than with 1.
pub fn may_follow(last: Seq, seq: Seq, kind: &str) -> bool {
    seq == last + 1 || (last == 0 && seq > 0 && kind == ADOPTED)
}

impl Record {
    pub fn event(&self) -> Result<Event, event::ParseError> {
        Event::parse(&self.kind, &self.header)
    }

    /// One content field, if it was read and is there.
    pub fn content_field(&self, field: &str) -> Option<Value> {
        match &self.content {
            Content::Json(json) => {
                serde_json::from_str::<Map<String, Value>>(json).ok()?.remove(field)
            }
            Content::None | Content::Omitted | Content::Redacted => None,
        }
    }

    /// The record as one flat JSON object, the form people and other programs read.
    pub fn to_flat(&self) -> Result<Map<String, Value>, Error> {
        let mut flat = Map::new();
        flat.insert("seq".into(), self.seq.into());
        flat.insert("ts".into(), self.ts.to_string().into());
        flat.insert("kind".into(), self.kind.as_ref().into());
        let header: Map<String, Value> =
            serde_json::from_str(&self.header).map_err(Error::NotAnObject)?;
        flat.extend(header);
        match &self.content {
            Content::Json(json) => {
                let content: Map<String, Value> =
                    serde_json::from_str(json).map_err(Error::NotAnObject)?;
                flat.extend(content);
            }
            Content::Redacted => {
                flat.insert(REDACTED.into(), true.into());
            }
            Content::None | Content::Omitted => {}
        }
        Ok(flat)
    }

    /// Reads the flat form: known content fields become content, everything else is header.
    pub fn from_flat(mut flat: Map<String, Value>) -> Result<Self, Error> {
        let seq = flat.remove("seq").and_then(|v| v.as_u64()).ok_or(Error::Field("seq"))?;
        let ts = match flat.remove("ts") {
            Some(Value::String(text)) => text.parse().map_err(|_| Error::Field("ts"))?,
            _ => return Err(Error::Field("ts")),
        };
        let Some(Value::String(kind)) = flat.remove("kind") else {
            return Err(Error::Field("kind"));
        };
        let mut content = Map::new();
        let fields = event::content_fields(&kind);
        for field in fields {
            if let Some(value) = flat.remove(*field) {
                content.insert((*field).to_owned(), value);
            }
        }
        let taken_out = content.is_empty()
            && !fields.is_empty()
            && flat.get(REDACTED) == Some(&Value::Bool(true));
        let content = if taken_out {
            flat.remove(REDACTED);
            Content::Redacted
        } else if content.is_empty() {
            Content::None
        } else {
            Content::Json(Value::Object(content).to_string().into())
        };
        let header = Value::Object(flat).to_string();
        Event::parse(&kind, &header)?;
        Ok(Self { seq, ts, kind: kind.into(), header: header.into(), content })
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {:?}", self.seq, self.kind, self.header, self.content)
    }
}

impl fmt::Debug for NewRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:?}", self.kind, self.header, self.payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(json: &str) -> Map<String, Value> {
        serde_json::from_str(json).unwrap()
    }

    /// The four example lines of the requirement are records as they stand.
    #[test]
    fn example_lines_are_records() {
        for line in [
            r#"{"seq":145,"ts":"2026-02-21T10:01:10Z","kind":"message.user","message_id":"msg_u1","content":"run tests"}"#,
            r#"{"seq":146,"ts":"2026-02-21T10:01:25Z","kind":"run.waiting","run_id":"run_9f5","wait_kind":"tool_result","resume_token_id":"rt_5f0"}"#,
            r#"{"seq":147,"ts":"2026-02-21T10:02:02Z","kind":"run.interrupted","run_id":"run_9f5","reason":"process_exit"}"#,
            r#"{"seq":148,"ts":"2026-02-21T10:03:14Z","kind":"status.derived","status":"interrupted_waiting"}"#,
        ] {
            let record = Record::from_flat(object(line)).unwrap();
            let mut flat = record.to_flat().unwrap();
            assert!(!matches!(record.event().unwrap(), Event::Unknown(_)));
            let mut expected = object(line);
            // The moment gains milliseconds; all else is as it was.
            assert_eq!(flat.remove("ts").is_some(), expected.remove("ts").is_some());
            assert_eq!(flat, expected);
        }
    }

    #[test]
    fn unknown_kinds_and_fields_pass_through_unchanged() {
        let line = r#"{"seq":1,"ts":"2026-02-21T10:01:10.000Z","kind":"graph.node","z":{"b":1,"a":[null]},"a":"x"}"#;
        let record = Record::from_flat(object(line)).unwrap();
        assert_eq!(record.to_flat().unwrap(), object(line));
        let line = r#"{"seq":1,"ts":"2026-02-21T10:01:10.000Z","kind":"run.paused","run_id":"r","later":1.5}"#;
        let record = Record::from_flat(object(line)).unwrap();
        assert_eq!(record.to_flat().unwrap(), object(line));
    }

    /// That content was taken out is not lost in the flat form, and a kind without content, or a
    /// record that has its content, may have a field of that name.
    #[test]
    fn redaction_survives_the_flat_form() {
        let start = r#"{"seq":1,"ts":"2026-02-21T10:01:10.000Z""#;
        for (rest, content) in [
            (r#""kind":"message.user","message_id":"m","redacted":true"#, Content::Redacted),
            (r#""kind":"message.user","message_id":"m","redacted":false"#, Content::None),
            (
                r#""kind":"message.user","message_id":"m","content":"x","redacted":true"#,
                Content::Json(r#"{"content":"x"}"#.into()),
            ),
            (r#""kind":"run.paused","run_id":"r","redacted":true"#, Content::None),
        ] {
            let line = format!("{start},{rest}}}");
            let record = Record::from_flat(object(&line)).unwrap();
            assert_eq!(record.content, content, "{line}");
            assert_eq!(record.to_flat().unwrap(), object(&line));
        }
    }

    /// Without care, reading this number gives its neighbour.
    #[test]
    fn numbers_pass_through_to_the_last_bit() {
        let mut flat = object(r#"{"seq":1,"ts":"2026-02-21T10:01:10.000Z","kind":"x"}"#);
        flat.insert("number".into(), 2.527_938_822_056_597_7e121.into());
        let record = Record::from_flat(flat.clone()).unwrap();
        assert_eq!(record.to_flat().unwrap(), flat);
    }

    #[test]
    fn what_is_not_text_is_refused() {
        let ts = Timestamp::from_millis(0);
        let refused = NewRecord::from_bytes(ts, "x", b"{\"a\":\"\xff\"}", None).unwrap_err();
        assert_eq!(refused.code(), Code::Utf8Invalid);
        let refused = NewRecord::from_bytes(ts, "x", b"{}", Some(b"\xc3\x28")).unwrap_err();
        assert_eq!(refused.code(), Code::Utf8Invalid);
        let refused = NewRecord::from_bytes(ts, "x", b"{", None).unwrap_err();
        assert_eq!(refused.code(), Code::RecordDamaged);
    }

    #[test]
    fn broken_lines_are_named() {
        for (line, field) in [
            (r#"{"ts":"2026-02-21T10:01:10Z","kind":"x"}"#, "seq"),
            (r#"{"seq":-1,"ts":"2026-02-21T10:01:10Z","kind":"x"}"#, "seq"),
            (r#"{"seq":1,"ts":"yesterday","kind":"x"}"#, "ts"),
            (r#"{"seq":1,"ts":"2026-02-21T10:01:10Z"}"#, "kind"),
        ] {
            match Record::from_flat(object(line)) {
                Err(Error::Field(named)) => assert_eq!(named, field),
                other => panic!("{line}: {other:?}"),
            }
        }
    }
}
